//! `cargo xtask check`, which must pass before each commit, and `cargo xtask fmt`.

use std::error::Error;
use std::process::ExitCode;
use std::thread;

use crate::Outcome;
use crate::bpf_headers;
use crate::repository::Repository;
use crate::step::{StepReport, run_tests, succeeds};
use crate::test_results::TestResults;
use crate::tidy;

/// Debian 12's plain `clang-format` is version 14, which formats differently.
const CLANG_FORMAT: &str = "clang-format-19";

/// Runs every step that needs no root.
///
/// # Errors
/// Never: a step that cannot run has failed.
pub(crate) fn run(repository: &Repository, _: &[String]) -> Outcome {
    let mut report = StepReport::new();
    steps(repository, &mut report);
    println!("{}", report.summary("check"));
    println!("{}", report.tests.tally);
    Ok(if report.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The steps, the fastest first.
pub(crate) fn steps(repository: &Repository, report: &mut StepReport) {
    report.step("rustfmt", |_| {
        succeeds(&mut repository.cargo(&["fmt", "--all", "--check"]))
    });
    report.step("clang-format", |_| {
        clang_format(repository, &["--dry-run", "--Werror"])
    });
    report.step("bpf headers", |_| bpf_headers::compile_alone(repository));
    report.step("tidy", |_| tidy::holds(repository));
    report.step("clippy", |_| clippy(repository));
    report.step("tests", |tests| unit_tests(repository, tests));
}

/// Formats the Rust and the C in place.
///
/// # Errors
/// If a formatter cannot be started.
pub(crate) fn format(repository: &Repository, _: &[String]) -> Outcome {
    let rust = succeeds(&mut repository.cargo(&["fmt", "--all"]))?;
    let c = clang_format(repository, &["-i"])?;
    Ok(if rust && c {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn clang_format(repository: &Repository, options: &[&str]) -> Result<bool, Box<dyn Error>> {
    let sources = repository.c_sources()?;
    if sources.is_empty() {
        // Without a file name, clang-format reads standard input.
        return Ok(true);
    }
    succeeds(repository.command(CLANG_FORMAT).args(options).args(sources))
}

/// `--all-targets` leaves out the end-to-end tests: their manifest has `test = false`, because a plain
/// `cargo test` must not load BPF programs. With `--workspace`, both runs have the same features of dependencies,
/// which are then checked once.
fn clippy(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    let all: &[&str] = &["--all-targets"];
    for targets in [all, &["--test", "e2e"]] {
        let mut command = repository.cargo(&["clippy", "--workspace", "--locked"]);
        if !succeeds(command.args(targets).args(["--", "-D", "warnings"]))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn unit_tests(repository: &Repository, tests: &mut TestResults) -> Result<bool, Box<dyn Error>> {
    let mut command = repository.cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    // Many tests wait for programs that they have started.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    command.env("RUST_TEST_THREADS", (2 * processors).to_string());
    run_tests(command.args(["--", "--quiet"]), tests)
}
