//! The kernel's own audit while the daemon runs: it sends its messages, its syscall auditing costs nothing,
//! and at the end it is as before.
//!
//! Messages of users, logins, denials and the like come from the kernel, and most of them only while its
//! audit is enabled. But a task that starts then pays at each of its calls, unless `-a never,task` stands
//! before; so that rule is loaded first, and without it nothing is enabled here.
//!
//! One process of the machine is sent the messages, and it alone changes anything; others may listen
//! beside it. [`saved`] keeps what was before, also for the daemon that comes after one that was killed.

mod saved_state;

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use netlink::{AuditSettings, AuditSocket, AuditSummary, RecordStream};
use nix::errno::Errno;

use crate::config::tollgate_toml::KernelRecordsMode;
use crate::control::protocol::KernelMessages;
use crate::messages::info;
use saved_state::{PreviousSettings, SavedStateFile};

/// Where it is kept what was before: there is one kernel's audit on a machine.
const SAVED_STATE_PATH: &str = "/run/tollgate/kernel-audit";
/// Messages that may wait with the kernel: what benchmarks of hardening ask for at least.
const BACKLOG_LIMIT: u32 = 8192;
/// Between two looks at what the kernel has lost.
const POLL_PERIOD: Duration = Duration::from_secs(10);
/// For what the kernel has to send at the end.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(1);
/// `-e 0`, `-e 1` and `-e 2` of `auditctl`.
const OFF: u32 = 0;
const ON: u32 = 1;
const LOCKED: u32 = 2;

/// Where the messages come from: the kernel's audit.
#[derive(Debug)]
pub(super) struct KernelAudit {
    control: AuditSocket,
    /// What was before, when this process is the one that the messages are sent to.
    registered: Option<Registered>,
    /// What the kernel had lost at the last look.
    lost: u32,
    /// Lost since this daemon reads.
    total_lost: u64,
    due: Instant,
}

#[derive(Debug)]
struct Registered {
    saved: SavedStateFile,
    /// Whether it may be enabled and disabled.
    ours: bool,
}

impl KernelAudit {
    /// Opens the way for messages, and gives them. Nothing comes before [`KernelAudit::begin`], where nobody has
    /// enabled the kernel's audit. `None` when none are wanted or, with `Auto`, none can be had, which is
    /// said.
    ///
    /// # Errors
    /// When the kernel does not give what was asked for by name.
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
                    "another process is sent the messages of the kernel's audit: end it, or listen \
                     beside it with `multicast`"
                ),
            },
            KernelRecordsMode::Auto => {
                let opened = match Self::register() {
                    Ok(None) => Self::listen().map(Some),
                    opened => opened,
                };
                Ok(opened.unwrap_or_else(|error| {
                    info(&format!(
                        "messages of the kernel's audit are not read: {error:#}"
                    ));
                    None
                }))
            }
        }
    }

    fn listen() -> anyhow::Result<(Self, RecordStream)> {
        let stream =
            RecordStream::join_multicast().context("cannot listen to the kernel's audit")?;
        Ok((Self::new(None)?, stream))
    }

    /// Becomes the process that messages are sent to; `None` when another one is.
    fn register() -> anyhow::Result<Option<(Self, RecordStream)>> {
        // Without a place to keep what was before, nothing may be changed.
        let Some(saved) = SavedStateFile::take(Path::new(SAVED_STATE_PATH))? else {
            return Ok(None);
        };
        let stream = match RecordStream::register() {
            Ok(stream) => stream,
            Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => return Ok(None),
            Err(error) => return Err(error).context("the kernel's audit takes no reader"),
        };
        let registered = Registered { saved, ours: false };
        Ok(Some((Self::new(Some(registered))?, stream)))
    }

    fn new(registered: Option<Registered>) -> anyhow::Result<Self> {
        let control = AuditSocket::open().context("the kernel has no audit")?;
        let lost = control.status().map_or(0, |status| status.lost);
        Ok(Self {
            control,
            registered,
            lost,
            total_lost: 0,
            due: Instant::now() + POLL_PERIOD,
        })
    }

    /// Has messages sent from now on.
    ///
    /// # Errors
    /// When the kernel's audit cannot be changed; it is as before then.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        let Some(registered) = &mut self.registered else {
            info("messages of the kernel's audit: listening beside the process that is sent them");
            return Ok(());
        };
        let cannot = "cannot learn the state of the kernel's audit";
        let status = self.control.status().context(cannot)?;
        let state = AuditSummary::query().context(cannot)?;
        if status.settings.enabled == LOCKED || state.rules != 0 {
            info(
                "messages of the kernel's audit: its rules and settings are those of others, and stay",
            );
            return Ok(());
        }
        // What a daemon that was killed has set is not what was before.
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
                .context("cannot keep tasks free of the kernel's syscall auditing")?;
        }
        self.set(AuditSettings {
            enabled: ON,
            backlog_limit: status.settings.backlog_limit.max(BACKLOG_LIMIT),
            // No task waits for a reader.
            backlog_wait_time: 0,
            ..status.settings
        })
    }

    /// Has the kernel make messages, or not, as `-e 1` and `-e 0` say.
    ///
    /// # Errors
    /// When the kernel's audit cannot be changed.
    pub(super) fn enable(&mut self, on: bool) -> anyhow::Result<()> {
        if !self.registered.as_ref().is_some_and(|to| to.ours) {
            return Ok(());
        }
        let settings = self.settings()?;
        let enabled = if on { ON } else { OFF };
        if settings.enabled == enabled {
            return Ok(());
        }
        self.set(AuditSettings {
            enabled,
            ..settings
        })
    }

    /// When [`KernelAudit::poll`] is due.
    pub(super) fn next_poll(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Looks at its time what the kernel has lost since the last look.
    pub(super) fn poll(&mut self) -> Option<u32> {
        (self.due <= Instant::now())
            .then(|| self.poll_now())
            .flatten()
    }

    /// Looks what the kernel has lost since the last look.
    pub(super) fn poll_now(&mut self) -> Option<u32> {
        self.due = Instant::now() + POLL_PERIOD;
        let now = self.control.status().ok()?.lost;
        let before = std::mem::replace(&mut self.lost, now);
        // Who has set the count to zero has read it.
        let lost = now.checked_sub(before).unwrap_or(now);
        self.total_lost += u64::from(lost);
        (lost != 0).then_some(lost)
    }

    /// What it has lost since this daemon reads, as of the last look.
    pub(super) const fn total_lost(&self) -> u64 {
        self.total_lost
    }

    /// Leaves what was changed to the next daemon, which knows what was before.
    pub(super) fn leave(&mut self) {
        if let Some(registered) = &mut self.registered
            && std::mem::take(&mut registered.ours)
        {
            info(
                "messages of the kernel's audit: until the next daemon, they go to the kernel's log",
            );
        }
    }

    /// Waits until what the kernel has for this reader was sent, for a moment at most.
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

    /// What there is to say about it.
    pub(super) fn fill_status(&self, messages: &mut KernelMessages) {
        let how = if self.registered.is_some() {
            "registered"
        } else {
            "listening"
        };
        how.clone_into(&mut messages.reader);
        messages.lost = self.total_lost;
        messages.backlog = self.control.status().map_or(0, |status| status.backlog);
    }

    fn settings(&self) -> anyhow::Result<AuditSettings> {
        let status = self.control.status();
        Ok(status
            .context("cannot learn the state of the kernel's audit")?
            .settings)
    }

    fn set(&self, settings: AuditSettings) -> anyhow::Result<()> {
        self.control
            .set_settings(&settings)
            .context("cannot change the kernel's audit")
    }
}

impl Drop for KernelAudit {
    /// Leaves the kernel's audit as it was found, if it is not left to the next daemon. What was sent until then can still be read.
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
            info(&format!("the kernel's audit keeps this reader: {error}"));
        }
    }
}

/// Puts back what a daemon has changed that was killed, unless another one goes on with it.
///
/// # Errors
/// When that cannot be learned.
fn repair() -> anyhow::Result<()> {
    let path = Path::new(SAVED_STATE_PATH);
    if !path.exists() {
        return Ok(());
    }
    if let Some(mut saved) = SavedStateFile::take(path)?
        && saved.before().is_some()
    {
        let control = AuditSocket::open().context("the kernel has no audit")?;
        restore(&control, &mut saved);
        // It would say so when it next had something to send.
        let _another_lives = control.unregister_dead_daemon();
    }
    Ok(())
}

/// Puts back what was before, if that is kept; says what cannot be put back.
fn restore(control: &AuditSocket, saved: &mut SavedStateFile) {
    let Some(before) = saved.before() else {
        return;
    };
    let restored = control.status().and_then(|status| {
        control.set_settings(&AuditSettings {
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
        Err(error) => info(&format!("the kernel's audit is not as before: {error}")),
    }
}

/// What somebody else has deleted is deleted.
fn ignore_missing(deleted: io::Result<()>) -> io::Result<()> {
    match deleted {
        Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(()),
        deleted => deleted,
    }
}
