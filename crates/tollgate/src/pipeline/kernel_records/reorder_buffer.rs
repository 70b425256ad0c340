//! Kernel records that wait for older ring events, and the syscalls that belong to some of them.
//!
//! The kernel writes the record of a security module's denial in the middle of a syscall. The syscall arrives through
//! the ring with the stamp of that record. It is put into the ring before the record is sent, so it is nearly always
//! here first. A syscall without a record is written alone after a timeout, unless the record was excluded.
//!
//! The event of a rule for that syscall has the stamp too, and arrives when the syscall has ended: it is written after
//! the record, which the caller awaits for a limited time.
//!
//! Without programs on functions, the event of a syscall that has loaded a BPF program has no stamp, but the id of the
//! program: it gets the stamp of the record about that program.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant};

use audit::event::{Event, Timestamp};
use audit::ids::Serial;
use audit::plan::exclude_list::ExcludeList;
use audit::plan::{eval, user_list};
use audit::record::{decode, encode};
use bstr::ByteSlice as _;
use netlink::KernelRecord;

use super::program_record::ProgramRecord;
use super::{KernelRecordCounts, SenderTask};
use crate::pipeline::batch::Batch;

/// Ranges of the types of records for which a syscall or an event arrives: `is_of_syscall` in
/// `crates/engine/bpf/hooks/avc.bpf.h`.
const OF_SYSCALL: [RangeInclusive<u16>; 12] = [
    1305..=1305, // CONFIG_CHANGE
    1319..=1319, // TTY
    1325..=1325, // NETFILTER_CFG
    1328..=1328, // FEATURE_CHANGE
    1331..=1331, // FANOTIFY
    1334..=1334, // BPF
    1335..=1335, // EVENT_LISTENER
    1338..=1338, // DM_CTRL
    1339..=1339, // DM_EVENT
    1400..=1499, // of security modules
    1700..=1700, // ANOM_PROMISCUOUS
    1800..=1899, // INTEGRITY_*
];
/// A record stops waiting for its syscall when an event this much newer arrives, in milliseconds: the task may lose
/// its CPU between the two.
const SYSCALL_WAIT_MS: u64 = 100;
/// How long a syscall waits for its record.
const RECORD_WAIT: Duration = Duration::from_secs(5);
/// Limit of waiting syscall text.
const SYSCALLS_LIMIT_BYTES: usize = 1 << 20;

/// A program's record and the end of the syscall that loaded it are less than this apart, in milliseconds: the task may
/// lose its CPU between the two.
const LOAD_APART_MS: u64 = 1000;
/// Limit of loaded programs whose syscalls may end later.
const LAST_LOADS: usize = 4096;
/// Stamps that are remembered after their record was passed on: its syscall may end later.
const LAST_JOINED: usize = 64;

pub(super) type Stamp = (Timestamp, Serial);

/// Record lines that wait for the ring.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    lines: Vec<u8>,
    /// Bytes of lines already passed on.
    passed: usize,
    /// Records not passed on yet.
    pending: VecDeque<PendingRecord>,
    /// Whether syscalls arrive.
    joins_syscalls: bool,
    /// Stamps of the last records passed on to which a syscall belongs.
    last_joined: VecDeque<Stamp>,
    /// Stamps of the last records of loaded programs, by program, that no event has.
    last_loads: VecDeque<(u32, Stamp)>,
    syscalls: PendingSyscalls,
}

#[derive(Clone, Copy, Debug)]
struct PendingRecord {
    stamp: Stamp,
    /// End of its line. The line begins where the previous one ends; it is empty for an excluded record.
    end: usize,
    /// Whether a syscall is expected.
    has_syscall: bool,
}

/// Syscalls that wait for their records.
#[derive(Debug, Default)]
struct PendingSyscalls {
    text: Vec<u8>,
    pending: VecDeque<PendingSyscall>,
}

#[derive(Debug)]
struct PendingSyscall {
    stamp: Stamp,
    lines: Range<usize>,
    since: Instant,
}

impl ReorderBuffer {
    /// Buffered bytes.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn expect_syscalls(&mut self) {
        self.joins_syscalls = true;
    }

    pub(super) fn take(
        &mut self,
        message: KernelRecord<'_>,
        exclude: &ExcludeList,
        user: &user_list::UserList,
        counts: &mut KernelRecordCounts,
    ) {
        let start = self.lines.len();
        encode::kernel_record(message.kind, message.text, &mut self.lines);
        let line = self.lines.get(start..).unwrap_or_default();
        let Ok(record) = decode::line(line) else {
            self.lines.truncate(start);
            counts.refused += 1;
            return;
        };
        counts.received += 1;
        let stamp = (record.time, record.serial);
        if let Some(ProgramRecord::Load(program)) = ProgramRecord::of(message) {
            add_load(&mut self.last_loads, program, stamp);
        }
        let of_syscall = |types: &RangeInclusive<u16>| types.contains(&message.kind.0);
        let has_syscall = self.joins_syscalls && OF_SYSCALL.iter().any(of_syscall);
        let asked = user.applies_to(message.kind);
        if asked || !exclude.is_empty() {
            let sender = SenderTask::of(&record);
            let task = sender.task();
            let sent = eval::other_lists::Actor { task, label: None };
            if asked && !user.keeps(message.kind, &sent) {
                self.lines.truncate(start);
            }
            exclude.remove_excluded(&sent.task, &mut self.lines, start);
            if self.lines.len() == start {
                counts.excluded += 1;
                if !has_syscall {
                    return;
                }
            }
        }
        self.pending.push_back(PendingRecord {
            stamp,
            end: self.lines.len(),
            has_syscall,
        });
    }

    pub(super) fn add_syscall(&mut self, syscall: &Event<'_>, exclude: &ExcludeList) {
        self.syscalls.add((syscall.time, syscall.serial), |text| {
            let start = text.len();
            encode::event(syscall, text);
            exclude.remove_excluded(&syscall.task, text, start);
        });
    }

    /// Passes on records that are not newer than an event; all records without one.
    pub(super) fn pass(&mut self, batch: &mut Batch, until: Option<Timestamp>) {
        while let Some(&pending) = self.pending.front()
            && until.is_none_or(|until| self.is_due(pending, until))
        {
            self.pass_first(pending, batch);
        }
        self.forget();
        self.syscalls.pass_old(batch);
    }

    /// Passes on the records with a stamp, and all that arrived before them. Returns whether there are any, or were.
    pub(super) fn pass_through(&mut self, stamp: Stamp, batch: &mut Batch) -> bool {
        let Some(last) = self
            .pending
            .iter()
            .rposition(|record| record.stamp == stamp)
        else {
            return self.last_joined.contains(&stamp);
        };
        for _ in 0..=last {
            if let Some(&pending) = self.pending.front() {
                self.pass_first(pending, batch);
            }
        }
        self.forget();
        true
    }

    /// Passes on the record of a program that a syscall has loaded, which ended at `time`, and all that arrived before it.
    /// Returns its stamp; `None` if it has not arrived. A record belongs to one syscall.
    pub(super) fn pass_load(
        &mut self,
        program: u32,
        time: Timestamp,
        batch: &mut Batch,
    ) -> Option<Stamp> {
        let is_of = |&(loaded, (at, _)): &(u32, Stamp)| {
            loaded == program && millis(at).abs_diff(millis(time)) < LOAD_APART_MS
        };
        let at = self.last_loads.iter().rposition(is_of)?;
        let (_, stamp) = self.last_loads.remove(at)?;
        self.pass_through(stamp, batch);
        Some(stamp)
    }

    /// Passes on the first record.
    fn pass_first(&mut self, pending: PendingRecord, batch: &mut Batch) {
        let PendingRecord {
            stamp,
            end,
            has_syscall,
        } = pending;
        let line = self.lines.get(self.passed..end).unwrap_or_default();
        if !line.is_empty() {
            batch.message(line, stamp);
        }
        self.passed = end;
        self.pending.pop_front();
        // All records of one event are consecutive.
        let is_last = self.pending.front().is_none_or(|next| next.stamp != stamp);
        if has_syscall && is_last {
            self.syscalls
                .join(stamp, (!line.is_empty()).then_some(&mut *batch));
            if self.last_joined.len() == LAST_JOINED {
                self.last_joined.pop_front();
            }
            self.last_joined.push_back(stamp);
        }
    }

    fn forget(&mut self) {
        if self.pending.is_empty() {
            self.lines.clear();
            self.passed = 0;
        }
    }

    /// Passes on syscalls whose record has not arrived.
    pub(super) fn pass_last(&mut self, batch: &mut Batch) {
        self.syscalls.pass_while(batch, |_| true);
    }

    fn is_due(&self, pending: PendingRecord, until: Timestamp) -> bool {
        let (time, _) = pending.stamp;
        let waits = pending.has_syscall && self.syscalls.find(pending.stamp).is_none();
        let grace = if waits { SYSCALL_WAIT_MS } else { 0 };
        millis(time) + grace <= millis(until)
    }
}

impl PendingSyscalls {
    /// Adds a syscall; `append` writes its lines.
    fn add(&mut self, stamp: Stamp, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        append(&mut self.text);
        self.pending.push_back(PendingSyscall {
            stamp,
            lines: start..self.text.len(),
            since: Instant::now(),
        });
    }

    fn find(&self, stamp: Stamp) -> Option<usize> {
        self.pending
            .iter()
            .position(|syscall| syscall.stamp == stamp)
    }

    /// The record was passed on or excluded: the syscall follows it.
    fn join(&mut self, stamp: Stamp, batch: Option<&mut Batch>) {
        let Some(syscall) = self.find(stamp).and_then(|at| self.pending.remove(at)) else {
            return;
        };
        if let Some(batch) = batch {
            self.write(&syscall, batch);
        }
        self.forget();
    }

    fn pass_old(&mut self, batch: &mut Batch) {
        let is_full = self.text.len() > SYSCALLS_LIMIT_BYTES;
        self.pass_while(batch, |syscall| {
            is_full || syscall.since.elapsed() >= RECORD_WAIT
        });
    }

    fn pass_while(&mut self, batch: &mut Batch, is_due: impl Fn(&PendingSyscall) -> bool) {
        while self.pending.front().is_some_and(&is_due) {
            if let Some(syscall) = self.pending.pop_front() {
                self.write(&syscall, batch);
            }
        }
        self.forget();
    }

    fn write(&self, syscall: &PendingSyscall, batch: &mut Batch) {
        let lines = self.text.get(syscall.lines.clone()).unwrap_or_default();
        for line in lines.lines_with_terminator() {
            batch.message(line, syscall.stamp);
        }
    }

    fn forget(&mut self) {
        if self.pending.is_empty() {
            self.text.clear();
        }
    }
}

/// Remembers the record of a loaded program, and forgets those that no event can have any more.
fn add_load(loads: &mut VecDeque<(u32, Stamp)>, program: u32, stamp: Stamp) {
    let (time, _) = stamp;
    let is_old = |&(_, (then, _)): &(u32, Stamp)| millis(then) + LOAD_APART_MS < millis(time);
    while loads.front().is_some_and(is_old) || loads.len() == LAST_LOADS {
        loads.pop_front();
    }
    loads.push_back((program, stamp));
}

/// # Units
/// Milliseconds since 1970.
fn millis(time: Timestamp) -> u64 {
    time.sec.saturating_mul(1000) + u64::from(time.milli)
}

#[cfg(test)]
mod tests;
