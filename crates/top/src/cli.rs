//! The command line of `tollgate-top`.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;

use crate::batch::{self, Form};
use crate::control::{Control, SOCKET};
use crate::screen;

/// Examples of the help and the manual page.
pub(crate) const EXAMPLES: &str = "\
Examples:
  Show the daemon of this machine:
    tollgate top
  Print one table for a report:
    tollgate top --batch
  Record the rates of a minute as JSON:
    tollgate top --json --count 6 --interval 10";

/// Show what the running daemon records, who causes it, and at what cost
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-top", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Refresh every SECONDS seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Get at most N events a second; further ones are skipped at random
    #[arg(long, value_name = "N", default_value_t = 400,
          value_parser = clap::value_parser!(u32).range(4..=100_000))]
    sample: u32,
    /// Print the tables as text after an interval, and end
    #[arg(short, long, conflicts_with = "json")]
    batch: bool,
    /// Print one JSON object, on one line, after an interval, and end
    #[arg(long)]
    json: bool,
    /// With --batch or --json, print N times
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Connect to the daemon at SOCKET
    #[arg(long, value_name = "SOCKET", default_value = SOCKET)]
    control: PathBuf,
}

/// Runs the program.
///
/// # Errors
/// Standard output is no terminal, the terminal fails, or no daemon answers.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let control = Control::new(args.control.clone());
    let interval = Duration::from_secs(args.interval);
    let form = match (args.batch, args.json) {
        (true, _) => Some(Form::Text),
        (_, true) => Some(Form::Json),
        _ => None,
    };
    if let Some(form) = form {
        return batch::run(&control, form, interval, (args.count, args.sample));
    }
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "standard input and output must be a terminal: use --batch or --json otherwise"
    );
    screen::run(&control, interval, args.sample)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use manual::Page;

    use super::*;

    #[test]
    fn manual_page_is_fresh() {
        let mut command = Args::command();
        command.build();
        let page = Page::new("tollgate-top", command);
        assert_eq!(page.check(), Ok(()));
    }

    #[test]
    fn examples_are_valid_command_lines() {
        let mut count = 0;
        for line in manual::example_lines(&Args::command()) {
            let words = line.split_whitespace().skip(1);
            <Args as clap::Parser>::try_parse_from(words).unwrap();
            count += 1;
        }
        assert_eq!(count, 3);
    }
}
