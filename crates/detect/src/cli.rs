//! The command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::on_alert::{helper, program};
use crate::output::is_closed_pipe;
use crate::{check, explain, run as follow, status, test};

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Which rules of SigmaHQ can be used, and why not the others?
    tollgate detect check sigma/rules/linux
  Which audit rules do they need, and does this machine have them?
    tollgate detect explain sigma/rules/linux
    tollgate detect explain sigma/rules/linux --audit-rules > 50-sigma.rules
  Which events of the whole log match rules of level high and above?
    tollgate detect run rules --from-start --once --level high --state state
  Do my rules still find what they are for, and nothing else?
    tollgate detect test cases --junit result.xml";

/// Run Sigma rules on the audit log
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-detect", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Load rules; name those that cannot be loaded, with line, reason and advice
    Check(check::Args),
    /// Show which audit rules Sigma rules need, whether there are, and what they cost
    Explain(explain::Args),
    /// Follow the log and print an alert for each event that a rule matches
    Run(follow::Args),
    /// Show what the run has done, and how far it is behind the log
    Status(status::Args),
    /// Start the program of `run --on-alert` for each alert
    #[command(name = helper::COMMAND, hide = true)]
    OnAlertHelper(helper::Args),
    /// Become the program of `run --on-alert`
    #[command(name = program::COMMAND, hide = true)]
    OnAlertProgram(program::Args),
    /// Run cases: logs, and the rules that must match their events
    Test(test::Args),
}

/// Runs a command.
///
/// # Errors
/// As of the command.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<ExitCode> {
    let result = match Args::parse_from(words).command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Run(args) => follow::run(&args),
        Command::Status(args) => status::run(&args),
        Command::OnAlertHelper(args) => helper::serve(&args),
        Command::OnAlertProgram(args) => program::become_program(&args),
        Command::Test(args) => test::run(&args),
    };
    match result {
        // The reader of the output has seen enough.
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn manual_page_is_current() {
        let page = manual::Page::new("tollgate-detect", Args::command());
        page.check().unwrap();
    }
}
