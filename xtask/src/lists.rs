//! `cargo xtask lists`: random rule lists on the running kernel with the tracepoint engine. `cargo xtask vm
//! --lists` runs them on Debian's kernels.

use std::error::Error;
use std::process::ExitCode;

use crate::Outcome;
use crate::on_host;
use crate::repository::Repository;
use crate::step::succeeds;
use crate::test_results::TestResults;
use crate::vm;

/// The default lists: they use the kernel's audit for some seconds.
const DEFAULT: &str = "1:0:40";

/// The name of the test in `tests/vm`.
const TEST: &str = "lists";

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
    let passed =
        vm::build(repository)? && succeeds(&mut on_host::command(repository, TEST, lists))?;
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
    on_host::run(repository, TEST, DEFAULT, tests)
}
