//! A connection of a client: reads a request and writes an answer without blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use bstr::ByteSlice as _;
use nix::poll::PollFlags;

/// Longest request including headers.
const REQUEST_LIMIT_BYTES: usize = 8 << 10;

/// A non-blocking socket of either kind.
pub(super) trait Stream: Read + Write + AsFd + Send {}

impl<T: Read + Write + AsFd + Send> Stream for T {}

/// A connection for one request.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// Time of the connection.
    pub(super) since: Instant,
    input: Vec<u8>,
    /// Clients of the same metrics share them.
    output: Arc<[u8]>,
    /// Number of output bytes already written.
    written: usize,
}

impl Connection {
    /// Wraps a new connection.
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            since: Instant::now(),
            input: Vec::new(),
            output: Arc::default(),
            written: 0,
        }
    }

    /// Whether the request has arrived, and the answer is not written yet.
    pub(super) fn is_answered(&self) -> bool {
        !self.output.is_empty()
    }

    /// Poll events to wait for.
    pub(super) fn interest(&self) -> PollFlags {
        if self.is_answered() {
            PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        }
    }

    /// Reads and writes what is possible. Returns whether the connection continues. `answer` gets the first line.
    pub(super) fn progress(&mut self, answer: impl FnOnce(&[u8]) -> Arc<[u8]>) -> bool {
        let gone = if self.output.is_empty() {
            self.read(answer)
        } else {
            Ok(())
        };
        match gone.and_then(|()| self.write()) {
            Ok(()) => self.output.is_empty() || self.written < self.output.len(),
            Err(error) => is_retryable(&error),
        }
    }

    fn read(&mut self, answer: impl FnOnce(&[u8]) -> Arc<[u8]>) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            if let Some((head, _)) = self.input.split_once_str("\r\n\r\n") {
                self.output = answer(head.lines().next().unwrap_or_default());
                return Ok(());
            }
            if self.input.len() > REQUEST_LIMIT_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => self
                    .input
                    .extend_from_slice(buffer.get(..read).unwrap_or_default()),
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while let Some(left @ [_, ..]) = self.output.get(self.written..) {
            match self.stream.write(left)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => self.written += written,
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether the operation can succeed when the socket is ready again.
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A connection and its client.
    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Connection::new(Box::new(ours)), theirs)
    }

    #[test]
    fn request_may_arrive_in_pieces() {
        let (mut connection, mut client) = pair();
        for piece in ["GET /met", "rics HTTP/1.1\r\nHost: x\r\n"] {
            client.write_all(piece.as_bytes()).unwrap();
            assert!(connection.progress(|_| panic!("not yet")));
        }
        client.write_all(b"\r\n").unwrap();
        assert!(!connection.progress(|line| line.into()));
        drop(connection);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "GET /metrics HTTP/1.1");
    }

    #[test]
    fn answer_may_be_read_in_pieces() {
        const LONG: usize = 4 << 20;
        let (mut connection, mut client) = pair();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        assert!(connection.progress(|_| vec![b'x'; LONG].into()));
        let mut taken = 0;
        let mut buffer = vec![0; 64 << 10];
        while taken < LONG {
            assert_eq!(connection.interest(), PollFlags::POLLOUT);
            taken += client.read(&mut buffer).unwrap();
            let more = connection.progress(|_| panic!("asked twice"));
            if !more {
                break;
            }
        }
        drop(connection);
        taken += client.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(taken, LONG);
    }

    #[test]
    fn incomplete_or_oversized_request_is_disconnected() {
        let (mut connection, client) = pair();
        drop(client);
        assert!(!connection.progress(|_| panic!("nothing was asked")));
        let (mut connection, mut client) = pair();
        client
            .write_all(&vec![b'a'; REQUEST_LIMIT_BYTES + 2048])
            .unwrap();
        assert!(!connection.progress(|_| panic!("no end")));
    }
}
