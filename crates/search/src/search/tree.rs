//! `--tree`: the ancestors of a process, and what it and its descendants did.

use std::collections::{BTreeMap, HashSet};

use audit::record::assemble::EventRecords;
use bstr::ByteSlice as _;
use logs::escaped::Escaped;
use logs::event_values::{Column, values_of};

use super::Query;
use super::output::Output;
use super::time::TimeRange;
use crate::expression::field;
use crate::expression::{Expression, Operator, Test, Value};
use crate::logs_arg::Logs;

/// Most levels above a process.
const MAX_ANCESTORS: usize = 32;
/// Most processes below it.
const MAX_DESCENDANTS: usize = 4096;
/// Most processes that an expression lists: each event is compared with all of them.
const MAX_LISTED: usize = 64;
/// Greatest process id of Linux: a greater number is a serial.
const PID_MAX: u32 = 4_194_304;

/// Prints the tree of a process. Returns whether the process was found.
///
/// # Errors
/// A log cannot be read, or the output cannot be written.
pub(super) fn print(
    number: u32,
    range: &TimeRange,
    logs: &Logs,
    output: &mut Output,
) -> anyhow::Result<bool> {
    let mut pid = None;
    if number <= PID_MAX && process(number, range, logs)?.is_some() {
        pid = Some(number);
    } else {
        query(test("serial", number), range).for_each(logs, |event| {
            pid = pid.or_else(|| id(event, Column::Pid));
            Ok(())
        })?;
    }
    let Some(pid) = pid else {
        return Ok(false);
    };
    let mut ancestors = Vec::new();
    let mut next = process(pid, range, logs)?.map(|process| process.ppid);
    while let Some(above) = next.filter(|above| *above > 0 && ancestors.len() < MAX_ANCESTORS) {
        let process = process(above, range, logs)?;
        next = process.as_ref().map(|process| process.ppid);
        ancestors.push((above, process));
    }
    let mut depth = 0;
    for (above, process) in ancestors.iter().rev() {
        let name = process
            .as_ref()
            .map_or("(no event)", |process| &process.name);
        output.line(&format!("{:depth$}{name}[{above}]", ""))?;
        depth += 2;
    }
    let depths = descendants(pid, range, logs)?;
    query(any_of("pid", depths.keys()), range).for_each(logs, |event| {
        match id(event, Column::Pid).and_then(|pid| depths.get(&pid)) {
            Some(below) => output.indented(event, ancestors.len() + below),
            None => Ok(()),
        }
    })?;
    output.end()?;
    Ok(true)
}

/// What is known of a process from its events: the newest name and parent.
struct Process {
    ppid: u32,
    name: String,
}

/// The process of an id; `None` if it has no event with a parent.
fn process(pid: u32, range: &TimeRange, logs: &Logs) -> anyhow::Result<Option<Process>> {
    let mut found = None;
    query(test("pid", pid), range).for_each(logs, |event| {
        if let Some(ppid) = id(event, Column::Ppid) {
            let mut name = String::new();
            values_of(Column::Exe, event, |value| {
                if name.is_empty() {
                    name = Escaped(value).to_string();
                }
            });
            found = Some(Process { ppid, name });
        }
        Ok(())
    })?;
    Ok(found)
}

/// The process and its descendants, with their depths.
fn descendants(pid: u32, range: &TimeRange, logs: &Logs) -> anyhow::Result<BTreeMap<u32, usize>> {
    let mut depths = BTreeMap::from([(pid, 0)]);
    let mut level = HashSet::from([pid]);
    for depth in 1..MAX_ANCESTORS {
        if level.is_empty() || depths.len() >= MAX_DESCENDANTS {
            break;
        }
        let mut children: HashSet<u32> = HashSet::new();
        query(any_of("ppid", &level), range).for_each(logs, |event| {
            let is_below = id(event, Column::Ppid).is_some_and(|ppid| level.contains(&ppid));
            if let Some(child) = id(event, Column::Pid).filter(|child| !depths.contains_key(child))
                && is_below
                && children.len() < MAX_DESCENDANTS
            {
                children.insert(child);
            }
            Ok(())
        })?;
        level = children;
        depths.extend(level.iter().map(|child| (*child, depth)));
    }
    Ok(depths)
}

fn query(expression: Expression, range: &TimeRange) -> Query {
    Query {
        expression,
        range: *range,
    }
}

/// Events of any of these processes, and others as well if they are many.
fn any_of<'a>(name: &str, numbers: impl IntoIterator<Item = &'a u32>) -> Expression {
    let numbers: Vec<u32> = numbers.into_iter().copied().take(MAX_LISTED + 1).collect();
    if numbers.len() > MAX_LISTED {
        return Expression::Everything;
    }
    let tests = numbers.into_iter().map(|number| test(name, number));
    Expression::Or(tests.collect())
}

fn test(name: &str, number: u32) -> Expression {
    field::find(name).map_or(Expression::Everything, |field| {
        Expression::Test(Test {
            field,
            operator: Operator::Equal,
            value: Value::Number(number.into()),
        })
    })
}

/// First number of a column in an event.
fn id(event: &EventRecords, column: Column) -> Option<u32> {
    let mut found = None;
    values_of(column, event, |value| {
        if found.is_none() {
            found = value.to_str().ok().and_then(|text| text.parse().ok());
        }
    });
    found
}
