//! Counters of a running engine.

use super::Engine;
use crate::attach;
use crate::attach::AttachedLink;
use crate::epoch::Epoch;
use crate::handover::inherited_programs::InheritedProgram;
use crate::hooks::kernel_probe;
use crate::stats::owner_losses::OwnerLosses;
use crate::stats::{self, EngineStats, ProgramRuns};

impl Engine<'_> {
    /// Counters of the programs since the start, without [`crate::LossReason::Skipped`]. Makes no system call.
    #[must_use]
    pub fn program_stats(&self) -> EngineStats {
        self.since_start(self.counters.sum())
    }

    fn since_start(&self, counted: EngineStats) -> EngineStats {
        let mut stats = counted - self.baseline;
        stats += self.followed;
        stats
    }

    /// Events of a rule of the active or the previous plan that were lost because the ring was full.
    #[must_use]
    pub fn rule_drops(&self, epoch: Epoch, rule: usize) -> u64 {
        self.rule_drops.get(epoch, rule)
    }

    /// Events that were lost because the ring was full, by owner. The result must not outlive the engine.
    #[must_use]
    pub const fn owner_losses(&self) -> OwnerLosses {
        self.owner_losses
    }

    /// Counters since the start. Makes a system call for each program.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.counters.sum();
        if let Some(skipped) = stats.lost.get_mut(stats::SKIPPED) {
            let inherited: u64 = self
                .inherited
                .iter()
                .map(InheritedProgram::recursion_misses)
                .sum();
            *skipped += self.detached_misses
                + attach::recursion_misses(&self.links)
                + self.objects.recursion_misses();
            *skipped += inherited;
            *skipped = skipped.saturating_sub(self.globals.rescued());
        }
        self.since_start(stats)
    }

    /// Run counts of each program; empty unless `kernel.bpf_stats_enabled` is 1. Makes a system call for each
    /// program.
    #[must_use]
    pub fn run_counts(&self) -> Vec<ProgramRuns> {
        if !kernel_probe::bpf_stats_enabled() {
            return Vec::new();
        }
        let copies = self.links.values().filter_map(AttachedLink::runs);
        let inherited = self.inherited.iter().filter_map(InheritedProgram::runs);
        stats::sum_by_hook(self.objects.runs().chain(copies).chain(inherited))
    }
}
