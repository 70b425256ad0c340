//! `tollgate-report`: a picture of a log.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ausearch::report(std::env::args_os().skip(1))
}
