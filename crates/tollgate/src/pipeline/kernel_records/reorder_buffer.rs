//! Messages that wait for what is older in the ring, and the calls that belong to some of them.
//!
//! The kernel's audit makes the record of a security module's refusal in the middle of a call. The call
//! comes through the ring and says which record it belongs to. It is put into the ring before the record is
//! sent, so it is nearly always here first. A call without a record is written alone when it has waited for
//! long, unless the record was left out.

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

use super::{KernelRecordCounts, Sender};
use crate::pipeline::batch::Batch;

/// Types of records that security modules make: from `AUDIT_FIRST_SELINUX` to `AUDIT_LAST_SELINUX`.
const OF_SECURITY_MODULES: RangeInclusive<u16> = 1400..=1499;
/// So much younger an event is, in milliseconds, than a record whose call does not come any more before it:
/// a task may lose its CPU between the two.
const CALL_MS: u64 = 100;
/// So long a call waits for its record.
const RECORD_WAIT: Duration = Duration::from_secs(5);
/// Text of calls that may wait.
const CALLS_BYTES: usize = 1 << 20;

type Stamp = (Timestamp, Serial);

/// Lines that wait for the ring.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer {
    lines: Vec<u8>,
    /// Bytes of the lines that were passed on.
    passed: usize,
    /// Those that were not.
    waiting: VecDeque<Waiting>,
    /// Whether calls come.
    with_calls: bool,
    calls: Calls,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    stamp: Stamp,
    /// Where its line ends. It begins where the one before ends: there too when it is left out.
    end: usize,
    /// Whether a call is to come.
    has_call: bool,
}

/// Calls that wait for their records.
#[derive(Debug, Default)]
struct Calls {
    text: Vec<u8>,
    waiting: VecDeque<Call>,
}

#[derive(Debug)]
struct Call {
    stamp: Stamp,
    lines: Range<usize>,
    since: Instant,
}

impl ReorderBuffer {
    /// Bytes that it holds.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn expect_calls(&mut self) {
        self.with_calls = true;
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
        let has_call = self.with_calls && OF_SECURITY_MODULES.contains(&message.kind.0);
        let asked = user.applies_to(message.kind);
        if asked || !exclude.is_empty() {
            let sender = Sender::of(&record);
            let task = sender.task();
            let sent = eval::other_lists::Actor { task, label: None };
            if asked && !user.keeps(message.kind, &sent) {
                self.lines.truncate(start);
            }
            exclude.remove_excluded(&sent.task, &mut self.lines, start);
            if self.lines.len() == start {
                counts.excluded += 1;
                if !has_call {
                    return;
                }
            }
        }
        self.waiting.push_back(Waiting {
            stamp,
            end: self.lines.len(),
            has_call,
        });
    }

    pub(super) fn call(&mut self, call: &Event<'_>, exclude: &ExcludeList) {
        self.calls.add((call.time, call.serial), |text| {
            let start = text.len();
            encode::event(call, text);
            exclude.remove_excluded(&call.task, text, start);
        });
    }

    /// Passes on those that are not younger than an event; all when there is none.
    pub(super) fn pass(&mut self, batch: &mut Batch, until: Option<Timestamp>) {
        while let Some(&waiting) = self.waiting.front()
            && until.is_none_or(|until| self.is_due(waiting, until))
        {
            let Waiting {
                stamp,
                end,
                has_call,
            } = waiting;
            let line = self.lines.get(self.passed..end).unwrap_or_default();
            if !line.is_empty() {
                batch.message(line, stamp);
            }
            self.passed = end;
            self.waiting.pop_front();
            // All records of one event come one after the other.
            let is_last = self.waiting.front().is_none_or(|next| next.stamp != stamp);
            if has_call && is_last {
                self.calls
                    .join(stamp, (!line.is_empty()).then_some(&mut *batch));
            }
        }
        if self.waiting.is_empty() {
            self.lines.clear();
            self.passed = 0;
        }
        self.calls.pass_old(batch);
    }

    /// Passes on the calls whose records do not come.
    pub(super) fn last(&mut self, batch: &mut Batch) {
        self.calls.pass_while(batch, |_| true);
    }

    fn is_due(&self, waiting: Waiting, until: Timestamp) -> bool {
        let (time, _) = waiting.stamp;
        let waits = waiting.has_call && self.calls.find(waiting.stamp).is_none();
        let grace = if waits { CALL_MS } else { 0 };
        millis(time) + grace <= millis(until)
    }
}

impl Calls {
    /// Adds a call, whose lines are to be appended.
    fn add(&mut self, stamp: Stamp, append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        append(&mut self.text);
        self.waiting.push_back(Call {
            stamp,
            lines: start..self.text.len(),
            since: Instant::now(),
        });
    }

    fn find(&self, stamp: Stamp) -> Option<usize> {
        self.waiting.iter().position(|call| call.stamp == stamp)
    }

    /// The record of a call was passed on, or left out: so is the call.
    fn join(&mut self, stamp: Stamp, batch: Option<&mut Batch>) {
        let Some(call) = self.find(stamp).and_then(|at| self.waiting.remove(at)) else {
            return;
        };
        if let Some(batch) = batch {
            self.write(&call, batch);
        }
        self.forget();
    }

    fn pass_old(&mut self, batch: &mut Batch) {
        let is_full = self.text.len() > CALLS_BYTES;
        self.pass_while(batch, |call| is_full || call.since.elapsed() >= RECORD_WAIT);
    }

    fn pass_while(&mut self, batch: &mut Batch, is_due: impl Fn(&Call) -> bool) {
        while self.waiting.front().is_some_and(&is_due) {
            if let Some(call) = self.waiting.pop_front() {
                self.write(&call, batch);
            }
        }
        self.forget();
    }

    fn write(&self, call: &Call, batch: &mut Batch) {
        let lines = self.text.get(call.lines.clone()).unwrap_or_default();
        for line in lines.lines_with_terminator() {
            batch.message(line, call.stamp);
        }
    }

    fn forget(&mut self) {
        if self.waiting.is_empty() {
            self.text.clear();
        }
    }
}

/// # Units
/// Milliseconds since 1970.
fn millis(time: Timestamp) -> u64 {
    time.sec.saturating_mul(1000) + u64::from(time.milli)
}

#[cfg(test)]
mod tests {
    use audit::ids::{Arch, MsgType};
    use audit::plan::Plan;
    use audit::plan::rule_list::RuleList;
    use audit::rule::parse_file;

    use super::*;
    use crate::host::ThisMachine;

    const USER: MsgType = MsgType::USER;
    const LOGIN: MsgType = MsgType(1006);

    fn time(milli: u16) -> Timestamp {
        Timestamp { sec: 5, milli }
    }

    fn plan(rules: &str) -> Plan {
        let (lines, _) = parse_file(rules.as_bytes(), &ThisMachine);
        let mut list = RuleList::default();
        for line in lines {
            list.apply(0, line.number, line.command).unwrap();
        }
        Plan::compile(list.into_rules(), &[Arch::X86_64])
    }

    fn held(rules: &str, messages: &[(MsgType, &str)]) -> (ReorderBuffer, KernelRecordCounts) {
        let (mut held, mut counts) = (ReorderBuffer::default(), KernelRecordCounts::default());
        let Plan {
            exclude_list: exclude,
            user_list: user,
            ..
        } = plan(rules);
        for &(kind, text) in messages {
            let text = text.as_bytes();
            held.take(KernelRecord { kind, text }, &exclude, &user, &mut counts);
        }
        (held, counts)
    }

    #[test]
    fn user_list_is_asked_about_what_programs_send() {
        let text = "audit(5.000:1): pid=7 uid=3 auid=3 ses=1 msg='op=x'";
        let rules = "-a never,user -F uid=3\n";
        let (sent, counts) = held(
            rules,
            &[
                (MsgType(1112), text),
                (MsgType(2100), text),
                (MsgType(1005), text),
            ],
        );
        assert_eq!((counts.received, counts.excluded), (3, 3));
        assert!(sent.lines.is_empty());
        let (_, of_kernel) = held(rules, &[(MsgType(1701), text)]);
        assert_eq!((of_kernel.received, of_kernel.excluded), (1, 0));
        let other = "audit(5.000:1): pid=7 uid=4 auid=3 ses=1 msg='op=x'";
        let (_, others) = held(rules, &[(MsgType(1112), other)]);
        assert_eq!((others.received, others.excluded), (1, 0));
    }

    #[test]
    fn messages_wait_for_what_is_older() {
        let (mut held, counts) = held(
            "",
            &[
                (USER, "audit(5.100:1): pid=1 uid=0 auid=0 ses=1 msg='a'"),
                (LOGIN, "audit(5.200:2): pid=1 uid=0 "),
                (MsgType(1423), "audit(5.200:2): domain=1"),
                (MsgType(4000), "audit(5.300:3): x=1"),
            ],
        );
        assert_eq!((counts.received, counts.refused), (4, 0));
        let mut batch = Batch::default();
        held.pass(&mut batch, Some(time(99)));
        assert!(batch.text.is_empty());
        held.pass(&mut batch, Some(time(200)));
        assert_eq!(
            batch.text.as_bstr(),
            "type=USER msg=audit(5.100:1): pid=1 uid=0 auid=0 ses=1 msg='a'\n\
             type=LOGIN msg=audit(5.200:2): pid=1 uid=0\n\
             type=LANDLOCK_ACCESS msg=audit(5.200:2): domain=1\n"
        );
        assert_eq!(batch.origins.len(), 2, "records of one event count once");
        held.pass(&mut batch, None);
        assert!(
            batch
                .text
                .ends_with(b"type=UNKNOWN[4000] msg=audit(5.300:3): x=1\n")
        );
        assert!(held.lines.is_empty());
    }

    #[test]
    fn text_that_is_no_record_is_counted_and_left_out() {
        let (held, counts) = held(
            "",
            &[
                (USER, ""),
                (USER, "audit(5:1): x"),
                (USER, "audit(5.100:99999999999): x"),
                (USER, "audit(5.100:1) x"),
            ],
        );
        assert_eq!((counts.received, counts.refused), (0, 4));
        assert!(held.lines.is_empty() && held.waiting.is_empty());
    }

    #[test]
    fn nothing_that_a_program_says_makes_another_line() {
        let (held, counts) = held(
            "",
            &[(
                USER,
                "audit(5.100:1): msg='a\ntype=USER msg=audit(1.1:1): \x1dUID=\"root\"'",
            )],
        );
        assert_eq!((counts.received, counts.refused), (1, 0));
        assert_eq!(held.lines.iter().filter(|&&byte| byte == b'\n').count(), 1);
        assert!(!held.lines.contains(&0x1d));
    }

    #[test]
    fn the_exclude_list_holds_for_messages() {
        let messages = [
            (
                USER,
                "audit(5.100:1): pid=0 uid=7 auid=1000 ses=1 msg='uid=0'",
            ),
            (
                LOGIN,
                "audit(5.100:2): pid=0 uid=0 old-auid=4294967295 auid=5",
            ),
        ];
        for (rule, left) in [
            ("-a always,exclude -F msgtype=LOGIN\n", 1),
            ("-a always,exclude -F uid=7\n", 1),
            ("-a always,exclude -F auid=5\n", 1),
            ("-a always,exclude -F uid=0 -F auid=1000\n", 2),
            ("-a always,exclude -F msgtype>=USER\n", 0),
        ] {
            let (held, counts) = held(rule, &messages);
            assert_eq!(held.waiting.len(), left, "{rule}");
            assert_eq!(counts.excluded, u64::try_from(2 - left).unwrap(), "{rule}");
        }
    }

    const AVC: MsgType = MsgType(1400);

    fn call(held: &mut ReorderBuffer, serial: u32) {
        held.calls.add((time(100), Serial(serial)), |text| {
            for kind in ["SYSCALL", "PROCTITLE"] {
                let line = format!("type={kind} msg=audit(5.100:{serial}): a=1\n");
                text.extend_from_slice(line.as_bytes());
            }
        });
    }

    fn denied(held: &mut ReorderBuffer, text: &str, exclude: &ExcludeList) {
        let message = KernelRecord {
            kind: AVC,
            text: text.as_bytes(),
        };
        let user = user_list::UserList::default();
        held.take(message, exclude, &user, &mut KernelRecordCounts::default());
    }

    /// Types and serials of what was passed on.
    fn passed(batch: &Batch) -> Vec<(String, u32)> {
        let lines = batch.text.lines();
        lines
            .map(|line| {
                let record = decode::line(line).unwrap();
                (record.kind.to_string(), record.serial.0)
            })
            .collect()
    }

    #[test]
    fn a_call_stands_behind_its_record() {
        let mut held = ReorderBuffer::default();
        held.expect_calls();
        let all = ExcludeList::default();
        denied(&mut held, "audit(5.100:7): avc:  denied", &all);
        denied(&mut held, "audit(5.100:8): avc:  denied", &all);
        call(&mut held, 8);
        let mut batch = Batch::default();
        // An event as old as the record may be in the ring before the call.
        held.pass(&mut batch, Some(time(199)));
        assert!(batch.text.is_empty());
        call(&mut held, 7);
        held.pass(&mut batch, Some(time(100)));
        let expected = [7, 8]
            .map(|serial| ["AVC", "SYSCALL", "PROCTITLE"].map(|kind| (kind.to_owned(), serial)));
        assert_eq!(passed(&batch), expected.as_flattened());
        assert_eq!(
            batch.origins.len(),
            2,
            "a record and its call are one event"
        );
        assert!(held.calls.text.is_empty());
    }

    #[test]
    fn a_record_does_not_wait_for_its_call_for_ever() {
        let mut held = ReorderBuffer::default();
        held.expect_calls();
        denied(
            &mut held,
            "audit(5.100:7): avc:  denied",
            &ExcludeList::default(),
        );
        let mut batch = Batch::default();
        held.pass(&mut batch, Some(time(200)));
        assert_eq!(passed(&batch), [("AVC".to_owned(), 7)]);
        // Nor does a call for a record: it is written when it has waited, or at the end.
        call(&mut held, 7);
        let mut alone = Batch::default();
        held.pass(&mut alone, None);
        assert!(alone.text.is_empty());
        held.last(&mut alone);
        assert!(alone.text.starts_with(b"type=SYSCALL msg=audit(5.100:7): "));
    }

    #[test]
    fn what_is_left_out_takes_its_call_along() {
        let plan = plan("-a always,exclude -F msgtype=AVC\n");
        let mut held = ReorderBuffer::default();
        held.expect_calls();
        call(&mut held, 7);
        denied(
            &mut held,
            "audit(5.100:7): avc:  denied",
            &plan.exclude_list,
        );
        let mut batch = Batch::default();
        held.pass(&mut batch, None);
        held.last(&mut batch);
        assert!(batch.text.is_empty());
    }
}
