//! Signal mask of programs that the daemon starts.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Makes a command start with no signal blocked. The daemon blocks the signals that it reads from a
/// `signalfd(2)`; a program that inherited this mask would ignore SIGTERM.
pub fn unblock_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).map_err(io::Error::from)
    };
    // SAFETY: the closure runs between fork and exec. It calls `sigprocmask`, which is async-signal-safe, and
    // does not allocate.
    unsafe { command.pre_exec(unblock) }
}
