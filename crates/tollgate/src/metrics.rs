//! Metrics for Prometheus, over HTTP on a unix socket or on loopback; disabled unless `tollgate.toml` has an address.
//!
//! The thread `tlg-metrics` sends the request of `tollgate status` to the control socket, so it exposes nothing more.
//! No client can block it: a client that does not send its request or read the answer within [`CLIENT_TIMEOUT`] is
//! disconnected, and earlier if others connect. [`text`] has the format. Why no HTTP crate is used is in
//! `docs/decisions/0007-metrics-server.md`.

mod connection;
mod text;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use crossbeam_channel::after;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use connection::{Connection, Stream};

use crate::config::MetricsAddress;
use crate::control;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request, Status};
use crate::control::server::is_listening;
use crate::messages::warn;

/// Longest lifetime of a connection.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections; a new one replaces the oldest.
const MAX_CONNECTIONS: usize = 16;
/// Maximum number of connections accepted before existing ones are served.
const MAX_ACCEPTS: usize = 64;
/// Temporary shortages of descriptors or memory.
const RESOURCE_ERRORS: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A listening socket and the path of the control socket.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: Listener,
    control: PathBuf,
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Loopback(TcpListener),
}

impl Metrics {
    /// Listens at `address`; status requests go to `control`.
    ///
    /// # Errors
    /// The address is in use or invalid.
    pub(crate) fn listen(address: &MetricsAddress, control: &Path) -> anyhow::Result<Self> {
        let listener = match address {
            MetricsAddress::Unix(path) => unix(path)?,
            MetricsAddress::Loopback(address) => TcpListener::bind(address)
                .map(Listener::Loopback)
                .with_context(|| format!("cannot serve metrics at {address}"))?,
        };
        Ok(Self {
            listener,
            control: control.to_owned(),
        })
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        self.listener
            .set_nonblocking()
            .context("cannot set the metrics socket non-blocking")?;
        thread::Builder::new()
            .name("tlg-metrics".to_owned())
            .spawn(move || {
                let mut connections = Vec::new();
                while self.serve(&mut connections) {}
            })
            .context("cannot start thread `tlg-metrics`")?;
        Ok(())
    }

    /// Waits for clients and serves them. Returns whether the listener still works.
    fn serve(&self, connections: &mut Vec<Connection>) -> bool {
        self.wait(connections);
        let now = Instant::now();
        connections.retain_mut(|one| {
            now.saturating_duration_since(one.since) < CLIENT_TIMEOUT
                && one.progress(|request| self.answer(request))
        });
        for _ in 0..MAX_ACCEPTS {
            match self.listener.accept() {
                Ok(stream) => {
                    // A request that has arrived is answered before another connection can evict it.
                    let mut one = Connection::new(stream);
                    if one.progress(|request| self.answer(request)) {
                        if connections.len() == MAX_CONNECTIONS {
                            connections.remove(0);
                        }
                        connections.push(one);
                    }
                }
                Err(error) if is(&error, Errno::EAGAIN) => break,
                Err(error) if RESOURCE_ERRORS.iter().any(|&short| is(&error, short)) => {
                    let _now = after(CLIENT_TIMEOUT).recv();
                    break;
                }
                Err(error) if is(&error, Errno::ECONNABORTED) || is(&error, Errno::EINTR) => {}
                Err(error) => {
                    warn(&format!(
                        "metrics are no longer served: {error}; run `systemctl restart tollgate`"
                    ));
                    return false;
                }
            }
        }
        true
    }

    /// Waits for a connection, for data, or for the timeout of the oldest connection.
    fn wait(&self, connections: &[Connection]) {
        let left = connections
            .first()
            .map(|oldest| CLIENT_TIMEOUT.saturating_sub(oldest.since.elapsed()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            // Rounded up to a whole millisecond, to avoid early wakeups.
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO)
        });
        let listener = PollFd::new(self.listener.as_fd(), PollFlags::POLLIN);
        let others = connections
            .iter()
            .map(|one| PollFd::new(one.as_fd(), one.interest()));
        let mut all: Vec<PollFd<'_>> = others.chain([listener]).collect();
        // After EINTR all connections are checked.
        let _ready = poll(&mut all, timeout);
    }

    fn answer(&self, request: &[u8]) -> Vec<u8> {
        answer(request, || self.status())
    }

    fn status(&self) -> anyhow::Result<Status> {
        match Client::connect(&self.control)?.ask(Request::Status)? {
            Answer::Status(status) => Ok(*status),
            Answer::Refused(refusal) => bail!(refusal.reason),
            _ => bail!(control::INVALID_REPLY),
        }
    }
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Loopback(listener) => listener.set_nonblocking(true),
        }
    }

    /// Accepts a connection without blocking.
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Box::new(stream)
            }
            Self::Loopback(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Box::new(stream)
            }
        })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Loopback(listener) => listener.as_fd(),
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno as i32)
}

/// Creates a socket with mode 0600, and replaces a stale one.
fn unix(path: &Path) -> anyhow::Result<Listener> {
    use std::os::unix::fs::PermissionsExt as _;
    let shown = path.display();
    if path
        .symlink_metadata()
        .is_ok_and(|about| about.file_type().is_socket())
    {
        if is_listening(path) {
            bail!(
                "cannot serve metrics at `{shown}`: another process listens there; choose another path"
            );
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove `{shown}`"))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot serve metrics at `{shown}`"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("cannot set mode 0600 of `{shown}`"))?;
    Ok(Listener::Unix(listener))
}

/// Answers a request by its first line.
fn answer(request: &[u8], status: impl FnOnce() -> anyhow::Result<Status>) -> Vec<u8> {
    let words: Vec<&[u8]> = request.split(|&byte| byte == b' ').collect();
    let (head, body) = match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            match path.split(|&byte| byte == b'?').next() {
                Some(b"/metrics") => match status() {
                    Ok(status) => ("200 OK", text::of(&status)),
                    Err(error) => ("503 Service Unavailable", format!("{error:#}\n")),
                },
                _ => (
                    "404 Not Found",
                    "not found: metrics are at /metrics\n".to_owned(),
                ),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/1.") => {
            ("405 Method Not Allowed", "only GET\n".to_owned())
        }
        _ => ("400 Bad Request", "malformed HTTP/1 request\n".to_owned()),
    };
    format!(
        "HTTP/1.1 {head}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use bstr::ByteSlice as _;

    use super::*;

    fn head(request: &[u8]) -> String {
        let answer = answer(request, || Ok(Status::default()));
        let line = answer.lines().next().unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[test]
    fn idle_clients_do_not_block_requests() {
        let address = MetricsAddress::Loopback("127.0.0.1:0".parse().unwrap());
        let metrics = Metrics::listen(&address, Path::new("/nonexistent")).unwrap();
        let Listener::Loopback(listener) = &metrics.listener else {
            panic!("no listener on loopback");
        };
        let port = listener.local_addr().unwrap();
        let idle: Vec<TcpStream> = (0..100)
            .map(|_| TcpStream::connect(port).unwrap())
            .collect();
        metrics.start().unwrap();
        let mut client = TcpStream::connect(port).unwrap();
        // Each idle client would be disconnected after two seconds.
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        drop(idle);
    }

    #[test]
    fn only_metrics_path_is_served() {
        assert_eq!(head(b"GET /metrics HTTP/1.1"), "HTTP/1.1 200 OK");
        assert_eq!(head(b"GET /metrics?x=y HTTP/1.0"), "HTTP/1.1 200 OK");
        assert_eq!(head(b"GET / HTTP/1.1"), "HTTP/1.1 404 Not Found");
        assert_eq!(
            head(b"POST /metrics HTTP/1.1"),
            "HTTP/1.1 405 Method Not Allowed"
        );
        for wrong in [&b""[..], b"GET", b"GET /metrics", b"\xff \xff \xff"] {
            assert_eq!(head(wrong), "HTTP/1.1 400 Bad Request");
        }
        let busy = answer(b"GET /metrics HTTP/1.1", || bail!("busy"));
        assert!(busy.starts_with(b"HTTP/1.1 503 "));
    }
}
