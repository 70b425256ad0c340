//! Syscalls in which an LSM denies an access: the kernel's audit records the denial (AVC), tollgate adds the
//! SYSCALL record.

use audit::ids::{NativeArch, Syscall};
use audit::plan::SyscallId;
use libbpf_rs::MapCore as _;

use super::Engine;
use crate::abi::{self, WireShape};
use crate::attach::{self, kprobe};
use crate::compile::objects;
use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::program::Program;
use crate::load::maps;
use crate::load::{GuardForm, ObjectSlots};

impl<'s> Engine<'s> {
    /// Attaches the program that sends the current syscall when an LSM starts an audit record and the task has
    /// no audit context, so that the kernel writes no SYSCALL record; see [`crate::has_kernel_stamp`]. The
    /// program stays attached while this process lives.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel has no programs on functions, or when the engine was started without
    /// [`crate::EngineOptions::avc`]. The engine keeps running.
    pub fn attach_avc_hook(&mut self, slots: &mut ObjectSlots<'s>) -> Result<(), EngineError> {
        if self.kind != EngineKind::Lsm {
            self.check_function_programs()?;
        }
        self.objects
            .load_more(slots, &[Program::AvcSyscall].into(), GuardForm::OnFunctions)?;
        // In the order of `enum wire_abi`.
        let syscalls = NativeArch::BUILD.abis().into_iter().flat_map(|arch| {
            let numbers = (0..abi::SYSCALLS).map(Syscall);
            numbers.map(move |syscall| SyscallId { arch, syscall })
        });
        let kernel = self.selection.kernel();
        let shapes: Vec<[WireShape; abi::OBJECTS]> = syscalls
            .map(|syscall| objects::wire_shapes(syscall, kernel))
            .collect();
        let bpf_maps = &self.objects.first().maps;
        maps::update_batch("tlg_shapes", &bpf_maps.tlg_shapes, 0, &shapes)?;
        let program = self.program(Program::AvcSyscall)?;
        let link = match self.kind {
            EngineKind::Lsm => kprobe::attach_multi(program, "audit_log_start", 0),
            EngineKind::Fentry | EngineKind::Tracepoint => {
                attach::attach_raw_tracepoint(program, None)
            }
        };
        let link = link.map_err(|source| EngineError::Attach {
            program: program.name().to_string_lossy().into_owned(),
            hook: "`audit_log_start`".to_owned(),
            source: source.into(),
        })?;
        self.avc = Some(link);
        Ok(())
    }

    /// Whether the maps were created with the scratch memory that the program needs, one entry per CPU.
    pub(super) fn has_avc_scratch(&self) -> bool {
        let maps = &self.objects.first().maps;
        maps.tlg_avc_scratch.max_entries() == maps.tlg_scratch.max_entries()
    }
}
