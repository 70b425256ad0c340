//! `tollgate-collect`: takes audit logs of many hosts.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ship::collect(std::env::args_os())
}
