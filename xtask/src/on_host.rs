//! The tests of `tests/vm` that also run on the host, with the tracepoint engine: the program that is `/init` of the
//! test machines, invoked as `vm TEST ARGUMENT`.

use std::error::Error;
use std::process::Command;

use crate::repository::Repository;
use crate::rerun::rerun_failed;
use crate::step::print_output;
use crate::test_results::TestResults;

/// What a line of a failure starts with; see `tests/vm/src/suite.rs`.
const FAILURE: &str = "vm: FAIL ";

/// The command of a test. The release build must exist.
pub(crate) fn command(repository: &Repository, test: &str, argument: &str) -> Command {
    let release = repository.target().join("release");
    let mut command = Command::new(release.join("vm"));
    command.args([test, argument]).arg(release.join("tollgate"));
    command
}

/// Runs a test, as a step of a longer command; once more if it fails.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn run(
    repository: &Repository,
    test: &str,
    argument: &str,
    tests: &mut TestResults,
) -> Result<bool, Box<dyn Error>> {
    let run = || {
        let mut results = TestResults::default();
        let mut failures = Vec::new();
        let passed = print_output(&mut command(repository, test, argument), |line| {
            failures.extend(line.strip_prefix(FAILURE).map(str::to_owned));
        })?;
        if passed {
            results.pass();
        } else {
            results.fail(&format!("{test} {argument}: {}", failures.join(" | ")));
        }
        Ok(results)
    };
    tests.add(run()?);
    rerun_failed(tests, |_| run());
    Ok(tests.tally.failed == 0)
}
