//! `--tree`: the ancestors of a process, and what it and its descendants did.
//!
//! A small family is found level by level, which the index answers. For a large or deep one, all events are read once:
//! nobody can hide behind many processes.

use std::collections::{BTreeMap, HashMap, HashSet};

use audit::record::assemble::EventRecords;
use bstr::ByteSlice as _;
use logs::escaped::Escaped;
use logs::event_values::{Column, values_of};
use logs::expression::field;
use logs::expression::{Expression, Operator, Test, Value};

use super::Query;
use super::output::Output;
use super::time::TimeRange;
use crate::logs_arg::Logs;

/// Levels that are looked for one by one.
const MOST_STEPS: usize = 8;
/// Ancestors that are named: half of them the farthest, half the nearest.
const MOST_NAMED: usize = 64;
/// Levels by which a line is indented at most.
const MOST_INDENTED: usize = 64;
/// Most processes that an expression lists: each event is compared with all of them.
const MAX_LISTED: usize = 64;
/// Most pairs of parent and child in one log: as many as there are process ids.
const MAX_PAIRS: usize = 1 << 22;
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
    let mut tree = Tree {
        range,
        logs,
        node: None,
        family: None,
    };
    let mut pid = None;
    if let Some(found) = tree.process(number)?.filter(|_| number <= PID_MAX) {
        pid = Some((number, found.node));
    } else {
        tree.for_each(test("serial", number), |event| {
            if pid.is_none() {
                pid = id(event, Column::Pid).map(|pid| (pid, node_of(event)));
            }
            Ok(())
        })?;
    }
    let Some((pid, node)) = pid else {
        return Ok(false);
    };
    tree.node = Some(node);
    let mut ancestors = Vec::new();
    if output.is_for_people() {
        ancestors = tree.ancestors(pid)?;
        tree.print_ancestors(&ancestors, output)?;
    }
    let depths = tree.descendants(pid)?;
    let above = ancestors.len().min(MOST_NAMED);
    tree.for_each(any_of("pid", depths.keys()), |event| {
        match id(event, Column::Pid).and_then(|pid| depths.get(&pid)) {
            Some(below) => output.indented(event, (above + below).min(MOST_INDENTED)),
            None => Ok(()),
        }
    })?;
    output.end()?;
    if tree.family.is_some_and(|family| family.is_cut) {
        logs.complain("the log has too many processes for --tree, and some may be missing; limit the time with --since and --until");
    }
    Ok(true)
}

/// What is known of a process from its events: the newest name and parent.
struct Process {
    ppid: u32,
    name: String,
    node: Option<Vec<u8>>,
}

/// Who is whose child, from all events.
#[derive(Default)]
struct Family {
    /// The newest parent of each process.
    parents: HashMap<u32, u32>,
    children: HashMap<u32, HashSet<u32>>,
    pairs: usize,
    /// There were more than [`MAX_PAIRS`].
    is_cut: bool,
}

impl Family {
    fn add(&mut self, parent: u32, child: u32) {
        if self.pairs >= MAX_PAIRS {
            self.is_cut = true;
            return;
        }
        self.parents.insert(child, parent);
        self.pairs += usize::from(self.children.entry(parent).or_default().insert(child));
    }
}

struct Tree<'q> {
    range: &'q TimeRange,
    logs: &'q Logs,
    /// The node of the process, when it is known: others have processes with the same ids.
    node: Option<Option<Vec<u8>>>,
    /// Read when it is needed.
    family: Option<Family>,
}

impl Tree<'_> {
    fn for_each(
        &self,
        expression: Expression,
        mut found: impl FnMut(&EventRecords) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let range = *self.range;
        Query { expression, range }.for_each(self.logs, |event| {
            let is_of_node = |node: &Option<Vec<u8>>| *node == node_of(event);
            if self.node.as_ref().is_none_or(is_of_node) {
                return found(event);
            }
            Ok(())
        })
    }

    /// The process of an id; `None` if it has no event with a parent.
    fn process(&self, pid: u32) -> anyhow::Result<Option<Process>> {
        let mut found = None;
        self.for_each(test("pid", pid), |event| {
            if let Some(ppid) = id(event, Column::Ppid) {
                let mut name = String::new();
                values_of(Column::Exe, event, |value| {
                    if name.is_empty() {
                        name = Escaped(value).to_string();
                    }
                });
                let node = node_of(event);
                found = Some(Process { ppid, name, node });
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn family(&mut self) -> anyhow::Result<&Family> {
        let family = match self.family.take() {
            Some(family) => family,
            None => {
                let mut family = Family::default();
                self.for_each(Expression::Everything, |event| {
                    if let Some((parent, child)) =
                        id(event, Column::Ppid).zip(id(event, Column::Pid))
                    {
                        family.add(parent, child);
                    }
                    Ok(())
                })?;
                family
            }
        };
        Ok(self.family.insert(family))
    }

    /// The ancestors, the nearest first. An id that was used again ends them.
    fn ancestors(&mut self, pid: u32) -> anyhow::Result<Vec<u32>> {
        let mut ancestors = Vec::new();
        let mut seen = HashSet::from([0, pid]);
        let mut next = self.process(pid)?.map(|process| process.ppid);
        while let Some(above) = next.filter(|above| seen.insert(*above)) {
            ancestors.push(above);
            next = if ancestors.len() < MOST_STEPS {
                self.process(above)?.map(|process| process.ppid)
            } else {
                self.family()?.parents.get(&above).copied()
            };
        }
        Ok(ancestors)
    }

    fn print_ancestors(&self, ancestors: &[u32], output: &mut Output) -> anyhow::Result<()> {
        let left_out = ancestors.len().saturating_sub(MOST_NAMED);
        let farthest = MOST_NAMED / 2;
        for (number, pid) in ancestors.iter().rev().enumerate() {
            if left_out > 0 && number == farthest {
                output.line(&format!("{:1$}({left_out} more)", "", 2 * farthest))?;
            }
            if (farthest..farthest + left_out).contains(&number) {
                continue;
            }
            let depth = 2 * number.min(number.saturating_sub(left_out).max(farthest));
            let process = self.process(*pid)?;
            let name = process
                .as_ref()
                .map_or("(no event)", |process| &process.name);
            output.line(&format!("{:depth$}{name}[{pid}]", ""))?;
        }
        Ok(())
    }

    /// The process and its descendants, with their depths.
    fn descendants(&mut self, pid: u32) -> anyhow::Result<BTreeMap<u32, usize>> {
        let mut depths = BTreeMap::from([(pid, 0)]);
        let mut level = HashSet::from([pid]);
        for depth in 1.. {
            if level.is_empty() {
                break;
            }
            let mut children = HashSet::new();
            if depth <= MOST_STEPS && level.len() <= MAX_LISTED && self.family.is_none() {
                self.for_each(any_of("ppid", &level), |event| {
                    let is_below =
                        id(event, Column::Ppid).is_some_and(|ppid| level.contains(&ppid));
                    if let Some(child) = id(event, Column::Pid).filter(|_| is_below) {
                        children.insert(child);
                    }
                    Ok(())
                })?;
            } else {
                let family = self.family()?;
                let below = level.iter().filter_map(|pid| family.children.get(pid));
                children.extend(below.flatten());
            }
            children.retain(|child| !depths.contains_key(child));
            depths.extend(children.iter().map(|child| (*child, depth)));
            level = children;
        }
        Ok(depths)
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

fn node_of(event: &EventRecords) -> Option<Vec<u8>> {
    event.node().map(|node| node.to_vec())
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
