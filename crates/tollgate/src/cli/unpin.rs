//! `tollgate unpin`: takes away what a daemon has left pinned that no other one follows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use engine::{PinDirectory, PinnedState, read_lock_note};

use crate::messages::{Exit, info};
use crate::pipeline::handover::DEFAULT_PIN_DIRECTORY;

/// Arguments of `tollgate unpin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where it is pinned
    #[arg(default_value = DEFAULT_PIN_DIRECTORY)]
    directory: PathBuf,
}

/// Ends what audits there, if no daemon reads it, and says what is lost with it.
///
/// # Errors
/// When a daemon reads it, or the directory cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let pins = PinDirectory::open(&args.directory)?;
    let shown = args.directory.display();
    let locked = read_lock_note(&args.directory);
    ensure!(
        matches!(locked, Ok(None)),
        "what is pinned in `{shown}` is locked until the machine starts again: `-e 2` was given"
    );
    let unread = match PinnedState::open(&pins)? {
        PinnedState::Empty => {
            info(&format!("nothing is pinned in `{shown}`"));
            return Ok(Exit::Success.into());
        }
        PinnedState::Adoptable(inherited) | PinnedState::EventsOnly(inherited) => {
            inherited.unread_bytes().ok()
        }
        PinnedState::Unreadable { unread_bytes, .. } => unread_bytes,
    };
    pins.clear()?;
    let bytes = unread.map_or_else(|| "unknown".to_owned(), |bytes| bytes.to_string());
    info(&format!(
        "nothing audits in `{shown}` any more; bytes of events that nobody has read: {bytes}"
    ));
    Ok(Exit::Success.into())
}
