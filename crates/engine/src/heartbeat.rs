//! The daemon's own call, which a program on its function counts: proof that such programs run.

use std::ptr::{self, NonNull};

use libbpf_rs::{Link, ProgramMut};

use crate::load::EngineError;

/// The program `beat` in its place.
pub(crate) struct Heartbeat {
    _link: Link,
    beats: NonNull<u64>,
}

impl Heartbeat {
    /// Attaches the program; `beats` is the word where it counts, which must outlive the heartbeat.
    ///
    /// # Errors
    /// [`EngineError::Attach`] when the kernel refuses it.
    pub(crate) fn attach(beat: &ProgramMut<'_>, beats: NonNull<u64>) -> Result<Self, EngineError> {
        let link = beat.attach().map_err(|source| EngineError::Attach {
            program: beat.name().to_string_lossy().into_owned(),
            hook: "`__x64_sys_sched_rr_get_interval`".to_owned(),
            source,
        })?;
        Ok(Self { _link: link, beats })
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
        // SAFETY: the word lies aligned in mapped data that the skeleton keeps for as long as the engine
        // lives, which owns this; it is written by this process only, inside a call of its own.
        unsafe { self.beats.read_volatile() }
    }
}
