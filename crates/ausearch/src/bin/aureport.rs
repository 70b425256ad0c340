//! `tollgate-aureport`, also called `aureport`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ausearch::aureport(std::env::args_os().skip(1))
}
