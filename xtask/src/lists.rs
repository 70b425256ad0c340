//! `cargo xtask lists`: random rule lists on the running kernel with the tracepoint engine. `cargo xtask vm
//! --lists` runs them on Debian's kernels.
//!
//! The program that runs them is `/init` of the test machines, invoked as `vm lists`.

use std::error::Error;
use std::process::{Command, ExitCode};

use crate::Outcome;
use crate::repository::Repository;
use crate::rerun::rerun_failed;
use crate::step::{print_output, succeeds};
use crate::test_results::TestResults;
use crate::vm;

/// The default lists: they use the kernel's audit for some seconds.
const DEFAULT: &str = "1:0:40";

/// What a line of a failure starts with; see `tests/vm/src/suite.rs`.
const FAILURE: &str = "vm: FAIL ";

/// Builds the programs and runs lists: `SEED:FIRST:COUNT`.
///
/// # Errors
/// If a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let lists = match arguments {
        [] => DEFAULT,
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

/// Runs the default lists, as a step of a longer command that has made the release build.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn test(
    repository: &Repository,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    let run = || {
        let mut results = TestResults::default();
        let mut failures = Vec::new();
        let passed = print_output(&mut command(repository, DEFAULT), |line| {
            failures.extend(line.strip_prefix(FAILURE).map(str::to_owned));
        })?;
        if passed {
            results.pass();
        } else {
            results.fail(&format!("{DEFAULT}: {}", failures.join(" | ")));
        }
        Ok(results)
    };
    tests.add(run()?);
    rerun_failed(tests, |_| run());
    Ok(tests.tally.failed == 0)
}

fn command(repository: &Repository, lists: &str) -> Command {
    let release = repository.target().join("release");
    let mut command = Command::new(release.join("vm"));
    command.args(["lists", lists]).arg(release.join("tollgate"));
    command
}
