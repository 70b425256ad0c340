//! The commands' end of the control socket.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::LINE_LIMIT_BYTES;
use super::protocol::{self, Answer, Envelope, Request, VERSION};

/// Longest wait for an answer: detaching hooks takes seconds on some kernels.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// `NotFound` and `ConnectionRefused` if no daemon listens, `PermissionDenied` if the caller is not root.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// The request is too long, or the daemon closes the connection or sends an invalid answer.
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
        let sent = self.stream.get_mut().write_all(&line);
        let mut line = Vec::new();
        let read = self.stream.read_until(b'\n', &mut line);
        sent.or_else(|error| if line.is_empty() { Err(error) } else { Ok(()) })
            .and(read)
            .context("no answer from the daemon")?;
        ensure!(
            line.ends_with(b"\n"),
            "the daemon closed the connection before it answered"
        );
        let answer = serde_json::from_slice(&line).context("invalid reply from the daemon")?;
        match answer {
            Answer::Unanswered(why) => bail!("the daemon refused the request: {why}"),
            answer => Ok(answer),
        }
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
