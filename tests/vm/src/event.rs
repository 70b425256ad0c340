//! Logs as tests look at them: events and their records, out of the file and out of `ausearch`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::{Arch, Syscall};
use audit::record::{decode, execve};
use audit::table;
use bstr::{BString, ByteSlice as _};

const AUSEARCH: &str = "/usr/sbin/ausearch";

/// All records of one stamp that stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) serial: u32,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    records: Vec<BString>,
}

/// Takes a log apart.
///
/// # Errors
/// When a line is no record, or the records of an event do not stand together.
pub(crate) fn events(log: &[u8]) -> anyhow::Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    for line in log.lines() {
        let record = decode::line(line).with_context(|| line.as_bstr().to_string())?;
        let (serial, time) = (
            record.serial.0,
            record.time.sec * 1000 + u64::from(record.time.milli),
        );
        match events.last_mut() {
            Some(last) if (last.serial, last.time) == (serial, time) => {
                last.records.push(line.into());
            }
            _ => events.push(Event {
                serial,
                time,
                records: vec![line.into()],
            }),
        }
    }
    Ok(events)
}

/// What `ausearch` finds by a key and a process, by serial: its own order is another one for events
/// of one moment.
///
/// # Errors
/// When it fails, or finds nothing.
pub(crate) fn ausearch(log: &Path, key: &str, pid: u32) -> anyhow::Result<Vec<Event>> {
    let output = Command::new(AUSEARCH)
        .arg("-if")
        .arg(log)
        .args(["--raw", "-k", key, "-p", &pid.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("cannot start ausearch")?;
    ensure!(
        output.status.success(),
        "ausearch ended with {}: {}",
        output.status,
        output.stderr.as_bstr()
    );
    let mut found = events(&output.stdout)?;
    found.sort_by_key(|event| event.serial);
    Ok(found)
}

/// Whether no serial is missing.
///
/// # Errors
/// Names the one that is not followed by the next.
pub(crate) fn expect_dense(events: &[Event]) -> anyhow::Result<()> {
    for pair in events.windows(2) {
        if let [one, next] = pair {
            ensure!(
                one.serial + 1 == next.serial,
                "{} is not followed",
                one.serial
            );
        }
    }
    Ok(())
}

/// Events for people.
pub(crate) fn show(events: &[Event]) -> String {
    let lines: Vec<String> = events.iter().map(Event::summary).collect();
    format!("[{}]", lines.join("; "))
}

impl Event {
    /// Whether it is one of tollgate's own, not a message of the kernel's audit.
    pub(crate) const fn is_of_tollgate(&self) -> bool {
        const FIRST_SERIAL: u32 = 0x8000_0000;
        self.serial >= FIRST_SERIAL
    }

    /// Whether it tells of a change of rules or settings, which is nothing that was matched.
    pub(crate) fn is_change(&self) -> bool {
        let first = self.lines().first();
        first.is_some_and(|line| line.contains_str("type=CONFIG_CHANGE "))
    }

    /// Its records, as they stand in the log.
    pub(crate) fn lines(&self) -> &[BString] {
        &self.records
    }

    /// Every value of a field in the records of a kind, decoded.
    pub(crate) fn fields(&self, kind: &str, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for line in &self.records {
            let Ok(record) = decode::line(line) else {
                continue;
            };
            for field in record.fields().map_while(Result::ok) {
                if record.kind == kind && field.name == name {
                    let text = record.text(&field).ok().flatten();
                    let text = text.unwrap_or_else(|| field.value.as_bytes().into());
                    values.push(text.as_bstr().to_string());
                }
            }
        }
        values
    }

    /// The first of these, or nothing.
    pub(crate) fn field(&self, kind: &str, name: &str) -> String {
        self.fields(kind, name)
            .into_iter()
            .next()
            .unwrap_or_default()
    }

    /// One line: the call and its result, what it was given, and the objects it named.
    ///
    /// `openat=3 PARENT:/tmp/ CREATE:new`, `execve=0 (sh -c ls) NORMAL:/bin/sh`, `exit_group`.
    pub(crate) fn summary(&self) -> String {
        let arch = u32::from_str_radix(&self.field("SYSCALL", "arch"), 16).unwrap_or(0);
        let number = self.field("SYSCALL", "syscall");
        let known = number.parse().ok().map(Syscall);
        let name = known.and_then(|call| table::syscall_name(Arch(arch), call));
        let mut summary = name.unwrap_or(&number).to_owned();
        if let Some(exit) = self.fields("SYSCALL", "exit").first() {
            summary = format!("{summary}={exit}");
        }
        let records: Vec<_> = self
            .records
            .iter()
            .flat_map(|line| decode::line(line))
            .collect();
        match execve::arguments(&records) {
            Ok(arguments) if arguments.args.is_empty() => {}
            Ok(arguments) => {
                let words = arguments.args.join(&b' ');
                summary = format!("{summary} ({})", words.as_bstr());
            }
            Err(error) => summary = format!("{summary} ({error})"),
        }
        let kinds = self.fields("PATH", "nametype");
        for (kind, name) in kinds.iter().zip(self.fields("PATH", "name")) {
            summary = format!("{summary} {kind}:{name}");
        }
        summary
    }

    /// Fails unless the event is of this architecture, program, directory and user, whole, and ended
    /// as it says.
    ///
    /// # Errors
    /// What is not so.
    pub(crate) fn check(&self, arch: Arch, exe: &str, cwd: &str, uid: u32) -> anyhow::Result<()> {
        let comm = Path::new(exe).file_name().unwrap_or_default();
        let expected = [
            ("arch", format!("{:x}", arch.0)),
            ("exe", exe.to_owned()),
            ("comm", comm.to_string_lossy().into_owned()),
            ("uid", uid.to_string()),
            ("fsuid", uid.to_string()),
            ("gid", uid.to_string()),
            ("ppid", "1".to_owned()),
            ("auid", "4294967295".to_owned()),
            ("tty", "(none)".to_owned()),
            ("items", self.fields("PATH", "name").len().to_string()),
        ];
        for (name, value) in expected {
            let found = self.field("SYSCALL", name);
            ensure!(
                found == value,
                "{}: {name} is {found} and should be {value}",
                self.summary()
            );
        }
        let outcome = match self.field("SYSCALL", "exit").parse::<i64>() {
            Ok(0..) => "yes",
            Ok(_) => "no",
            Err(_) => "",
        };
        let success = self.field("SYSCALL", "success");
        ensure!(
            success == outcome,
            "{}: success is {success}",
            self.summary()
        );
        let found = self.fields("CWD", "cwd");
        let has_paths = !self.fields("PATH", "name").is_empty();
        ensure!(
            has_paths != found.is_empty() && found.iter().all(|found| found == cwd),
            "{}: cwd is {found:?}",
            self.summary()
        );
        Ok(())
    }
}

/// Fails unless the summaries are these, in this order.
///
/// # Errors
/// Both lists.
pub(crate) fn expect(events: &[Event], expected: &[&str]) -> anyhow::Result<()> {
    let found: Vec<String> = events.iter().map(Event::summary).collect();
    ensure!(
        found == expected,
        "events are {} and should be [{}]",
        show(events),
        expected.join("; ")
    );
    Ok(())
}
