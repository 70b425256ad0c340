//! Checks whether the kernel can skip the programs of an engine.

use super::Engine;
use crate::engine_kind::EngineKind;
use crate::error::EngineError;
use crate::hooks::attach_point::{AttachPoint, AttachTarget};
use crate::hooks::hook::KernelFeatures;
use crate::hooks::kernel_probe::KernelProbe;
use crate::load::GuardForm;
use crate::preemption::{self, Preemption, SkipRisk, SkippablePrograms, TracepointKinds};
use crate::sys::priority::RealTime;

impl Engine<'_> {
    /// What the kernel offers to the hooks, as when they were selected.
    #[must_use]
    pub const fn kernel(&self) -> KernelFeatures {
        self.selection.kernel()
    }

    /// Returns the programs that the kernel can skip in its current preemption mode, which root can change
    /// (`/sys/kernel/debug/sched/preempt`). [`Engine::read_clock`] reads the mode.
    #[must_use]
    pub fn skip_risk(&self) -> Option<SkipRisk> {
        self.skip_risk_of(self.links.keys())
    }

    /// Preemption mode of the kernel when [`Engine::read_clock`] ran last.
    pub(super) fn preemption(&self) -> Preemption {
        Preemption::from_mode(self.globals.preemption_mode(), self.preemption)
    }

    /// Whether the kernel can stop or skip the programs later, so that [`Engine::programs_run`] and
    /// [`Engine::skip_risk`] must be called again from time to time.
    #[must_use]
    pub fn can_stop(&self) -> bool {
        let all_raw = self.kernel().skips_single_syscalls;
        self.kind.is_on_functions()
            || preemption::has_skippable_tracepoints(self.preemption, all_raw)
    }

    /// Whether the engine has the hooks that it would select in the kernel's present preemption mode.
    /// [`Engine::read_clock`] reads the mode.
    #[must_use]
    pub fn fits_preemption(&self) -> bool {
        let skips = preemption::skips_single_syscalls(self.preemption(), self.preemption);
        self.kind != EngineKind::Tracepoint || self.kernel().skips_single_syscalls == skips
    }

    fn skip_risk_of<'a>(
        &self,
        attached: impl IntoIterator<Item = &'a AttachPoint>,
    ) -> Option<SkipRisk> {
        let mut tracepoints = TracepointKinds::default();
        for attach_point in attached {
            tracepoints.ordinary |= !attach_point.target.is_syscall();
            tracepoints.single_syscall |=
                matches!(attach_point.target, AttachTarget::Tracepoint(_));
        }
        preemption::skip_risk(self.kind, self.preemption(), self.preemption, tracepoints)
    }

    /// Refuses programs on kernel functions that the kernel can skip, whichever engine runs beside them.
    pub(super) fn check_function_programs(&self) -> Result<(), EngineError> {
        let facts = self.preemption;
        let mode = self.preemption();
        match preemption::skip_risk(EngineKind::Fentry, mode, facts, TracepointKinds::default()) {
            Some(risk) => Err(EngineError::Preempts {
                kind: EngineKind::Fentry,
                risk,
            }),
            None => Ok(()),
        }
    }

    /// A time in which this thread is not preempted by ordinary ones, on the engine `lsm`: while a thread reads or writes
    /// an element of a map by `bpf(2)`, the kernel skips kprobes on its CPU.
    ///
    /// # Source
    /// `bpf_map_copy_value()` and `bpf_map_update_value()` in `kernel/bpf/syscall.c`, v7.0, call
    /// `bpf_disable_instrumentation()`.
    pub(super) fn begin_map_accesses(&self) -> Option<RealTime> {
        (self.kind == EngineKind::Lsm).then(RealTime::begin)
    }

    /// What guard programs must be: LSM programs where the kernel can skip programs on functions.
    ///
    /// # Errors
    /// [`EngineError::Preempts`] when LSM programs would not run either.
    pub(super) fn guard_form(&self, probe: &KernelProbe) -> Result<GuardForm, EngineError> {
        match self.check_function_programs() {
            Ok(()) => Ok(GuardForm::OnFunctions),
            Err(_) if probe.has_bpf_lsm => Ok(GuardForm::Lsm),
            Err(error) => Err(error),
        }
    }

    /// Refuses programs that the kernel can skip, unless [`crate::EngineOptions::allow_loss`] accepts that. Those on
    /// tracepoints of single syscalls can be skipped only if the mode has changed since their engine started, which
    /// must not stop a replacement of its rules.
    pub(super) fn check_preemption<'a>(
        &self,
        attached: impl IntoIterator<Item = &'a AttachPoint>,
    ) -> Result<(), EngineError> {
        match self.skip_risk_of(attached) {
            Some(risk) if self.refuses(risk) => Err(EngineError::Preempts {
                kind: self.kind,
                risk,
            }),
            _ => Ok(()),
        }
    }

    fn refuses(&self, risk: SkipRisk) -> bool {
        !self.allow_loss && risk.programs != SkippablePrograms::SyscallTracepoints
    }
}
