//! `tollgate-ship`: sends audit logs to collectors.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ship::ship(std::env::args_os())
}
