//! The helper's end: starts the programs that the configuration names.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::Context as _;
use audit::conf::auditd::Settings;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;

use super::permission::{PermittedCommand, permit};
use super::protocol::{
    HelperAnswer, HelperProgram, HelperRequest, MESSAGE_LIMIT_BYTES, ProgramSignal,
};
use crate::config;

/// Serves requests until the last client has gone.
///
/// # Errors
/// Standard input is no socket of the daemon.
pub(crate) fn serve(auditd_conf: Option<&Path>) -> anyhow::Result<ExitCode> {
    // Ends after the daemon, which ends the programs in order.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).context("cannot block signals")?;
    let stdin = io::stdin();
    let mut programs = Programs::default();
    let mut buffer = vec![0; MESSAGE_LIMIT_BYTES];
    loop {
        let (length, _) = engine::recv_with_fd(stdin.as_fd(), &mut buffer)
            .context("only `tollgate daemon` can use this command")?;
        let message = buffer.get(..length).unwrap_or_default();
        if message.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let (answer, descriptor) = match serde_json::from_slice(message) {
            Ok(request) => programs.handle(request, auditd_conf),
            Err(error) => (HelperAnswer::Refused(error.to_string()), None),
        };
        let answer = serde_json::to_vec(&answer).context("cannot encode JSON")?;
        let passed = descriptor.as_ref().map(OwnedFd::as_fd);
        if engine::send_with_fd(stdin.as_fd(), &answer, passed).is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Running programs by number.
#[derive(Debug, Default)]
struct Programs {
    running: BTreeMap<u32, Child>,
    last: u32,
}

impl Programs {
    fn handle(
        &mut self,
        request: HelperRequest,
        conf: Option<&Path>,
    ) -> (HelperAnswer, Option<OwnedFd>) {
        match request {
            HelperRequest::Start(program) => match self.start(&program, conf) {
                Ok((number, stdin)) => (HelperAnswer::Started(number), stdin),
                Err(error) => (HelperAnswer::Refused(format!("{error:#}")), None),
            },
            HelperRequest::Signal(number, signal) => {
                self.signal(number, signal);
                (HelperAnswer::SignalSent, None)
            }
            HelperRequest::HasEnded(number) => {
                (HelperAnswer::HasEnded(self.has_ended(number)), None)
            }
        }
    }

    fn start(
        &mut self,
        program: &HelperProgram,
        conf: Option<&Path>,
    ) -> anyhow::Result<(u32, Option<OwnedFd>)> {
        let PermittedCommand {
            path,
            args,
            stdin: text,
        } = permit(program, &settings(conf)?)?;
        let mut command = Command::new(path);
        command.args(args).stdout(Stdio::null());
        let ours = if let HelperProgram::Plugin { .. } = program {
            let (ours, theirs) =
                UnixStream::pair().context("cannot create a socket for its standard input")?;
            command.stdin(Stdio::from(OwnedFd::from(theirs)));
            Some(OwnedFd::from(ours))
        } else {
            let input = if text.is_empty() {
                Stdio::null()
            } else {
                Stdio::piped()
            };
            command.current_dir("/").stdin(input);
            None
        };
        let mut child = engine::unblock_signals(&mut command).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // The text is far smaller than a pipe's buffer.
            let _gone = stdin.write_all(text.as_bytes());
        }
        self.last += 1;
        self.running.insert(self.last, child);
        Ok((self.last, ours))
    }

    fn signal(&self, number: u32, signal: ProgramSignal) {
        let Some(child) = self.running.get(&number) else {
            return;
        };
        let signal = match signal {
            ProgramSignal::Hup => Signal::SIGHUP,
            ProgramSignal::Term => Signal::SIGTERM,
            ProgramSignal::Kill => Signal::SIGKILL,
        };
        // It may have ended. Its PID is not reused before it is waited for.
        let _gone = kill(Pid::from_raw(child.id().cast_signed()), signal);
    }

    fn has_ended(&mut self, number: u32) -> bool {
        let Some(child) = self.running.get_mut(&number) else {
            return true;
        };
        let ended = !matches!(child.try_wait(), Ok(None));
        if ended {
            self.running.remove(&number);
        }
        ended
    }
}

/// Reads the configuration.
fn settings(conf: Option<&Path>) -> anyhow::Result<Settings> {
    let Some(conf) = conf else {
        return Ok(Settings::default());
    };
    let read = config::read_auditd(conf)?;
    anyhow::ensure!(
        read.is_valid(),
        "`{}` has errors: run `tollgate config check`",
        conf.display()
    );
    Ok(read.settings)
}
