//! A plugin that is a program: runs as root with events on its standard input, and is restarted when it ends.
//!
//! # Source
//! `safe_exec`, `event_loop` and `stop_plugin` in `audisp/audispd.c`, audit-userspace 4.2.1.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use audit::conf::plugin::{Plugin, PluginFormat};
use bstr::{BStr, ByteSlice as _};
use crossbeam_channel::after;

use super::chunk::Chunk;
use super::plugin_queue::{Loss, QueueState};
use crate::helper::{HelperClient, HelperProgram, LaunchedProgram, ProgramSignal};
use crate::json_bytes::JsonBytes;
use crate::messages::warn;

/// Time for a plugin to end after the end of its input, and then after SIGTERM.
const TO_END: Duration = Duration::from_millis(500);
const AFTER_TERM: Duration = Duration::from_secs(2);
const AFTER_KILL: Duration = Duration::from_secs(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Interval of checking whether a blocked write is still wanted.
const BETWEEN_WRITES: Duration = Duration::from_millis(250);

/// A program, running or not.
pub(super) struct Process {
    name: String,
    helper: HelperClient,
    program: HelperProgram,
    format: PluginFormat,
    starts: u32,
    /// It ended too often, or cannot be started.
    given_up: bool,
    running: Option<(Arc<LaunchedProgram>, UnixStream)>,
    /// Buffer of records in binary format.
    binary: Vec<u8>,
}

/// Control of the program by other threads.
#[derive(Debug, Default)]
pub(crate) struct ProcessControl(Mutex<ControlState>);

#[derive(Debug, Default)]
struct ControlState {
    running: Option<Arc<LaunchedProgram>>,
    /// Maximum number of restarts.
    max_restarts: u32,
    /// Whether to reset the restart count.
    renewed: bool,
    /// Deadline after which it is neither restarted nor written to.
    until: Option<Instant>,
}

impl ProcessControl {
    fn state(&self) -> MutexGuard<'_, ControlState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends SIGHUP and resets the restart count.
    pub(super) fn reconfigure(&self) {
        let mut state = self.state();
        state.renewed = true;
        if let Some(running) = &state.running {
            running.signal(ProgramSignal::Hup);
        }
    }

    /// Sets the maximum number of restarts.
    pub(super) fn limit(&self, max_restarts: u32) {
        self.state().max_restarts = max_restarts;
    }

    /// Stops it at this time.
    pub(super) fn end_by(&self, until: Instant) {
        self.state().until = Some(until);
    }

    /// Whether writing must stop.
    pub(super) fn must_stop(&self) -> bool {
        self.state()
            .until
            .is_some_and(|until| until <= Instant::now())
    }
}

impl Process {
    /// A program to run; the helper checks whether it may.
    pub(super) fn new(name: &str, path: &BStr, plugin: &Plugin, helper: HelperClient) -> Self {
        Self {
            name: name.to_owned(),
            helper,
            program: HelperProgram::Plugin {
                file: name.to_owned(),
                path: JsonBytes::new(path),
                args: plugin.args.iter().map(|arg| JsonBytes::new(arg)).collect(),
            },
            format: plugin.format,
            starts: 0,
            given_up: false,
            running: None,
            binary: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, shared: &QueueState) {
        self.is_running(shared);
    }

    /// Writes a chunk, restarting the program as needed.
    pub(super) fn write(&mut self, chunk: &Chunk, shared: &QueueState) {
        let mut binary = std::mem::take(&mut self.binary);
        binary.clear();
        let bytes = match self.format {
            PluginFormat::String => chunk.string(),
            PluginFormat::Binary => {
                chunk.binary(&mut binary);
                &binary
            }
        };
        let mut at = 0;
        while at < bytes.len() {
            let loss = if shared.control.must_stop() {
                Some(Loss::TooSlow)
            } else {
                (!self.is_running(shared)).then_some(Loss::NotRunning)
            };
            if let Some(loss) = loss {
                shared.count_lost(loss, chunk.events);
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
                    // No instance has the whole record that was being written.
                    at = last_start(bytes, at, self.format);
                    self.stop(shared);
                }
            }
        }
        self.binary = binary;
    }

    pub(super) fn end(&mut self, shared: &QueueState) {
        self.given_up = true;
        self.stop(shared);
    }

    /// Whether the program runs. Starts it if it may be started.
    fn is_running(&mut self, shared: &QueueState) -> bool {
        if self.running.is_some() {
            return true;
        }
        let mut state = shared.control.state();
        if std::mem::take(&mut state.renewed) {
            self.starts = 0;
            self.given_up = false;
        }
        if self.given_up || state.until.is_some() {
            return false;
        }
        let name = &self.name;
        if self.starts > state.max_restarts {
            self.given_up = true;
            warn(&format!(
                "plugin {name} ended too often (max_restarts in auditd.conf): it is stopped; to start it again, run \
                 `systemctl reload tollgate`"
            ));
            return false;
        }
        match self.start() {
            Ok((launched, stream)) => {
                let launched = Arc::new(launched);
                state.running = Some(Arc::clone(&launched));
                self.running = Some((launched, stream));
                if self.starts > 0 {
                    let (again, most) = (self.starts, state.max_restarts);
                    warn(&format!(
                        "plugin {name} ended and was restarted ({again} of {most} times)"
                    ));
                }
                self.starts += 1;
                true
            }
            Err(error) => {
                warn(&format!("cannot start plugin {name}: {error:#}"));
                self.given_up = true;
                false
            }
        }
    }

    fn start(&self) -> anyhow::Result<(LaunchedProgram, UnixStream)> {
        let (launched, stdin) = self.helper.run(self.program.clone())?;
        let stream = stdin.context("the helper returned no descriptor of its standard input")?;
        stream
            .set_write_timeout(Some(BETWEEN_WRITES))
            .context("cannot set a write timeout")?;
        Ok((launched, stream))
    }

    /// Stops the program: end of input, then SIGTERM, then SIGKILL.
    fn stop(&mut self, shared: &QueueState) {
        let Some((launched, stream)) = self.running.take() else {
            return;
        };
        shared.control.state().running = None;
        drop(stream);
        if ends_within(&launched, TO_END) {
            return;
        }
        launched.signal(ProgramSignal::Term);
        if !ends_within(&launched, AFTER_TERM) {
            launched.signal(ProgramSignal::Kill);
            ends_within(&launched, AFTER_KILL);
        }
    }
}

/// Whether a program ends in time.
fn ends_within(launched: &LaunchedProgram, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if launched.has_ended() {
            return true;
        }
        let _now = after(BETWEEN_LOOKS).recv();
    }
    false
}

/// Start of the record that contains offset `at`.
fn last_start(bytes: &[u8], at: usize, format: PluginFormat) -> usize {
    let before = bytes.get(..at).unwrap_or(bytes);
    match format {
        PluginFormat::String => before.rfind_byte(b'\n').map_or(0, |end| end + 1),
        PluginFormat::Binary => {
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
    use super::super::chunk::LineFormat;
    use super::*;

    #[test]
    fn truncated_record_is_written_again() {
        let log = b"type=CWD msg=audit(1.000:7): y\ntype=CWD msg=audit(1.000:8): z\n";
        let chunk = Chunk::new(log, LineFormat::Formatted, 2);
        let second = b"type=CWD msg=audit(1.000:7): y\n".len();
        let start = |at| last_start(chunk.string(), at, PluginFormat::String);
        assert_eq!(
            (start(0), start(second - 1), start(second + 3)),
            (0, 0, second)
        );
        let mut bytes = Vec::new();
        chunk.binary(&mut bytes);
        let second = 16 + second - 1;
        let start = |at| last_start(&bytes, at, PluginFormat::Binary);
        assert_eq!((start(0), start(second - 1), start(second)), (0, 0, second));
        assert_eq!(start(bytes.len()), bytes.len());
    }
}
