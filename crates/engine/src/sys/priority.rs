//! Scheduling priority of the calling thread.

/// Sets the nice value of the calling thread. Failure is ignored.
///
/// # Source
/// `setpriority(2)`: on Linux, `PRIO_PROCESS` with 0 is the calling thread.
pub fn set_nice(nice: i32) {
    // SAFETY: the arguments are integers.
    let _result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}
