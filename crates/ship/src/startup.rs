//! What the runs of both programs begin with: the state directory, and signals that end them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context as _;
use logs::state_directory::{StateDirectory, StateError};
use nix::sys::signal::{SigSet, Signal};

/// Opens the state directory.
///
/// # Errors
/// There is none, or another run uses it.
pub(crate) fn open_state(path: &Path) -> anyhow::Result<StateDirectory> {
    match StateDirectory::open(path) {
        Err(error @ StateError::Directory(..)) => {
            Err(error).context("create it, or name another with --state")
        }
        state => Ok(state?),
    }
}

/// Returns what becomes true when SIGTERM or SIGINT comes; then `wake` is called. Only threads that this one starts later
/// leave these signals alone.
///
/// # Errors
/// The signals cannot be blocked, or no thread started.
pub(crate) fn watch_signals(wake: impl Fn() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    thread::Builder::new()
        .name("tlg-signals".to_owned())
        .spawn(move || {
            while set.wait().is_ok() {
                told.store(true, Ordering::Relaxed);
                wake();
            }
        })
        .context("cannot start a thread")?;
    Ok(stop)
}
