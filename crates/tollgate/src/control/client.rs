//! The commands' end of the control socket.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::LINE_LIMIT_BYTES;
use super::protocol::{self, Answer, Envelope, Request, VERSION};

/// Longest wait for an answer: on some kernels it takes long to detach hooks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon that listens there.
    ///
    /// # Errors
    /// `NotFound` and `ConnectionRefused` when there is none, `PermissionDenied` when one may not ask.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the request is too long, when the daemon goes away or answers what is none.
    pub(crate) fn ask(&mut self, request: Request) -> anyhow::Result<Answer> {
        let call = Envelope {
            version: VERSION,
            request,
        };
        let line = protocol::line(&call)?;
        ensure!(
            line.len() <= LINE_LIMIT_BYTES,
            "these rules are too many for one request: it has at most {LINE_LIMIT_BYTES} bytes"
        );
        // Who may not ask is told so and left: its answer is there though the request is not taken.
        let sent = self.stream.get_mut().write_all(&line);
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line);
        sent.or_else(|error| if line.is_empty() { Err(error) } else { Ok(()) })
            .and(read)
            .context("the daemon does not answer")?;
        ensure!(
            line.ends_with(b"\n"),
            "the daemon has gone away before it answered"
        );
        let answer = serde_json::from_slice(&line).context("the daemon's answer is none")?;
        match answer {
            Answer::Unanswered(why) => bail!("the daemon does not take the request: {why}"),
            answer => Ok(answer),
        }
    }

    /// Waits until the daemon has ended.
    ///
    /// # Errors
    /// When the connection fails otherwise than by its end.
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
