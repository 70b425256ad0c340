//! `cargo xtask lists`: random rule lists on the running kernel, with the engine on tracepoints. `cargo
//! xtask vm --lists` runs them on Debian's kernels.
//!
//! The program that does it is the first process of the test machines, told to do this one thing.

use std::error::Error;
use std::process::{Command, ExitCode};

use crate::Outcome;
use crate::repository::Repository;
use crate::step::{Tally, succeeds};
use crate::vm;

/// What is run where nothing is asked for: the kernel's audit is used for some seconds.
const FEW: &str = "1:0:40";

/// Builds what is needed, and runs lists: `SEED:FIRST:COUNT`.
///
/// # Errors
/// When a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let lists = match arguments {
        [] => FEW,
        [lists] => lists,
        _ => return Err("usage: lists [SEED:FIRST:COUNT]".into()),
    };
    let passed = vm::build(repository)? && succeeds(&mut command(repository, lists))?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A few lists, as a step of a longer chore that has made the release build.
///
/// # Errors
/// When the program cannot be started.
pub(crate) fn test(repository: &Repository, tests: &mut Tally) -> Result<bool, Box<dyn Error>> {
    let passed = succeeds(&mut command(repository, FEW))?;
    tests.passed += u32::from(passed);
    tests.failed += u32::from(!passed);
    Ok(passed)
}

fn command(repository: &Repository, lists: &str) -> Command {
    let release = repository.target().join("release");
    let mut command = Command::new(release.join("vm"));
    command.args(["lists", lists]).arg(release.join("tollgate"));
    command
}
