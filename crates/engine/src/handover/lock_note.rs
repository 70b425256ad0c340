//! The lock note, which records what `-e 2` locks, and the claim by which a later daemon takes over the guard.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use libbpf_rs::libbpf_sys;

use crate::handover::pins::{LOCK_NOTE_PIN, PinDirectory, c_path};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::sys::descriptor::{check_libbpf, fd_from_libbpf};

/// Name of the pin of the program `guard_claim`, which a later daemon runs.
pub(crate) const CLAIM_PIN: &str = "claim";

impl PinDirectory {
    /// Makes this process the daemon that the guard permits changes to. Does nothing when there is no guard, or
    /// when this executable is not the one that locked.
    ///
    /// # Errors
    /// When the pinned program cannot be opened or run.
    pub fn claim_guard(&self) -> io::Result<()> {
        self.run_pinned(CLAIM_PIN)
    }

    /// Runs a pinned program with the directory as argument. Does nothing when it is not pinned.
    ///
    /// # Errors
    /// When the pinned program cannot be opened or run.
    pub(crate) fn run_pinned(&self, name: &str) -> io::Result<()> {
        let program = match self.get(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let directory = self.directory().as_raw_fd();
        let arguments = [u64::try_from(directory).map_err(io::Error::other)?];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            ctx_in: arguments.as_ptr().cast(),
            ctx_size_in: u32::try_from(size_of_val(&arguments)).map_err(io::Error::other)?,
            ..Default::default()
        };
        // SAFETY: `options` and the `arguments` that it points to live until after the call, with their sizes.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        check_libbpf(result)
    }
}

/// Reads the note that [`crate::Engine::write_lock_note`] pinned in a directory since boot; `None` when there
/// is none.
///
/// # Errors
/// When it cannot be read; `PermissionDenied` when the guard is attached and this executable is not the one
/// that locked.
pub fn read_lock_note(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(&directory.join(LOCK_NOTE_PIN))?;
    // SAFETY: `path` is NUL-terminated and lives until after the call.
    let result = unsafe { libbpf_sys::bpf_obj_get(path.as_c_str().as_ptr()) };
    match fd_from_libbpf(result) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(PlanSnapshot::from_map(found?)?.text)),
    }
}
