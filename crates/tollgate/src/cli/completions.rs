//! `tollgate completions`: what a shell needs to complete command lines, from the table of options.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use crate::messages;

/// Arguments of `tollgate completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completions.
///
/// # Errors
/// When standard output cannot be written to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = of(args.shell);
    messages::ignore_broken_pipe(io::stdout().lock().write_all(&text))
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn of(shell: Shell) -> Vec<u8> {
    // clap would complete commands that help hides, too: those that the program starts itself by.
    let whole = Cli::command();
    let shown = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned();
    let mut shown = Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown, "tollgate", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use bstr::ByteSlice as _;

    use super::*;

    #[test]
    fn every_shell_learns_the_commands_and_no_hidden_one() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = of(shell);
            for word in ["explain", "auditd-conf", "augenrules"] {
                assert!(text.contains_str(word), "{shell}: {word}");
            }
            assert!(!text.contains_str(crate::helper::COMMAND), "{shell}");
        }
    }
}
