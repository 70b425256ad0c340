//! The main thread's control of the log: signals, timers and the end.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use audit::conf::auditd;
use audit::rule::Severity;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use netlink::AuditSummary;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::signalfd::siginfo;

use crate::config;
use crate::host::ThisMachine;
use crate::messages::{self, warn};
use crate::pipeline::log_thread::{LOG_THREAD_TIMEOUT, LogCommand, LogCommandSender};
use crate::rule_files::Refused;
use crate::sinks::audit_log::{LogConfig, SignalSender};

/// State file that `auditd` writes at SIGCONT and scripts read.
const STATE: &str = "/run/audit/auditd.state";
/// Source of the log's path and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSource {
    /// Path of `auditd.conf`.
    pub(crate) conf: Option<PathBuf>,
    /// Explicit log path. Without `auditd.conf` the log is only written.
    pub(crate) path: Option<PathBuf>,
}

/// Controls the log from the main thread.
#[derive(Debug)]
pub(crate) struct LogController {
    source: LogSource,
    commands: LogCommandSender,
    /// New settings, until the log thread has answered.
    pending: Option<(LogConfig, Receiver<bool>)>,
    report_period: Option<Duration>,
    due: Instant,
    /// Path of the log.
    log: PathBuf,
}

/// Outcome of new settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configured {
    /// They are active, or none were requested.
    Done,
    /// The old settings stay active.
    Refused,
    /// The log thread has not answered.
    Pending,
}

impl LogSource {
    /// Whether there is no `auditd.conf`.
    pub(crate) const fn is_plain(&self) -> bool {
        self.conf.is_none() && self.path.is_some()
    }

    /// Reads the log's settings. `Err` inside if `auditd.conf` has errors, which have been reported.
    ///
    /// # Errors
    /// The configuration cannot be read, or the node name it asks for is not available.
    pub(crate) fn log_config(&self) -> anyhow::Result<Result<LogConfig, Refused>> {
        let conf = match (&self.conf, &self.path) {
            (Some(conf), _) => {
                let read = config::read_auditd(conf)?;
                messages::print_findings(&read.file);
                if let Some(errors) = read.file.errors() {
                    return Ok(Err(Refused(errors)));
                }
                read.settings
            }
            (None, Some(path)) => return Ok(Ok(LogConfig::plain(path.clone()))),
            (None, None) => auditd::Settings::default(),
        };
        LogConfig::configured(conf, self.path.clone()).map(Ok)
    }

    /// The log's settings in the text of an `auditd.conf`. `None` if it has errors.
    pub(crate) fn parse(&self, text: &[u8]) -> Option<LogConfig> {
        let (conf, diagnostics) = auditd::parse(text, &ThisMachine);
        let has_errors = diagnostics
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        let log_config = LogConfig::configured(conf, self.path.clone());
        log_config.ok().filter(|_| !has_errors)
    }

    /// Checks that neither another daemon nor `auditd` writes to the same log.
    ///
    /// # Errors
    /// Another one does.
    pub(crate) fn ensure_no_other_writer(&self, log_config: &LogConfig) -> anyhow::Result<()> {
        // Before anything is changed; the log is locked when it is opened.
        drop(log_config.lock()?);
        if self.path.is_some() {
            return Ok(());
        }
        // Without the kernel's audit `auditd` cannot run.
        let pid = AuditSummary::query().map_or(0, |kernel| kernel.pid);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim_end() == "auditd" {
            bail!(
                "auditd (PID {pid}) writes the log that auditd.conf names: stop auditd, or give tollgate its own log with --log"
            );
        }
        Ok(())
    }
}

impl LogController {
    /// Creates the controller of an open log.
    pub(crate) fn new(
        source: LogSource,
        log_config: &LogConfig,
        commands: LogCommandSender,
    ) -> Self {
        let mut log_controller = Self {
            source,
            commands,
            pending: None,
            report_period: None,
            due: Instant::now(),
            log: PathBuf::new(),
        };
        log_controller.use_config(log_config);
        log_controller
    }

    /// Time until [`LogController::poll`] is due.
    pub(crate) fn next_poll(&self) -> Option<Duration> {
        self.report_period
            .map(|_| self.due.saturating_duration_since(Instant::now()))
    }

    /// Path of the log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Handles what is due. Returns why settings that a slow disk had delayed are not active.
    pub(crate) fn poll(&mut self) -> Option<Refused> {
        let configured = self.await_configuration(Duration::ZERO);
        if let Some(report_period) = self.report_period
            && self.due <= Instant::now()
        {
            self.due = Instant::now() + report_period;
            self.report();
        }
        (configured == Configured::Refused).then(not_applied)
    }

    /// Handles a signal for the log. Returns whether the daemon continues.
    pub(crate) fn handle_signal(&mut self, signal: &siginfo) -> bool {
        let sender = SignalSender::of(signal.ssi_pid, signal.ssi_uid);
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            Ok(Signal::SIGUSR1) => {
                self.send(
                    LogCommand::Rotate(sender),
                    ["the log is not rotated", "rotate"],
                );
            }
            Ok(Signal::SIGUSR2) => {
                self.send(
                    LogCommand::Resume(sender),
                    ["logging is not resumed", "resume"],
                );
            }
            Ok(Signal::SIGCONT) => self.report(),
            _ => {
                self.commands.send(LogCommand::End(sender));
                return false;
            }
        }
        true
    }

    fn send(&self, command: LogCommand, [failure, signal]: [&str; 2]) {
        if !self.commands.send_within(command, LOG_THREAD_TIMEOUT) {
            warn(&format!(
                "{failure}, because the disk is slow: repeat `tollgate auditctl --signal {signal}`"
            ));
        }
    }

    /// Reads `auditd.conf` and the plugins again, and applies them unless another file is `refused`. A failure has been
    /// reported.
    ///
    /// # Errors
    /// The old settings stay active: why.
    pub(crate) fn reload(
        &mut self,
        sender: SignalSender,
        refused: Option<Refused>,
    ) -> Result<(), Refused> {
        const BUSY: &str =
            "auditd.conf is not applied, because the disk is slow: repeat the reload";
        let busy = || {
            warn(BUSY);
            Refused(BUSY.to_owned())
        };
        if self.source.conf.is_none() {
            return Ok(());
        }
        if self.await_configuration(LOG_THREAD_TIMEOUT) == Configured::Pending {
            return Err(busy());
        }
        let log_config = self.source.log_config().unwrap_or_else(|error| {
            warn(&format!(
                "auditd.conf is not applied, the old settings stay in force: {error:#}"
            ));
            Err(Refused(format!("{error:#}")))
        });
        let log_config = log_config.and_then(|log_config| refused.map_or(Ok(log_config), Err));
        let (commands, from) = bounded(1);
        let wanted = log_config.clone().ok().map(Box::new);
        let command = LogCommand::Configure(wanted, sender, commands);
        if !self.commands.send_within(command, LOG_THREAD_TIMEOUT) {
            return Err(busy());
        }
        self.pending = Some((log_config?, from));
        match self.await_configuration(LOG_THREAD_TIMEOUT) {
            Configured::Done => Ok(()),
            Configured::Refused => Err(not_applied()),
            Configured::Pending => {
                warn("auditd.conf is applied later, because the disk is slow");
                Ok(())
            }
        }
    }

    /// Switches to the requested settings once they are active, after at most `patience`.
    fn await_configuration(&mut self, patience: Duration) -> Configured {
        let Some((log_config, from)) = self.pending.take() else {
            return Configured::Done;
        };
        match from.recv_timeout(patience) {
            Ok(true) => {
                self.use_config(&log_config);
                Configured::Done
            }
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some((log_config, from));
                Configured::Pending
            }
            Ok(false) | Err(RecvTimeoutError::Disconnected) => Configured::Refused,
        }
    }

    fn use_config(&mut self, log_config: &LogConfig) {
        self.log.clone_from(&log_config.path);
        let conf = log_config.conf.as_ref();
        self.report_period = conf
            .map(|conf| conf.report_interval)
            .filter(|report_period| !report_period.is_zero());
        self.due = Instant::now() + self.report_period.unwrap_or_default();
    }

    fn report(&self) {
        let (commands, from) = bounded(1);
        self.commands
            .send_within(LogCommand::Report(commands), LOG_THREAD_TIMEOUT);
        let Ok(text) = from.recv_timeout(LOG_THREAD_TIMEOUT) else {
            return warn(
                "the state file is not written, because the disk is slow: repeat `tollgate auditctl --signal state`",
            );
        };
        if let Err(error) = write_state(Path::new(STATE), &text) {
            warn(&format!("{error:#}"));
        }
    }
}

/// The log thread has reported why.
fn not_applied() -> Refused {
    let text = "auditd.conf is not applied, the old settings stay in force: `journalctl -u tollgate` has the reason";
    Refused(text.to_owned())
}

/// Directory of the state file. Created now: a confined daemon could not.
pub(super) fn state_directory() -> PathBuf {
    let path = Path::new(STATE).parent().unwrap_or_else(|| Path::new("/"));
    // A failure is reported when the state is written.
    let _made = DirBuilder::new().recursive(true).mode(0o750).create(path);
    path.to_owned()
}

fn write_state(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_NONBLOCK.bits())
        .open(path)
        .with_context(|| format!("cannot open `{}`", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write `{}`", path.display()))
}
