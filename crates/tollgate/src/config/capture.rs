//! How events and kernel records are captured: set by options and `tollgate.toml` at the start, and locked by
//! `-e 2` with the rules.

use serde::{Deserialize, Serialize};

use crate::config::tollgate_toml::{EngineChoice, KernelRecordsMode};

/// How events and kernel records are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaptureOptions {
    /// The engines to try.
    pub(crate) engine: EngineChoice,
    /// Audit `io_uring` operations if the engine can.
    pub(crate) uring: bool,
    /// Whether events carry the facts that only the JSON log has.
    pub(crate) context: bool,
    /// How to read the records of the kernel's audit.
    pub(crate) kernel_messages: KernelRecordsMode,
}

impl CaptureOptions {
    /// Returns the settings of `other` that differ from these, in the syntax of `tollgate.toml`.
    pub(crate) fn differences(self, other: Self) -> Vec<String> {
        let mut differences = Vec::new();
        if other.engine != self.engine {
            differences.push(format!("engine = \"{}\"", other.engine.name()));
        }
        if other.uring != self.uring {
            differences.push(format!("io_uring = {}", other.uring));
        }
        if other.kernel_messages != self.kernel_messages {
            let name = other.kernel_messages.name();
            differences.push(format!("kernel_messages = \"{name}\""));
        }
        match (self.context, other.context) {
            (false, true) => {
                differences.push("facts that only [json] has, such as paths of objects".to_owned());
            }
            (true, false) => {
                differences.push("no facts that only [json] has".to_owned());
            }
            _ => {}
        }
        differences
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The defaults.
    pub(crate) const USUAL: CaptureOptions = CaptureOptions {
        engine: EngineChoice::Auto,
        uring: true,
        context: false,
        kernel_messages: KernelRecordsMode::Off,
    };

    #[test]
    fn different_settings_are_listed() {
        assert!(USUAL.differences(USUAL).is_empty());
        let other = CaptureOptions {
            engine: EngineChoice::Tracepoint,
            uring: false,
            context: true,
            kernel_messages: KernelRecordsMode::Multicast,
        };
        let differences = USUAL.differences(other).join("; ");
        for word in [
            "\"tracepoint\"",
            "io_uring = false",
            "\"multicast\"",
            "[json]",
        ] {
            assert!(differences.contains(word), "{differences}");
        }
        assert_eq!(other.differences(USUAL).len(), 4);
    }
}
