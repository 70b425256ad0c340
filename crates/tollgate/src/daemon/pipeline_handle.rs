//! The store's view of the running pipeline: orders to it, and what it says of itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use audit::ids::MsgType;
use audit::plan::Plan;
use audit::plan::hook::EngineKind;
use engine::{AttachedHooks, ProgramRuns, Truncation};

use crate::control::rule_store::PipelineControl;
use crate::control::wire::{
    Confinement, Counts, JsonCounts, KernelMessages, RuleCounts, Run, Settings, Status,
};
use crate::daemon::kernel_audit::KernelAudit;
use crate::json_bytes::JsonBytes;
use crate::messages::warn;
use crate::pipeline::heartbeat::seconds;
use crate::pipeline::kernel_records::KernelRecordCounts;
use crate::pipeline::log_thread::LogCommands;
use crate::pipeline::log_thread::LogCounters;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::{Accounts, Guard, PATIENCE, Replaced, RingCommands};
use crate::pipeline::ring_thread::RingStats;
use crate::pipeline::{RunningPipeline, StartReport};
use crate::sinks::audit_log::LockedLogSettings;
use crate::sinks::queue::{self as outlet, QueueStats};

/// How long the main thread looks whether the ring is drained, and serves nobody meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// A running pipeline.
#[derive(Debug)]
pub(super) struct PipelineHandle {
    orders: RingCommands,
    accounts: Accounts,
    written: Arc<LogCounters>,
    engine: EngineKind,
    /// What is attached now.
    pub(super) attached: AttachedHooks,
    kept: DaemonPaths,
    confinement: Confinement,
    kernel: Option<KernelAudit>,
    limits: Arc<Limits>,
    json: Option<QueueStats>,
}

/// Where what a daemon does is to be found.
#[derive(Clone, Debug)]
pub(super) struct DaemonPaths {
    pub(super) log: PathBuf,
    /// The log for programs, when there is one.
    pub(super) json: Option<PathBuf>,
    /// Where what audits is pinned, when it is.
    pub(super) pins: Option<PathBuf>,
    /// Who writes the log.
    pub(super) log_thread: LogCommands,
}

impl PipelineHandle {
    /// The pipeline that has been started, where it writes and is pinned, what the daemon has given up, and
    /// the kernel's audit if that is read.
    pub(super) fn new(
        running: &RunningPipeline,
        started: StartReport,
        kept: DaemonPaths,
        confinement: Confinement,
        kernel: Option<KernelAudit>,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            orders: running.orders(),
            accounts: Accounts::new(running.orders()),
            written: running.written(),
            engine: started.engine,
            attached: started.attached,
            kept,
            confinement,
            kernel,
            limits,
            json: running.json(),
        }
    }

    /// When [`PipelineHandle::look`] is due, if it is.
    pub(super) fn next(&self) -> Option<Duration> {
        self.kernel.as_ref().map(KernelAudit::next)
    }

    /// Looks at its time what the kernel's audit has lost, and records it.
    pub(super) fn look(&mut self) {
        if let Some(lost) = self.kernel.as_mut().and_then(KernelAudit::look) {
            self.tell_lost_messages(lost);
        }
    }

    /// Knows that the log is there.
    pub(super) fn log_is(&mut self, log: &Path) {
        if self.kept.log != log {
            log.clone_into(&mut self.kept.log);
        }
    }

    /// Has the kernel's audit stay as it is for the next daemon, and not as it was found.
    pub(super) fn leave_kernel(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.leave();
        }
    }

    /// Leaves the kernel's audit as it was found; what it has sent until then is still taken. Gives what
    /// it has lost.
    pub(super) fn let_kernel_go(&mut self) -> u64 {
        let Some(mut kernel) = self.kernel.take() else {
            return 0;
        };
        if let Some(lost) = kernel.look_now() {
            self.tell_lost_messages(lost);
        }
        kernel.total_lost()
    }

    fn tell_lost_messages(&self, lost: u32) {
        let body = format!("op=lost-messages lost={lost} reason=\"kernel-backlog\" res=failed");
        let recorded = self.orders.record(MsgType::DAEMON_ERR, body.into_bytes());
        if let Err(error) = recorded {
            warn(&format!(
                "it is not recorded that the kernel has lost {lost} messages: {error:#}"
            ));
        }
    }

    fn describe_messages(&self, account: &RingStats) -> Option<KernelMessages> {
        let kernel = self.kernel.as_ref()?;
        let KernelRecordCounts {
            received,
            excluded,
            refused,
            overruns,
        } = account.messages;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut messages = KernelMessages {
            received,
            excluded,
            refused,
            overruns,
            written: count(&self.written.messages),
            unwritten: count(&self.written.unwritten_messages),
            ..KernelMessages::default()
        };
        kernel.describe(&mut messages);
        Some(messages)
    }

    /// Whether the ring is drained: its thread answers only between two drains, and waits for the log.
    pub(super) fn is_alive(&mut self) -> bool {
        self.accounts.is_answered(LOOK)
    }

    fn counts(&self, account: &RingStats) -> Counts {
        let LogCounters {
            events, unwritten, ..
        } = &*self.written;
        let named = |count: &u64, name: &str| (*count != 0).then(|| (name.to_owned(), *count));
        let unwritten = unwritten.load(Ordering::Relaxed);
        let losses = account.losses().chain([("not written", unwritten)]);
        let cut = account.stats.truncated.iter().zip(Truncation::ALL);
        Counts {
            matched: account.stats.matched,
            delivered: account.stats.delivered,
            written: events.load(Ordering::Relaxed),
            lost: losses
                .filter_map(|(reason, count)| named(&count, reason))
                .collect(),
            incomplete: cut
                .filter_map(|(count, part)| named(count, part.as_str()))
                .collect(),
            blind_seconds: seconds(account.blind),
        }
    }
}

impl PipelineControl for PipelineHandle {
    fn replace(&mut self, plan: Plan) -> anyhow::Result<()> {
        let Replaced { attached } = self.orders.replace(plan)?;
        self.attached = attached;
        Ok(())
    }

    fn apply(&mut self, settings: &Settings) -> anyhow::Result<()> {
        self.limits.set(settings.rate_limit, settings.failure)?;
        match &mut self.kernel {
            Some(kernel) => kernel.enable(settings.enabled != 0),
            None => Ok(()),
        }
    }

    fn lock_log(&mut self) -> anyhow::Result<LockedLogSettings> {
        // What it was told before it has done by then, and what it is told later leaves the log there.
        let keep = self.kept.log_thread.lock()?;
        self.kept.log.clone_from(&keep.path);
        Ok(keep.held())
    }

    fn unlock_log(&mut self) {
        self.kept.log_thread.unlock();
    }

    fn lock(&mut self, note: Vec<u8>) -> anyhow::Result<Guard> {
        let DaemonPaths { log, json, .. } = &self.kept;
        let files = [log].into_iter().chain(json).cloned();
        self.orders.lock(note, files.collect())
    }

    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        self.orders.record(kind, body)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        let json = self.json.as_ref().map(|json| (json, json.read().unwritten));
        self.orders.flush()?;
        let Some((json, before)) = json else {
            return Ok(());
        };
        ensure!(json.settle(until), "the JSON log does not keep up");
        match json.failure(before) {
            None => Ok(()),
            Some(reason) => bail!("the JSON log cannot be written to: {reason}"),
        }
    }

    fn describe(&mut self, status: &mut Status) -> anyhow::Result<()> {
        use std::os::unix::ffi::OsStrExt as _;
        status.engine = self.engine.name().to_owned();
        status.hooks = self
            .attached
            .hooks
            .iter()
            .map(ToString::to_string)
            .collect();
        let absent = self.attached.absent.iter().copied();
        status.absent = absent.map(str::to_owned).collect();
        status.log = JsonBytes::new(self.kept.log.as_os_str().as_bytes());
        let pins = self.kept.pins.as_ref();
        status.pins = pins.map(|path| JsonBytes::new(path.as_os_str().as_bytes()));
        status.confinement = self.confinement.clone();
        if let Some(lost) = self.kernel.as_mut().and_then(KernelAudit::look_now) {
            self.tell_lost_messages(lost);
        }
        let account = self.accounts.account()?;
        status.skip_risk = account.skip_risk.map(|risk| risk.to_string());
        status.counts = self.counts(&account);
        let unwritten = self.written.unwritten.load(Ordering::Relaxed);
        status.settings.backlog = account.waiting(status.counts.written, unwritten);
        status.by_rule = by_rule(&account);
        status.kernel_messages = self.describe_messages(&account);
        status.plugins = self.written.plugins.lost();
        status.json = self.json.as_ref().map(|json| {
            let outlet::SinkStats {
                events, unwritten, ..
            } = json.read();
            JsonCounts {
                written: events,
                left_out: unwritten,
            }
        });
        status.runs = account
            .runs
            .into_iter()
            .map(
                |ProgramRuns {
                     hook,
                     runs,
                     time_ns,
                 }| Run {
                    hook,
                    runs,
                    nanoseconds: time_ns,
                },
            )
            .collect();
        Ok(())
    }
}

fn by_rule(account: &RingStats) -> Vec<RuleCounts> {
    let counts = account.rules.iter().map(|(rule, count)| {
        let losses = [
            ("ring full", count.unsent),
            ("rate limit", count.limited),
            ("not written", count.unwritten),
        ];
        let losses = losses.into_iter().filter(|(_, count)| *count != 0);
        RuleCounts {
            rule: JsonBytes::new(rule),
            matched: count.matched(),
            lost: losses
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
        }
    });
    counts.collect()
}
