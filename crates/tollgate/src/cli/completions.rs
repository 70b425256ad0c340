//! `tollgate completions`: prints shell completions for the commands, options and installed companions.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

use super::{companion, described};
use crate::messages;

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Complete command lines in this shell:
    source <(tollgate completions bash)";

/// Arguments of `tollgate completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell that will read the completions
    shell: Shell,
}

/// Prints the completions.
///
/// # Errors
/// When standard output cannot be written to.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = generate(args.shell);
    messages::ignore_broken_pipe(io::stdout().lock().write_all(&text))
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Generates the completions for a shell.
pub(super) fn generate(shell: Shell) -> Vec<u8> {
    // clap completes hidden commands too: leave them out.
    let whole = described();
    let shown = whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .cloned();
    let companions = companion::installed()
        .into_iter()
        .map(|name| Command::new(name.clone()).about(format!("Run tollgate-{name}")));
    let mut shown = Command::new("tollgate")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
        .subcommands(companions);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown, "tollgate", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use bstr::ByteSlice as _;

    use super::*;

    #[test]
    fn every_shell_completes_commands_but_not_hidden_ones() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = generate(shell);
            for word in ["explain", "auditd-conf", "augenrules"] {
                assert!(text.contains_str(word), "{shell}: {word}");
            }
            assert!(!text.contains_str(crate::helper::COMMAND), "{shell}");
        }
    }
}
