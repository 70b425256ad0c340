//! Two logs of one run, compared call by call, record by record, field by field.
//!
//! Events of one process come in one order, so that they are paired by it. Serials are not compared:
//! each auditor counts its own. Times are compared to within [`TOLERANCE_MS`].

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context as _;
use audit::ids::{Arch, Syscall};
use audit::record::decode;
use audit::table;
use bstr::{BString, ByteSlice as _};

use super::answers::Both;

/// The kernel takes the time when a call starts, and tollgate for most calls when it ends: a task may
/// wait for a processor in between, and an emulated one is slow, or taken away: with four machines on two
/// processors of the host it was 132 ms once.
const TOLERANCE_MS: u64 = 1000;

/// Something that the two auditors do not agree about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    /// Name of the call; `32:` stands before those of the 32-bit table, `uring:` before operations of
    /// `io_uring`.
    pub(crate) call: String,
    /// Type of the record, with the nametype of a PATH: `PATH/CREATE`; `event` for an event as a
    /// whole.
    pub(crate) record: String,
    /// Name of the field; `record` when one of them has no such record, `order` when they have the
    /// same in another order.
    pub(crate) field: String,
    /// What the kernel wrote.
    pub(crate) kernel: Option<String>,
    /// What tollgate wrote.
    pub(crate) tollgate: Option<String>,
}

/// The differences of two events that stand for one call.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) differences: Vec<Difference>,
    /// Both events, for people.
    pub(crate) text: Vec<String>,
}

/// What both have seen.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) pairs: Vec<Pair>,
    /// All events, those of one process in their order.
    pub(crate) both: Vec<Both>,
    pub(crate) events: usize,
    pub(crate) records: usize,
    pub(crate) fields: usize,
    /// The most that times of one event differ.
    pub(crate) apart_ms: u64,
}

/// All records of a call.
#[derive(Clone, Debug)]
struct Event {
    time_ms: u64,
    records: Vec<Record>,
}

/// One line.
#[derive(Clone, Debug)]
struct Record {
    line: BString,
    kind: String,
    /// Names and values as written, in order.
    fields: Vec<(String, String)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
        write!(
            f,
            "{}: {} {}: kernel {}, tollgate {}",
            self.call,
            self.record,
            self.field,
            value(&self.kernel),
            value(&self.tollgate)
        )
    }
}

/// Compares what two logs hold of these processes.
///
/// # Errors
/// When a line is no record.
pub(crate) fn compare(theirs: &[u8], ours: &[u8], pids: &[u32]) -> anyhow::Result<Comparison> {
    let (mut theirs, ours) = (events(theirs)?, events(ours)?);
    theirs.retain(|event| !event.is_first_try());
    let mut comparison = Comparison::default();
    for pid in pids {
        let of = |events: &[Event]| -> Vec<Event> {
            let pid = pid.to_string();
            let mut events = events.to_vec();
            events.retain(|event| event.field("pid") == pid);
            events
        };
        comparison.task(&of(&theirs), &of(&ours));
    }
    Ok(comparison)
}

/// Events by serial. The kernel lets records of several processors come between those of one event.
fn events(log: &[u8]) -> anyhow::Result<Vec<Event>> {
    let mut events: BTreeMap<(u64, u32), Event> = BTreeMap::new();
    for line in log.lines() {
        let decoded = decode::line(line).with_context(|| line.as_bstr().to_string())?;
        let fields = decoded
            .fields()
            .map(|field| field.map(|field| (field.name.to_string(), field.value.to_string())))
            .collect::<Result<_, decode::DecodeError>>()
            .with_context(|| line.as_bstr().to_string())?;
        let time_ms = decoded.time.sec * 1000 + u64::from(decoded.time.milli);
        let event = events.entry((time_ms, decoded.serial.0));
        let event = event.or_insert_with(|| Event {
            time_ms,
            records: Vec::new(),
        });
        event.records.push(Record {
            line: line.into(),
            kind: decoded.kind.to_string(),
            fields,
        });
    }
    let mut events: Vec<_> = events.into_iter().collect();
    events.sort_by_key(|&((_, serial), _)| serial);
    Ok(events.into_iter().map(|(_, event)| event).collect())
}

impl Record {
    /// A field as written; empty when it is not there.
    fn value(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map_or("", |(_, value)| value)
    }

    fn label(&self) -> String {
        match self.kind.as_str() {
            "PATH" => format!("PATH/{}", self.value("nametype")),
            kind => kind.to_owned(),
        }
    }
}

impl Event {
    /// The record about the call, or the operation of `io_uring`.
    fn head(&self) -> Option<&Record> {
        let is_head = |record: &&Record| ["SYSCALL", "URINGOP"].contains(&record.kind.as_str());
        self.records.iter().find(is_head)
    }

    /// A field of that record.
    fn field(&self, name: &str) -> &str {
        self.head().map_or("", |head| head.value(name))
    }

    /// An operation of `io_uring` that would have to wait is tried again by a worker. The kernel writes an
    /// event for each try, tollgate for what was done in the end.
    fn is_first_try(&self) -> bool {
        const EAGAIN: &str = "-11";
        !self.field("uring_op").is_empty() && self.field("exit") == EAGAIN
    }

    fn call(&self) -> String {
        let arch = Arch(u32::from_str_radix(self.field("arch"), 16).unwrap_or(0));
        let (number, operation) = (self.field("syscall"), self.field("uring_op"));
        if !operation.is_empty() {
            let name = operation.parse().ok().and_then(table::uring_op_name);
            return format!("uring:{}", name.unwrap_or(operation));
        }
        let known = number.parse().ok().map(Syscall);
        let name = known.and_then(|call| table::syscall_name(arch, call));
        let name = name.unwrap_or(number);
        if arch == Arch::I386 {
            format!("32:{name}")
        } else {
            name.to_owned()
        }
    }

    fn is_call_of(&self, other: &Self) -> bool {
        // The kernel does not tell how an operation of io_uring has ended.
        let names: &[&str] = match self.field("uring_op") {
            "" => &["arch", "syscall", "exit"],
            _ => &["uring_op"],
        };
        names
            .iter()
            .all(|name| self.field(name) == other.field(name))
    }
}

impl Comparison {
    /// The events of one task.
    fn task(&mut self, theirs: &[Event], ours: &[Event]) {
        let mut rest = ours;
        for their in theirs {
            let at = rest.iter().position(|our| their.is_call_of(our));
            let (before, from) = rest.split_at(at.unwrap_or(0));
            for our in before {
                self.alone(None, Some(our));
            }
            match from.split_first().filter(|_| at.is_some()) {
                Some((our, after)) => {
                    self.pair(their, our);
                    rest = after;
                }
                None => self.alone(Some(their), None),
            }
        }
        for our in rest {
            self.alone(None, Some(our));
        }
    }

    /// An event that only one of them has.
    fn alone(&mut self, their: Option<&Event>, our: Option<&Event>) {
        self.events += 1;
        self.both.push(both(their, our));
        let Some(event) = their.or(our) else { return };
        let exit = |event: &Event| event.field("exit").to_owned();
        let difference = Difference {
            call: event.call(),
            record: "event".into(),
            field: "event".into(),
            kernel: their.map(exit),
            tollgate: our.map(exit),
        };
        self.pairs.push(Pair {
            differences: vec![difference],
            text: text(their, our),
        });
    }

    fn pair(&mut self, their: &Event, our: &Event) {
        self.events += 1;
        self.both.push(both(Some(their), Some(our)));
        let call = their.call();
        let mut differences = Vec::new();
        let mut differ = |record: &str, field: &str, kernel: Option<String>, tollgate| {
            differences.push(Difference {
                call: call.clone(),
                record: record.to_owned(),
                field: field.to_owned(),
                kernel,
                tollgate,
            });
        };
        let apart_ms = their.time_ms.abs_diff(our.time_ms);
        self.apart_ms = self.apart_ms.max(apart_ms);
        if apart_ms > TOLERANCE_MS {
            let time = |event: &Event| Some(event.time_ms.to_string());
            differ("event", "time", time(their), time(our));
        }
        let (pairs, their_rest, our_rest) = pair_records(&their.records, &our.records);
        let line = |record: &Record| Some(record.line.to_string());
        for record in &their_rest {
            differ(&record.label(), "record", line(record), None);
        }
        for record in &our_rest {
            differ(&record.label(), "record", None, line(record));
        }
        let places: Vec<usize> = pairs.iter().map(|&(_, _, place)| place).collect();
        if !places.is_sorted() {
            let kinds = |records: &[Record]| {
                let kinds: Vec<&str> = records.iter().map(|it| it.kind.as_str()).collect();
                Some(kinds.join(" "))
            };
            differ("event", "order", kinds(&their.records), kinds(&our.records));
        }
        for (record, other, _) in pairs {
            self.records += 1;
            let names = |record: &Record, other: &Record| -> Vec<String> {
                let names = record.fields.iter().map(|(name, _)| name.clone());
                let has = |name: &String| other.fields.iter().any(|(other, _)| other == name);
                names.filter(has).collect()
            };
            if names(record, other) != names(other, record) {
                differ(&record.label(), "order", line(record), line(other));
            }
            let mut all: Vec<&String> = record.fields.iter().map(|(name, _)| name).collect();
            all.extend(other.fields.iter().map(|(name, _)| name));
            all.sort();
            all.dedup();
            for name in all {
                self.fields += 1;
                let value = |record: &Record| {
                    let field = record.fields.iter().find(|(field, _)| field == name);
                    field.map(|(_, value)| value.clone())
                };
                let (theirs, ours) = (value(record), value(other));
                if theirs != ours {
                    differ(&record.label(), name, theirs, ours);
                }
            }
        }
        if !differences.is_empty() {
            self.pairs.push(Pair {
                differences,
                text: text(Some(their), Some(our)),
            });
        }
    }
}

/// Records that belong together with the place of the second, and those that are left over. PATH
/// items go by what they name, and those that then are left by their number; others by their type.
#[expect(clippy::type_complexity, reason = "three lists of references")]
fn pair_records<'a>(
    theirs: &'a [Record],
    ours: &'a [Record],
) -> (
    Vec<(&'a Record, &'a Record, usize)>,
    Vec<&'a Record>,
    Vec<&'a Record>,
) {
    let by_name = |record: &Record| match record.kind.as_str() {
        "PATH" => format!("{} {}", record.label(), record.value("name")),
        kind => kind.to_owned(),
    };
    let by_number = |record: &Record| format!("{} {}", record.kind, record.value("item"));
    let mut left: Vec<(usize, &Record)> = ours.iter().enumerate().collect();
    let mut rest: Vec<(usize, &Record)> = theirs.iter().enumerate().collect();
    let mut pairs = Vec::new();
    for same in [&by_name as &dyn Fn(&Record) -> String, &by_number] {
        rest.retain(|&(place, record)| {
            let found = left
                .iter()
                .position(|(_, other)| same(record) == same(other));
            if let Some(at) = found {
                let (other_place, other) = left.remove(at);
                pairs.push((place, record, other, other_place));
            }
            found.is_none()
        });
    }
    pairs.sort_by_key(|&(place, ..)| place);
    let pairs = pairs
        .into_iter()
        .map(|(_, record, other, place)| (record, other, place))
        .collect();
    let records = |list: Vec<(usize, &'a Record)>| list.into_iter().map(|(_, it)| it).collect();
    (pairs, records(rest), records(left))
}

fn both(their: Option<&Event>, our: Option<&Event>) -> Both {
    let lines = |event: Option<&Event>| -> Vec<BString> {
        let records = event.map(|event| event.records.as_slice());
        let lines = records.unwrap_or_default().iter();
        lines.map(|record| record.line.clone()).collect()
    };
    Both {
        kernel: lines(their),
        tollgate: lines(our),
    }
}

fn text(their: Option<&Event>, our: Option<&Event>) -> Vec<String> {
    let lines = |title: &str, event: Option<&Event>| -> Vec<String> {
        let records = event.map(|event| event.records.as_slice());
        let records = records.unwrap_or_default();
        records
            .iter()
            .map(|record| format!("{title} {}", record.line))
            .collect()
    };
    let mut text = lines("  kernel  ", their);
    text.extend(lines("  tollgate", our));
    text
}
