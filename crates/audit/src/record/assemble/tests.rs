//! Tests of the assembler.

use super::*;

fn take(assembler: &mut EventAssembler, line: &str) -> Vec<EventRecords> {
    assembler.take(line.as_bytes(), 0).unwrap();
    std::iter::from_fn(|| assembler.next_ended()).collect()
}

fn assemble(lines: &[&str]) -> Vec<Vec<String>> {
    let mut assembler = EventAssembler::default();
    let mut events = Vec::new();
    for line in lines {
        for event in take(&mut assembler, line) {
            events.push(names(&event));
            assembler.recycle(event);
        }
    }
    assembler.end_all();
    events.extend(std::iter::from_fn(|| assembler.next_ended()).map(|event| names(&event)));
    events
}

fn names(event: &EventRecords) -> Vec<String> {
    event
        .records()
        .map(|record| format!("{} {}", record.kind, record.serial.0))
        .collect()
}

#[test]
fn interleaved_events_are_separated() {
    let events = assemble(&[
        "type=SYSCALL msg=audit(1.000:1): a=1",
        "type=SYSCALL msg=audit(1.000:2): a=1\n",
        "type=CWD msg=audit(1.000:1): cwd=\"/\"",
        "type=USER_AUTH msg=audit(1.000:3): pid=1",
        "type=PROCTITLE msg=audit(1.000:2): proctitle=\"x\"",
        "type=EOE msg=audit(1.000:1): ",
    ]);
    assert_eq!(
        events,
        [
            vec!["USER_AUTH 3"],
            vec!["SYSCALL 2", "PROCTITLE 2"],
            vec!["SYSCALL 1", "CWD 1", "EOE 1"],
        ]
    );
}

#[test]
fn change_of_rules_by_tollgate_is_an_event_by_itself() {
    let mut assembler = EventAssembler::default();
    let change = "type=CONFIG_CHANGE msg=audit(1.000:2147483650): op=add_rule res=1";
    assert_eq!(take(&mut assembler, change).len(), 1);
    let ended = assemble(&[
        "type=CONFIG_CHANGE msg=audit(1.000:7): op=add_rule res=1",
        "type=SYSCALL msg=audit(1.000:7): a=1",
    ]);
    assert_eq!(ended, [["CONFIG_CHANGE 7", "SYSCALL 7"]]);
}

#[test]
fn event_of_tollgate_ends_when_the_next_one_begins() {
    let line = |kind: &str, serial: u32| {
        format!("type={kind} msg=audit(1.000:{}): a=1", 0x8000_0000 + serial)
    };
    let lines = [
        line("SYSCALL", 1),
        "type=SYSCALL msg=audit(1.000:1): a=1".to_owned(),
        line("CWD", 1),
        line("SYSCALL", 2),
        "type=SYSCALL msg=audit(1.000:2): a=1".to_owned(),
        line("CONFIG_CHANGE", 3),
        line("SYSCALL", 4),
        // Of another daemon, or behind events that are missing.
        format!("node=a {}", line("USER", 5)),
        line("USER", 6),
    ];
    let names = assemble(&lines.each_ref().map(String::as_str));
    let [one, two, three, four, five, six] =
        [1_u32, 2, 3, 4, 5, 6].map(|serial| 0x8000_0000 + serial);
    assert_eq!(
        names,
        [
            vec![format!("SYSCALL {one}"), format!("CWD {one}")],
            vec![format!("SYSCALL {two}")],
            vec![format!("CONFIG_CHANGE {three}")],
            vec![format!("USER {five}")],
            vec![format!("USER {six}")],
            vec!["SYSCALL 1".to_owned()],
            vec!["SYSCALL 2".to_owned()],
            vec![format!("SYSCALL {four}")],
        ]
    );
    // The next one is whole.
    let mut assembler = EventAssembler::default();
    assembler.take(lines[0].as_bytes(), 0).unwrap();
    let next = format!("{}\n", line("CONFIG_CHANGE", 2));
    let mut finder = whole::WholeEventFinder::default();
    assembler.take_whole(&finder.at_start(next.as_bytes()).unwrap(), 9);
    let serials = std::iter::from_fn(|| assembler.next_ended()).map(|event| event.serial().0);
    assert_eq!(serials.collect::<Vec<_>>(), [one, two]);
}

#[test]
fn open_events_end_by_timeout_limit_and_end_of_log() {
    let old = "type=SYSCALL msg=audit(1.000:1): a=1";
    let new = "type=CWD msg=audit(3.000:9): cwd=\"/\"";
    assert_eq!(assemble(&[old, new]), [["SYSCALL 1"], ["CWD 9"]]);

    let many: Vec<String> = (0..=MAX_OPEN_EVENTS)
        .map(|serial| format!("type=CWD msg=audit(1.000:{serial}): cwd=\"/\""))
        .collect();
    let mut assembler = EventAssembler::default();
    let ended: usize = many
        .iter()
        .map(|line| take(&mut assembler, line).len())
        .sum();
    assert_eq!(ended, 1);
    assembler.end_all();
    let rest = std::iter::from_fn(|| assembler.next_ended()).count();
    assert_eq!(ended + rest, many.len());
}

#[test]
fn event_behind_a_newer_one_ends_by_timeout() {
    let lines = [
        "type=SYSCALL msg=audit(9.000:1): a=1",
        "type=SYSCALL msg=audit(7.000:2): a=1",
        "type=CWD msg=audit(9.000:3): cwd=\"/\"",
        "type=PROCTITLE msg=audit(9.000:1): proctitle=\"x\"",
    ];
    assert_eq!(
        assemble(&lines),
        [
            vec!["SYSCALL 2"],
            vec!["SYSCALL 1", "PROCTITLE 1"],
            vec!["CWD 3"]
        ]
    );
}

#[test]
fn first_open_is_the_position_of_the_oldest_open_event() {
    let mut assembler = EventAssembler::default();
    assert_eq!(assembler.first_open(), None);
    for (position, serial) in [(10, 1), (20, 2), (30, 1)] {
        let line = format!("type=SYSCALL msg=audit(1.000:{serial}): a=1");
        assembler.take(line.as_bytes(), position).unwrap();
    }
    assert_eq!(assembler.first_open(), Some(10));
    take(&mut assembler, "type=EOE msg=audit(1.000:1): ");
    assert_eq!(assembler.first_open(), Some(20));
}

#[test]
fn nodes_and_milliseconds_are_separate_events() {
    let events = assemble(&[
        "node=a type=CWD msg=audit(1.000:1): cwd=\"/\"",
        "node=b type=CWD msg=audit(1.000:1): cwd=\"/\"",
        "type=CWD msg=audit(1.000:1): cwd=\"/\"",
        "type=CWD msg=audit(1.001:1): cwd=\"/\"",
    ]);
    assert_eq!(events.len(), 4);
}

#[test]
fn malformed_lines_are_refused() {
    let mut assembler = EventAssembler::default();
    let error = assembler.take(b"garbage", 0).unwrap_err();
    assert_eq!(error.to_string(), "column 1: expected `type=`");
    assert!(assembler.open.is_empty());
}

#[test]
fn oversized_events_are_split() {
    let line = format!("type=CWD msg=audit(1.000:1): cwd=\"{}\"", "x".repeat(8000));
    let mut assembler = EventAssembler::default();
    let ended: usize = (0..1000).map(|_| take(&mut assembler, &line).len()).sum();
    assert_eq!(ended, 7);
}
