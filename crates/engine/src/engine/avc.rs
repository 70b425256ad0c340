//! Calls in which a security module has refused something: sent beside the records that the kernel's audit
//! makes of that.

use audit::ids::{Arch, Syscall};
use audit::plan::SyscallId;
use libbpf_rs::MapCore as _;

use super::Engine;
use crate::abi::{self, WireShape};
use crate::attach;
use crate::compile::objects;
use crate::error::EngineError;
use crate::hooks::program::Program;
use crate::load::ObjectSlots;
use crate::load::maps;

impl<'s> Engine<'s> {
    /// Has the call sent in which a security module makes a record, such as AVC, for which the kernel's audit
    /// knows no call: see [`crate::has_kernel_stamp`]. It lasts as long as this process.
    ///
    /// # Errors
    /// [`EngineError`] when the kernel has no programs on functions, or was not prepared for this with
    /// [`super::EngineOptions::avc`]. All else goes on.
    pub fn attach_avc_hook(&mut self, slots: &mut ObjectSlots<'s>) -> Result<(), EngineError> {
        self.objects
            .load_more(slots, &[Program::AvcSyscall].into())?;
        // In the order of `enum wire_abi`.
        let calls = [Arch::X86_64, Arch::I386].into_iter().flat_map(|arch| {
            let numbers = (0..abi::SYSCALLS).map(Syscall);
            numbers.map(move |syscall| SyscallId { arch, syscall })
        });
        let shapes: Vec<[WireShape; abi::OBJECTS]> = calls.map(objects::wire_shapes).collect();
        let own = &self.objects.first().maps;
        maps::update_batch("tlg_shapes", &own.tlg_shapes, 0, &shapes)?;
        let program = self.program(Program::AvcSyscall)?;
        let link =
            attach::attach_raw_tracepoint(program, None).map_err(|source| EngineError::Attach {
                program: program.name().to_string_lossy().into_owned(),
                hook: "`audit_log_start`".to_owned(),
                source: source.into(),
            })?;
        self.avc = Some(link);
        Ok(())
    }

    /// Whether there is an area on each CPU in which such a call can be built.
    pub(super) fn has_avc_scratch(&self) -> bool {
        let own = &self.objects.first().maps;
        own.tlg_avc_scratch.max_entries() == own.tlg_scratch.max_entries()
    }
}
