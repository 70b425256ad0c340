//! Result of parsing a command line: messages, a status, and requests.

use bstr::BString;

use super::Command;

/// Result of one command line, or of one line of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Messages in order, without newlines. On a command line, version 4 ends with a general error message.
    pub messages: Vec<BString>,
    /// Requests in order, including those before an error.
    pub requests: Vec<CliRequest>,
    /// Exit status of the process for a command line.
    pub status: u8,
}

/// A request to the kernel or the daemon, or for output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CliRequest {
    /// A command that rule files also accept.
    Command(Command),
    /// `-l`
    List {
        /// Only rules with a key that contains this text.
        key: Option<BString>,
        /// `-i`: names instead of numbers.
        interpret: bool,
    },
    /// `-s`
    Status {
        /// `-i`: names instead of numbers.
        interpret: bool,
    },
    /// `-m`
    Message(BString),
    /// `-q`
    Equivalent {
        /// Mount point.
        mount: BString,
        /// Part of a watched tree that it is equivalent to.
        subtree: BString,
    },
    /// `-t`
    Trim,
    /// `--reset-lost`
    ResetLost,
    /// `--reset_backlog_wait_time_actual`
    ResetBacklogWait,
    /// `--signal`
    Signal(DaemonSignal),
    /// `-h`, or no arguments.
    Usage,
    /// `-v`
    Version,
}

/// Signal to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonSignal {
    /// `TERM`, `stop`
    Stop,
    /// `HUP`, `reload`
    Reload,
    /// `USR1`, `rotate`
    Rotate,
    /// `USR2`, `resume`
    Resume,
    /// `CONT`, `state`
    State,
}
