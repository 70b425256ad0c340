//! The commands' end of the control socket.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};

use super::LINE_LIMIT_BYTES;
use super::protocol::{self, Answer, Envelope, Request, VERSION};

/// Longest wait for an answer: loading and attaching many programs takes long on some machines.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between checks whether the daemon runs. The second check that finds it stopped ends the wait.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for a place in the queue of clients, which a stopped daemon leaves full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// `NotFound` and `ConnectionRefused` if no daemon listens, `PermissionDenied` if the caller may not connect,
    /// `TimedOut` if it does not take clients.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = connect_in_time(path)?;
        stream.set_read_timeout(Some(CHECK_INTERVAL))?;
        stream.set_write_timeout(Some(CHECK_INTERVAL))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The request is too long, the daemon does not run or answer, closes the connection or sends an invalid answer.
    pub(crate) fn ask(&mut self, request: Request) -> anyhow::Result<Answer> {
        let call = Envelope {
            version: VERSION,
            request,
        };
        let line = protocol::line(&call)?;
        ensure!(
            line.len() <= LINE_LIMIT_BYTES,
            "too many rules for one request: the limit is {LINE_LIMIT_BYTES} bytes; load the rule file in parts"
        );
        // A client without permission gets its answer before its request is read, so a failed write is not final.
        let mut wait = Wait::for_peer(self.stream.get_ref());
        let sent = self.write(&line, &mut wait);
        let mut line = Vec::new();
        let read = self.read_line(&mut line, &mut wait);
        sent.or_else(|error| if line.is_empty() { Err(error) } else { Ok(()) })
            .and(read)
            .context("no answer from the daemon")?;
        ensure!(
            line.ends_with(b"\n"),
            "the daemon closed the connection before it answered"
        );
        let answer = serde_json::from_slice(&line)
            .map_err(|_unknown_form| anyhow::Error::msg(super::INVALID_REPLY))?;
        match answer {
            Answer::Unanswered(why) => bail!("the daemon refused the request: {why}"),
            answer => Ok(answer),
        }
    }

    fn write(&mut self, mut line: &[u8], wait: &mut Wait) -> io::Result<()> {
        while !line.is_empty() {
            match self.stream.get_mut().write(line) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => line = line.get(count..).unwrap_or_default(),
                Err(error) => wait.after(error)?,
            }
        }
        Ok(())
    }

    /// Reads to the end of the line, or of the connection. A part read before a timeout is kept.
    fn read_line(&mut self, line: &mut Vec<u8>, wait: &mut Wait) -> io::Result<()> {
        loop {
            match self.stream.read_until(b'\n', line) {
                Ok(_) => return Ok(()),
                Err(error) => wait.after(error)?,
            }
        }
    }

    /// The connection, after an answer that lets records follow. Reading waits without limit.
    ///
    /// # Errors
    /// The time limit cannot be removed.
    pub(crate) fn into_stream(self) -> io::Result<BufReader<UnixStream>> {
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(self.stream)
    }

    /// Waits until the daemon has ended.
    ///
    /// # Errors
    /// The connection fails for another reason than its end.
    pub(crate) fn wait_for_end(mut self) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(None)?;
        let mut byte = [0];
        loop {
            match self.stream.read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() != ErrorKind::ConnectionReset => return Err(error),
                _ => return Ok(()),
            }
        }
    }
}

/// Connects to a socket, within [`CONNECT_TIMEOUT`].
///
/// # Errors
/// `TimedOut` if a process listens and does not take clients; otherwise the kernel's error.
///
/// # Source
/// `unix_stream_connect` in `net/unix/af_unix.c`, Linux 6.12, waits for `SO_SNDTIMEO` and then fails with `EAGAIN`.
pub(crate) fn connect_in_time(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    socket.set_write_timeout(Some(CONNECT_TIMEOUT))?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::EAGAIN) => Err(io::Error::new(
            ErrorKind::TimedOut,
            "its queue of clients is full: it is stopped or busy, see `systemctl status tollgate`",
        )),
        Err(errno) => Err(errno.into()),
    }
}

/// A wait for the daemon, which ends early when the daemon is stopped by a signal.
struct Wait {
    since: Instant,
    /// Process that listens; 0 if it cannot be known.
    pid: i32,
    was_stopped: bool,
}

impl Wait {
    fn for_peer(stream: &UnixStream) -> Self {
        let peer = getsockopt(stream, sockopt::PeerCredentials);
        Self {
            since: Instant::now(),
            pid: peer.map_or(0, |peer| peer.pid()),
            was_stopped: false,
        }
    }

    /// Whether to try again after an error.
    ///
    /// # Errors
    /// The error, if it is no timeout; the daemon is stopped; or the wait has been too long.
    fn after(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => return Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
            _ => return Err(error),
        }
        let is_stopped = is_stopped(self.pid);
        if is_stopped && self.was_stopped {
            let pid = self.pid;
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!(
                    "the daemon (process {pid}) is stopped; `kill -CONT {pid}` continues it, and then it does what was \
                     asked"
                ),
            ));
        }
        self.was_stopped = is_stopped;
        if self.since.elapsed() >= ANSWER_TIMEOUT {
            let seconds = ANSWER_TIMEOUT.as_secs();
            return Err(io::Error::new(
                ErrorKind::TimedOut,
                format!("it has been busy for {seconds} seconds, and may still do what was asked"),
            ));
        }
        Ok(())
    }
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // The name in parentheses can contain any character.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_some_and(|state| state.starts_with(['T', 't']))
}
