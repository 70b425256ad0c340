//! Where the logs are.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use bstr::ByteSlice as _;
use logs::log_file::is_archive_name;
use logs::log_set::LogEntries;

use crate::ctext;
use crate::interpret::message;

/// The audit daemon's configuration.
const CONFIG: &str = "/etc/audit/auditd.conf";
/// The log without a configuration.
const LOG: &str = "/var/log/audit/audit.log";
/// Seconds after which an event is complete, without a configuration.
const TIMEOUT_SECONDS: u64 = 2;

/// What the tools take from the audit daemon's configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) log: PathBuf,
    pub(crate) timeout_seconds: u64,
    /// Whether the file could not be read.
    pub(crate) is_built_in: bool,
    /// What to say about the file.
    pub(crate) messages: String,
}

impl Config {
    /// Reads the configuration. Whatever is wrong with it, the tools go on.
    pub(crate) fn load() -> Self {
        let mut config = Self {
            log: LOG.into(),
            timeout_seconds: TIMEOUT_SECONDS,
            is_built_in: false,
            messages: String::new(),
        };
        match fs::read(CONFIG) {
            Ok(text) => config.apply(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                config.messages = format!("Config file {CONFIG} doesn't exist, skipping\n");
            }
            Err(error) => {
                config.is_built_in = true;
                config.messages = format!("Error opening config file ({})\n", message(&error));
            }
        }
        config
    }

    fn apply(&mut self, text: &[u8]) {
        for line in text.lines() {
            let Some((key, value)) = line.split_once_str(b"=") else {
                continue;
            };
            let value = value.trim();
            if key.trim().eq_ignore_ascii_case(b"log_file") {
                self.log = PathBuf::from(OsStr::from_bytes(value));
            } else if key.trim().eq_ignore_ascii_case(b"end_of_event_timeout") {
                let seconds = ctext::unsigned(value, 10);
                if !seconds.overflow && seconds.value > 0 {
                    self.timeout_seconds = seconds.value;
                }
            }
        }
    }
}

/// Path of a rotated log: number 0 is the log itself.
pub(crate) fn rotated(log: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return log.to_owned();
    }
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Number of the log files that can be read, without a gap. What is no file, such as a pipe, may have no end.
pub(crate) fn count(log: &Path) -> usize {
    let is_readable = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file()) && File::open(path).is_ok()
    };
    (0..)
        .take_while(|&number| is_readable(&rotated(log, number)))
        .count()
}

/// The log files, the newest first: text that can be read, without a gap, then archives. A log that exists is among them
/// even if it cannot be read: that is reported when it is opened.
pub(crate) fn newest_first(log: &Path) -> Vec<PathBuf> {
    let texts = match count(log) {
        0 => usize::from(log.symlink_metadata().is_ok()),
        count => count,
    };
    let mut files: Vec<PathBuf> = (0..texts).map(|number| rotated(log, number)).collect();
    files.extend(archives(log));
    files
}

/// The archives of a log, the newest first, also those that cannot be read.
fn archives(log: &Path) -> Vec<PathBuf> {
    let Ok(entries) = LogEntries::rotated(log).map(LogEntries::into_entries) else {
        return Vec::new();
    };
    let paths = entries.iter().rev().filter_map(|entry| match entry {
        Ok(file) => Some(file.path()),
        Err(error) => error.path(),
    });
    paths
        .filter(|path| *path != log && is_archive_name(path))
        .map(Path::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_log_and_timeout() {
        let mut config = Config::load();
        config.apply(b"# x\nlog_file = /srv/a.log\nend_of_event_timeout=7\nlog_format = RAW\n");
        assert_eq!(config.log, Path::new("/srv/a.log"));
        assert_eq!(config.timeout_seconds, 7);
    }

    #[test]
    fn pipe_is_no_rotated_log() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        fs::write(&log, "").unwrap();
        nix::unistd::mkfifo(&rotated(&log, 1), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(count(&log), 1);
    }

    #[test]
    fn archives_are_read_without_text_and_a_log_that_exists_is_not_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let archive = |number| {
            directory
                .path()
                .join(format!("audit.log.00000{number}.zst"))
        };
        assert_eq!(newest_first(&log), Vec::<PathBuf>::new());
        fs::write(archive(1), "").unwrap();
        fs::write(archive(2), "").unwrap();
        assert_eq!(newest_first(&log), [archive(2), archive(1)]);
        // A link that leads nowhere cannot be opened.
        std::os::unix::fs::symlink("nowhere", &log).unwrap();
        assert_eq!(newest_first(&log), [log.clone(), archive(2), archive(1)]);
    }
}
