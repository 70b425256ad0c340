//! Ends the recording of another build's programs with one store.
//!
//! The programs of this build are attached before, so that nothing is lost between the two. The type
//! information of the other build tells where its variables are: builds need not agree on their layout, only
//! on the names, and on `struct wire_syscall`, which has been the same since format 2.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Var};
use libbpf_rs::{MapHandle, MapInfo};

use super::pins::{MAP_PREFIX, PLAN_PREFIX, PinDirectory};
use super::plan_snapshot::PlanSnapshot;
use crate::abi::{self, WireSyscall};
use crate::epoch::Epoch;
use crate::handover::inherited_programs::PROGRAM_PREFIX;
use crate::load::maps::{self, empty_syscalls};
use crate::stats;
use crate::sys::mapped_memory::{Access, MappedMemory};
use crate::sys::rcu;

/// Names of the variables and of the plan's table; the second name is that of format 2.
const EPOCH: [&str; 1] = ["tlg_epoch"];
const EPOCH_PREV: [&str; 2] = ["tlg_epoch_prev", "tlg_epoch_before"];
const SWITCHED_AT: [&str; 2] = ["tlg_switched_at", "tlg_replaced"];
const FORK_TESTS: [&str; 2] = ["tlg_fork_tests", "tlg_forks"];
const SYSCALLS: [&str; 2] = ["tlg_syscalls", "tlg_calls"];

/// What selects the plan of pinned programs.
#[derive(Debug)]
pub struct PlanSwitch {
    pins: PinDirectory,
    syscalls: MapHandle,
    variables: MappedMemory,
    epoch: usize,
    epoch_prev: usize,
    switched_at: usize,
    fork_tests: usize,
}

impl PinDirectory {
    /// Finds the plan switch of the pinned programs. Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// When the variables or their type information cannot be read, or differ from what this build knows.
    pub fn plan_switch(&self) -> io::Result<PlanSwitch> {
        let [now, before] = SYSCALLS.map(|name| self.get(&format!("{MAP_PREFIX}{name}")));
        let syscalls = now.or(before)?;
        let table = info(&syscalls)?;
        let entries = u64::from(2 * abi::PLAN_ENTRIES);
        if (u64::from(table.max_entries), bytes(&table)) != (entries, size_of::<WireSyscall>()) {
            return Err(io::Error::other("its table of syscalls has another layout"));
        }
        let maps = self.names(MAP_PREFIX)?;
        let variables = maps.iter().find(|name| name.ends_with("_bss"));
        let variables =
            variables.ok_or_else(|| io::Error::other("its variables are not pinned"))?;
        let variables = self.get(&format!("{MAP_PREFIX}{variables}"))?;
        let length = bytes(&info(&variables)?);
        let types = self.types()?;
        Ok(PlanSwitch {
            pins: self.clone(),
            syscalls: MapHandle::from_map_id(table.id).map_err(io::Error::other)?,
            variables: MappedMemory::map(&variables, 0, length, Access::ReadWrite)?,
            epoch: offset_of(&types, &EPOCH)?,
            epoch_prev: offset_of(&types, &EPOCH_PREV)?,
            switched_at: offset_of(&types, &SWITCHED_AT)?,
            fork_tests: offset_of(&types, &FORK_TESTS)?,
        })
    }

    /// The type information of a pinned program, which is that of its whole object.
    fn types(&self) -> io::Result<Btf<'static>> {
        let programs = self.names(PROGRAM_PREFIX)?;
        let program = programs
            .first()
            .ok_or_else(|| io::Error::other("no program is pinned"))?;
        let program = self.get(&format!("{PROGRAM_PREFIX}{program}"))?;
        let id = stats::program_id(&program);
        let id = id.ok_or_else(|| io::Error::other("the kernel does not describe its programs"))?;
        Btf::from_prog_id(id).map_err(io::Error::other)
    }
}

impl PlanSwitch {
    /// Writes a plan without rules into the half that is not active.
    ///
    /// # Errors
    /// When the table cannot be written. The active plan is unchanged.
    pub fn prepare(&self) -> io::Result<()> {
        let next = self.active()?.next();
        // The other build can adopt its programs again, should this daemon end before it has removed their pins.
        let snapshot = format!("{PLAN_PREFIX}{}", next.0);
        if !self.pins.contains(&snapshot) {
            self.pins
                .pin(&snapshot, PlanSnapshot::default().to_map()?)?;
        }
        self.word(self.epoch_prev)?
            .store(abi::NO_EPOCH, Ordering::Relaxed);
        rcu::wait_for_programs().map_err(io::Error::other)?;
        let half = usize::from(next.half());
        self.word(self.fork_tests + half * size_of::<u32>())?
            .store(0, Ordering::Relaxed);
        let first = u32::from(next.half()) * abi::PLAN_ENTRIES;
        maps::update_batch("syscalls", &self.syscalls, first, &empty_syscalls(next))
            .map_err(io::Error::other)
    }

    /// The variable and the value by which that plan becomes active. Calls in progress, whose objects the programs
    /// have seen, are not recorded any more.
    ///
    /// # Errors
    /// When the variables cannot be accessed; then nothing has changed.
    pub(crate) fn last_store(&self, jiffies: u64) -> io::Result<(&AtomicU32, u32)> {
        let active = self.active()?;
        let (epoch, prev) = (self.word(self.epoch)?, self.word(self.epoch_prev)?);
        let at = self.at::<u64>(self.switched_at)?;
        // SAFETY: `at` checks bounds and alignment; programs read the variable atomically.
        unsafe { AtomicU64::from_ptr(at.as_ptr()) }.store(jiffies, Ordering::Relaxed);
        prev.store(u32::from(active.0), Ordering::Relaxed);
        Ok((epoch, u32::from(active.next().0)))
    }

    fn active(&self) -> io::Result<Epoch> {
        let epoch = self.word(self.epoch)?.load(Ordering::Acquire);
        let epoch = u16::try_from(epoch)
            .ok()
            .filter(|&epoch| epoch < abi::EPOCHS);
        epoch
            .map(Epoch)
            .ok_or_else(|| io::Error::other("its epoch is invalid"))
    }

    fn word(&self, offset: usize) -> io::Result<&AtomicU32> {
        let at = self.at::<u32>(offset)?;
        // SAFETY: `at` checks bounds and alignment. The mapping lives as long as `self`, and all access to the
        // variable is atomic.
        Ok(unsafe { AtomicU32::from_ptr(at.as_ptr()) })
    }

    fn at<T>(&self, offset: usize) -> io::Result<NonNull<T>> {
        let at = self.variables.at(offset);
        at.ok_or_else(|| io::Error::other("a variable is outside of its map"))
    }
}

fn info(map: &OwnedFd) -> io::Result<libbpf_rs::libbpf_sys::bpf_map_info> {
    let info = MapInfo::new(map.as_fd()).map_err(io::Error::other)?;
    Ok(info.info)
}

fn bytes(map: &libbpf_rs::libbpf_sys::bpf_map_info) -> usize {
    usize::try_from(map.value_size).unwrap_or_default()
}

/// Offset of a global variable that has one of these names.
fn offset_of(types: &Btf<'_>, names: &[&str]) -> io::Result<usize> {
    let section: Option<DataSec<'_>> = types.type_by_name(".bss");
    let found = section.into_iter().flat_map(|section| {
        let variables: Vec<_> = section.iter().map(|at| (at.ty, at.offset)).collect();
        variables
    });
    let mut found = found.filter_map(|(ty, offset)| {
        let variable: Var<'_> = types.type_by_id(ty)?;
        let name = variable.name()?;
        names.iter().any(|wanted| name == *wanted).then_some(offset)
    });
    let offset = found.next().and_then(|offset| usize::try_from(offset).ok());
    offset.ok_or_else(|| io::Error::other(format!("it has no variable {}", names.join(" or "))))
}
