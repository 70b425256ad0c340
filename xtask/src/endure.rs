//! `cargo xtask endure`: the end-to-end tests of endurance in their long form, and what grew meanwhile.

use std::process::ExitCode;

use crate::Outcome;
use crate::e2e;
use crate::repository::Repository;
use crate::step::{Tally, run_tests};
use crate::vm;

/// Makes these tests long, and has them show what the daemon holds.
const LONG: &str = "TOLLGATE_ENDURE";
/// What their names begin with.
const TESTS: &str = "endure::";

/// Builds what is needed, and runs the tests, or those whose name holds the argument.
///
/// # Errors
/// When a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let filter = match arguments {
        [] => TESTS,
        [filter] if filter.starts_with(TESTS) => filter,
        _ => return Err(format!("usage: endure [{TESTS}NAME]").into()),
    };
    let mut tests = Tally::default();
    let passed = vm::build(repository)? && {
        let mut command = e2e::command(repository);
        command.args(["--", filter]).env(LONG, "1");
        run_tests(&mut command, &mut tests)?
    };
    println!("{tests}");
    Ok(if passed && tests.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
