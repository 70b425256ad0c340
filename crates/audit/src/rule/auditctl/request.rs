//! What a command line comes to: messages, a status, and requests.

use bstr::BString;

use super::Command;

/// What one command line, or one line of a rule file, came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Messages in order, without newlines. On a command line they end with the general one of
    /// version 4.
    pub messages: Vec<BString>,
    /// What is asked of the kernel, in order. What comes before a mistake is still asked.
    pub requests: Vec<Request>,
    /// Status of the process, had this been its command line.
    pub status: u8,
}

/// Something that is asked of the kernel, or shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// What a rule file can ask for, too.
    Command(Command),
    /// `-l`
    List {
        /// Only rules whose keys contain this.
        key: Option<BString>,
        /// With `-i`: numbers in words.
        interpret: bool,
    },
    /// `-s`
    Status {
        /// With `-i`: numbers in words.
        interpret: bool,
    },
    /// `-m`
    Message(BString),
    /// `-q`
    Equivalent {
        /// Where something is mounted.
        mount: BString,
        /// The part of a watched directory that it stands for.
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
    /// `-h`, or nothing at all.
    Usage,
    /// `-v`
    Version,
}

/// What the daemon may be told.
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
