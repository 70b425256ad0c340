//! Companions that read logs: one program, whose name decides what it does.
//!
//! | name | module |
//! | --- | --- |
//! | `tollgate-search` | [`search`] |
//!
//! The other names are links to `tollgate-search`. They need no privileges but the right to read the logs.

#![forbid(unsafe_code)]

mod expression;
mod mistake;
mod search;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Exit status of an error, as of `grep`.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let name = words.first().map(|word| command_name(word));
    let result = match name.as_deref() {
        // Further companions are matched here by their names.
        _ => search::run(&words),
    };
    result.unwrap_or_else(|error| {
        info(&format!("{error:#}"));
        ExitCode::from(ERROR)
    })
}

/// Name of the program without its directory and without `tollgate-`.
fn command_name(program: &OsStr) -> String {
    let name = Path::new(program).file_name().unwrap_or(program);
    let name = name.to_string_lossy();
    name.strip_prefix("tollgate-").unwrap_or(&name).to_owned()
}

/// Prints a line on standard error. A closed pipe is ignored.
fn info(line: &str) {
    let _closed = writeln!(io::stderr(), "tollgate: {line}");
}
