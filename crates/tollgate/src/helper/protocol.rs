//! What the daemon asks of the launcher, and what that answers: JSON, one message each.

use serde::{Deserialize, Serialize};

use crate::json_bytes::JsonBytes;

/// Longest message. A line of configuration has at most 160 bytes.
pub(super) const MESSAGE_LIMIT_BYTES: usize = 64 << 10;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Start a program.
    Start(Program),
    /// Send it a signal.
    Signal(u32, ProgramSignal),
    /// Whether it has ended; from then on its number means nothing.
    HasEnded(u32),
}

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Program {
    /// A plugin, given events on its standard input.
    Plugin {
        /// Name of its file in `plugins.d`.
        file: String,
        /// What the daemon has read in that file.
        path: JsonBytes,
        args: Vec<JsonBytes>,
    },
    /// The program of an action.
    Action(JsonBytes),
    /// A letter to `action_mail_acct`.
    Mail { subject: String, text: String },
    /// What sends the machine there.
    Init(Runlevel),
}

/// Where the machine is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Runlevel {
    /// Single user mode.
    Single,
    /// Off.
    Halt,
}

/// A signal that a program is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProgramSignal {
    /// `SIGHUP`: read your configuration again.
    Hup,
    /// `SIGTERM`.
    Term,
    /// `SIGKILL`.
    Kill,
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It runs, and has this number.
    Started(u32),
    /// The signal is sent, or there is nobody any more to get it.
    ProgramSignal,
    /// Whether it has ended.
    HasEnded(bool),
    /// Why it is not done.
    Refused(String),
}
