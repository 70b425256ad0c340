//! A process of its own session that puts things back when the first one is killed.
//!
//! It waits at a pipe whose other end only the first process has. A byte tells it that nothing is left to be
//! done; the end of the pipe without one, that the first process is gone.

use std::io::{self, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::Context as _;
use nix::unistd::setsid;

use super::supervisor;

/// The process, as the first one has it. Dropped, it is told that the first one is gone.
#[derive(Debug)]
pub(crate) struct Restorer {
    child: Child,
    pipe: ChildStdin,
}

impl Restorer {
    /// Starts it, and waits until no signal to this session reaches it any more.
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
            .context("cannot start the process that puts things back")?;
        let (pipe, ready) = (child.stdin.take(), child.stdout.take());
        let (pipe, mut ready) = pipe.zip(ready).context("there are no pipes to it")?;
        ready
            .read_exact(&mut [0])
            .context("the process that puts things back has not started")?;
        Ok(Self { child, pipe })
    }

    /// Tells it that nothing is left to be done, and waits for its end. One that somebody has ended before is
    /// not missed any more.
    pub(crate) fn release(mut self) {
        let _told = self.pipe.write_all(&[0]);
        let _ended = self.child.wait();
    }
}

/// What the process does.
///
/// # Errors
/// What could not be put back.
pub(crate) fn run() -> anyhow::Result<()> {
    setsid().context("cannot start a session")?;
    let mut ready = io::stdout();
    ready
        .write_all(&[0])
        .and_then(|()| ready.flush())
        .context("nobody waits for this process")?;
    match io::stdin().read_exact(&mut [0]) {
        Ok(()) => Ok(()),
        Err(_) => supervisor::restore(),
    }
}
