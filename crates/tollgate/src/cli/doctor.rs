//! `tollgate doctor`: whether and how well this kernel can be audited.
//!
//! [`facts`] finds out, [`text`] renders it; `--json` prints the facts as they are.

mod facts;
mod text;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::messages::{self, Exit};
use facts::{Facts, Verdict};

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Print why an engine does not start, with the messages of the kernel:
    tollgate doctor --json | jq .engines[].detail
  List the hooks that this kernel lacks:
    tollgate doctor --json | jq .hooks[] | grep -A5 missing
  Check the hooks of another kernel, without booting it:
    tollgate doctor --btf vmlinux.btf";

/// Arguments of `tollgate doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Check only the hooks, of the kernel with the BTF in FILE
    ///
    /// FILE is a copy of /sys/kernel/btf/vmlinux, or an uncompressed kernel with BTF.
    #[arg(long, value_name = "FILE")]
    btf: Option<PathBuf>,
    /// Print all facts as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the facts. The exit status is that of the verdict.
///
/// # Errors
/// When a file of `--btf` has no BTF, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let facts = match &args.btf {
        Some(path) => Facts::of_file(path)?,
        None => Facts::of_this_machine(),
    };
    let output = if args.json {
        let mut json = serde_json::to_string_pretty(&facts).context("cannot encode as JSON")?;
        json.push('\n');
        json
    } else {
        text::render(&facts)
    };
    let written = io::stdout().lock().write_all(output.as_bytes());
    messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
    Ok(match facts.verdict {
        Verdict::Complete => Exit::Success.into(),
        Verdict::Limited => Exit::Degraded.into(),
        Verdict::Unknown => Exit::NotRoot.into(),
        Verdict::Refused => Exit::Failure.into(),
    })
}
