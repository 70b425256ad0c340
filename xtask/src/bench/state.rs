//! The three states of a machine that are compared, and how each is entered and left.
//!
//! Only processes started in a state are in it. `off` and `tollgate` share the rule
//! `-a task,never`, without which a machine whose kernel audit was once enabled charges every new
//! task for it until it is booted again, with `-e 0` even more than with `-e 1`.

use std::error::Error;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use super::WORKLOAD;
use super::daemon::{Daemon, settled, wait_until};
use super::machine::{cpu_time, kauditd};

/// Who owns the processes that are measured: nobody.
const UID: &str = "65534";
/// The CPU that they run on. Daemons may use any.
const CPU: &str = "0";

/// What audits the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Off,
    /// The kernel's own audit, with auditd.
    Kernel,
    /// tollgate.
    Tollgate,
}

impl State {
    pub(super) const ALL: [Self; 3] = [Self::Off, Self::Tollgate, Self::Kernel];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Kernel => "kernel",
            Self::Tollgate => "tollgate",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.name() == name)
            .ok_or_else(|| format!("`{name}` is none of off, kernel, tollgate"))
    }
}

/// How the scheduler treats workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduling {
    /// As any program.
    Ordinary,
    /// Before all ordinary programs, the daemons among them: no neighbour takes the CPU away.
    Fifo,
}

/// Where things are.
#[derive(Clone, Debug)]
pub(super) struct Bench {
    /// The directory of this measurement.
    pub(super) work: PathBuf,
    /// tollgate.
    pub(super) program: PathBuf,
    /// A copy of this program that nobody may run.
    pub(super) workload: PathBuf,
    /// Of workloads in every state.
    pub(super) scheduling: Scheduling,
}

/// A state that the machine is in.
#[derive(Debug)]
pub(super) struct Entered {
    auditor: Auditor,
    log: PathBuf,
    /// CPU time of the auditor before the workload.
    before: Duration,
}

#[derive(Debug)]
enum Auditor {
    Nobody,
    Tollgate(Daemon),
    Kernel {
        auditd: Daemon,
        kauditd: Option<u32>,
    },
}

/// What the auditor has done for a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// In its own threads, the kernel's for audit among them.
    pub(super) cpu: Duration,
    /// Size of the log.
    pub(super) bytes: u64,
    /// Events, or with the kernel's audit records, that it says it has lost.
    pub(super) lost: u64,
}

impl Bench {
    /// The log of the state that the machine is in.
    pub(super) fn log(&self) -> PathBuf {
        self.work.join("log/audit.log")
    }

    /// Brings the machine into a state, with rules in the language of `auditctl`.
    ///
    /// # Errors
    /// When rules are refused or a daemon does not start.
    pub(super) fn enter(&self, state: State, rules: &str) -> Result<Entered, Box<dyn Error>> {
        let log = self.log();
        let rule_file = self.work.join("bench.rules");
        fs::write(&rule_file, rules)?;
        fs::set_permissions(&rule_file, fs::Permissions::from_mode(0o640))?;
        if log.exists() {
            fs::remove_file(&log)?;
        }
        auditctl(&["-e", "0"])?;
        auditctl(&["-D"])?;
        let auditor = match state {
            State::Off => {
                auditctl(&["-a", "task,never"])?;
                Auditor::Nobody
            }
            State::Tollgate => {
                auditctl(&["-a", "task,never"])?;
                let daemon = Daemon::start(
                    Command::new(&self.program)
                        .args(["daemon", "--foreground", "--rules"])
                        .arg(&rule_file)
                        .arg("--log")
                        .arg(&log),
                    &self.work,
                )?;
                daemon.says("tollgate: auditing")?;
                Auditor::Tollgate(daemon)
            }
            State::Kernel => Auditor::Kernel {
                auditd: self.kernel_audit(&rule_file)?,
                kauditd: kauditd()?,
            },
        };
        let before = auditor.cpu_time()?;
        Ok(Entered {
            auditor,
            log,
            before,
        })
    }

    /// Starts auditd with a configuration of its own, then enables the kernel's audit. The limits
    /// are generous, as on a server that is set up not to lose events.
    fn kernel_audit(&self, rules: &Path) -> Result<Daemon, Box<dyn Error>> {
        let directory = self.work.join("auditd");
        let plugins = directory.join("plugins.d");
        fs::create_dir_all(&plugins)?;
        let file = directory.join("auditd.conf");
        fs::write(&file, auditd_configuration(&self.log(), &plugins))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640))?;

        for setting in [
            ["-f", "1"],
            ["-r", "0"],
            ["-b", "8192"],
            ["--backlog_wait_time", "15000"],
        ] {
            auditctl(&setting)?;
        }
        let auditd = Daemon::start(
            Command::new("auditd")
                .args(["-n", "-s", "nochange", "-c"])
                .arg(&directory),
            &self.work,
        )?;
        let pid = u64::from(auditd.pid());
        wait_until("auditd to register", || Ok(status("pid")? == pid))?;
        let rules = rules.to_str().ok_or("the directory's name is no text")?;
        auditctl(&["-R", rules])?;
        auditctl(&["--reset-lost"])?;
        auditctl(&["-e", "1"])?;
        Ok(auditd)
    }

    /// Runs a workload in the state that the machine is in; returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn workload(&self, arguments: &[&str]) -> Result<String, Box<dyn Error>> {
        // The scheduling class is taken while the process may, before it becomes nobody's.
        let mut command = match self.scheduling {
            Scheduling::Ordinary => Command::new("taskset"),
            Scheduling::Fifo => {
                let mut chrt = Command::new("chrt");
                chrt.args(["--fifo", "1", "taskset"]);
                chrt
            }
        };
        let output = command
            .args(["-c", CPU, "setpriv", "--reuid", UID, "--regid", UID])
            .arg("--clear-groups")
            .arg(&self.workload)
            .args(["bench", WORKLOAD])
            .args(arguments)
            .current_dir(self.work.join("files"))
            .output()
            .map_err(|error| format!("cannot run `taskset` or `chrt`: {error}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the workload {}: {errors}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Entered {
    /// Waits until the auditor has written everything, and ends it.
    ///
    /// # Errors
    /// When it is gone, or does not end.
    pub(super) fn leave(self) -> Result<Spent, Box<dyn Error>> {
        if let Auditor::Kernel { .. } = self.auditor {
            wait_until("the backlog to empty", || Ok(status("backlog")? == 0))?;
        }
        let bytes = match self.auditor {
            Auditor::Nobody => 0,
            Auditor::Tollgate(_) | Auditor::Kernel { .. } => settled(&self.log)?,
        };
        let cpu = self.auditor.cpu_time()?.saturating_sub(self.before);
        let lost = match self.auditor {
            Auditor::Nobody => 0,
            Auditor::Tollgate(daemon) => {
                let (_, said) = daemon.end()?;
                lost_in_summary(&said)
                    .ok_or_else(|| format!("no summary of tollgate but: {}", said.join("\n")))?
            }
            Auditor::Kernel { auditd, .. } => {
                let lost = status("lost")?;
                auditctl(&["-e", "0"])?;
                auditctl(&["-D"])?;
                auditd.end()?;
                lost
            }
        };
        Ok(Spent { cpu, bytes, lost })
    }
}

impl Auditor {
    fn cpu_time(&self) -> Result<Duration, Box<dyn Error>> {
        match self {
            Self::Nobody => Ok(Duration::ZERO),
            Self::Tollgate(daemon) => daemon.cpu_time(),
            Self::Kernel { auditd, kauditd } => {
                let thread = kauditd.map_or(Ok(Duration::ZERO), cpu_time)?;
                Ok(auditd.cpu_time()? + thread)
            }
        }
    }
}

/// Runs `auditctl`; returns what it printed.
fn auditctl(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let output = Command::new("auditctl")
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run `auditctl`: {error}; see `make setup`"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let call = arguments.join(" ");
        return Err(format!("`auditctl {call}`: {}", errors.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn status(name: &str) -> Result<u64, Box<dyn Error>> {
    let text = auditctl(&["-s"])?;
    field_of_status(&text, name).ok_or_else(|| format!("no `{name}` in `auditctl -s`").into())
}

fn field_of_status(text: &str, wanted: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == wanted).then(|| value.parse().ok()).flatten()
    })
}

/// The count in `tollgate: stopped: matched 3, written 3, lost 0; log ...`.
fn lost_in_summary(said: &[String]) -> Option<u64> {
    let line = said
        .iter()
        .find(|line| line.starts_with("tollgate: stopped: "))?;
    let (_, rest) = line.split_once(", lost ")?;
    let digits = rest.split(|character: char| !character.is_ascii_digit());
    digits.into_iter().next()?.parse().ok()
}

/// The values are those that Debian ships, but for the format, which costs auditd least, and for
/// what it does when the disk fills or the log grows, which would cost something else.
fn auditd_configuration(log: &Path, plugins: &Path) -> String {
    let (log, plugins) = (log.display(), plugins.display());
    let mut text = format!(
        "log_file = {log}\n\
         log_group = root\n\
         log_format = RAW\n\
         flush = INCREMENTAL_ASYNC\n\
         freq = 50\n\
         plugin_dir = {plugins}\n"
    );
    text.push_str(
        "local_events = yes\n\
         write_logs = yes\n\
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
         q_depth = 2000\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_printed() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
    }

    #[test]
    fn status_fields_are_found_by_their_whole_name() {
        let text =
            "enabled 1\nbacklog_limit 64\nlost 12\nbacklog 3\nloginuid_immutable 0 unlocked\n";
        assert_eq!(field_of_status(text, "backlog"), Some(3));
        assert_eq!(field_of_status(text, "lost"), Some(12));
        assert_eq!(field_of_status(text, "pid"), None);
        assert_eq!(field_of_status(text, "loginuid_immutable"), None);
    }

    #[test]
    fn summary_tells_what_was_lost() {
        let said = |line: &str| vec!["tollgate: other".to_owned(), line.to_owned()];
        for (line, lost) in [
            (
                "tollgate: stopped: matched 3, written 3, lost 0; log /a",
                Some(0),
            ),
            (
                "tollgate: stopped: matched 30, written 3, lost 27 (ring full 27); log /a",
                Some(27),
            ),
            ("tollgate: stopped: nothing", None),
        ] {
            assert_eq!(lost_in_summary(&said(line)), lost, "{line}");
        }
        assert_eq!(lost_in_summary(&[]), None);
    }
}
