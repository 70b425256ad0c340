//! The stream of a peer: TCP, or TLS over it. No call waits.
//!
//! TLS holds what could not be sent and one message that is not complete, some 100 KiB at most; nothing of it is kept after
//! the connection.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection};

/// A stream.
#[derive(Debug)]
pub(super) struct PeerStream {
    pub(super) tcp: TcpStream,
    tls: Option<Box<ServerConnection>>,
}

/// Why a stream cannot be used further.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot use the connection: {0}")]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl PeerStream {
    /// A stream of TCP that does not block, with TLS if there is a configuration of it.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(super) fn new(tcp: TcpStream, tls: Option<Arc<ServerConfig>>) -> Result<Self, StreamError> {
        let tls = tls.map(|config| ServerConnection::new(config).map(Box::new));
        let tls = tls.transpose()?;
        Ok(Self { tcp, tls })
    }

    /// Whether the peer has not proved yet who it is.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether it has begun to do so: if it ends then, it does not like what it has seen.
    pub(super) fn has_begun(&self) -> bool {
        let tls = self.tls.as_ref().filter(|tls| tls.is_handshaking());
        tls.is_some_and(|tls| tls.protocol_version().is_some())
    }

    /// The certificates of the peer, its own first.
    pub(super) fn certificates(&self) -> &[CertificateDer<'static>] {
        let tls = self.tls.as_ref();
        tls.and_then(|tls| tls.peer_certificates())
            .unwrap_or_default()
    }

    /// Appends what has come; some `buffer.len()` bytes at most are read. Returns whether more can come: not after the end
    /// of the stream, which TLS need not have told (`close_notify`), so what is not complete then is cut off.
    ///
    /// # Errors
    /// The connection has failed, or the peer is refused; it is told if that can be sent at once. What came before is
    /// appended.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        to: &mut Vec<u8>,
    ) -> Result<bool, StreamError> {
        let Some(tls) = &mut self.tls else {
            return match self.tcp.read(buffer) {
                Ok(read) => {
                    to.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    Ok(read > 0)
                }
                Err(error) if is_temporary(&error) => Ok(true),
                Err(error) => Err(error.into()),
            };
        };
        // Those of TLS: records can have less text than they cost.
        let mut most = buffer.len();
        while most > 0 {
            match tls.read_tls(&mut self.tcp) {
                Ok(0) => return Ok(false),
                Ok(read) => most = most.saturating_sub(read),
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error.into()),
            }
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // What came before it is whole.
                    while let Ok(read @ 1..) = tls.reader().read(buffer) {
                        to.extend_from_slice(buffer.get(..read).unwrap_or_default());
                    }
                    // What it is told is the error.
                    let _is_told = tls.write_tls(&mut self.tcp);
                    return Err(error.into());
                }
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let read = tls.reader().read(buffer)?;
                to.extend_from_slice(buffer.get(..read).unwrap_or_default());
                left = left.saturating_sub(read.max(1));
            }
        }
        Ok(true)
    }

    /// Sends what the socket takes of `bytes`, and removes it.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn write(&mut self, bytes: &mut Vec<u8>) -> Result<(), StreamError> {
        loop {
            // Bytes that went on, and those of them that were taken from `bytes`.
            let sent = match &mut self.tls {
                Some(tls) if tls.wants_write() => {
                    tls.write_tls(&mut self.tcp).map(|sent| (sent, 0))
                }
                _ if bytes.is_empty() => return Ok(()),
                Some(tls) => tls.writer().write(bytes).map(|taken| (taken, taken)),
                None => self.tcp.write(bytes).map(|taken| (taken, taken)),
            };
            match sent {
                // Before the handshake has ended nothing is taken.
                Ok((0, _)) => return Ok(()),
                Ok((_, taken)) => drop(bytes.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether something waits for room in the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Sends what the socket takes of `bytes`, and the end.
    ///
    /// # Errors
    /// The connection has failed.
    pub(super) fn end(&mut self, bytes: &mut Vec<u8>) -> Result<(), StreamError> {
        self.write(bytes)?;
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            self.write(&mut Vec::new())?;
        }
        Ok(self.tcp.shutdown(Shutdown::Write)?)
    }

    /// Ends it so that the peer sees an error: it must not take what it has sent for stored.
    pub(super) fn reset(self) {
        // Without it the peer sees the end of a stream that was not closed in order.
        let _is_set = set_socket_linger(&self.tcp, Some(Duration::ZERO));
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
