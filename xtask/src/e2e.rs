//! `cargo xtask test`: everything that `check` runs, then the end-to-end tests and some random rule lists
//! as root, then the tests on other kernels.
//!
//! The last line on standard output is `N passed, N failed, N skipped`, over all tests.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, ExitCode};

use crate::Outcome;
use crate::check;
use crate::lists;
use crate::repository::Repository;
use crate::step::{Report, Tally, run_tests, succeeds};
use crate::vm;

/// Tells the end-to-end tests which program to test.
const PROGRAM_VARIABLE: &str = "TOLLGATE_BIN";

/// Runs all tests that this user may run.
///
/// # Errors
/// When the kernel does not say who this is.
pub(crate) fn run(repository: &Repository, _: &[String]) -> Outcome {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let ci = env::var_os("CI");
    let mut report = Report::new();

    check::steps(repository, &mut report);
    report.step("release build", |_| vm::build(repository));
    if is_root {
        report.step("what a killed benchmark left", |_| put_back(repository));
        report.step("end to end", |tests| end_to_end(repository, tests));
        report.step("rule lists", |tests| lists::test(repository, tests));
    } else {
        println!("==> end to end\n    skipped: loading BPF programs needs root");
        report.tests.skipped += 1;
    }
    report.step("other kernels", |tests| vm::test(repository, tests));

    println!("{}", report.verdict("test"));
    let accepted = report.is_success() && accepts_skipped(ci.as_deref(), report.tests);
    if report.is_success() && !accepted {
        println!("a skipped test is a failure where CI=true");
    }
    println!("{}", report.tests);
    Ok(if accepted {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A developer may lack root or a package; the machine that guards the branch may not.
fn accepts_skipped(ci: Option<&OsStr>, tests: Tally) -> bool {
    tests.skipped == 0 || ci.is_none_or(|value| value != "true")
}

/// A benchmark that was killed leaves the kernel's audit as it was measured, with a note of what it was. Many
/// tests need an audit that nobody uses.
fn put_back(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    succeeds(Command::new(repository.target().join("release/tollgate-bench")).arg("--restore"))
}

fn end_to_end(repository: &Repository, tests: &mut Tally) -> Result<bool, Box<dyn Error>> {
    run_tests(&mut command(repository), tests)
}

/// What runs the end-to-end tests with the release build.
pub(crate) fn command(repository: &Repository) -> Command {
    let arguments = ["test", "--locked", "--package", "tollgate", "--test", "e2e"];
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
    fn skipping_is_a_failure_in_ci_only() {
        let skipped = Tally {
            passed: 3,
            failed: 0,
            skipped: 1,
        };
        let complete = Tally {
            passed: 3,
            failed: 0,
            skipped: 0,
        };
        assert!(accepts_skipped(None, skipped));
        assert!(accepts_skipped(Some(OsStr::new("false")), skipped));
        assert!(!accepts_skipped(Some(OsStr::new("true")), skipped));
        assert!(accepts_skipped(Some(OsStr::new("true")), complete));
    }
}
