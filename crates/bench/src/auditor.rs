//! Starts and stops the auditor of a variant.
//!
//! A mode applies to processes that are started in it. `off` and `tollgate` load the rule `-a never,task`:
//! without it, a kernel whose audit was enabled once charges every new task until the next boot, with `-e 0`
//! even more than with `-e 1`. The mode `kernel, disabled again` measures that cost.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use netlink::{AuditSocket, KernelAuditSettings};

use super::daemon::{Daemon, wait_until, wait_until_settled};
use super::eaudit::Eaudit;
use super::machine::{cpu_time, kauditd_pid, peak_memory, resident_without_ring};
use super::programs::{AUDITCTL, AUDITD};
use super::variant::{AuditMode, Destination, Variant};
use super::work_dir::{WorkDir, output};
use super::workload;

/// What the auditor did for a workload, and what it cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AuditCost {
    /// CPU time of its threads, including `kauditd`.
    pub(crate) cpu: Duration,
    /// Size of the log.
    pub(crate) bytes: u64,
    /// Lost events by its own count; records with the kernel's audit, bytes with eAudit.
    pub(crate) lost: u64,
    /// Calls that eAudit counted.
    pub(crate) eaudit_calls: Option<u64>,
    /// The counters of tollgate.
    pub(crate) event_counts: Option<EventCounts>,
    /// Peak memory of the daemon.
    pub(crate) memory_bytes: u64,
    /// Memory of the daemon at the end, without the ring.
    pub(crate) resident_bytes: u64,
    /// Events that the plugin received.
    pub(crate) plugin_events: Option<u64>,
    /// The startup line of tollgate.
    pub(crate) startup_line: Option<String>,
}

/// The counters in tollgate's summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventCounts {
    pub(crate) matched: u64,
    pub(crate) written: u64,
    pub(crate) lost: u64,
}

/// An active mode.
#[derive(Debug)]
pub(crate) struct ActiveMode<'a> {
    work_dir: &'a WorkDir,
    auditor: RunningAuditor,
    destination: Destination,
    /// CPU time of the auditor before the workload.
    before: Duration,
    startup_line: Option<String>,
}

#[derive(Debug)]
enum RunningAuditor {
    None,
    Tollgate(Daemon),
    Eaudit(Eaudit),
    Kernel {
        auditd: Daemon,
        kauditd: Option<u32>,
        /// Lost records before the workload.
        lost: u32,
    },
}

/// Settings that do not limit the kernel's audit, as on a server configured not to lose events.
const AUDIT_SETTINGS: KernelAuditSettings = KernelAuditSettings {
    enabled: 0,
    failure: 1,
    rate_limit: 0,
    backlog_limit: 8192,
    backlog_wait_time: 15_000,
};

/// Activates the mode of a variant.
///
/// # Errors
/// When rules are refused or a daemon does not start.
pub(crate) fn start<'a>(
    work_dir: &'a WorkDir,
    variant: &Variant,
) -> anyhow::Result<ActiveMode<'a>> {
    let rule_file = work_dir.work.join("bench.rules");
    fs::write(&rule_file, &variant.rules)
        .and_then(|()| fs::set_permissions(&rule_file, fs::Permissions::from_mode(0o640)))
        .context("cannot write the rules")?;
    for file in [work_dir.log(), work_dir.plugin_count()] {
        if file.exists() {
            fs::remove_file(&file)
                .with_context(|| format!("cannot remove `{}`", file.display()))?;
        }
    }
    let control = AuditSocket::open().ok();
    let never_task = matches!(
        variant.mode,
        AuditMode::Off | AuditMode::Tollgate | AuditMode::Eaudit
    );
    if let Some(control) = &control {
        control
            .delete_rules()
            .and_then(|()| control.set_settings(&AUDIT_SETTINGS))
            .context("cannot reset the kernel's audit")?;
        if never_task {
            control
                .add_never_task()
                .context("cannot add `-a never,task`")?;
        }
    }
    let mut startup_line = None;
    let auditor = match variant.mode {
        AuditMode::Off => RunningAuditor::None,
        AuditMode::KernelDisabled => {
            let control = control.context("the kernel has no audit")?;
            enable(&control)?;
            control
                .set_settings(&AUDIT_SETTINGS)
                .context("cannot disable the kernel's audit")?;
            RunningAuditor::None
        }
        AuditMode::Tollgate => {
            let mut command = std::process::Command::new(&work_dir.program);
            command
                .args([
                    "daemon",
                    "--foreground",
                    "--engine",
                    &work_dir.engine,
                    "--rules",
                ])
                .arg(&rule_file)
                .arg("--no-control")
                .arg("--config")
                .arg(work_dir.write_empty_config()?)
                .args(["--no-pins", "--kernel-messages", "off"]);
            if variant.destination.has_plugin() {
                let conf = configure(work_dir, variant.destination)?.join("auditd.conf");
                command.arg("--auditd-conf").arg(conf);
            } else {
                command.arg("--log").arg(work_dir.log());
            }
            let daemon = Daemon::start(&mut variant.affinity.command(command)?)?;
            startup_line = Some(daemon.wait_for_line("tollgate: auditing")?);
            RunningAuditor::Tollgate(daemon)
        }
        AuditMode::Eaudit => {
            let directory = work_dir.eaudit.as_ref();
            let directory = directory.context("the directory of eAudit is unknown")?;
            RunningAuditor::Eaudit(Eaudit::start(directory, &work_dir.log())?)
        }
        AuditMode::Kernel => {
            let control = control.context("the kernel has no audit")?;
            RunningAuditor::Kernel {
                auditd: kernel_audit(work_dir, &control, &rule_file, variant)?,
                kauditd: kauditd_pid().context("cannot find kauditd")?,
                lost: control
                    .status()
                    .context("cannot read the status of the kernel's audit")?
                    .lost,
            }
        }
    };
    let before = auditor.cpu_time()?;
    Ok(ActiveMode {
        work_dir,
        auditor,
        destination: variant.destination,
        before,
        startup_line,
    })
}

/// Writes `auditd.conf` and, for a plugin, its file; returns their directory.
fn configure(work_dir: &WorkDir, destination: Destination) -> anyhow::Result<PathBuf> {
    let directory = work_dir.work.join("auditd");
    let plugins = directory.join("plugins.d");
    let file = directory.join("auditd.conf");
    let plugin = plugins.join("bench.conf");
    let write = || -> io::Result<()> {
        fs::create_dir_all(&plugins)?;
        fs::write(
            &file,
            auditd_configuration(&work_dir.log(), &plugins, destination),
        )?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
        if plugin.exists() {
            fs::remove_file(&plugin)?;
        }
        if destination.has_plugin() {
            fs::write(&plugin, plugin_configuration(work_dir))?;
            fs::set_permissions(&plugin, fs::Permissions::from_mode(0o640))?;
        }
        Ok(())
    };
    write().context("cannot write `auditd.conf`")?;
    Ok(directory)
}

/// Starts auditd with its own configuration, then enables the kernel's audit.
fn kernel_audit(
    work_dir: &WorkDir,
    control: &AuditSocket,
    rules: &Path,
    variant: &Variant,
) -> anyhow::Result<Daemon> {
    let directory = configure(work_dir, variant.destination)?;
    let mut command = AUDITD.command()?;
    command.args(["-n", "-s", "nochange", "-c"]).arg(&directory);
    let mut auditd = Daemon::start(&mut variant.affinity.command(command)?)?;
    wait_until("auditd to register", || {
        auditd.ensure_running()?;
        Ok(control.status()?.pid == auditd.pid())
    })?;
    output(AUDITCTL.command()?.arg("-R").arg(rules))?;
    enable(control)?;
    Ok(auditd)
}

fn enable(control: &AuditSocket) -> anyhow::Result<()> {
    control
        .set_settings(&KernelAuditSettings {
            enabled: 1,
            ..AUDIT_SETTINGS
        })
        .context("cannot enable the kernel's audit")
}

impl ActiveMode<'_> {
    /// Waits until all events are delivered, then stops the auditor.
    ///
    /// # Errors
    /// When the daemon is gone or does not stop.
    pub(crate) fn stop(self) -> anyhow::Result<AuditCost> {
        let control = AuditSocket::open();
        if let (RunningAuditor::Kernel { .. }, Ok(control)) = (&self.auditor, &control) {
            wait_until(
                "the backlog to empty",
                || Ok(control.status()?.backlog == 0),
            )?;
        }
        let mut bytes = match self.auditor {
            // eAudit writes the rest at its end, and the calls of other programs meanwhile.
            RunningAuditor::None | RunningAuditor::Eaudit(_) => 0,
            _ if self.destination.has_log() => wait_until_settled(&self.work_dir.log())?,
            _ => 0,
        };
        let cpu = self.auditor.cpu_time()?.saturating_sub(self.before);
        let memory_bytes = self.auditor.memory(peak_memory)?;
        let resident_bytes = self.auditor.memory(resident_without_ring)?;
        let mut event_counts = None;
        let mut eaudit_calls = None;
        let lost = match self.auditor {
            RunningAuditor::None => 0,
            RunningAuditor::Tollgate(daemon) => {
                let (_, startup_line) = daemon.stop()?;
                let counted = EventCounts::in_summary(&startup_line).with_context(|| {
                    format!("no summary of tollgate but: {}", startup_line.join("\n"))
                })?;
                event_counts = Some(counted);
                counted.lost
            }
            RunningAuditor::Eaudit(eaudit) => {
                let counts = eaudit.stop()?;
                eaudit_calls = Some(counts.calls);
                bytes = counts.log_bytes;
                counts.lost
            }
            RunningAuditor::Kernel { auditd, lost, .. } => {
                let control = control.context("the kernel has no audit")?;
                let now = control
                    .status()
                    .context("cannot read the status of the kernel's audit")?
                    .lost;
                control
                    .set_settings(&AUDIT_SETTINGS)
                    .and_then(|()| control.delete_rules())
                    .context("cannot unload `-a never,task`")?;
                auditd.stop()?;
                u64::from(now.saturating_sub(lost))
            }
        };
        let plugin_events = if self.destination.has_plugin() {
            Some(plugin_events(&self.work_dir.plugin_count())?)
        } else {
            None
        };
        Ok(AuditCost {
            cpu,
            bytes,
            lost,
            eaudit_calls,
            event_counts,
            memory_bytes,
            resident_bytes,
            plugin_events,
            startup_line: self.startup_line,
        })
    }
}

/// Reads the count that the plugin writes at its end.
fn plugin_events(file: &Path) -> anyhow::Result<u64> {
    wait_until("the plugin's count", || Ok(file.exists()))?;
    let text = fs::read_to_string(file).context("cannot read the plugin's count")?;
    ensure!(!text.is_empty(), "the plugin counted no events");
    text.trim()
        .parse()
        .context("the plugin's count is not a number")
}

impl RunningAuditor {
    fn cpu_time(&self) -> anyhow::Result<Duration> {
        match self {
            Self::None => Ok(Duration::ZERO),
            Self::Tollgate(daemon) => daemon.cpu_time(),
            Self::Eaudit(eaudit) => eaudit.cpu_time(),
            Self::Kernel {
                auditd, kauditd, ..
            } => {
                let thread = kauditd.map_or(Ok(Duration::ZERO), cpu_time);
                Ok(auditd.cpu_time()? + thread.context("kauditd is gone")?)
            }
        }
    }

    /// Memory of the daemon as `of` measures it.
    fn memory(&self, of: fn(u32) -> io::Result<u64>) -> anyhow::Result<u64> {
        let pid = match self {
            Self::None => return Ok(0),
            Self::Tollgate(daemon) | Self::Kernel { auditd: daemon, .. } => daemon.pid(),
            Self::Eaudit(eaudit) => eaudit.pid(),
        };
        of(pid).context("the daemon is gone")
    }
}

impl EventCounts {
    /// Parses `tollgate: stopped: matched 3, written 3, lost 0; log ...`.
    fn in_summary(startup_line: &[String]) -> Option<Self> {
        let mut lines = startup_line.iter();
        let line = lines.find(|line| line.starts_with("tollgate: stopped: "))?;
        let count = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            let mut digits = rest.split(|character: char| !character.is_ascii_digit());
            digits.next()?.parse().ok()
        };
        Some(Self {
            matched: count(": matched ")?,
            written: count(", written ")?,
            lost: count(", lost ")?,
        })
    }
}

/// Debian's values, except: the format that costs auditd least, and no actions on a full disk or a long log.
fn auditd_configuration(log: &Path, plugins: &Path, destination: Destination) -> String {
    let writes = if destination.has_log() { "yes" } else { "no" };
    format!(
        "log_file = {}\n\
         write_logs = {writes}\n\
         plugin_dir = {}\n\
         log_group = root\n\
         log_format = RAW\n\
         flush = INCREMENTAL_ASYNC\n\
         freq = 50\n\
         local_events = yes\n\
         max_log_file = 8\n\
         max_log_file_action = IGNORE\n\
         priority_boost = 4\n\
         name_format = NONE\n\
         space_left = 75\n\
         space_left_action = IGNORE\n\
         admin_space_left = 50\n\
         admin_space_left_action = IGNORE\n\
         disk_full_action = IGNORE\n\
         disk_error_action = IGNORE\n\
         overflow_action = IGNORE\n\
         q_depth = 20000\n",
        log.display(),
        plugins.display()
    )
}

/// A plugin file, see auditd-plugins(5).
fn plugin_configuration(work_dir: &WorkDir) -> String {
    format!(
        "active = yes\ndirection = out\npath = {}\ntype = always\nargs = {} {}\nformat = string\n",
        work_dir.workload.display(),
        workload::WORKLOAD_OPTION,
        workload::PLUGIN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_are_parsed() {
        let startup_line = |line: &str| vec!["tollgate: other".to_owned(), line.to_owned()];
        for (line, counts) in [
            (
                "tollgate: stopped: matched 3, written 3, lost 0; log /a",
                Some((3, 3, 0)),
            ),
            (
                "tollgate: stopped: matched 30, written 3, lost 27 (ring full 27); log /a",
                Some((30, 3, 27)),
            ),
            ("tollgate: stopped: nothing", None),
        ] {
            let event_counts = counts.map(|(matched, written, lost)| EventCounts {
                matched,
                written,
                lost,
            });
            assert_eq!(
                EventCounts::in_summary(&startup_line(line)),
                event_counts,
                "{line}"
            );
        }
        assert_eq!(EventCounts::in_summary(&[]), None);
    }

    #[test]
    fn auditd_writes_a_log_only_where_one_is_measured() {
        let text =
            |destination| auditd_configuration(Path::new("/l"), Path::new("/p"), destination);
        assert!(text(Destination::Log).contains("write_logs = yes"));
        assert!(text(Destination::Both).contains("write_logs = yes"));
        assert!(text(Destination::Plugin).contains("write_logs = no"));
    }
}
