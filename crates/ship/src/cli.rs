//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::{run as follow, status};

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Send the log as the configuration says, until a signal
    tollgate ship run --config ship.toml --state state
  What was sent, and how far is each destination behind the log?
    tollgate ship status";

/// Send the audit log to the collectors of a fleet, at least once
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-ship", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Follow the log and send its events to each destination
    Run(follow::Args),
    /// Show what each destination has got, and how far it is behind the log
    Status(status::Args),
}

/// Runs a command.
///
/// # Errors
/// As of the command.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    match Args::parse_from(words).command {
        Command::Run(args) => follow::run(&args),
        Command::Status(args) => status::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn manual_page_is_current() {
        let page = manual::Page::new("tollgate-ship", Args::command());
        page.check().unwrap();
    }
}
