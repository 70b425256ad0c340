//! The restorer: a process in its own session that restores the state if the supervisor is killed.
//!
//! It reads from a pipe that only the supervisor holds. A byte means that nothing is left to restore; end of
//! file means that the supervisor is gone.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context as _;
use nix::unistd::setsid;

use super::saved_state;

/// The restorer as the supervisor sees it. Dropping it closes the pipe, which starts restoring.
#[derive(Debug)]
pub(crate) struct Restorer {
    child: Child,
    pipe: ChildStdin,
}

impl Restorer {
    /// Starts the restorer and waits until it has its own session, out of reach of signals to this one.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .arg("--restorer")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the restorer")?;
        let (pipe, ready) = (child.stdin.take(), child.stdout.take());
        let (pipe, mut ready) = pipe.zip(ready).context("the restorer has no pipes")?;
        ready
            .read_exact(&mut [0])
            .context("the restorer has not started")?;
        Ok(Self { child, pipe })
    }

    /// Ends the restorer without restoring. It may have been killed before, which is ignored.
    pub(crate) fn release(mut self) {
        let _told = self.pipe.write_all(&[0]);
        let _ended = self.child.wait();
    }
}

/// The restorer process.
///
/// # Errors
/// What could not be restored.
pub(crate) fn run() -> anyhow::Result<()> {
    setsid().context("cannot start a session")?;
    let mut ready = io::stdout();
    ready
        .write_all(&[0])
        .and_then(|()| ready.flush())
        .context("the supervisor is gone")?;
    match io::stdin().read_exact(&mut [0]) {
        Ok(()) => Ok(()),
        Err(_) => saved_state::restore_leftovers(),
    }
}
