//! A stream over TCP or TLS whose reads and writes end at a deadline: a peer that sends or takes a byte now and then
//! does not hold it for longer.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use rustls::{ClientConnection, StreamOwned};

use super::tcp::connect;
use super::tls::{TlsSettings, handshake};

/// A stream with a deadline.
pub(crate) struct DeadlineStream(Layer);

enum Layer {
    Tcp(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

/// A TCP connection whose calls wait until the deadline at most.
struct Timed {
    tcp: TcpStream,
    deadline: Instant,
}

impl DeadlineStream {
    /// Connects to `HOST:PORT`, with TLS or without.
    ///
    /// # Errors
    /// No address answers, or the handshake fails.
    pub(crate) fn connect(
        address: &str,
        tls: Option<&TlsSettings>,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        // The files are read first: a mistake in them is told without a connection.
        let config = tls.map(TlsSettings::read).transpose()?;
        let tcp = connect(address)?;
        let mut timed = Timed {
            tcp,
            deadline: Instant::now() + limit,
        };
        let Some((config, tls)) = config.zip(tls) else {
            return Ok(Self(Layer::Tcp(timed)));
        };
        let connection = handshake(address, config, tls, &mut timed)?;
        let stream = StreamOwned::new(connection, timed);
        Ok(Self(Layer::Tls(Box::new(stream))))
    }

    /// Sets the time at which reads and writes fail.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.timed().deadline = deadline;
    }

    /// Whether the peer has sent something that nobody asked for, such as the end of the connection.
    pub(crate) fn is_stale(&mut self) -> bool {
        let mut byte = [0];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let peeked = recv(self.timed().tcp.as_raw_fd(), &mut byte, flags);
        peeked != Err(Errno::EAGAIN)
    }

    fn timed(&mut self) -> &mut Timed {
        match &mut self.0 {
            Layer::Tcp(timed) => timed,
            Layer::Tls(stream) => &mut stream.sock,
        }
    }
}

impl Timed {
    /// The time that is left.
    ///
    /// # Errors
    /// None is.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.left()?))?;
        self.tcp.read(to).map_err(timed_out)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()?))?;
        self.tcp.write(bytes).map_err(timed_out)
    }

    /// TLS has one call for what it tells a peer that it refuses: it must not end behind the first part.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()?))?;
        self.tcp.write_vectored(parts).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Tcp(stream) => stream.read(to),
            Layer::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Tcp(stream) => stream.write(bytes),
            Layer::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Layer::Tcp(stream) => stream.flush(),
            Layer::Tls(stream) => stream.flush(),
        }
    }
}

/// The error of a call that waited for too long has one kind.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    /// A peer that sends a byte now and then, or takes none, holds nobody.
    #[test]
    fn slow_peers_end_with_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connect = || {
            let stream = DeadlineStream::connect(&address, None, LIMIT).unwrap();
            (stream, listener.accept().unwrap().0)
        };
        let (mut stream, mut peer) = connect();
        assert!(!stream.is_stale());
        let dripping = thread::spawn(move || {
            while peer.write_all(b"x").is_ok() {
                thread::park_timeout(LIMIT / 20);
            }
        });
        let begun = Instant::now();
        let mut read = Vec::new();
        let error = stream.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < LIMIT * 20 && !read.is_empty());
        stream.set_deadline(Instant::now() + LIMIT);
        stream.read_exact(&mut [0]).unwrap();
        drop(stream);
        dripping.join().unwrap();
        let (mut stream, peer) = connect();
        let many = vec![0; 64 << 20];
        let error = stream.write_all(&many).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(peer);
        assert!(stream.is_stale());
    }
}
