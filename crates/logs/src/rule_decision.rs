//! Which rule decides about a syscall that a log has, as the reference evaluator of the crate `audit` tells.
//!
//! Names are compared as recorded: links, and names relative to a descriptor, are not resolved. Supplementary groups are
//! not recorded.

use audit::event::{Event, reported_exit};
use audit::plan::eval::{EventFacts, ObjectFacts, first_match};
use audit::record::assemble::EventRecords;
use audit::rule::Rule;
use bstr::ByteSlice as _;

use crate::event_values::resolved;

/// Index of the rule that decides about a syscall, whose records are `event`. `None` if no rule matches.
#[must_use]
pub fn deciding_rule(rules: &[Rule], syscall: &Event<'_>, event: &EventRecords) -> Option<usize> {
    let paths: Vec<_> = syscall
        .items
        .iter()
        .map(|item| item.name.map(|name| resolved(name, syscall.cwd)))
        .collect();
    let objects: Vec<ObjectFacts<'_>> = syscall
        .items
        .iter()
        .zip(&paths)
        .map(|(item, path)| ObjectFacts {
            path: path.as_deref().unwrap_or_default(),
            name: item.name,
            inode: item.inode,
            label: None,
        })
        .collect();
    let facts = EventFacts {
        arch: syscall.arch,
        syscall: syscall.syscall,
        exit: syscall.exit.map(reported_exit),
        args: syscall.args,
        open_how_flags: open_how_flags(event),
        task: syscall.task,
        groups: &[],
        personality: syscall.personality,
        label: None,
        socket_family: syscall.sockaddr.and_then(|address| {
            let family = address.first_chunk::<2>()?;
            Some(u16::from_le_bytes(*family).into())
        }),
        task_state: None,
        uring_enter: None,
        objects: &objects,
    };
    first_match(rules, &facts)
}

/// Flags in the OPENAT2 record.
fn open_how_flags(event: &EventRecords) -> u64 {
    let record = event.records().find(|record| record.kind == "OPENAT2");
    let flags = record.and_then(|record| {
        let field = record.field("oflag")?;
        u64::from_str_radix(field.value.to_str().ok()?, 8).ok()
    });
    flags.unwrap_or(0)
}
