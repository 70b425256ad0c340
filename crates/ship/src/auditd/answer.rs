//! Answers of a listener.

use std::io;
use std::time::Duration;

use bstr::ByteSlice as _;

use crate::managed_frame::{
    ACKNOWLEDGED, ANSWER, DISK_ERROR, DISK_FULL, DISK_LOW, ENDING, FATAL, HeaderError, WARNING,
};

/// Most characters of a text that a listener answers.
const MAX_TEXT: usize = 200;

/// Why a message is not confirmed.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    #[error(
        "it has closed the connection: it has ended, or does not take this host; look at its messages, `tcp_max_per_addr` and `tcp_client_ports`"
    )]
    Closed,
    #[error("it sends {0}: it is no auditd with `transport = TCP`")]
    Header(#[from] HeaderError),
    #[error("it sends a frame of type {0:#x}, which is no answer that is known")]
    Kind(u32),
    #[error("it answers message {0}, and not {1}")]
    Sequence(u32, u32),
    #[error("it answers a message that it was not sent")]
    Unasked,
    #[error("it has not answered for {} seconds: it hangs, or is no auditd", .0.as_secs())]
    Late(Duration),
    #[error("it ends")]
    Ending,
    #[error("its disk is full, and nothing is stored until it has room{0}")]
    DiskFull(Told),
    #[error("it cannot write its log{0}")]
    DiskError(Told),
    #[error("it refuses a record, which is sent again{1}, error {0:#x}")]
    Refused(u32, Told),
    #[error("the connection has failed")]
    Socket(#[from] io::Error),
}

impl AnswerError {
    /// Whether an answer may have been lost: a listener drops those for which its socket has no room, or their ends.
    pub(super) const fn is_lost_answer(&self) -> bool {
        matches!(self, Self::Sequence(..) | Self::Late(_) | Self::Header(_))
    }
}

/// What a listener tells, after a colon; empty if it tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told(String);

impl Told {
    fn of(body: &[u8]) -> Self {
        let text: String = body.to_str_lossy().trim().chars().take(MAX_TEXT).collect();
        Self(match text.is_empty() {
            true => text,
            false => [": ", &text].concat(),
        })
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

/// What the answer to a message means: nothing, or a warning.
///
/// # Errors
/// The record is not in the log, or the listener ends.
pub(super) fn meaning(
    kind: u32,
    sequence: u32,
    expected: u32,
    body: &[u8],
) -> Result<Option<String>, AnswerError> {
    // The end is told without the sequence of a message.
    if kind == ENDING {
        return Err(AnswerError::Ending);
    }
    if kind & ANSWER == 0 {
        return Err(AnswerError::Kind(kind));
    }
    if sequence != expected {
        return Err(AnswerError::Sequence(sequence, expected));
    }
    match kind {
        ACKNOWLEDGED => Ok(None),
        DISK_FULL => Err(AnswerError::DiskFull(Told::of(body))),
        DISK_ERROR => Err(AnswerError::DiskError(Told::of(body))),
        _ if kind & FATAL != 0 => Err(AnswerError::Refused(kind, Told::of(body))),
        DISK_LOW => Ok(Some(format!("its disk has little space{}", Told::of(body)))),
        _ if kind & WARNING != 0 => Ok(Some(format!("code {kind:#x}{}", Told::of(body)))),
        _ => Err(AnswerError::Kind(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_confirm_warn_or_fail() {
        let of = |kind, sequence, body: &[u8]| match meaning(kind, sequence, 7, body) {
            Ok(None) => "confirmed".to_owned(),
            Ok(Some(warning)) => warning,
            Err(error) => error.to_string(),
        };
        assert_eq!(of(0x4000_0000, 7, b""), "confirmed");
        assert_eq!(of(0x5000_0001, 7, b""), "its disk has little space");
        assert_eq!(of(0x5000_0009, 7, b"hot\n"), "code 0x50000009: hot");
        for (kind, sequence, body, expected) in [
            (0x4000_0000, 8, &b""[..], "it answers message 8, and not 7"),
            (0x4000_0001, 0, b"", "it ends"),
            (
                0x6000_0001,
                7,
                b"disk full",
                "its disk is full, and nothing is stored until it has room: disk full",
            ),
            (0x6000_0002, 7, b"", "it cannot write its log"),
            (
                0x6000_0003,
                7,
                b"no node",
                "it refuses a record, which is sent again: no node, error 0x60000003",
            ),
            (
                0x4000_0005,
                7,
                b"",
                "it sends a frame of type 0x40000005, which is no answer that is known",
            ),
            (
                0,
                7,
                b"node=a type=CWD",
                "it sends a frame of type 0x0, which is no answer that is known",
            ),
        ] {
            assert_eq!(of(kind, sequence, body), expected);
        }
        let long = of(0x6000_0002, 7, &[b'\xff'; 8970]);
        assert!(long.chars().count() < 300, "{long}");
    }
}
