//! Programs that previous daemons loaded and pinned and that stay attached.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::ProgramMut;

use crate::handover::pins::PinDirectory;
use crate::hooks::program::Program;
use crate::stats::{self, ProgramRuns};

/// Prefix of the pins of programs other than stub copies: `prog-ID-NAME`.
pub(crate) const PROGRAM_PREFIX: &str = "prog-";

/// Name of the program that records which process is not audited.
const REGISTER: &str = "daemon_register";

impl PinDirectory {
    /// Exempts this process from auditing by the pinned programs of a previous daemon, before it takes them over.
    ///
    /// # Errors
    /// When a pinned program cannot be opened or run.
    pub fn exempt_daemon(&self) -> io::Result<()> {
        for name in self.names(PROGRAM_PREFIX)? {
            let name = format!("{PROGRAM_PREFIX}{name}");
            if program_name(&name) == REGISTER {
                self.run_pinned(&name)?;
            }
        }
        Ok(())
    }
}

/// A program of a previous daemon. The kernel counts recursion misses in it.
pub(crate) struct InheritedProgram {
    name: String,
    program: OwnedFd,
}

impl InheritedProgram {
    /// Opens the programs that [`pin`] pinned. Removes the pins of programs that are unused and have no
    /// recursion misses, so that their number does not grow with each daemon. `used` are the ids of the
    /// programs of links and tail calls.
    ///
    /// # Errors
    /// When the directory or a pin cannot be opened.
    pub(crate) fn collect(pins: &PinDirectory, used: &BTreeSet<u32>) -> io::Result<Vec<Self>> {
        let mut inherited = Vec::new();
        for name in pins.names(PROGRAM_PREFIX)? {
            let name = format!("{PROGRAM_PREFIX}{name}");
            let program = pins.get(&name)?;
            let in_use = stats::program_id(&program).is_none_or(|id| used.contains(&id));
            // A program whose pin cannot be removed is kept.
            let inherits = Self { name, program };
            if in_use || inherits.recursion_misses() != 0 || pins.remove(&inherits.name).is_err() {
                inherited.push(inherits);
            }
        }
        Ok(inherited)
    }

    /// Id of this program.
    pub(crate) fn id(&self) -> Option<u32> {
        stats::program_id(&self.program)
    }

    /// How often the kernel skipped this program; 0 if it may be skipped.
    pub(crate) fn recursion_misses(&self) -> u64 {
        match Program::from_name(program_name(&self.name)) {
            Some(program) if program.may_be_skipped() => 0,
            _ => stats::recursion_misses(&self.program),
        }
    }

    /// Run count and time of this program; `None` when it has none.
    pub(crate) fn runs(&self) -> Option<ProgramRuns> {
        stats::runs(&program_name(&self.name), &self.program)
    }
}

/// Pins a program, if it is not pinned yet.
///
/// # Errors
/// The name of the pin, and the error number.
pub(crate) fn pin(
    pins: &PinDirectory,
    program: &ProgramMut<'_>,
) -> Result<(), (String, io::Error)> {
    let Some(id) = stats::program_id(program) else {
        return Ok(());
    };
    let name = format!("{PROGRAM_PREFIX}{id}-{}", program.name().display());
    if pins.contains(&name) {
        return Ok(());
    }
    pins.pin(&name, program).map_err(|error| (name, error))
}

/// Name of the program, from the name of its pin.
fn program_name(pin: &str) -> &str {
    pin.splitn(3, '-').last().unwrap_or(pin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_is_parsed_from_pin_name() {
        assert_eq!(program_name("prog-17-tlg_tail_exit"), "tlg_tail_exit");
        assert_eq!(program_name("prog-17"), "17");
    }
}
