//! The native command line: one clap table; each command in its own file.

pub(crate) mod auditctl;
mod augenrules;
pub(crate) mod check;
mod companion;
mod completions;
mod config;
mod convert;
mod daemon;
mod doctor;
pub(crate) mod explain;
#[cfg(test)]
mod manual;
mod run;
mod status;
mod this_machine;
mod unpin;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};

/// Audit daemon that adds overhead only to the syscalls your rules name
#[derive(Debug, clap::Parser)]
#[command(
    name = "tollgate",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check rule files
    #[command(after_help = check::EXAMPLES)]
    Check(check::Args),
    /// Show the syscalls, hooks and cost of rules
    #[command(after_help = explain::EXAMPLES)]
    Explain(explain::Args),
    /// Check whether and how well this kernel can be audited
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::Args),
    /// Audit this machine
    #[command(after_help = daemon::EXAMPLES)]
    Daemon(daemon::Args),
    /// Show the state and counters of the running daemon
    #[command(after_help = status::EXAMPLES)]
    Status(status::Args),
    /// Print the events of the running daemon as they occur
    #[command(after_help = watch::EXAMPLES)]
    Watch(watch::Args),
    /// Remove BPF objects left by a stopped daemon
    Unpin(unpin::Args),
    /// Check configuration files
    Config(config::Args),
    /// Convert logs of tollgate or auditd to JSON, one object per event
    #[command(after_help = convert::EXAMPLES)]
    Convert(convert::Args),
    /// Print shell completions
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::Args),
    /// Audit one command and its children without root
    #[command(after_help = run::EXAMPLES)]
    Run(run::Args),
    /// Start programs for `daemon`
    #[command(name = crate::helper::COMMAND, hide = true)]
    DaemonLauncher {
        /// Configuration file that names the programs
        #[arg(long)]
        auditd_conf: Option<PathBuf>,
    },
    /// Control the daemon as auditctl(8) does
    #[command(disable_help_flag = true, after_help = auditctl::EXAMPLES)]
    Auditctl(auditctl::Args),
    /// Merge the rule files of a directory as augenrules(8) does
    #[command(after_help = augenrules::EXAMPLES)]
    Augenrules(augenrules::Args),
    /// A companion program: `tollgate-NAME` in the directory of this program.
    #[command(external_subcommand)]
    Companion(Vec<OsString>),
}

/// Parses the command line of this process. Usage errors and `--help` end the process.
///
/// Only these search for companions: starting the daemon does not read the directory.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|_| {
        let matches = command().get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    })
}

/// Returns the table of commands and options, with the installed companions at the end of the help.
fn command() -> clap::Command {
    let command = described();
    let names = companion::installed();
    if names.is_empty() {
        return command;
    }
    let lines: Vec<String> = names
        .iter()
        .map(|name| format!("  {name:<11}  Run tollgate-{name}"))
        .collect();
    command.after_help(format!("Installed companions:\n{}", lines.join("\n")))
}

/// Returns the table of commands and options for help, completions and the manual: with the options of `auditctl`,
/// which clap does not parse.
fn described() -> clap::Command {
    Cli::command().mut_subcommand("auditctl", auditctl::describe_options)
}

/// Runs the parsed command.
///
/// # Errors
/// Why the command failed, with context down to the object.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Unpin(args) => unpin::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Run(args) => Ok(run::run(&args)),
        Command::DaemonLauncher { auditd_conf } => crate::helper::serve(auditd_conf.as_deref()),
        Command::Auditctl(args) => auditctl::run(&args.words),
        Command::Augenrules(args) => augenrules::run(&args),
        Command::Companion(words) => companion::execute(&words, command()),
    }
}
