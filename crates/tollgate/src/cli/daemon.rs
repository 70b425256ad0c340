//! `tollgate daemon`: audits this machine.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anstream::ColorChoice;
use anyhow::Context as _;
use audit::plan::hook::EngineKind;
use nix::unistd::setsid;

use crate::daemon::{self, Settings};
use crate::sink::Accounts;
use crate::sink::terminal::{Interpret, Terminal};

/// Arguments of `tollgate daemon`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rule file; may be given several times, read in this order
    #[arg(long, value_name = "FILE", default_value = "/etc/audit/audit.rules")]
    rules: Vec<PathBuf>,
    /// Log file, appended to
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/log/tollgate/audit.log"
    )]
    log: PathBuf,
    /// How to see syscalls; `auto` takes the first of the others that works here
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = ["auto", "fentry", "tracepoint"])]
    engine: String,
    /// Longest time from an event to its being written, in milliseconds (2 to 1000)
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=1000))]
    delay: u64,
    /// Loads what can be loaded when some rules cannot be honoured
    #[arg(long)]
    partial: bool,
    /// Leaves out what is done through `io_uring` instead of by the calls that the rules name
    #[arg(long)]
    no_uring: bool,
    /// Stays in the foreground
    #[arg(long)]
    foreground: bool,
    /// Shows events on the terminal; stays in the foreground
    #[arg(long)]
    print: bool,
    /// Shows names of users, groups, errors and flags in place of numbers
    #[arg(long, requires = "print")]
    interpret: bool,
    /// Tells a waiting parent on standard output when it audits
    #[arg(long, hide = true)]
    detached: bool,
}

/// What a detached daemon writes to its parent when it audits.
const READY: &[u8] = b"ready\n";

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What kept it from starting, or made it stop.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.foreground && !args.print && !args.detached {
        return detach();
    }
    if args.detached {
        setsid().context("cannot leave the terminal")?;
    }
    let terminal = if args.print {
        let interpret = if args.interpret {
            Interpret::Names(Accounts::read().context("cannot read the names of users")?)
        } else {
            Interpret::Raw
        };
        Some(Terminal::stdout(interpret, ColorChoice::Auto))
    } else {
        None
    };
    let detached = args.detached;
    daemon::run(Settings {
        rules: args.rules.clone(),
        engines: match args.engine.as_str() {
            "fentry" => vec![EngineKind::Fentry],
            "tracepoint" => vec![EngineKind::Tracepoint],
            _ => vec![EngineKind::Fentry, EngineKind::Tracepoint],
        },
        log: args.log.clone(),
        delay: Duration::from_millis(args.delay),
        partial: args.partial,
        uring: !args.no_uring,
        terminal,
        ready: Box::new(move || {
            if detached {
                // A parent that has gone away is no reason to stop auditing.
                let _gone = io::stdout()
                    .write_all(READY)
                    .and_then(|()| io::stdout().flush());
            }
        }),
    })
}

/// Starts the same daemon in a session of its own and waits until it audits.
fn detach() -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--detached")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(u64::try_from(READY.len()).unwrap_or(0))
            .read_to_end(&mut said)
            .context("cannot hear from the daemon")?;
    }
    if said == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait().context("cannot wait for the daemon")?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Ok(ExitCode::from(code.max(1)))
}
