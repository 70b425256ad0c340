//! The daemon's end: asks for programs, and holds on to those that run.

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
use super::protocol::{Answer, MESSAGE_LIMIT_BYTES, Program, ProgramSignal, Request};

/// What systemd has told the daemon, and is no business of the programs that it starts.
const SERVICE_VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];
/// The launcher starts programs and waits for nothing: it answers within milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The launcher. Clones ask the same one, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Launcher(Arc<Mutex<Option<OwnedFd>>>);

/// A program that was started.
#[derive(Debug)]
pub(crate) struct LaunchedProgram {
    launcher: Launcher,
    number: u32,
}

impl Launcher {
    /// Starts the launcher, which has all rights that this process has now. It ends when nobody is left who
    /// could ask it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(auditd_conf: Option<&Path>) -> anyhow::Result<Self> {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .context("cannot make a socket for the launcher")?;
        let patience = TimeVal::seconds(ANSWER_TIMEOUT.as_secs().cast_signed());
        setsockopt(&ours, ReceiveTimeout, &patience).context("cannot limit the launcher's time")?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg(COMMAND);
        if let Some(conf) = auditd_conf {
            command.arg("--auditd-conf").arg(conf);
        }
        for variable in SERVICE_VARIABLES {
            command.env_remove(variable);
        }
        // In a group of its own: Ctrl-C is for the daemon, which ends its programs in order.
        command
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the launcher")?;
        Ok(Self(Arc::new(Mutex::new(Some(ours)))))
    }

    /// Starts a program; gives the standard input of a plugin.
    ///
    /// # Errors
    /// What the launcher refuses, or the kernel; and when the launcher has ended.
    pub(crate) fn run(
        &self,
        program: Program,
    ) -> anyhow::Result<(LaunchedProgram, Option<UnixStream>)> {
        match self.request(&Request::Start(program))? {
            (Answer::Started(number), stdin) => {
                let launched = LaunchedProgram {
                    launcher: self.clone(),
                    number,
                };
                Ok((launched, stdin.map(UnixStream::from)))
            }
            (Answer::Refused(reason), _) => bail!(reason),
            (answer, _) => bail!("the launcher answers {answer:?}"),
        }
    }

    /// One question and its answer. A launcher that does not answer is asked nothing more: its answers
    /// would be to other questions.
    fn request(&self, request: &Request) -> anyhow::Result<(Answer, Option<OwnedFd>)> {
        let mut socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &*socket else {
            bail!("the launcher of programs has ended: restart the daemon");
        };
        let asked = serde_json::to_vec(request)
            .context("cannot write JSON")
            .and_then(|message| {
                engine::send_with_fd(open, &message, None).context("cannot ask the launcher")?;
                let mut buffer = vec![0; MESSAGE_LIMIT_BYTES];
                let (length, descriptor) = engine::recv_with_fd(open, &mut buffer)
                    .context("the launcher does not answer")?;
                let message = buffer.get(..length).unwrap_or_default();
                let answer =
                    serde_json::from_slice(message).context("the launcher does not answer")?;
                Ok((answer, descriptor))
            });
        if asked.is_err() {
            *socket = None;
        }
        asked
    }
}

impl LaunchedProgram {
    /// Sends it a signal; nobody gets it when it has ended.
    pub(crate) fn signal(&self, signal: ProgramSignal) {
        // Without a launcher the program has its own end of input to go by.
        let _gone = self.launcher.request(&Request::Signal(self.number, signal));
    }

    /// Whether it has ended; also when nobody can say any more.
    pub(crate) fn has_ended(&self) -> bool {
        let asked = self.launcher.request(&Request::HasEnded(self.number));
        !matches!(asked, Ok((Answer::HasEnded(false), _)))
    }
}
