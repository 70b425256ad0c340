//! The maps that hold the plan: how large they are, and what is put into them.

use libbpf_rs::{MapCore as _, MapFlags};
use zerocopy::IntoBytes as _;

use crate::abi::{self, WireCall, WireTest};
use crate::load::skel::{OpenSyscallSkel, SyscallSkel};
use crate::load::{EngineError, Options};
use crate::lower::Lowered;
use crate::watch::Watches;

/// Makes the maps as large as what they are to hold; before loading.
pub(crate) fn size(
    open: &mut OpenSyscallSkel<'_>,
    lowered: &Lowered,
    watches: &Watches,
    cpus: usize,
    options: Options,
) -> Result<(), EngineError> {
    let maps = &mut open.maps;
    for (name, map, entries) in [
        ("tlg_ring", &mut maps.tlg_ring, options.ring_bytes),
        ("tlg_counts", &mut maps.tlg_counts, at_least_one(cpus)),
        ("tlg_scratch", &mut maps.tlg_scratch, at_least_one(cpus)),
        ("tlg_seen", &mut maps.tlg_seen, seen_slots(lowered)),
        (
            "tlg_tests",
            &mut maps.tlg_tests,
            at_least_one(lowered.tests.len()),
        ),
        (
            "tlg_inodes",
            &mut maps.tlg_inodes,
            at_least_one(watches.inodes.len()),
        ),
        (
            "tlg_names",
            &mut maps.tlg_names,
            at_least_one(watches.names.len()),
        ),
    ] {
        map.set_max_entries(entries)
            .map_err(|source| EngineError::Map { map: name, source })?;
    }
    Ok(())
}

/// Puts the plan and the watches into the maps.
pub(crate) fn fill(
    skel: &SyscallSkel<'_>,
    lowered: &Lowered,
    watches: &Watches,
) -> Result<(), EngineError> {
    let failed = |map| move |source| EngineError::Map { map, source };
    let calls = &skel.maps.tlg_calls;
    let unnamed = WireCall {
        tests: abi::NO_CALL,
        ..WireCall::default()
    };
    let all = u32::try_from(abi::ABIS).unwrap_or(0) * abi::SYSCALLS;
    for index in 0..all {
        let call = lowered
            .calls
            .iter()
            .find(|(at, _)| *at == index)
            .map_or(&unnamed, |(_, call)| call);
        calls
            .update(index.as_bytes(), call.as_bytes(), MapFlags::ANY)
            .map_err(failed("tlg_calls"))?;
    }
    for (index, test) in (0_u32..).zip(&lowered.tests) {
        let test: &WireTest = test;
        skel.maps
            .tlg_tests
            .update(index.as_bytes(), test.as_bytes(), MapFlags::ANY)
            .map_err(failed("tlg_tests"))?;
    }
    for (key, watch) in &watches.inodes {
        skel.maps
            .tlg_inodes
            .update(key.as_bytes(), watch.as_bytes(), MapFlags::ANY)
            .map_err(failed("tlg_inodes"))?;
    }
    for (key, watch) in &watches.names {
        skel.maps
            .tlg_names
            .update(key.as_bytes(), watch.as_bytes(), MapFlags::ANY)
            .map_err(failed("tlg_names"))?;
    }
    Ok(())
}

/// Calls that can be under way at once with what hooks inside the kernel saw of them: `SEEN_SLOTS` of
/// `bpf/seen.bpf.h`.
const SEEN_SLOTS: u32 = 1024;

fn seen_slots(lowered: &Lowered) -> u32 {
    if lowered.sees() { SEEN_SLOTS } else { 1 }
}

fn at_least_one(entries: usize) -> u32 {
    u32::try_from(entries.max(1)).unwrap_or(u32::MAX)
}
