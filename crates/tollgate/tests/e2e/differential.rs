//! One workload, two auditors: what tollgate writes is what the kernel's own audit writes, but for the
//! differences that [`super::known`] lists.

use std::collections::BTreeMap;
use std::fmt;

use audit::ids::{Arch, Syscall};
use audit::table;

use super::daemon::Daemon;
use super::event::{Event, Record};
use super::harness::needs;
use super::kernel_audit::{KernelAudit, Lock};
use super::known::Known;
use super::place::Place;
use super::scenario;

/// Something that the two auditors do not agree about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Name of the call.
    pub(crate) call: String,
    /// Kind of record, with the nametype of a PATH: `PATH/CREATE`; `event` for an event as a whole.
    pub(crate) record: String,
    /// Name of the field; `record` when one of them has no such record.
    pub(crate) field: String,
    /// What the kernel wrote.
    pub(crate) kernel: Option<String>,
    /// What tollgate wrote.
    pub(crate) tollgate: Option<String>,
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

pub(crate) fn kernel_and_tollgate_agree() {
    let lock = Lock::take();
    let place = Place::new();
    scenario::prepare(&place);
    let rules = scenario::rules(&place);
    let kernel = KernelAudit::start(&lock, &place, &rules);
    let daemon = Daemon::start(&place, &rules);
    scenario::run(&place);
    let ours = daemon.stop().events.clone();
    let mut theirs = kernel.stop();
    theirs.retain(|event| scenario::holds(&place, event));
    drop(lock);

    needs(!theirs.is_empty(), "a kernel audit that sends events");
    judge(&theirs, &ours);
}

/// Fails for a difference that is not permitted, and for a permitted one that no event shows.
#[track_caller]
pub(crate) fn judge(theirs: &[Event], ours: &[Event]) {
    let mut known = Known::all(include_str!("known.txt"));
    let unknown: Vec<(Difference, String)> = differences(theirs, ours)
        .into_iter()
        .filter(|(difference, _)| !known.iter_mut().any(|known| known.permits(difference)))
        .collect();
    let text: String = unknown
        .iter()
        .map(|(difference, events)| format!("{difference}\n{events}\n"))
        .collect();
    assert!(
        unknown.is_empty(),
        "{} differences that are not permitted:\n{text}",
        unknown.len()
    );
    for known in &known {
        assert!(
            known.was_used(),
            "no event shows this difference any more: {known}"
        );
    }
}

/// One event as both have it; one that only one of them has is nothing for the other.
pub(crate) type Pair<'a> = (Option<&'a Event>, Option<&'a Event>);

/// All differences, each with the events that show it.
pub(crate) fn differences(theirs: &[Event], ours: &[Event]) -> Vec<(Difference, String)> {
    let tasks = tasks(theirs, ours);
    let of_each = tasks.iter().map(|pairs| differences_of_task(pairs));
    of_each.flatten().collect()
}

/// The events of each task, side by side.
pub(crate) fn tasks<'a>(theirs: &'a [Event], ours: &'a [Event]) -> Vec<Vec<Pair<'a>>> {
    let mut tasks: BTreeMap<u32, [Vec<&Event>; 2]> = BTreeMap::new();
    for (side, events) in [theirs, ours].into_iter().enumerate() {
        for event in events {
            let pid = event.syscall("pid").parse().unwrap();
            tasks.entry(pid).or_default()[side].push(event);
        }
    }
    let tasks = tasks.into_values();
    tasks.map(|[theirs, ours]| pairs(&theirs, &ours)).collect()
}

/// The events of one task come in one order.
fn pairs<'a>(theirs: &[&'a Event], ours: &[&'a Event]) -> Vec<Pair<'a>> {
    let same = |left: &Event, right: &Event| {
        ["arch", "syscall", "exit", "a0", "a1"]
            .iter()
            .all(|field| left.syscall(field) == right.syscall(field))
    };
    let mut pairs = Vec::new();
    let mut rest = ours;
    for &their in theirs {
        let Some(at) = rest.iter().position(|our| same(their, our)) else {
            pairs.push((Some(their), None));
            continue;
        };
        pairs.extend(rest[..at].iter().map(|&our| (None, Some(our))));
        pairs.push((Some(their), Some(rest[at])));
        rest = &rest[at + 1..];
    }
    pairs.extend(rest.iter().map(|&our| (None, Some(our))));
    pairs
}

fn differences_of_task(pairs: &[Pair<'_>]) -> Vec<(Difference, String)> {
    let mut found = Vec::new();
    let mut started = false;
    for pair in pairs {
        match *pair {
            (Some(their), Some(our)) => {
                let events = format!("{their}{our}");
                started |= their.all("EXECVE").count() != 0;
                for mut difference in compare(their, our) {
                    if started && difference.field == "proctitle" {
                        difference.field = "proctitle-after-exec".into();
                    }
                    found.push((difference, events.clone()));
                }
            }
            (Some(their), None) => {
                found.push((alone(their, Some(call(their)), None), their.to_string()));
            }
            (None, Some(our)) => {
                found.push((alone(our, None, Some(call(our))), our.to_string()));
            }
            (None, None) => {}
        }
    }
    found
}

fn alone(event: &Event, kernel: Option<String>, tollgate: Option<String>) -> Difference {
    let (record, field) = ("event".into(), event.syscall("exit").to_owned());
    Difference {
        call: call(event),
        record,
        field,
        kernel,
        tollgate,
    }
}

/// Name of an event's call, with `32:` before it for the 32-bit ABI.
fn call(event: &Event) -> String {
    let arch = Arch(u32::from_str_radix(event.syscall("arch"), 16).unwrap());
    let number = event.syscall("syscall").parse().unwrap();
    let name = table::syscall_name(arch, Syscall(number)).unwrap();
    if arch == Arch::I386 {
        format!("32:{name}")
    } else {
        name.to_owned()
    }
}

/// Differences of two events that stand for one call.
fn compare(theirs: &Event, ours: &Event) -> Vec<Difference> {
    let call = call(theirs);
    let mut found = Vec::new();
    let mut left: Vec<(String, &Record)> = ours.records.iter().map(|it| (place(it), it)).collect();
    for record in &theirs.records {
        let name = place(record);
        let difference = |field: &str, kernel, tollgate| Difference {
            call: call.clone(),
            record: label(record),
            field: field.to_owned(),
            kernel,
            tollgate,
        };
        let Some(at) = left.iter().position(|(other, _)| *other == name) else {
            found.push(difference("record", Some(record.line.to_string()), None));
            continue;
        };
        let (_, other) = left.remove(at);
        let order = |record: &Record| -> Vec<String> {
            record.fields.iter().map(|(name, _)| name.clone()).collect()
        };
        let both = |names: Vec<String>, other: &Record| -> Vec<String> {
            names
                .into_iter()
                .filter(|name| order(other).contains(name))
                .collect()
        };
        if both(order(record), other) != both(order(other), record) {
            found.push(difference(
                "order",
                Some(record.line.to_string()),
                Some(other.line.to_string()),
            ));
        }
        let mut names = order(record);
        names.extend(order(other));
        names.sort();
        names.dedup();
        for name in names {
            let value = |record: &Record| {
                let field = record.fields.iter().find(|(field, _)| *field == name);
                field.map(|(_, value)| value.clone())
            };
            if value(record) != value(other) {
                found.push(difference(&name, value(record), value(other)));
            }
        }
    }
    for (_, record) in left {
        found.push(Difference {
            call: call.clone(),
            record: label(record),
            field: "record".into(),
            kernel: None,
            tollgate: Some(record.line.to_string()),
        });
    }
    found
}

/// What a record is compared by: PATH items by what they name, others by their kind.
fn place(record: &Record) -> String {
    match record.kind.as_str() {
        "PATH" => format!("PATH {} {}", record.value("nametype"), record.value("name")),
        kind => format!("{kind} {}", record.value("argc")),
    }
}

fn label(record: &Record) -> String {
    match record.kind.as_str() {
        "PATH" => format!("PATH/{}", record.value("nametype")),
        kind => kind.to_owned(),
    }
}
