//! Finds and ends the processes of a benchmark by its work directory, also after the supervisor was killed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bstr::ByteSlice as _;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Environment variable of all processes of a benchmark; holds the work directory.
pub(crate) const WORK_DIR_VARIABLE: &str = "TOLLGATE_BENCH";

/// How long daemons may take to end: auditd writes its queue first.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long this waits after SIGKILL.
const LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ends all processes of a work directory: SIGTERM, then SIGKILL.
///
/// # Errors
/// When a process does not end, or `/proc` cannot be read.
pub(crate) fn end(work: &Path) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut signalled = Vec::new();
    loop {
        let left = of(work)?;
        if left.is_empty() {
            return Ok(());
        }
        ensure!(
            began.elapsed() < LIMIT,
            "processes that do not end: {left:?}"
        );
        for pid in left {
            let signal = if began.elapsed() >= TIMEOUT {
                Signal::SIGKILL
            } else if signalled.contains(&pid) {
                continue;
            } else {
                signalled.push(pid);
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

/// Finds the processes whose working directory, executable or environment variable names the work directory.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn of(work: &Path) -> io::Result<Vec<Pid>> {
    let variable = format!("{WORK_DIR_VARIABLE}={}", work.display());
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
        // The process may have exited.
        let below =
            |link: &str| fs::read_link(process.join(link)).is_ok_and(|path| path.starts_with(work));
        let has_variable = fs::read(process.join("environ")).is_ok_and(|environ| {
            environ
                .split_str("\0")
                .any(|word| word == variable.as_bytes())
        });
        if has_variable || below("cwd") || below("exe") {
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
    fn processes_are_found_by_variable_or_directory_and_ended() {
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
