//! A plugin that is a program: started as root with events on its standard input, and again when it
//! ends.
//!
//! # Source
//! `safe_exec`, `event_loop` and `stop_plugin` in `audisp/audispd.c`, audit-userspace 4.2.1.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use audit::conf::plugin::{Format, Plugin};
use bstr::{BStr, BString, ByteSlice as _};
use crossbeam_channel::after;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::chunk::Chunk;
use super::feed::Shared;
use crate::cli::report::say;

/// How long a plugin may take to end by itself when its input ends, and then at TERM.
const TO_END: Duration = Duration::from_millis(500);
const AFTER_TERM: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// How long a write may wait before it is looked whether it is still wanted.
const BETWEEN_WRITES: Duration = Duration::from_millis(250);
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A program, running or not.
pub(super) struct Process {
    name: String,
    path: PathBuf,
    args: Vec<BString>,
    format: Format,
    max_restarts: u32,
    starts: u32,
    /// It has ended too often, or cannot be started.
    given_up: bool,
    running: Option<(Child, UnixStream)>,
    /// Records with headers, under way.
    binary: Vec<u8>,
}

/// How others reach the running program.
#[derive(Debug, Default)]
pub(crate) struct Control(Mutex<Reach>);

#[derive(Debug, Default)]
struct Reach {
    pid: Option<Pid>,
    /// It is to be started as often as a new one.
    renewed: bool,
    /// It is not to be started again, and gets nothing after this.
    until: Option<Instant>,
}

impl Control {
    fn reach(&self) -> MutexGuard<'_, Reach> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it read its configuration again, and forgets how often it has ended.
    pub(super) fn renew(&self) {
        let mut reach = self.reach();
        reach.renewed = true;
        if let Some(pid) = reach.pid {
            // It may have ended meanwhile; nobody has its number before it was waited for.
            let _gone = kill(pid, Signal::SIGHUP);
        }
    }

    /// Has it end, at the latest then.
    pub(super) fn end_by(&self, until: Instant) {
        self.reach().until = Some(until);
    }

    /// Whether nothing more may be written.
    fn is_over(&self) -> bool {
        self.reach()
            .until
            .is_some_and(|until| until <= Instant::now())
    }
}

impl Process {
    /// A program that may be run.
    ///
    /// # Errors
    /// When others than root could have put another one in its place.
    pub(super) fn new(
        name: &str,
        path: &BStr,
        plugin: &Plugin,
        max_restarts: u32,
    ) -> anyhow::Result<Self> {
        let path = path.to_path().context("the path")?.to_owned();
        let about = std::fs::metadata(&path)
            .with_context(|| format!("cannot look at `{}`", path.display()))?;
        if !about.is_file() || about.uid() != 0 || about.mode() & WRITABLE_BY_OTHERS != 0 {
            bail!(
                "`{}` is no program that only root can write",
                path.display()
            );
        }
        Ok(Self {
            name: name.to_owned(),
            path,
            args: plugin.args.clone(),
            format: plugin.format,
            max_restarts,
            starts: 0,
            given_up: false,
            running: None,
            binary: Vec::new(),
        })
    }

    pub(super) fn begin(&mut self, shared: &Shared) {
        self.is_running(shared);
    }

    /// Writes a chunk, to as many instances as that takes.
    pub(super) fn write(&mut self, chunk: &Chunk, shared: &Shared) {
        let mut binary = std::mem::take(&mut self.binary);
        binary.clear();
        let bytes = match self.format {
            Format::String => chunk.string(),
            Format::Binary => {
                chunk.binary(&mut binary);
                &binary
            }
        };
        let mut at = 0;
        while at < bytes.len() {
            if shared.control.is_over() || !self.is_running(shared) {
                shared.lose(chunk.events);
                break;
            }
            let Some((_, stream)) = &mut self.running else {
                break;
            };
            match stream.write(bytes.get(at..).unwrap_or_default()) {
                Ok(written) => at += written,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(_gone) => {
                    // Nobody has the whole of the record that was under way.
                    at = last_start(bytes, at, self.format);
                    self.stop(shared);
                }
            }
        }
        self.binary = binary;
    }

    pub(super) fn end(&mut self, shared: &Shared) {
        self.given_up = true;
        self.stop(shared);
    }

    /// Whether the program runs, after it was started if it may be.
    fn is_running(&mut self, shared: &Shared) -> bool {
        if self.running.is_some() {
            return true;
        }
        let mut reach = shared.control.reach();
        if std::mem::take(&mut reach.renewed) {
            self.starts = 0;
            self.given_up = false;
        }
        if self.given_up || reach.until.is_some() {
            return false;
        }
        let name = &self.name;
        if self.starts > self.max_restarts {
            self.given_up = true;
            say(&format!(
                "plugin {name} has ended too often, see max_restarts: it gets nothing until HUP"
            ));
            return false;
        }
        match self.start() {
            Ok((child, stream)) => {
                reach.pid = Some(Pid::from_raw(child.id().cast_signed()));
                self.running = Some((child, stream));
                if self.starts > 0 {
                    let (again, most) = (self.starts, self.max_restarts);
                    say(&format!(
                        "plugin {name} has ended, and was started again: {again} of {most} times"
                    ));
                }
                self.starts += 1;
                true
            }
            Err(error) => {
                say(&format!("plugin {name} cannot be started: {error}"));
                self.given_up = true;
                false
            }
        }
    }

    fn start(&self) -> io::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(BETWEEN_WRITES))?;
        let args = self.args.iter().map(|arg| arg.to_os_str_lossy());
        let mut command = Command::new(&self.path);
        command
            .args(args)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        let child = engine::unblock_signals(&mut command).spawn()?;
        Ok((child, ours))
    }

    /// Ends the program: by the end of its input, by TERM, and at last by KILL.
    fn stop(&mut self, shared: &Shared) {
        let Some((mut child, stream)) = self.running.take() else {
            return;
        };
        // From here on its number may become another's: nobody else is to signal it.
        shared.control.reach().pid = None;
        drop(stream);
        let pid = Pid::from_raw(child.id().cast_signed());
        if !ends_within(&mut child, TO_END) {
            let _gone = kill(pid, Signal::SIGTERM);
            if !ends_within(&mut child, AFTER_TERM) {
                let _gone = child.kill();
            }
        }
        let _status = child.wait();
    }
}

/// Whether a child ends in time.
fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return true,
        }
        let _now = after(BETWEEN_LOOKS).recv();
    }
    false
}

/// Where the record starts in which `at` is.
fn last_start(bytes: &[u8], at: usize, format: Format) -> usize {
    let before = bytes.get(..at).unwrap_or(bytes);
    match format {
        Format::String => before.rfind_byte(b'\n').map_or(0, |end| end + 1),
        Format::Binary => {
            let mut start = 0;
            while let Some(header) = bytes.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
                let [.., a, b, c, d] = *header;
                let size = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or_default();
                let next = start + header.len() + size;
                if next > at {
                    break;
                }
                start = next;
            }
            start
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Lines;
    use super::*;

    #[test]
    fn a_record_that_was_cut_is_written_again_whole() {
        let log = b"type=CWD msg=audit(1.000:7): y\ntype=CWD msg=audit(1.000:8): z\n";
        let chunk = Chunk::new(log, Lines::Formatted, 2);
        let second = b"type=CWD msg=audit(1.000:7): y\n".len();
        let start = |at| last_start(chunk.string(), at, Format::String);
        assert_eq!(
            (start(0), start(second - 1), start(second + 3)),
            (0, 0, second)
        );
        let mut bytes = Vec::new();
        chunk.binary(&mut bytes);
        let second = 16 + second - 1;
        let start = |at| last_start(&bytes, at, Format::Binary);
        assert_eq!((start(0), start(second - 1), start(second)), (0, 0, second));
        assert_eq!(start(bytes.len()), bytes.len());
    }
}
