//! Compares two logs of one run by event, record and field.
//!
//! Events pair by their order in each process. Serials are not compared: each auditor has its own counter. Times
//! may differ by [`TOLERANCE_MS`].

use std::collections::BTreeSet;
use std::fmt;

use audit::table;

use crate::answers::Both;
use crate::event::{Event, Record, syscall_label};

/// The kernel takes the time at the start of a syscall, tollgate at the end of most syscalls. A task may wait for
/// a CPU in between: up to 132 ms with four emulated machines on two CPUs.
const TOLERANCE_MS: u64 = 1000;

/// The field `proctitle` of a task after an exec.
const AFTER_EXEC: &str = "proctitle-after-exec";

/// A difference between the two auditors.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Name of the syscall; `32:` before those of the 32-bit table, `uring:` before operations of
    /// `io_uring`.
    pub call: String,
    /// Type of the record, with the nametype of a PATH: `PATH/CREATE`; `event` for a whole event.
    pub record: String,
    /// Name of the field; `record` if one of them lacks the record, `order` if they have the same in
    /// another order, `unexecuted` for a call that only tollgate has and marks, `proctitle-after-exec`
    /// for the proctitle of a task that has started a program.
    pub field: String,
    /// What the kernel wrote.
    pub kernel: Option<String>,
    /// What tollgate wrote.
    pub tollgate: Option<String>,
}

/// The differences of two events that stand for one syscall.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The differences; never empty.
    pub differences: Vec<Difference>,
    /// Both events as printed.
    pub text: Vec<String>,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Events that differ.
    pub pairs: Vec<Pair>,
    /// All events, those of one process in their order.
    pub both: Vec<Both>,
    /// Number of events compared.
    pub events: usize,
    /// Number of records compared.
    pub records: usize,
    /// Number of fields compared.
    pub fields: usize,
    /// The largest difference between two times of one event.
    pub apart_ms: u64,
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

/// Compares the events of these processes.
pub fn compare(theirs: &[Event], ours: &[Event], pids: &[u32]) -> Comparison {
    let mut comparison = Comparison::default();
    for pid in pids {
        let pid = pid.to_string();
        let of = |events: &[Event]| -> Vec<Event> {
            let of_pid = |event: &&Event| field(event, "pid") == pid;
            events.iter().filter(of_pid).cloned().collect()
        };
        let mut theirs = of(theirs);
        theirs.retain(|event| !is_first_try(event));
        comparison.task(&theirs, &of(ours));
    }
    comparison
}

/// Compares the events of all processes that either log has.
pub fn compare_all(theirs: &[Event], ours: &[Event]) -> Comparison {
    let pids = theirs.iter().chain(ours).map(|event| field(event, "pid"));
    let pids: BTreeSet<u32> = pids.filter_map(|pid| pid.parse().ok()).collect();
    compare(theirs, ours, &Vec::from_iter(pids))
}

/// The record of the syscall, or of the operation of `io_uring`.
fn head(event: &Event) -> Option<&Record> {
    let is_head = |record: &&Record| ["SYSCALL", "URINGOP"].contains(&record.kind.as_str());
    event.records.iter().find(is_head)
}

/// A field of that record; empty if there is none.
fn field<'a>(event: &'a Event, name: &str) -> &'a str {
    head(event).map_or("", |head| head.value(name))
}

/// A worker retries an `io_uring` operation that would wait. The kernel records each try, tollgate the last one.
fn is_first_try(event: &Event) -> bool {
    const EAGAIN: &str = "-11";
    !field(event, "uring_op").is_empty() && field(event, "exit") == EAGAIN
}

fn label_of_call(event: &Event) -> String {
    let operation = field(event, "uring_op");
    if operation.is_empty() {
        return syscall_label(field(event, "arch"), field(event, "syscall"));
    }
    let name = operation.parse().ok().and_then(table::uring_op_name);
    format!("uring:{}", name.unwrap_or(operation))
}

fn is_same_call(their: &Event, our: &Event) -> bool {
    // The kernel does not record the result of an io_uring operation.
    let names: &[&str] = match field(their, "uring_op") {
        "" => &["arch", "syscall", "exit", "a0", "a1"],
        _ => &["uring_op"],
    };
    names
        .iter()
        .all(|name| field(their, name) == field(our, name))
}

/// Whether the kernel has the command line of another program than the task's, and tollgate has its own.
fn is_title_of_earlier_program(their: &Event, our: &Event) -> bool {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec);
    let program = |event: &Event| {
        let title = event.all("PROCTITLE").next()?.text("proctitle")?;
        last(title.split(|&byte| byte == 0).next()?)
    };
    let exe = our
        .all("SYSCALL")
        .next()
        .and_then(|record| record.text("exe"));
    let exe = exe.and_then(|exe| last(&exe));
    exe.is_some() && program(our) == exe && program(their).is_some_and(|other| Some(other) != exe)
}

fn label(record: &Record) -> String {
    match record.kind.as_str() {
        "PATH" => format!("PATH/{}", record.value("nametype")),
        kind => kind.to_owned(),
    }
}

impl Comparison {
    /// Compares the events of one task.
    fn task(&mut self, theirs: &[Event], ours: &[Event]) {
        let mut rest = ours;
        let program = theirs.first().map(|first| field(first, "exe"));
        let mut started = false;
        for their in theirs {
            // The call that started a program may have no event.
            started |= their.all("EXECVE").next().is_some() || program != Some(field(their, "exe"));
            let at = rest.iter().position(|our| is_same_call(their, our));
            let (before, from) = rest.split_at(at.unwrap_or(0));
            for our in before {
                self.alone(None, Some(our));
            }
            match from.split_first().filter(|_| at.is_some()) {
                Some((our, after)) => {
                    self.pair(their, our, started);
                    rest = after;
                }
                None => self.alone(Some(their), None),
            }
        }
        for our in rest {
            self.alone(None, Some(our));
        }
    }

    /// Adds an event that only one of them has.
    fn alone(&mut self, their: Option<&Event>, our: Option<&Event>) {
        self.events += 1;
        self.both.push(both(their, our));
        let Some(event) = their.or(our) else { return };
        let exit = |event: &Event| field(event, "exit").to_owned();
        let is_unproven = |event: &Event| field(event, "executed") == "?";
        let unexecuted = their.is_none() && our.is_some_and(is_unproven);
        let difference = Difference {
            call: label_of_call(event),
            record: "event".into(),
            field: if unexecuted { "unexecuted" } else { "event" }.into(),
            kernel: their.map(exit),
            tollgate: our.map(exit),
        };
        self.pairs.push(Pair {
            differences: vec![difference],
            text: text(their, our),
        });
    }

    fn pair(&mut self, their: &Event, our: &Event, started: bool) {
        self.events += 1;
        self.both.push(both(Some(their), Some(our)));
        let call = label_of_call(their);
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
            differ(&label(record), "record", line(record), None);
        }
        for record in &our_rest {
            differ(&label(record), "record", None, line(record));
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
            let (theirs, ours) = (record.fields(), other.fields());
            let common = |fields: &[(String, String)], others: &[(String, String)]| {
                let names = fields.iter().map(|(name, _)| name.clone());
                let has = |name: &String| others.iter().any(|(other, _)| other == name);
                names.filter(has).collect::<Vec<_>>()
            };
            if common(&theirs, &ours) != common(&ours, &theirs) {
                differ(&label(record), "order", line(record), line(other));
            }
            let names = theirs.iter().chain(&ours).map(|(name, _)| name);
            for name in names.collect::<BTreeSet<_>>() {
                self.fields += 1;
                let value = |fields: &[(String, String)]| {
                    let field = fields.iter().find(|(field, _)| field == name);
                    field.map(|(_, value)| value.clone())
                };
                let (their_value, our_value) = (value(&theirs), value(&ours));
                if their_value != our_value {
                    let is_late =
                        name == "proctitle" && (started || is_title_of_earlier_program(their, our));
                    let name = if is_late { AFTER_EXEC } else { name };
                    differ(&label(record), name, their_value, our_value);
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

/// Pairs of records, each with the index of the second, and the records of either side without a pair.
/// PATH records pair by nametype and name, then by item; others pair by type.
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
        "PATH" => format!("{} {}", label(record), record.value("name")),
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
    let lines = |event: Option<&Event>| {
        let records = event.map(|event| event.records.iter());
        let lines = records.into_iter().flatten().map(|record| &record.line);
        lines.cloned().collect()
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
