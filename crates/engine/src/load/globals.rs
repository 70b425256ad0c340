//! Global variables of the programs (`.bss`), mapped.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use audit::plan::filesystem_list::{FilesystemList, FstypeCondition};

use crate::abi::{self, RING_OWNERS, WireRingOwner};
use crate::compile::ReadOnlyOpens;
use crate::compile::fast_path::FastPath;
use crate::compile::prefilter::{PREFILTER_WORDS, WatchPrefilter};
use crate::compile::watches::InodeIdentity;
use crate::epoch::Epoch;
use crate::hooks::syscall_set::SyscallSet;
use crate::skeleton::types;
use crate::stats::owner_losses::OwnerLosses;

/// Maximum number of guarded directories: `GUARD_DIRS` of `bpf/guard/guarded.bpf.h`.
pub(crate) const GUARD_SLOTS: usize = 8;
/// Number of files that `guard_init` takes at once: `GUARD_FILES` of `bpf/guard/guarded.bpf.h`.
pub(crate) const GUARD_FILES: usize = 64;

/// Address of the globals. Programs access them concurrently, so every access is volatile and of one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Globals(NonNull<types::bss>);

/// Address of a member.
macro_rules! address {
    ($data:expr, $member:ident) => {{
        // SAFETY: the engine that owns this value also owns the mapping, whose size is that of the struct. This
        // computes an address and makes no reference.
        unsafe { &raw mut (*$data.0.as_ptr()).$member }
    }};
}

macro_rules! write {
    ($data:expr, $member:ident, $value:expr) => {{
        let at = address!($data, $member);
        // SAFETY: `at` is the mapped and aligned address of a member of this type.
        unsafe { at.write_volatile($value) }
    }};
}

macro_rules! read {
    ($data:expr, $member:ident) => {{
        let at = address!($data, $member);
        // SAFETY: `at` is the mapped and aligned address of a member, whose type is valid for any bits.
        unsafe { at.read_volatile() }
    }};
}

impl Globals {
    pub(crate) const fn new(mapped: NonNull<types::bss>) -> Self {
        Self(mapped)
    }

    /// Tick count, set by the program `daemon_register`.
    pub(crate) fn jiffies(self) -> u64 {
        read!(self, tlg_jiffies)
    }

    /// `preempt_dynamic_mode` of the kernel, set by `daemon_register`: 0 none, 1 voluntary, 2 full, 3 lazy;
    /// other values when the kernel does not have it.
    pub(crate) fn preemption_mode(self) -> i32 {
        read!(self, tlg_preempt)
    }

    /// Number of runs of the program `heartbeat`.
    pub(crate) fn heartbeats(self) -> u64 {
        read!(self, tlg_heartbeats)
    }

    /// Syscalls whose skipped kprobe an LSM program has made good.
    pub(crate) fn rescued(self) -> u64 {
        read!(self, tlg_rescued)
    }

    /// Clears the result of `inode_identity`, before a run.
    pub(crate) fn clear_inode_identity(self) {
        write!(self, tlg_inode_identity, types::inode_identity::default());
    }

    /// Result of `inode_identity`; the inode number is 0 if the descriptor has no inode.
    pub(crate) fn inode_identity(self) -> InodeIdentity {
        let found = read!(self, tlg_inode_identity);
        InodeIdentity {
            ino: found.ino,
            dev: found.dev,
            sb_dev: found.sb_dev,
            generation: found.generation,
        }
    }

    /// Makes the object of `inode_identity` the root directory of watched paths.
    pub(crate) fn set_root(self) {
        let found = read!(self, tlg_inode_identity);
        write!(self, tlg_root_inode, found.address);
        write!(self, tlg_root_user_ns, found.user_ns);
        write!(self, tlg_initial_ns, found.initial_ns);
    }

    /// Address of the flag that the reader sleeps; see `bpf/lib/ring.bpf.h`.
    pub(crate) fn reader_waiting(self) -> Option<NonNull<u32>> {
        NonNull::new(address!(self, tlg_waiting))
    }

    /// Losses by owner. The result must not outlive the mapping of the globals.
    pub(crate) fn owner_losses(self) -> Option<OwnerLosses> {
        let owners = address!(self, tlg_ring_owners);
        let first = NonNull::new(owners.cast::<WireRingOwner>())?;
        let others = NonNull::new(address!(self, tlg_ring_others).cast::<WireRingOwner>())?;
        Some(OwnerLosses::new(first, RING_OWNERS, others))
    }

    /// The current fast-path variables.
    pub(crate) fn fast_path(self) -> FastPath {
        FastPath {
            raw_enter: SyscallSet(read!(self, tlg_raw_enter)),
            raw_exit: SyscallSet(read!(self, tlg_raw_exit)),
            open_gate: read!(self, tlg_open_gate),
            read_only_opens: ReadOnlyOpens {
                openat: read!(self, tlg_openat_reads) != 0,
                open: read!(self, tlg_open_reads) != 0,
            },
            uring: read!(self, tlg_uring) != 0,
            filesystems: read!(self, tlg_fs_filter) != 0,
            shared_bytes: read!(self, tlg_ring_shared),
        }
    }

    /// Epoch of the active plan.
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(u16::try_from(read!(self, tlg_epoch)).unwrap_or_default())
    }

    /// Writes the fast-path variables. Programs may see some of them before others.
    pub(crate) fn set_fast_path(self, fast_path: &FastPath) {
        write!(self, tlg_raw_enter, fast_path.raw_enter.0);
        write!(self, tlg_raw_exit, fast_path.raw_exit.0);
        write!(self, tlg_open_gate, fast_path.open_gate);
        write!(
            self,
            tlg_openat_reads,
            fast_path.read_only_opens.openat.into()
        );
        write!(self, tlg_open_reads, fast_path.read_only_opens.open.into());
        write!(self, tlg_uring, fast_path.uring.into());
        write!(self, tlg_fs_filter, fast_path.filesystems.into());
        write!(self, tlg_ring_shared, fast_path.shared_bytes);
    }

    /// Writes the watch prefilter into the half of a plan that is not active.
    pub(crate) fn set_watch_prefilter(self, epoch: Epoch, bits: &WatchPrefilter) {
        for (halves, table) in [
            (address!(self, tlg_inode_bloom), &bits.inodes),
            (address!(self, tlg_name_bloom), &bits.names),
        ] {
            let first = halves.cast::<[u64; PREFILTER_WORDS]>();
            // SAFETY: the member has two halves, and `half()` is 0 or 1.
            let half = unsafe { first.add(usize::from(epoch.half())) }.cast::<u64>();
            for (index, &bits) in table.words().iter().take(PREFILTER_WORDS).enumerate() {
                // SAFETY: `index` is below `PREFILTER_WORDS`, the number of words in a half.
                let word = unsafe { half.add(index) };
                // SAFETY: as for `write`. No program reads the half of a plan that is not active.
                unsafe { word.write_volatile(bits) };
            }
        }
    }

    /// Lets programs look for sets of watches, which some plan has.
    pub(crate) fn use_watch_sets(self) {
        write!(self, tlg_has_sets, 1);
    }

    /// Writes the index of the first test of the task list, plus one, into the half of a plan that is not
    /// active.
    pub(crate) fn set_task_tests(self, epoch: Epoch, first: u32) {
        let halves = address!(self, tlg_fork_tests).cast::<u32>();
        // SAFETY: the member has two halves, and `half()` is 0 or 1.
        let half = unsafe { halves.add(usize::from(epoch.half())) };
        // SAFETY: as for `write`. No program reads the half of a plan that is not active.
        unsafe { half.write_volatile(first) };
    }

    /// Writes the conditions of the filesystem list into the half of a plan that is not active.
    pub(crate) fn set_excluded_filesystems(self, epoch: Epoch, conditions: &[FstypeCondition]) {
        let half = usize::from(epoch.half());
        let counts = address!(self, tlg_fs_excluded_count).cast::<u32>();
        // SAFETY: the member has two halves, and `half()` is 0 or 1.
        let count_at = unsafe { counts.add(half) };
        let firsts = address!(self, tlg_fs_excluded).cast::<[[u32; 2]; FilesystemList::MOST]>();
        // SAFETY: as above.
        let first = unsafe { firsts.add(half) }.cast::<[u32; 2]>();
        let mut count = 0;
        for (index, condition) in conditions.iter().take(FilesystemList::MOST).enumerate() {
            // SAFETY: `index` is below `MOST`, the number of elements in a half.
            let at = unsafe { first.add(index) };
            // SAFETY: as for `write`. No program reads the half of a plan that is not active.
            unsafe { at.write_volatile([condition.magic, condition.negated.into()]) };
            count += 1;
        }
        // SAFETY: as above.
        unsafe { count_at.write_volatile(count) };
    }

    /// Writes the guarded directories; the program `guard_init` then sets their inodes.
    pub(crate) fn set_guarded(self, dirs: &[types::guard_dir; GUARD_SLOTS]) {
        write!(self, tlg_guard_dirs, *dirs);
    }

    /// Writes files whose inodes the program `guard_init` is to guard.
    pub(crate) fn set_guard_files(self, files: &[types::guard_file; GUARD_FILES]) {
        write!(self, tlg_guard_files, *files);
    }

    /// The files, with what `guard_init` has found.
    pub(crate) fn guard_files(self) -> [types::guard_file; GUARD_FILES] {
        read!(self, tlg_guard_files)
    }

    /// The guarded directories.
    pub(crate) fn guarded(self) -> [types::guard_dir; GUARD_SLOTS] {
        read!(self, tlg_guard_dirs)
    }

    /// Empties the slots of syscalls in progress. Only while no program takes slots: those of tasks that ended
    /// meanwhile would stay in use.
    pub(crate) fn reset_slots(self) {
        let users = address!(self, tlg_slot_user);
        // SAFETY: `users` is the mapped and aligned address of the member. No program uses it now.
        unsafe { users.write_bytes(0, 1) };
        let shares = address!(self, tlg_user_slots);
        // SAFETY: as above.
        unsafe { shares.write_bytes(0, 1) };
        write!(self, tlg_high_slots, 0);
        let generation = read!(self, tlg_slot_generation);
        write!(self, tlg_slot_generation, generation.wrapping_add(1));
    }

    /// Slots of syscalls in progress, among the first `count`.
    pub(crate) fn slots_in_use(self, count: u32) -> impl Iterator<Item = u32> {
        let users: *mut [u32] = address!(self, tlg_slot_user);
        (0..count).filter(move |&slot| {
            let slot = usize::try_from(slot).unwrap_or(usize::MAX);
            if slot >= users.len() {
                return false;
            }
            // SAFETY: `slot` is below the number of elements of the member.
            let user = unsafe { users.cast::<u32>().add(slot) };
            // SAFETY: as for `read`.
            unsafe { user.read_volatile() != 0 }
        })
    }

    /// The previous plan, while programs use it.
    pub(crate) fn previous_epoch(self) -> Option<Epoch> {
        u16::try_from(read!(self, tlg_epoch_prev)).ok().map(Epoch)
    }

    /// Makes programs stop using the previous plan.
    pub(crate) fn clear_previous_epoch(self) {
        write!(self, tlg_epoch_prev, abi::NO_EPOCH);
    }

    /// Activates another plan, at this tick.
    pub(crate) fn switch_epoch(self, from: Epoch, to: Epoch, jiffies: u64) {
        write!(self, tlg_switched_at, jiffies);
        write!(self, tlg_epoch_prev, u32::from(from.0));
        let at = address!(self, tlg_epoch);
        // SAFETY: `at` is mapped and aligned. Only this function writes it, and programs read it atomically.
        let epoch = unsafe { AtomicU32::from_ptr(at) };
        // Release: a program that reads the new epoch sees everything written before.
        epoch.store(u32::from(to.0), Ordering::Release);
    }
}
