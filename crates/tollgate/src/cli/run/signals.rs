//! Forwards signals that another process sends to tollgate. The terminal sends its signals to the command
//! itself. tollgate runs until the command has ended.

use std::fs;
use std::thread;

use anyhow::Context as _;
use bstr::ByteSlice as _;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid};

/// Signals forwarded to the command.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];
/// A background process that blocks these may write to its terminal even with `stty tostop`.
const TERMINAL_ACCESS: [Signal; 2] = [Signal::SIGTTIN, Signal::SIGTTOU];
/// Limit of the walk to the parents of a process.
const MAX_ANCESTORS: usize = 1000;

/// Blocks the forwarded signals. Returns the previous mask.
pub(super) fn block() -> nix::Result<SigSet> {
    let all: SigSet = FORWARDED.into_iter().chain(TERMINAL_ACCESS).collect();
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&all), Some(&mut before))?;
    Ok(before)
}

/// Starts the thread that forwards signals to the first process of the command.
///
/// # Errors
/// When the descriptor or the thread cannot be created.
pub(super) fn forward(child: Pid) -> anyhow::Result<()> {
    let signals: SigSet = FORWARDED.into_iter().collect();
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)
        .context("cannot create a signalfd")?;
    thread::Builder::new()
        .name("tlg-signal".to_owned())
        .spawn(move || {
            while let Ok(Some(info)) = signals.read_signal() {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                let sender = i32::try_from(info.ssi_pid).unwrap_or(0);
                if let Ok(signal) = Signal::try_from(number)
                    && is_sent_by_process(info.ssi_code)
                    && !is_descendant(sender)
                {
                    // The command may have ended.
                    let _gone = kill(child, signal);
                }
            }
        })
        .context("cannot start thread `tlg-signal`")?;
    Ok(())
}

/// Whether a process sent the signal. The kernel sends the terminal's signals to the whole foreground group, which
/// includes the command.
///
/// # Source
/// `sigaction(2)`, `SI_USER` and below.
const fn is_sent_by_process(code: i32) -> bool {
    code <= 0
}

/// Whether a process is a descendant of this one. A descendant's signal to its process group, often the group of
/// tollgate too, has already reached the command.
fn is_descendant(pid: i32) -> bool {
    let own = getpid().as_raw();
    let mut at = pid;
    for _ in 0..MAX_ANCESTORS {
        match parent(at) {
            Some(parent) if parent == own => return true,
            Some(parent) if parent > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.get(stat.rfind_byte(b')')? + 1..)?;
    let ppid = after.fields().nth(1)?;
    ppid.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_are_descendants_and_others_are_not() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(is_descendant(pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        for other in [1, getpid().as_raw(), 0, i32::MAX] {
            assert!(!is_descendant(other), "{other}");
        }
    }
}
