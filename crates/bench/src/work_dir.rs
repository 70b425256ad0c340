//! The directory that a benchmark works in, and the workloads that run there.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, ensure};

use super::programs::{CHRT, SETPRIV, TASKSET};
use super::workload::{self, FILE};

/// The report, in the directory.
pub(crate) const REPORT: &str = "report.json";
/// Who owns the processes that are measured: nobody.
pub(crate) const UID: u32 = 65_534;
/// Directories that the ten rules watch.
const WATCHED: u32 = 10;

/// Where a process may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CpuAffinity {
    /// On the first CPU.
    First,
    /// On the last CPU, which is another one where there are several.
    Last,
    /// On the first CPU and the last one.
    FirstAndLastCpu,
    /// Wherever the scheduler likes.
    #[default]
    Any,
}

impl CpuAffinity {
    /// The CPUs, as `taskset` takes them; `None` where it may be any.
    fn cpus(self) -> Option<String> {
        let last = cpus().saturating_sub(1);
        match self {
            Self::First => Some("0".into()),
            Self::Last => Some(last.to_string()),
            Self::FirstAndLastCpu => Some(format!("0,{last}")),
            Self::Any => None,
        }
    }

    /// A command that runs another one there, without what that one has as input or environment.
    ///
    /// # Errors
    /// When the program that does so is missing.
    pub(crate) fn command(self, command: Command) -> anyhow::Result<Command> {
        let Some(cpus) = self.cpus() else {
            return Ok(command);
        };
        let mut taskset = TASKSET.command()?;
        taskset.args(["-c", &cpus]).arg(command.get_program());
        taskset.args(command.get_args());
        Ok(taskset)
    }
}

/// The directory and what is in it.
#[derive(Clone, Debug)]
pub(crate) struct WorkDir {
    /// The directory.
    pub(crate) work: PathBuf,
    /// tollgate.
    pub(crate) program: PathBuf,
    /// A copy of it that nobody may run.
    pub(crate) copy: PathBuf,
    /// A copy of this program that nobody may run.
    pub(crate) workload: PathBuf,
    /// The workload that is a program of its own.
    pub(crate) uring: PathBuf,
    /// The engine that is asked for.
    pub(crate) engine: String,
    /// Own workloads run before all ordinary programs.
    pub(crate) fifo: bool,
}

impl WorkDir {
    /// Makes the directory: a copy of this program and files to open, within reach of the workloads' user,
    /// and a directory for logs, which is not.
    ///
    /// # Errors
    /// What cannot be made.
    pub(crate) fn create(work: &Path, engine: &str, fifo: bool) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("cannot find this program")?;
        let program = tollgate()?;
        let [copy, workload, uring] =
            ["tollgate", "workload", "workload-uring"].map(|name| work.join(name));
        let make = || -> std::io::Result<()> {
            fs::create_dir(work)?;
            mode(work, 0o755)?;
            fs::copy(&program, &copy)?;
            fs::copy(&this, &workload)?;
            fs::write(&uring, workload::URING_PROGRAM)?;
            for file in [&copy, &workload, &uring] {
                mode(file, 0o755)?;
            }
            for (name, bits) in [("files", 0o755), ("log", 0o700), ("watched", 0o755)] {
                fs::create_dir(work.join(name))?;
                mode(&work.join(name), bits)?;
            }
            for number in 0..WATCHED {
                fs::create_dir(work.join(format!("watched/{number}")))?;
            }
            let file = work.join("files").join(FILE);
            fs::write(&file, "")?;
            mode(&file, 0o666)
        };
        make().with_context(|| format!("cannot lay out `{}`", work.display()))?;
        Ok(Self {
            work: work.to_owned(),
            program,
            copy,
            workload,
            uring,
            engine: engine.to_owned(),
            fifo,
        })
    }

    /// Where workloads start.
    pub(crate) fn files(&self) -> PathBuf {
        self.work.join("files")
    }

    /// The log of the daemon that runs.
    pub(crate) fn log(&self) -> PathBuf {
        self.work.join("log/audit.log")
    }

    /// Where the plugin says what it was given.
    pub(crate) fn plugin_count(&self) -> PathBuf {
        self.work.join("log/plugin")
    }

    /// Settings of a daemon that leave all as it is by default, whatever this machine's are.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write_empty_config(&self) -> anyhow::Result<PathBuf> {
        let file = self.work.join("tollgate.toml");
        fs::write(&file, "").context("cannot write an empty configuration")?;
        Ok(file)
    }

    /// The ten rules of Cloudflare's patch: writes in ten directories.
    pub(crate) fn ten_rules(work: &Path) -> String {
        Self::directory_rules(&work.join("watched"), WATCHED)
    }

    /// Rules like those ten, one for each directory.
    pub(crate) fn directory_rules(below: &Path, count: u32) -> String {
        let calls = "-S unlinkat,linkat,renameat,openat,renameat2";
        (0..count)
            .map(|number| {
                format!(
                    "-a always,exit -F arch=b64 {calls} -F perm=wa -F dir={}/{number} -F key=BENCH{number}\n",
                    below.display()
                )
            })
            .collect()
    }

    /// Makes a directory that nobody owns.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn create_unprivileged(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.work.join(name);
        fs::create_dir_all(&path)
            .and_then(|()| chown(&path, Some(UID), Some(UID)))
            .with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(path)
    }

    /// A command that becomes nobody's and is placed; the program comes next.
    ///
    /// # Errors
    /// When the programs that do so are missing.
    pub(crate) fn unprivileged(&self, affinity: CpuAffinity) -> anyhow::Result<Command> {
        let user = UID.to_string();
        let drop_rights = ["--reuid", &user, "--regid", &user, "--clear-groups", "--"];
        let mut command = affinity.command(SETPRIV.command()?)?;
        command
            .args(drop_rights)
            .current_dir(self.files())
            .stdin(Stdio::null());
        Ok(command)
    }

    /// What starts a workload of our own, before its words.
    pub(crate) fn workload_program(&self) -> [&OsStr; 2] {
        [
            self.workload.as_os_str(),
            workload::WORKLOAD_OPTION.as_ref(),
        ]
    }

    /// Runs a workload of our own; returns what it printed.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn workload(&self, affinity: CpuAffinity, words: &[&str]) -> anyhow::Result<String> {
        output(&mut self.workload_command(affinity, words)?)
    }

    /// A command that runs a workload of our own.
    ///
    /// # Errors
    /// When the programs that place it are missing.
    pub(crate) fn workload_command(
        &self,
        affinity: CpuAffinity,
        words: &[&str],
    ) -> anyhow::Result<Command> {
        let mut command = self.workload_base(affinity)?;
        command.args(self.workload_program()).args(words);
        Ok(command)
    }

    /// As [`Self::unprivileged`], for a workload of our own: in the class `SCHED_FIFO` with `--fifo`.
    ///
    /// # Errors
    /// When the programs that place it are missing.
    pub(crate) fn workload_base(&self, affinity: CpuAffinity) -> anyhow::Result<Command> {
        if self.fifo {
            self.unprivileged_fifo(affinity)
        } else {
            self.unprivileged(affinity)
        }
    }

    /// As [`Self::unprivileged`], in the class `SCHED_FIFO`: before all ordinary programs.
    ///
    /// # Errors
    /// When the programs that place it are missing.
    pub(crate) fn unprivileged_fifo(&self, affinity: CpuAffinity) -> anyhow::Result<Command> {
        let command = self.unprivileged(affinity)?;
        // The class is taken while the process may, before it becomes nobody's.
        let mut chrt = CHRT.command()?;
        chrt.args(["--fifo", "1"]).arg(command.get_program());
        chrt.args(command.get_args())
            .current_dir(self.files())
            .stdin(Stdio::null());
        Ok(chrt)
    }
}

/// A command that runs beside others.
#[derive(Debug)]
pub(crate) struct BackgroundCommand {
    child: Child,
    shown: String,
}

impl BackgroundCommand {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let shown = shown(command);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{shown}`"))?;
        Ok(Self { child, shown })
    }

    /// Its process id: that of the program that the command ends with.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; returns its standard output.
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub(crate) fn output(self) -> anyhow::Result<String> {
        let Self { child, shown } = self;
        let output = child
            .wait_with_output()
            .with_context(|| format!("cannot wait for `{shown}`"))?;
        said(&shown, &output)
    }
}

/// Runs a command; returns its standard output.
///
/// # Errors
/// When it fails; with what it said.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    BackgroundCommand::start(command)?.output()
}

fn shown(command: &Command) -> String {
    let name = command.get_args().collect::<Vec<_>>();
    name.join(OsStr::new(" ")).display().to_string()
}

fn said(shown: &str, output: &Output) -> anyhow::Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{shown}` {}: {}",
        output.status,
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A figure in the `name=value` words that a workload prints.
///
/// # Errors
/// When it is not there.
pub(crate) fn parse_value(printed: &str, name: &str) -> anyhow::Result<f64> {
    let word = printed
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
        .with_context(|| format!("the workload has not printed `{name}`"))?;
    word.parse()
        .with_context(|| format!("the workload has printed `{name}={word}`"))
}

/// tollgate, which lies beside this program.
///
/// # Errors
/// When it does not.
pub(crate) fn tollgate() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let program = this.with_file_name("tollgate");
    ensure!(program.is_file(), "`{}` is missing", program.display());
    Ok(program)
}

/// CPUs of this machine.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn mode(path: &Path, bits: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_rules_differ_by_directory_and_key() {
        let rules = WorkDir::ten_rules(Path::new("/w"));
        assert_eq!(rules.lines().count(), 10);
        assert_eq!(
            rules.lines().next_back().unwrap(),
            "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,openat,renameat2 -F perm=wa \
             -F dir=/w/watched/9 -F key=BENCH9"
        );
    }

    #[test]
    fn figures_are_read_by_name() {
        let printed = "pid=12 elapsed_ns=500\n100 pairs/s\n";
        assert_eq!(parse_value(printed, "pid").unwrap(), 12.0);
        assert_eq!(parse_value(printed, "elapsed_ns").unwrap(), 500.0);
        assert!(parse_value(printed, "elapsed").is_err());
    }

    #[test]
    fn a_failed_command_is_told_with_its_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no >&2; exit 3"]);
        let error = output(&mut command).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no"), "{error}");
    }
}
