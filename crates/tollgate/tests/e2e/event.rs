//! Logs as tests look at them: events, their records, and what the stock `ausearch` says of them.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use audit::record::decode;
use audit::record::execve::{self, Arguments};
use bstr::{BString, ByteSlice as _};

/// The stock reader.
pub(crate) const AUSEARCH: &str = "/usr/sbin/ausearch";

/// All records of one serial that stand together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// `SEC.MMM`.
    pub(crate) time: String,
    pub(crate) serial: u32,
    pub(crate) records: Vec<Record>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) line: BString,
    pub(crate) kind: String,
    /// Names and values as written, in order.
    pub(crate) fields: Vec<(String, String)>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.records {
            writeln!(f, "    {}", record.line)?;
        }
        Ok(())
    }
}

/// Takes a log apart; lines of one serial that do not stand together are several events.
#[track_caller]
pub(crate) fn events(log: &[u8]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    assert!(
        log.is_empty() || log.ends_with(b"\n"),
        "the log ends within a line"
    );
    for line in log.lines() {
        let (time, serial, record) = record(line);
        match events.last_mut() {
            Some(last) if last.serial == serial && last.time == time => last.records.push(record),
            _ => events.push(Event {
                time,
                serial,
                records: vec![record],
            }),
        }
    }
    events
}

/// The same, but for what tells of changes of rules and settings.
#[track_caller]
pub(crate) fn but_changes(log: &[u8]) -> Vec<Event> {
    let mut events = events(log);
    events.retain(|event| event.all("CONFIG_CHANGE").count() == 0);
    events
}

/// Looks whether no serial of a call, or of a change of rules, is missing in a log, or there twice.
#[track_caller]
pub(crate) fn expect_dense(log: &[u8]) {
    let serials: Vec<u64> = log
        .lines()
        .filter(|line| {
            line.starts_with(b"type=SYSCALL ") || line.starts_with(b"type=CONFIG_CHANGE ")
        })
        .map(|line| {
            let (_, rest) = line.split_once_str(":").unwrap();
            let (serial, _) = rest.split_once_str(")").unwrap();
            serial.to_str().unwrap().parse().unwrap()
        })
        .collect();
    for pair in serials.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "serials follow each other");
    }
}

/// Looks whether a log has so many PATH records of a file by its whole name.
#[track_caller]
pub(crate) fn expect_opens(log: &[u8], file: &Path, made: usize) {
    let name = format!(" name=\"{}\" ", file.display());
    assert_eq!(log.find_iter(&name).count(), made, "opens in the log");
}

#[track_caller]
fn record(line: &[u8]) -> (String, u32, Record) {
    let decoded = decode::line(line).unwrap_or_else(|error| panic!("{error}: {}", line.as_bstr()));
    let fields = decoded
        .fields()
        .map(|field| {
            let field = field.unwrap_or_else(|error| panic!("{error}: {}", line.as_bstr()));
            (field.name.to_string(), field.value.to_string())
        })
        .collect();
    let time = format!("{}.{:03}", decoded.time.sec, decoded.time.milli);
    let record = Record {
        line: line.into(),
        kind: decoded.kind.to_string(),
        fields,
    };
    (time, decoded.serial.0, record)
}

impl Record {
    /// A field as written; empty when it is not there.
    pub(crate) fn value(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map_or("", |(_, value)| value)
    }

    /// Bytes that an untrusted field stands for; `None` when there is no string.
    #[track_caller]
    pub(crate) fn text(&self, name: &str) -> Option<BString> {
        let decoded = decode::line(&self.line).unwrap();
        let field = decoded
            .fields()
            .map(Result::unwrap)
            .find(|field| field.name == name)?;
        decoded
            .text(&field)
            .unwrap()
            .map(|text| BString::from(text.into_owned()))
    }
}

impl Event {
    /// The records of a kind.
    pub(crate) fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Record> {
        self.records
            .iter()
            .filter(move |record| record.kind == kind)
    }

    /// The one record of a kind.
    #[track_caller]
    pub(crate) fn one(&self, kind: &str) -> &Record {
        let mut found = self.records.iter().filter(|record| record.kind == kind);
        match (found.next(), found.next()) {
            (Some(record), None) => record,
            _ => panic!("not one {kind} in\n{self}"),
        }
    }

    /// A field of the SYSCALL record as written; empty when there is none.
    #[track_caller]
    pub(crate) fn syscall(&self, name: &str) -> &str {
        self.one("SYSCALL").value(name)
    }

    /// Bytes of the key.
    #[track_caller]
    pub(crate) fn key(&self) -> Option<BString> {
        self.one("SYSCALL").text("key")
    }

    /// Type and name of each PATH record: `CREATE /a/b`.
    #[track_caller]
    pub(crate) fn paths(&self) -> Vec<BString> {
        self.all("PATH")
            .map(|path| {
                let name = path.text("name").unwrap_or_else(|| "(null)".into());
                BString::from([path.value("nametype").as_bytes(), b" ", &name].concat())
            })
            .collect()
    }

    /// Arguments of the program that the call started.
    #[track_caller]
    pub(crate) fn arguments(&self) -> Arguments {
        let lines: Vec<_> = self
            .records
            .iter()
            .map(|record| decode::line(&record.line).unwrap())
            .collect();
        execve::arguments(lines.iter()).unwrap_or_else(|error| panic!("{error} in\n{self}"))
    }
}

/// What `ausearch` finds; nothing when it finds nothing.
#[track_caller]
pub(crate) fn ausearch(log: &Path, options: &[&str]) -> Vec<u8> {
    let output = Command::new(AUSEARCH)
        .arg("-if")
        .arg(log)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let nothing = output.status.code() == Some(1) && output.stderr.contains_str("no matches");
    assert!(
        output.status.success() || nothing,
        "ausearch {options:?} ended with {}: {}",
        output.status,
        output.stderr.as_bstr()
    );
    output.stdout
}

/// Events that `ausearch` finds by a key, by serial.
#[track_caller]
pub(crate) fn with_key(log: &Path, key: &str) -> Vec<Event> {
    let mut found = events(&ausearch(log, &["--raw", "-k", key]));
    found.sort_by_key(|event| event.serial);
    found
}
