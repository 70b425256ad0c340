//! `tollgate-detect`: runs Sigma rules on audit logs.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    detect::run(std::env::args_os())
}
