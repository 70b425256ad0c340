//! Attaching the programs of a plan.

use std::io;

use super::Engine;
use crate::attach::kprobe::FunctionNames;
use crate::attach::{self, Links};
use crate::error::EngineError;
use crate::handover::inherited_programs::InheritedProgram;
use crate::hooks::attach_point::{AttachPointFinder, AttachPoints};
use crate::hooks::hook::Hook;
use crate::hooks::program::Program;
use crate::stats;

impl<'s> Engine<'s> {
    /// Ids of the programs, loaded by this daemon or a previous one. Makes a system call for each.
    pub fn program_ids(&self) -> impl Iterator<Item = u32> {
        let loaded = self.objects.programs().filter_map(stats::program_id);
        let copies = self.links.values().filter_map(|link| link.copy.as_ref());
        let copies = copies.filter_map(|copy| stats::program_id(&copy.program));
        let inherited = self.inherited.iter().filter_map(InheritedProgram::id);
        loaded.chain(copies).chain(inherited)
    }

    /// Whether a hook has its programs, including those that wait to be detached.
    pub(super) fn is_attached(
        &self,
        hook: Hook,
        finder: &AttachPointFinder<'_>,
    ) -> Result<bool, EngineError> {
        let attach_points = finder.find(hook)?;
        Ok(attach_points.iter().any(|attach_point| {
            self.links.contains_key(attach_point) || self.detacher.holds(*attach_point)
        }))
    }

    /// Attaches programs at the attach points that have none. On failure, detaches those it attached.
    pub(super) fn attach(&mut self, attach_points: &AttachPoints) -> Result<Links, EngineError> {
        // Detaching and attaching wait for the same lock of the kernel.
        let _paused = self.detacher.pause();
        let mut new = Links::default();
        let names = FunctionNames::default();
        for (&attach_point, &hook) in &attach_points.hooks {
            if self.links.contains_key(&attach_point) {
                continue;
            }
            let link = match self.detacher.cancel(attach_point) {
                Some(link) => {
                    // Its misses are counted with the link again.
                    self.detached_misses =
                        self.detached_misses.saturating_sub(link.recursion_misses());
                    self.checkpoint.set_detached_misses(self.detached_misses);
                    Ok(link)
                }
                None => self.program(attach_point.program).and_then(|program| {
                    attach::attach(program, attach_point, hook, self.kprobes, &names)
                }),
            };
            let link = link.and_then(|link| {
                if let Some(pins) = &self.pins {
                    link.pin(pins, attach_point)
                        .map_err(|source| EngineError::Pin {
                            what: attach_point.to_string(),
                            source,
                        })?;
                }
                Ok(link)
            });
            match link {
                Ok(link) => {
                    new.insert(attach_point, link);
                }
                Err(error) => {
                    self.detacher.detach(new);
                    return Err(error);
                }
            }
        }
        Ok(new)
    }

    /// A loaded program.
    pub(super) fn program(
        &self,
        program: Program,
    ) -> Result<&libbpf_rs::ProgramMut<'s>, EngineError> {
        let found = self.objects.find(program);
        found.ok_or_else(|| {
            EngineError::system("find a program")(io::Error::other(format!(
                "{program:?} is not loaded"
            )))
        })
    }
}
