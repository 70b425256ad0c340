//! The note about what `-e 2` locks, and the claim of a daemon that comes after the one that has locked it.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use libbpf_rs::libbpf_sys;

use crate::handover::pins::{LOCK_NOTE_PIN, PinDirectory, c_path};
use crate::handover::plan_snapshot::PlanSnapshot;
use crate::sys::descriptor::fd_from_libbpf;

/// Name of the program that a daemon runs that comes after this one.
pub(crate) const CLAIM_PIN: &str = "claim";

impl PinDirectory {
    /// Has what is guarded there know this process for the daemon, which it is from now on; where nothing is
    /// guarded, or this is another program than the one that has locked it, nothing happens.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn claim_guard(&self) -> io::Result<()> {
        let program = match self.get(CLAIM_PIN) {
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
        // SAFETY: the options and the arguments that they point to outlive the call.
        let answer =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if answer < 0 {
            return Err(io::Error::from_raw_os_error(-answer));
        }
        Ok(())
    }
}

/// What [`Engine::lock`] has noted in this directory of pins since the machine started.
///
/// # Errors
/// When it cannot be read: of kind `PermissionDenied` where it is guarded, and this is another program than the
/// one that has locked it.
pub fn read_lock_note(directory: &Path) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(&directory.join(LOCK_NOTE_PIN))?;
    // SAFETY: the path is a string that outlives the call.
    let answer = unsafe { libbpf_sys::bpf_obj_get(path.as_c_str().as_ptr()) };
    match fd_from_libbpf(answer) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => Ok(Some(PlanSnapshot::from_map(found?)?.text)),
    }
}
