//! A Unix stream socket.

use std::io::{self, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt};
use std::os::fd::AsRawFd as _;

use super::{END, STALL, Transport, drop_to_end, not_connected, stalled};

/// A Unix stream socket.
pub(crate) struct UnixSocket {
    path: PathBuf,
    stream: Option<UnixStream>,
}

impl UnixSocket {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, stream: None }
    }
}

impl Transport for UnixSocket {
    fn connect(&mut self) -> anyhow::Result<()> {
        let stream = UnixStream::connect(&self.path)
            .with_context(|| format!("cannot connect to socket `{}`", self.path.display()))?;
        stream.set_write_timeout(Some(STALL))?;
        self.stream = Some(stream);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let stream = self.stream.as_mut().ok_or_else(not_connected)?;
        Ok(stream.write_all(bytes).map_err(stalled)?)
    }

    /// Only an ioctl (`SIOCOUTQ`) tells how much was not read, but it is less than twice the socket's buffer.
    ///
    /// # Source
    /// `unix_stream_sendmsg()`, Linux 6.12.
    fn not_taken(&mut self, sent: u64) -> anyhow::Result<u64> {
        let stream = self.stream.as_ref().ok_or_else(not_connected)?;
        let mut byte = [0];
        // What a peer sends is not read.
        match recv(
            stream.as_raw_fd(),
            &mut byte,
            MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(0) => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof))
                    .context("the peer has closed the connection");
            }
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
        // A write waits until the socket holds less than that, and then adds up to a half of it.
        let buffer = getsockopt(stream, sockopt::SndBuf)?;
        Ok(sent.min(u64::try_from(buffer)? * 2))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let mut stream = self.stream.take().ok_or_else(not_connected)?;
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(END))?;
        drop_to_end(&mut stream)
    }

    fn disconnect(&mut self) {
        self.stream = None;
    }
}
