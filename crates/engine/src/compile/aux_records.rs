//! Auxiliary records that programs read from registers, the task and its memory.

use audit::ids::Arch;

use crate::abi::aux_source;
use crate::engine_kind::EngineKind;

/// Auxiliary record that a syscall gets from its arguments and memory at exit: `enum wire_aux_source`.
pub(super) fn source(arch: Arch, name: &str, engine: EngineKind) -> u8 {
    let inside = engine.is_on_functions(); // hooks show it
    match name {
        "pipe" | "pipe2" => aux_source::PIPE,
        "socketpair" => aux_source::SOCKETPAIR,
        "socketcall" => aux_source::SOCKETCALL,
        "mmap" if arch == Arch::I386 => aux_source::OLD_MMAP,
        "mmap" | "mmap2" => aux_source::MMAP,
        "openat2" => aux_source::OPENAT2,
        "capset" => aux_source::CAPSET,
        "kill" | "tkill" if !inside => aux_source::TARGET_FIRST,
        "tgkill" if !inside => aux_source::TARGET_SECOND,
        "rt_sigqueueinfo" if !inside => aux_source::TARGET_FIRST_EARLY,
        "rt_tgsigqueueinfo" if !inside => aux_source::TARGET_SECOND_EARLY,
        "ptrace" if !inside => aux_source::TRACED,
        // On the engine fentry, the event has the stamp of the record.
        "bpf" if engine != EngineKind::Fentry => aux_source::LOADED_PROGRAM,
        _ => 0,
    }
}
