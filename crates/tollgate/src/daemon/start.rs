//! Order of start and stop. Everything that can be refused is refused before anything is attached.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use audit::plan::Plan;
use audit::plan::explain::explain;
use audit::plan::hook::{EngineKind, Kernel};
use engine::{KernelAudit, Options, Probe};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::geteuid;

use super::orders::Orders;
use super::pipeline::Pipeline;
use super::summary::{Ready, Summary};
use crate::cli::report::{Exit, say};
use crate::cli::rules;
use crate::sink::log::Log;
use crate::sink::terminal::Terminal;

/// More hooks than these take the kernel a while to let go, some 70 ms each: people should know.
const SLOW_TO_DETACH: usize = 10;

/// `SIGHUP`, as a signal descriptor has it.
const HANGUP: u32 = Signal::SIGHUP as u32;

/// What the daemon is to do.
pub(crate) struct Settings {
    /// Rule files, read in this order.
    pub(crate) rules: Vec<PathBuf>,
    /// Engines to try, the best first.
    pub(crate) engines: Vec<EngineKind>,
    /// Log file.
    pub(crate) log: PathBuf,
    /// Longest time from event to write.
    pub(crate) delay: Duration,
    /// Load what can be loaded when some rules cannot be honoured.
    pub(crate) partial: bool,
    /// See operations of `io_uring` where the engine can.
    pub(crate) uring: bool,
    /// A view for people.
    pub(crate) terminal: Option<Terminal>,
    /// Called once, when auditing has begun.
    pub(crate) ready: Box<dyn FnOnce()>,
}

/// Audits until TERM or INT; reads its rules again at HUP.
///
/// # Errors
/// What kept the daemon from starting, or made the engine fail.
pub(crate) fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    if !geteuid().is_root() {
        say(
            "the daemon must be run by root: it loads eBPF programs (CAP_BPF, CAP_PERFMON) and attaches them to functions and tracepoints of the kernel (CAP_SYS_ADMIN)",
        );
        return Ok(Exit::NotRoot.into());
    }
    let loaded = rules::load(&settings.rules)?;
    let Some(plan) = rules::plan(loaded, settings.partial, rules::NOTHING)? else {
        return Ok(ExitCode::FAILURE);
    };
    let log = Log::open(&settings.log)?;
    say_who_else_audits();

    // Every thread inherits the mask: only the descriptor below sees these signals.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).context("cannot block signals")?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot watch signals")?;
    let ended = Arc::new(event_fd()?);

    let (rules, calls) = (plan.rules.len(), plan.calls.len());
    let probe = Probe::look().context("cannot learn what this kernel shows")?;
    let mut kernel = probe.kernel;
    kernel.uring &= settings.uring;
    let priced = plan.clone();
    let pipeline = Pipeline {
        plan,
        probe,
        engines: settings.engines,
        log,
        terminal: settings.terminal,
        delay: settings.delay,
        options: Options {
            uring: settings.uring,
            ..Options::default()
        },
    };
    let (running, started) = pipeline.start(Arc::clone(&ended))?;
    if let Some(why_not) = &started.why_not {
        say(&format!("engine {why_not}"));
    }
    let price = price(&priced, started.engine, kernel);
    drop(priced);
    let attached = &started.attached;
    let ready = Ready {
        rules,
        calls,
        engine: started.engine.name(),
        attached,
        price: &price,
        log: &settings.log,
    };
    say(&ready.to_string());
    (settings.ready)();

    let orders = running.orders();
    loop {
        let mut wakers = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(ended.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(errno) = poll(&mut wakers, PollTimeout::NONE) {
            ensure!(errno == Errno::EINTR, "cannot wait for signals: {errno}");
        }
        let signal = signals.read_signal().context("cannot read signals")?;
        match signal {
            Some(signal) if signal.ssi_signo == HANGUP => {
                reload(&settings.rules, settings.partial, &orders);
            }
            Some(_) => break,
            None if ended.read().is_ok() => break,
            None => {}
        }
    }
    orders.stop()?;
    let (outcome, detaching) = running.join()?;
    let summary = Summary(&outcome);
    say(&format!(
        "stopped: {summary}; log {}",
        settings.log.display()
    ));
    if attached.hooks.len() > SLOW_TO_DETACH {
        say(&format!("detaching {} hooks", attached.hooks.len()));
    }
    if let Some(detaching) = detaching {
        detaching.finish();
    }
    Ok(if summary.is_whole() {
        Exit::Success
    } else {
        Exit::Lost
    }
    .into())
}

/// Reads the rule files again and puts them in force; says so, or why the old rules stay in force.
fn reload(rules: &[PathBuf], partial: bool, orders: &Orders) {
    let plan = rules::load(rules).and_then(|loaded| rules::plan(loaded, partial, rules::OLD));
    let replaced = match plan {
        Ok(Some(plan)) => {
            let (rules, calls) = (plan.rules.len(), plan.calls.len());
            let replaced = orders.replace(plan);
            replaced.map(|replaced| (rules, calls, replaced))
        }
        Ok(None) => return, // which has been said
        Err(error) => Err(error),
    };
    match replaced {
        Ok((rules, calls, replaced)) => say(&format!(
            "rules replaced: {rules} rules, {calls} syscalls, {} hooks",
            replaced.attached.hooks.len()
        )),
        Err(error) => say(&format!("{}: {error:#}", rules::OLD)),
    }
}

fn price(plan: &Plan, engine: EngineKind, kernel: Kernel) -> String {
    let price = explain(plan, engine, kernel).price;
    match price.paying_syscall_ns {
        Some(paying) => format!(
            "every syscall pays about {} ns, those named about {paying} ns more",
            price.every_syscall_ns
        ),
        None => "syscalls that are not named pay nothing".to_owned(),
    }
}

/// Something else that makes every syscall pay is worth a line: people would blame us for it.
fn say_who_else_audits() {
    match KernelAudit::ask() {
        Ok(kernel) if kernel.is_armed() => say(&format!(
            "the kernel's own audit is armed as well ({}, {} rules): every syscall pays for it; \
             `auditctl -D; auditctl -a never,task` makes tasks started from then on free of it",
            if kernel.enabled {
                "enabled"
            } else {
                "disabled"
            },
            kernel.rules
        )),
        // Without the kernel's audit there is nothing to be said about it.
        Ok(_) | Err(_) => {}
    }
}

fn event_fd() -> anyhow::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
        .context("cannot make an eventfd")
}
