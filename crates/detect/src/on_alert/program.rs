//! The program, for one alert.
//!
//! The alert is on standard input, as a file that the program need not read. The environment is fixed; what the program
//! prints is discarded. When it ends, or its time is over, its process group is killed.
//!
//! A program inherits which signals are blocked, and in the helper all threads must block them. So the helper starts this
//! program again, which unblocks its own signals and becomes the program.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::helper::signals;
use super::{Request, permitted};

/// Name of the command that becomes the program.
pub(crate) const COMMAND: &str = "on-alert-program";
/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(10);
/// `PATH` of the program.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Most bytes of the reason for which it could not be started.
const MAX_REASON_BYTES: u64 = 4096;

/// Arguments of the command that becomes the program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    program: PathBuf,
}

/// Starts the program for an alert.
///
/// # Errors
/// It is none that may be started, or cannot be.
pub(super) fn start(program: &Path, request: &Request) -> anyhow::Result<Child> {
    permitted::check(program)?;
    let memory = memfd_create(c"alert", MFdFlags::MFD_CLOEXEC).context("cannot make a file")?;
    let mut input = File::from(memory);
    let text = [request.finding.as_bytes(), b"\n"].concat();
    input
        .write_all(&text)
        .and_then(|()| input.rewind())
        .context("cannot write the alert")?;
    // The environment cannot have NUL.
    let id = request.id.replace(char::is_control, "\u{fffd}");
    let mut child = Command::new("/proc/self/exe")
        .arg0("tollgate-detect")
        .arg(COMMAND)
        .arg(program)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("TOLLGATE_ALERT_ID", id)
        .env("TOLLGATE_ALERT_LEVEL", &request.level)
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start it")?;
    // The pipe is closed when it has become the program.
    let mut reason = String::new();
    if let Some(output) = child.stdout.take() {
        let read = output.take(MAX_REASON_BYTES).read_to_string(&mut reason);
        read.context("cannot read why it does not start")?;
    }
    if reason.is_empty() {
        return Ok(child);
    }
    let _status = child.wait();
    bail!("cannot start it: {reason}");
}

/// Becomes the program; returns only if it cannot, with the reason on standard output.
///
/// # Errors
/// The reason cannot be written.
pub(crate) fn become_program(args: &Args) -> anyhow::Result<ExitCode> {
    // Closed by execve(2).
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let mut output = File::from(output.context("cannot use standard output")?);
    let unblocked = signals().thread_unblock().map_err(std::io::Error::from);
    let error = match unblocked {
        Ok(()) => Command::new(&args.program).stdout(Stdio::null()).exec(),
        Err(error) => error,
    };
    write!(output, "{error}").context("cannot write to standard output")?;
    Ok(ExitCode::FAILURE)
}

/// Waits until the program has ended, and kills its process group then or when its time is over.
///
/// # Errors
/// It took too long, or failed.
pub(super) fn wait(mut child: Child, limit: Duration) -> anyhow::Result<()> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let begun = Instant::now();
    let is_running = || matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive));
    while is_running() && begun.elapsed() < limit {
        thread::park_timeout(POLL);
    }
    let is_late = is_running();
    // The number of the group is not used again before the program is waited for.
    let _gone = killpg(pid, Signal::SIGKILL);
    let status = child.wait().context("cannot wait for it")?;
    if is_late {
        bail!(
            "it took more than {} seconds and was killed",
            limit.as_secs_f32()
        );
    }
    match status.success() {
        true => Ok(()),
        false => bail!("it failed: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::errno::Errno;

    use super::*;

    #[test]
    fn late_programs_and_those_that_they_leave_are_killed() {
        let place = tempfile::tempdir().unwrap();
        let script = "sleep 600 & echo $! > pid.new\nmv pid.new pid";
        for (script, expected) in [
            (
                format!("{script}\nsleep 600"),
                "it took more than 1 seconds and was killed",
            ),
            (format!("{script}\nexit 3"), "it failed: exit status: 3"),
            (script.to_owned(), ""),
        ] {
            let mut program = Command::new("/bin/sh");
            program.args(["-c", &script]).current_dir(place.path());
            let program = program.process_group(0).spawn().unwrap();
            let result = wait(program, Duration::from_secs(1));
            let told = result
                .err()
                .map_or_else(String::new, |error| error.to_string());
            assert_eq!(told, expected);
            let pid = fs::read_to_string(place.path().join("pid")).unwrap();
            let pid = Pid::from_raw(pid.trim().parse().unwrap());
            let deadline = Instant::now() + Duration::from_secs(30);
            // It may be a zombie until init waits for it.
            let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            while nix::sys::signal::kill(pid, None) != Err(Errno::ESRCH)
                && !state().contains(") Z ")
            {
                assert!(Instant::now() < deadline, "{pid} still runs");
                thread::yield_now();
            }
        }
    }
}
