//! Scheduling priority of the calling thread.

/// Sets the nice value of the calling thread. Failure is ignored.
///
/// # Source
/// `setpriority(2)`: on Linux, `PRIO_PROCESS` with 0 is the calling thread.
pub fn set_nice(nice: i32) {
    // SAFETY: the arguments are integers.
    let _result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

/// A time in which no ordinary thread preempts the calling one.
#[derive(Debug)]
pub(crate) struct RealTime {
    /// What the thread had before; `None` if it may not change it.
    before: Option<(libc::c_int, libc::sched_param)>,
}

impl RealTime {
    /// Begins it. Failure is ignored.
    ///
    /// # Source
    /// `sched(7)`: `SCHED_FIFO` with any priority is above all ordinary policies.
    pub(crate) fn begin() -> Self {
        let mut before = libc::sched_param { sched_priority: 0 };
        // SAFETY: the argument is an integer.
        let policy = unsafe { libc::sched_getscheduler(CALLER) };
        // SAFETY: the struct lives until after the call.
        let result = unsafe { libc::sched_getparam(CALLER, &raw mut before) };
        let is_read = policy >= 0 && result == 0;
        let lowest = libc::sched_param { sched_priority: 1 };
        let is_set = is_read && set_scheduler(libc::SCHED_FIFO, &lowest);
        Self {
            before: is_set.then_some((policy, before)),
        }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if let Some((policy, before)) = &self.before {
            set_scheduler(*policy, before);
        }
    }
}

/// Stands for the calling thread.
const CALLER: libc::pid_t = 0;

/// Returns whether the calling thread has the policy now.
fn set_scheduler(policy: libc::c_int, parameters: &libc::sched_param) -> bool {
    // SAFETY: the struct lives until after the call.
    unsafe { libc::sched_setscheduler(CALLER, policy, parameters) == 0 }
}
