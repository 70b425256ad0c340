//! Log lines as events and records, from a log file or from `ausearch`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::{Arch, Syscall};
use audit::record::decode;
use audit::record::execve::{self, Arguments};
use audit::table;
use bstr::{BString, ByteSlice as _};

/// The stock reader.
pub const AUSEARCH: &str = "/usr/sbin/ausearch";

/// The first serial of tollgate's own events; those of the kernel's audit are below.
pub const FIRST_SERIAL: u32 = 0x8000_0000;

/// All records of one time and serial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The serial.
    pub serial: u32,
    /// The records in their order; never empty.
    pub records: Vec<Record>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The line without its newline.
    pub line: BString,
    /// The record type: `SYSCALL`.
    pub kind: String,
}

/// Parses a log. Lines of one serial that are not adjacent are several events.
///
/// # Errors
/// A line is not a record.
pub fn parse(log: &[u8]) -> anyhow::Result<Vec<Event>> {
    let mut events: Vec<Event> = Vec::new();
    for line in log.lines() {
        let (time_ms, serial, record) = parse_line(line)?;
        match events.last_mut() {
            Some(last) if (last.serial, last.time_ms) == (serial, time_ms) => {
                last.records.push(record);
            }
            _ => events.push(Event {
                time_ms,
                serial,
                records: vec![record],
            }),
        }
    }
    Ok(events)
}

/// Parses a log of the kernel's audit, which interleaves records of events of several processors. The
/// events are in the order of their serials.
///
/// # Errors
/// A line is not a record.
pub fn parse_interleaved(log: &[u8]) -> anyhow::Result<Vec<Event>> {
    let mut events: BTreeMap<(u32, u64), Event> = BTreeMap::new();
    for event in parse(log)? {
        events
            .entry((event.serial, event.time_ms))
            .and_modify(|begun| begun.records.extend(event.records.iter().cloned()))
            .or_insert(event);
    }
    Ok(events.into_values().collect())
}

fn parse_line(line: &[u8]) -> anyhow::Result<(u64, u32, Record)> {
    let decoded = decode::line(line).with_context(|| line.as_bstr().to_string())?;
    let record = Record {
        line: line.into(),
        kind: decoded.kind.to_string(),
    };
    let time_ms = decoded.time.sec * 1000 + u64::from(decoded.time.milli);
    Ok((time_ms, decoded.serial.0, record))
}

/// Events that `ausearch` finds with these options, by serial; none where it finds none. `ausearch`
/// lists events of one moment in an order of its own.
///
/// # Errors
/// It fails, or prints a line that is not a record.
pub fn ausearch(log: &Path, options: &[&str]) -> anyhow::Result<Vec<Event>> {
    let mut found = parse(&ausearch_text(log, options)?)?;
    found.sort_by_key(|event| event.serial);
    Ok(found)
}

/// The output of `ausearch` with these options; empty where it finds nothing.
///
/// # Errors
/// It fails.
pub fn ausearch_text(log: &Path, options: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(AUSEARCH)
        .arg("-if")
        .arg(log)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .context("cannot start ausearch")?;
    let is_empty = output.status.code() == Some(1) && output.stderr.contains_str("no matches");
    ensure!(
        output.status.success() || is_empty,
        "ausearch {options:?} ended with {}: {}",
        output.status,
        output.stderr.as_bstr()
    );
    Ok(output.stdout)
}

/// Fails if a serial is missing or repeated.
///
/// # Errors
/// Names the serial before the gap.
pub fn expect_dense(events: &[Event]) -> anyhow::Result<()> {
    for pair in events.windows(2) {
        if let [one, next] = pair {
            ensure!(
                one.serial.checked_add(1) == Some(next.serial),
                "serial {} is followed by {}",
                one.serial,
                next.serial
            );
        }
    }
    Ok(())
}

/// Fails unless the summaries of the events are these, in this order.
///
/// # Errors
/// Shows both lists.
pub fn expect(events: &[Event], expected: &[&str]) -> anyhow::Result<()> {
    let found: Vec<String> = events.iter().map(Event::summary).collect();
    ensure!(
        found == expected,
        "events are {} and should be [{}]",
        show(events),
        expected.join("; ")
    );
    Ok(())
}

/// The summaries of events in one line.
pub fn show(events: &[Event]) -> String {
    let summaries: Vec<String> = events.iter().map(Event::summary).collect();
    format!("[{}]", summaries.join("; "))
}

/// Name of a syscall, with `32:` before those of the 32-bit table; its number if it has no name.
pub fn syscall_label(arch: &str, number: &str) -> String {
    let arch = Arch(u32::from_str_radix(arch, 16).unwrap_or(0));
    let known = number.parse().ok().map(Syscall);
    let name = known.and_then(|syscall| table::syscall_name(arch, syscall));
    let name = name.unwrap_or(number);
    if table::arch_name(arch).is_some() && !arch.is_64_bit() {
        format!("32:{name}")
    } else {
        name.to_owned()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.records {
            writeln!(f, "    {}", record.line)?;
        }
        Ok(())
    }
}

impl Record {
    /// Names and values of the fields as written, in order; those before the first malformed one.
    pub fn fields(&self) -> Vec<(String, String)> {
        let Ok(record) = decode::line(&self.line) else {
            return Vec::new();
        };
        record
            .fields()
            .map_while(Result::ok)
            .map(|field| (field.name.to_string(), field.value.to_string()))
            .collect()
    }

    /// The first malformed field.
    ///
    /// # Errors
    /// The line, and what is wrong with it.
    pub fn check_fields(&self) -> anyhow::Result<()> {
        let record = decode::line(&self.line)?;
        for field in record.fields() {
            field.with_context(|| self.line.to_string())?;
        }
        Ok(())
    }

    /// A field as written; empty if there is none.
    pub fn value(&self, name: &str) -> &str {
        let Ok(record) = decode::line(&self.line) else {
            return "";
        };
        let field = record
            .fields()
            .map_while(Result::ok)
            .find(|field| field.name == name);
        field.map_or("", |field| field.value.to_str().unwrap_or_default())
    }

    /// The decoded bytes of an untrusted field; `None` if there is no such field or no string in it.
    pub fn text(&self, name: &str) -> Option<BString> {
        let record = decode::line(&self.line).ok()?;
        let field = record
            .fields()
            .map_while(Result::ok)
            .find(|field| field.name == name)?;
        let text = record.text(&field).ok().flatten()?;
        Some(BString::from(text.into_owned()))
    }
}

impl Event {
    /// Whether it is tollgate's own event, not one of the kernel.
    pub const fn is_from_tollgate(&self) -> bool {
        self.serial >= FIRST_SERIAL
    }

    /// Whether it is a change of rules or settings, which matches no rule.
    pub fn is_config_change(&self) -> bool {
        self.all("CONFIG_CHANGE").next().is_some()
    }

    /// The records of a type.
    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records
            .iter()
            .filter(move |record| record.kind == kind)
    }

    /// The only record of a type.
    ///
    /// # Panics
    /// There is none, or more than one.
    #[track_caller]
    #[expect(clippy::panic, reason = "an assertion of the end-to-end tests")]
    pub fn one(&self, kind: &str) -> &Record {
        let mut found = self.records.iter().filter(|record| record.kind == kind);
        match (found.next(), found.next()) {
            (Some(record), None) => record,
            _ => panic!("not one {kind} in\n{self}"),
        }
    }

    /// A field of the SYSCALL record as written; empty if there is none.
    ///
    /// # Panics
    /// There is not exactly one SYSCALL record.
    #[track_caller]
    pub fn syscall(&self, name: &str) -> &str {
        self.one("SYSCALL").value(name)
    }

    /// The decoded key.
    ///
    /// # Panics
    /// There is not exactly one SYSCALL record.
    #[track_caller]
    pub fn key(&self) -> Option<BString> {
        self.one("SYSCALL").text("key")
    }

    /// Nametype and name of each PATH record: `CREATE /a/b`.
    pub fn paths(&self) -> Vec<BString> {
        self.all("PATH")
            .map(|path| {
                let name = path.text("name").unwrap_or_else(|| "(null)".into());
                BString::from([path.value("nametype").as_bytes(), b" ", &name].concat())
            })
            .collect()
    }

    /// The arguments of the program that the syscall started.
    ///
    /// # Errors
    /// The EXECVE records are incomplete.
    pub fn arguments(&self) -> anyhow::Result<Arguments> {
        let records: Vec<_> = self
            .records
            .iter()
            .flat_map(|record| decode::line(&record.line))
            .collect();
        execve::arguments(&records).with_context(|| self.to_string())
    }

    /// Every value of a field in the records of a type, decoded.
    pub fn fields(&self, kind: &str, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        for record in self.all(kind) {
            let Ok(record) = decode::line(&record.line) else {
                continue;
            };
            for field in record.fields().map_while(Result::ok) {
                if field.name == name {
                    let text = record.text(&field).ok().flatten();
                    let text = text.unwrap_or_else(|| field.value.as_bytes().into());
                    values.push(text.as_bstr().to_string());
                }
            }
        }
        values
    }

    /// The first of these values; empty if there is none.
    pub fn field(&self, kind: &str, name: &str) -> String {
        self.fields(kind, name)
            .into_iter()
            .next()
            .unwrap_or_default()
    }

    /// One line: the syscall and its result, its arguments, and the objects that it named.
    ///
    /// `openat=3 PARENT:/tmp/ CREATE:new`, `execve=0 (sh -c ls) NORMAL:/bin/sh`, `exit_group`.
    pub fn summary(&self) -> String {
        let (arch, number) = (
            self.field("SYSCALL", "arch"),
            self.field("SYSCALL", "syscall"),
        );
        let label = syscall_label(&arch, &number);
        let mut summary = label.strip_prefix("32:").unwrap_or(&label).to_owned();
        if let Some(exit) = self.fields("SYSCALL", "exit").first() {
            summary = format!("{summary}={exit}");
        }
        match self.arguments() {
            Ok(arguments) if arguments.args.is_empty() => {}
            Ok(arguments) => {
                let words = arguments.args.join(&b' ');
                summary = format!("{summary} ({})", words.as_bstr());
            }
            Err(error) => summary = format!("{summary} ({error:#})"),
        }
        let kinds = self.fields("PATH", "nametype");
        for (kind, name) in kinds.iter().zip(self.fields("PATH", "name")) {
            summary = format!("{summary} {kind}:{name}");
        }
        summary
    }

    /// Fails unless the event is complete, of this architecture, program, directory and user, and
    /// `success` agrees with `exit`.
    ///
    /// # Errors
    /// Names the field that differs.
    pub fn check(&self, arch: Arch, exe: &str, cwd: &str, uid: u32) -> anyhow::Result<()> {
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
