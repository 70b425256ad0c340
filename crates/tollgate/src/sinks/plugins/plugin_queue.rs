//! One plugin: a bounded queue, and a thread that empties it into the plugin.
//!
//! What the queue cannot take is lost to this plugin alone, and counted. Nobody who gives events waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::Context as _;
use audit::conf::plugin::{Plugin, Program};
use crossbeam_channel::{Sender, unbounded};

use super::chunk::Chunk;
use super::process::{Process, ProcessControl};
use super::socket::Socket;
use crate::helper::Launcher;
use crate::messages::warn;

/// Longest record that `auditd` takes: what an entry of `q_depth` may be.
///
/// # Source
/// `MAX_AUDIT_MESSAGE_LENGTH` in `lib/libaudit.h`, audit-userspace 3.0.9.
const ENTRY_BYTES: usize = 8970;

/// A plugin that is fed.
#[derive(Debug)]
pub(crate) struct PluginQueue {
    /// Name of its configuration file.
    pub(crate) name: String,
    /// What it was configured as.
    pub(crate) plugin: Plugin,
    to: Sender<Arc<Chunk>>,
    thread: JoinHandle<()>,
    shared: Arc<QueueState>,
    /// Entries of its queue.
    q_depth: usize,
    /// It was said that its queue is full, and it has not been empty since.
    pub(crate) reported: bool,
}

/// What the feed and its thread share.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    queued: AtomicUsize,
    deepest: AtomicUsize,
    /// Events that it did not get, by reason.
    lost: [AtomicU64; Loss::ALL.len()],
    pub(crate) control: ProcessControl,
}

/// Why a plugin does not get events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its queue is full.
    QueueFull,
    /// Plugins get nothing until somebody resumes.
    Suspended,
    /// It cannot be started, or has ended too often.
    NotRunning,
    /// It has not taken them when it was to end, or is a client that takes nothing.
    TooSlow,
}

impl Loss {
    /// All of them, in the order of the enumeration.
    pub(crate) const ALL: [Self; 4] = [
        Self::QueueFull,
        Self::Suspended,
        Self::NotRunning,
        Self::TooSlow,
    ];

    /// As records have it.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::Suspended => "suspended",
            Self::NotRunning => "not-running",
            Self::TooSlow => "too-slow",
        }
    }
}

impl QueueState {
    /// Counts events that the plugin did not get.
    pub(crate) fn lose(&self, loss: Loss, events: u64) {
        for (of, count) in Loss::ALL.into_iter().zip(&self.lost) {
            if of == loss {
                count.fetch_add(events, Ordering::Relaxed);
            }
        }
    }

    /// Events that the plugin did not get, by reason.
    pub(super) fn lost(&self) -> [u64; Loss::ALL.len()] {
        self.lost
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether it has events that it may still lose.
    pub(super) fn is_busy(&self) -> bool {
        // What was lost of them is counted before they are taken off.
        self.queued.load(Ordering::Acquire) != 0
    }

    fn taken(&self, chunk: &Chunk) {
        self.queued.fetch_sub(chunk.len(), Ordering::Release);
    }
}

impl PluginQueue {
    /// Starts the thread, which starts the plugin.
    ///
    /// # Errors
    /// When there is no thread, no socket or no launcher to be had.
    pub(crate) fn start(
        name: &str,
        plugin: Plugin,
        max_restarts: u32,
        q_depth: u32,
        launcher: Option<&Launcher>,
    ) -> anyhow::Result<Self> {
        // Bounded by what gives: by the entries that there are now, in number and in bytes.
        let (to, from) = unbounded::<Arc<Chunk>>();
        let shared = Arc::<QueueState>::default();
        shared.control.limit(max_restarts);
        let its_own = Arc::clone(&shared);
        let its_name = name.to_owned();
        let mut outlet = match &plugin.program {
            Program::File(path) => PluginWriter::Process(Box::new(Process::new(
                name,
                path.as_ref(),
                &plugin,
                launcher.context("programs are not started here")?.clone(),
            ))),
            Program::Socket => PluginWriter::Socket(Socket::bind(&plugin)?),
        };
        let thread = thread::Builder::new()
            .name("tlg-plugin".to_owned())
            .spawn(move || {
                outlet.begin(&its_own);
                for chunk in from {
                    outlet.write(&chunk, &its_own);
                    its_own.taken(&chunk);
                }
                outlet.end(&its_own);
                let lost: u64 = its_own.lost().iter().sum();
                if lost != 0 {
                    warn(&format!("plugin {its_name} did not get {lost} events"));
                }
            })
            .context("cannot start thread `tlg-plugin`")?;
        Ok(Self {
            name: name.to_owned(),
            plugin,
            to,
            thread,
            shared,
            q_depth: entries(q_depth),
            reported: false,
        })
    }

    /// Gives it events, or loses them; whether they were taken.
    pub(crate) fn push(&mut self, chunk: &Arc<Chunk>) -> bool {
        let queued = self.shared.queued.load(Ordering::Relaxed);
        let most_bytes = self.q_depth.saturating_mul(ENTRY_BYTES);
        if queued == 0 {
            self.reported = false;
        } else if queued + chunk.len() > most_bytes || self.to.len() >= self.q_depth {
            // A chunk has one record or more: no fewer fit than into the queue of `auditd`. One that is longer than
            // the queue still passes through an empty one.
            self.lose(Loss::QueueFull, chunk.events);
            return false;
        }
        let now = self.shared.queued.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
        if self.to.send(Arc::clone(chunk)).is_err() {
            self.lose(Loss::QueueFull, chunk.events);
            self.shared.taken(chunk);
            return false;
        }
        self.shared.deepest.fetch_max(now, Ordering::Relaxed);
        true
    }

    /// Counts events that it was not given.
    pub(crate) fn lose(&self, loss: Loss, events: u64) {
        self.shared.lose(loss, events);
    }

    /// What it shares with its thread.
    pub(super) fn shared(&self) -> Arc<QueueState> {
        Arc::clone(&self.shared)
    }

    /// Events that it did not get.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost().iter().sum()
    }

    /// Entries of `q_depth` that are taken, and that ever were.
    pub(crate) fn queue(&self) -> (usize, usize) {
        let entries = |bytes: &AtomicUsize| bytes.load(Ordering::Relaxed).div_ceil(ENTRY_BYTES);
        (entries(&self.shared.queued), entries(&self.shared.deepest))
    }

    /// Has it read its configuration again, and lets it be started as often as a new one, with such a queue from
    /// now on.
    ///
    /// # Source
    /// `increase_queue_depth` in `audisp/queue.c`, audit-userspace 3.0.9,
    /// which makes no queue shorter.
    pub(crate) fn reconfigure(&mut self, max_restarts: u32, q_depth: u32) {
        self.q_depth = entries(q_depth);
        self.shared.control.limit(max_restarts);
        self.shared.control.reconfigure();
    }

    /// Gives it nothing more. It may take what waits until then, and its thread ends soon after.
    pub(crate) fn stop(self, until: Instant) -> JoinHandle<()> {
        self.shared.control.end_by(until);
        self.thread
    }
}

fn entries(q_depth: u32) -> usize {
    usize::try_from(q_depth).unwrap_or(usize::MAX)
}

/// Where events go.
enum PluginWriter {
    Process(Box<Process>),
    Socket(Socket),
}

impl PluginWriter {
    fn begin(&mut self, shared: &QueueState) {
        if let Self::Process(process) = self {
            process.begin(shared);
        }
    }

    fn write(&mut self, chunk: &Chunk, shared: &QueueState) {
        match self {
            Self::Process(process) => process.write(chunk, shared),
            Self::Socket(socket) => socket.write(chunk, shared),
        }
    }

    fn end(&mut self, shared: &QueueState) {
        if let Self::Process(process) = self {
            process.end(shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::Lines;
    use super::*;

    /// A plugin that takes nothing, and whose configuration is read again.
    #[test]
    fn a_queue_is_as_deep_as_was_said_last() {
        let (to, from) = unbounded();
        let mut queue = PluginQueue {
            name: "idle.conf".to_owned(),
            plugin: plugin(),
            to,
            thread: thread::spawn(|| {}),
            shared: Arc::default(),
            q_depth: 2,
            reported: false,
        };
        let line = |bytes: usize| {
            let line = format!("type=USER msg=audit(1.000:1): {}\n", "x".repeat(bytes));
            Arc::new(Chunk::new(line.as_bytes(), Lines::Raw, 1))
        };
        let (short, long) = (line(1), line(2 * ENTRY_BYTES));
        let given = |queue: &mut PluginQueue, chunk, times: u32| {
            (0..times).filter(|_| queue.push(chunk)).count()
        };
        assert_eq!(given(&mut queue, &short, 9), 2);
        queue.reconfigure(3, 5);
        assert_eq!(given(&mut queue, &long, 1), 1);
        assert_eq!(given(&mut queue, &short, 9), 2);
        queue.reconfigure(3, 9);
        assert_eq!(given(&mut queue, &long, 9), 3, "by bytes");
        queue.reconfigure(3, 2);
        assert_eq!(given(&mut queue, &short, 9), 0);
        assert_eq!((queue.lost(), from.len()), (7 + 7 + 6 + 9, 8));
        for chunk in from.try_iter() {
            queue.shared.taken(&chunk);
        }
        assert_eq!(given(&mut queue, &long, 2), 1, "through an empty one");
    }

    fn plugin() -> Plugin {
        let text = b"active = yes\npath = builtin_af_unix\nargs = 0600 /socket string\n";
        audit::conf::plugin::parse(text).0
    }
}
