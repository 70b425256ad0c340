//! Compiled rules of single syscalls.

use super::*;
use crate::rule::{FieldTest, List, Rule, Value};

const B64: Arch = Arch::X86_64;
const B32: Arch = Arch::I386;

fn number(field: Field, op: Op, value: u32) -> FieldTest {
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

#[track_caller]
fn syscall_id(arch: Arch, name: &str) -> SyscallId {
    SyscallId {
        arch,
        syscall: table::syscall_number(arch, name.as_bytes()).unwrap(),
    }
}

/// An exit rule for 64-bit syscalls by name; for all if none is named.
#[track_caller]
fn rule(action: Action, names: &[&str], fields: &[FieldTest]) -> Rule {
    let mut syscalls = if names.is_empty() {
        SyscallMask::all()
    } else {
        SyscallMask::none()
    };
    names
        .iter()
        .for_each(|name| syscalls.insert(syscall_id(B64, name).syscall.0));
    Rule {
        list: List::Exit,
        action,
        syscalls,
        fields: fields.into(),
        keys: Vec::new(),
    }
}

fn compile(rules: impl IntoIterator<Item = Rule>, arches: &[Arch]) -> Plan {
    let listed = |(line, rule)| RuleEntry {
        rule,
        source: 0,
        line,
    };
    Plan::compile((1..).zip(rules).map(listed), arches)
}

/// Remaining tests of a rule for a 64-bit syscall; `None` if it cannot match.
#[track_caller]
fn left(fields: &[FieldTest], name: &str) -> Option<Vec<Test>> {
    let plan = compile([rule(Action::Always, &[], fields)], &[B64]);
    assert_eq!(plan.unsupported, []);
    plan.syscalls
        .get(&syscall_id(B64, name))
        .map(|planned| planned.slots[0].tests.clone())
}

fn test(operand: Operand, op: Op, value: u32) -> Test {
    Test { operand, op, value }
}

#[test]
fn watch_covers_syscalls_of_its_perms_with_objects() {
    let watch = [
        text(Field::Path, "/etc/passwd"),
        number(Field::Perm, Op::Equal, 2 | 8),
    ];
    let is_path = test(Operand::Path, Op::Equal, 0);
    for name in ["unlink", "renameat2", "chmod", "fchmod", "link", "setxattr"] {
        assert_eq!(left(&watch, name), Some(vec![is_path]), "{name}");
    }
    let writes = test(Operand::OpenPerm, Op::BitMask, 2);
    for name in ["open", "openat", "openat2"] {
        assert_eq!(left(&watch, name), Some(vec![is_path, writes]), "{name}");
    }
    for name in [
        "read",
        "write",
        "stat",
        "readlink",
        "execve",
        "ftruncate",
        "getpid",
    ] {
        assert_eq!(left(&watch, name), None, "{name}");
    }
}

#[test]
fn perm_of_an_open_is_its_access_mode() {
    let mode = |op, bits| left(&[number(Field::Perm, op, bits)], "openat");
    let ask = |op, value| Some(vec![test(Operand::OpenPerm, op, value)]);
    assert_eq!(mode(Op::Equal, 4), ask(Op::BitMask, 4));
    assert_eq!(
        mode(Op::Equal, 4 | 2),
        Some(vec![]),
        "any open reads or writes"
    );
    assert_eq!(mode(Op::Equal, 1 | 8), None);
    assert_eq!(
        mode(Op::NotEqual, 4),
        ask(Op::Equal, 2),
        "opened for writing only"
    );
    assert_eq!(mode(Op::NotEqual, 1), Some(vec![]));
    assert_eq!(mode(Op::NotEqual, 6), None);
}

#[test]
fn socketcall_is_a_write_when_it_binds() {
    let plan = compile(
        [rule(
            Action::Always,
            &[],
            &[number(Field::Perm, Op::Equal, 2)],
        )],
        &[B32],
    );
    let slots = &plan.syscalls[&syscall_id(B32, "socketcall")].slots;
    assert_eq!(
        slots[0].tests,
        [test(Operand::Field(Field::A0), Op::Equal, 2)]
    );
}

#[test]
fn rule_without_arch_covers_every_abi() {
    let b64 = number(Field::Arch, Op::Equal, B64.0);
    let plan = compile([rule(Action::Always, &["openat"], &[b64])], &[B64, B32]);
    assert_eq!(
        plan.syscalls.keys().copied().collect::<Vec<_>>(),
        [syscall_id(B64, "openat")]
    );
    assert_eq!(plan.syscalls[&syscall_id(B64, "openat")].slots[0].tests, []);

    let plan = compile([rule(Action::Always, &["openat"], &[])], &[B64, B32]);
    let same_number = SyscallId {
        arch: B32,
        syscall: syscall_id(B64, "openat").syscall,
    };
    assert!(
        plan.syscalls.contains_key(&same_number),
        "257 is another call in i386"
    );
    assert_eq!(plan.syscalls.len(), 2);
}

#[test]
fn unnamed_syscall_is_planned_if_a_rule_selects_it() {
    let mut nameless = rule(Action::Always, &["read"], &[]);
    nameless.syscalls.insert(1500);
    let plan = compile([nameless], &[B64]);
    assert!(plan.syscalls.contains_key(&SyscallId {
        arch: B64,
        syscall: Syscall(1500)
    }));
    let plan = compile([rule(Action::Always, &[], &[])], &[B64]);
    assert!(
        plan.syscalls
            .keys()
            .all(|syscall_id| table::syscall_name(B64, syscall_id.syscall).is_some())
    );
}

#[test]
fn noreturn_syscall_keeps_no_exit_test() {
    for field in [Field::Success, Field::Exit] {
        let fields = [number(field, Op::Equal, 1)];
        assert_eq!(left(&fields, "exit_group"), None);
        assert!(left(&fields, "getpid").is_some());
    }
}

#[test]
fn saddr_fam_needs_a_syscall_with_address() {
    let family = number(Field::SaddrFam, Op::NotEqual, 2);
    let asked = test(Operand::Field(Field::SaddrFam), Op::NotEqual, 2);
    for (name, expected) in [
        ("connect", Some(vec![asked])),
        ("recvmmsg", Some(vec![asked])),
        ("socket", None),
        ("openat", None),
    ] {
        let fields = std::slice::from_ref(&family);
        assert_eq!(left(fields, name), expected, "{name}");
    }
    let any = number(Field::SaddrFam, Op::GreaterOrEqual, 0);
    assert_eq!(left(&[any], "bind").map(|tests| tests.len()), Some(1));
}

#[test]
fn success_becomes_one_of_two_values() {
    let on_getpid = |op, value| left(&[number(Field::Success, op, value)], "getpid");
    let is = |value| Some(vec![test(Operand::Field(Field::Success), Op::Equal, value)]);
    assert_eq!(on_getpid(Op::Equal, 7), is(1));
    assert_eq!(on_getpid(Op::NotEqual, 1), is(0));
    assert_eq!(
        on_getpid(Op::Less, 0),
        is(1),
        "the kernel counts failure as 2"
    );
    assert_eq!(on_getpid(Op::Greater, 0), None);
    let returned = test(Operand::Field(Field::Exit), Op::GreaterOrEqual, 0);
    assert_eq!(on_getpid(Op::LessOrEqual, 0), Some(vec![returned]));
    let both = [
        number(Field::Success, Op::Equal, 1),
        number(Field::Success, Op::Equal, 0),
    ];
    assert_eq!(left(&both, "getpid"), None);
}

#[test]
fn auid_unset_becomes_an_auid_set_test() {
    let on_getpid = |op| left(&[number(Field::Auid, op, u32::MAX)], "getpid");
    let set = |value| Some(vec![test(Operand::AuidSet, Op::Equal, value)]);
    assert_eq!(on_getpid(Op::Equal), set(0));
    assert_eq!(on_getpid(Op::NotEqual), set(1));
    assert_eq!(on_getpid(Op::Greater), set(1));
    assert_eq!(on_getpid(Op::LessOrEqual), set(0));
    assert_eq!(on_getpid(Op::GreaterOrEqual), Some(vec![]));
    assert_eq!(on_getpid(Op::Less), None);
    let range = [number(Field::Auid, Op::GreaterOrEqual, 1000)];
    let plain = test(Operand::Field(Field::Auid), Op::GreaterOrEqual, 1000);
    assert_eq!(left(&range, "getpid"), Some(vec![plain]));
}

#[test]
fn only_single_numbers_contradict() {
    let twice = |field| {
        left(
            &[number(field, Op::Equal, 1), number(field, Op::Equal, 2)],
            "chmod",
        )
    };
    assert_eq!(twice(Field::Uid), None);
    for field in [
        Field::Gid,
        Field::Egid,
        Field::ObjUid,
        Field::Inode,
        Field::DevMinor,
    ] {
        assert_eq!(
            twice(field).map(|tests| tests.len()),
            Some(2),
            "{field:?} may be many"
        );
    }
    let same = [
        number(Field::Uid, Op::Equal, 1),
        number(Field::Uid, Op::Equal, 1),
    ];
    assert_eq!(left(&same, "chmod").map(|tests| tests.len()), Some(1));
}

#[test]
fn object_owner_is_the_second_field() {
    let owner = |field, other| {
        let value = Value::Field(other);
        let test = FieldTest {
            field,
            op: Op::NotEqual,
            value,
        };
        left(std::slice::from_ref(&test), "chmod")
    };
    let operand = Operand::Fields(Field::Uid, Field::ObjUid);
    let expected = Some(vec![test(operand, Op::NotEqual, 0)]);
    assert_eq!(owner(Field::Uid, Field::ObjUid), expected);
    assert_eq!(owner(Field::ObjUid, Field::Uid), expected);
    let value = Value::Field(Field::ObjUid);
    let on_getpid = FieldTest {
        field: Field::Uid,
        op: Op::Equal,
        value,
    };
    assert_eq!(left(&[on_getpid], "getpid"), None, "it names no object");
}

#[test]
fn filetype_needs_no_test_without_objects() {
    let directory = 0o040_000;
    assert_eq!(
        left(
            &[number(Field::FileType, Op::NotEqual, directory)],
            "getpid"
        ),
        Some(vec![])
    );
    assert_eq!(
        left(&[number(Field::FileType, Op::Equal, directory)], "getpid"),
        None
    );
    let asked = test(Operand::Field(Field::FileType), Op::NotEqual, directory);
    assert_eq!(
        left(&[number(Field::FileType, Op::NotEqual, directory)], "chmod"),
        Some(vec![asked])
    );
}

#[test]
fn rules_without_effect_are_dropped() {
    let root = || number(Field::Uid, Op::Equal, 0);
    let plan = compile(
        [
            rule(Action::Never, &["getpid", "read"], &[root()]),
            rule(Action::Always, &["getpid"], &[]),
            rule(Action::Always, &["getpid"], &[root()]),
            rule(Action::Never, &["write"], &[]),
            rule(Action::Always, &["write"], &[]),
            rule(Action::Always, &["stat"], &[root()]),
            rule(Action::Never, &["stat"], &[]),
        ],
        &[B64],
    );
    let slots = |name| {
        plan.syscalls.get(&syscall_id(B64, name)).map(|planned| {
            planned
                .slots
                .iter()
                .map(|slot| slot.rule.0)
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(
        slots("getpid"),
        Some(vec![0, 1]),
        "what is after an unconditional match"
    );
    assert_eq!(slots("read"), None, "only a rule that suppresses");
    assert_eq!(slots("write"), None, "all is suppressed first");
    assert_eq!(slots("stat"), Some(vec![5]), "what suppresses at the end");
}

#[test]
fn facts_are_those_that_tests_need() {
    let facts = |fields: &[FieldTest]| {
        compile([rule(Action::Always, &["chmod"], fields)], &[B64]).syscalls
            [&syscall_id(B64, "chmod")]
            .facts
    };
    assert_eq!(facts(&[number(Field::Pid, Op::Equal, 1)]), Facts::empty());
    assert_eq!(
        facts(&[number(Field::Gid, Op::Equal, 1)]),
        Facts::CREDS | Facts::GROUPS
    );
    assert_eq!(facts(&[number(Field::Gid, Op::Less, 1)]), Facts::CREDS);
    assert_eq!(
        facts(&[number(Field::Auid, Op::Equal, u32::MAX)]),
        Facts::TASK
    );
    assert_eq!(
        facts(&[text(Field::Dir, "/etc/"), text(Field::Exe, "/bin/a")]),
        Facts::OBJECTS | Facts::EXE
    );
    let owner = FieldTest {
        field: Field::ObjUid,
        op: Op::NotEqual,
        value: Value::Field(Field::Auid),
    };
    assert_eq!(facts(&[owner]), Facts::OBJECTS | Facts::TASK);
}

#[test]
fn watched_paths_are_unique_without_trailing_slash() {
    let plan = compile(
        ["/etc/", "/etc", "/"]
            .map(|path| rule(Action::Always, &["chmod"], &[text(Field::Dir, path)])),
        &[B64],
    );
    assert_eq!(plan.watches, ["/etc", "/"]);
}

#[test]
fn unsupported_rule_tells_whether_it_loses_records() {
    let elsewhere = number(Field::FsType, Op::Equal, 1);
    let rules = [
        (
            rule(Action::Always, &[], std::slice::from_ref(&elsewhere)),
            true,
        ),
        (rule(Action::Never, &[], &[elsewhere]), false),
    ];
    let loses_records: Vec<bool> = rules
        .iter()
        .map(|&(_, loses_records)| loses_records)
        .collect();
    let plan = compile(rules.map(|(rule, _)| rule), &[B64]);
    assert!(plan.rules.is_empty() && plan.syscalls.is_empty());
    assert_eq!(
        plan.unsupported
            .iter()
            .map(|rule| rule.loses_records)
            .collect::<Vec<_>>(),
        loses_records
    );
    assert!(
        plan.unsupported
            .iter()
            .zip(1..)
            .all(|(rule, line)| rule.line == line)
    );
}

#[test]
fn task_list_precedes_the_exit_list() {
    let on_tasks = |action, fields: &[FieldTest]| Rule {
        list: List::Task,
        syscalls: SyscallMask::none(),
        ..rule(action, &[], fields)
    };
    let uid = number(Field::Uid, Op::Equal, 5);
    let call_only = number(Field::A0, Op::Equal, 5);
    let plan = compile(
        [
            rule(Action::Always, &["openat"], &[]),
            on_tasks(Action::Never, std::slice::from_ref(&uid)),
            on_tasks(Action::Never, &[call_only]),
        ],
        &[B64],
    );
    assert_eq!(plan.unsupported, []);
    let is_never = test(Operand::TaskState, Op::Equal, TaskState::NEVER.0);
    let [first, second] = &plan.syscalls[&syscall_id(B64, "openat")].slots[..] else {
        panic!("two slots")
    };
    assert_eq!((first.rule, first.action), (RuleId(1), Action::Never));
    assert_eq!(first.tests, [is_never]);
    assert_eq!((second.rule, second.tests.len()), (RuleId(0), 0));
    assert_eq!(plan.syscalls.len(), 1, "suppressing needs no call");
    let [fork] = &plan.task_slots[..] else {
        panic!("a task satisfies one of the rules")
    };
    assert_eq!(fork.tests, [test(Operand::Field(Field::Uid), Op::Equal, 5)]);

    let mut plan = compile([on_tasks(Action::Always, &[uid])], &[B64]);
    assert!(
        plan.syscalls.len() > 300,
        "all calls of such a task are recorded"
    );
    plan.retain_exit_list();
    assert!(plan.syscalls.is_empty() && plan.task_slots.is_empty());
}

#[test]
fn rules_beyond_the_limit_are_unsupported() {
    let none = Rule {
        syscalls: SyscallMask::none(),
        ..rule(Action::Always, &[], &[])
    };
    let plan = compile(std::iter::repeat_n(none, Plan::MAX_RULES + 1), &[]);
    assert_eq!(plan.rules.len(), Plan::MAX_RULES);
    assert_eq!(
        plan.unsupported
            .iter()
            .map(|rule| rule.line)
            .collect::<Vec<_>>(),
        [65_536]
    );
}

#[test]
fn keys_are_joined_in_record_format() {
    let keyed = Rule {
        keys: vec!["a".into(), "b".into()],
        ..rule(Action::Always, &[], &[])
    };
    let plan = compile([keyed, rule(Action::Always, &[], &[])], &[B64]);
    assert_eq!(plan.rules[0].key, Some("a\u{1}b".into()));
    assert_eq!(plan.rules[1].key, None);
}
