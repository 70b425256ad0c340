//! `tollgate.toml`: settings that `auditd.conf` does not have.
//!
//! ```toml
//! rules = ["/etc/audit/audit.rules"]
//! engine = "auto"                 # or "fentry", "lsm", "tracepoint"
//! allow_loss = false              # start on a kernel that can skip programs
//! delay_ms = 10                   # 2 to 1000
//! partial = false
//! io_uring = true
//! auditd_conf = "/etc/audit/auditd.conf"
//! kernel_messages = "auto"        # or "unicast", "multicast", "off"
//! pins = "/sys/fs/bpf/tollgate"   # or false
//! metrics = "127.0.0.1:9465"      # or the path of a Unix socket; off by default
//! watch_group = "adm"             # may watch; by default only root may
//! index = true                    # index the log as it grows
//! compress = false                # turn rotated logs into archives
//!
//! [on_loss]
//! deny = ["shadow"]               # rule keys: syscalls that these rules cannot record are denied
//!
//! [json]                          # off by default
//! file = "/var/log/tollgate/events.json"
//! schema = "records"              # or "ecs", "ocsf"
//! max_mib = 64
//! keep = 4
//! ```

mod settings;

use std::ops::Range;
use std::path::PathBuf;

use audit::rule::{Diagnostic, Severity};
use bstr::ByteSlice as _;
use engine::EngineKind;
use metrics::MetricsAddress;
use serde::{Deserialize, Serialize};

use super::JsonLogConfig;

/// The settings of the file; `None` for those that it does not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TollgateToml {
    /// Rule files, read in this order.
    pub(crate) rules: Option<Vec<PathBuf>>,
    /// BPF engine.
    pub(crate) engine: Option<EngineChoice>,
    /// Start although the kernel can skip programs on tracepoints.
    pub(crate) allow_loss: Option<bool>,
    /// Longest time from an event to the write to the log.
    pub(crate) delay_ms: Option<DelayMs>,
    /// Load the supported rules although others are not supported.
    pub(crate) partial: Option<bool>,
    /// Audit `io_uring` operations.
    pub(crate) io_uring: Option<bool>,
    /// Path of `auditd.conf`.
    pub(crate) auditd_conf: Option<PathBuf>,
    /// How to read the records of the kernel's audit.
    pub(crate) kernel_messages: Option<KernelRecordsMode>,
    /// Directory in which BPF objects are pinned.
    pub(crate) pins: Option<PinsSetting>,
    /// Address at which metrics are served.
    pub(crate) metrics: Option<MetricsAddress>,
    /// Group whose members may watch events and ask for the status.
    pub(crate) watch_group: Option<String>,
    /// Index the log as it grows.
    pub(crate) index: Option<bool>,
    /// Turn rotated logs into compressed archives.
    pub(crate) compress: Option<bool>,
    /// Action when an event would be lost.
    #[serde(default)]
    pub(crate) on_loss: OnLoss,
    /// The JSON log.
    pub(crate) json: Option<JsonLogConfig>,
}

/// Action when an event would be lost because the ring is full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnLoss {
    /// Keys of the rules whose syscalls are denied.
    #[serde(default)]
    pub(crate) deny: Vec<String>,
}

/// Whether and where BPF objects are pinned.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "the path of a directory, or false")]
pub(crate) enum PinsSetting {
    /// Pinned in this directory.
    Directory(PathBuf),
    /// Not pinned if `false`; the default if `true`.
    Enabled(bool),
}

/// The engine to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineChoice {
    /// The first engine that this kernel supports.
    Auto,
    /// fentry and fexit programs on kernel functions.
    Fentry,
    /// Kprobes, LSM programs and task work, for kernels that preempt themselves.
    Lsm,
    /// Tracepoint programs.
    Tracepoint,
}

/// How to read the records that the kernel's audit sends: user messages, logins, denials and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KernelRecordsMode {
    /// `unicast` if no other process is registered, otherwise `multicast`.
    Auto,
    /// Register as the audit daemon.
    Unicast,
    /// Join the multicast group, beside the registered audit daemon.
    Multicast,
    /// Do not read them.
    Off,
}

/// Longest time from an event to the write to the log.
///
/// # Units
/// Milliseconds, 2 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub(crate) struct DelayMs(pub(crate) u64);

impl EngineChoice {
    /// Returns the name used in `tollgate.toml` and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fentry => "fentry",
            Self::Lsm => "lsm",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Returns the engines to try, the best first.
    pub(crate) fn kinds(self) -> Vec<EngineKind> {
        match self {
            Self::Auto => EngineKind::ALL.to_vec(),
            Self::Fentry => vec![EngineKind::Fentry],
            Self::Lsm => vec![EngineKind::Lsm],
            Self::Tracepoint => vec![EngineKind::Tracepoint],
        }
    }
}

impl KernelRecordsMode {
    /// Returns the name used in `tollgate.toml` and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Unicast => "unicast",
            Self::Multicast => "multicast",
            Self::Off => "off",
        }
    }
}

impl TollgateToml {
    /// Parses a text that was valid before. `None` if it has errors.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (settings, diagnostics) = parse(text);
        diagnostics.is_empty().then_some(settings)
    }
}

impl TryFrom<u64> for DelayMs {
    type Error = String;

    fn try_from(ms: u64) -> Result<Self, String> {
        if (2..=1000).contains(&ms) {
            Ok(Self(ms))
        } else {
            Err(format!(
                "delay `{ms}` is not between 2 and 1000 milliseconds"
            ))
        }
    }
}

/// Parses the text, and reports every mistake. The settings are those without a mistake; none if the text is not TOML.
pub(super) fn parse(bytes: &[u8]) -> (TollgateToml, Vec<Diagnostic>) {
    let text = match bytes.to_str() {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let advice = "save the file as UTF-8";
            let found = diagnostic(bytes, at..at + 1, "invalid UTF-8".to_owned(), advice);
            return (TollgateToml::default(), vec![found]);
        }
    };
    let (valid, mut mistakes) = settings::check(text);
    let parsed = toml::from_str(if mistakes.is_empty() { text } else { &valid });
    let settings = parsed.unwrap_or_else(|error: toml::de::Error| {
        // Each setting is valid alone.
        if mistakes.is_empty() {
            let span = error.span().unwrap_or(0..0);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            mistakes.push(diagnostic(bytes, span, message, "see tollgate.toml(5)"));
        }
        TollgateToml::default()
    });
    (settings, mistakes)
}

/// An error about a value in a text that may have other mistakes. The place is a section, empty for the top level, a
/// setting and its value; of an array the element that is the value. It is the first byte if the text does not have it.
pub(crate) fn finding_at(
    bytes: &[u8],
    place: (&str, &str, &str),
    message: String,
    advice: &str,
) -> Diagnostic {
    let text = bytes.to_str().unwrap_or_default();
    let span = settings::span_of(text, place).unwrap_or(0..0);
    diagnostic(bytes, span, message, advice)
}

fn diagnostic(bytes: &[u8], span: Range<usize>, message: String, advice: &str) -> Diagnostic {
    let before = bytes.get(..span.start).unwrap_or(bytes);
    let line = before.find_iter(b"\n").count() + 1;
    let start = before.rfind_byte(b'\n').map_or(0, |at| at + 1);
    let counted = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let end = span.end.min(bytes.len());
    Diagnostic {
        severity: Severity::Error,
        code: "bad-toml",
        line: counted(line),
        column: counted(span.start - start + 1),
        span: span.start.min(end)..end,
        message,
        advice: advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::JsonSchema;

    #[test]
    fn every_setting_is_parsed() {
        let text = "rules = [\"/a\", \"/b\"]\nengine = \"fentry\"\nallow_loss = true\ndelay_ms = 2\npartial = true\n\
                    io_uring = false\nauditd_conf = \"/c\"\nkernel_messages = \"multicast\"\n\
                    pins = \"/p\"\nmetrics = \"/m\"\nwatch_group = \"g\"\nindex = false\ncompress = true\n\
                    [on_loss]\ndeny = [\"k\"]\n[json]\nfile = \"/j\"\nschema = \"ecs\"\n";
        let expected = TollgateToml {
            rules: Some(vec!["/a".into(), "/b".into()]),
            engine: Some(EngineChoice::Fentry),
            allow_loss: Some(true),
            delay_ms: Some(DelayMs(2)),
            partial: Some(true),
            io_uring: Some(false),
            auditd_conf: Some("/c".into()),
            kernel_messages: Some(KernelRecordsMode::Multicast),
            pins: Some(PinsSetting::Directory("/p".into())),
            metrics: Some(MetricsAddress::Unix("/m".into())),
            watch_group: Some("g".to_owned()),
            index: Some(false),
            compress: Some(true),
            on_loss: OnLoss {
                deny: vec!["k".to_owned()],
            },
            json: Some(JsonLogConfig {
                file: "/j".into(),
                schema: JsonSchema::Ecs,
                max_mib: 64,
                keep: 4,
            }),
        };
        assert_eq!(parse(text.as_bytes()), (expected, vec![]));
        assert_eq!(parse(b""), (TollgateToml::default(), vec![]));
        let (settings, _) = parse(b"pins = false\n");
        assert_eq!(settings.pins, Some(PinsSetting::Enabled(false)));
    }

    #[test]
    fn errors_have_a_position_and_advice() {
        for (text, line, column, word) in [
            (
                &b"\nengin = \"auto\"\n"[..],
                2,
                1,
                "unknown setting `engin`",
            ),
            (b"delay_ms = 1\n", 1, 12, "from 2 to 1000, not 1"),
            (b"delay_ms = \"a\"\n", 1, 12, "`delay_ms` takes a number"),
            (
                b"engine = \"bpf\"\n",
                1,
                10,
                "\"fentry\", \"lsm\" or \"tracepoint\", not \"bpf\"",
            ),
            (b"metrics = \"0.0.0.0:1\"\n", 1, 11, "loopback"),
            (b"rules = [\n", 1, 10, "this is not TOML: "),
            (b"rules = \"\xff\"\n", 1, 10, "UTF-8"),
            (b"json = 3\n", 1, 8, "`json` is a section"),
            (b"\n[json]\nkeep = 1\n", 2, 2, "lacks the setting `file`"),
            (
                b"[json]\nfile = \"/j\"\nkeep = 256\n",
                3,
                8,
                "from 0 to 255, not 256",
            ),
        ] {
            let (_, found) = parse(text);
            let [found] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!((found.line, found.column), (line, column), "{found:?}");
            assert!(found.message.contains(word), "{found:?}");
            assert!(!found.advice.is_empty());
        }
    }

    #[test]
    fn switches_that_are_no_booleans_are_reported_at_their_value() {
        for (text, line, column, written) in [
            ("compress = yes\n", 1, 12, "yes"),
            (
                "index = true\ncompress = yes # as auditd.conf\n",
                2,
                12,
                "yes",
            ),
            ("index=on", 1, 7, "on"),
            ("partial = TRUE\n", 1, 11, "TRUE"),
            ("compress = \"yes\"\n", 1, 12, "\"yes\""),
            ("compress = 1\n", 1, 12, "1"),
        ] {
            let (_, found) = parse(text.as_bytes());
            let [found] = found.as_slice() else {
                panic!("{text}: {found:?}");
            };
            assert_eq!((found.line, found.column), (line, column), "{found:?}");
            assert!(
                found
                    .message
                    .ends_with(&format!("takes true or false, not {written}")),
                "{found:?}"
            );
            assert!(found.advice.starts_with("write true or false"), "{found:?}");
        }
    }

    #[test]
    fn every_mistake_is_reported() {
        let text = "engin = 1\ndelay_ms = 1\npartial = \"yes\"\nfile = \"/j\"\n[json]\nkeep = -1\nrules = []\n[on_lost]\n";
        let (settings, found) = parse(text.as_bytes());
        assert_eq!(settings, TollgateToml::default());
        let lines: Vec<u32> = found.iter().map(|found| found.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6, 7, 8], "{found:?}");
        assert_eq!(found[0].advice, "did you mean `engine`?");
        assert_eq!(found[3].advice, "write `file` below `[json]`");
        assert_eq!(found[6].advice, "write `rules` above the first section");
        assert_eq!(found[7].advice, "did you mean `[on_loss]`?");
    }

    #[test]
    fn valid_settings_are_kept_beside_mistakes() {
        let text = "delay_ms = 1\nrules = [\n\"/a\"]\n[json]\nfile = \"/j\"\nkeep = -1\n[on_loss]\ndeny = [\"k\"]\n";
        let (settings, found) = parse(text.as_bytes());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(settings.rules, Some(vec!["/a".into()]));
        assert_eq!(settings.on_loss.deny, ["k"]);
        assert_eq!(settings.json.unwrap().keep, 4);
    }

    #[test]
    fn unclosed_array_is_one_error_at_the_line_after_it() {
        for text in [
            "partial = true\nrules = [\"/a\"\nengine = \"auto\"\n[on_loss]\ndeny = [\"x\"]\n",
            "partial = true\nrules = [\"/a\",\nengine = \"auto\"\npins = false\n",
        ] {
            let (_, found) = parse(text.as_bytes());
            let [found] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!((found.line, found.column), (3, 1), "{found:?}");
            assert!(found.message.contains("lacks `]`"), "{found:?}");
        }
        let (_, found) = parse(b"engine = auto\nrules = [\"/a\"\npins = false\n");
        let lines: Vec<u32> = found.iter().map(|found| found.line).collect();
        assert_eq!(lines, [1, 3], "{found:?}");
    }

    /// Returns what serde knows in a section.
    fn known(section: &str) -> Vec<String> {
        let text = match section {
            "" => "zzz = 1\n".to_owned(),
            _ => format!("[{section}]\nzzz = 1\n"),
        };
        let error = toml::from_str::<TollgateToml>(&text).unwrap_err();
        let (_, names) = error.message().split_once("expected").unwrap();
        let names = names.split('`').skip(1).step_by(2);
        names.map(str::to_owned).collect()
    }

    fn listed(section: &str) -> Vec<String> {
        let settings = settings::SETTINGS.iter();
        let here = settings.filter(|setting| setting.section == section);
        here.map(|setting| setting.name.to_owned()).collect()
    }

    #[test]
    fn list_of_settings_is_complete() {
        for section in ["on_loss", "json"] {
            assert_eq!(known(section), listed(section));
        }
        let sections = ["on_loss", "json"].map(str::to_owned);
        assert_eq!(known(""), [listed(""), sections.into()].concat());
    }

    #[test]
    fn manual_has_every_setting() {
        let page = include_str!("../../../../man/tollgate.toml.5");
        // The page has a part for each section.
        let (top, rest) = page.split_once(".Ss [on_loss]").unwrap();
        let (on_loss, json) = rest.split_once(".Ss [json]").unwrap();
        let (json, _) = json.split_once(".Sh EXAMPLES").unwrap();
        for (section, text) in [("", top), ("on_loss", on_loss), ("json", json)] {
            let described: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix(".It Cm ")?.split(' ').next())
                .collect();
            assert_eq!(described, listed(section), "in section `{section}`");
        }
    }

    /// `examples/tollgate.toml` has each setting once, with a text about it, and is valid.
    #[test]
    fn example_has_every_setting() {
        let text = include_str!("../../../../examples/tollgate.toml");
        // Settings that are not the default are commented out with `#`, without a blank.
        let is_setting =
            |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
        let whole: String = text
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|line| is_setting(line))
                    .unwrap_or(line)
                    .to_owned()
                    + "\n"
            })
            .collect();
        for text in [text, &whole] {
            let (_, found) = parse(text.as_bytes());
            assert_eq!(found, []);
        }
        let (mut section, mut found, mut before) = (String::new(), Vec::new(), "");
        for line in whole.lines() {
            if let Some(name) = line.strip_prefix('[') {
                name.trim_end_matches(']').clone_into(&mut section);
            } else if is_setting(line) {
                let (name, _) = line.split_once(" = ").unwrap();
                assert!(before.starts_with("# "), "`{name}` is not explained");
                found.push((section.clone(), name.to_owned()));
            }
            before = line;
        }
        let expected: Vec<_> = settings::SETTINGS
            .iter()
            .map(|setting| (setting.section.to_owned(), setting.name.to_owned()))
            .collect();
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for found in parse(&bytes).1 {
                prop_assert!(found.span.end <= bytes.len() && found.column >= 1);
            }
        }
    }
}
