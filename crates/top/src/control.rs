//! The control socket of the daemon: requests that change nothing.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::status::{RuleCosts, Status};

/// Default path of the control socket.
pub(crate) const SOCKET: &str = "/run/tollgate/control";
/// Longest wait for an answer: the daemon may be writing to a slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest answer.
const ANSWER_BYTES: u64 = 64 << 20;

/// An answer to a request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Status(Box<Status>),
    RuleCosts(Box<RuleCosts>),
    Watching,
    Refused { reason: String },
    Unanswered(String),
}

/// Which events a stream has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) keys: Vec<String>,
    pub(crate) users: Vec<u32>,
    pub(crate) programs: Vec<String>,
}

/// The socket of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The state of the daemon.
    ///
    /// # Errors
    /// No daemon answers, or it refuses.
    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        match self.ask(&json!("status"))?.0 {
            Answer::Status(status) => Ok(*status),
            answer => Err(unexpected(answer)),
        }
    }

    /// What the rules cost.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub(crate) fn rule_costs(&self) -> anyhow::Result<RuleCosts> {
        match self.ask(&json!("rule_costs"))?.0 {
            Answer::RuleCosts(costs) => Ok(*costs),
            answer => Err(unexpected(answer)),
        }
    }

    /// A stream of at most `sample` events a second.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub(crate) fn watch(
        &self,
        filter: &Filter,
        sample: u32,
    ) -> anyhow::Result<BufReader<UnixStream>> {
        let Filter {
            keys,
            users,
            programs,
        } = filter;
        let request = json!({ "watch":
            { "keys": keys, "users": users, "programs": programs, "sample": sample } });
        let (answer, stream) = self.ask(&request)?;
        match answer {
            Answer::Watching => {
                stream.get_ref().set_read_timeout(None)?;
                Ok(stream)
            }
            answer => Err(unexpected(answer)),
        }
    }

    fn ask(&self, request: &Value) -> anyhow::Result<(Answer, BufReader<UnixStream>)> {
        let mut stream =
            UnixStream::connect(&self.path).map_err(|error| connect_error(&self.path, error))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let line = format!("{}\n", json!({ "version": 1, "request": request }));
        // A client without permission gets its answer before its request is read.
        let sent = stream.write_all(line.as_bytes());
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        let read = (&mut stream)
            .take(ANSWER_BYTES)
            .read_until(b'\n', &mut line);
        read.context("no answer from the daemon")?;
        if !line.ends_with(b"\n") {
            sent.context("cannot send to the daemon")?;
            bail!("the daemon closed the connection before it answered");
        }
        let answer = serde_json::from_slice(&line).context("invalid reply from the daemon")?;
        match answer {
            Answer::Refused { reason } => bail!("the daemon refused the request: {reason}"),
            Answer::Unanswered(why) => bail!("the daemon refused the request: {why}"),
            answer => Ok((answer, stream)),
        }
    }
}

fn unexpected(_answer: Answer) -> anyhow::Error {
    anyhow!("invalid reply from the daemon")
}

fn connect_error(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
            "no daemon listens at `{shown}`: run `systemctl start tollgate`, or name the socket of a daemon with --control"
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "cannot connect to the daemon at `{shown}`: only root and the group `watch_group` of tollgate.toml can"
        ),
        _ => {
            anyhow::Error::from(error).context(format!("cannot connect to the daemon at `{shown}`"))
        }
    }
}
