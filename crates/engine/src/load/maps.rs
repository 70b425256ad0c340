//! The maps that hold plans: their sizes and contents.
//!
//! The maps hold two plans, each in its own half; see `bpf/lib/plan.bpf.h`. Maps cannot grow, so they are
//! created larger than the first plan needs.

use std::collections::HashSet;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

use crate::abi::watch::{self, WireInodeKey, WireWatchSet};
use crate::abi::{self, WireSyscall, WireTest};
use crate::compile::CompiledPlan;
use crate::compile::watches::Watches;
use crate::engine_kind::EngineKind;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::options::EngineOptions;
use crate::skeleton::{OpenSyscallSkel, SyscallSkel, types};
use crate::sys::map_element;

/// Maximum number of entries of one plan, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapCapacity {
    pub(crate) tests: u32,
    pub(crate) inodes: u32,
    pub(crate) names: u32,
}

/// Minimum capacity for tests and for keys of watches; more than any public rule set needs.
const MIN_ENTRIES: u32 = 65_536;

impl MapCapacity {
    /// Capacity for a first plan with this number of watched paths, and for later ones up to twice as large.
    pub(crate) fn for_first_plan(
        compiled: &CompiledPlan,
        watched: usize,
        watches: &Watches,
    ) -> Self {
        let capacity = |entries: usize| count(entries).saturating_mul(2).max(MIN_ENTRIES);
        Self {
            tests: capacity(compiled.tests.len() + compiled.task_tests.len()),
            inodes: capacity(watched),
            names: capacity(watches.names.len() + watched),
        }
    }

    /// Checks that a plan fits.
    ///
    /// # Errors
    /// [`EngineError::Capacity`] when it does not.
    pub(crate) fn check(
        self,
        compiled: &CompiledPlan,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        for (what, needed, capacity) in [
            (
                "rule tests",
                compiled.tests.len() + compiled.task_tests.len(),
                self.tests,
            ),
            ("watched inodes", watches.inodes.len(), self.inodes),
            ("watched names", watches.names.len(), self.names),
        ] {
            if count(needed) > capacity {
                return Err(EngineError::Capacity {
                    what,
                    needed,
                    capacity,
                });
            }
        }
        Ok(())
    }
}

fn count(entries: usize) -> u32 {
    u32::try_from(entries).unwrap_or(u32::MAX)
}

/// Sets the sizes of the maps, before loading.
pub(crate) fn set_sizes(
    open: &mut OpenSyscallSkel<'_>,
    capacity: MapCapacity,
    coverage: HookCoverage,
    cpus: usize,
    options: EngineOptions,
    slots: Slots,
) -> Result<(), EngineError> {
    let maps = &mut open.maps;
    let cpus = count(cpus).max(1);
    let states = match coverage {
        HookCoverage::InternalHooks | HookCoverage::TaskWork => slots.all,
        HookCoverage::SyscallsOnly => 1,
    };
    let works = match coverage {
        HookCoverage::TaskWork => slots.all,
        HookCoverage::InternalHooks | HookCoverage::SyscallsOnly => 1,
    };
    let paths = if options.context { states } else { 1 };
    let avc = if options.avc { cpus } else { 1 };
    for (name, map, entries) in [
        ("tlg_ring", &mut maps.tlg_ring, options.ring_bytes),
        ("tlg_counts", &mut maps.tlg_counts, cpus),
        ("tlg_scratch", &mut maps.tlg_scratch, cpus),
        ("tlg_avc_scratch", &mut maps.tlg_avc_scratch, avc),
        ("tlg_sys_state", &mut maps.tlg_sys_state, states),
        ("tlg_call_work", &mut maps.tlg_call_work, works),
        ("tlg_state_paths", &mut maps.tlg_state_paths, paths),
        (
            "tlg_rule_tests",
            &mut maps.tlg_rule_tests,
            two_halves(capacity.tests),
        ),
        (
            "tlg_watch_inode",
            &mut maps.tlg_watch_inode,
            two_halves(capacity.inodes),
        ),
        (
            "tlg_watch_path",
            &mut maps.tlg_watch_path,
            two_halves(capacity.names),
        ),
    ] {
        map.set_max_entries(entries)
            .map_err(|source| EngineError::Map { map: name, source })?;
    }
    Ok(())
}

/// Where the programs of an engine attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookCoverage {
    /// Also to functions inside the kernel.
    InternalHooks,
    /// To entry and exit of syscalls.
    SyscallsOnly,
    /// To the entry of syscalls; task work sees their end.
    TaskWork,
}

impl HookCoverage {
    /// That of an engine.
    pub(crate) const fn of(kind: EngineKind) -> Self {
        match kind {
            EngineKind::Fentry => Self::InternalHooks,
            EngineKind::Lsm => Self::TaskWork,
            EngineKind::Tracepoint => Self::SyscallsOnly,
        }
    }
}

/// Number of slots for the state of syscalls in progress; see `bpf/lib/state_slots.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// All slots, a power of two.
    pub(crate) all: u32,
    /// Slots that one user can hold.
    pub(crate) per_user: u32,
}

impl Slots {
    /// Fewest and most slots. The most is `SLOTS_MAX` of `bpf/lib/state_slots.bpf.h`.
    const RANGE: [u64; 2] = [1024, 8192];
    /// Part of the memory that slots may take.
    const MEMORY_PART: u64 = 256;
    /// Part of the slots that one user can hold.
    const USER_PART: u32 = 4;

    /// Slots for a machine with this much memory, in bytes.
    pub(crate) fn for_memory(bytes: u64) -> Self {
        let size = u64::try_from(size_of::<types::syscall_state>()).unwrap_or(u64::MAX);
        let [fewest, most] = Self::RANGE;
        let fit = (bytes / Self::MEMORY_PART / size).clamp(fewest, most);
        let all = u32::try_from(1_u64 << fit.ilog2()).unwrap_or(1);
        Self {
            all,
            per_user: all / Self::USER_PART,
        }
    }
}

const fn two_halves(half: u32) -> u32 {
    half.saturating_mul(2)
}

/// Keys of names in one half of `tlg_watch_path`, which do not show their half.
#[derive(Debug, Default)]
pub(crate) struct WatchKeys {
    names: Vec<u64>,
}

impl MapCapacity {
    /// Index of the first test of the task list in the half of `epoch`, plus one; 0 without a task list.
    pub(crate) fn first_task_test(self, epoch: Epoch, compiled: &CompiledPlan) -> u32 {
        if compiled.task_tests.is_empty() {
            return 0;
        }
        u32::from(epoch.half()) * self.tests + count(compiled.tests.len()) + 1
    }
}

/// Keys of watched names in the half of an epoch.
pub(crate) fn name_keys(epoch: Epoch, watches: &Watches) -> impl Iterator<Item = u64> {
    let half = u64::from(epoch.half());
    watches.names.iter().map(move |(key, _)| key ^ half)
}

impl WatchKeys {
    /// Reads the keys of both halves from the maps. `names` are the names of the active plan; all other names
    /// belong to the other half.
    pub(crate) fn from_maps(skel: &SyscallSkel<'_>, active: Epoch, names: Vec<u64>) -> [Self; 2] {
        let mut halves = [Self::default(), Self::default()];
        let [even, odd] = &mut halves;
        let (current, other) = if active.half() == 0 {
            (even, odd)
        } else {
            (odd, even)
        };
        let known: HashSet<u64> = names.iter().copied().collect();
        let all = skel.maps.tlg_watch_path.keys();
        let all = all.filter_map(|key| Some(u64::from_ne_bytes(key.try_into().ok()?)));
        other.names = all.filter(|key| !known.contains(key)).collect();
        current.names = names;
        halves
    }

    /// Keys of watched names.
    pub(crate) fn name_keys(&self) -> &[u64] {
        &self.names
    }

    /// Deletes the watches of the half of an epoch from the maps, with the inodes that programs have added.
    pub(crate) fn clear(
        &mut self,
        skel: &SyscallSkel<'_>,
        epoch: Epoch,
    ) -> Result<(), EngineError> {
        let inodes = skel.maps.tlg_watch_inode.keys();
        let inodes = inodes.filter_map(|key| WireInodeKey::read_from_bytes(&key).ok());
        let half = u32::from(epoch.half());
        let inodes: Vec<WireInodeKey> = inodes.filter(|key| key.half == half).collect();
        for key in inodes {
            delete("tlg_watch_inode", &skel.maps.tlg_watch_inode, &key)?;
        }
        for key in self.names.drain(..) {
            delete("tlg_watch_path", &skel.maps.tlg_watch_path, &key)?;
        }
        Ok(())
    }

    /// Writes a plan and its watches into the half of its epoch, which must be inactive and empty.
    pub(crate) fn write_plan(
        &mut self,
        skel: &SyscallSkel<'_>,
        epoch: Epoch,
        capacity: MapCapacity,
        compiled: &CompiledPlan,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        let maps = &skel.maps;
        let half = epoch.half();
        for (key, watch) in &watches.inodes {
            let key = WireInodeKey {
                half: half.into(),
                ..*key
            };
            update("tlg_watch_inode", &maps.tlg_watch_inode, &key, watch)?;
        }
        for (key, (_, watch)) in name_keys(epoch, watches).zip(&watches.names) {
            self.names.push(key);
            update("tlg_watch_path", &maps.tlg_watch_path, &key, watch)?;
        }
        let sets: Vec<WireWatchSet> = watches.sets.iter().map(|set| wire_set(set)).collect();
        let first_set = u32::from(half) * watch::WATCH_SETS;
        update_batch("tlg_watch_sets", &maps.tlg_watch_sets, first_set, &sets)?;
        let first = u32::from(half) * capacity.tests;
        let tests = compiled.tests.iter();
        let tests: Vec<WireTest> = tests
            .map(|test| relocate_test(*test, first, epoch))
            .collect();
        update_batch("tlg_rule_tests", &maps.tlg_rule_tests, first, &tests)?;
        let after = first + count(tests.len());
        let task_tests = compiled.task_tests.iter();
        let task_tests: Vec<WireTest> = task_tests.map(|test| test.moved(after)).collect();
        update_batch("tlg_rule_tests", &maps.tlg_rule_tests, after, &task_tests)?;
        let all = abi::PLAN_ENTRIES;
        let syscalls: Vec<WireSyscall> = (0..all)
            .map(|index| relocate_syscall(compiled.syscalls.get(&index).copied(), first, epoch))
            .collect();
        update_batch(
            "tlg_syscalls",
            &maps.tlg_syscalls,
            u32::from(half) * all,
            &syscalls,
        )
    }
}

fn wire_set(watches: &[u32]) -> WireWatchSet {
    let mut set = WireWatchSet {
        count: count(watches.len()),
        ..WireWatchSet::default()
    };
    for (place, watch) in set.watch.iter_mut().zip(watches) {
        *place = *watch;
    }
    set
}

/// A test as stored in the half whose first test is at index `first`.
fn relocate_test(test: WireTest, first: u32, epoch: Epoch) -> WireTest {
    let mut test = test.moved(first);
    if test.verdict != abi::NO_VERDICT {
        test.verdict |= u32::from(epoch.0) << abi::RULE_BITS;
    }
    test
}

/// The entries of `tlg_syscalls` of a plan without rules.
pub(crate) fn empty_syscalls(epoch: Epoch) -> Vec<WireSyscall> {
    let all = usize::try_from(abi::PLAN_ENTRIES).unwrap_or_default();
    vec![relocate_syscall(None, 0, epoch); all]
}

/// An entry of `tlg_syscalls` as stored in that half; without `syscall`, an entry that no rule names.
fn relocate_syscall(syscall: Option<WireSyscall>, first: u32, epoch: Epoch) -> WireSyscall {
    let (tests, tests_unwatched) = match syscall {
        Some(syscall) => (syscall.tests + first, syscall.tests_unwatched + first),
        None => (abi::NO_SYSCALL, abi::NO_SYSCALL),
    };
    WireSyscall {
        tests,
        tests_unwatched,
        epoch: epoch.0,
        ..syscall.unwrap_or_default()
    }
}

fn update<K, V>(
    name: &'static str,
    map: &impl MapCore,
    key: &K,
    value: &V,
) -> Result<(), EngineError>
where
    K: IntoBytes + Immutable,
    V: IntoBytes + Immutable,
{
    map_element::write(map, key.as_bytes(), value.as_bytes())
        .map_err(|source| EngineError::Map { map: name, source })
}

/// Deletes a key, which may be missing.
fn delete<K>(name: &'static str, map: &impl MapCore, key: &K) -> Result<(), EngineError>
where
    K: IntoBytes + Immutable,
{
    match map.delete(key.as_bytes()) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(EngineError::Map { map: name, source })
        }
        _ => Ok(()),
    }
}

/// Writes consecutive elements of an array with one system call.
pub(crate) fn update_batch<V>(
    name: &'static str,
    map: &impl MapCore,
    first: u32,
    values: &[V],
) -> Result<(), EngineError>
where
    V: IntoBytes + Immutable,
{
    let keys: Vec<u32> = (first..).take(values.len()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let (keys_count, any) = (count(keys.len()), MapFlags::ANY);
    map.update_batch(keys.as_bytes(), values.as_bytes(), keys_count, any, any)
        .map_err(|source| EngineError::Map { map: name, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_memory() {
        const GIB: u64 = 1 << 30;
        let all = |bytes| Slots::for_memory(bytes).all;
        assert_eq!([all(0), all(GIB), all(u64::MAX)], [1024, 1024, 8192]);
        assert_eq!(all(24 * GIB), 4096);
        assert_eq!(Slots::for_memory(GIB).per_user, 256);
    }

    #[test]
    fn tests_and_syscalls_are_relocated_to_their_half() {
        let epoch = Epoch(3);
        let last = WireTest {
            verdict: abi::RECORD | 7,
            ..WireTest::default()
        };
        assert_eq!(
            relocate_test(last, 100, epoch).verdict,
            abi::RECORD | 3 << abi::RULE_BITS | 7
        );
        let word = WireTest {
            kind: abi::TEST_WORD,
            value: 7,
            on_false: 2,
            ..WireTest::default()
        };
        let moved = relocate_test(word, 100, epoch);
        assert_eq!((moved.value, moved.on_false), (7, 102));
        assert_eq!(moved.verdict, abi::NO_VERDICT);
        let syscall = WireSyscall {
            tests: 1,
            tests_unwatched: 4,
            ..WireSyscall::default()
        };
        let moved = relocate_syscall(Some(syscall), 100, epoch);
        assert_eq!(
            (moved.tests, moved.tests_unwatched, moved.epoch),
            (101, 104, 3)
        );
        let none = relocate_syscall(None, 100, epoch);
        assert_eq!((none.tests, none.epoch), (abi::NO_SYSCALL, 3));
    }
}
