//! `tollgate.toml`: the settings that `auditd` has no words for.
//!
//! ```toml
//! rules = ["/etc/audit/audit.rules"]
//! engine = "auto"        # or "fentry", "tracepoint"
//! delay_ms = 10          # 2 to 1000
//! partial = false
//! io_uring = true
//! auditd_conf = "/etc/audit/auditd.conf"
//! kernel_messages = "auto"        # or "unicast", "multicast", "off"
//! pins = "/sys/fs/bpf/tollgate"   # or false
//! metrics = "127.0.0.1:9465"   # or the path of a unix socket; off by default
//!
//! [on_loss]
//! deny = ["shadow"]               # keys of rules: what they could not record is not done
//!
//! [json]                          # off by default
//! file = "/var/log/tollgate/events.json"
//! schema = "records"              # or "ecs", "ocsf"
//! max_mib = 64
//! keep = 4
//! ```

use std::ops::Range;
use std::path::PathBuf;

use audit::plan::hook::EngineKind;
use audit::rule::{Diagnostic, Severity};
use bstr::ByteSlice as _;
use serde::{Deserialize, Serialize};

use crate::metrics::Address;
use crate::sinks::json::log as json;

/// What the file says; what it leaves out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Rule files, read in this order.
    pub(crate) rules: Option<Vec<PathBuf>>,
    /// How to see syscalls.
    pub(crate) engine: Option<Engine>,
    /// Longest time from an event to its being written.
    pub(crate) delay_ms: Option<Delay>,
    /// Load what can be loaded when some rules cannot be honoured.
    pub(crate) partial: Option<bool>,
    /// See operations of `io_uring`.
    pub(crate) io_uring: Option<bool>,
    /// Where the log's configuration is.
    pub(crate) auditd_conf: Option<PathBuf>,
    /// How to read the messages of the kernel's audit.
    pub(crate) kernel_messages: Option<Messages>,
    /// Where what audits is pinned.
    pub(crate) pins: Option<Place>,
    /// Where metrics are served.
    pub(crate) metrics: Option<Address>,
    /// What is done when an event would be lost.
    #[serde(default)]
    pub(crate) on_loss: OnLoss,
    /// A log for programs.
    pub(crate) json: Option<json::Settings>,
}

/// What is done when an event would be lost because the ring is full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnLoss {
    /// Keys of the rules whose calls are denied then.
    #[serde(default)]
    pub(crate) deny: Vec<String>,
}

/// A directory of pins, or none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "the path of a directory, or false")]
pub(crate) enum Place {
    /// Pinned there.
    At(PathBuf),
    /// Not pinned if `false`; as if nothing was said if `true`.
    Wanted(bool),
}

/// An engine, or the choice of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    /// The first that works here.
    Auto,
    /// Programs on the kernel's functions.
    Fentry,
    /// Programs on tracepoints.
    Tracepoint,
}

/// How to read the messages of the kernel's audit: of users, logins, denials and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Messages {
    /// As `unicast` where no other process does, as `multicast` beside one.
    Auto,
    /// As the process that they are sent to.
    Unicast,
    /// Beside the process that they are sent to.
    Multicast,
    /// Not at all.
    Off,
}

/// Longest time from an event to its being written.
///
/// # Units
/// Milliseconds, 2 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u64")]
pub(crate) struct Delay(pub(crate) u64);

impl Engine {
    /// Its name here and as an option.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fentry => "fentry",
            Self::Tracepoint => "tracepoint",
        }
    }

    /// Engines to try, the best first.
    pub(crate) fn kinds(self) -> Vec<EngineKind> {
        match self {
            Self::Auto => vec![EngineKind::Fentry, EngineKind::Tracepoint],
            Self::Fentry => vec![EngineKind::Fentry],
            Self::Tracepoint => vec![EngineKind::Tracepoint],
        }
    }
}

impl Messages {
    /// Its name here and as an option.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Unicast => "unicast",
            Self::Multicast => "multicast",
            Self::Off => "off",
        }
    }
}

impl TryFrom<u64> for Delay {
    type Error = String;

    fn try_from(ms: u64) -> Result<Self, String> {
        if (2..=1000).contains(&ms) {
            Ok(Self(ms))
        } else {
            Err(format!("`{ms}` is no delay from 2 to 1000 milliseconds"))
        }
    }
}

/// Reads the text; at the first mistake reading ends.
pub(super) fn parse(bytes: &[u8]) -> (Settings, Vec<Diagnostic>) {
    let text = match bytes.to_str() {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            let advice = "write it in UTF-8";
            let found = finding(
                bytes,
                at..at + 1,
                "text that is no UTF-8".to_owned(),
                advice,
            );
            return (Settings::default(), vec![found]);
        }
    };
    match toml::from_str(text) {
        Ok(settings) => (settings, Vec::new()),
        Err(error) => {
            let span = error.span().unwrap_or(0..0);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            let advice = "tollgate.toml(5) has all settings; those of auditd.conf belong there";
            let found = finding(bytes, span, message, advice);
            (Settings::default(), vec![found])
        }
    }
}

fn finding(bytes: &[u8], span: Range<usize>, message: String, advice: &str) -> Diagnostic {
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
    use crate::sinks::json::Schema;

    #[test]
    fn every_setting_is_read() {
        let text = "rules = [\"/a\", \"/b\"]\nengine = \"fentry\"\ndelay_ms = 2\npartial = true\n\
                    io_uring = false\nauditd_conf = \"/c\"\nkernel_messages = \"multicast\"\n\
                    pins = \"/p\"\nmetrics = \"/m\"\n[on_loss]\ndeny = [\"k\"]\n[json]\nfile = \"/j\"\nschema = \"ecs\"\n";
        let expected = Settings {
            rules: Some(vec!["/a".into(), "/b".into()]),
            engine: Some(Engine::Fentry),
            delay_ms: Some(Delay(2)),
            partial: Some(true),
            io_uring: Some(false),
            auditd_conf: Some("/c".into()),
            kernel_messages: Some(Messages::Multicast),
            pins: Some(Place::At("/p".into())),
            metrics: Some(Address::Unix("/m".into())),
            on_loss: OnLoss {
                deny: vec!["k".to_owned()],
            },
            json: Some(json::Settings {
                file: "/j".into(),
                schema: Schema::Ecs,
                max_mib: 64,
                keep: 4,
            }),
        };
        assert_eq!(parse(text.as_bytes()), (expected, vec![]));
        assert_eq!(parse(b""), (Settings::default(), vec![]));
        let (settings, _) = parse(b"pins = false\n");
        assert_eq!(settings.pins, Some(Place::Wanted(false)));
    }

    #[test]
    fn mistakes_have_a_place_and_advice() {
        for (text, line, column, word) in [
            (&b"\nengin = \"auto\"\n"[..], 2, 1, "engin"),
            (b"delay_ms = 1\n", 1, 12, "1000"),
            (b"delay_ms = \"a\"\n", 1, 12, "string"),
            (b"engine = \"bpf\"\n", 1, 10, "bpf"),
            (b"metrics = \"0.0.0.0:1\"\n", 1, 11, "loopback"),
            (b"rules = [\n", 1, 10, "array"),
            (b"rules = \"\xff\"\n", 1, 10, "UTF-8"),
        ] {
            let (settings, found) = parse(text);
            assert_eq!(settings, Settings::default());
            let [found] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!((found.line, found.column), (line, column), "{found:?}");
            assert!(found.message.contains(word), "{found:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for found in parse(&bytes).1 {
                prop_assert!(found.span.end <= bytes.len() && found.column >= 1);
            }
        }
    }
}
