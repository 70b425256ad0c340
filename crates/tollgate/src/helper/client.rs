//! The daemon's end: starts programs through the helper, and signals them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use super::COMMAND;
use super::protocol::{
    HelperAnswer, HelperProgram, HelperRequest, MESSAGE_LIMIT_BYTES, ProgramSignal,
};

/// Variables of systemd for the daemon, not for the programs that it starts.
const SERVICE_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
/// The helper never waits: it answers within milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Access to the helper. Clones use the same one in turn.
#[derive(Clone, Debug)]
pub(crate) struct HelperClient(Arc<Mutex<Option<OwnedFd>>>);

/// A started program.
#[derive(Debug)]
pub(crate) struct LaunchedProgram {
    helper: HelperClient,
    number: u32,
}

impl HelperClient {
    /// Starts the helper with the privileges of this process. It ends with the last client. `is_detached`: it does not
    /// keep the standard error of this process, and so neither do the programs.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(auditd_conf: Option<&Path>, is_detached: bool) -> anyhow::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .context("cannot create a socket for the helper")?;
        let patience = TimeVal::seconds(ANSWER_TIMEOUT.as_secs().cast_signed());
        setsockopt(&ours, ReceiveTimeout, &patience)
            .context("cannot set a timeout for the helper")?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut command = Command::new(program);
        command.arg(COMMAND);
        if let Some(conf) = auditd_conf {
            command.arg("--auditd-conf").arg(conf);
        }
        for variable in SERVICE_VARIABLES {
            command.env_remove(variable);
        }
        if is_detached {
            command.stderr(Stdio::null());
        }
        // Its own process group: Ctrl-C goes to the daemon, which ends its programs in order.
        command
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the helper process")?;
        Ok(Self(Arc::new(Mutex::new(Some(ours)))))
    }

    /// Starts a program; returns the standard input of a plugin.
    ///
    /// # Errors
    /// The helper or the kernel refuses, or the helper has ended.
    pub(crate) fn run(
        &self,
        program: HelperProgram,
    ) -> anyhow::Result<(LaunchedProgram, Option<UnixStream>)> {
        match self.request(&HelperRequest::Start(program))? {
            (HelperAnswer::Started(number), stdin) => {
                let launched = LaunchedProgram {
                    helper: self.clone(),
                    number,
                };
                Ok((launched, stdin.map(UnixStream::from)))
            }
            (HelperAnswer::Refused(reason), _) => bail!(reason),
            _ => bail!("the helper process gave a wrong answer: run `systemctl restart tollgate`"),
        }
    }

    /// Sends a request and waits for the answer. After a timeout the helper is not used again: its answers would
    /// belong to other requests.
    fn request(&self, request: &HelperRequest) -> anyhow::Result<(HelperAnswer, Option<OwnedFd>)> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &*socket else {
            bail!(
                "the helper process, which starts plugins and the actions of auditd.conf, has ended: run `systemctl restart \
                 tollgate`"
            );
        };
        let asked = serde_json::to_vec(request)
            .context("cannot encode JSON")
            .and_then(|message| {
                engine::send_with_fd(open, &message, None)
                    .context("cannot send a request to the helper")?;
                let mut buffer = vec![0; MESSAGE_LIMIT_BYTES];
                let (length, descriptor) =
                    engine::recv_with_fd(open, &mut buffer).context("no answer from the helper")?;
                let message = buffer.get(..length).unwrap_or_default();
                let answer =
                    serde_json::from_slice(message).context("invalid answer from the helper")?;
                Ok((answer, descriptor))
            });
        if asked.is_err() {
            *socket = None;
        }
        asked
    }
}

impl LaunchedProgram {
    /// Sends a signal. Without effect if the program has ended.
    pub(crate) fn signal(&self, signal: ProgramSignal) {
        // Without a helper the program still sees the end of its input.
        let _gone = self
            .helper
            .request(&HelperRequest::Signal(self.number, signal));
    }

    /// Whether the program has ended. True if the helper cannot tell.
    pub(crate) fn has_ended(&self) -> bool {
        let asked = self.helper.request(&HelperRequest::HasEnded(self.number));
        !matches!(asked, Ok((HelperAnswer::HasEnded(false), _)))
    }
}
