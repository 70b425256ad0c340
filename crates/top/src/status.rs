//! What the daemon answers to `status` and `rule_costs`: the members that are shown. Others are ignored, and missing
//! ones are empty, so that a daemon of another version can be watched.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Text that tasks or administrators chose: control characters are escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EscapedText(pub(crate) String);

impl<'de> Deserialize<'de> for EscapedText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Utf8(String),
            Bytes { hex: String },
        }
        Ok(match Form::deserialize(from)? {
            Form::Utf8(text) => Self(escaped(text.as_bytes())),
            Form::Bytes { hex } => Self(format!("0x{}", escaped(hex.as_bytes()))),
        })
    }
}

/// Escapes what a terminal could obey, and bytes that are no text.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\'' | '\\' => out.push(char),
                char => out.extend(char.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            out.extend(byte.escape_ascii().map(char::from));
        }
    }
    out
}

/// State and counters of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) settings: Settings,
    pub(crate) version: String,
    pub(crate) engine: String,
    pub(crate) skip_risk: Option<String>,
    pub(crate) uptime_seconds: u64,
    pub(crate) rules: u64,
    pub(crate) calls: u64,
    pub(crate) hooks: Vec<String>,
    pub(crate) refused: Option<Refused>,
    pub(crate) suspended: Option<Suspended>,
    pub(crate) counts: Counts,
    pub(crate) by_rule: Vec<RuleCounts>,
    pub(crate) kernel_messages: Option<KernelRecords>,
    pub(crate) kernel_audit: Option<KernelAudit>,
    pub(crate) json: Option<JsonLog>,
    pub(crate) plugins: BTreeMap<String, u64>,
    pub(crate) runs: Vec<Run>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Settings {
    pub(crate) enabled: u8,
    pub(crate) pid: u32,
    pub(crate) backlog: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Refused {
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Suspended {
    pub(crate) reason: String,
    pub(crate) events: u64,
}

/// Events since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    pub(crate) matched: u64,
    pub(crate) written: u64,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) incomplete: BTreeMap<String, u64>,
    pub(crate) blind_seconds: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleCounts {
    pub(crate) rule: EscapedText,
    pub(crate) matched: u64,
    pub(crate) lost: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct KernelRecords {
    pub(crate) unwritten: u64,
    pub(crate) refused: u64,
    pub(crate) overruns: u64,
    pub(crate) lost: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct KernelAudit {
    pub(crate) slows_syscalls: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct JsonLog {
    pub(crate) left_out: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Run {
    pub(crate) nanoseconds: u64,
}

/// What the rules cost, as `tollgate explain` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleCosts {
    pub(crate) every_syscall_ns: u32,
    pub(crate) paying_syscall_ns: Option<u32>,
    pub(crate) rules: Vec<RuleCost>,
    pub(crate) omitted: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RuleCost {
    pub(crate) rule: EscapedText,
    pub(crate) keys: Vec<EscapedText>,
    pub(crate) cost: String,
    pub(crate) syscalls: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_control_the_terminal() {
        let text: EscapedText = serde_json::from_str(r#""a\u001b[2J\u202e'b'""#).unwrap();
        assert_eq!(text.0, r"a\u{1b}[2J\u{202e}'b'");
        let text: EscapedText = serde_json::from_str(r#"{"hex":"ff"}"#).unwrap();
        assert_eq!(text.0, "0xff");
        assert_eq!(escaped(b"a\xff\x07"), r"a\xff\u{7}");
    }

    #[test]
    fn unknown_and_missing_members_are_no_error() {
        let status: Status = serde_json::from_str(r#"{"new":1,"counts":{"matched":3}}"#).unwrap();
        assert_eq!(status.counts.matched, 3);
    }
}
