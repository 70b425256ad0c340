//! Reads the preemption mode without the programs of an engine.

use std::mem::MaybeUninit;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::sys::{kernel_symbols, libbpf_log};

crate::skeleton::skeleton!("preemption_mode");

/// The kernel's `preempt_dynamic_mode`, as `preemption_mode()` of `bpf/lib/preemption.bpf.h` returns it. `None` if the
/// program cannot be loaded: then the kernel refuses those of all engines, and says why.
pub(crate) fn read() -> Option<i32> {
    let mut storage = MaybeUninit::uninit();
    let (mode, _refusal) = libbpf_log::capture(|| {
        let mut open = skel::PreemptionModeSkelBuilder::default().open(&mut storage)?;
        if let Some(rodata) = open.maps.rodata_data.as_mut() {
            kernel_symbols::fill!(rodata.tlg_symbols, kernel_symbols::addresses());
        }
        let programs = open.load()?;
        let read = &programs.progs.read_preemption;
        read.test_run(ProgramInput::default())
            .map(|output| output.return_value.cast_signed())
    });
    mode.ok()
}
