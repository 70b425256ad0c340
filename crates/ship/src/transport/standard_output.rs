//! The standard output: a pipe to a program, a file, or a terminal.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{END, Transport, not_connected};

/// How often an end looks whether all was read.
const LOOK: Duration = Duration::from_millis(20);

/// The standard output.
#[derive(Default)]
pub(crate) struct StandardOutput(Option<Open>);

struct Open {
    file: File,
    /// The kernel tells how much was not read.
    is_pipe: bool,
}

impl Open {
    fn not_read(&self) -> io::Result<u64> {
        match self.is_pipe {
            true => Ok(rustix::io::ioctl_fionread(&self.file)?),
            false => Ok(0),
        }
    }

    /// A pipe without a reader keeps what it has, until the last writer closes it.
    fn check(&self) -> anyhow::Result<()> {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO)?;
        let found = fds.first().and_then(PollFd::revents);
        if found.is_some_and(|found| found.contains(PollFlags::POLLERR)) {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("its reader has ended");
        }
        Ok(())
    }
}

impl Transport for StandardOutput {
    fn connect(&mut self) -> anyhow::Result<()> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let is_pipe = file.metadata()?.file_type().is_fifo();
        self.0 = Some(Open { file, is_pipe });
        Ok(())
    }

    /// A reader that hangs is waited for: it is the only one.
    fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let open = self.0.as_mut().ok_or_else(not_connected)?;
        open.file.write_all(bytes)?;
        Ok(())
    }

    fn not_taken(&mut self, _sent: u64) -> anyhow::Result<u64> {
        let open = self.0.as_ref().ok_or_else(not_connected)?;
        open.check()?;
        Ok(open.not_read()?)
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let open = self.0.as_ref().ok_or_else(not_connected)?;
        let begun = Instant::now();
        loop {
            open.check()?;
            if open.not_read()? == 0 {
                break;
            }
            if begun.elapsed() > END {
                bail!("its reader has not read all: the next run sends the rest");
            }
            thread::park_timeout(LOOK);
        }
        self.0 = None;
        Ok(())
    }

    fn disconnect(&mut self) {
        self.0 = None;
    }
}
