//! The maps that hold the plan: how large they are, and what is put into them.
//!
//! Two plans have room, each in a half of its own; see `bpf/lib/plan.bpf.h`. The maps cannot grow: they are
//! made larger than the first plan needs.

use std::collections::HashSet;

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use zerocopy::{FromBytes as _, Immutable, IntoBytes};

use crate::abi::{self, WireInodeKey, WireSyscall, WireTest};
use crate::compile::CompiledPlan;
use crate::compile::watches::Watches;
use crate::epoch::Epoch;
use crate::error::EngineError;
use crate::options::EngineOptions;
use crate::skeleton::{OpenSyscallSkel, SyscallSkel};

/// How much one plan may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapCapacity {
    pub(crate) tests: u32,
    pub(crate) inodes: u32,
    pub(crate) names: u32,
}

/// Tests, and keys of watches, that there is capacity for at least: more than any public rule set has.
const MIN_ENTRIES: u32 = 65_536;

impl MapCapacity {
    /// For a first plan with so many watched paths, and for others, which may be twice as large.
    pub(crate) fn for_first_plan(
        compiled: &CompiledPlan,
        watched: usize,
        watches: &Watches,
    ) -> Self {
        let capacity = |entries: usize| count(entries).saturating_mul(2).max(MIN_ENTRIES);
        Self {
            tests: capacity(compiled.tests.len() + compiled.task_tests.len()),
            inodes: capacity(watched),
            names: capacity(watches.names.len()),
        }
    }

    /// Looks whether a plan has capacity.
    ///
    /// # Errors
    /// [`EngineError::Capacity`] when it has not.
    pub(crate) fn check(
        self,
        compiled: &CompiledPlan,
        watches: &Watches,
    ) -> Result<(), EngineError> {
        for (what, needed, capacity) in [
            (
                "tests of rules",
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

/// Makes the maps as large as what they are to hold; before loading.
pub(crate) fn set_sizes(
    open: &mut OpenSyscallSkel<'_>,
    capacity: MapCapacity,
    coverage: HookCoverage,
    cpus: usize,
    options: EngineOptions,
) -> Result<(), EngineError> {
    let maps = &mut open.maps;
    let cpus = count(cpus).max(1);
    let slots = match coverage {
        HookCoverage::InternalHooks => STATE_SLOTS,
        HookCoverage::SyscallsOnly => 1,
    };
    let paths = if options.context { slots } else { 1 };
    let avc = if options.avc { cpus } else { 1 };
    for (name, map, entries) in [
        ("tlg_ring", &mut maps.tlg_ring, options.ring_bytes),
        ("tlg_counts", &mut maps.tlg_counts, cpus),
        ("tlg_scratch", &mut maps.tlg_scratch, cpus),
        ("tlg_avc_scratch", &mut maps.tlg_avc_scratch, avc),
        ("tlg_sys_state", &mut maps.tlg_sys_state, slots),
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

/// How far an engine coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookCoverage {
    /// Inside the kernel.
    InternalHooks,
    /// Where calls begin and end.
    SyscallsOnly,
}

/// Calls that can be under way at once with what hooks inside the kernel saw of them: `STATE_SLOTS` of
/// `bpf/lib/syscall_state.bpf.h`.
const STATE_SLOTS: u32 = 1024;

const fn two_halves(half: u32) -> u32 {
    half.saturating_mul(2)
}

/// What a half of the maps of watches holds.
#[derive(Debug, Default)]
pub(crate) struct WatchKeys {
    inodes: Vec<WireInodeKey>,
    names: Vec<u64>,
}

impl MapCapacity {
    /// 1 + where the tests of the task list stand that a plan in the half of `epoch` has; 0 for none.
    pub(crate) fn first_task_test(self, epoch: Epoch, compiled: &CompiledPlan) -> u32 {
        if compiled.task_tests.is_empty() {
            return 0;
        }
        u32::from(epoch.half()) * self.tests + count(compiled.tests.len()) + 1
    }
}

/// Keys of watched names as they stand in the half of an epoch.
pub(crate) fn name_keys(epoch: Epoch, watches: &Watches) -> impl Iterator<Item = u64> {
    let half = u64::from(epoch.half());
    watches.names.iter().map(move |(key, _)| key ^ half)
}

impl WatchKeys {
    /// What the halves hold when those names are the ones of the plan in force.
    pub(crate) fn from_maps(skel: &SyscallSkel<'_>, in_force: Epoch, names: Vec<u64>) -> [Self; 2] {
        let mut halves = [Self::default(), Self::default()];
        let [even, odd] = &mut halves;
        for key in skel.maps.tlg_watch_inode.keys() {
            let Ok(key) = WireInodeKey::read_from_bytes(&key) else {
                continue;
            };
            let half = if key.half == 0 { &mut *even } else { &mut *odd };
            half.inodes.push(key);
        }
        let (current, other) = if in_force.half() == 0 {
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

    /// Takes the watches out of the maps.
    pub(crate) fn clear(&mut self, skel: &SyscallSkel<'_>) -> Result<(), EngineError> {
        for key in self.inodes.drain(..) {
            delete("tlg_watch_inode", &skel.maps.tlg_watch_inode, &key)?;
        }
        for key in self.names.drain(..) {
            delete("tlg_watch_path", &skel.maps.tlg_watch_path, &key)?;
        }
        Ok(())
    }

    /// Puts a plan and its watches into the half of its epoch, which is not in force and empty.
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
            self.inodes.push(key);
            update("tlg_watch_inode", &maps.tlg_watch_inode, &key, watch)?;
        }
        for (key, (_, watch)) in name_keys(epoch, watches).zip(&watches.names) {
            self.names.push(key);
            update("tlg_watch_path", &maps.tlg_watch_path, &key, watch)?;
        }
        let first = u32::from(half) * capacity.tests;
        let tests = compiled.tests.iter();
        let tests: Vec<WireTest> = tests
            .map(|test| relocate_test(*test, first, epoch))
            .collect();
        update_batch("tlg_rule_tests", &maps.tlg_rule_tests, first, &tests)?;
        let after = first + count(tests.len());
        let task_tests = compiled.task_tests.iter().map(|test| WireTest {
            on_false: test.on_false + after,
            ..*test
        });
        let task_tests: Vec<WireTest> = task_tests.collect();
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

/// A test as it stands in the half whose first test is `first`.
fn relocate_test(test: WireTest, first: u32, epoch: Epoch) -> WireTest {
    let value = if test.kind == abi::TEST_DECIDE {
        test.value | u32::from(epoch.0) << abi::RULE_BITS
    } else {
        test.value
    };
    WireTest {
        value,
        on_false: test.on_false + first,
        ..test
    }
}

/// A call, or none, as it stands there.
fn relocate_syscall(call: Option<WireSyscall>, first: u32, epoch: Epoch) -> WireSyscall {
    let (tests, tests_unwatched) = match call {
        Some(call) => (call.tests + first, call.tests_unwatched + first),
        None => (abi::NO_SYSCALL, abi::NO_SYSCALL),
    };
    WireSyscall {
        tests,
        tests_unwatched,
        epoch: epoch.0,
        ..call.unwrap_or_default()
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
    map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
        .map_err(|source| EngineError::Map { map: name, source })
}

/// Takes a key out; it may never have got in.
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

/// Writes consecutive elements of an array with one call.
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
    fn tests_and_syscalls_are_relocated_to_their_half() {
        let epoch = Epoch(3);
        let decide = WireTest {
            kind: abi::TEST_DECIDE,
            value: abi::RECORD | 7,
            ..WireTest::default()
        };
        assert_eq!(
            relocate_test(decide, 100, epoch).value,
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
        let call = WireSyscall {
            tests: 1,
            tests_unwatched: 4,
            ..WireSyscall::default()
        };
        let moved = relocate_syscall(Some(call), 100, epoch);
        assert_eq!(
            (moved.tests, moved.tests_unwatched, moved.epoch),
            (101, 104, 3)
        );
        let none = relocate_syscall(None, 100, epoch);
        assert_eq!((none.tests, none.epoch), (abi::NO_SYSCALL, 3));
    }
}
