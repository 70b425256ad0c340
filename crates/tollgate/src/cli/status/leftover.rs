//! What a daemon that has ended left behind: programs that are still attached, which nobody reads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use super::lines::duration;
use crate::config;
use crate::messages::{self, warn};
use crate::pipeline::handover::DEFAULT_PIN_DIRECTORY;
use crate::rule_files;
use crate::unix_time::{now, unix_seconds};

/// Prefix of the names of pinned links.
const LINK_PREFIX: &str = "link-";
/// Name of the pin of the state that `-e 2` locked.
const LOCK_NOTE: &str = "locked";
/// Locks of all processes.
const LOCKS: &str = "/proc/locks";

/// Pinned programs without a daemon.
#[derive(Debug, serde::Serialize)]
pub(super) struct LeftoverPrograms {
    /// The pin directory.
    directory: PathBuf,
    /// Number of attached programs.
    attached: usize,
    /// When a daemon last read their events, at most a minute too early; seconds since 1970.
    read_at: u64,
    /// `-e 2` has locked them until the next boot.
    locked: bool,
    /// Why a daemon cannot use the installed files.
    wrong_files: Vec<String>,
}

/// Reports what a daemon has left in the pin directory, and what to type.
pub(super) fn report(pins: &Path) {
    let Some(programs) = LeftoverPrograms::find(pins) else {
        return;
    };
    let LeftoverPrograms {
        directory,
        attached,
        read_at,
        locked,
        wrong_files,
    } = programs;
    let age = now().saturating_sub(read_at);
    warn(&format!(
        "BPF programs of a daemon that has ended are still attached, pinned in `{}`, {attached} in all; no daemon has read \
         their events since {}, for {}; when the ring is full, events are lost",
        directory.display(),
        messages::utc(read_at),
        duration(age)
    ));
    for reason in wrong_files {
        warn(&format!("a daemon cannot use: {reason}"));
    }
    warn(
        "to go on auditing, run `systemctl start tollgate`; `journalctl -u tollgate` has the reason why the last \
         daemon ended",
    );
    let unpin = if directory == Path::new(DEFAULT_PIN_DIRECTORY) {
        "tollgate unpin".to_owned()
    } else {
        format!("tollgate unpin {}", directory.display())
    };
    warn(&if locked {
        "`-e 2` has locked the programs: they end when the machine restarts".to_owned()
    } else {
        format!("to end auditing, run `{unpin}`")
    });
}

impl LeftoverPrograms {
    /// Finds attached programs in a pin directory that no daemon uses.
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let names: Vec<_> = fs::read_dir(directory)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let attached = names
            .iter()
            .filter(|name| name.starts_with(LINK_PREFIX))
            .count();
        let about = fs::metadata(directory).ok()?;
        if attached == 0 || is_used(&about) {
            return None;
        }
        Some(Self {
            directory: directory.to_owned(),
            attached,
            read_at: unix_seconds(about.modified().ok()?),
            locked: names.iter().any(|name| name == LOCK_NOTE),
            wrong_files: wrong_files(),
        })
    }
}

/// Whether a daemon has locked the directory. To try the lock could keep a starting daemon from taking it.
///
/// # Source
/// `lock_get_status()` in `fs/locks.c`, Linux 6.12.
fn is_used(directory: &fs::Metadata) -> bool {
    let device = directory.dev();
    let file = format!(
        "{:02x}:{:02x}:{}",
        major(device),
        minor(device),
        directory.ino()
    );
    let locks = fs::read_to_string(LOCKS).unwrap_or_default();
    locks.lines().any(|lock| {
        let words: Vec<&str> = lock.split_whitespace().collect();
        words.contains(&"FLOCK") && words.contains(&file.as_str())
    })
}

/// Errors in the installed files that a daemon would read.
fn wrong_files() -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rules = vec![PathBuf::from(config::AUDIT_RULES)];
    for path in [config::TOLLGATE_TOML, config::AUDITD_CONF].map(Path::new) {
        if !config::exists(path) {
            continue;
        }
        let errors = if path == Path::new(config::TOLLGATE_TOML) {
            config::read_tollgate_toml(path).map(|read| {
                rules = read.settings.rules.clone().unwrap_or_else(|| rules.clone());
                read.file.errors()
            })
        } else {
            config::read_auditd(path).map(|read| read.file.errors())
        };
        wrong.extend(errors.unwrap_or_else(|error| Some(format!("{error:#}"))));
    }
    rules.retain(|path| config::exists(path));
    match rule_files::read(&rules) {
        Ok(files) => wrong.extend(files.errors()),
        Err(error) => wrong.push(format!("{error:#}")),
    }
    wrong
}

#[cfg(test)]
mod tests {
    use nix::fcntl::{Flock, FlockArg};

    use super::*;

    #[test]
    fn programs_without_a_daemon_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let find = || LeftoverPrograms::find(directory.path());
        assert!(find().is_none());
        for name in ["header", "link-a", "link-b", "map-tlg_ring"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let programs = find().unwrap();
        assert_eq!((programs.attached, programs.locked), (2, false));
        fs::write(directory.path().join(LOCK_NOTE), "").unwrap();
        assert!(find().unwrap().locked);
        let lock = Flock::lock(
            fs::File::open(directory.path()).unwrap(),
            FlockArg::LockExclusive,
        );
        assert!(find().is_none(), "a daemon uses them");
        drop(lock);
        assert!(find().is_some());
    }
}
