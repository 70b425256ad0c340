//! The states of a machine that are compared, and how each is entered and left.
//!
//! Only processes started in a state are in it. `off` and `tollgate` share the rule `-a never,task`,
//! without which a machine whose kernel audit was once enabled charges every new task for it until it is
//! booted again, with `-e 0` even more than with `-e 1`. That price is the state `sticky`.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use netlink::{AuditSettings, AuditSocket};

use super::component::{AUDITCTL, AUDITD};
use super::daemon::{Daemon, settled, wait_until};
use super::machine::{beside_ring, cpu_time, kauditd, peak_memory};
use super::place::{Place, output};
use super::variant::{Outlet, Variant};
use super::workload;

/// What audits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing.
    Off,
    /// tollgate.
    Tollgate,
    /// The kernel's own audit, with auditd.
    Kernel,
    /// Nothing any more: the kernel's audit was enabled and is disabled.
    Sticky,
}

impl State {
    /// Those that `--against` names, in the order in which they are shown.
    pub(crate) const NAMED: [Self; 3] = [Self::Off, Self::Tollgate, Self::Kernel];

    /// The word for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tollgate => "tollgate",
            Self::Kernel => "kernel",
            Self::Sticky => "kernel, disabled again",
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::NAMED
            .into_iter()
            .find(|state| state.name() == name)
            .ok_or_else(|| "it is none of off, kernel, tollgate".to_owned())
    }
}

/// What the auditor has done for a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Spent {
    /// In its own threads, the kernel's for audit among them.
    pub(crate) cpu: Duration,
    /// Size of the log.
    pub(crate) bytes: u64,
    /// Events, or with the kernel's audit records, that it says it has lost.
    pub(crate) lost: u64,
    /// What tollgate counted.
    pub(crate) account: Option<Account>,
    /// The most memory that the daemon had.
    pub(crate) memory_bytes: u64,
    /// What it had at the end, beside the ring.
    pub(crate) resident_bytes: u64,
    /// Events that the plugin was given, when there is one.
    pub(crate) plugin_events: Option<u64>,
    /// The line in which tollgate says what it does.
    pub(crate) said: Option<String>,
}

/// Events as tollgate has counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) matched: u64,
    pub(crate) written: u64,
    pub(crate) lost: u64,
}

/// A state that the machine is in.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    place: &'a Place,
    auditor: Auditor,
    outlet: Outlet,
    /// CPU time of the auditor before the workload.
    before: Duration,
    said: Option<String>,
}

#[derive(Debug)]
enum Auditor {
    Nobody,
    Tollgate(Daemon),
    Kernel {
        auditd: Daemon,
        kauditd: Option<u32>,
        /// Records lost before.
        lost: u32,
    },
}

/// Settings under which nothing of the kernel's own stands in its way, as on a server that is set up not
/// to lose events.
const GENEROUS: AuditSettings = AuditSettings {
    enabled: 0,
    failure: 1,
    rate_limit: 0,
    backlog_limit: 8192,
    backlog_wait_time: 15_000,
};

/// Brings the machine into the state of a variant.
///
/// # Errors
/// When rules are refused or a daemon does not start.
pub(crate) fn enter<'a>(place: &'a Place, variant: &Variant) -> anyhow::Result<Entered<'a>> {
    let rule_file = place.work.join("bench.rules");
    fs::write(&rule_file, &variant.rules)
        .and_then(|()| fs::set_permissions(&rule_file, fs::Permissions::from_mode(0o640)))
        .context("cannot write the rules")?;
    for file in [place.log(), place.plugin_count()] {
        if file.exists() {
            fs::remove_file(&file)
                .with_context(|| format!("cannot remove `{}`", file.display()))?;
        }
    }
    let control = AuditSocket::open().ok();
    let never_task = matches!(variant.state, State::Off | State::Tollgate);
    if let Some(control) = &control {
        control
            .delete_rules()
            .and_then(|()| control.set_settings(&GENEROUS))
            .context("cannot reset the kernel's audit")?;
        if never_task {
            control
                .add_never_task()
                .context("cannot add `-a never,task`")?;
        }
    }
    let mut said = None;
    let auditor = match variant.state {
        State::Off => Auditor::Nobody,
        State::Sticky => {
            let control = control.context("the kernel has no audit")?;
            enable(&control)?;
            control
                .set_settings(&GENEROUS)
                .context("cannot disable the kernel's audit")?;
            Auditor::Nobody
        }
        State::Tollgate => {
            let mut command = std::process::Command::new(&place.program);
            command
                .args([
                    "daemon",
                    "--foreground",
                    "--engine",
                    &place.engine,
                    "--rules",
                ])
                .arg(&rule_file)
                .arg("--no-control")
                .arg("--config")
                .arg(place.empty_configuration()?)
                .args(["--no-pins", "--kernel-messages", "off"]);
            if variant.outlet.has_plugin() {
                let conf = configure(place, variant.outlet)?.join("auditd.conf");
                command.arg("--auditd-conf").arg(conf);
            } else {
                command.arg("--log").arg(place.log());
            }
            let daemon = Daemon::start(&mut variant.daemon.place(command)?)?;
            said = Some(daemon.says("tollgate: auditing")?);
            Auditor::Tollgate(daemon)
        }
        State::Kernel => {
            let control = control.context("the kernel has no audit")?;
            Auditor::Kernel {
                auditd: kernel_audit(place, &control, &rule_file, variant)?,
                kauditd: kauditd().context("cannot look for kauditd")?,
                lost: control
                    .status()
                    .context("cannot ask the kernel's audit")?
                    .lost,
            }
        }
    };
    let before = auditor.cpu_time()?;
    Ok(Entered {
        place,
        auditor,
        outlet: variant.outlet,
        before,
        said,
    })
}

/// Writes `auditd.conf` and, where that is the outlet, the plugin's file; gives their directory.
fn configure(place: &Place, outlet: Outlet) -> anyhow::Result<PathBuf> {
    let directory = place.work.join("auditd");
    let plugins = directory.join("plugins.d");
    let file = directory.join("auditd.conf");
    let plugin = plugins.join("bench.conf");
    let write = || -> io::Result<()> {
        fs::create_dir_all(&plugins)?;
        fs::write(&file, auditd_configuration(&place.log(), &plugins, outlet))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;
        if plugin.exists() {
            fs::remove_file(&plugin)?;
        }
        if outlet.has_plugin() {
            fs::write(&plugin, plugin_configuration(place))?;
            fs::set_permissions(&plugin, fs::Permissions::from_mode(0o640))?;
        }
        Ok(())
    };
    write().context("cannot write `auditd.conf`")?;
    Ok(directory)
}

/// Starts auditd with a configuration of its own, then enables the kernel's audit.
fn kernel_audit(
    place: &Place,
    control: &AuditSocket,
    rules: &Path,
    variant: &Variant,
) -> anyhow::Result<Daemon> {
    let directory = configure(place, variant.outlet)?;
    let mut command = AUDITD.command()?;
    command.args(["-n", "-s", "nochange", "-c"]).arg(&directory);
    let mut auditd = Daemon::start(&mut variant.daemon.place(command)?)?;
    wait_until("auditd to register", || {
        auditd.check()?;
        Ok(control.status()?.pid == auditd.pid())
    })?;
    output(AUDITCTL.command()?.arg("-R").arg(rules))?;
    enable(control)?;
    Ok(auditd)
}

fn enable(control: &AuditSocket) -> anyhow::Result<()> {
    control
        .set_settings(&AuditSettings {
            enabled: 1,
            ..GENEROUS
        })
        .context("cannot enable the kernel's audit")
}

impl Entered<'_> {
    /// Waits until the auditor has handed on everything, and ends it.
    ///
    /// # Errors
    /// When it is gone, or does not end.
    pub(crate) fn leave(self) -> anyhow::Result<Spent> {
        let control = AuditSocket::open();
        if let (Auditor::Kernel { .. }, Ok(control)) = (&self.auditor, &control) {
            wait_until(
                "the backlog to empty",
                || Ok(control.status()?.backlog == 0),
            )?;
        }
        let bytes = match self.auditor {
            Auditor::Tollgate(_) | Auditor::Kernel { .. } if self.outlet.has_log() => {
                settled(&self.place.log())?
            }
            _ => 0,
        };
        let cpu = self.auditor.cpu_time()?.saturating_sub(self.before);
        let memory_bytes = self.auditor.memory(peak_memory)?;
        let resident_bytes = self.auditor.memory(beside_ring)?;
        let mut account = None;
        let lost = match self.auditor {
            Auditor::Nobody => 0,
            Auditor::Tollgate(daemon) => {
                let (_, said) = daemon.end()?;
                let counted = Account::in_summary(&said)
                    .with_context(|| format!("no summary of tollgate but: {}", said.join("\n")))?;
                account = Some(counted);
                counted.lost
            }
            Auditor::Kernel { auditd, lost, .. } => {
                let control = control.context("the kernel has no audit")?;
                let now = control
                    .status()
                    .context("cannot ask the kernel's audit")?
                    .lost;
                control
                    .set_settings(&GENEROUS)
                    .and_then(|()| control.delete_rules())
                    .context("cannot disarm the kernel's audit")?;
                auditd.end()?;
                u64::from(now.saturating_sub(lost))
            }
        };
        let plugin_events = if self.outlet.has_plugin() {
            Some(plugin_events(&self.place.plugin_count())?)
        } else {
            None
        };
        Ok(Spent {
            cpu,
            bytes,
            lost,
            account,
            memory_bytes,
            resident_bytes,
            plugin_events,
            said: self.said,
        })
    }
}

/// What the plugin says when its input has ended.
fn plugin_events(file: &Path) -> anyhow::Result<u64> {
    wait_until("the plugin's count", || Ok(file.exists()))?;
    let text = fs::read_to_string(file).context("cannot read the plugin's count")?;
    ensure!(!text.is_empty(), "the plugin has counted nothing");
    text.trim()
        .parse()
        .context("the plugin's count is no number")
}

impl Auditor {
    fn cpu_time(&self) -> anyhow::Result<Duration> {
        match self {
            Self::Nobody => Ok(Duration::ZERO),
            Self::Tollgate(daemon) => daemon.cpu_time(),
            Self::Kernel {
                auditd, kauditd, ..
            } => {
                let thread = kauditd.map_or(Ok(Duration::ZERO), cpu_time);
                Ok(auditd.cpu_time()? + thread.context("kauditd is gone")?)
            }
        }
    }

    /// Memory of the daemon, as `of` finds it.
    fn memory(&self, of: fn(u32) -> io::Result<u64>) -> anyhow::Result<u64> {
        match self {
            Self::Nobody => Ok(0),
            Self::Tollgate(daemon) | Self::Kernel { auditd: daemon, .. } => {
                of(daemon.pid()).context("the daemon is gone")
            }
        }
    }
}

impl Account {
    /// Those in `tollgate: stopped: matched 3, written 3, lost 0; log ...`.
    fn in_summary(said: &[String]) -> Option<Self> {
        let mut lines = said.iter();
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

/// The values are those that Debian ships, but for the format, which costs auditd least, and for
/// what it does when the disk fills or the log grows, which would cost something else.
fn auditd_configuration(log: &Path, plugins: &Path, outlet: Outlet) -> String {
    let writes = if outlet.has_log() { "yes" } else { "no" };
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

/// A plugin in the form of auditd-plugins(5).
fn plugin_configuration(place: &Place) -> String {
    format!(
        "active = yes\ndirection = out\npath = {}\ntype = always\nargs = {} {}\nformat = string\n",
        place.workload.display(),
        workload::OPTION,
        workload::PLUGIN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for state in State::NAMED {
            assert_eq!(state.name().parse(), Ok(state));
        }
        assert!("kernel, disabled again".parse::<State>().is_err());
    }

    #[test]
    fn summary_tells_what_was_lost() {
        let said = |line: &str| vec!["tollgate: other".to_owned(), line.to_owned()];
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
            let account = counts.map(|(matched, written, lost)| Account {
                matched,
                written,
                lost,
            });
            assert_eq!(Account::in_summary(&said(line)), account, "{line}");
        }
        assert_eq!(Account::in_summary(&[]), None);
    }

    #[test]
    fn auditd_writes_a_log_only_where_one_is_measured() {
        let text = |outlet| auditd_configuration(Path::new("/l"), Path::new("/p"), outlet);
        assert!(text(Outlet::Log).contains("write_logs = yes"));
        assert!(text(Outlet::Both).contains("write_logs = yes"));
        assert!(text(Outlet::Plugin).contains("write_logs = no"));
    }
}
