//! The daemon's own threads.

/// Raises the calling thread's priority, as far as the system lets it.
pub fn set_nice(nice: i32) {
    // SAFETY: only numbers are passed; 0 means the calling thread.
    let _refused = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}
