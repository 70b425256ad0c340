//! The kernel side's own words, in memory that both sides map.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use audit::plan::filesystem_list::{FilesystemList, FstypeCondition};

use crate::abi;
use crate::compile::ReadOnlyOpens;
use crate::compile::fast_path::FastPath;
use crate::compile::prefilter::{PREFILTER_WORDS, WatchPrefilter};
use crate::compile::watches::InodeIdentity;
use crate::epoch::Epoch;
use crate::skeleton::types;

/// Directories that can be guarded: `GUARD_DIRS` of `bpf/guard/guarded.bpf.h`.
pub(crate) const GUARD_SLOTS: usize = 8;

/// The words. The programs read and write them at any time: each is read and written as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Globals(NonNull<types::bss>);

/// Reads or writes one member as a whole.
macro_rules! word {
    ($data:expr, $member:ident) => {{
        // SAFETY: the struct is mapped for as long as the skeleton lives, which outlives its engine; this
        // makes an address in it and no reference.
        unsafe { &raw mut (*$data.0.as_ptr()).$member }
    }};
}

macro_rules! write {
    ($data:expr, $member:ident, $value:expr) => {{
        let at = word!($data, $member);
        // SAFETY: the address is that of a member, of its type and aligned; see `word`.
        unsafe { at.write_volatile($value) }
    }};
}

macro_rules! read {
    ($data:expr, $member:ident) => {{
        let at = word!($data, $member);
        // SAFETY: the address is that of a member, of its type and aligned; see `word`. Any bits are a
        // number.
        unsafe { at.read_volatile() }
    }};
}

impl Globals {
    pub(crate) const fn new(mapped: NonNull<types::bss>) -> Self {
        Self(mapped)
    }

    pub(crate) fn jiffies(self) -> u64 {
        read!(self, tlg_jiffies)
    }

    pub(crate) fn preemption_mode(self) -> i32 {
        read!(self, tlg_preempt)
    }

    pub(crate) fn heartbeats(self) -> u64 {
        read!(self, tlg_heartbeats)
    }

    /// What `inode_identity` has found; its number is 0 where that is nothing.
    pub(crate) fn inode_identity(self) -> InodeIdentity {
        let found = read!(self, tlg_inode_identity);
        InodeIdentity {
            ino: found.ino,
            address: found.address,
            dev: found.dev,
            sb_dev: found.sb_dev,
        }
    }

    /// Writes where the kernel has the inode of the directory that watched paths start from.
    pub(crate) fn set_root_inode(self, address: u64) {
        write!(self, tlg_root_inode, address);
    }

    /// Where the reader says that it sleeps.
    pub(crate) fn reader_waiting(self) -> Option<NonNull<u32>> {
        NonNull::new(word!(self, tlg_waiting))
    }

    /// The fast-path words in use.
    pub(crate) fn fast_path(self) -> FastPath {
        FastPath {
            raw_enter: read!(self, tlg_raw_enter),
            raw_exit: read!(self, tlg_raw_exit),
            open_gate: read!(self, tlg_open_gate),
            read_only_opens: ReadOnlyOpens {
                openat: read!(self, tlg_openat_reads) != 0,
                open: read!(self, tlg_open_reads) != 0,
            },
            refusals: read!(self, tlg_refusals) != 0,
            uring: read!(self, tlg_uring) != 0,
            filesystems: read!(self, tlg_fs_filter) != 0,
            shared_bytes: read!(self, tlg_ring_shared),
        }
    }

    /// Which plan is in force.
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(u16::try_from(read!(self, tlg_epoch)).unwrap_or_default())
    }

    /// Writes the fast-path words; each of them alone may be seen before the others.
    pub(crate) fn set_fast_path(self, fast_path: &FastPath) {
        write!(self, tlg_raw_enter, fast_path.raw_enter);
        write!(self, tlg_raw_exit, fast_path.raw_exit);
        write!(self, tlg_open_gate, fast_path.open_gate);
        write!(
            self,
            tlg_openat_reads,
            fast_path.read_only_opens.openat.into()
        );
        write!(self, tlg_open_reads, fast_path.read_only_opens.open.into());
        write!(self, tlg_refusals, fast_path.refusals.into());
        write!(self, tlg_uring, fast_path.uring.into());
        write!(self, tlg_fs_filter, fast_path.filesystems.into());
        write!(self, tlg_ring_shared, fast_path.shared_bytes);
    }

    /// Writes where watches may be, into the half of a plan that is not in force.
    pub(crate) fn set_watch_prefilter(self, epoch: Epoch, bits: &WatchPrefilter) {
        for (halves, table) in [
            (word!(self, tlg_inode_bloom), &bits.inodes),
            (word!(self, tlg_name_bloom), &bits.names),
        ] {
            let first = halves.cast::<[u64; PREFILTER_WORDS]>();
            // SAFETY: there are two halves; see `word`.
            let half = unsafe { first.add(usize::from(epoch.half())) }.cast::<u64>();
            for (index, &bits) in table.words().iter().take(PREFILTER_WORDS).enumerate() {
                // SAFETY: a half has PREFILTER_WORDS words; see `word`.
                let word = unsafe { half.add(index) };
                // SAFETY: as above, and no plan in force uses this half.
                unsafe { word.write_volatile(bits) };
            }
        }
    }

    /// Writes where the tests of new tasks are, for the half of a plan that is not in force.
    pub(crate) fn set_task_tests(self, epoch: Epoch, first: u32) {
        let halves = word!(self, tlg_fork_tests).cast::<u32>();
        // SAFETY: there are two halves; see `word`.
        let half = unsafe { halves.add(usize::from(epoch.half())) };
        // SAFETY: as above, and no plan in force uses this half.
        unsafe { half.write_volatile(first) };
    }

    /// Writes which file systems are left out, into the half of a plan that is not in force.
    pub(crate) fn set_excluded_filesystems(self, epoch: Epoch, left_out: &[FstypeCondition]) {
        let half = usize::from(epoch.half());
        let counts = word!(self, tlg_fs_excluded_count).cast::<u32>();
        // SAFETY: there are two halves; see `word`.
        let count_at = unsafe { counts.add(half) };
        let firsts = word!(self, tlg_fs_excluded).cast::<[[u32; 2]; FilesystemList::MOST]>();
        // SAFETY: as above.
        let first = unsafe { firsts.add(half) }.cast::<[u32; 2]>();
        let some = left_out.iter().take(FilesystemList::MOST);
        let mut count = 0;
        for (at, left_out) in some.enumerate() {
            // SAFETY: a half has room for so many; see `word`.
            let at = unsafe { first.add(at) };
            // SAFETY: as above, and no plan in force uses this half.
            unsafe { at.write_volatile([left_out.magic, left_out.negated.into()]) };
            count += 1;
        }
        // SAFETY: as above.
        unsafe { count_at.write_volatile(count) };
    }

    /// Writes what is guarded, for `guard_begin` to look at.
    pub(crate) fn set_guarded(self, places: &[types::guard_dir; GUARD_SLOTS]) {
        write!(self, tlg_guard_dirs, *places);
    }

    /// What is guarded.
    pub(crate) fn guarded(self) -> [types::guard_dir; GUARD_SLOTS] {
        read!(self, tlg_guard_dirs)
    }

    /// Says that no call is decided about any more by the plan before the one in force.
    pub(crate) fn clear_previous_epoch(self) {
        write!(self, tlg_epoch_prev, abi::NO_EPOCH);
    }

    /// Puts another plan in force, at this tick.
    pub(crate) fn switch_epoch(self, from: Epoch, to: Epoch, jiffies: u64) {
        write!(self, tlg_switched_at, jiffies);
        write!(self, tlg_epoch_prev, u32::from(from.0));
        let at = word!(self, tlg_epoch);
        // SAFETY: the word is aligned, mapped as `word` says, and changed nowhere else.
        let epoch = unsafe { AtomicU32::from_ptr(at) };
        // All that was written before is there for whoever sees the new number.
        epoch.store(u32::from(to.0), Ordering::Release);
    }
}
