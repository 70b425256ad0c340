//! The daemon's own call, which a program on its function counts: proof that such programs run.

use std::ptr;

use libbpf_rs::ProgramMut;

use crate::attach::{self, AttachedLink};
use crate::error::EngineError;
use crate::hooks::attach_point::{AttachPoint, AttachTarget};
use crate::hooks::program::Program;
use crate::load::globals::Globals;

/// The program `heartbeat` in its place.
pub(crate) struct Heartbeat {
    link: AttachedLink,
    globals: Globals,
}

impl Heartbeat {
    /// Attaches the program, which counts in the kernel side's words.
    ///
    /// # Errors
    /// [`EngineError::Attach`] when the kernel refuses it.
    pub(crate) fn attach(
        heartbeat: &ProgramMut<'_>,
        globals: Globals,
    ) -> Result<Self, EngineError> {
        let link = attach::attach_raw_tracepoint(heartbeat, None).map_err(|source| {
            EngineError::Attach {
                program: heartbeat.name().to_string_lossy().into_owned(),
                hook: "`__x64_sys_sched_rr_get_interval`".to_owned(),
                source: source.into(),
            }
        })?;
        Ok(Self { link, globals })
    }

    /// What holds the program in its place.
    pub(crate) fn into_link(self) -> (AttachPoint, AttachedLink) {
        let attach_point = AttachPoint {
            program: Program::Heartbeat,
            target: AttachTarget::Declared,
        };
        (attach_point, self.link)
    }

    /// Makes the call and says whether the program has run. The program runs in the calling thread,
    /// inside the call: there is nothing to wait for.
    pub(crate) fn programs_run(&self) -> bool {
        let before = self.count();
        let no_thread: libc::pid_t = -1;
        let nowhere = ptr::null_mut::<libc::timespec>();
        // SAFETY: the kernel refuses this thread number before it writes to the address, which is null.
        let _refused =
            unsafe { libc::syscall(libc::SYS_sched_rr_get_interval, no_thread, nowhere) };
        self.count() != before
    }

    fn count(&self) -> u64 {
        self.globals.heartbeats()
    }
}
