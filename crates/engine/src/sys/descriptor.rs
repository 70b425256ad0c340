//! Descriptors returned as numbers by system calls and libbpf.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Takes ownership of the descriptor that a system call returned.
///
/// # Errors
/// `errno`, when the result is negative.
pub(crate) fn fd_from_syscall(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the callers pass the result of a system call that opens a descriptor, and use it nowhere
        // else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes ownership of the descriptor that a libbpf function returned.
///
/// # Errors
/// The negative errno that the function returned instead.
pub(crate) fn fd_from_libbpf(result: i32) -> io::Result<OwnedFd> {
    check_libbpf(result)?;
    fd_from_syscall(result.into())
}

/// Checks the result of a libbpf function that returns 0 or a negative errno.
///
/// # Errors
/// The errno.
pub(crate) fn check_libbpf(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok(())
}
