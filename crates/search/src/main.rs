//! `tollgate-search` finds events in audit logs; invoked as `tollgate-replay`, it decides them again by rules, and as
//! `tollgate-log` it lists the files of a log and prints their text.
//!
//! They need no privileges but the right to read the logs. `logs::expression` is the language of [`search`].

#![forbid(unsafe_code)]

mod log;
mod logs_arg;
mod mistake;
mod replay;
mod search;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// Exit status of an error, as of `grep`.
const ERROR: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let (name, result) = match program.and_then(OsStr::to_str) {
        Some("tollgate-replay") => ("tollgate-replay", replay::run(&words)),
        Some("tollgate-log") => ("tollgate-log", log::run(&words)),
        _ => ("tollgate-search", search::run(&words)),
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
