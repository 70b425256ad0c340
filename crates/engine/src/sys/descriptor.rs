//! Descriptors that the kernel gives as numbers.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Takes the descriptor that a system call has just returned.
///
/// # Errors
/// What `errno` says, when the call returned none.
pub(crate) fn fd_from_syscall(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel has just given this descriptor to us, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the descriptor that libbpf returns, or the error that it returns below 0.
///
/// # Errors
/// That error.
pub(crate) fn fd_from_libbpf(answer: i32) -> io::Result<OwnedFd> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    fd_from_syscall(answer.into())
}
