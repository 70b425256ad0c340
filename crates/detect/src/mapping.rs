//! Events of a log as events of Sigma's log sources.
//!
//! Each record is an event of `service: auditd`, and some syscalls are one of `process_creation`, `file_event` or
//! `network_connection` as a whole, with the parent of the process from a table that is kept from the events.

mod process_table;
mod record;
mod whole;

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use audit::record::assemble::EventRecords;
use audit::record::decode::Record;
use bstr::ByteSlice as _;
use logs::accounts::Accounts;
use logs::syscall_event::SyscallEvent;

pub use process_table::{Process, ProcessTable};

use crate::sigma::{Engine, Match, Source};
use whole::Head;

/// Converts events, and remembers processes.
#[derive(Debug)]
pub struct Mapping {
    accounts: Accounts,
    processes: ProcessTable,
    /// Whether parents that the table does not have are looked up in `/proc`.
    looks_up: bool,
}

impl Mapping {
    /// A mapping with the names of users, and with the processes that are known.
    #[must_use]
    pub const fn new(accounts: Accounts, processes: ProcessTable) -> Self {
        Self {
            accounts,
            processes,
            looks_up: false,
        }
    }

    /// Looks parents up in `/proc`, or in another directory of its form, if the table does not have them and the event
    /// is one of the last seconds.
    pub fn look_up_in(&mut self, proc_directory: &Path) {
        self.looks_up = true;
        self.processes.look_up_in(proc_directory);
    }

    /// The processes.
    #[must_use]
    pub const fn processes(&self) -> &ProcessTable {
        &self.processes
    }

    /// Names of users.
    #[must_use]
    pub const fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Appends the rules that match an event or one of its records, each of them once.
    pub fn find(&mut self, engine: &dyn Engine, event: &EventRecords, found: &mut Vec<Match>) {
        let start = found.len();
        let records: Vec<Record<'_>> = event.records().collect();
        let syscall = records.iter().find(|record| is_syscall(record));
        find_in_records(engine, &records, syscall, found);
        if let Some(head) = syscall.and_then(Head::of) {
            self.look_up_parent(event, &head);
            self.find_in_whole(engine, event, &head, found);
            self.processes.update(event, &records, &head);
        }
        drop_repeated(found, start);
    }

    fn look_up_parent(&mut self, event: &EventRecords, head: &Head<'_>) {
        // Its number may be that of another process soon.
        const MAX_AGE: Duration = Duration::from_secs(5);
        let is_needed = self.looks_up
            && head.source() == Some(Source::Process)
            && event.node().is_none()
            && self.processes.get(None, head.ppid).is_none();
        let age = || {
            UNIX_EPOCH
                .checked_add(Duration::from_secs(event.time().sec))?
                .elapsed()
                .ok()
        };
        if is_needed && age().is_some_and(|age| age <= MAX_AGE) {
            self.processes.look_up(head.ppid);
        }
    }

    fn find_in_whole(
        &self,
        engine: &dyn Engine,
        event: &EventRecords,
        head: &Head<'_>,
        found: &mut Vec<Match>,
    ) {
        let Some(source) = head.source().filter(|source| engine.has_rules(*source)) else {
            return;
        };
        let Some(syscall) = SyscallEvent::of(event) else {
            return;
        };
        let syscall = syscall.event();
        let user = whole::user(event, syscall.task.euid, &self.accounts);
        match source {
            Source::Record => {}
            Source::Process => {
                let parent = self.processes.get(event.node(), syscall.task.ppid);
                let fields = whole::process(&syscall, user, parent);
                engine.find(source, &fields, found);
            }
            Source::File => {
                for name in whole::written_files(&syscall, event) {
                    let fields = whole::file(&syscall, user.clone(), &name);
                    engine.find(source, &fields, found);
                }
            }
            Source::Network => {
                if let Some(fields) = whole::connection(&syscall, user, head) {
                    engine.find(source, &fields, found);
                }
            }
        }
    }
}

fn is_syscall(record: &Record<'_>) -> bool {
    matches!(record.kind.as_bytes(), b"SYSCALL" | b"URINGOP")
}

/// Evaluates each record; the parts of a program's arguments are one record.
fn find_in_records(
    engine: &dyn Engine,
    records: &[Record<'_>],
    syscall: Option<&Record<'_>>,
    found: &mut Vec<Match>,
) {
    if !engine.has_rules(Source::Record) {
        return;
    }
    let shared = engine.shared_fields();
    let context = syscall.map(|record| {
        let kind = record.kind.to_str().unwrap_or_default();
        let own = engine.record_fields(kind).unwrap_or_default();
        record::fields(record, None, |field| {
            own.contains(field) || shared.contains(field)
        })
    });
    if let Some(fields) = &context {
        engine.find(Source::Record, fields, found);
    }
    let mut has_arguments = false;
    for record in records {
        let kind = record.kind.to_str().unwrap_or_default();
        let Some(interest) = engine.record_fields(kind).filter(|_| !is_syscall(record)) else {
            continue;
        };
        let fields = match kind {
            "EOE" => continue,
            "EXECVE" if has_arguments => continue,
            "EXECVE" => {
                has_arguments = true;
                record::arguments(records, context.as_ref())
            }
            _ => record::fields(record, context.as_ref(), |field| interest.contains(field)),
        };
        engine.find(Source::Record, &fields, found);
    }
}

/// Keeps the first match of each rule.
fn drop_repeated(found: &mut Vec<Match>, start: usize) {
    let mut at = start;
    while let Some(rule) = found.get(at).map(|found| found.rule) {
        let before = found.get(start..at).unwrap_or_default();
        match before.iter().any(|other| other.rule == rule) {
            true => drop(found.remove(at)),
            false => at += 1,
        }
    }
}

#[cfg(test)]
mod tests;
