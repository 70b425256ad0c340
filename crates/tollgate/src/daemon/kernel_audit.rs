//! The kernel's own audit while the daemon runs: it sends its records, its syscall auditing is off, and its settings
//! are restored at the end.
//!
//! Records of users, logins and denials come from the kernel, and most of them only while its audit is enabled. But
//! then each syscall of a new task is slower, unless the rule `-a never,task` is loaded before. So that rule is
//! loaded first; without it audit is not enabled here.
//!
//! One process of the machine, the registered daemon, receives the records, and only it changes settings; others may
//! read the multicast group. [`saved_state`] stores the previous settings, also for the daemon after one that was
//! killed.

mod monitor;
mod saved_state;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use netlink::{AuditSocket, AuditSummary, KernelAuditSettings, RecordStream};
use nix::errno::Errno;

use crate::config::tollgate_toml::KernelRecordsMode;
use crate::control::protocol::KernelRecordStatus;
use crate::messages::{info, warn};
pub(super) use monitor::KernelAuditMonitor;
use saved_state::{PreviousSettings, SavedStateFile};

/// File with the previous settings. There is one kernel audit per machine.
const SAVED_STATE_PATH: &str = "/run/tollgate/kernel-audit";
/// Backlog limit: the minimum that hardening benchmarks require.
const BACKLOG_LIMIT: u32 = 8192;
/// Interval of polling the kernel's lost counter.
const POLL_PERIOD: Duration = Duration::from_secs(10);
/// Time for the kernel's last records at the end.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(1);
/// `-e 0`, `-e 1` and `-e 2` of auditctl.
const OFF: u32 = 0;
const ON: u32 = 1;
const LOCKED: u32 = 2;

/// Source of the kernel's own records.
#[derive(Debug)]
pub(super) struct KernelAudit {
    control: AuditSocket,
    /// Previous settings, if this process is the registered daemon.
    registered: Option<Registered>,
    /// The kernel's lost counter at the last poll.
    lost: u32,
    /// Records lost since this daemon started to read.
    total_lost: u64,
    due: Instant,
    /// Whether the kernel's audit is to be enabled: not after `-e 0`.
    is_wanted: bool,
}

#[derive(Debug)]
struct Registered {
    saved: SavedStateFile,
    /// Whether this daemon may enable and disable audit.
    ours: bool,
}

impl KernelAudit {
    /// Opens the source and the stream of records. Nothing arrives before [`KernelAudit::begin`] unless another
    /// process has enabled audit. `None` if records are not wanted, or with `Auto` not available, which is reported.
    ///
    /// # Errors
    /// The kernel refuses the mode that the configuration names.
    pub(super) fn open(wanted: KernelRecordsMode) -> anyhow::Result<Option<(Self, RecordStream)>> {
        match wanted {
            KernelRecordsMode::Off => {
                repair()?;
                Ok(None)
            }
            KernelRecordsMode::Multicast => {
                repair()?;
                Self::listen().map(Some)
            }
            KernelRecordsMode::Unicast => match Self::register()? {
                Some(opened) => Ok(Some(opened)),
                None => bail!(
                    "another process receives the records of the kernel's audit: stop it, or set \
                         `kernel_messages = \"multicast\"` to read beside it"
                ),
            },
            KernelRecordsMode::Auto => {
                let opened = match Self::register() {
                    Ok(None) => Self::listen().map(Some),
                    opened => opened,
                };
                Ok(opened.unwrap_or_else(|error| {
                    info(&format!(
                        "the records of the kernel's audit are not read: {error:#}"
                    ));
                    None
                }))
            }
        }
    }

    fn listen() -> anyhow::Result<(Self, RecordStream)> {
        let stream = RecordStream::join_multicast()
            .context("cannot join the multicast group of the kernel's audit")?;
        Ok((Self::new(None)?, stream))
    }

    /// Registers as the audit daemon; `None` if another process is registered.
    fn register() -> anyhow::Result<Option<(Self, RecordStream)>> {
        // Nothing is changed unless the previous settings can be stored.
        let Some(saved) = SavedStateFile::take(Path::new(SAVED_STATE_PATH))? else {
            return Ok(None);
        };
        let stream = match RecordStream::register() {
            Ok(stream) => stream,
            Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => return Ok(None),
            Err(error) => {
                return Err(error).context("cannot register as the kernel's audit daemon");
            }
        };
        let registered = Registered { saved, ours: false };
        Ok(Some((Self::new(Some(registered))?, stream)))
    }

    fn new(registered: Option<Registered>) -> anyhow::Result<Self> {
        let control = AuditSocket::open()
            .context("cannot open an audit socket: the kernel may be built without audit")?;
        let lost = control.status().map_or(0, |status| status.lost);
        Ok(Self {
            control,
            registered,
            lost,
            total_lost: 0,
            due: Instant::now() + POLL_PERIOD,
            is_wanted: true,
        })
    }

    /// Enables the records.
    ///
    /// # Errors
    /// The kernel's audit cannot be changed. It is left as it was.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        let enabled = if self.is_wanted { ON } else { OFF };
        let Some(registered) = &mut self.registered else {
            info("kernel audit records: reading the multicast group beside another audit daemon");
            return Ok(());
        };
        let cannot = "cannot read the status of the kernel's audit";
        let status = self.control.status().context(cannot)?;
        let state = AuditSummary::query().context(cannot)?;
        if status.settings.enabled == LOCKED || state.rules != 0 {
            info(
                "kernel audit records: rules or settings of another program are active and stay unchanged; after \
                 auditd's `auditctl -D` the daemon takes over",
            );
            return Ok(());
        }
        // Settings of a killed daemon are not the previous settings.
        let before = registered.saved.before().unwrap_or(PreviousSettings {
            enabled: status.settings.enabled,
            backlog_limit: status.settings.backlog_limit,
            backlog_wait_time: status.settings.backlog_wait_time,
            never_task: state.never_task,
        });
        registered.saved.keep(before)?;
        registered.ours = true;
        if !state.never_task {
            self.control
                .add_never_task()
                .context("cannot load `-a never,task`, which keeps new tasks free of the kernel's syscall auditing")?;
        }
        self.set(KernelAuditSettings {
            enabled,
            backlog_limit: status.settings.backlog_limit.max(BACKLOG_LIMIT),
            // No task waits for a reader.
            backlog_wait_time: 0,
            ..status.settings
        })
    }

    /// Enables or disables the kernel's audit, as `-e 1` and `-e 0` do.
    ///
    /// # Errors
    /// The kernel's audit cannot be changed.
    pub(super) fn enable(&mut self, on: bool) -> anyhow::Result<()> {
        self.is_wanted = on;
        if !self.registered.as_ref().is_some_and(|to| to.ours) {
            return Ok(());
        }
        let settings = self.settings()?;
        let enabled = if on { ON } else { OFF };
        // Another program can have locked it since (`auditctl -e 2`): then it stays as it is until a reboot.
        if settings.enabled == enabled || settings.enabled == LOCKED {
            return Ok(());
        }
        self.set(KernelAuditSettings {
            enabled,
            ..settings
        })
    }

    /// Loads `-a never,task` again if another program has deleted it while the kernel's audit is enabled for records:
    /// without it every syscall of a new task is slower.
    pub(super) fn repair_never_task(&self, state: &AuditSummary) {
        let is_ours = self.registered.as_ref().is_some_and(|to| to.ours);
        if !is_ours || state.never_task || !state.enabled || state.rules != 0 {
            return;
        }
        match self.control.add_never_task() {
            Ok(()) => warn(
                "another program has deleted the rule `-a never,task` of the kernel's audit; loaded it again; tasks \
                 started in between stay slower until they end",
            ),
            Err(error) => warn(&format!(
                "another program has deleted the rule `-a never,task` of the kernel's audit, so new tasks are slower; \
                 cannot load it again: {error}"
            )),
        }
    }

    /// Takes the kernel's audit over once the rules are deleted that another program, such as auditd, had left there.
    pub(super) fn take_over(&mut self, state: &AuditSummary) {
        let waits = self.registered.as_ref().is_some_and(|to| !to.ours);
        let status = || self.control.status();
        if !waits
            || state.rules != 0
            || !status().is_ok_and(|status| status.settings.enabled != LOCKED)
        {
            return;
        }
        match self.begin() {
            Ok(()) => info(
                "the kernel's audit has no rules of other programs any more: this daemon took it over; its syscall \
                 auditing is off for tasks started from now on",
            ),
            Err(error) => warn(&format!(
                "the kernel's audit has no rules of other programs any more, but cannot be taken over: {error:#}"
            )),
        }
    }

    /// When [`KernelAudit::poll`] is due.
    pub(super) fn next_poll(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Polls the kernel's lost counter if due; returns the newly lost records.
    pub(super) fn poll(&mut self) -> Option<u32> {
        (self.due <= Instant::now())
            .then(|| self.poll_now())
            .flatten()
    }

    /// Polls the kernel's lost counter; returns the newly lost records.
    pub(super) fn poll_now(&mut self) -> Option<u32> {
        self.due = Instant::now() + POLL_PERIOD;
        let now = self.control.status().ok()?.lost;
        let before = std::mem::replace(&mut self.lost, now);
        // A process that resets the counter has read it.
        let lost = now.checked_sub(before).unwrap_or(now);
        self.total_lost += u64::from(lost);
        (lost != 0).then_some(lost)
    }

    /// Records lost since this daemon started to read, as of the last poll.
    pub(super) const fn total_lost(&self) -> u64 {
        self.total_lost
    }

    /// Leaves the settings to the next daemon, which finds the previous ones in the file.
    pub(super) fn keep_for_next_daemon(&mut self) {
        if let Some(registered) = &mut self.registered
            && std::mem::take(&mut registered.ours)
        {
            info("kernel audit records go to the kernel log until the next daemon starts");
        }
    }

    /// Waits briefly until the kernel has sent its pending records.
    fn settle(&self) {
        let until = Instant::now() + REGISTER_TIMEOUT;
        while Instant::now() < until
            && self
                .control
                .status()
                .is_ok_and(|status| status.backlog != 0)
        {
            thread::yield_now();
        }
    }

    /// Fills in the kernel's counters.
    pub(super) fn fill_status(&self, messages: &mut KernelRecordStatus) {
        let how = if self.registered.is_some() {
            "registered"
        } else {
            "listening"
        };
        how.clone_into(&mut messages.reader);
        messages.lost = self.total_lost;
        messages.backlog = self.control.status().map_or(0, |status| status.backlog);
    }

    fn settings(&self) -> anyhow::Result<KernelAuditSettings> {
        let status = self.control.status();
        Ok(status
            .context("cannot read the status of the kernel's audit")?
            .settings)
    }

    fn set(&self, settings: KernelAuditSettings) -> anyhow::Result<()> {
        self.control
            .set_settings(&settings)
            .context("cannot change the kernel's audit")
    }
}

impl Drop for KernelAudit {
    /// Restores the kernel's audit, unless it is left to the next daemon. Records sent until then can still be read.
    fn drop(&mut self) {
        match &mut self.registered {
            None => return,
            Some(registered) if registered.ours => {
                restore(&self.control, &mut registered.saved);
            }
            Some(_) => {}
        }
        self.settle();
        if let Err(error) = self.control.unregister() {
            info(&format!(
                "cannot unregister from the kernel's audit: {error}"
            ));
        }
    }
}

/// Restores the settings that a killed daemon has changed, unless another daemon uses them.
///
/// # Errors
/// The status cannot be read.
pub(crate) fn repair() -> anyhow::Result<()> {
    let path = Path::new(SAVED_STATE_PATH);
    if !path.exists() {
        return Ok(());
    }
    if let Some(mut saved) = SavedStateFile::take(path)?
        && saved.before().is_some()
    {
        let control = AuditSocket::open()
            .context("cannot open an audit socket: the kernel may be built without audit")?;
        restore(&control, &mut saved);
        // The kernel finds out when it next sends something.
        let _another_lives = control.unregister_dead_daemon();
    }
    Ok(())
}

/// Restores the stored settings, and reports failures.
fn restore(control: &AuditSocket, saved: &mut SavedStateFile) {
    let Some(before) = saved.before() else {
        return;
    };
    let restored = control.status().and_then(|status| {
        control.set_settings(&KernelAuditSettings {
            enabled: before.enabled,
            backlog_limit: before.backlog_limit,
            backlog_wait_time: before.backlog_wait_time,
            ..status.settings
        })
    });
    let removed = if before.never_task {
        Ok(())
    } else {
        ignore_missing(control.delete_never_task())
    };
    match restored.and(removed) {
        Ok(()) => saved.clear(),
        Err(error) => info(&format!(
            "cannot restore the settings of the kernel's audit: {error}; see `auditctl -s`"
        )),
    }
}

/// A rule that another process has deleted is no error.
fn ignore_missing(deleted: io::Result<()>) -> io::Result<()> {
    match deleted {
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
        deleted => deleted,
    }
}
