//! Fast paths: global variables that let programs skip work that no rule needs. They decide no verdict.
//!
//! While one plan replaces another, programs may use either. Until the switch the fast paths are the union of
//! both plans: work that one of them needs is done.

use crate::compile::{CompiledPlan, ReadOnlyOpens};
use crate::hooks::syscall_set::SyscallSet;

/// Fast-path variables of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FastPath {
    /// Syscalls that need the raw tracepoint `sys_enter`.
    pub(crate) raw_enter: SyscallSet,
    /// Syscalls that need the raw tracepoint `sys_exit`.
    pub(crate) raw_exit: SyscallSet,
    /// Open flags of which one must be set for any rule to match; 0 when rules match without.
    pub(crate) open_gate: u32,
    /// Whether rules can match an open with `O_RDONLY`.
    pub(crate) read_only_opens: ReadOnlyOpens,
    /// Whether rules apply to `io_uring` operations.
    pub(crate) uring: bool,
    /// Whether there is a filesystem list.
    pub(crate) filesystems: bool,
    /// Part of the ring that all rules can use, when some rules deny syscalls that could not be recorded; else
    /// 0.
    ///
    /// # Units
    /// Bytes.
    pub(crate) shared_bytes: u64,
}

/// One part in this many of the ring is reserved for denying rules.
const RESERVED_DIVISOR: u64 = 8;

impl FastPath {
    pub(crate) fn of(compiled: &CompiledPlan, ring_bytes: u32) -> Self {
        let ring_bytes = u64::from(ring_bytes);
        Self {
            raw_enter: compiled.raw_enter,
            raw_exit: compiled.raw_exit,
            open_gate: compiled.open_gate,
            read_only_opens: compiled.read_only_opens,
            uring: compiled.uring,
            filesystems: !compiled.filesystems.is_empty(),
            shared_bytes: if compiled.denies {
                ring_bytes - ring_bytes / RESERVED_DIVISOR
            } else {
                0
            },
        }
    }

    /// Fast paths that are valid for both plans.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let gates = [self.open_gate, other.open_gate];
        Self {
            raw_enter: self.raw_enter.union(&other.raw_enter),
            raw_exit: self.raw_exit.union(&other.raw_exit),
            open_gate: if gates.contains(&0) {
                0
            } else {
                self.open_gate | other.open_gate
            },
            read_only_opens: ReadOnlyOpens {
                openat: self.read_only_opens.openat || other.read_only_opens.openat,
                open: self.read_only_opens.open || other.read_only_opens.open,
            },
            uring: self.uring || other.uring,
            filesystems: self.filesystems || other.filesystems,
            shared_bytes: self.shared_bytes.max(other.shared_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast_path(open_gate: u32, needed: bool) -> FastPath {
        FastPath {
            raw_enter: SyscallSet::default(),
            raw_exit: SyscallSet::default(),
            open_gate,
            read_only_opens: ReadOnlyOpens::default(),
            uring: needed,
            filesystems: needed,
            shared_bytes: u64::from(open_gate),
        }
    }

    #[test]
    fn union_keeps_what_either_plan_needs() {
        let mut writing = fast_path(3, true);
        writing.raw_exit.0[0][1] = 0b01;
        let mut reading = fast_path(0, false);
        reading.raw_exit.0[0][1] = 0b10;
        reading.read_only_opens.openat = true;
        let both = writing.union(&reading);
        assert_eq!(both, reading.union(&writing));
        assert_eq!(both.open_gate, 0, "an open for reading is evaluated");
        assert_eq!(
            both.read_only_opens,
            ReadOnlyOpens {
                openat: true,
                open: false
            }
        );
        assert_eq!(both.raw_exit.0[0][1], 0b11);
        assert!(both.uring && both.filesystems);
        assert_eq!(both.shared_bytes, 3, "the larger shared part applies");
    }

    #[test]
    fn union_with_itself_is_identity() {
        let one = fast_path(3, true);
        assert_eq!(one.union(&one), one);
    }
}
