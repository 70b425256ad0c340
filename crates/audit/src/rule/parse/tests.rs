//! Accepted rules and their meaning, and findings about mistakes.

use bstr::BString;
use proptest::prelude::*;

use super::super::{
    Action, Field, FieldTest, Insertion, List, Op, Rule, Severity, SyscallMask, Value, perm,
};
use super::*;
use crate::ids::Arch;

mod arch;
mod mistakes;

/// A host with two users, one group, and two directories.
struct TestHost;

impl RuleHost for TestHost {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        match name {
            b"root" => Some(0),
            b"nobody" => Some(65534),
            _ => None,
        }
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        (name == b"shadow").then_some(42)
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        matches!(path, b"/" | b"/etc")
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}

#[track_caller]
fn command(line: &str) -> Command {
    let (command, findings) = parse_line(line.as_bytes(), &TestHost);
    assert_eq!(findings, [], "{line}");
    command.unwrap()
}

#[track_caller]
fn rule(line: &str) -> Rule {
    match command(line) {
        Command::Add { rule, .. } | Command::Delete(rule) => rule,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn numbers(line: &str) -> Vec<u32> {
    rule(line).syscalls.iter().collect()
}

/// The last condition of a rule that has no errors.
#[track_caller]
fn last_test(line: &str) -> FieldTest {
    let (command, findings) = parse_line(line.as_bytes(), &TestHost);
    let Some(Command::Add { rule, .. }) = command else {
        panic!("{line}: {findings:?}")
    };
    rule.fields.last().unwrap().clone()
}

#[track_caller]
fn codes(line: &[u8]) -> Vec<(Severity, &'static str, u32)> {
    let (_, findings) = parse_line(line, &TestHost);
    findings
        .iter()
        .map(|finding| (finding.severity, finding.code, finding.column))
        .collect()
}

fn test(field: Field, op: Op, value: u32) -> FieldTest {
    FieldTest {
        field,
        op,
        value: Value::Number(value),
    }
}

fn text(field: Field, value: &str) -> FieldTest {
    FieldTest {
        field,
        op: Op::Equal,
        value: Value::Text(value.into()),
    }
}

#[test]
fn typical_rule_parses() {
    let found = rule(
        "-a always,exit -F arch=b64 -S openat,open -F exit=-EACCES -F auid>=1000 -F auid!=unset \
         -k access",
    );
    let mut syscalls = SyscallMask::none();
    syscalls.insert(2);
    syscalls.insert(257);
    let expected = Rule {
        list: List::Exit,
        action: Action::Always,
        syscalls,
        fields: vec![
            test(Field::Arch, Op::Equal, Arch::X86_64.0),
            test(Field::Exit, Op::Equal, 13_u32.wrapping_neg()),
            test(Field::Auid, Op::GreaterOrEqual, 1000),
            test(Field::Auid, Op::NotEqual, u32::MAX),
        ],
        keys: vec!["access".into()],
    };
    assert_eq!(found, expected);
}

#[test]
fn list_and_action_in_either_order() {
    for line in ["-a always,exit", "-a exit,always", "-aEXIT,always"] {
        let found = rule(line);
        assert_eq!(
            (found.list, found.action),
            (List::Exit, Action::Always),
            "{line}"
        );
        assert!(found.syscalls.is_all());
    }
    assert_eq!(rule("-a task,never").syscalls, SyscallMask::none());
}

#[test]
fn option_decides_the_insertion() {
    let add = |line: &str| match command(line) {
        Command::Add { insertion, .. } => Some(insertion),
        _ => None,
    };
    assert_eq!(add("-a never,task"), Some(Insertion::Append));
    assert_eq!(add("-A never,task"), Some(Insertion::Prepend));
    assert_eq!(add("-d never,task"), None);
    assert_eq!(rule("-d never,task"), rule("-a never,task"));
    assert_eq!(rule("-W /x -p w"), rule("-w /x -p w"));
}

#[test]
fn syscall_names_use_the_arch_of_the_rule() {
    assert_eq!(numbers("-a always,exit -F arch=b64 -S openat"), [257]);
    assert_eq!(numbers("-a always,exit -F arch=b32 -S openat"), [295]);
    assert_eq!(
        numbers("-a always,exit -F arch=b64 -S 257 -S 0x2,OPENAT"),
        [2, 257]
    );
    assert_eq!(numbers("-a always,exit -F arch=b64 -S pread"), [17]);
    assert_eq!(numbers("-a always,exit -S 1500"), [1500]);
    assert!(
        rule("-a always,exit -F arch=b32 -S open,all")
            .syscalls
            .is_all()
    );
    assert_eq!(numbers("-a always,io_uring -S openat,mkdirat"), [18, 37]);
}

#[test]
fn arch_spellings_parse() {
    for (spelling, arch) in [
        ("b64", Arch::X86_64),
        ("B32", Arch::I386),
        ("x86_64", Arch::X86_64),
        ("i686", Arch::I386),
        ("c000003e", Arch::X86_64),
        ("0x40000003", Arch::I386),
        ("1073741827", Arch::I386),
    ] {
        let found = rule(&format!("-a always,exit -F arch={spelling}"));
        assert_eq!(
            found.fields,
            [test(Field::Arch, Op::Equal, arch.0)],
            "{spelling}"
        );
    }
}

#[test]
fn field_values_parse() {
    for (condition, expected) in [
        ("pid=12", test(Field::Pid, Op::Equal, 12)),
        ("UID>=0x10", test(Field::Uid, Op::GreaterOrEqual, 16)),
        ("uid=nobody", test(Field::Uid, Op::Equal, 65534)),
        ("uid=-2", test(Field::Uid, Op::Equal, u32::MAX - 1)),
        ("loginuid=-1", test(Field::Auid, Op::Equal, u32::MAX)),
        ("auid=4294967295", test(Field::Auid, Op::Equal, u32::MAX)),
        ("gid=shadow", test(Field::Gid, Op::Equal, 42)),
        ("exit!=0", test(Field::Exit, Op::NotEqual, 0)),
        (
            "exit=-13",
            test(Field::Exit, Op::Equal, 13_u32.wrapping_neg()),
        ),
        (
            "exit=-eacces",
            test(Field::Exit, Op::Equal, 13_u32.wrapping_neg()),
        ),
        ("success=0", test(Field::Success, Op::Equal, 0)),
        ("a2&0100", test(Field::A2, Op::BitMask, 64)),
        ("a2&=3", test(Field::A2, Op::BitTest, 3)),
        ("a0=-1", test(Field::A0, Op::Equal, u32::MAX)),
        ("inode=7", test(Field::Inode, Op::Equal, 7)),
        (
            "perm=WA",
            test(Field::Perm, Op::Equal, perm::WRITE | perm::ATTR),
        ),
        ("filetype=FILE", test(Field::FileType, Op::Equal, 0o100_000)),
        (
            "sessionid=unset",
            test(Field::SessionId, Op::Equal, u32::MAX),
        ),
        ("saddr_fam=10", test(Field::SaddrFam, Op::Equal, 10)),
        ("path=/etc/shadow", text(Field::Path, "/etc/shadow")),
        ("dir=/etc/", text(Field::Dir, "/etc/")),
        (r"exe=/a\ b", text(Field::Exe, "/a b")),
        ("subj_type=a:b", text(Field::SubjType, "a:b")),
        (
            "field_compare=11",
            FieldTest {
                field: Field::Uid,
                op: Op::Equal,
                value: Value::Field(Field::Euid),
            },
        ),
    ] {
        let line = format!("-a always,exit -F {condition}");
        assert_eq!(rule(&line).fields, [expected], "{condition}");
    }
    assert_eq!(
        rule("-a never,exclude -F msgtype>=crypto_key_user").fields,
        [test(Field::MsgType, Op::GreaterOrEqual, 2404)]
    );
    assert_eq!(
        rule("-a never,filesystem -F fstype=debugfs").fields,
        [test(Field::FsType, Op::Equal, 0x6462_6720)]
    );
}

#[test]
fn field_pairs_use_kernel_order() {
    let expected = FieldTest {
        field: Field::Auid,
        op: Op::NotEqual,
        value: Value::Field(Field::ObjUid),
    };
    for line in [
        "-a always,exit -C auid!=obj_uid",
        "-a always,exit -C obj_uid!=loginuid",
    ] {
        assert_eq!(rule(line).fields, std::slice::from_ref(&expected), "{line}");
    }
}

#[test]
fn watch_becomes_a_rule() {
    let found = rule("-w /etc/shadow -p wa -k id -k two");
    let expected = Rule {
        list: List::Exit,
        action: Action::Always,
        syscalls: SyscallMask::all(),
        fields: vec![
            text(Field::Path, "/etc/shadow"),
            test(Field::Perm, Op::Equal, 2 | 8),
        ],
        keys: vec!["id".into(), "two".into()],
    };
    assert_eq!(found, expected);
    let found = rule("-w /etc//");
    assert_eq!(
        found.fields,
        [text(Field::Dir, "/etc"), test(Field::Perm, Op::Equal, 15)]
    );
    assert_eq!(rule("-w /").fields[0], text(Field::Dir, "/"));
}

#[test]
fn perm_option_adds_or_replaces_perm() {
    let added = rule("-a always,exit -F path=/x -p w");
    assert_eq!(
        added.fields,
        rule("-a always,exit -F path=/x -F perm=w").fields
    );
    assert_eq!(
        added.fields,
        rule("-a always,exit -F path=/x -F perm=r -p w").fields
    );
}

#[test]
fn all_key_options_collect_keys() {
    let found = rule("-a always,exit -F key=a>=b -F arch=b64 -S open -k c -F KEY=d");
    let keys: Vec<BString> = ["a>=b", "c", "d"].map(BString::from).to_vec();
    assert_eq!(found.keys, keys);
    assert_eq!(found.fields.len(), 1);
}

#[test]
fn control_settings_parse() {
    for (line, expected) in [
        ("-D", Command::DeleteAll(None)),
        ("-D -k x", Command::DeleteAll(Some("x".into()))),
        ("-b 8192", Command::Backlog(8192)),
        ("-b0x10", Command::Backlog(16)),
        ("--backlog_wait_time 60000", Command::BacklogWait(60000)),
        ("-e 2", Command::Enabled(2)),
        ("-f 1", Command::Failure(1)),
        ("-r 0", Command::Rate(0)),
        ("-i", Command::IgnoreErrors),
        ("-c", Command::ContinueOnErrors),
        ("--loginuid-immutable", Command::LoginuidImmutable),
    ] {
        assert_eq!(command(line), expected, "{line}");
    }
}

#[test]
fn blank_lines_and_comments_give_no_command() {
    for line in ["", "   ", "# -D", "  #", "#\tx\0"] {
        assert_eq!(
            parse_line(line.as_bytes(), &TestHost),
            (None, vec![]),
            "{line}"
        );
    }
}

#[test]
fn file_is_parsed_to_its_end() {
    let file = b"# head\n-D\n-x\n\n-w /etc/shadow -p w\n-a always,exit -F foo=1\r\n-e 1";
    let (lines, findings) = parse_file(file, &TestHost);
    let numbers: Vec<_> = lines.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [2, 5, 7]);
    assert_eq!(lines[2].command, Command::Enabled(1));
    assert_eq!(&file[lines[1].span.clone()], b"-w /etc/shadow -p w");
    let places: Vec<_> = findings
        .iter()
        .map(|finding| (finding.line, finding.column, finding.code))
        .collect();
    assert_eq!(
        places,
        [
            (3, 1, "unknown-option"),
            (6, 19, "unknown-field"),
            (6, 24, "carriage-return")
        ]
    );
    assert_eq!(&file[findings[1].span.clone()], b"foo");
}

#[test]
fn carriage_return_is_stripped_with_a_warning() {
    let (command, findings) = parse_line(b"-w /x -k key\r", &TestHost);
    assert_eq!(command, parse_line(b"-w /x -k key", &TestHost).0);
    assert_eq!(findings[0].severity, Severity::Warning);
}

#[test]
fn numbers_auditctl_truncates_get_a_warning() {
    for (line, value) in [
        ("-a always,exit -F pid=12abc", 12),
        ("-a always,exit -F sessionid=abc", 0),
        ("-a always,exit -F a0=0x100000001", 1),
    ] {
        assert_eq!(last_test(line).value, Value::Number(value), "{line}");
        assert_eq!(codes(line.as_bytes()).len(), 1);
        assert_eq!(codes(line.as_bytes())[0].0, Severity::Warning);
    }
}

fn rule_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces = proptest::sample::select(vec![
        "-a",
        "-A",
        "-d",
        "-w",
        "-W",
        "-S",
        "-F",
        "-C",
        "-k",
        "-p",
        "-D",
        "-e",
        "-b",
        " ",
        " ",
        " ",
        "always,exit",
        "exit,never",
        "arch=b64",
        "open,",
        "all",
        "auid",
        "!=",
        ">=",
        "&",
        "=",
        "unset",
        "-1",
        "/etc",
        "perm=",
        "wa",
        "key=",
        "\\",
        "\\ ",
        "\n",
        "\r\n",
        "\t",
        "#",
        "--",
        "9999999999999999999999",
        "0x",
        "exit",
        "uid",
        "path",
        "\0",
    ]);
    proptest::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

fn assert_total(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (lines, findings) = parse_file(bytes, &TestHost);
    for span in lines
        .iter()
        .map(|line| &line.span)
        .chain(findings.iter().map(|one| &one.span))
    {
        prop_assert!(
            span.start <= span.end && span.end <= bytes.len(),
            "{:?}",
            span
        );
    }
    for finding in &findings {
        let start = finding.span.start;
        let line_start = bytes[..start]
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let newlines = bytes[..start].iter().filter(|&&byte| byte == b'\n').count();
        prop_assert_eq!(
            usize::try_from(finding.column).unwrap(),
            start - line_start + 1
        );
        prop_assert_eq!(usize::try_from(finding.line).unwrap(), newlines + 1);
        let text = format!("{}{}", finding.message, finding.advice);
        prop_assert!(
            text.bytes()
                .all(|byte| byte == b' ' || byte.is_ascii_graphic()),
            "{}",
            text
        );
    }
    for line in &lines {
        let failed = findings
            .iter()
            .any(|finding| finding.line == line.number && finding.severity == Severity::Error);
        prop_assert!(!failed);
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
        assert_total(&bytes)?;
    }

    #[test]
    fn rule_like_text_is_parsed_or_refused(bytes in rule_like()) {
        assert_total(&bytes)?;
    }
}
