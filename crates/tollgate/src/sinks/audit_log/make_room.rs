//! Makes room on a full disk: the oldest files of the log go, one at a time, until what is to be written fits.
//!
//! auditd rotates the log for each event that does not fit, so a disk that others fill costs it every log within
//! `num_logs` events. Here a removed file is reported, a file that frees no space because a program has it open stays,
//! and so does the newest file: the last events are never removed for room.
//!
//! # Source
//! `do_disk_full_action` and `do_space_left_action` in `src/auditd-event.c`, audit-userspace 4.2.1.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use audit::conf::auditd::MaxLogFileAction;
use engine::is_open_elsewhere;
use nix::unistd::syncfs;

use super::AuditLog;
use super::free_space::FreeSpace;
use super::rotate::{self, Removal};
use super::system::SyslogSeverity;
use crate::sinks::log_file::log_directory::LogDirectory;

/// Removed files that a message lists.
const MOST_NAMES: usize = 8;
/// How long the space of a removed file is awaited: btrfs frees it when a transaction is committed, xfs in the
/// background.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// What was done for room.
#[derive(Debug)]
enum Room {
    /// This file was removed.
    Removed(PathBuf),
    /// No file was removed.
    None(String),
}

impl AuditLog {
    /// Removes the oldest archive or old log, and reports it. Returns false if none was removed. `text` tells what is the
    /// matter.
    pub(super) fn remove_oldest(&mut self, text: &str) -> bool {
        // A file that is being flushed is open.
        self.flusher.wait();
        match self.try_to_remove_oldest() {
            Room::Removed(name) => {
                self.alarms.nothing_to_remove = false;
                self.alarm(&format!(
                    "{text}; removed the oldest file, `{}`",
                    name.display()
                ));
                true
            }
            Room::None(reason) => {
                if !std::mem::replace(&mut self.alarms.nothing_to_remove, true) {
                    self.alarm(&format!("{text}; {reason}: make room"));
                }
                false
            }
        }
    }

    /// Whether the settings let old files be removed.
    fn may_remove(&self) -> bool {
        self.config.conf.as_ref().is_some_and(|conf| {
            conf.max_log_file_action != MaxLogFileAction::KeepLogs && conf.num_logs > 1
        })
    }

    /// Removes the oldest archive or old log that nobody has open, if the settings let it, and waits for its space.
    fn try_to_remove_oldest(&self) -> Room {
        let no_file = || Room::None("there is no old log to remove".to_owned());
        if !self.may_remove() {
            return no_file();
        }
        let files = match rotate::old_files(&self.directory, &self.name) {
            Ok(files) => files,
            Err(error) => return Room::None(format!("cannot look for old logs: {error}")),
        };
        // Without a log that is written, the newest old log has the last events.
        let newest = usize::from(self.log.is_none());
        let count = files.len().saturating_sub(newest);
        let mut open = None;
        let mut failed = None;
        for name in files.into_iter().take(count) {
            let file = match self.directory.open_own(&name) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(error) => {
                    failed.get_or_insert_with(|| format!("`{}`: {error}", name.display()));
                    continue;
                }
            };
            if is_open_elsewhere(&file) {
                open.get_or_insert(name);
                continue;
            }
            match remove(&self.directory, &name, file) {
                Ok(true) => return Room::Removed(name),
                Ok(false) => {}
                Err(error) => {
                    failed.get_or_insert_with(|| format!("`{}`: {error}", name.display()));
                }
            }
        }
        match (failed, open) {
            (Some(error), _) => Room::None(format!("cannot remove an old log: {error}")),
            (None, Some(name)) => Room::None(format!(
                "a program reads `{}`, which would keep its space, and there is no other old log to remove: end that program",
                name.display()
            )),
            (None, None) => no_file(),
        }
    }

    /// Reports what was removed because of `num_logs`, if it is at least `least` files, and what could not be.
    pub(super) fn report_removal(&mut self, removal: &Removal, least: usize) {
        let names: Vec<String> = removal
            .removed
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        if let (Some(first), Some(last)) = (names.first(), names.last())
            && names.len() >= least
        {
            let listed = match names.len() {
                0..=MOST_NAMES => names.join(", "),
                _ => format!("{first} to {last}"),
            };
            let text = format!("removed {} logs beyond num_logs: {listed}", names.len());
            self.system.syslog(SyslogSeverity::Notice, &text);
        }
        let had_failed = std::mem::replace(&mut self.alarms.removal, removal.failed.is_some());
        if let Some(error) = &removal.failed
            && !had_failed
        {
            self.alarm(&format!("cannot remove logs beyond num_logs: {error}"));
        }
    }
}

/// Removes an open file, and waits until its space is free, but not for long. Returns false if it is gone already.
fn remove(directory: &LogDirectory, name: &Path, file: File) -> io::Result<bool> {
    const SECTOR: u64 = 512;
    // What others use meanwhile is not missed.
    let expected = file.metadata()?.blocks() * SECTOR / 2;
    let available = || FreeSpace::of(directory.as_file()).map_or(u64::MAX, |space| space.available);
    let enough = available().saturating_add(expected);
    if !directory.remove(name)? {
        return Ok(false);
    }
    drop(file);
    let start = Instant::now();
    let mut is_synced = false;
    while available() < enough && start.elapsed() < PATIENCE {
        if !std::mem::replace(&mut is_synced, true) {
            // Its error is that of others' files.
            let _synced = syncfs(directory.as_file());
        } else {
            thread::park_timeout(BETWEEN_LOOKS);
        }
    }
    Ok(true)
}
