//! Programs that the daemon starts: they get signals, which the daemon itself takes from a descriptor.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Has a program start with no signal blocked. The daemon blocks those that it takes from a
/// descriptor, and a program would inherit that: it could not be ended by TERM.
pub fn unblock_signals(command: &mut Command) -> &mut Command {
    let unblock = || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).map_err(io::Error::from)
    };
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(unblock) }
}
