//! The processes of a benchmark: known by its directory, also when who started them is gone.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Names the directory in the environment of all processes that a benchmark starts.
pub(crate) const WORK_DIR_VARIABLE: &str = "TOLLGATE_BENCH";

/// How long daemons may take to end by themselves: an auditd writes what it has first.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which what does not end is not waited for any more.
const LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ends all processes that belong to a directory: kindly, and then by force.
///
/// # Errors
/// When some do not end, or `/proc` cannot be read.
pub(crate) fn end(work: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut asked = Vec::new();
    loop {
        let left = of(work)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(began.elapsed() < LIMIT, "these do not end: {left:?}");
        for pid in left {
            let signal = if began.elapsed() >= TIMEOUT {
                Signal::SIGKILL
            } else if asked.contains(&pid) {
                continue;
            } else {
                asked.push(pid);
                Signal::SIGTERM
            };
            match kill(pid, signal) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// All processes that run in the directory, run a program of it, or were marked with it; not this one.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn of(work: &Path) -> io::Result<Vec<Pid>> {
    let mark = format!("{WORK_DIR_VARIABLE}={}", work.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let pid = Pid::from_raw(number);
        let process = entry.path();
        if pid == Pid::this() || is_zombie(&process) {
            continue;
        }
        // A process may have gone meanwhile: then nothing of it can be read.
        let below =
            |link: &str| fs::read_link(process.join(link)).is_ok_and(|path| path.starts_with(work));
        let marked = fs::read(process.join("environ"))
            .is_ok_and(|environ| environ.split_str("\0").any(|word| word == mark.as_bytes()));
        if marked || below("cwd") || below("exe") {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_zombie(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_are_found_by_mark_and_by_directory_and_end() {
        let place = tempfile::tempdir().unwrap();
        let work = place.path().canonicalize().unwrap();
        let sleep = || {
            let mut command = Command::new("sleep");
            command.arg("1000");
            command
        };
        let mut children = [
            sleep().env(WORK_DIR_VARIABLE, &work).spawn().unwrap(),
            sleep().current_dir(&work).spawn().unwrap(),
        ];
        let mut other = sleep().spawn().unwrap();
        end(&work).unwrap();
        for child in &mut children {
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
        }
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
