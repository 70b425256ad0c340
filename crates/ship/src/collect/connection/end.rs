//! Why connections end.

use std::io;
use std::time::Duration;

use super::super::frame::FrameError;
use super::super::hosts::{Refusal, WriteError, describe};
use super::super::peers::NameError;
use super::super::stream::StreamError;
use super::super::tls;

/// Longest time of a handshake.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

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
