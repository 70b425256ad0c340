//! The helper's end: starts the program for each alert, some at once, and ends those that take too long.
//!
//! The alert is on standard input, as a file that the program need not read. The environment is fixed; what the program
//! prints is discarded. When it ends, or its time is over, its process group is killed.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use caps::CapSet;
use logs::escaped::Escaped;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::{Counts, MAX_MESSAGE_BYTES, Request, permitted, send};
use crate::output::info;
use crate::sigma::one_line;

/// Name of the command of the helper.
pub(crate) const COMMAND: &str = "on-alert-helper";
/// Most programs that run at once, and most alerts that wait for one to end.
const MAX_RUNNING: usize = 4;
const MAX_WAITING: usize = 64;
/// Longest time of a program, and in which those that wait are started yet after the run has ended.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(10);
/// `PATH` of the program.
const SEARCH_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Arguments of the helper.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    program: PathBuf,
}

/// What threads share.
#[derive(Debug)]
struct Shared {
    program: PathBuf,
    socket: OwnedFd,
    waiting: Mutex<Receiver<Request>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// When the run ended.
    ended: Option<Instant>,
    /// The last failure that was told.
    told: String,
}

/// Starts the program for alerts from standard input until the run has ended.
///
/// # Errors
/// Standard input is no socket of a run.
pub(crate) fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    // The service may read any file, which the program need not. The filter of the unit forbids capset(2), and so to
    // clear the other sets; a program gets nothing from these.
    caps::clear(None, CapSet::Ambient).context("cannot drop the ambient capabilities")?;
    ignore_signals()?;
    let stdin = std::io::stdin();
    let (sender, receiver) = sync_channel(MAX_WAITING);
    let shared = Arc::new(Shared {
        program: args.program.clone(),
        socket: stdin_socket()?,
        waiting: Mutex::new(receiver),
        state: Mutex::default(),
    });
    let mut workers = Vec::new();
    for number in 0..MAX_RUNNING {
        let shared = Arc::clone(&shared);
        let worker = thread::Builder::new()
            .name(format!("tlg-on-alert-{number}"))
            .spawn(move || shared.work())
            .context("cannot start a thread")?;
        workers.push(worker);
    }
    shared.count(|_none| {});
    let mut buffer = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let length = recv(stdin.as_raw_fd(), &mut buffer, MsgFlags::empty());
        let length = length.context("only `tollgate detect run` can use this command")?;
        let message = buffer.get(..length).unwrap_or_default();
        if message.is_empty() {
            break;
        }
        let Ok(request) = serde_json::from_slice(message) else {
            continue;
        };
        if let Err(TrySendError::Full(_)) = sender.try_send(request) {
            shared.leave_out();
        }
    }
    shared.state().ended = Some(Instant::now());
    drop(sender);
    for worker in workers {
        let _ended = worker.join();
    }
    Ok(ExitCode::SUCCESS)
}

/// Signals for the run, such as those that a service manager sends to all processes of a service. The helper ends after
/// the run.
fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals
}

/// Takes signals and does nothing. This thread, and those that it starts, block them.
fn ignore_signals() -> anyhow::Result<()> {
    signals().thread_block().context("cannot block signals")?;
    thread::Builder::new()
        .name("tlg-signals".to_owned())
        .spawn(|| while signals().wait().is_ok() {})
        .context("cannot start a thread")?;
    Ok(())
}

/// Another descriptor of standard input.
fn stdin_socket() -> anyhow::Result<OwnedFd> {
    use std::os::fd::AsFd as _;
    let socket = std::io::stdin().as_fd().try_clone_to_owned();
    socket.context("cannot use standard input")
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts programs, one after the other, until there are no more alerts.
    fn work(&self) {
        loop {
            let waiting = self.waiting.lock();
            let request = waiting.unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = request else {
                return;
            };
            let ended = self.state().ended;
            if ended.is_some_and(|ended| ended.elapsed() >= LIMIT) {
                self.leave_out();
                continue;
            }
            let result = start(&self.program, &request).and_then(|child| {
                self.count(|counts| counts.started += 1);
                wait(child, LIMIT)
            });
            if let Err(error) = result {
                self.count(|counts| counts.failed += 1);
                self.tell(&format!("{error:#}"));
            }
        }
    }

    fn leave_out(&self) {
        self.count(|counts| counts.left_out += 1);
        self.tell("it has too many alerts: some are left out");
    }

    /// Counts, and tells the run.
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut state = self.state();
        change(&mut state.counts);
        // A run that does not look gets the next ones.
        let counts = serde_json::to_vec(&state.counts).unwrap_or_default();
        let _late = send(&self.socket, &counts);
    }

    /// Tells a failure that is another one than the last.
    fn tell(&self, failure: &str) {
        let mut state = self.state();
        if state.told != failure {
            let program = Escaped(self.program.as_os_str().as_encoded_bytes());
            info(format_args!("--on-alert {program}: {}", one_line(failure)));
            failure.clone_into(&mut state.told);
        }
    }
}

/// Starts the program for an alert.
fn start(program: &Path, request: &Request) -> anyhow::Result<Child> {
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
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .env("TOLLGATE_ALERT_ID", id)
        .env("TOLLGATE_ALERT_LEVEL", &request.level)
        .current_dir("/")
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    // The program does not inherit that they are blocked.
    signals()
        .thread_unblock()
        .context("cannot unblock signals")?;
    let child = command.spawn();
    signals().thread_block().context("cannot block signals")?;
    child.context("cannot start it")
}

/// Waits until the program has ended, and kills its process group then or when its time is over.
fn wait(mut child: Child, limit: Duration) -> anyhow::Result<()> {
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
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use nix::errno::Errno;

    use super::*;

    /// A program, and a request for it.
    fn program(place: &Path, script: &str) -> (PathBuf, Request) {
        let program = place.canonicalize().unwrap().join("program");
        let script = format!("#!/bin/sh\ncd {}\n{script}\n", place.display());
        // A process of another thread must not have the file open to be written.
        let made = Command::new("/bin/sh")
            .args([
                "-c",
                "rm -f \"$0\"; printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"",
            ])
            .arg(&program)
            .arg(script)
            .status();
        assert!(made.unwrap().success());
        let request = Request {
            id: "A rule:1.000:2:n\0".to_owned(),
            level: "high".to_owned(),
            finding: "{\"text\": \"a\"}".repeat(20_000),
        };
        (program, request)
    }

    #[test]
    fn program_gets_the_alert_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let script = "cat > input\nenv > environment\ngrep SigBlk /proc/self/status > signals\necho text\necho text >&2";
        signals().thread_block().unwrap();
        let (program, request) = program(place.path(), script);
        wait(start(&program, &request).unwrap(), LIMIT).unwrap();
        let input = fs::read_to_string(place.path().join("input")).unwrap();
        assert_eq!(input, request.finding + "\n");
        let blocked = fs::read_to_string(place.path().join("signals")).unwrap();
        assert_eq!(blocked, "SigBlk:\t0000000000000000\n");
        let environment = fs::read_to_string(place.path().join("environment")).unwrap();
        let mut names: Vec<&str> = environment
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            // Shells set them.
            .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["PATH", "TOLLGATE_ALERT_ID", "TOLLGATE_ALERT_LEVEL"]);
        assert!(
            environment.contains("TOLLGATE_ALERT_ID=A rule:1.000:2:n\u{fffd}\n"),
            "{environment}"
        );
    }

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
            let (program, request) = program(place.path(), &script);
            let result = wait(start(&program, &request).unwrap(), Duration::from_secs(1));
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
        fs::write(place.path().join("program"), "no program").unwrap();
        let (program, request) = program(place.path(), "");
        fs::set_permissions(&program, Permissions::from_mode(0o777)).unwrap();
        start(&program, &request).unwrap_err();
    }
}
