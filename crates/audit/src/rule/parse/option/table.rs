//! Table of the options of `auditctl`.

/// Option of `auditctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rule) enum Flag {
    /// `-a`
    Append,
    /// `-A`
    Insert,
    /// `-d`
    Delete,
    /// `-D`
    DeleteAll,
    /// `-w`
    Watch,
    /// `-W`
    Unwatch,
    /// `-p`
    Perm,
    /// `-k`
    Key,
    /// `-S`
    Syscall,
    /// `-F`
    Field,
    /// `-C`
    Compare,
    /// `-b`
    Backlog,
    /// `-e`
    Enabled,
    /// `-f`
    Failure,
    /// `-r`
    Rate,
    /// `--backlog_wait_time`
    BacklogWait,
    /// `-i`
    IgnoreErrors,
    /// `-c`
    ContinueOnErrors,
    /// `--loginuid-immutable`
    LoginuidImmutable,
    /// `-R`
    ReadFile,
    /// `-m`
    Message,
    /// `-h`, `--help`
    Help,
    /// `-s`
    Status,
    /// `-l`
    List,
    /// `-v`
    Version,
    /// `-q`
    Equivalent,
    /// `-t`
    Trim,
    /// `--reset-lost`
    ResetLost,
    /// `--reset_backlog_wait_time_actual`
    ResetBacklogWait,
    /// `--signal`
    Signal,
}

impl Flag {
    /// Whether the option is valid on the command line of `auditctl` but not in rule files.
    pub(in crate::rule) fn is_for_command_line(self) -> bool {
        matches!(
            self,
            Self::Message
                | Self::Help
                | Self::Status
                | Self::List
                | Self::Version
                | Self::ResetLost
                | Self::ResetBacklogWait
                | Self::Signal
        )
    }
}

/// # Source
/// `getopt_long()` string of `src/auditctl.c`, audit-userspace 4.2.
pub(super) const LETTERS: &[(u8, Flag, Takes)] = &[
    (b'a', Flag::Append, Takes::Value),
    (b'A', Flag::Insert, Takes::Value),
    (b'd', Flag::Delete, Takes::Value),
    (b'D', Flag::DeleteAll, Takes::Nothing),
    (b'w', Flag::Watch, Takes::Value),
    (b'W', Flag::Unwatch, Takes::Value),
    (b'p', Flag::Perm, Takes::Value),
    (b'k', Flag::Key, Takes::Value),
    (b'S', Flag::Syscall, Takes::Value),
    (b'F', Flag::Field, Takes::Value),
    (b'C', Flag::Compare, Takes::Value),
    (b'b', Flag::Backlog, Takes::Value),
    (b'e', Flag::Enabled, Takes::Value),
    (b'f', Flag::Failure, Takes::Value),
    (b'r', Flag::Rate, Takes::Value),
    (b'i', Flag::IgnoreErrors, Takes::Nothing),
    (b'c', Flag::ContinueOnErrors, Takes::Nothing),
    (b'R', Flag::ReadFile, Takes::Value),
    (b'm', Flag::Message, Takes::Value),
    (b'h', Flag::Help, Takes::Nothing),
    (b's', Flag::Status, Takes::Nothing),
    (b'l', Flag::List, Takes::Nothing),
    (b'v', Flag::Version, Takes::Nothing),
    (b'q', Flag::Equivalent, Takes::Value),
    (b't', Flag::Trim, Takes::Nothing),
];

pub(super) const LONG: &[(&str, Flag, Takes)] = &[
    ("backlog_wait_time", Flag::BacklogWait, Takes::Value),
    ("help", Flag::Help, Takes::Nothing),
    (
        "loginuid-immutable",
        Flag::LoginuidImmutable,
        Takes::Nothing,
    ),
    ("reset-lost", Flag::ResetLost, Takes::Nothing),
    (
        "reset_backlog_wait_time_actual",
        Flag::ResetBacklogWait,
        Takes::Nothing,
    ),
    ("signal", Flag::Signal, Takes::Value),
];

/// Every option with its dashes, letters first.
pub(in crate::rule) fn spellings() -> impl Iterator<Item = String> {
    let letters = LETTERS
        .iter()
        .map(|&(letter, ..)| format!("-{}", char::from(letter)));
    letters.chain(LONG.iter().map(|(name, ..)| format!("--{name}")))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
}
