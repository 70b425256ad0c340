//! eAudit, another auditor, which this program runs beside the others if its directory is given.
//!
//! eAudit is started and stopped as its own script `eval/bmrun` does, with the same sizes of its buffers. It
//! records its calls of all programs, and has no rules.
//!
//! # Source
//! <https://github.com/ugswork/eaudit>, commit 77d66d9.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::daemon::Daemon;

/// What it loads, relative to its directory: the program, and what `make all` builds.
const PROGRAM: &str = "eauditd.py";
const LIBRARY: &str = "ecapd.so";
/// Begins the line that it prints when the first records have arrived.
const READY: &str = "Logprinter:";
/// Begins each line of its figures; `-m` sets it.
const FIGURE: &str = "bench:";
/// Begins a line about records that did not fit in its ring.
const DROPPED: &str = "*** Dropped data ***";
/// Opens at a time that fill its buffer while it starts: it reports nothing of a machine at rest.
const OPENS: u32 = 200;

/// A running eAudit.
#[derive(Debug)]
pub(crate) struct Eaudit {
    daemon: Daemon,
    log: PathBuf,
}

/// What it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EauditCounts {
    /// Calls, of all programs.
    pub(crate) calls: u64,
    /// Bytes that were sent and not received, and outputs to the ring that failed.
    pub(crate) lost: u64,
    /// Bytes of its log.
    pub(crate) log_bytes: u64,
}

/// Returns the absolute path of a directory in which eAudit was built.
///
/// # Errors
/// What is missing.
pub(crate) fn find(directory: &Path) -> anyhow::Result<PathBuf> {
    let shown = directory.display();
    let directory = directory
        .canonicalize()
        .with_context(|| format!("cannot find eAudit in `{shown}`"))?;
    ensure!(
        directory.join(PROGRAM).is_file(),
        "`{shown}` is not the directory of eAudit: it has no `{PROGRAM}`"
    );
    ensure!(
        directory.join(LIBRARY).is_file(),
        "eAudit is not built: run `make -C {shown} all`"
    );
    Ok(directory)
}

impl Eaudit {
    /// Starts eAudit and waits until it records.
    ///
    /// # Errors
    /// When it ends instead; contains its output.
    pub(crate) fn start(directory: &Path, log: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("python3");
        command
            .arg(PROGRAM)
            .arg("-c")
            .arg(log)
            .args([
                "-m", FIGURE, "-s", "-v2", "-b", "1.6", "-r", "16", "-w", "8",
            ])
            .current_dir(directory);
        let daemon = Daemon::start(&mut command)?;
        daemon
            .wait_for_line_while(READY, || {
                for _ in 0..OPENS {
                    drop(File::open(directory));
                }
            })
            .with_context(|| format!("cannot run eAudit in `{}`", directory.display()))?;
        Ok(Self {
            daemon,
            log: log.to_owned(),
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// CPU time so far.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.daemon.cpu_time()
    }

    /// Stops it, which writes what its buffers hold.
    ///
    /// # Errors
    /// When it does not end, or prints no figures.
    pub(crate) fn stop(self) -> anyhow::Result<EauditCounts> {
        let (_, lines) = self.daemon.stop()?;
        let (calls, lost) = figures(&lines)
            .with_context(|| format!("no figures of eAudit but: {}", lines.join("\n")))?;
        let log = fs::metadata(&self.log).context("eAudit wrote no log")?;
        Ok(EauditCounts {
            calls,
            lost,
            log_bytes: log.len(),
        })
    }
}

/// Calls, and what was lost.
fn figures(lines: &[String]) -> Option<(u64, u64)> {
    let figure = |name: &str| {
        let mut values = lines.iter().filter_map(|line| {
            let (found, value) = line.strip_prefix(FIGURE)?.split_once(' ')?;
            (found == name).then_some(value)
        });
        values.next()?.parse::<u64>().ok()
    };
    let dropped = lines.iter().find(|line| line.starts_with(DROPPED));
    let dropped = dropped.map_or(Some(0), |line| {
        line.split(' ').find_map(|word| word.parse::<u64>().ok())
    });
    Some((figure("syscalls")?, figure("lost")? + dropped?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAND_IN: &str = include_str!("../tests/eaudit/eauditd.py");

    #[test]
    fn it_is_started_and_stopped_by_its_own_command_line() {
        let place = tempfile::tempdir().unwrap();
        let (directory, log) = (place.path(), place.path().join("log"));
        fs::write(directory.join(PROGRAM), STAND_IN).unwrap();
        let error = find(directory).unwrap_err().to_string();
        assert!(error.contains("run `make -C "), "{error}");
        fs::write(directory.join(LIBRARY), "").unwrap();
        let found = find(directory).unwrap();
        let eaudit = Eaudit::start(&found, &log).unwrap();
        assert!(eaudit.cpu_time().unwrap() > Duration::ZERO);
        let counts = EauditCounts {
            calls: 10,
            lost: 3,
            log_bytes: 170,
        };
        assert_eq!(eaudit.stop().unwrap(), counts);
    }

    #[test]
    fn what_it_says_at_its_end_is_part_of_the_error() {
        let place = tempfile::tempdir().unwrap();
        let (directory, log) = (place.path(), place.path().join("log"));
        let error = find(directory).unwrap_err().to_string();
        assert!(error.contains("it has no `eauditd.py`"), "{error}");
        fs::write(directory.join(PROGRAM), "import no_such_module_bcc\n").unwrap();
        let error = format!("{:#}", Eaudit::start(directory, &log).unwrap_err());
        assert!(error.contains("No module named"), "{error}");
    }

    #[test]
    fn figures_are_read_by_name() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let text = "bench:syscalls 7\nbench:lost 2\nbench:avgp 1\n";
        assert_eq!(figures(&lines(text)), Some((7, 2)));
        assert_eq!(figures(&lines("bench:syscalls 7\n")), None);
    }
}
