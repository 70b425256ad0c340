//! The native command line: one clap table; each command in its own file.

pub(crate) mod auditctl;
mod augenrules;
pub(crate) mod check;
mod companion;
mod completions;
mod config;
mod convert;
mod daemon;
pub(crate) mod explain;
mod run;
mod status;
mod unpin;

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
    Check(check::Args),
    /// Show the syscalls, hooks and cost of rules
    Explain(explain::Args),
    /// Audit this machine
    Daemon(daemon::Args),
    /// Show the state and counters of the running daemon
    Status(status::Args),
    /// Remove BPF objects left by a stopped daemon
    Unpin(unpin::Args),
    /// Check configuration files
    Config(config::Args),
    /// Convert logs of tollgate or auditd to JSON, one object per event
    Convert(convert::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// Audit one command and its children without root
    Run(run::Args),
    /// Start programs for `daemon`
    #[command(name = crate::helper::COMMAND, hide = true)]
    DaemonLauncher {
        /// Configuration file that names the programs
        #[arg(long)]
        auditd_conf: Option<PathBuf>,
    },
    /// Control the daemon as auditctl(8) does
    #[command(disable_help_flag = true)]
    Auditctl(auditctl::Args),
    /// Merge the rule files of a directory as augenrules(8) does
    Augenrules(augenrules::Args),
    /// A companion: `tollgate-NAME` beside this program.
    #[command(external_subcommand)]
    Companion(Vec<OsString>),
}

/// The command line of this process; usage errors and `--help` end it here.
///
/// Only these look for companions: a start of the daemon does not read the directory.
pub(crate) fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|_| {
        let matches = command().get_matches();
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    })
}

/// The table of commands and options, with the installed companions at the end of the help.
fn command() -> clap::Command {
    let command = Cli::command();
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

/// Acts on the parsed command line.
///
/// # Errors
/// What stopped the command, with context down to the object.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Daemon(args) => daemon::run(&args),
        Command::Status(args) => status::run(&args),
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
