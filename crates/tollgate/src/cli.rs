//! The native command line: one clap table; each command in its own file.

pub(crate) mod auditctl;
mod augenrules;
pub(crate) mod check;
mod completions;
mod config;
mod convert;
mod daemon;
pub(crate) mod explain;
mod run;
mod status;
mod unpin;

use std::path::PathBuf;
use std::process::ExitCode;

/// An audit daemon that charges only the syscalls that the rules name.
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Reads rule files and says what is wrong with them.
    Check(check::Args),
    /// Says which syscalls the rules touch, through which hooks, and at what price.
    Explain(explain::Args),
    /// Audits this machine.
    Daemon(daemon::Args),
    /// Says what a running daemon does, and what it has counted.
    Status(status::Args),
    /// Ends what a daemon has left pinned and no other one follows.
    Unpin(unpin::Args),
    /// Reads configuration files.
    Config(config::Args),
    /// Turns logs of tollgate or auditd into JSON, one object for each event.
    Convert(convert::Args),
    /// Prints what a shell needs to complete command lines.
    Completions(completions::Args),
    /// Audits one command and all that it starts, without root.
    Run(run::Args),
    /// Starts programs for `daemon`.
    #[command(name = crate::helper::COMMAND, hide = true)]
    DaemonLauncher {
        /// What names the programs
        #[arg(long)]
        auditd_conf: Option<PathBuf>,
    },
    /// Reads a command line, or with -R a rule file, as auditctl(8) does.
    #[command(disable_help_flag = true)]
    Auditctl(auditctl::Args),
    /// Merges the rule files of a directory into one, as augenrules(8) does.
    Augenrules(augenrules::Args),
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
    }
}
