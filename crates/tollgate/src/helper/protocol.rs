//! Messages between the daemon and the helper: one JSON value each.

use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;

/// Longest message. A line of a configuration file has at most 160 bytes.
pub(super) const MESSAGE_LIMIT_BYTES: usize = 64 << 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelperRequest {
    /// Start a program.
    Start(HelperProgram),
    /// Send a signal to a program.
    Signal(u32, ProgramSignal),
    /// Whether a program has ended. If so, its number becomes invalid.
    HasEnded(u32),
}

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelperProgram {
    /// A plugin, with events on its standard input.
    Plugin {
        /// Name of its file in `plugins.d`.
        file: String,
        /// Path and arguments that the daemon read from that file.
        path: JsonBytes,
        args: Vec<JsonBytes>,
    },
    /// The program of an action.
    Action(JsonBytes),
    /// Mail to `action_mail_acct`.
    Mail { subject: String, text: String },
    /// `init`, to change the runlevel.
    Init(Runlevel),
}

/// Target runlevel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Runlevel {
    /// Single user mode.
    Single,
    /// Halt.
    Halt,
}

/// A signal for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProgramSignal {
    /// `SIGHUP`: read your configuration again.
    Hup,
    /// `SIGTERM`.
    Term,
    /// `SIGKILL`.
    Kill,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum HelperAnswer {
    /// The program runs under this number.
    Started(u32),
    /// The signal was sent, or the program had ended.
    SignalSent,
    /// Whether the program has ended.
    HasEnded(bool),
    /// The request was refused, with the reason.
    Refused(String),
}
