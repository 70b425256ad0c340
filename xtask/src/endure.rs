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

/// Builds what is needed, and runs the tests, or those whose name holds the argument. No such test, or one
/// that is skipped, is a failure.
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
    Ok(if passed && were_run(tests) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether there were tests and none was skipped: who asks for them wants to know what grows.
const fn were_run(tests: Tally) -> bool {
    tests.passed > 0 && tests.failed == 0 && tests.skipped == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_run_is_no_success() {
        let verdict = |passed, failed, skipped| {
            were_run(Tally {
                passed,
                failed,
                skipped,
            })
        };
        assert!(verdict(2, 0, 0));
        assert!(!verdict(0, 0, 0), "no test has such a name");
        assert!(!verdict(0, 0, 2), "without root");
        assert!(!verdict(1, 1, 0));
    }
}
