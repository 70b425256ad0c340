//! `cargo xtask golden`: rewrites every expected and generated file, for review with `git diff`.
//!
//! Tests compare these files; with `TOLLGATE_GOLDEN=write` they write them first. If the program has not changed,
//! no file changes. Samples of a benchmark are no expected files: `docs/bench` is rendered again from them.
//! `tests/golden/auditctl/answers.tsv` is written by hand: it has the answers of two versions of
//! `auditctl`, one of which is not in Debian 12.

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, ExitCode, Stdio};

use crate::Outcome;
use crate::demo;
use crate::e2e;
use crate::repository::Repository;
use crate::step::{StepReport, run_selected_tests, succeeds};
use crate::tables;
use crate::test_results::TestResults;
use crate::vm;

/// Makes tests write their expected files.
const WRITE: (&str, &str) = ("TOLLGATE_GOLDEN", "write");

/// Runs every generator.
///
/// # Errors
/// If `/proc/self` cannot be read.
pub(crate) fn run(repository: &Repository, _: &[String]) -> Outcome {
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let mut report = StepReport::new();
    report.step("number tables", |_| succeeded(tables::run(repository, &[])));
    report.step("tests/golden/records", |tests| {
        let arguments = [
            "test",
            "--locked",
            "--package",
            "audit",
            "--test",
            "records",
        ];
        write(&mut repository.cargo(&arguments), tests)
    });
    report.step("man", |tests| {
        let arguments = [
            "test",
            "--locked",
            "--package=tollgate",
            "--package=bench",
            "--package=search",
            "--package=top",
            "--bins",
            "manual",
        ];
        write(&mut repository.cargo(&arguments), tests)
    });
    report.step("tests/golden/top, docs/top.svg", |tests| {
        let arguments = ["test", "--locked", "--package=top", "--bins", "tests::"];
        write(&mut repository.cargo(&arguments), tests)
    });
    report.step(
        "man of ausearch, report, detect, ship and collect",
        |tests| {
            let arguments = [
                "test",
                "--locked",
                "--package=ausearch",
                "--package=detect",
                "--package=ship",
                "--lib",
                "manual",
            ];
            write(&mut repository.cargo(&arguments), tests)
        },
    );
    report.step("tests/golden/auditctl/rules", |tests| {
        if !is_root {
            tests.skip("running auditctl needs root");
            return Ok(true);
        }
        let arguments = ["test", "--locked", "--package=audit", "--test=auditctl"];
        let mut command = repository.cargo(&arguments);
        write(command.arg("rule_files_are_answered"), tests)
    });
    report.step("release build", |_| vm::build(repository));
    report.step("tests/golden/auditd", |tests| {
        if is_root {
            write(e2e::command(repository).args(["--", "recorded::"]), tests)
        } else {
            tests.skip("running auditd needs root");
            Ok(true)
        }
    });
    report.step("docs/bench", |_| {
        let bench = repository.target().join("release/tollgate-bench");
        let mut command = repository.command(bench);
        // The samples stay: `docs/bench.md` says how to measure again.
        let words = ["--render", "docs/bench/report.json", "--out", "docs/bench"];
        succeeds(command.args(words).stdout(Stdio::null()))
    });
    report.step("docs/demo.svg", |_| succeeded(demo::run(repository, &[])));
    report.step("docs/kernels.md", |_| {
        // The record stays: `cargo xtask kernels` boots the kernels again.
        succeeded(vm::kernels(repository, &["--page".to_owned()]))
    });
    report.step("docs/instructions.md", |tests| {
        if let Some(reason) = vm::missing_requirement() {
            tests.skip(&reason);
            return Ok(true);
        }
        succeeded(vm::count(repository, &[]))
    });
    println!("{}", report.summary("golden"));
    Ok(if report.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs tests that write their expected files. Each test program must run a test: a filter that matches none
/// would leave the files as they are.
fn write(command: &mut Command, tests: &mut TestResults) -> Result<bool, Box<dyn Error>> {
    let (name, value) = WRITE;
    run_selected_tests(command.env(name, value), tests)
}

fn succeeded(outcome: Outcome) -> Result<bool, Box<dyn Error>> {
    Ok(outcome? == ExitCode::SUCCESS)
}
