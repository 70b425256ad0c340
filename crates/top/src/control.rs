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
/// Describes an answer that this program does not know.
const INVALID_REPLY: &str = "cannot read the reply of the daemon, which may be another version: compare \
     `tollgate --version` with `journalctl -u tollgate`, then run `systemctl restart tollgate`";
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
            _ => bail!(INVALID_REPLY),
        }
    }

    /// What the rules cost.
    ///
    /// # Errors
    /// As [`Self::status`].
    pub(crate) fn rule_costs(&self) -> anyhow::Result<RuleCosts> {
        match self.ask(&json!("rule_costs"))?.0 {
            Answer::RuleCosts(costs) => Ok(*costs),
            _ => bail!(INVALID_REPLY),
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
            _ => bail!(INVALID_REPLY),
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
        let shown = self.path.display();
        read.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => anyhow!(
                "no answer from the daemon at `{shown}` for {} seconds: `journalctl -u tollgate` may have the reason",
                ANSWER_TIMEOUT.as_secs()
            ),
            _ => anyhow::Error::from(error)
                .context(format!("no answer from the daemon at `{shown}`")),
        })?;
        if !line.ends_with(b"\n") {
            sent.context("cannot send to the daemon")?;
            bail!("the daemon closed the connection before it answered");
        }
        let answer =
            serde_json::from_slice(&line).map_err(|_unknown_form| anyhow!(INVALID_REPLY))?;
        match answer {
            Answer::Refused { reason } => bail!("the daemon refused the request: {reason}"),
            Answer::Unanswered(why) => bail!("the daemon refused the request: {why}"),
            answer => Ok((answer, stream)),
        }
    }
}

fn connect_error(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused if path == Path::new(SOCKET) => anyhow!(
            "no daemon listens at `{shown}`: run `systemctl start tollgate`, or name the socket of a daemon with --control"
        ),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => anyhow!(
            "no daemon listens at `{shown}`: start it, or correct --control; the service listens at `{SOCKET}`"
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "cannot connect to the daemon at `{shown}`: only root and the group `watch_group` of tollgate.toml can"
        ),
        _ => {
            anyhow::Error::from(error).context(format!("cannot connect to the daemon at `{shown}`"))
        }
    }
}
