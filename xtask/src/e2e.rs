//! `cargo xtask test`: the steps of `check`, then the end-to-end tests, some random rule lists and random programs as root,
//! then the tests on other kernels.
//!
//! A failed end-to-end test or test on another kernel is run once more, alone: `rerun.rs`.
//!
//! Standard output ends with the failed, unstable and skipped tests and `N passed, N failed, N skipped` of all tests.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, ExitCode};

use crate::Outcome;
use crate::check;
use crate::hunt;
use crate::lists;
use crate::repository::{Repository, is_ci};
use crate::rerun::rerun_failed;
use crate::step::{StepReport, run_selected_tests, run_tests, succeeds};
use crate::test_results::TestResults;
use crate::vm::{self, BackgroundBuild};

/// Names the program under test to the end-to-end tests.
const PROGRAM_VARIABLE: &str = "TOLLGATE_BIN";

/// Runs all tests that this user may run.
///
/// # Errors
/// If `/proc/self` cannot be read.
pub(crate) fn run(repository: &Repository, _: &[String]) -> Outcome {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let ci = env::var_os("CI");
    let mut report = StepReport::new();

    // Compiles while the unit tests run.
    let build = BackgroundBuild::start(repository);
    check::steps(repository, &mut report);
    report.step("release build", |_| build?.finish());
    if is_root {
        report.step("restore the audit state", |_| restore(repository));
        report.step("end to end", |tests| end_to_end(repository, tests));
        report.step("rule lists", |tests| lists::test(repository, tests));
        report.step("random programs", |tests| hunt::test(repository, tests));
    } else {
        report.step("end to end", |tests| {
            tests.skip("all: loading BPF programs needs root");
            Ok(true)
        });
    }
    report.step("other kernels", |tests| vm::test(repository, tests));

    println!("{}", report.summary("test"));
    let accepted = report.is_success() && accepts_skipped(ci.as_deref(), &report.tests);
    if report.is_success() && !accepted {
        println!("a skipped test is a failure where CI=true");
    }
    println!("{}", report.tests.tally);
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What a skipped test says that needs files which are not part of this repository.
const OUTSIDE_FILES: &str = "../shared/";

/// Whether skipped tests are accepted: a developer may lack root or a package, CI may not. Checks of files outside
/// the repository are extra everywhere.
fn accepts_skipped(ci: Option<&OsStr>, tests: &TestResults) -> bool {
    let is_extra = |skip: &&String| skip.contains(OUTSIDE_FILES);
    let extra = tests.skips.iter().filter(is_extra).count();
    usize::try_from(tests.tally.skipped) == Ok(extra) || !is_ci(ci)
}

/// Restores the kernel's audit after a killed benchmark, which leaves it as measured and a file with the state
/// before. Many tests need the kernel's audit unused.
fn restore(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    succeeds(Command::new(repository.target().join("release/tollgate-bench")).arg("--restore"))
}

fn end_to_end(repository: &Repository, tests: &mut TestResults) -> Result<bool, Box<dyn Error>> {
    if run_tests(&mut command(repository), tests)? {
        return Ok(true);
    }
    rerun_failed(tests, |name| {
        let mut again = TestResults::default();
        let mut command = command(repository);
        // The results tell whether it passed.
        let _success = run_selected_tests(command.args(["--", "--exact", name]), &mut again)?;
        Ok(again)
    });
    Ok(tests.tally.failed == 0 && !tests.unstable.is_empty())
}

/// The command that runs the end-to-end tests with the release build. With `--workspace`, dependencies have the
/// same features as in the unit tests and are not compiled again.
pub(crate) fn command(repository: &Repository) -> Command {
    let arguments = ["test", "--locked", "--workspace", "--test", "e2e"];
    let mut command = repository.cargo(&arguments);
    command.env(
        PROGRAM_VARIABLE,
        repository.target().join("release/tollgate"),
    );
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_fail_in_ci_only() {
        let mut complete = TestResults::default();
        complete.pass();
        let mut skipped = complete.clone();
        skipped.skip("a: needs auparse.h");
        let mut extra = complete.clone();
        extra.skip("b: no public rule sets in ../shared/rulesets");
        let ci = Some(OsStr::new("true"));
        assert!(accepts_skipped(ci, &extra));
        extra.skip("a: needs auparse.h");
        assert!(!accepts_skipped(ci, &extra));
        assert!(accepts_skipped(None, &skipped));
        assert!(accepts_skipped(Some(OsStr::new("false")), &skipped));
        assert!(!accepts_skipped(ci, &skipped));
        assert!(accepts_skipped(ci, &complete));
    }
}
