//! `tollgate-search` finds events in audit logs; invoked as `tollgate-replay`, it decides them again by rules.
//!
//! Both need no privileges but the right to read the logs. [`expression`] is the language of [`search`].

#![forbid(unsafe_code)]

mod expression;
mod mistake;
mod replay;
mod search;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Exit status of an error, as of `grep`.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let (name, result) = if program.is_some_and(|name| name == "tollgate-replay") {
        ("tollgate-replay", replay::run(&words))
    } else {
        ("tollgate-search", search::run(&words))
    };
    result.unwrap_or_else(|error| {
        info(&format!("{name}: {error:#}"));
        ExitCode::from(ERROR)
    })
}

/// Prints a line on standard error. A closed pipe is ignored.
fn info(line: &str) {
    let _closed = writeln!(io::stderr(), "{line}");
}
