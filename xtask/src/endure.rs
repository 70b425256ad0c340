//! `cargo xtask endure`: the long form of the endurance tests, with the growth of memory and files.

use std::process::ExitCode;

use crate::Outcome;
use crate::e2e;
use crate::repository::Repository;
use crate::step::run_tests;
use crate::test_results::{Tally, TestResults};
use crate::vm;

/// Selects the long form, which prints the daemon's memory and files.
const LONG: &str = "TOLLGATE_ENDURE";
/// Prefix of the tests' names.
const TESTS: &str = "endure::";

/// Builds the programs and runs the endurance tests, or those whose name contains the argument. Fails if no
/// test matches or one is skipped.
///
/// # Errors
/// If a tool cannot be started.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let filter = match arguments {
        [] => TESTS,
        [filter] if filter.starts_with(TESTS) => filter,
        _ => return Err(format!("usage: endure [{TESTS}NAME]").into()),
    };
    let mut tests = TestResults::default();
    let passed = vm::build(repository)? && {
        let mut command = e2e::command(repository);
        command.args(["--", filter]).env(LONG, "1");
        run_tests(&mut command, &mut tests)?
    };
    println!("{}{}", tests.listing(), tests.tally);
    Ok(if passed && were_run(tests.tally) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether tests ran, and none failed or was skipped.
const fn were_run(tests: Tally) -> bool {
    tests.passed > 0 && tests.failed == 0 && tests.skipped == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_tests_fails() {
        let is_success = |passed, failed, skipped| {
            were_run(Tally {
                passed,
                failed,
                skipped,
            })
        };
        assert!(is_success(2, 0, 0));
        assert!(!is_success(0, 0, 0), "no matching test");
        assert!(!is_success(0, 0, 2), "without root");
        assert!(!is_success(1, 1, 0));
    }
}
