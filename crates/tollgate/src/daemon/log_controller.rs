//! What the main thread has done to the log: at signals, at its own time, and at the end.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use audit::conf::auditd;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use netlink::AuditSummary;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::signalfd::siginfo;

use crate::config;
use crate::messages::{self, warn};
use crate::pipeline::log_thread::{LOG_THREAD_TIMEOUT, LogCommand, LogCommandSender};
use crate::sinks::audit_log::{LogConfig, SignalSender};

/// Where `auditd` writes its state at CONT, and scripts look for it.
const STATE: &str = "/run/audit/auditd.state";
/// Where the log is, and how it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSource {
    /// The administrator's configuration.
    pub(crate) conf: Option<PathBuf>,
    /// A log that was named; without configuration it is only written.
    pub(crate) path: Option<PathBuf>,
}

/// Looks after the log from the main thread.
#[derive(Debug)]
pub(crate) struct LogController {
    source: LogSource,
    commands: LogCommandSender,
    /// Settings of which it is not known yet whether they are in force.
    pending: Option<(LogConfig, Receiver<bool>)>,
    report_period: Option<Duration>,
    due: Instant,
    /// Where it is.
    log: PathBuf,
}

impl LogSource {
    /// Whether the log is only written, and nothing is said of how it is kept.
    pub(crate) const fn is_plain(&self) -> bool {
        self.conf.is_none() && self.path.is_some()
    }

    /// How the log is to be kept; `None` when the configuration is wrong, which has been said.
    ///
    /// # Errors
    /// Configuration that cannot be read, or a machine without a name as it was asked for.
    pub(crate) fn log_config(&self) -> anyhow::Result<Option<LogConfig>> {
        let conf = match (&self.conf, &self.path) {
            (Some(conf), _) => {
                let read = config::read_auditd(conf)?;
                messages::print_findings(&read.file);
                if !read.is_valid() {
                    return Ok(None);
                }
                read.settings
            }
            (None, Some(path)) => return Ok(Some(LogConfig::plain(path.clone()))),
            (None, None) => auditd::Settings::default(),
        };
        LogConfig::configured(conf, self.path.clone()).map(Some)
    }

    /// Whether `auditd` may be writing to the same log.
    ///
    /// # Errors
    /// When it runs.
    pub(crate) fn ensure_no_other_writer(&self) -> anyhow::Result<()> {
        if self.path.is_some() {
            return Ok(());
        }
        // Without the kernel's audit there is no auditd either.
        let pid = AuditSummary::query().map_or(0, |kernel| kernel.pid);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim_end() == "auditd" {
            bail!(
                "auditd runs, as process {pid}, and writes the log that auditd.conf names: stop it, or give tollgate a log of its own with --log"
            );
        }
        Ok(())
    }
}

impl LogController {
    /// Looks after a log that is kept like this.
    pub(crate) fn new(
        source: LogSource,
        log_config: &LogConfig,
        commands: LogCommandSender,
    ) -> Self {
        let mut tend = Self {
            source,
            commands,
            pending: None,
            report_period: None,
            due: Instant::now(),
            log: PathBuf::new(),
        };
        tend.use_config(log_config);
        tend
    }

    /// How long nothing is to be done.
    pub(crate) fn next_poll(&self) -> Option<Duration> {
        self.report_period
            .map(|_| self.due.saturating_duration_since(Instant::now()))
    }

    /// Where the log is.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Does what is due by the clock.
    pub(crate) fn poll(&mut self) {
        self.await_configuration(Duration::ZERO);
        if let Some(report_period) = self.report_period
            && self.due <= Instant::now()
        {
            self.due = Instant::now() + report_period;
            self.report();
        }
    }

    /// Does what a signal asks of the log; whether the daemon is to go on.
    pub(crate) fn handle_signal(&mut self, handle_signal: &siginfo) -> bool {
        let sender = SignalSender::of(handle_signal.ssi_pid, handle_signal.ssi_uid);
        let number = i32::try_from(handle_signal.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            Ok(Signal::SIGUSR1) => self.send(LogCommand::Rotate(sender), "no new log is begun"),
            Ok(Signal::SIGUSR2) => self.send(LogCommand::Resume(sender), "nothing is resumed"),
            Ok(Signal::SIGCONT) => self.report(),
            Ok(Signal::SIGHUP) => self.configure(sender),
            _ => {
                self.commands.send(LogCommand::End(sender));
                return false;
            }
        }
        true
    }

    fn send(&self, order: LogCommand, failure: &str) {
        if !self.commands.send_within(order, LOG_THREAD_TIMEOUT) {
            warn(&format!("the log thread is busy: {failure}"));
        }
    }

    fn configure(&mut self, sender: SignalSender) {
        if self.source.conf.is_none() {
            return;
        }
        if !self.await_configuration(LOG_THREAD_TIMEOUT) {
            return warn("the log thread is busy: the configuration is not read again");
        }
        let log_config = self.source.log_config().unwrap_or_else(|error| {
            warn(&format!("the old configuration stays in force: {error:#}"));
            None
        });
        let (commands, from) = bounded(1);
        let order = LogCommand::Configure(log_config.clone().map(Box::new), sender, commands);
        if !self.commands.send_within(order, LOG_THREAD_TIMEOUT) {
            return warn("the log thread is busy: the configuration is not taken on");
        }
        self.pending = log_config.map(|log_config| (log_config, from));
        if !self.await_configuration(LOG_THREAD_TIMEOUT) {
            warn("the log thread is busy: it takes the configuration on when it can");
        }
    }

    /// Follows the log if settings that were asked for are in force, after so long at most; whether that is
    /// known.
    fn await_configuration(&mut self, patience: Duration) -> bool {
        let Some((log_config, from)) = self.pending.take() else {
            return true;
        };
        match from.recv_timeout(patience) {
            Ok(true) => self.use_config(&log_config),
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some((log_config, from));
                return false;
            }
            Ok(false) | Err(RecvTimeoutError::Disconnected) => {}
        }
        true
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
            return warn("no state is reported: the log thread is busy");
        };
        if let Err(error) = write_state(Path::new(STATE), &text) {
            warn(&format!("no state is reported: {error:#}"));
        }
    }
}

/// Where the state is written, made if it is not there yet: a confined daemon could not.
pub(super) fn state_directory() -> PathBuf {
    let path = Path::new(STATE).parent().unwrap_or_else(|| Path::new("/"));
    // A directory that cannot be made is told of when a state is to be written.
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
