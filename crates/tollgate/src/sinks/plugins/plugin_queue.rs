//! One plugin: a bounded queue, and a thread that writes it to the plugin.
//!
//! A full queue loses events of this plugin only, and counts them. The log thread never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::Context as _;
use audit::conf::plugin::{Plugin, PluginProgram};
use crossbeam_channel::{Sender, unbounded};

use super::chunk::Chunk;
use super::process::{Process, ProcessControl};
use super::socket::Socket;
use crate::helper::HelperClient;
use crate::messages::warn;

/// Longest record of `auditd`: size of an entry of `q_depth`.
///
/// # Source
/// `MAX_AUDIT_MESSAGE_LENGTH` in `lib/libaudit.h`, audit-userspace 3.0.9.
const ENTRY_BYTES: usize = 8970;

/// A running plugin.
#[derive(Debug)]
pub(crate) struct PluginQueue {
    /// Name of its configuration file.
    pub(crate) name: String,
    /// Its configuration.
    pub(crate) plugin: Plugin,
    to: Sender<Arc<Chunk>>,
    thread: JoinHandle<()>,
    shared: Arc<QueueState>,
    /// Queue entries.
    q_depth: usize,
    /// A full queue was reported, and it has not been empty since.
    pub(crate) reported: bool,
}

/// State shared with the thread.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    queued: AtomicUsize,
    deepest: AtomicUsize,
    /// Lost events by reason.
    lost: [AtomicU64; Loss::ALL.len()],
    pub(crate) control: ProcessControl,
}

/// Why a plugin lost events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The queue was full.
    QueueFull,
    /// Plugins are suspended until USR2.
    Suspended,
    /// It could not be started, or ended too often.
    NotRunning,
    /// It did not read them before it was stopped, or is a socket client that does not read.
    TooSlow,
}

impl Loss {
    /// All reasons in order.
    pub(crate) const ALL: [Self; 4] = [
        Self::QueueFull,
        Self::Suspended,
        Self::NotRunning,
        Self::TooSlow,
    ];

    /// Reason text of records.
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
    /// Counts lost events.
    pub(crate) fn count_lost(&self, loss: Loss, events: u64) {
        for (of, count) in Loss::ALL.into_iter().zip(&self.lost) {
            if of == loss {
                count.fetch_add(events, Ordering::Relaxed);
            }
        }
    }

    /// Lost events by reason.
    pub(super) fn lost(&self) -> [u64; Loss::ALL.len()] {
        self.lost
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether queued events may still be lost.
    pub(super) fn is_busy(&self) -> bool {
        // Losses are counted before events are removed from the queue.
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
    /// The thread or the socket cannot be created, or there is no helper.
    pub(crate) fn start(
        name: &str,
        plugin: Plugin,
        max_restarts: u32,
        q_depth: u32,
        helper: Option<&HelperClient>,
    ) -> anyhow::Result<Self> {
        // Bounded in `push`, by the current number of entries and bytes.
        let (to, from) = unbounded::<Arc<Chunk>>();
        let shared = Arc::<QueueState>::default();
        shared.control.limit(max_restarts);
        let its_own = Arc::clone(&shared);
        let its_name = name.to_owned();
        let mut plugin_writer = match &plugin.program {
            PluginProgram::File(path) => PluginWriter::Process(Box::new(Process::new(
                name,
                path.as_ref(),
                &plugin,
                helper
                    .context("there is no helper process to start programs")?
                    .clone(),
            ))),
            PluginProgram::Socket => PluginWriter::Socket(Socket::bind(&plugin)?),
        };
        let thread = thread::Builder::new()
            .name("tlg-plugin".to_owned())
            .spawn(move || {
                plugin_writer.begin(&its_own);
                for chunk in from {
                    plugin_writer.write(&chunk, &its_own);
                    its_own.taken(&chunk);
                }
                plugin_writer.end(&its_own);
                let lost: u64 = its_own.lost().iter().sum();
                if lost != 0 {
                    warn(&format!("plugin {its_name} lost {lost} events"));
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

    /// Queues events, or counts them as lost. Returns whether they were queued.
    pub(crate) fn push(&mut self, chunk: &Arc<Chunk>) -> bool {
        let queued = self.shared.queued.load(Ordering::Relaxed);
        let most_bytes = self.q_depth.saturating_mul(ENTRY_BYTES);
        if queued == 0 {
            self.reported = false;
        } else if queued + chunk.len() > most_bytes || self.to.len() >= self.q_depth {
            // A chunk has at least one record, so no fewer chunks fit than into auditd's queue. A chunk longer than
            // the queue still passes through an empty one.
            self.count_lost(Loss::QueueFull, chunk.events);
            return false;
        }
        let now = self.shared.queued.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
        if self.to.send(Arc::clone(chunk)).is_err() {
            self.count_lost(Loss::QueueFull, chunk.events);
            self.shared.taken(chunk);
            return false;
        }
        self.shared.deepest.fetch_max(now, Ordering::Relaxed);
        true
    }

    /// Counts events that were not queued.
    pub(crate) fn count_lost(&self, loss: Loss, events: u64) {
        self.shared.count_lost(loss, events);
    }

    /// State shared with the thread.
    pub(super) fn shared(&self) -> Arc<QueueState> {
        Arc::clone(&self.shared)
    }

    /// Lost events.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost().iter().sum()
    }

    /// Used queue entries, now and at most.
    pub(crate) fn queue(&self) -> (usize, usize) {
        let entries = |bytes: &AtomicUsize| bytes.load(Ordering::Relaxed).div_ceil(ENTRY_BYTES);
        (entries(&self.shared.queued), entries(&self.shared.deepest))
    }

    /// Sends SIGHUP, resets the restart count and sets the queue length.
    ///
    /// # Source
    /// `increase_queue_depth` in `audisp/queue.c`, audit-userspace 3.0.9,
    /// which makes no queue shorter.
    pub(crate) fn reconfigure(&mut self, max_restarts: u32, q_depth: u32) {
        self.q_depth = entries(q_depth);
        self.shared.control.limit(max_restarts);
        self.shared.control.reconfigure();
    }

    /// Stops the plugin: it may read queued events until then, and its thread ends soon after.
    pub(crate) fn stop(self, until: Instant) -> JoinHandle<()> {
        self.shared.control.end_by(until);
        self.thread
    }
}

fn entries(q_depth: u32) -> usize {
    usize::try_from(q_depth).unwrap_or(usize::MAX)
}

/// Destination of events.
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
    use super::super::chunk::LineFormat;
    use super::*;

    /// A plugin that reads nothing, and whose configuration is reloaded.
    #[test]
    fn queue_length_follows_the_configuration() {
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
            Arc::new(Chunk::new(line.as_bytes(), LineFormat::Raw, 1))
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
