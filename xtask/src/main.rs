//! Chores of the repository that need an `if`: the logic behind the Makefile.
//!
//! It depends on no crate of the workspace, so that it builds when they do not.
//! What must work before cargo is there is in `scripts/`; so is `make run`, because ignoring
//! Ctrl-C while a child ends takes a shell's `trap` or unsafe code, and this crate has neither.

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
mod lists;
mod repository;
mod step;
mod tables;
mod tidy;
mod vm;

use std::env;
use std::error::Error;
use std::process::ExitCode;

use crate::repository::Repository;

/// A chore ends with a status, or with what kept it from running at all.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// A chore: its name, what the menu says, and the function that does it.
type Command = (
    &'static str,
    &'static str,
    fn(&Repository, &[String]) -> Outcome,
);

const COMMANDS: &[Command] = &[
    (
        "check",
        "formatting, lints, tidy and every test that needs no root",
        check::run,
    ),
    (
        "test",
        "check, then the end-to-end tests (root) and those on other kernels",
        e2e::run,
    ),
    (
        "vm",
        "the tests on Debian's kernels: [--kernel 6.1|6.12|all] [--filter NAME] [--lists WHICH]",
        vm::run,
    ),
    (
        "counts",
        "count instructions on those kernels, and write docs/instructions.md",
        vm::count,
    ),
    (
        "lists",
        "random rule lists on this kernel (root): [SEED:FIRST:COUNT]",
        lists::run,
    ),
    (
        "endure",
        "10,000 reloads and 1,000,000 processes, with what grows (root): [endure::NAME]",
        endure::run,
    ),
    (
        "fuzz",
        "rule text of any bytes: [--seconds N] [--seed N] [--target NAME]",
        fuzz::run,
    ),
    (
        "demo",
        "write docs/demo.svg, the session shown in the README: [PROGRAM]",
        demo::run,
    ),
    ("fmt", "format the Rust and the C", check::format),
    ("tidy", "the rules that no compiler knows", tidy::run),
    (
        "tables",
        "write the number tables of crate audit; --check compares",
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
    let Some((_, _, chore)) = COMMANDS.iter().find(|(known, _, _)| known == name) else {
        return Err(format!("there is no chore `{name}`; these exist:\n{}", menu()).into());
    };
    chore(&Repository::find()?, rest)
}

fn menu() -> String {
    COMMANDS
        .iter()
        .map(|(name, purpose, _)| format!("  cargo xtask {name:<7} {purpose}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menu_lists_every_chore_once() {
        let menu = menu();
        for (name, purpose, _) in COMMANDS {
            let line = format!("cargo xtask {name:<7} {purpose}\n");
            assert_eq!(menu.matches(&line).count(), 1, "{menu}");
        }
    }

    #[test]
    fn unknown_chore_is_an_error_that_names_it() {
        let error = dispatch(&["frobnicate".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("`frobnicate`"), "{error}");
    }
}
