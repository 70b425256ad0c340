//! The work directory of a benchmark, and the commands that run in it.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context as _, ensure};

use super::Options;
use super::machine::filesystem;
use super::programs::{CHRT, SETPRIV, TASKSET};
use super::workload::{self, FILE};

/// Name of the report in the directory.
pub(crate) const REPORT: &str = "report.json";
/// User of the workloads: nobody.
pub(crate) const UID: u32 = 65_534;
/// Where files are in memory.
const MEMORY: &str = "/dev/shm";
/// Number of directories that the ten rules watch.
const WATCHED: u32 = 10;

/// CPUs that a process may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CpuAffinity {
    /// The first CPU.
    First,
    /// The last CPU.
    Last,
    /// The first and the last CPU.
    FirstAndLastCpu,
    /// Any CPU.
    #[default]
    Any,
}

impl CpuAffinity {
    /// A CPU list for `taskset`; `None` for any.
    fn cpus(self) -> Option<String> {
        let last = cpus().saturating_sub(1);
        match self {
            Self::First => Some("0".into()),
            Self::Last => Some(last.to_string()),
            Self::FirstAndLastCpu => Some(format!("0,{last}")),
            Self::Any => None,
        }
    }

    /// Wraps a command in `taskset`. Its input and environment are not copied.
    ///
    /// # Errors
    /// When `taskset` is missing.
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

/// The directory and the programs in it.
#[derive(Clone, Debug)]
pub(crate) struct WorkDir {
    /// The directory.
    pub(crate) work: PathBuf,
    /// The tollgate program.
    pub(crate) program: PathBuf,
    /// A copy of tollgate that unprivileged users can run.
    pub(crate) copy: PathBuf,
    /// A copy of this program that unprivileged users can run.
    pub(crate) workload: PathBuf,
    /// The `io_uring` workload.
    pub(crate) uring: PathBuf,
    /// Engine of the daemon.
    pub(crate) engine: String,
    /// Directory of eAudit.
    pub(crate) eaudit: Option<PathBuf>,
    /// Run the workloads of this program under `SCHED_FIFO`.
    pub(crate) fifo: bool,
}

impl WorkDir {
    /// Creates the directory with copies of the programs, files to open, and a private directory for logs.
    ///
    /// # Errors
    /// What could not be created.
    pub(crate) fn create(work: &Path, options: &Options) -> anyhow::Result<Self> {
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
        make().with_context(|| format!("cannot create `{}`", work.display()))?;
        Ok(Self {
            work: work.to_owned(),
            program,
            copy,
            workload,
            uring,
            engine: options.engine.clone(),
            eaudit: options.eaudit.clone(),
            fifo: options.fifo,
        })
    }

    /// Working directory of workloads.
    pub(crate) fn files(&self) -> PathBuf {
        self.work.join("files")
    }

    /// Log of the daemon.
    pub(crate) fn log(&self) -> PathBuf {
        self.work.join("log/audit.log")
    }

    /// Count of events that the plugin writes.
    pub(crate) fn plugin_count(&self) -> PathBuf {
        self.work.join("log/plugin")
    }

    /// Writes an empty configuration, so that the settings of this machine do not apply.
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

    /// Rules like those, one per directory.
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

    /// Creates a directory owned by the user of the workloads.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn create_unprivileged(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.work.join(name);
        fs::create_dir_all(&path)
            .and_then(|()| chown(&path, Some(UID), Some(UID)))
            .with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(path)
    }

    /// Creates a directory in memory, owned by the user of the workloads, and its parent, [`memory`].
    ///
    /// # Errors
    /// When it cannot be created, or another user has made its parent.
    pub(crate) fn create_in_memory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let parent = memory(&self.work);
        let path = parent.join(name);
        let make = || -> std::io::Result<()> {
            match fs::create_dir(&parent) {
                // In a directory where all may write, only root can have made one of root's.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let found = fs::symlink_metadata(&parent)?;
                    if !found.is_dir() || found.uid() != 0 {
                        return Err(error);
                    }
                }
                made => made?,
            }
            mode(&parent, 0o755)?;
            fs::create_dir_all(&path)?;
            chown(&path, Some(UID), Some(UID))
        };
        make().with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(path)
    }

    /// A command prefix that drops privileges and sets the CPU affinity; the program comes next.
    ///
    /// # Errors
    /// When `setpriv` or `taskset` is missing.
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

    /// The program and option that start a workload of this program.
    pub(crate) fn workload_program(&self) -> [&OsStr; 2] {
        [
            self.workload.as_os_str(),
            workload::WORKLOAD_OPTION.as_ref(),
        ]
    }

    /// Runs a workload of this program; returns its output.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn workload(&self, affinity: CpuAffinity, words: &[&str]) -> anyhow::Result<String> {
        output(&mut self.workload_command(affinity, words)?)
    }

    /// A command that runs a workload of this program.
    ///
    /// # Errors
    /// When `setpriv` or `taskset` is missing.
    pub(crate) fn workload_command(
        &self,
        affinity: CpuAffinity,
        words: &[&str],
    ) -> anyhow::Result<Command> {
        let mut command = self.workload_base(affinity)?;
        command.args(self.workload_program()).args(words);
        Ok(command)
    }

    /// As [`Self::unprivileged`], under `SCHED_FIFO` with `--fifo`.
    ///
    /// # Errors
    /// When `setpriv`, `taskset` or `chrt` is missing.
    pub(crate) fn workload_base(&self, affinity: CpuAffinity) -> anyhow::Result<Command> {
        if self.fifo {
            self.unprivileged_fifo(affinity)
        } else {
            self.unprivileged(affinity)
        }
    }

    /// As [`Self::unprivileged`], under `SCHED_FIFO`.
    ///
    /// # Errors
    /// When `setpriv`, `taskset` or `chrt` is missing.
    pub(crate) fn unprivileged_fifo(&self, affinity: CpuAffinity) -> anyhow::Result<Command> {
        let command = self.unprivileged(affinity)?;
        // `chrt` comes first: it needs the privileges.
        let mut chrt = CHRT.command()?;
        chrt.args(["--fifo", "1"]).arg(command.get_program());
        chrt.args(command.get_args())
            .current_dir(self.files())
            .stdin(Stdio::null());
        Ok(chrt)
    }
}

/// A running command.
#[derive(Debug)]
pub(crate) struct BackgroundCommand {
    child: Child,
    shown: String,
}

impl BackgroundCommand {
    /// Starts the command.
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

    /// Its process id, also of the program that wrappers execute.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; returns standard output.
    ///
    /// # Errors
    /// When it fails; contains standard error.
    pub(crate) fn output(self) -> anyhow::Result<String> {
        let Self { child, shown } = self;
        let output = child
            .wait_with_output()
            .with_context(|| format!("cannot wait for `{shown}`"))?;
        checked_output(&shown, &output)
    }
}

/// Runs a command; returns its standard output.
///
/// # Errors
/// When it fails; contains standard error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    BackgroundCommand::start(command)?.output()
}

fn shown(command: &Command) -> String {
    let name = command.get_args().collect::<Vec<_>>();
    name.join(OsStr::new(" ")).display().to_string()
}

fn checked_output(shown: &str, output: &Output) -> anyhow::Result<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{shown}` {}: {}",
        output.status,
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses a `name=value` word in the output of a workload.
///
/// # Errors
/// When the word is missing.
pub(crate) fn parse_value(printed: &str, name: &str) -> anyhow::Result<f64> {
    let word = printed
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
        .with_context(|| format!("the workload did not print `{name}`"))?;
    word.parse()
        .with_context(|| format!("the workload printed `{name}={word}`"))
}

/// The directory in memory that belongs to a work directory.
pub(crate) fn memory(work: &Path) -> PathBuf {
    Path::new(MEMORY).join(work.file_name().unwrap_or_default())
}

/// Why no directory in memory can be created; `None` if one can.
pub(crate) fn why_no_memory() -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_memory = filesystem(&mounts, Path::new(MEMORY)) == Some("tmpfs");
    (!is_memory).then(|| format!("no tmpfs is mounted on `{MEMORY}`"))
}

/// Path of `tollgate`, beside this program.
///
/// # Errors
/// When it is missing.
pub(crate) fn tollgate() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let program = this.with_file_name("tollgate");
    ensure!(program.is_file(), "`{}` is missing", program.display());
    Ok(program)
}

/// Number of CPUs.
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
    fn failed_command_is_an_error_with_its_stderr() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no >&2; exit 3"]);
        let error = output(&mut command).unwrap_err().to_string();
        assert!(error.contains("exit status: 3: no"), "{error}");
    }
}
