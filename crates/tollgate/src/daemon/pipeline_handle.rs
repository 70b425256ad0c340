//! The main thread's handle of the running pipeline: commands and status.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, ensure};
use audit::ids::MsgType;
use audit::plan::Plan;
use engine::{
    AttachedHooks, EngineKind, KernelFeatures, ProgramRuns, TaskOwner, Truncation, explain,
};

use crate::control::protocol::{
    AuditSettings, Confinement, Counts, JsonCounts, KernelAuditStatus, KernelRecordStatus,
    LogSuspension, OwnerCounts, RuleCounts, Run, Status,
};
use crate::control::rule_costs::RuleCosts;
use crate::control::rule_store::PipelineControl;
use crate::daemon::kernel_audit::{KernelAudit, KernelAuditMonitor};
use crate::json_bytes::JsonBytes;
use crate::messages::warn;
use crate::pipeline::heartbeat::seconds;
use crate::pipeline::kernel_records::KernelRecordCounts;
use crate::pipeline::log_thread::LogCommandSender;
use crate::pipeline::log_thread::LogCounters;
use crate::pipeline::loss_reporter::Limits;
use crate::pipeline::ring_commands::{
    LOG_TIMEOUT, LockResult, ReplaceOutcome, RingCommands, StatsReader,
};
use crate::pipeline::ring_thread::{NOT_WRITTEN, RingStats};
use crate::pipeline::{RunningPipeline, StartReport};
use crate::sinks::audit_log::LockedLogSettings;
use crate::sinks::queue::{self as queue, QueueStats};
use crate::sinks::viewers::Viewers;
use crate::unix_time::unix_seconds;

/// How long the main thread waits for the ring thread in a watchdog check; it serves no client meanwhile.
const POLL_PERIOD: Duration = Duration::from_secs(1);
/// Owners in the status.
const MAX_OWNERS: usize = 64;

/// A running pipeline.
#[derive(Debug)]
pub(super) struct PipelineHandle {
    commands: RingCommands,
    stats: StatsReader,
    written: Arc<LogCounters>,
    engine: EngineKind,
    kernel: KernelFeatures,
    /// Hooks attached now.
    pub(super) attached: AttachedHooks,
    paths: DaemonPaths,
    confinement: Confinement,
    kernel_audit: Option<KernelAudit>,
    monitor: KernelAuditMonitor,
    limits: Arc<Limits>,
    json: Option<QueueStats>,
    /// Adds viewers.
    pub(super) viewers: Viewers,
}

/// Paths of the daemon's output.
#[derive(Clone, Debug)]
pub(super) struct DaemonPaths {
    pub(super) log: PathBuf,
    /// The JSON log, if there is one.
    pub(super) json: Option<PathBuf>,
    /// Pin directory, if objects are pinned.
    pub(super) pins: Option<PathBuf>,
    /// Commands to the log thread.
    pub(super) log_thread: LogCommandSender,
}

impl PipelineHandle {
    /// Creates the handle of a started pipeline, with its paths, its confinement and the kernel's audit if it is
    /// read.
    pub(super) fn new(
        running: &RunningPipeline,
        started: StartReport,
        paths: DaemonPaths,
        confinement: Confinement,
        (kernel_audit, monitor): (Option<KernelAudit>, KernelAuditMonitor),
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            commands: running.commands(),
            stats: StatsReader::new(running.commands()),
            written: running.written(),
            engine: started.engine,
            kernel: started.kernel,
            attached: started.attached,
            paths,
            confinement,
            kernel_audit,
            monitor,
            limits,
            json: running.json(),
            viewers: running.viewers(),
        }
    }

    /// Time until [`PipelineHandle::poll`] is due.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        let lost = self.kernel_audit.as_ref().map(KernelAudit::next_poll);
        lost.into_iter().chain([self.monitor.next_poll()]).min()
    }

    /// Polls the kernel's audit if due: records losses, and reports what other programs have done to it.
    pub(super) fn poll(&mut self) {
        if self.monitor.next_poll().is_zero() {
            self.touch_pins();
            self.check_kernel_audit();
        }
        if let Some(lost) = self.kernel_audit.as_mut().and_then(KernelAudit::poll) {
            self.record_lost_kernel_records(lost);
        }
    }

    /// Checks what other programs have done to the kernel's audit, and repairs what this daemon needs.
    fn check_kernel_audit(&mut self) -> Option<KernelAuditStatus> {
        let state = self.monitor.check()?;
        if let Some(kernel_audit) = &mut self.kernel_audit {
            kernel_audit.repair_never_task(&state);
            kernel_audit.take_over(&state);
        }
        Some(KernelAuditStatus {
            enabled: state.enabled,
            rules: u64::try_from(state.rules).unwrap_or(u64::MAX),
            never_task: state.never_task,
            slows_syscalls: state.slows_syscalls(),
        })
    }

    /// Sets the time of the pin directory: without a daemon it tells `tollgate status` since when nobody reads.
    pub(super) fn touch_pins(&self) {
        if let Some(pins) = &self.paths.pins {
            // Only a message depends on it.
            let _touched = File::open(pins).and_then(|pins| pins.set_modified(SystemTime::now()));
        }
    }

    /// Sets the path of the log after a reconfiguration.
    pub(super) fn set_log_path(&mut self, log: &Path) {
        if self.paths.log != log {
            log.clone_into(&mut self.paths.log);
        }
    }

    /// Keeps the kernel's audit settings for the next daemon.
    pub(super) fn keep_kernel_audit(&mut self) {
        self.touch_pins();
        if let Some(kernel_audit) = &mut self.kernel_audit {
            kernel_audit.keep_for_next_daemon();
        }
    }

    /// Restores the kernel's audit settings. Records sent until then are still read. Returns the number of lost
    /// records.
    pub(super) fn release_kernel_audit(&mut self) -> u64 {
        let Some(mut kernel_audit) = self.kernel_audit.take() else {
            return 0;
        };
        if let Some(lost) = kernel_audit.poll_now() {
            self.record_lost_kernel_records(lost);
        }
        kernel_audit.total_lost()
    }

    fn record_lost_kernel_records(&self, lost: u32) {
        let body = format!("op=lost-messages lost={lost} reason=\"kernel-backlog\" res=failed");
        let recorded = self.commands.record(MsgType::DAEMON_ERR, body.into_bytes());
        if let Err(error) = recorded {
            warn(&format!(
                "the kernel's audit lost {lost} records, and the log has no record of it: {error:#}"
            ));
        }
    }

    fn kernel_record_status(&self, stats: &RingStats) -> Option<KernelRecordStatus> {
        let kernel_audit = self.kernel_audit.as_ref()?;
        let KernelRecordCounts {
            received,
            excluded,
            refused,
            overruns,
        } = stats.kernel_records;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut messages = KernelRecordStatus {
            received,
            excluded,
            refused,
            overruns,
            written: count(&self.written.messages),
            unwritten: count(&self.written.unwritten_messages),
            ..KernelRecordStatus::default()
        };
        kernel_audit.fill_status(&mut messages);
        Some(messages)
    }

    /// Whether the ring thread answers: it does between two drains, and waits for the log.
    pub(super) fn is_alive(&mut self) -> bool {
        self.stats.is_answered(POLL_PERIOD)
    }

    /// Why nothing is written to the log.
    fn suspension(&self) -> Option<LogSuspension> {
        let shown = self.written.suspension.lock().ok()?;
        let suspension = shown.as_ref()?;
        Some(LogSuspension {
            setting: suspension.setting.to_owned(),
            reason: suspension.reason.clone(),
            since: unix_seconds(suspension.since),
            seconds: suspension.since.elapsed().map_or(0, |time| time.as_secs()),
            events: suspension.events,
        })
    }

    fn counts(&self, stats: &RingStats) -> Counts {
        let LogCounters {
            events, unwritten, ..
        } = &*self.written;
        let named = |count: &u64, name: &str| (*count != 0).then(|| (name.to_owned(), *count));
        let unwritten = unwritten.load(Ordering::Relaxed);
        let losses = stats.losses().chain([(NOT_WRITTEN, unwritten)]);
        let cut = stats.stats.truncated.iter().zip(Truncation::ALL);
        Counts {
            matched: stats.stats.matched,
            delivered: stats.stats.delivered,
            written: events.load(Ordering::Relaxed),
            lost: losses
                .filter_map(|(reason, count)| named(&count, reason))
                .collect(),
            incomplete: cut
                .filter_map(|(count, part)| named(count, part.as_str()))
                .collect(),
            blind_seconds: seconds(stats.disabled_time),
        }
    }
}

impl PipelineControl for PipelineHandle {
    fn replace_plan(&mut self, plan: Plan) -> anyhow::Result<()> {
        let ReplaceOutcome { attached } = self.commands.replace(plan)?;
        self.attached = attached;
        Ok(())
    }

    fn apply_settings(&mut self, settings: &AuditSettings) -> anyhow::Result<()> {
        self.limits.set(settings.rate_limit, settings.failure)?;
        match &mut self.kernel_audit {
            Some(kernel_audit) => kernel_audit.enable(settings.enabled != 0),
            None => Ok(()),
        }
    }

    fn lock_log(&mut self) -> anyhow::Result<LockedLogSettings> {
        // The log thread has finished earlier commands by then; later ones do not move the log.
        let log_config = self.paths.log_thread.lock()?;
        self.paths.log.clone_from(&log_config.path);
        Ok(log_config.locked_settings())
    }

    fn unlock_log(&mut self) {
        self.paths.log_thread.unlock();
    }

    fn lock(&mut self, note: Vec<u8>) -> anyhow::Result<LockResult> {
        let DaemonPaths { log, json, .. } = &self.paths;
        let files = [log].into_iter().chain(json).cloned();
        self.commands.lock(note, files.collect())
    }

    fn record(&mut self, kind: MsgType, body: Vec<u8>) -> anyhow::Result<()> {
        self.commands.record(kind, body)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + LOG_TIMEOUT;
        let json = self.json.as_ref().map(|json| (json, json.read().unwritten));
        self.commands.flush()?;
        let Some((json, before)) = json else {
            return Ok(());
        };
        ensure!(json.settle(until), "the JSON log is too slow");
        match json.failure(before) {
            None => Ok(()),
            Some(reason) => bail!("cannot write the JSON log: {reason}"),
        }
    }

    fn rule_costs(&self, plan: &Plan) -> RuleCosts {
        RuleCosts::of(plan, &explain(plan, self.engine, self.kernel))
    }

    fn fill_status(&mut self, status: &mut Status) -> anyhow::Result<()> {
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
        status.log = JsonBytes::new(self.paths.log.as_os_str().as_bytes());
        let pins = self.paths.pins.as_ref();
        status.pins = pins.map(|path| JsonBytes::new(path.as_os_str().as_bytes()));
        status.confinement = self.confinement.clone();
        if let Some(lost) = self.kernel_audit.as_mut().and_then(KernelAudit::poll_now) {
            self.record_lost_kernel_records(lost);
        }
        let stats = self.stats.read()?;
        status.suspended = self.suspension();
        status.skip_risk = stats.skip_risk.map(|risk| risk.to_string());
        status.counts = self.counts(&stats);
        let unwritten = self.written.unwritten.load(Ordering::Relaxed);
        status.settings.backlog = stats.backlog(status.counts.written, unwritten);
        status.by_rule = rule_counts(&stats);
        status.by_owner = owner_counts(&stats);
        status.kernel_messages = self.kernel_record_status(&stats);
        status.kernel_audit = self.check_kernel_audit();
        status.viewers = u64::try_from(self.viewers.count()).unwrap_or(u64::MAX);
        status.plugins = self.written.plugins.lost();
        status.json = self.json.as_ref().map(|json| {
            let queue::SinkStats {
                events, unwritten, ..
            } = json.read();
            JsonCounts {
                written: events,
                left_out: unwritten,
            }
        });
        status.runs = stats
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

fn owner_counts(stats: &RingStats) -> Vec<OwnerCounts> {
    let most = stats.owners.iter().take(MAX_OWNERS);
    let counts = most.map(|loss| {
        let (uid, namespace) = match loss.owner {
            TaskOwner::User(uid) => (Some(uid), None),
            TaskOwner::Namespace(number) => (None, Some(number)),
            TaskOwner::Others => (None, None),
        };
        OwnerCounts {
            uid,
            namespace,
            lost: loss.lost,
        }
    });
    counts.collect()
}

fn rule_counts(stats: &RingStats) -> Vec<RuleCounts> {
    let counts = stats.rules.iter().map(|(rule, count)| {
        let losses = [
            ("ring full", count.ring_full),
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
