//! Reports lost events in the log, and applies the failure mode.
//!
//! The ring thread counts and reports; the main thread sets rate limit and failure mode in two shared atomics.

use std::cmp::Reverse;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use audit::ids::MsgType;
use audit::record::quote;

use crate::pipeline::ring_commands::RecordBody;
use crate::pipeline::ring_thread::RingStats;
use engine::{LossReason, OwnerLoss, TaskOwner};

use crate::messages::info;

/// The kernel log.
const KMSG: &str = "/dev/kmsg";
/// A `c` written here panics the machine.
const SYSRQ: &str = "/proc/sysrq-trigger";
/// Shortest time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// `-f 0`, `-f 1` and `-f 2`.
const SILENT: u8 = 0;
const PRINT: u8 = 1;
const PANIC: u8 = 2;

/// Rate limit and failure mode (`-r`, `-f`).
#[derive(Debug)]
pub(crate) struct Limits {
    /// Records per second; 0 is no limit.
    rate: AtomicU32,
    failure: AtomicU8,
    kmsg: PreopenedFile,
    sysrq: PreopenedFile,
}

/// A file opened in advance, because the confined daemon cannot open it later.
#[derive(Debug)]
struct PreopenedFile {
    path: PathBuf,
    file: io::Result<File>,
}

/// Seconds by which an event can be older than one before it. An older one tells that the clock was set back.
const LATE_SECONDS: u64 = 5;

/// Number of records in the current second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateLimiter {
    second: u64,
    records: u32,
}

/// Owners that have a record of their own in one report.
const OWNERS_PER_REPORT: usize = 16;

/// New losses for the log.
#[derive(Debug, Default)]
pub(crate) struct LossReport {
    pub(crate) records: Vec<RecordBody>,
    /// Number of these events for each owner, by [`OwnerLoss::index`].
    pub(crate) by_owner: Vec<(usize, u64)>,
}

/// Losses reported so far.
#[derive(Debug, Default)]
pub(crate) struct LossReporter {
    reported: Vec<(&'static str, u64)>,
    last: Option<Instant>,
}

impl PreopenedFile {
    fn open(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: OpenOptions::new().write(true).open(path),
        }
    }

    /// Whether the file is open.
    fn check(&self) -> anyhow::Result<()> {
        match &self.file {
            Ok(_) => Ok(()),
            Err(error) => bail!("cannot open `{}`: {error}", self.path.display()),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        match &self.file {
            Ok(file) => (&*file).write_all(text.as_bytes()),
            Err(error) => Err(error.kind().into()),
        }
    }
}

impl Limits {
    /// No limits. Opens the files that `-f` may need, so it runs before privileges are dropped.
    pub(crate) fn new() -> Self {
        Self::open_at(KMSG.as_ref(), SYSRQ.as_ref())
    }

    fn open_at(kmsg: &Path, sysrq: &Path) -> Self {
        Self {
            rate: AtomicU32::new(0),
            failure: AtomicU8::new(SILENT),
            kmsg: PreopenedFile::open(kmsg),
            sysrq: PreopenedFile::open(sysrq),
        }
    }

    /// Sets rate limit and failure mode.
    ///
    /// # Errors
    /// `-f 2` is asked for and the machine could not be panicked. Then nothing changes.
    pub(crate) fn set(&self, rate: u32, failure: u8) -> anyhow::Result<()> {
        if failure == PANIC {
            self.sysrq
                .check()
                .context("`-f 2` cannot panic the machine; use `-f 1`")?;
        }
        if failure != SILENT
            && let Err(error) = self.kmsg.check()
        {
            // The log has a record of the loss, too.
            info(&format!(
                "losses are not printed to the kernel log: {error:#}"
            ));
        }
        self.rate.store(rate, Ordering::Relaxed);
        self.failure.store(failure, Ordering::Relaxed);
        Ok(())
    }

    /// Applies the failure mode.
    ///
    /// # Source
    /// `audit_panic` in `kernel/audit.c`, Linux 6.12.
    fn apply_failure_mode(&self, text: &str) {
        let failure = self.failure.load(Ordering::Relaxed);
        if failure >= PRINT {
            // If this fails, the log still has a record.
            let _unheard = self.kmsg.write(&format!("<3>tollgate: {text}\n"));
        }
        if failure >= PANIC
            && let Err(error) = self.sysrq.write("c")
        {
            info(&format!("cannot panic the machine: {error}"));
        }
    }
}

impl RateLimiter {
    /// Whether the rate limit admits these records in this second. Counts them if so.
    pub(crate) fn admits(&mut self, limits: &Limits, second: u64, text: &[u8]) -> bool {
        let limit = limits.rate.load(Ordering::Relaxed);
        if limit == 0 {
            return true;
        }
        let is_set_back = second + LATE_SECONDS < self.second;
        if second > self.second || is_set_back {
            *self = Self { second, records: 0 };
        }
        if self.records >= limit {
            return false;
        }
        let records = text.iter().filter(|&&byte| byte == b'\n').count();
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        self.records = self.records.saturating_add(records);
        true
    }
}

impl LossReporter {
    /// Reported losses, by the engine's reasons.
    pub(crate) fn reported_engine_losses(&self) -> [u64; LossReason::ALL.len()] {
        LossReason::ALL.map(|lost| {
            let reported = self
                .reported
                .iter()
                .find(|(reason, _)| *reason == lost.as_str());
            reported.map_or(0, |(_, reported)| *reported)
        })
    }

    /// Time until the next report, if there are unreported losses.
    pub(crate) fn next_report(&self, counted: &RingStats, now: Instant) -> Option<Duration> {
        self.unreported(counted).next()?;
        let last = self.last?;
        Some((last + PERIOD).saturating_duration_since(now))
    }

    /// Whether there are new losses, and the last report was more than a second ago.
    pub(crate) fn is_due(&self, counted: &RingStats, now: Instant) -> bool {
        self.last.is_none_or(|last| now >= last + PERIOD)
            && self.unreported(counted).next().is_some()
    }

    /// Reports all new losses. `owners` were read before `counted`, so that their losses are among these.
    pub(crate) fn report(
        &mut self,
        counted: &RingStats,
        owners: &[OwnerLoss],
        limits: &Limits,
        now: Instant,
    ) -> LossReport {
        let unreported: Vec<(&str, u64)> = self.unreported(counted).collect();
        let mut report = LossReport::default();
        if unreported.is_empty() {
            return report;
        }
        self.last = Some(now);
        self.reported = counted.losses().collect();
        for (reason, lost) in unreported {
            limits.apply_failure_mode(&format!("{lost} events lost: {reason}"));
            let mut rest = lost;
            if reason == LossReason::RingFull.as_str() {
                rest -= report.add_by_owner(reason, lost, owners);
            }
            if rest != 0 {
                report.add(reason, rest, "");
            }
        }
        report
    }

    fn unreported(&self, counted: &RingStats) -> impl Iterator<Item = (&'static str, u64)> {
        counted.losses().filter_map(|(reason, count)| {
            let reported = self
                .reported
                .iter()
                .find(|(reported, _)| *reported == reason);
            let new = count.saturating_sub(reported.map_or(0, |(_, count)| *count));
            (new != 0).then_some((reason, new))
        })
    }
}

impl LossReport {
    fn add(&mut self, reason: &str, lost: u64, owner: &str) {
        let mut body = format!("op=lost-events lost={lost} reason=").into_bytes();
        quote::untrusted(reason.replace(' ', "-").as_bytes(), &mut body);
        body.extend_from_slice(owner.as_bytes());
        body.extend_from_slice(b" res=failed");
        self.records.push(RecordBody {
            kind: MsgType::DAEMON_ERR,
            body,
        });
    }

    /// Adds a record for each owner with large losses. Returns the number of events in these records.
    fn add_by_owner(&mut self, reason: &str, lost: u64, owners: &[OwnerLoss]) -> u64 {
        let mut new: Vec<&OwnerLoss> = owners.iter().collect();
        new.sort_by_key(|loss| Reverse(loss.unreported()));
        let (mut rest, mut in_records) = (lost, 0);
        for (place, loss) in new.into_iter().enumerate() {
            let part = loss.unreported().min(rest);
            if part == 0 {
                break;
            }
            rest -= part;
            self.by_owner.push((loss.index, part));
            let owner = match loss.owner {
                TaskOwner::User(uid) => format!(" uid={uid}"),
                TaskOwner::Namespace(number) => format!(" ns={number}"),
                TaskOwner::Others => continue,
            };
            if place < OWNERS_PER_REPORT {
                self.add(reason, part, &owner);
                in_records += part;
            }
        }
        in_records
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn limits(directory: &Path) -> Limits {
        let path = |name: &str| {
            let path = directory.join(name);
            fs::write(&path, "").unwrap();
            path
        };
        Limits::open_at(&path("kmsg"), &path("sysrq"))
    }

    fn lost(ring: u64, limited: u64) -> RingStats {
        let mut counted = RingStats::default();
        counted.stats.lost[0] = ring;
        counted.limited = limited;
        counted
    }

    fn texts(report: LossReport) -> Vec<String> {
        let text = |record: RecordBody| String::from_utf8(record.body).unwrap();
        report.records.into_iter().map(text).collect()
    }

    #[test]
    fn first_loss_is_reported_at_once() {
        let mut counted = lost(3, 2);
        counted.undecodable = 1;
        counted.stats.delivered = 10;
        assert_eq!(counted.backlog(4, 0), 3);
        assert_eq!(counted.backlog(4, 3), 0);
        assert_eq!(counted.backlog(8, 3), 0, "counted a moment later");
    }

    #[test]
    fn failure_mode_selects_printk_or_panic() {
        for (mode, kmsg, sysrq) in [
            (SILENT, "", ""),
            (PRINT, "<3>tollgate: 7 events lost: ring full\n", ""),
            (PANIC, "<3>tollgate: 7 events lost: ring full\n", "c"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let limits = limits(directory.path());
            limits.set(0, mode).unwrap();
            let reported =
                LossReporter::default().report(&lost(7, 0), &[], &limits, Instant::now());
            assert_eq!(reported.records.len(), 1, "the log has it in any case");
            let text = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
            assert_eq!(
                (text("kmsg").as_str(), text("sysrq").as_str()),
                (kmsg, sysrq)
            );
        }
    }

    #[test]
    fn failure_mode_uses_files_opened_before_confinement() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path());
        let path = |name: &str| directory.path().join(name);
        for (name, away) in [("kmsg", "a"), ("sysrq", "b")] {
            fs::rename(path(name), path(away)).unwrap();
        }
        limits.set(0, PANIC).unwrap();
        LossReporter::default().report(&lost(7, 0), &[], &limits, Instant::now());
        assert!(!fs::read(path("a")).unwrap().is_empty());
        assert_eq!(fs::read(path("b")).unwrap(), b"c");
    }

    #[test]
    fn panic_mode_requires_sysrq() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let limits = Limits::open_at(&missing, &missing);
        let error = format!("{:#}", limits.set(5, PANIC).unwrap_err());
        assert!(error.contains("`-f 2`"), "{error}");
        assert_eq!(limits.rate.load(Ordering::Relaxed), 0, "nothing is changed");
        limits.set(5, PRINT).unwrap();
        assert_eq!(limits.rate.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn losses_are_reported_by_reason_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path());
        let (mut losses, now) = (LossReporter::default(), Instant::now());
        let mut report = |counted: &RingStats, after: Duration| -> Vec<String> {
            if !losses.is_due(counted, now + after) {
                return Vec::new();
            }
            texts(losses.report(counted, &[], &limits, now + after))
        };
        assert!(report(&lost(0, 0), Duration::ZERO).is_empty());
        assert_eq!(
            report(&lost(3, 2), Duration::ZERO),
            [
                "op=lost-events lost=3 reason=\"ring-full\" res=failed",
                "op=lost-events lost=2 reason=\"rate-limit\" res=failed",
            ]
        );
        assert!(report(&lost(4, 2), PERIOD / 2).is_empty());
        assert_eq!(
            report(&lost(9, 2), PERIOD),
            ["op=lost-events lost=6 reason=\"ring-full\" res=failed"]
        );
        assert_eq!(losses.next_report(&lost(9, 2), now + PERIOD), None);
        assert_eq!(losses.next_report(&lost(10, 2), now + PERIOD), Some(PERIOD));
        let end = losses.report(&lost(10, 2), &[], &limits, now + PERIOD);
        assert_eq!(end.records.len(), 1, "the end waits for nothing");
    }

    #[test]
    fn losses_of_a_full_ring_are_reported_by_owner() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path());
        let mut losses = LossReporter::default();
        let loss = |index, owner, lost, reported| OwnerLoss {
            owner,
            lost,
            reported,
            index,
        };
        let owners = [
            loss(4, TaskOwner::User(33), 100, 100),
            loss(2, TaskOwner::Namespace(4_026_532_210), 8, 5),
            loss(9, TaskOwner::User(1001), 7, 0),
            loss(5, TaskOwner::Others, 2, 0),
        ];
        let report = losses.report(&lost(13, 1), &owners, &limits, Instant::now());
        assert_eq!(report.by_owner, [(9, 7), (2, 3), (5, 2)]);
        assert_eq!(
            texts(report),
            [
                "op=lost-events lost=7 reason=\"ring-full\" uid=1001 res=failed",
                "op=lost-events lost=3 reason=\"ring-full\" ns=4026532210 res=failed",
                "op=lost-events lost=3 reason=\"ring-full\" res=failed",
                "op=lost-events lost=1 reason=\"rate-limit\" res=failed",
            ]
        );
        // An owner was counted, and the total not yet.
        let report = losses.report(&lost(15, 1), &owners, &limits, Instant::now());
        assert_eq!(report.by_owner, [(9, 2)]);

        let many: Vec<OwnerLoss> = (0..20)
            .map(|uid| loss(0, TaskOwner::User(uid), 1, 0))
            .collect();
        let report = losses.report(&lost(35, 1), &many, &limits, Instant::now());
        assert_eq!(report.by_owner.len(), many.len());
        assert_eq!(report.records.len(), OWNERS_PER_REPORT + 1);
    }

    #[test]
    fn rate_limit_counts_records_per_second() {
        let directory = tempfile::tempdir().unwrap();
        let limits = limits(directory.path());
        let mut rate = RateLimiter::default();
        let mut admits = |second| rate.admits(&limits, second, b"a\nb\n");
        assert!((0..100).all(|_| admits(1)), "0 is no limit");
        limits.set(3, SILENT).unwrap();
        assert_eq!([2, 2, 2].map(&mut admits), [true, true, false]);
        assert_eq!([3, 2, 3, 3].map(&mut admits), [true, true, false, false]);
        // The clock is set, and set back.
        assert_eq!([7203, 3, 3, 3].map(admits), [true, true, true, false]);
    }
}
