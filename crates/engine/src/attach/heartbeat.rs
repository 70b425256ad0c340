//! The daemon's own call, which a program on its function counts: proof that such programs run.

use std::ptr;

use libbpf_rs::ProgramMut;

use crate::attach::{self, Held};
use crate::error::EngineError;
use crate::hooks::attach_point::{Place, Spot};
use crate::hooks::program::Program;
use crate::load::globals::Data;

/// The program `heartbeat` in its place.
pub(crate) struct Heartbeat {
    held: Held,
    data: Data,
}

impl Heartbeat {
    /// Attaches the program, which counts in the kernel side's words.
    ///
    /// # Errors
    /// [`EngineError::Attach`] when the kernel refuses it.
    pub(crate) fn attach(heartbeat: &ProgramMut<'_>, data: Data) -> Result<Self, EngineError> {
        let held = attach::place(heartbeat, None).map_err(|source| EngineError::Attach {
            program: heartbeat.name().to_string_lossy().into_owned(),
            hook: "`__x64_sys_sched_rr_get_interval`".to_owned(),
            source: source.into(),
        })?;
        Ok(Self { held, data })
    }

    /// What holds the program in its place.
    pub(crate) fn into_link(self) -> (Spot, Held) {
        let spot = Spot {
            program: Program::Heartbeat,
            place: Place::Own,
        };
        (spot, self.held)
    }

    /// Makes the call and says whether the program has run. The program runs in the calling thread,
    /// inside the call: there is nothing to wait for.
    pub(crate) fn comes(&self) -> bool {
        let before = self.counted();
        let no_thread: libc::pid_t = -1;
        let nowhere = ptr::null_mut::<libc::timespec>();
        // SAFETY: the kernel refuses this thread number before it writes to the address, which is null.
        let _refused =
            unsafe { libc::syscall(libc::SYS_sched_rr_get_interval, no_thread, nowhere) };
        self.counted() != before
    }

    fn counted(&self) -> u64 {
        self.data.beats()
    }
}
