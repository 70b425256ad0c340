//! `tollgate-ausearch`, also called `ausearch`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ausearch::ausearch(std::env::args_os().skip(1))
}
