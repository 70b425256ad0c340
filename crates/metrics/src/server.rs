//! The server: one thread, non-blocking sockets, and one request for each connection.
//!
//! No client can block it: a client that does not send its request or read the answer within [`CLIENT_TIMEOUT`] is
//! disconnected, and one that sends no request earlier if others connect. Answers are made again after [`MAX_AGE`],
//! however often clients ask.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use crossbeam_channel::after;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};

use crate::address::MetricsAddress;
use crate::connection::{Connection, Stream};

/// Longest lifetime of a connection.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How old an answer may be.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of connections; a new one replaces the oldest that has sent no request.
const MAX_CONNECTIONS: usize = 64;
/// Maximum number of connections accepted before existing ones are served.
const MAX_ACCEPTS: usize = 64;
/// Temporary shortages of descriptors or memory.
const RESOURCE_ERRORS: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A listening socket.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Loopback(TcpListener),
}

impl Server {
    /// Listens at `address`. A port that another process has is no error, because any user can take one: `warn` is told
    /// then, and nothing is served.
    ///
    /// # Errors
    /// The address is invalid, or that of a socket at which another process listens.
    pub fn listen(
        address: &MetricsAddress,
        warn: impl FnOnce(String),
    ) -> anyhow::Result<Option<Self>> {
        let listener = match address {
            MetricsAddress::Unix(path) => unix(path)?,
            MetricsAddress::Loopback(address) => match TcpListener::bind(address) {
                Ok(listener) => Listener::Loopback(listener),
                Err(error) if is(&error, Errno::EADDRINUSE) => {
                    warn(format!(
                        "metrics are not served: another process has {address}, see `ss --listening --tcp --processes`; \
                         end it and restart, or choose another address"
                    ));
                    return Ok(None);
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("cannot serve metrics at {address}"));
                }
            },
        };
        Ok(Some(Self { listener }))
    }

    /// Serves until the process ends, in the thread `tlg-metrics`. `text` makes the metrics; its error is the answer
    /// instead. `on_end` is called if the listener fails, with the reason.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        self,
        text: impl FnMut() -> anyhow::Result<String> + Send + 'static,
        on_end: impl FnOnce(io::Error) + Send + 'static,
    ) -> anyhow::Result<()> {
        self.listener
            .set_nonblocking()
            .context("cannot set the metrics socket non-blocking")?;
        thread::Builder::new()
            .name("tlg-metrics".to_owned())
            .spawn(move || {
                let mut connections = Vec::new();
                let mut metrics = Metrics { text, last: None };
                let error = loop {
                    if let Err(error) = self.serve(&mut connections, &mut metrics) {
                        break error;
                    }
                };
                on_end(error);
            })
            .context("cannot start thread `tlg-metrics`")?;
        Ok(())
    }

    /// Waits for clients and serves them.
    ///
    /// # Errors
    /// The listener no longer works.
    fn serve(
        &self,
        connections: &mut Vec<Connection>,
        metrics: &mut Metrics<impl FnMut() -> anyhow::Result<String>>,
    ) -> io::Result<()> {
        self.wait(connections);
        let now = Instant::now();
        connections.retain_mut(|one| {
            now.saturating_duration_since(one.since) < CLIENT_TIMEOUT
                && one.progress(|request| answer(request, || metrics.answer()))
        });
        for _ in 0..MAX_ACCEPTS {
            match self.listener.accept() {
                Ok(stream) => {
                    // A request that has arrived is answered before another connection can evict it.
                    let mut one = Connection::new(stream);
                    if one.progress(|request| answer(request, || metrics.answer())) {
                        if connections.len() == MAX_CONNECTIONS {
                            let idle = connections.iter().position(|one| !one.is_answered());
                            // Without one, all are reading their answers.
                            let Some(idle) = idle else { continue };
                            drop(connections.remove(idle));
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
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
}

/// What all clients get.
struct Metrics<F> {
    text: F,
    /// The last answer, and when it was made.
    last: Option<(Instant, Arc<[u8]>)>,
}

impl<F: FnMut() -> anyhow::Result<String>> Metrics<F> {
    fn answer(&mut self) -> Arc<[u8]> {
        if let Some((since, answer)) = &self.last
            && since.elapsed() < MAX_AGE
        {
            return Arc::clone(answer);
        }
        let answer = match (self.text)() {
            Ok(text) => response("200 OK", &text),
            Err(error) => response("503 Service Unavailable", &format!("{error:#}\n")),
        };
        self.last = Some((Instant::now(), Arc::clone(&answer)));
        answer
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
    let shown = path.display();
    if path
        .symlink_metadata()
        .is_ok_and(|about| about.file_type().is_socket())
    {
        if is_listening(path)? {
            bail!(
                "cannot serve metrics at `{shown}`: another process listens there; choose another path"
            );
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove `{shown}`"))?;
    }
    let listener = private(path).with_context(|| format!("cannot serve metrics at `{shown}`"))?;
    Ok(Listener::Unix(listener))
}

/// Listens at a path. The socket has its mode before it has a path, which another process could replace in between.
///
/// # Source
/// `unix_bind_bsd` in `net/unix/af_unix.c`, Linux 6.1.
fn private(path: &Path) -> nix::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&listener, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&listener, Backlog::MAXCONN)?;
    Ok(UnixListener::from(listener))
}

/// Whether a process listens at `path`.
///
/// # Source
/// `unix_stream_connect` in `net/unix/af_unix.c`, Linux 6.12: a non-blocking socket gets `EAGAIN` if the queue of clients is
/// full.
fn is_listening(path: &Path) -> io::Result<bool> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let client = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let connected = connect(client.as_raw_fd(), &UnixAddr::new(path)?);
    Ok(matches!(connected, Ok(()) | Err(Errno::EAGAIN)))
}

/// Answers a request by its first line.
fn answer(request: &[u8], metrics: impl FnOnce() -> Arc<[u8]>) -> Arc<[u8]> {
    let words: Vec<&[u8]> = request.split(|&byte| byte == b' ').collect();
    match words.as_slice() {
        [b"GET", path, version] if version.starts_with(b"HTTP/1.") => {
            match path.split(|&byte| byte == b'?').next() {
                Some(b"/metrics") => metrics(),
                _ => response("404 Not Found", "not found: metrics are at /metrics\n"),
            }
        }
        [_, _, version] if version.starts_with(b"HTTP/1.") => {
            response("405 Method Not Allowed", "only GET\n")
        }
        _ => response("400 Bad Request", "malformed HTTP/1 request\n"),
    }
}

fn response(status: &str, body: &str) -> Arc<[u8]> {
    let len = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    text.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::fs::PermissionsExt as _;

    use bstr::ByteSlice as _;

    use super::*;

    fn listen(address: &MetricsAddress) -> anyhow::Result<Server> {
        let server = Server::listen(address, |warning| panic!("{warning}"))?;
        Ok(server.unwrap())
    }

    /// Listens on loopback; returns the address, too.
    fn listen_on_loopback() -> (Server, SocketAddr) {
        let address = MetricsAddress::Loopback("127.0.0.1:0".parse().unwrap());
        let server = listen(&address).unwrap();
        let Listener::Loopback(listener) = &server.listener else {
            panic!("no listener on loopback");
        };
        let address = listener.local_addr().unwrap();
        (server, address)
    }

    /// Listens on loopback and starts; returns the address.
    fn start(text: impl FnMut() -> anyhow::Result<String> + Send + 'static) -> SocketAddr {
        let (server, address) = listen_on_loopback();
        server.start(text, |_| ()).unwrap();
        address
    }

    fn ask(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        client
    }

    fn read(mut client: TcpStream) -> String {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn port_that_another_process_has_is_no_error() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = MetricsAddress::Loopback(taken.local_addr().unwrap());
        let mut told = String::new();
        assert!(
            Server::listen(&address, |warning| told = warning)
                .unwrap()
                .is_none()
        );
        assert!(told.starts_with("metrics are not served: "), "{told}");
    }

    #[test]
    fn answers_are_made_once_in_a_while() {
        let mut made = 0;
        let address = start(move || {
            made += 1;
            bail!("answer {made}")
        });
        for _ in 0..3 {
            let answer = read(ask(address));
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.ends_with("answer 1\n"), "{answer}");
        }
    }

    #[test]
    fn idle_clients_do_not_cut_an_answer() {
        // More than the kernel keeps for a client that does not read yet.
        let text = "x".repeat(16 << 20);
        let address = start(move || Ok(text.clone()));
        let client = ask(address);
        let idle: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        assert!(read(client).len() > 16 << 20);
        drop(idle);
    }

    fn head(request: &[u8]) -> String {
        let answer = answer(request, || response("200 OK", "x 1\n"));
        let line = answer.lines().next().unwrap();
        String::from_utf8(line.to_vec()).unwrap()
    }

    #[test]
    fn idle_clients_do_not_block_requests() {
        let (server, address) = listen_on_loopback();
        let idle: Vec<TcpStream> = (0..100)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        server.start(|| bail!("busy"), |_| ()).unwrap();
        // Each idle client would be disconnected after two seconds.
        let answer = read(ask(address));
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        drop(idle);
    }

    #[test]
    fn socket_of_a_process_that_ended_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics");
        let address = MetricsAddress::Unix(path.clone());
        let first = listen(&address).unwrap();
        let error = listen(&address).unwrap_err().to_string();
        assert!(error.contains("another process listens"), "{error}");
        drop(first);
        let _second = listen(&address).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
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
    }
}
