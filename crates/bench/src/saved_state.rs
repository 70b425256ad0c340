//! The state that a benchmark changes: saved before, restored after.
//!
//! The state file is locked while a benchmark runs. If a benchmark is killed before it restores, the file
//! remains, and the restorer, the next start or `--restore` restores.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use netlink::{AuditSocket, KernelAuditSettings};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::processes;
use super::work_dir;
use crate::info;

/// The state file. A boot empties `/run`, and undoes all other changes.
const FILE: &str = "/run/tollgate-bench.json";

/// How long another process may take to restore.
const TIMEOUT: Duration = Duration::from_secs(25);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The saved state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    /// The work directory; identifies the processes of the benchmark.
    pub(crate) work: PathBuf,
    /// State of the kernel's audit; `None` if the kernel has none.
    audit: Option<Audit>,
}

/// State of the kernel's audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Audit {
    enabled: u32,
    failure: u32,
    rate_limit: u32,
    backlog_limit: u32,
    backlog_wait_time: u32,
    /// `struct audit_rule_data` each.
    rules: Vec<Vec<u8>>,
}

impl SavedState {
    /// Reads the state of this machine.
    ///
    /// # Errors
    /// When the kernel's audit is in use or locked.
    pub(crate) fn read(work: PathBuf) -> anyhow::Result<Self> {
        let control = match AuditSocket::open() {
            Ok(control) => control,
            Err(error) if error.raw_os_error() == Some(Errno::EPROTONOSUPPORT as i32) => {
                return Ok(Self { work, audit: None });
            }
            Err(error) => return Err(error).context("cannot open an audit socket"),
        };
        let status = control
            .status()
            .context("cannot read the status of the kernel's audit")?;
        if status.pid != 0 {
            bail!(
                "an audit daemon is running, process {}: only one can receive records; stop it first \
                 (`service auditd stop`), and start it again afterwards",
                status.pid
            );
        }
        if status.settings.enabled == 2 {
            bail!("the kernel's audit is locked (-e 2) until the next boot: it cannot be measured");
        }
        let KernelAuditSettings {
            enabled,
            failure,
            rate_limit,
            backlog_limit,
            backlog_wait_time,
        } = status.settings;
        let rules = control.rules().context("cannot list the kernel's rules")?;
        Ok(Self {
            work,
            audit: Some(Audit {
                enabled,
                failure,
                rate_limit,
                backlog_limit,
                backlog_wait_time,
                rules,
            }),
        })
    }

    /// Ends the processes of the benchmark, restores the kernel's audit, and removes the work directories.
    ///
    /// # Errors
    /// The first error; the remaining steps are done all the same. If somebody has started an audit daemon
    /// meanwhile, its rules stay.
    pub(crate) fn restore(&self) -> anyhow::Result<()> {
        let quiet = self
            .refuse_foreign_daemon()
            .and_then(|()| self.delete_rules());
        let ended = processes::end(&self.work).context("cannot end all processes");
        let audit = quiet.and_then(|()| self.restore_audit());
        let removed = remove(&self.work);
        let freed = remove(&work_dir::memory(&self.work));
        audit.and(ended).and(removed).and(freed)
    }

    fn refuse_foreign_daemon(&self) -> anyhow::Result<()> {
        if self.audit.is_none() {
            return Ok(());
        }
        let control = AuditSocket::open().context("cannot open an audit socket")?;
        let status = control
            .status()
            .context("cannot read the status of the kernel's audit")?;
        let own = processes::of(&self.work).context("cannot find processes")?;
        let is_own = |reader| own.iter().any(|pid| pid.as_raw().cast_unsigned() == reader);
        if status.pid == 0 || is_own(status.pid) {
            return Ok(());
        }
        // The kernel forgets a daemon that has died.
        control.unregister_dead_daemon().with_context(|| {
            format!(
                "an audit daemon is running, process {}, and its rules stay: stop it first (`service auditd \
                 stop`), and start it again afterwards",
                status.pid
            )
        })
    }

    /// Deletes the rules first: without a daemon, records would go to the console.
    fn delete_rules(&self) -> anyhow::Result<()> {
        if self.audit.is_none() {
            return Ok(());
        }
        let control = AuditSocket::open().context("cannot open an audit socket")?;
        control
            .delete_rules()
            .context("cannot delete the rules of the benchmark")
    }

    fn restore_audit(&self) -> anyhow::Result<()> {
        let Some(audit) = &self.audit else {
            return Ok(());
        };
        let control = AuditSocket::open().context("cannot open an audit socket")?;
        let settings = KernelAuditSettings {
            enabled: audit.enabled,
            failure: audit.failure,
            rate_limit: audit.rate_limit,
            backlog_limit: audit.backlog_limit,
            backlog_wait_time: audit.backlog_wait_time,
        };
        // A process of the benchmark may have added rules while it ended. Rules are restored before the settings: a task
        // that starts without `-a never,task` while audit is enabled pays for life.
        self.delete_rules()?;
        for rule in &audit.rules {
            control
                .add_rule(rule)
                .context("cannot restore a rule of the kernel's audit")?;
        }
        control
            .set_settings(&settings)
            .context("cannot restore the settings of the kernel's audit")?;
        let status = control
            .status()
            .context("cannot read the status of the kernel's audit")?;
        if status.pid != 0 {
            control.unregister_dead_daemon().with_context(|| {
                format!("process {} is still registered as audit daemon", status.pid)
            })?;
        }
        Ok(())
    }
}

/// Restores what a killed benchmark left changed.
///
/// # Errors
/// What could not be restored.
pub(crate) fn restore_leftovers() -> anyhow::Result<()> {
    let (_file, restored) = StateFile::lock()?;
    info(if restored {
        "everything is restored"
    } else {
        "there is nothing to restore"
    });
    Ok(())
}

/// The locked state file.
#[derive(Debug)]
pub(crate) struct StateFile(Flock<File>);

impl StateFile {
    /// Locks the file, waiting as long as restoring may take, and restores what an earlier benchmark left.
    /// Returns whether there was anything to restore.
    ///
    /// # Errors
    /// When another benchmark runs, or restoring fails.
    pub(crate) fn lock() -> anyhow::Result<(Self, bool)> {
        Self::lock_at(Path::new(FILE), TIMEOUT)
    }

    fn lock_at(path: &Path, patience: Duration) -> anyhow::Result<(Self, bool)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
            .open(path)
            .with_context(|| format!("cannot open `{}`", path.display()))?;
        let mut state_file =
            Self(flock(file, patience).with_context(|| {
                format!("another benchmark runs: `{}` is locked", path.display())
            })?);
        let mut text = String::new();
        state_file
            .0
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        // Nothing is changed before the file is complete, so an incomplete one is ignored.
        let left: Option<SavedState> = serde_json::from_str(&text).ok();
        if let Some(left) = &left {
            info("an earlier benchmark was killed; restoring what it changed");
            left.restore()?;
        }
        state_file.clear()?;
        Ok((state_file, left.is_some()))
    }

    /// Saves the state.
    ///
    /// # Errors
    /// When it cannot be written; then nothing may be changed.
    pub(crate) fn write(&mut self, saved: &SavedState) -> anyhow::Result<()> {
        let text = serde_json::to_vec(saved).context("cannot save the state")?;
        self.clear()?;
        self.0
            .write_all(&text)
            .and_then(|()| self.0.sync_data())
            .context("cannot save the state")
    }

    /// Marks that nothing is left to restore.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub(crate) fn clear(&mut self) -> anyhow::Result<()> {
        self.0
            .rewind()
            .and_then(|()| self.0.set_len(0))
            .context("cannot clear the saved state")
    }
}

fn flock(mut file: File, patience: Duration) -> Result<Flock<File>, Errno> {
    let began = Instant::now();
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((file, Errno::EWOULDBLOCK)) if began.elapsed() < patience => file,
            outcome => return outcome.map_err(|(_, errno)| errno),
        };
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

/// Removes a directory, if there is one.
fn remove(directory: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(work: &Path) -> SavedState {
        SavedState {
            work: work.to_owned(),
            audit: None,
        }
    }

    #[test]
    fn state_of_a_killed_benchmark_is_restored_once() {
        let place = tempfile::tempdir().unwrap();
        let (path, work) = (place.path().join("note"), place.path().join("work"));
        fs::create_dir_all(work.join("files")).unwrap();
        let (mut state_file, left) = StateFile::lock_at(&path, Duration::ZERO).unwrap();
        assert!(!left);
        state_file.write(&saved(&work)).unwrap();
        drop(state_file);
        let (state_file, left) = StateFile::lock_at(&path, Duration::ZERO).unwrap();
        assert!(left && !work.exists());
        drop(state_file);
        assert!(!StateFile::lock_at(&path, Duration::ZERO).unwrap().1);
    }

    #[test]
    fn two_benchmarks_do_not_run_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("note");
        let (_note, _) = StateFile::lock_at(&path, Duration::ZERO).unwrap();
        let error = StateFile::lock_at(&path, Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.contains("another benchmark runs"), "{error}");
    }

    #[test]
    fn incomplete_state_file_restores_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("note");
        fs::write(&path, "{\"work\":\"/").unwrap();
        assert!(!StateFile::lock_at(&path, Duration::ZERO).unwrap().1);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn kernel_audit_state_is_saved_byte_for_byte() {
        let noted = SavedState {
            work: "/w".into(),
            audit: Some(Audit {
                enabled: 1,
                failure: 2,
                rate_limit: 3,
                backlog_limit: 4,
                backlog_wait_time: 5,
                rules: vec![vec![0, 255, 10], Vec::new()],
            }),
        };
        let text = serde_json::to_string(&noted).unwrap();
        assert_eq!(serde_json::from_str::<SavedState>(&text).unwrap(), noted);
    }
}
