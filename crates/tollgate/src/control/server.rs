//! The daemon's end of the control socket, served by the main thread between signals.
//!
//! No client can block the daemon: all sockets are non-blocking, and a client that does not complete its request or
//! read its answer within [`CLIENT_TIMEOUT`] is disconnected. There are at most [`MAX_CONNECTIONS`]; a new connection
//! replaces the one that has been idle longest.
//!
//! Root may send any request. Members of the group that may watch have requests that change nothing, shorter ones, and
//! fewer connections: they replace only their own. Root is served first, and all members together for at most
//! [`READER_TIME`] before the daemon does something else.

mod ending;
mod socket_file;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, geteuid};

use super::LINE_LIMIT_BYTES;
use super::protocol::{self, Answer, Refusal, Request};
pub(crate) use ending::EndingServer;
use socket_file::{admit_group, remove_stale_socket};
pub(crate) use socket_file::{ensure_private_directory, is_listening};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 16;
/// Of those, connections that are not root's.
const MAX_READERS: usize = 8;
/// Longest request of a client that is not root.
const READER_LINE_LIMIT_BYTES: usize = 512 << 10;
/// Time for clients that are not root in one call of [`Server::serve`].
const READER_TIME: Duration = Duration::from_millis(20);
/// Time limit for a whole request, and for reading an answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections accepted before existing ones are served.
const MAX_ACCEPTS: usize = 64;
/// Limit of buffered incomplete requests, all connections together.
const INPUT_LIMIT_BYTES: usize = 2 * LINE_LIMIT_BYTES;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Epoll token of the listener.
const LISTENER: u64 = 0;

/// Credentials of the client (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

impl Peer {
    /// Whether the client may send any request. In tests the daemon is not root.
    pub(crate) fn is_root(self) -> bool {
        self.uid == 0 || self.uid == geteuid().as_raw()
    }
}

/// What becomes of a request.
pub(crate) enum Reply {
    /// It is answered.
    Answer(Answer),
    /// The connection is given away.
    HandOver(Box<dyn FnOnce(UnixStream)>),
}

/// The timeout for so much time; without an end if `None`.
pub(crate) fn poll_timeout(left: Option<Duration>) -> PollTimeout {
    match left {
        // poll(2) counts milliseconds: round up, or it wakes twice.
        Some(left) if !left.is_zero() => {
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        }
        Some(_) => PollTimeout::ZERO,
        None => PollTimeout::NONE,
    }
}

/// The listening socket and its connections.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    /// The group whose members may connect.
    group: Option<Gid>,
    listener: UnixListener,
    epoll: Epoll,
    connections: Vec<Connection>,
    /// Epoll token of the next connection.
    next: u64,
    /// Time that clients other than root have taken in this call of [`Self::serve`].
    reader_time: Duration,
}

#[derive(Debug)]
struct Connection {
    token: u64,
    stream: UnixStream,
    peer: Peer,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Number of output bytes already written.
    written: usize,
    /// Start of the current time limit.
    since: Instant,
    /// Whether to close the connection after the output is written.
    last: bool,
}

/// Whether a connection stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    Closed,
}

impl Server {
    /// Listens at `path`, in a directory that only root can write. The directory is created if it is missing. Members
    /// of `group` may connect for requests that change nothing.
    ///
    /// # Errors
    /// Other users can write the directory, another file is at the path, or another daemon listens there.
    pub(crate) fn listen(path: &Path, group: Option<Gid>) -> anyhow::Result<Self> {
        let shown = path.display();
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => bail!("the control socket needs an absolute path, not `{shown}`"),
        };
        ensure_private_directory(directory)?;
        remove_stale_socket(path)?;
        // The kernel lets only those connect who may write to the socket: nobody else may from the beginning.
        let mask = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(mask);
        let listener = bound.with_context(|| format!("cannot listen at `{shown}`"))?;
        if let Some(group) = group {
            admit_group(directory, path, group)
                .with_context(|| format!("cannot give `{shown}` to group {group}"))?;
        }
        listener
            .set_nonblocking(true)
            .context("cannot set the control socket non-blocking")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .context("cannot create an epoll descriptor")?;
        epoll
            .add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))
            .context("cannot poll the control socket")?;
        Ok(Self {
            path: path.to_owned(),
            group,
            listener,
            epoll,
            connections: Vec::new(),
            next: LISTENER + 1,
            reader_time: Duration::ZERO,
        })
    }

    /// Path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Time after which [`Self::serve`] must run even if nothing is ready.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        let deadlines = self.connections.iter().map(|connection| {
            let is_ready = connection.output.is_empty() && connection.has_line();
            connection.since
                + if is_ready {
                    Duration::ZERO
                } else {
                    CLIENT_TIMEOUT
                }
        });
        let deadline = deadlines.min()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Reads requests, answers them with `handle`, and disconnects clients that are too slow.
    pub(crate) fn serve(&mut self, handle: &mut dyn FnMut(Peer, Request) -> Reply) {
        let mut events = [EpollEvent::empty(); MAX_CONNECTIONS + 1];
        // An interrupted wait is retried by the caller.
        let ready = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        let ready = ready.unwrap_or_default();
        let events = events.iter().take(ready).map(EpollEvent::data);
        let more = self.connections.iter().filter(|one| one.has_line());
        let mut tokens: Vec<u64> = events.chain(more.map(|one| one.token)).collect();
        tokens.sort_unstable();
        tokens.dedup();
        // Root's connections, then new ones, which may be root's.
        tokens.sort_by_key(|&token| (!self.is_roots(token), token));
        self.reader_time = Duration::ZERO;
        for token in tokens {
            match token {
                LISTENER => self.accept(handle),
                token => self.serve_connection(token, handle),
            }
        }
        let now = Instant::now();
        self.connections
            .retain(|connection| now.saturating_duration_since(connection.since) < CLIENT_TIMEOUT);
    }

    /// Whether a connection is root's.
    fn is_roots(&self, token: u64) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|one| one.token == token && one.peer.is_root())
    }

    /// Accepts connections. A request that has already arrived is answered at once, before another connection can
    /// evict it.
    fn accept(&mut self, handle: &mut dyn FnMut(Peer, Request) -> Reply) {
        for _ in 0..MAX_ACCEPTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            let token = self.next;
            self.next += 1;
            if let Some(connection) = Connection::new(stream, token, self.group) {
                self.evict_idlest(connection.peer);
                let interest = EpollEvent::new(EpollFlags::EPOLLIN, token);
                if self.epoll.add(&connection.stream, interest).is_ok() {
                    self.connections.push(connection);
                    self.serve_connection(token, handle);
                }
            }
        }
    }

    /// Closes the connection that has been idle longest if all places for this client are taken.
    fn evict_idlest(&mut self, new: Peer) {
        let is_candidate = |connection: &&Connection| new.is_root() || !connection.peer.is_root();
        let limit = if new.is_root() {
            MAX_CONNECTIONS
        } else {
            MAX_READERS
        };
        let candidates = self.connections.iter().filter(is_candidate);
        if candidates.clone().count() < limit && self.connections.len() < MAX_CONNECTIONS {
            return;
        }
        let oldest = candidates.min_by_key(|connection| connection.since);
        let oldest = oldest.map(|connection| connection.token);
        self.connections
            .retain(|connection| Some(connection.token) != oldest);
    }

    fn serve_connection(&mut self, token: u64, handle: &mut dyn FnMut(Peer, Request) -> Reply) {
        let waiting: usize = self.connections.iter().map(|other| other.input.len()).sum();
        let room = INPUT_LIMIT_BYTES.saturating_sub(waiting);
        let Some(at) = self
            .connections
            .iter()
            .position(|other| other.token == token)
        else {
            return;
        };
        let Some(connection) = self.connections.get_mut(at) else {
            return;
        };
        let is_root = connection.peer.is_root();
        if !is_root && self.reader_time >= READER_TIME {
            return; // in the next call
        }
        let began = Instant::now();
        let state = connection.serve(room, handle);
        if !is_root {
            self.reader_time += began.elapsed();
        }
        let interest = if connection.output.is_empty() {
            EpollFlags::EPOLLIN
        } else {
            EpollFlags::EPOLLOUT
        };
        let mut interest = EpollEvent::new(interest, token);
        let watched = self.epoll.modify(&connection.stream, &mut interest);
        if state == ConnectionState::Closed || watched.is_err() {
            // Closing does not end it if the connection was handed over: a copy of the descriptor stays open.
            let _absent = self.epoll.delete(&connection.stream);
            self.connections.swap_remove(at);
        }
    }
}

impl AsFd for Server {
    /// Readable if there is something to serve.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Connection {
    /// `None` if the client may not send requests; it is told so. With a group, the mode of the socket has let only
    /// its members connect.
    fn new(stream: UnixStream, token: u64, group: Option<Gid>) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let credentials = getsockopt(&stream, sockopt::PeerCredentials).ok()?;
        let peer = Peer {
            pid: credentials.pid(),
            uid: credentials.uid(),
        };
        let mut connection = Self {
            token,
            stream,
            peer,
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            since: Instant::now(),
            last: false,
        };
        if !peer.is_root() && group.is_none() {
            connection.answer(&Answer::Unanswered("only root may send requests".into()));
            connection.write();
            return None;
        }
        Some(connection)
    }

    /// Writes pending output, reads once and answers one request, so that connections take turns.
    fn serve(
        &mut self,
        room: usize,
        handle: &mut dyn FnMut(Peer, Request) -> Reply,
    ) -> ConnectionState {
        let written = self.write();
        if written != ConnectionState::Open || !self.output.is_empty() {
            return written;
        }
        if !self.has_line() && room > 0 {
            let room = room.min(self.line_limit() - self.input.len());
            match self.read(room) {
                Ok(0) => return ConnectionState::Closed,
                Ok(_) => {}
                Err(error) if is_retryable(&error) => return ConnectionState::Open,
                Err(_) => return ConnectionState::Closed,
            }
        }
        if let Some(line) = self.take_line() {
            let answer = match protocol::request(&line) {
                Ok(request) if !self.peer.is_root() && !request.is_read_only() => {
                    let reason = "only root may change anything";
                    Answer::Refused(Refusal::with_reason(Errno::EPERM, reason))
                }
                Ok(request) => match handle(self.peer, request) {
                    Reply::Answer(answer) => answer,
                    Reply::HandOver(take) => {
                        // Without a descriptor the client sees the end of the connection.
                        if let Ok(stream) = self.stream.try_clone() {
                            take(stream);
                        }
                        return ConnectionState::Closed;
                    }
                },
                Err(error) => {
                    // The rest of the input may not consist of lines.
                    self.last = true;
                    Answer::Unanswered(format!("{error:#}"))
                }
            };
            self.answer(&answer);
        } else if self.input.len() >= self.line_limit() {
            self.last = true;
            let limit = self.line_limit();
            self.answer(&Answer::Unanswered(format!(
                "the request is too long: the limit is {limit} bytes"
            )));
        } else if room == 0 {
            self.last = true;
            let reason = "too many long requests at once: send it again";
            self.answer(&Answer::Unanswered(reason.to_owned()));
        }
        self.write()
    }

    /// Longest request of this client.
    fn line_limit(&self) -> usize {
        if self.peer.is_root() {
            LINE_LIMIT_BYTES
        } else {
            READER_LINE_LIMIT_BYTES
        }
    }

    fn read(&mut self, room: usize) -> io::Result<usize> {
        let mut part = vec![0; READ_BYTES.min(room)];
        let count = self.stream.read(&mut part)?;
        self.input.extend(part.iter().take(count));
        Ok(count)
    }

    /// Whether a whole request has arrived.
    fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Removes and returns the first whole line, without its newline.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.find_byte(b'\n')?;
        let rest = self.input.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.input, rest);
        line.pop();
        Some(line)
    }

    fn answer(&mut self, answer: &Answer) {
        self.since = Instant::now();
        self.written = 0;
        match protocol::line(answer) {
            Ok(line) => self.output = line,
            Err(_) => self.last = true,
        }
    }

    /// Writes as much output as the socket takes.
    fn write(&mut self) -> ConnectionState {
        let unwritten = |connection: &Self| connection.written < connection.output.len();
        while unwritten(self) {
            let left = self.output.get(self.written..).unwrap_or_default();
            match self.stream.write(left) {
                Ok(count) if count > 0 => self.written += count,
                Err(error) if is_retryable(&error) => return ConnectionState::Open,
                _ => return ConnectionState::Closed,
            }
        }
        if !self.output.is_empty() {
            self.output = Vec::new();
            self.since = Instant::now();
        }
        if self.last {
            ConnectionState::Closed
        } else {
            ConnectionState::Open
        }
    }
}

/// Whether the operation can succeed when the socket is ready again.
fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
