//! The heartbeat: a system call of the daemon that a program counts, which proves that programs on functions
//! run.

use std::ptr;

use libbpf_rs::ProgramMut;

use crate::attach::kprobe;
use crate::attach::{self, AttachedLink};
use crate::error::EngineError;
use crate::hooks::attach_point::{AttachPoint, AttachTarget};
use crate::hooks::program::Program;
use crate::load::globals::Globals;
use crate::native_functions::SCHED_RR_GET_INTERVAL;
use crate::sys::kprobes::Kprobes;

/// The attached program `heartbeat`.
pub(crate) struct Heartbeat {
    link: AttachedLink,
    globals: Globals,
}

impl Heartbeat {
    /// Attaches the program, which increments the global `tlg_heartbeats`.
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
                hook: format!("`{SCHED_RR_GET_INTERVAL}`"),
                source: source.into(),
            }
        })?;
        Ok(Self { link, globals })
    }

    /// Attaches `heartbeat_kprobe`, which counts as well.
    ///
    /// # Errors
    /// [`EngineError::PerfEvent`], [`EngineError::Attach`].
    pub(crate) fn attach_kprobe(
        heartbeat: &ProgramMut<'_>,
        kprobes: Kprobes,
        globals: Globals,
    ) -> Result<Self, EngineError> {
        let link = kprobe::attach(heartbeat, kprobes, SCHED_RR_GET_INTERVAL, 0)?;
        Ok(Self { link, globals })
    }

    /// The link of the program, for detaching.
    pub(crate) fn into_link(self) -> (AttachPoint, AttachedLink) {
        let attach_point = AttachPoint {
            program: Program::Heartbeat,
            target: AttachTarget::Declared,
        };
        (attach_point, self.link)
    }

    /// Calls `sched_rr_get_interval(2)` and returns whether the program has counted it. The program runs
    /// synchronously in the calling thread.
    pub(crate) fn programs_run(&self) -> bool {
        let before = self.count();
        let no_thread: libc::pid_t = -1;
        let no_interval = ptr::null_mut::<libc::timespec>();
        // SAFETY: the kernel returns EINVAL for a negative pid before it uses the address.
        let _error =
            unsafe { libc::syscall(libc::SYS_sched_rr_get_interval, no_thread, no_interval) };
        self.count() != before
    }

    fn count(&self) -> u64 {
        self.globals.heartbeats()
    }
}
