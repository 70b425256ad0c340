//! How calls and messages are seen: what options and `tollgate.toml` say of it at the start, and what `-e 2`
//! locks beside the rules.

use serde::{Deserialize, Serialize};

use crate::config::tollgate_toml::{EngineChoice, KernelRecordsMode};

/// How calls and messages are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaptureOptions {
    /// Which engines to try.
    pub(crate) engine: EngineChoice,
    /// See operations of `io_uring` where the engine can.
    pub(crate) uring: bool,
    /// Whether events carry what the JSON log alone has.
    pub(crate) context: bool,
    /// How to read the messages of the kernel's audit.
    pub(crate) kernel_messages: KernelRecordsMode,
}

impl CaptureOptions {
    /// The settings in which others differ from these, as they stand in `tollgate.toml`.
    pub(crate) fn others(self, other: Self) -> Vec<String> {
        let mut others = Vec::new();
        if other.engine != self.engine {
            others.push(format!("engine = \"{}\"", other.engine.name()));
        }
        if other.uring != self.uring {
            others.push(format!("io_uring = {}", other.uring));
        }
        if other.kernel_messages != self.kernel_messages {
            let name = other.kernel_messages.name();
            others.push(format!("kernel_messages = \"{name}\""));
        }
        match (self.context, other.context) {
            (false, true) => {
                others.push("what only [json] has, such as paths of objects".to_owned());
            }
            (true, false) => {
                others.push("no [json], as far as programs look for what only it has".to_owned());
            }
            _ => {}
        }
        others
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Those that nothing asks for.
    pub(crate) const USUAL: CaptureOptions = CaptureOptions {
        engine: EngineChoice::Auto,
        uring: true,
        context: false,
        kernel_messages: KernelRecordsMode::Off,
    };

    #[test]
    fn what_differs_is_named() {
        assert!(USUAL.others(USUAL).is_empty());
        let other = CaptureOptions {
            engine: EngineChoice::Tracepoint,
            uring: false,
            context: true,
            kernel_messages: KernelRecordsMode::Multicast,
        };
        let others = USUAL.others(other).join("; ");
        for word in [
            "\"tracepoint\"",
            "io_uring = false",
            "\"multicast\"",
            "[json]",
        ] {
            assert!(others.contains(word), "{others}");
        }
        assert_eq!(other.others(USUAL).len(), 4);
    }
}
