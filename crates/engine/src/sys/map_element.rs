//! Elements of maps that get their memory when they are written.

use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{ErrorKind, MapCore, MapFlags};

/// How long the kernel gets the processor to make room, which takes it less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes an element.
///
/// A map without preallocation takes elements from a store of the CPU. A thread of that CPU fills the store, on
/// `PREEMPT_RT` with the priority of [`RealTime`](super::priority::RealTime): it runs when the calling thread yields.
///
/// # Errors
/// The kernel's; `OutOfMemory` only if the store stays empty.
///
/// # Source
/// `irq_work_raise()` in `kernel/bpf/memalloc.c` and `irq_workd_setup()` in `kernel/irq_work.c`, v7.3.
pub(crate) fn write(map: &impl MapCore, key: &[u8], value: &[u8]) -> libbpf_rs::Result<()> {
    let mut end = None;
    loop {
        match map.update(key, value, MapFlags::ANY) {
            Err(error)
                if error.kind() == ErrorKind::OutOfMemory
                    && Instant::now() < *end.get_or_insert_with(|| Instant::now() + PATIENCE) =>
            {
                thread::yield_now();
            }
            written => return written,
        }
    }
}
