//! Events of a log as events of Sigma's log sources.
//!
//! Each record is an event of `service: auditd`, and some syscalls are one of `process_creation`, `file_event` or
//! `network_connection` as a whole, with the parent of the process from a table that is kept from the events.

mod caller;
mod head;
mod memo;
mod process_table;
mod record;
mod usual;
mod whole;

use std::cell::OnceCell;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use audit::record::assemble::EventRecords;
use audit::record::decode::Record;
use bstr::ByteSlice as _;
use logs::accounts::Accounts;
pub use process_table::{Process, ProcessTable};
use smallvec::SmallVec;

use crate::sigma::fields::Fields;
use crate::sigma::gate::{Passed, SyscallGate};
use crate::sigma::{Engine, Match, Source};
use head::{Head, Memos};
use memo::Memo;
use whole::{CallerFields, CommandLine, WholeFields};

/// Converts events, and remembers processes.
#[derive(Debug)]
pub struct Mapping {
    accounts: Accounts,
    processes: ProcessTable,
    memos: Memos,
    /// Whether gates let the last records pass of types that repeat their text.
    passes: Memo<bool>,
    /// Whether parents that the table does not have are looked up in `/proc`.
    looks_up: bool,
}

impl Mapping {
    /// A mapping with the names of users, and with the processes that are known.
    #[must_use]
    pub fn new(accounts: Accounts, processes: ProcessTable) -> Self {
        Self {
            accounts,
            processes,
            memos: Memos::default(),
            passes: Memo::default(),
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
        let records: SmallVec<[Record<'_>; 8]> = event.records().collect();
        // Operations of io_uring that run inside of a syscall have records in its event.
        let mut calls: SmallVec<[&Record<'_>; 4]> = records.iter().filter(is_call).collect();
        let syscall = calls.iter().position(|record| record.kind == "SYSCALL");
        let call = (!calls.is_empty()).then(|| calls.remove(syscall.unwrap_or(0)));
        let Self {
            accounts,
            processes,
            memos,
            passes,
            looks_up,
        } = self;
        let (head, mut passed) = match call {
            Some(record) => Head::of(record, engine, memos),
            None => (None, Passed::default()),
        };
        if !calls.is_empty() {
            passed = SyscallGate::OPEN.open();
        }
        if engine.has_rules(Source::Record) {
            find_in_records(engine, &records, call, passed, passes, found);
        }
        let command_line = CommandLine::new(&records);
        let mut sources: SmallVec<[Option<Source>; 4]> = SmallVec::new();
        let mut find_in_whole = |head: &Head<'_>, processes: &ProcessTable| {
            if !sources.contains(&head.source) {
                let whole = Whole {
                    event,
                    records: &records,
                    head,
                    command_line: &command_line,
                };
                whole.find(engine, processes, accounts, found);
                sources.push(head.source);
            }
        };
        if let Some(head) = head {
            if *looks_up {
                look_up_parent(processes, event, &head);
            }
            find_in_whole(&head, processes);
            processes.update(event, &records, &head, &command_line);
        }
        for record in calls {
            if let (Some(head), _) = Head::of(record, engine, memos) {
                find_in_whole(&head, processes);
            }
        }
        drop_repeated(found, start);
    }
}

fn look_up_parent(processes: &mut ProcessTable, event: &EventRecords, head: &Head<'_>) {
    // Its number may be that of another process soon.
    const MAX_AGE: Duration = Duration::from_secs(5);
    let is_needed = head.source == Some(Source::Process)
        && event.node().is_none()
        && processes.get(None, head.ppid).is_none();
    let age = || {
        UNIX_EPOCH
            .checked_add(Duration::from_secs(event.time().sec))?
            .elapsed()
            .ok()
    };
    if is_needed && age().is_some_and(|age| age <= MAX_AGE) {
        processes.look_up(head.ppid);
    }
}

/// The event of a call.
#[derive(Clone, Copy)]
struct Whole<'e> {
    event: &'e EventRecords,
    records: &'e [Record<'e>],
    head: &'e Head<'e>,
    command_line: &'e CommandLine<'e>,
}

impl Whole<'_> {
    /// Appends the rules that match it as an event of a category.
    fn find(
        self,
        engine: &dyn Engine,
        processes: &ProcessTable,
        accounts: &Accounts,
        found: &mut Vec<Match>,
    ) {
        let Self {
            event,
            records,
            head,
            command_line,
        } = self;
        let Some(source) = head.source.filter(|source| engine.has_rules(*source)) else {
            return;
        };
        let gate = engine.event_gate(source);
        let interest = engine.event_fields(source);
        let caller = CallerFields {
            head,
            records,
            accounts,
        };
        let mut find = |fields: &WholeFields<'_>| {
            if fields.pass(&gate, source) {
                engine.find(source, &fields.wanted(source, interest), found);
            }
        };
        let image = || whole::image(head, records, processes.get(event.node(), head.pid));
        match source {
            Source::Record => {}
            Source::Process => {
                let parent = processes.get(event.node(), head.ppid);
                find(&WholeFields::process(caller, command_line, parent));
            }
            Source::File => {
                let image = image();
                for name in whole::written_files(head, records) {
                    find(&WholeFields::file(caller, image.as_deref(), &name));
                }
            }
            Source::Network => {
                let image = image();
                if let Some(fields) = WholeFields::connection(caller, image.as_deref()) {
                    find(&fields);
                }
            }
        }
    }
}

/// Whether it is the record of a syscall or of an operation of `io_uring`.
fn is_call(record: &&Record<'_>) -> bool {
    matches!(record.kind.as_bytes(), b"SYSCALL" | b"URINGOP")
}

/// Evaluates each record, that of the syscall first; the parts of a program's arguments are one record.
fn find_in_records(
    engine: &dyn Engine,
    records: &[Record<'_>],
    syscall: Option<&Record<'_>>,
    passed: Passed,
    passes: &mut Memo<bool>,
    found: &mut Vec<Match>,
) {
    let mut passes = |record: &Record<'_>| {
        let gate = engine.record_gate(record.kind);
        let new = || record::passes(record, &gate);
        match record.kind.as_bytes() {
            kind @ (b"CWD" | b"PROCTITLE" | b"SOCKADDR") if gate.search.is_some() => {
                let key = [kind, record.untrimmed(), record.enrichment_text()];
                *passes.get(engine.version(), key, new)
            }
            _ => new(),
        }
    };
    let context = OnceCell::new();
    let context = || {
        let fields = context.get_or_init(|| syscall.map(|record| syscall_fields(engine, record)));
        fields.as_ref()
    };
    if passed.own
        && let Some(fields) = context()
    {
        engine.find(Source::Record, fields, found);
    }
    let mut has_arguments = false;
    for record in records {
        let kind = record.kind;
        let is_done = syscall.is_some_and(|syscall| std::ptr::eq(syscall, record));
        if kind == "EOE" || is_done || !passed.shared && !passes(record) {
            continue;
        }
        let Some(interest) = engine.record_fields(kind) else {
            continue;
        };
        let fields = match kind.as_bytes() {
            b"EXECVE" if has_arguments => continue,
            b"EXECVE" => {
                has_arguments = true;
                record::arguments(records, context())
            }
            _ => record::fields(record, context(), |field| interest.contains(field)),
        };
        engine.find(Source::Record, &fields, found);
    }
}

/// Fields of a syscall's record that rules look at, also with other records.
fn syscall_fields<'a>(engine: &dyn Engine, record: &Record<'a>) -> Fields<'a> {
    let shared = engine.shared_fields();
    let own = engine.record_fields(record.kind).unwrap_or_default();
    record::fields(record, None, |field| {
        own.contains(field) || shared.contains(field)
    })
}

/// Keeps the first match of each rule, which gets the contexts of the others.
fn drop_repeated(found: &mut Vec<Match>, start: usize) {
    // The kernel writes fewer records of an event.
    const MAX_CONTEXTS: usize = 256;
    let mut at = start;
    while let Some(rule) = found.get(at).map(|found| found.rule) {
        let before = found.get(start..at).unwrap_or_default();
        let Some(first) = before.iter().position(|other| other.rule == rule) else {
            at += 1;
            continue;
        };
        let repeated = found.remove(at);
        let Some(first) = found.get_mut(start + first) else {
            return;
        };
        for context in repeated.contexts {
            if first.contexts.len() < MAX_CONTEXTS && !first.contexts.contains(&context) {
                first.contexts.push(context);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
