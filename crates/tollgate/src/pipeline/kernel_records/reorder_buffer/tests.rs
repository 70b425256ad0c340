//! Tests of the order of records, and of their syscalls.

use audit::ids::{Arch, MsgType};
use audit::plan::Plan;
use audit::plan::rule_list::RuleList;
use audit::rule::parse_file;

use super::super::program_record::BPF;
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

fn reorder_buffer(
    rules: &str,
    messages: &[(MsgType, &str)],
) -> (ReorderBuffer, KernelRecordCounts) {
    let (mut reorder_buffer, mut counts) =
        (ReorderBuffer::default(), KernelRecordCounts::default());
    let Plan {
        exclude_list: exclude,
        user_list: user,
        ..
    } = plan(rules);
    for &(kind, text) in messages {
        let text = text.as_bytes();
        reorder_buffer.take(KernelRecord { kind, text }, &exclude, &user, &mut counts);
    }
    (reorder_buffer, counts)
}

#[test]
fn user_list_filters_user_messages() {
    let text = "audit(5.000:1): pid=7 uid=3 auid=3 ses=1 msg='op=x'";
    let rules = "-a never,user -F uid=3\n";
    let (sent, counts) = reorder_buffer(
        rules,
        &[
            (MsgType(1112), text),
            (MsgType(2100), text),
            (MsgType(1005), text),
        ],
    );
    assert_eq!((counts.received, counts.excluded), (3, 3));
    assert!(sent.lines.is_empty());
    let (_, of_kernel) = reorder_buffer(rules, &[(MsgType(1701), text)]);
    assert_eq!((of_kernel.received, of_kernel.excluded), (1, 0));
    let other = "audit(5.000:1): pid=7 uid=4 auid=3 ses=1 msg='op=x'";
    let (_, others) = reorder_buffer(rules, &[(MsgType(1112), other)]);
    assert_eq!((others.received, others.excluded), (1, 0));
}

#[test]
fn records_wait_for_older_events() {
    let (mut reorder_buffer, counts) = reorder_buffer(
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
    reorder_buffer.pass(&mut batch, Some(time(99)));
    assert!(batch.text.is_empty());
    reorder_buffer.pass(&mut batch, Some(time(200)));
    assert_eq!(
        batch.text.as_bstr(),
        "type=USER msg=audit(5.100:1): pid=1 uid=0 auid=0 ses=1 msg='a'\n\
         type=LOGIN msg=audit(5.200:2): pid=1 uid=0\n\
         type=LANDLOCK_ACCESS msg=audit(5.200:2): domain=1\n"
    );
    assert_eq!(batch.origins.len(), 2, "records of one event count once");
    reorder_buffer.pass(&mut batch, None);
    assert!(
        batch
            .text
            .ends_with(b"type=UNKNOWN[4000] msg=audit(5.300:3): x=1\n")
    );
    assert!(reorder_buffer.lines.is_empty());
}

#[test]
fn malformed_records_are_counted() {
    let (reorder_buffer, counts) = reorder_buffer(
        "",
        &[
            (USER, ""),
            (USER, "audit(5:1): x"),
            (USER, "audit(5.100:99999999999): x"),
            (USER, "audit(5.100:1) x"),
        ],
    );
    assert_eq!((counts.received, counts.refused), (0, 4));
    assert!(reorder_buffer.lines.is_empty() && reorder_buffer.pending.is_empty());
}

#[test]
fn newlines_in_messages_are_escaped() {
    let (reorder_buffer, counts) = reorder_buffer(
        "",
        &[(
            USER,
            "audit(5.100:1): msg='a\ntype=USER msg=audit(1.1:1): \x1dUID=\"root\"'",
        )],
    );
    assert_eq!((counts.received, counts.refused), (1, 0));
    assert_eq!(
        reorder_buffer
            .lines
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count(),
        1
    );
    assert!(!reorder_buffer.lines.contains(&0x1d));
}

#[test]
fn exclude_list_filters_kernel_records() {
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
        let (reorder_buffer, counts) = reorder_buffer(rule, &messages);
        assert_eq!(reorder_buffer.pending.len(), left, "{rule}");
        assert_eq!(counts.excluded, u64::try_from(2 - left).unwrap(), "{rule}");
    }
}

const AVC: MsgType = MsgType(1400);

fn add_syscall(reorder_buffer: &mut ReorderBuffer, serial: u32) {
    reorder_buffer
        .syscalls
        .add((time(100), Serial(serial)), |text| {
            for kind in ["SYSCALL", "PROCTITLE"] {
                let line = format!("type={kind} msg=audit(5.100:{serial}): a=1\n");
                text.extend_from_slice(line.as_bytes());
            }
        });
}

fn denied(reorder_buffer: &mut ReorderBuffer, text: &str, exclude: &ExcludeList) {
    let message = KernelRecord {
        kind: AVC,
        text: text.as_bytes(),
    };
    let user = user_list::UserList::default();
    reorder_buffer.take(message, exclude, &user, &mut KernelRecordCounts::default());
}

/// Types and serials of the lines passed on.
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
fn syscall_follows_its_record() {
    let mut reorder_buffer = ReorderBuffer::default();
    reorder_buffer.expect_syscalls();
    let pass_all = ExcludeList::default();
    denied(
        &mut reorder_buffer,
        "audit(5.100:7): avc:  denied",
        &pass_all,
    );
    denied(
        &mut reorder_buffer,
        "audit(5.100:8): avc:  denied",
        &pass_all,
    );
    add_syscall(&mut reorder_buffer, 8);
    let mut batch = Batch::default();
    // An event as old as the record may precede the syscall in the ring.
    reorder_buffer.pass(&mut batch, Some(time(199)));
    assert!(batch.text.is_empty());
    add_syscall(&mut reorder_buffer, 7);
    reorder_buffer.pass(&mut batch, Some(time(100)));
    let expected =
        [7, 8].map(|serial| ["AVC", "SYSCALL", "PROCTITLE"].map(|kind| (kind.to_owned(), serial)));
    assert_eq!(passed(&batch), expected.as_flattened());
    assert_eq!(
        batch.origins.len(),
        2,
        "a record and its call are one event"
    );
    assert!(reorder_buffer.syscalls.text.is_empty());
}

#[test]
fn record_precedes_the_event_of_its_syscall() {
    let mut reorder_buffer = ReorderBuffer::default();
    reorder_buffer.expect_syscalls();
    let mut batch = Batch::default();
    let stamp = |serial| (time(100), Serial(serial));
    assert!(
        !reorder_buffer.pass_through(stamp(8), &mut batch),
        "it has not arrived"
    );
    for serial in [7, 8, 9] {
        let text = format!("audit(5.100:{serial}): prog-id=3 op=LOAD");
        let bpf = KernelRecord {
            kind: BPF,
            text: text.as_bytes(),
        };
        let (exclude, user) = (ExcludeList::default(), user_list::UserList::default());
        reorder_buffer.take(bpf, &exclude, &user, &mut KernelRecordCounts::default());
    }
    assert!(reorder_buffer.pass_through(stamp(8), &mut batch));
    let before = [7, 8].map(|serial| ("BPF".to_owned(), serial));
    assert_eq!(passed(&batch), before);
    assert!(
        reorder_buffer.pass_through(stamp(7), &mut batch),
        "it was passed on before"
    );
    assert_eq!(passed(&batch), before);
}

#[test]
fn record_of_a_loaded_program_gives_its_stamp_once() {
    let bpf = |text| (BPF, text);
    let (mut sent, _) = reorder_buffer(
        "",
        &[
            bpf("audit(5.100:7): prog-id=3 op=LOAD"),
            bpf("audit(5.100:8): prog-id=4 op=LOAD"),
            bpf("audit(5.100:9): prog-id=5 op=UNLOAD"),
        ],
    );
    let mut batch = Batch::default();
    let late = Timestamp { sec: 6, milli: 100 };
    assert_eq!(sent.pass_load(4, late, &mut batch), None);
    for none in [2, 5] {
        assert_eq!(sent.pass_load(none, time(104), &mut batch), None);
    }
    assert!(batch.text.is_empty());
    let stamp = (time(100), Serial(8));
    assert_eq!(sent.pass_load(4, time(104), &mut batch), Some(stamp));
    assert_eq!(
        passed(&batch),
        [7, 8].map(|serial| ("BPF".to_owned(), serial))
    );
    assert_eq!(
        sent.pass_load(4, time(104), &mut batch),
        None,
        "it is that of the first event"
    );
    sent.pass(&mut batch, None);
    assert_eq!(
        sent.pass_load(3, time(99), &mut batch),
        Some((time(100), Serial(7))),
        "it was passed on before"
    );
    let (mut excluded, _) = reorder_buffer(
        "-a always,exclude -F msgtype=BPF\n",
        &[bpf("audit(5.100:7): prog-id=3 op=LOAD")],
    );
    let stamp = (time(100), Serial(7));
    assert_eq!(
        excluded.pass_load(3, time(100), &mut Batch::default()),
        Some(stamp)
    );
}

#[test]
fn record_waits_a_limited_time_for_its_syscall() {
    let mut reorder_buffer = ReorderBuffer::default();
    reorder_buffer.expect_syscalls();
    denied(
        &mut reorder_buffer,
        "audit(5.100:7): avc:  denied",
        &ExcludeList::default(),
    );
    let mut batch = Batch::default();
    reorder_buffer.pass(&mut batch, Some(time(200)));
    assert_eq!(passed(&batch), [("AVC".to_owned(), 7)]);
    // A syscall does not wait for a record forever: it is written after a timeout, or at the end.
    add_syscall(&mut reorder_buffer, 7);
    let mut alone = Batch::default();
    reorder_buffer.pass(&mut alone, None);
    assert!(alone.text.is_empty());
    reorder_buffer.pass_last(&mut alone);
    assert!(alone.text.starts_with(b"type=SYSCALL msg=audit(5.100:7): "));
}

#[test]
fn excluded_record_drops_its_syscall() {
    let plan = plan("-a always,exclude -F msgtype=AVC\n");
    let mut reorder_buffer = ReorderBuffer::default();
    reorder_buffer.expect_syscalls();
    add_syscall(&mut reorder_buffer, 7);
    denied(
        &mut reorder_buffer,
        "audit(5.100:7): avc:  denied",
        &plan.exclude_list,
    );
    let mut batch = Batch::default();
    reorder_buffer.pass(&mut batch, None);
    reorder_buffer.pass_last(&mut batch);
    assert!(batch.text.is_empty());
}
