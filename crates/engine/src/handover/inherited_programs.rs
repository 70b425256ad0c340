//! Programs of daemons before this one, which go on where they are.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::ProgramMut;

use crate::handover::pins::PinDirectory;
use crate::stats::{self, ProgramRuns};

/// What names of programs begin with that are no copies; behind it comes their number, and their own name.
const PROGRAM_PREFIX: &str = "prog-";

/// A program of a daemon before this one: the kernel counts on it what it skips.
pub(crate) struct InheritedProgram {
    name: String,
    program: OwnedFd,
}

impl InheritedProgram {
    /// What was pinned by [`pin`]. What nothing runs any more and what was never skipped loses its name, and
    /// with it ends, so that their number does not grow with each daemon. `used` are the numbers of those
    /// that links run and stubs jump to.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn collect(pins: &PinDirectory, used: &BTreeSet<u32>) -> io::Result<Vec<Self>> {
        let mut inherited = Vec::new();
        for name in pins.names(PROGRAM_PREFIX)? {
            let name = format!("{PROGRAM_PREFIX}{name}");
            let program = pins.get(&name)?;
            let runs = stats::program_id(&program).is_none_or(|number| used.contains(&number));
            // A name that cannot be taken away is one more to count.
            if runs || stats::recursion_misses(&program) != 0 || pins.remove(&name).is_err() {
                inherited.push(Self { name, program });
            }
        }
        Ok(inherited)
    }

    /// How often the kernel skipped it.
    pub(crate) fn recursion_misses(&self) -> u64 {
        stats::recursion_misses(&self.program)
    }

    /// What the kernel has counted of it.
    pub(crate) fn runs(&self) -> Option<ProgramRuns> {
        stats::runs(&program_name(&self.name), &self.program)
    }
}

/// Has a program outlive this process, if it does not yet.
///
/// # Errors
/// The name, and what the kernel answers.
pub(crate) fn pin(
    pins: &PinDirectory,
    program: &ProgramMut<'_>,
) -> Result<(), (String, io::Error)> {
    let Some(number) = stats::program_id(program) else {
        return Ok(());
    };
    let name = format!("{PROGRAM_PREFIX}{number}-{}", program.name().display());
    if pins.contains(&name) {
        return Ok(());
    }
    pins.pin(&name, program).map_err(|error| (name, error))
}

/// The name that a program has in its object.
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
