//! The helper's end: starts the program for each alert, some at once, and ends those that take too long.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use caps::CapSet;
use logs::escaped::Escaped;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{MsgFlags, recv};

use super::program::{start, wait};
use super::{Counts, MAX_MESSAGE_BYTES, Request, send};
use crate::output::info;
use crate::sigma::one_line;

/// Name of the command of the helper.
pub(crate) const COMMAND: &str = "on-alert-helper";
/// Most programs that run at once, and most alerts that wait for one to end.
const MAX_RUNNING: usize = 4;
const MAX_WAITING: usize = 64;
/// Longest time of a program, and in which those that wait are started yet after the run has ended.
const LIMIT: Duration = Duration::from_secs(10);

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
pub(super) fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals
}

/// Takes signals and does nothing. This thread, and those that it starts, block them always: one that did not would end
/// the helper.
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
