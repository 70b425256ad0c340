//! `tollgate unpin`: removes what a stopped daemon has left: BPF objects, and changes of the kernel's audit.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use engine::{PinDirectory, PinnedState, read_lock_note};
use nix::unistd::geteuid;

use crate::daemon;
use crate::messages::{Exit, info, warn};
use crate::pipeline::handover::DEFAULT_PIN_DIRECTORY;

/// Arguments of `tollgate unpin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory in which the BPF objects are pinned
    #[arg(default_value = DEFAULT_PIN_DIRECTORY)]
    directory: PathBuf,
}

/// Detaches and unpins the programs in the directory, and prints how many bytes of events are lost.
///
/// # Errors
/// When a daemon uses the directory, `-e 2` has locked it, or it cannot be used.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !geteuid().is_root() {
        warn("`tollgate unpin` must be run by root: it removes BPF objects");
        return Ok(Exit::NotRoot.into());
    }
    // Unless a running daemon uses it.
    daemon::repair_kernel_audit().context("cannot restore the kernel's audit")?;
    let pins = PinDirectory::open(&args.directory)?;
    let shown = args.directory.display();
    let locked = read_lock_note(&args.directory).with_context(|| {
        format!(
            "nothing is removed: cannot read whether `-e 2` has locked `{shown}` until the machine restarts"
        )
    })?;
    ensure!(
        locked.is_none(),
        "`-e 2` has locked `{shown}` until the machine restarts: restart it to detach the programs"
    );
    pins.end_restart()
        .with_context(|| format!("cannot remove pins in `{shown}`"))?;
    let unread = match PinnedState::open(&pins)? {
        PinnedState::Empty => {
            info(&format!("`{shown}` contains no BPF objects"));
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
        "removed the BPF objects in `{shown}`; unread bytes of events: {bytes}"
    ));
    Ok(Exit::Success.into())
}
