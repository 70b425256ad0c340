//! The commands behind the Makefile.
//!
//! xtask depends on no other crate of the workspace and builds when those do not.
//! Scripts that must work without cargo are in `scripts/`; so is `make run`, because ignoring Ctrl-C while a
//! child ends needs a shell's `trap` or unsafe code.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks to its user"
)]

mod bpf_headers;
mod check;
mod demo;
mod e2e;
mod endure;
mod fuzz;
mod golden;
mod hooks;
mod hunt;
mod lists;
mod log;
mod log_speed;
mod on_host;
mod repository;
mod rerun;
mod step;
mod tables;
mod test_results;
mod tidy;
mod vm;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use crate::repository::Repository;

/// A command's exit status, or the error that kept it from running.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// A command: its name, its line in the menu, and its function.
type Command = (
    &'static str,
    &'static str,
    fn(&Repository, &[String]) -> Outcome,
);

const COMMANDS: &[Command] = &[
    (
        "check",
        "check formatting, lints and tidy; run every test that needs no root",
        check::run,
    ),
    (
        "test",
        "run check, the end-to-end tests (root) and the tests on other kernels",
        e2e::run,
    ),
    (
        "vm",
        "test on Debian's kernels: [--kernel KERNELS] [--filter NAME] [--lists LISTS]",
        vm::run,
    ),
    (
        "counts",
        "count instructions on Debian's kernels, write docs/instructions.md: [--stages]",
        vm::count,
    ),
    (
        "hooks",
        "check which hooks kernels have, without booting them: FILE|KERNEL...",
        hooks::run,
    ),
    (
        "kernels",
        "run `tollgate doctor` on kernels, write docs/kernels.md: [--check] [KERNEL...]",
        vm::kernels,
    ),
    (
        "lists",
        "compare random rule lists with the kernel's audit (root): [SEED:FIRST:COUNT]",
        lists::run,
    ),
    (
        "log",
        "write a large log for measurements: FILE MIB [repeated]",
        log::run,
    ),
    (
        "log-speed",
        "measure indexing and searching a log: LOG ROUNDS [PROGRAM...]",
        log_speed::run,
    ),
    (
        "hunt",
        "run random programs: [--seconds N] [--kernel KERNEL] [--seed S] [--program N]",
        hunt::run,
    ),
    (
        "endure",
        "run 10,000 reloads and 1,000,000 processes (root): [endure::NAME]",
        endure::run,
    ),
    (
        "fuzz",
        "feed mutated input to the parsers: [--seconds N] [--seed N] [--target NAME]",
        fuzz::run,
    ),
    (
        "demo",
        "write docs/demo.svg, the session in the README: [PROGRAM]",
        demo::run,
    ),
    (
        "golden",
        "rewrite every expected and generated file",
        golden::run,
    ),
    ("fmt", "format Rust and C", check::format),
    (
        "tidy",
        "check the repository's rules that no compiler checks",
        tidy::run,
    ),
    (
        "tables",
        "write the number tables of crate audit; --check compares them",
        tables::run,
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", menu());
        return Ok(ExitCode::SUCCESS);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", menu());
        return Ok(ExitCode::SUCCESS);
    }
    let Some((_, purpose, command)) = COMMANDS.iter().find(|(known, _, _)| known == name) else {
        return Err(format!("unknown command `{name}`; commands:\n{}", menu()).into());
    };
    if matches!(rest, [only] if matches!(only.as_str(), "--help" | "-h")) {
        print!("{}", menu_line(name, purpose));
        return Ok(ExitCode::SUCCESS);
    }
    command(&Repository::find()?, rest)
}

fn menu() -> String {
    COMMANDS
        .iter()
        .map(|(name, purpose, _)| menu_line(name, purpose))
        .collect()
}

fn menu_line(name: &str, purpose: &str) -> String {
    format!("  cargo xtask {name:<7} {purpose}\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn command_names_are_unique_and_used_by_the_makefile() {
        let names: BTreeSet<&str> = COMMANDS.iter().map(|(name, _, _)| *name).collect();
        assert_eq!(names.len(), COMMANDS.len());
        let called = include_str!("../../Makefile").split("cargo xtask ").skip(1);
        let called: Vec<&str> = called
            .filter_map(|rest| rest.split_whitespace().next())
            .collect();
        assert!(called.len() > 5, "{called:?}");
        for name in called {
            assert!(names.contains(name), "`cargo xtask {name}` in the Makefile");
        }
    }

    #[test]
    fn menu_fits_a_terminal() {
        for line in menu().lines() {
            assert!(line.len() <= 100, "{line}");
        }
    }

    #[test]
    fn unknown_command_is_named() {
        let error = dispatch(&["frobnicate".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("`frobnicate`"), "{error}");
    }
}
