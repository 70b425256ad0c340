//! Why connections end.

use std::io;
use std::time::{Duration, Instant};

use super::super::frame::{Format, FrameError};
use super::super::hosts::{Refusal, WriteError, describe};
use super::super::peers::NameError;
use super::super::stream::StreamError;
use super::super::tls;
use super::Connection;

/// Longest time of a handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Longest time until a frame that has begun is complete, and until a peer has read its answers.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(60);
/// Longest time until a peer has closed a connection whose last answer it has got.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(in crate::collect) enum End {
    /// The peer has closed it.
    #[error("closed by the peer")]
    Peer,
    #[error(transparent)]
    Protocol(#[from] FrameError),
    #[error("cannot use the connection: {0}")]
    Socket(#[from] io::Error),
    #[error("no TLS with the peer: {}", tls::describe(.0))]
    Tls(rustls::Error),
    #[error("no TLS with the peer within {} seconds", HANDSHAKE_TIME.as_secs())]
    NoTls,
    #[error(
        "the peer has ended the handshake of TLS: it may refuse the certificate of this listener"
    )]
    TlsRefused,
    /// The certificate of the peer names no host.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("{0} connections have certificates of the same host")]
    Places(usize),
    #[error("{}", describe(.0))]
    Write(#[from] WriteError),
    /// The host of a message that is not answered is refused.
    #[error(transparent)]
    Host(Refusal),
    #[error("no message for {} seconds", .0.as_secs())]
    Idle(Duration),
    #[error("the listener ends")]
    Listener,
}

impl End {
    /// Whether the peer knows that it ends, and why: it has closed the connection, or TLS has told it.
    pub(super) const fn is_told(&self) -> bool {
        matches!(self, Self::Peer | Self::Tls(_))
    }
}

impl From<StreamError> for End {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Socket(error) => Self::Socket(error),
            StreamError::Tls(error) => Self::Tls(error),
        }
    }
}

impl Connection {
    /// Whether the peer takes too long.
    ///
    /// # Errors
    /// The connection ends.
    pub(in crate::collect) fn check_time(&self, now: Instant, idle: Duration) -> Result<(), End> {
        let is_longer = |since: Instant, most| now.saturating_duration_since(since) > most;
        if self.is_waiting_for_disk {
            return Ok(());
        }
        if self.stream.is_handshaking() {
            return match is_longer(self.message_at, HANDSHAKE_TIME) {
                true => Err(End::NoTls),
                false => Ok(()),
            };
        }
        let stuck = self.stuck_since;
        if stuck.is_some_and(|since| is_longer(since, FRAME_TIME)) {
            return Err(End::Idle(FRAME_TIME));
        }
        let last = self.last_answer_at;
        if last.is_some_and(|since| is_longer(since, LINGER)) {
            return Err(End::Peer);
        }
        match is_longer(self.message_at, idle) {
            true => Err(End::Idle(idle)),
            false => Ok(()),
        }
    }

    /// Whether a part of a line is left, of a peer that gets no answers and sends nothing again.
    pub(super) fn has_unfinished_line(&self, end: &End) -> bool {
        let is_part = self.rest.last().is_some_and(|last| *last != b'\n');
        self.format == Some(Format::Ascii) && is_part && !matches!(end, End::Protocol(_))
    }
}
