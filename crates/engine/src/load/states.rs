//! States of syscalls in progress; see `bpf/lib/syscall_state.bpf.h`.

use std::mem::offset_of;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags};

use super::globals::Globals;
use crate::epoch::Epoch;
use crate::ring::RingReader;
use crate::skeleton::{SyscallSkel, types};

/// Longest wait for syscalls that began under a plan. Those that block take longer, and are lost.
const PATIENCE: Duration = Duration::from_millis(100);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Waits until no syscall is in progress that began under the plan `epoch`, but at most [`PATIENCE`], and not while the ring
/// is filling, which nobody reads meanwhile. When the half of the plan is written again, its rules are gone, and such a
/// syscall is lost.
pub(crate) fn await_end_of(
    epoch: Epoch,
    globals: Globals,
    skel: &SyscallSkel<'_>,
    ring: &RingReader,
) {
    let end = Instant::now() + PATIENCE;
    let may_wait = || Instant::now() < end && !ring.is_filling();
    while may_wait() && has_any_of(epoch, globals, skel, &may_wait) {
        thread::park_timeout(BETWEEN_LOOKS);
    }
}

/// Whether a syscall is in progress that began under the plan `epoch`, as far as there is time to look.
fn has_any_of(
    epoch: Epoch,
    globals: Globals,
    skel: &SyscallSkel<'_>,
    may_look: &dyn Fn() -> bool,
) -> bool {
    let states = &skel.maps.tlg_sys_state;
    let epoch = u32::from(epoch.0).to_ne_bytes();
    let at = offset_of!(types::syscall_state, epoch);
    let mut slots = globals
        .slots_in_use(states.max_entries())
        .take_while(|_| may_look());
    slots.any(|slot| {
        let state = states.lookup(&slot.to_ne_bytes(), MapFlags::ANY);
        let state = state.ok().flatten().unwrap_or_default();
        state.get(at..at + epoch.len()) == Some(&epoch[..])
    })
}
