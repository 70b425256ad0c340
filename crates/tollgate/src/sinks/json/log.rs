//! The JSON log: the daemon's records as one event per line, with user names, object paths and containers.
//!
//! It has its own thread and never delays the audit log: events that do not fit are counted.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use audit::record::assemble::{EventAssembler, EventRecords};
use audit::record::enrich;

use super::records;
use crate::config::{JsonLogConfig, JsonSchema};
use crate::messages::warn;
use crate::sinks::audit_log::name_cache::NameCache;
use crate::sinks::audit_log::rotate::{self, OldLogPolicy};
use crate::sinks::log_file::log_directory::LogDirectory;
use crate::sinks::log_file::log_lock::LogLock;
use crate::sinks::log_file::{Log, LogAccess};
use crate::sinks::queue::Sink;

/// An open JSON log.
#[derive(Debug)]
pub(crate) struct JsonLog {
    directory: LogDirectory,
    name: PathBuf,
    log: Log,
    size: u64,
    most: u64,
    files: u32,
    access: LogAccess,
    schema: JsonSchema,
    names: NameCache,
    enriched: Vec<u8>,
    text: Vec<u8>,
    /// Keeps other daemons from writing the file.
    _lock: Option<LogLock>,
}

impl JsonLog {
    /// Opens the log, and creates it and its directory if missing. `group` may read it, as the audit log; `None` leaves
    /// group and mode unchanged.
    ///
    /// # Errors
    /// As [`Log::open`] and [`LogLock::take`].
    pub(crate) fn open(settings: &JsonLogConfig, group: Option<u32>) -> anyhow::Result<Self> {
        let path = &settings.file;
        let name = path
            .file_name()
            .with_context(|| format!("the JSON log path `{}` has no file name", path.display()))?;
        let directory = LogDirectory::of(path)?;
        let lock = LogLock::take(path)?;
        if lock.is_none() {
            let path = path.display();
            warn(&format!(
                "log `{path}` is not locked against another daemon: no space left"
            ));
        }
        let access = LogAccess {
            group,
            ..LogAccess::PLAIN
        };
        let log = Log::open_in(&directory, Path::new(name), &access)?;
        if let Some(group) = group {
            directory
                .grant_group_if_own(Path::new(name), group)
                .context("cannot give the directory of the JSON log to `log_group`")?;
        }
        let size = log.size().context("cannot inspect the JSON log")?;
        Ok(Self {
            directory,
            name: name.into(),
            log,
            size,
            most: u64::from(settings.max_mib) << 20,
            files: u32::from(settings.keep) + 1,
            access,
            schema: settings.schema,
            names: NameCache::new(),
            enriched: Vec::new(),
            text: Vec::new(),
            _lock: lock,
        })
    }

    fn append(&mut self) -> io::Result<()> {
        let bytes = u64::try_from(self.text.len()).map_err(io::Error::other)?;
        if self.log.is_deleted() {
            warn(&format!(
                "JSON log `{}` was deleted while it was open: its events are gone; a new one begins",
                self.name.display()
            ));
            self.open_new()?;
        }
        if self.most != 0 && self.size != 0 && self.size + bytes > self.most {
            self.begin_new(OldLogPolicy::AsConfigured)?;
        }
        let at = self.log.span(self.text.len())?.offset;
        if let Err(partly) = self.log.append(&self.text) {
            self.log.truncate(at)?;
            return Err(partly.error);
        }
        self.size += bytes;
        Ok(())
    }

    fn begin_new(&mut self, old_logs: OldLogPolicy) -> io::Result<()> {
        if old_logs == OldLogPolicy::AllKept {
            rotate::shift(&self.directory, &self.name)?;
        } else if self.files == 1 {
            self.directory.remove(&self.name)?;
        } else {
            rotate::rotate(&self.directory, &self.name, self.files)?;
        }
        self.open_new()
    }

    fn open_new(&mut self) -> io::Result<()> {
        self.log =
            Log::open_in(&self.directory, &self.name, &self.access).map_err(io::Error::other)?;
        self.size = self.log.size()?;
        Ok(())
    }
}

impl Sink for JsonLog {
    /// Writes the events of these records. The records of an event are consecutive.
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        self.names.refresh();
        self.text.clear();
        let mut assembler = EventAssembler::default();
        let (schema, text) = (self.schema, &mut self.text);
        let mut ended = |event: &EventRecords| {
            // The daemon wrote these records itself, so they are valid.
            let object = records::object(event, |_error| ());
            text.extend_from_slice(schema.event(object).to_string().as_bytes());
            text.push(b'\n');
        };
        for line in records.split(|&byte| byte == b'\n') {
            self.enriched.clear();
            enrich::line(line, usize::MAX, &mut self.names, &mut self.enriched);
            let _taken = assembler.take(&self.enriched, 0);
            assembler.drain_ended(&mut ended);
        }
        assembler.end_all();
        assembler.drain_ended(ended);
        self.append()
    }

    fn rotate(&mut self, old_logs: OldLogPolicy) {
        if self.files == 1 {
            return warn(&format!(
                "JSON log `{}` is not rotated: `keep` is 0; set it above 0 below `[json]` in tollgate.toml, then run \
                 `systemctl restart tollgate`",
                self.name.display()
            ));
        }
        if let Err(error) = self.begin_new(old_logs) {
            warn(&format!(
                "cannot rotate JSON log `{}`: {error}",
                self.name.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use serde_json::Value;

    use super::*;

    const EVENT: &[u8] = b"type=UNKNOWN[1499] msg=audit(1.000:9): parent_comm=\"sh\" cgroup=\"/lxc.payload.a/b\" 0=\"/etc/shadow\"\n\
        type=SYSCALL msg=audit(1.000:9): arch=c000003e syscall=257 success=yes exit=3 a0=1 a1=2 a2=3 a3=4 items=1 ppid=1 pid=2 auid=0 uid=0 key=(null)\n\
        type=PATH msg=audit(1.000:9): item=0 name=\"link\" inode=5 dev=08:01 mode=0100755 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL\n\
        type=PROCTITLE msg=audit(1.000:9): proctitle=\"a\"\n";

    fn settings(place: &Path, max_mib: u32, keep: u8) -> JsonLogConfig {
        JsonLogConfig {
            file: place.join("events.json"),
            schema: JsonSchema::Records,
            max_mib,
            keep,
        }
    }

    #[test]
    fn json_log_has_one_writer() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 1, 1);
        let first = JsonLog::open(&settings, None).unwrap();
        let second = JsonLog::open(&settings, None).unwrap_err().to_string();
        assert!(second.contains("is written by another daemon"), "{second}");
        drop(first);
        JsonLog::open(&settings, None).unwrap();
    }

    #[test]
    fn deleted_log_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 0, 1);
        let mut log = JsonLog::open(&settings, None).unwrap();
        log.write(EVENT).unwrap();
        fs::remove_file(&settings.file).unwrap();
        log.write(EVENT).unwrap();
        log.write(EVENT).unwrap();
        assert_eq!(
            fs::read_to_string(&settings.file).unwrap().lines().count(),
            2
        );
    }

    #[test]
    fn event_has_names_paths_and_container() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 1, 1);
        JsonLog::open(&settings, None)
            .unwrap()
            .write(EVENT)
            .unwrap();
        let text = fs::read_to_string(&settings.file).unwrap();
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["path"][0]["path"], "/etc/shadow");
        assert_eq!(event["path"][0]["name"], "link");
        assert_eq!(event["parent"]["comm"], "sh");
        assert_eq!(event["container"]["id"], "a");
        assert_eq!(event["names"]["uid"], "root");
        assert!(event.get("records").is_none(), "{event}");
    }

    #[test]
    fn group_of_the_logs_reads_every_json_log() {
        let place = tempfile::tempdir().unwrap();
        let settings = JsonLogConfig {
            file: place.path().join("json/events.json"),
            ..settings(place.path(), 1, 1)
        };
        let group = nix::unistd::getegid().as_raw();
        let mut log = JsonLog::open(&settings, Some(group)).unwrap();
        log.write(EVENT).unwrap();
        log.rotate(OldLogPolicy::AsConfigured);
        log.write(EVENT).unwrap();
        let expected = if group == 0 { 0o600 } else { 0o640 };
        for name in ["events.json", "events.json.1"] {
            let about = fs::metadata(settings.file.with_file_name(name)).unwrap();
            assert_eq!(
                (about.gid(), about.mode() & 0o777),
                (group, expected),
                "{name}"
            );
        }
    }

    #[test]
    fn requested_rotation_without_old_logs_keeps_the_log() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 1, 0);
        let mut log = JsonLog::open(&settings, None).unwrap();
        for _ in 0..2 {
            log.write(EVENT).unwrap();
            log.rotate(OldLogPolicy::AsConfigured);
        }
        let text = fs::read_to_string(&settings.file).unwrap();
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn locked_json_log_removes_no_old_log() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 1, 1);
        let mut log = JsonLog::open(&settings, None).unwrap();
        for _ in 0..3 {
            log.write(EVENT).unwrap();
            log.rotate(OldLogPolicy::AllKept);
        }
        // The log, three old ones and the lock.
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 5);
    }

    #[test]
    fn long_log_is_rotated_and_the_oldest_removed() {
        let place = tempfile::tempdir().unwrap();
        let settings = settings(place.path(), 1, 2);
        let mut log = JsonLog::open(&settings, None).unwrap();
        let many = EVENT.repeat(500);
        for _ in 0..24 {
            log.write(&many).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(place.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        assert_eq!(names, ["events.json", "events.json.1", "events.json.2"]);
        for name in names {
            let text = fs::read_to_string(place.path().join(name)).unwrap();
            assert!(text.len() <= 1 << 20);
            for line in text.lines() {
                serde_json::from_str::<Value>(line).unwrap();
            }
        }
    }
}
