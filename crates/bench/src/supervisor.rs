//! The supervisor: saves the state, starts the measuring process, and restores the state when that process ends or
//! a signal arrives.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::Options;
use super::processes::WORK_DIR_VARIABLE;
use super::report::Report;
use super::restorer::Restorer;
use super::saved_state::{SavedState, StateFile};
use super::variant::AuditMode;
use super::work_dir;
use crate::info;

/// How a benchmark ended. Everything is restored by then.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Normally.
    Finished(Box<Report>),
    /// By a signal.
    Interrupted(Signal),
    /// The measuring process failed and printed why.
    Failed,
}

/// Measures in another process, which gets the words of this command line.
///
/// # Errors
/// Why it could not start, or what could not be restored.
pub(crate) fn run(options: &Options, words: Vec<OsString>) -> anyhow::Result<Outcome> {
    let (mut state_file, _) = StateFile::lock()?;
    let work = new_directory()?;
    let saved = SavedState::read(work)?;
    print_changes(options, &saved);

    // From here on signals are read from the descriptor.
    let signals = SigSet::from_iter([
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ]);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), None).context("cannot block signals")?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .context("cannot watch signals")?;
    // Processes that the measuring process leaves become children of this one.
    set_child_subreaper(true).context("cannot adopt processes")?;

    let restorer = Restorer::start()?;
    state_file.write(&saved)?;
    let outcome = measure(&saved, words, &signals);
    info("restoring what was changed");
    let restore = saved.restore();
    restorer.release();
    if let Err(error) = restore {
        // The state file stays for the next attempt.
        return Err(
            error.context("not everything is restored; `tollgate-bench --restore` tries again")
        );
    }
    state_file.clear()?;
    outcome
}

fn measure(
    saved: &SavedState,
    words: Vec<OsString>,
    signals: &SignalFd,
) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(words)
        .arg("--measure")
        .arg(&saved.work)
        .env(WORK_DIR_VARIABLE, &saved.work)
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start the measuring process")?;
    if let Some(signal) = wait(&mut child, signals)? {
        info(&format!("{signal}: ending"));
        // SIGKILL, so that it starts nothing more. Restoring ends its children.
        child.kill().context("cannot end the measuring process")?;
        child
            .wait()
            .context("cannot wait for the measuring process")?;
        return Ok(Outcome::Interrupted(signal));
    }
    let status = child
        .wait()
        .context("cannot wait for the measuring process")?;
    if !status.success() {
        if status.code().is_none() {
            bail!("the measuring process was killed: {status}");
        }
        return Ok(Outcome::Failed);
    }
    let file = saved.work.join(work_dir::REPORT);
    let text = fs::read(&file).context("the measuring process wrote no report")?;
    let report = serde_json::from_slice(&text).context("the report cannot be read")?;
    Ok(Outcome::Finished(Box::new(report)))
}

/// Waits for the child to end, or for a signal, which is returned.
fn wait(child: &mut Child, signals: &SignalFd) -> anyhow::Result<Option<Signal>> {
    loop {
        if child
            .try_wait()
            .context("cannot wait for the measuring process")?
            .is_some()
        {
            return Ok(None);
        }
        while let Some(arrived) = signals.read_signal().context("cannot read signals")? {
            let number = i32::try_from(arrived.ssi_signo).unwrap_or(0);
            match Signal::try_from(number) {
                Ok(Signal::SIGCHLD) | Err(_) => {}
                Ok(signal) => return Ok(Some(signal)),
            }
        }
        let mut descriptors = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // The timeout covers a child that ends between `try_wait` and `poll`.
        while let Err(nix::errno::Errno::EINTR) = poll(&mut descriptors, PollTimeout::from(200_u8))
        {
        }
    }
}

/// An unused name; the directory is created after the state file is written.
fn new_directory() -> anyhow::Result<PathBuf> {
    let base = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    let base = base.canonicalize().with_context(|| {
        format!(
            "cannot use `{}` for the files of the benchmark",
            base.display()
        )
    })?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is wrong")?;
    Ok(base.join(format!(
        "tollgate-bench-{}-{:09}",
        std::process::id(),
        now.subsec_nanos()
    )))
}

/// Prints what will be changed.
fn print_changes(options: &Options, saved: &SavedState) {
    let kernel = options.cases.iter().any(|case| {
        case.variants(options, &saved.work)
            .iter()
            .any(|variant| matches!(variant.mode, AuditMode::Kernel | AuditMode::KernelDisabled))
    });
    info("changes while it runs, restored at the end, also after Ctrl-C:");
    info("  the kernel's audit: rules and settings; other rules are not active meanwhile");
    info("  processes: daemons and workloads, some as nobody, some with servers on 127.0.0.1");
    info(&format!(
        "  files: below `{}` and `{}`",
        saved.work.display(),
        work_dir::memory(&saved.work).display()
    ));
    if kernel {
        info(
            "  not restored: after its audit was enabled once, the kernel slows new tasks until the next boot, \
             unless `-a never,task` is loaded; --against off,tollgate does not enable it",
        );
    }
}
