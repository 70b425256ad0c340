//! Whether the kernel has kprobes.

use std::fs;

/// The kind of perf event that makes kprobes.
///
/// # Source
/// `Documentation/ABI/testing/sysfs-bus-event_source-devices`; v4.17.
const TYPE: &str = "/sys/bus/event_source/devices/kprobe/type";

/// The kernel's number of that kind; `None` if it has no kprobes, or sysfs is not mounted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kprobes(Option<u32>);

impl Kprobes {
    /// Reads the number.
    pub(crate) fn of_kernel() -> Self {
        let text = fs::read_to_string(TYPE).unwrap_or_default();
        Self(text.trim().parse().ok())
    }

    /// The number; `None` if there are no kprobes.
    pub(crate) const fn event_type(self) -> Option<u32> {
        self.0
    }
}
