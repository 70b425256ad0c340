//! Tracepoint ids, read from a detached mount of tracefs.
//!
//! tracefs may not be mounted. `fsopen(2)` and `fsmount(2)` (v5.2) make a mount that is in no namespace and
//! ends when its descriptor is closed.

use std::ffi::CStr;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::sys::descriptor::fd_from_syscall;

const FSOPEN_CLOEXEC: libc::c_int = 1;
const FSMOUNT_CLOEXEC: libc::c_int = 1;
const FSCONFIG_CMD_CREATE: libc::c_int = 6;

/// A detached mount of tracefs.
#[derive(Debug)]
pub(crate) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Creates the mount.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` or under lockdown; `ENODEV` when the kernel has no tracefs.
    pub(crate) fn mount() -> Result<Self, Errno> {
        let name: &CStr = c"tracefs";
        // SAFETY: the name is a NUL-terminated string that outlives the call.
        let context = unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) };
        let context = fd_from_syscall(context).map_err(|error| errno(&error))?;
        let none = std::ptr::null::<libc::c_char>();
        // SAFETY: this command takes neither key nor value: both are null as the kernel demands.
        let created = unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                FSCONFIG_CMD_CREATE,
                none,
                none,
                0,
            )
        };
        if created < 0 {
            return Err(Errno::last());
        }
        // SAFETY: only numbers are passed.
        let mount =
            unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) };
        Ok(Self(fd_from_syscall(mount).map_err(|error| errno(&error))?))
    }

    /// Id of a tracepoint in `events/syscalls`; `None` when the kernel does not have it.
    ///
    /// # Errors
    /// When the id cannot be read or parsed.
    pub(crate) fn syscall_event(&self, name: &str) -> io::Result<Option<u64>> {
        let path = format!("events/syscalls/{name}/id");
        let file = match openat(
            &self.0,
            path.as_str(),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        ) {
            Ok(file) => file,
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut text = String::new();
        std::fs::File::from(file).read_to_string(&mut text)?;
        text.trim()
            .parse()
            .map(Some)
            .map_err(|error| io::Error::other(format!("{path} holds {text:?}: {error}")))
    }
}

/// What the kernel has answered.
fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
