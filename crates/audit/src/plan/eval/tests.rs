//! Each kind of condition, with variants of one event.

use super::*;
use crate::ids::Dev;

const ROOT_FILE: Inode = Inode {
    ino: 7,
    dev: Dev(8 << 20 | 1),
    mode: 0o100_644,
    uid: 0,
    gid: 0,
    rdev: Dev(0),
};

const PASSWD: ObjectFacts<'static> = ObjectFacts {
    path: b"/etc/passwd",
    name: Some(b"passwd"),
    inode: Some(ROOT_FILE),
    label: None,
};

const NOTES: ObjectFacts<'static> = ObjectFacts {
    path: b"/home/me/notes",
    name: Some(b"/link/notes"),
    inode: Some(Inode {
        ino: 9,
        mode: 0o120_777,
        uid: 1000,
        gid: 1000,
        ..ROOT_FILE
    }),
    label: None,
};

const GONE: ObjectFacts<'static> = ObjectFacts {
    path: b"/etc/gone",
    name: Some(b"gone"),
    inode: None,
    label: None,
};

/// An `openat` for reading by login user 1000 as root; it returned descriptor 3.
fn openat() -> EventFacts<'static> {
    EventFacts {
        arch: Arch::X86_64,
        syscall: Syscall(257),
        exit: Some(3),
        args: [0xffff_ffff_ffff_ff9c, 2, 0, 0],
        open_how_flags: 0,
        task: Task {
            ppid: 10,
            pid: 11,
            auid: Auid(1000),
            uid: 1000,
            gid: 1000,
            euid: 0,
            suid: 0,
            fsuid: 0,
            egid: 1000,
            sgid: 1000,
            fsgid: 1000,
            ses: 2,
            tty: b"pts0",
            comm: b"cat",
            exe: Some(b"/usr/bin/cat"),
            subj: None,
        },
        groups: &[4, 27],
        personality: 0,
        label: SelinuxLabel::parse(b"staff_u:staff_r:staff_t:s0"),
        socket_family: None,
        task_state: None,
        uring_enter: None,
        objects: &[PASSWD],
    }
}

fn rule(fields: Vec<FieldTest>) -> Rule {
    Rule {
        list: List::Exit,
        action: Action::Always,
        syscalls: SyscallMask::all(),
        fields,
        keys: Vec::new(),
    }
}

fn number(field: Field, op: Op, value: u32) -> FieldTest {
    FieldTest {
        field,
        op,
        value: Value::Number(value),
    }
}

fn text(field: Field, op: Op, value: &[u8]) -> FieldTest {
    FieldTest {
        field,
        op,
        value: Value::Text(value.into()),
    }
}

#[track_caller]
fn is(observed: &EventFacts<'_>, test: FieldTest, expected: bool) {
    let rule = rule(vec![test]);
    assert_eq!(matches(&rule, observed), expected, "{:?}", rule.fields);
}

#[test]
fn numbers_are_compared_unsigned_on_32_bits() {
    let mut denied = openat();
    denied.exit = Some(-13);
    is(
        &denied,
        number(Field::Exit, Op::Equal, 13_u32.wrapping_neg()),
        true,
    );
    is(&denied, number(Field::Exit, Op::Less, 0), false);
    is(&denied, number(Field::Exit, Op::Greater, 0), true);
    is(&denied, number(Field::Exit, Op::Equal, 13), false);
    is(&openat(), number(Field::A0, Op::Equal, 0xffff_ff9c), true);
    is(&openat(), number(Field::A0, Op::BitMask, 0x11), true);
    is(&openat(), number(Field::A0, Op::BitTest, 0x11), false);
}

#[test]
fn exit_without_errno_is_success() {
    for (exit, success) in [
        (0, true),
        (-1, false),
        (-4095, false),
        (-4096, true),
        (1 << 40, true),
    ] {
        let observed = EventFacts {
            exit: Some(exit),
            ..openat()
        };
        is(&observed, number(Field::Success, Op::Equal, 1), success);
        is(&observed, number(Field::Success, Op::Equal, 0), !success);
        is(&observed, number(Field::Success, Op::NotEqual, 1), !success);
    }
}

#[test]
fn syscall_without_return_matches_no_exit_test() {
    let killed = EventFacts {
        exit: None,
        ..openat()
    };
    for op in [Op::Equal, Op::NotEqual, Op::GreaterOrEqual] {
        is(&killed, number(Field::Success, op, 1), false);
        is(&killed, number(Field::Exit, op, 0), false);
    }
}

#[test]
fn supplementary_groups_count_for_gid_and_egid_only() {
    for field in [Field::Gid, Field::Egid] {
        is(&openat(), number(field, Op::Equal, 27), true);
        is(&openat(), number(field, Op::NotEqual, 27), false);
        is(&openat(), number(field, Op::NotEqual, 28), true);
        is(&openat(), number(field, Op::Less, 1000), false);
    }
    is(&openat(), number(Field::Sgid, Op::Equal, 27), false);
    is(&openat(), number(Field::Fsgid, Op::NotEqual, 27), true);
}

#[test]
fn auid_unset_tests_whether_auid_is_set() {
    let mut daemon = openat();
    daemon.task.auid = Auid::UNSET;
    for (op, when_set) in [
        (Op::Equal, false),
        (Op::NotEqual, true),
        (Op::Greater, true),
        (Op::LessOrEqual, false),
    ] {
        is(&openat(), number(Field::Auid, op, u32::MAX), when_set);
        is(&daemon, number(Field::Auid, op, u32::MAX), !when_set);
    }
    is(&daemon, number(Field::Auid, Op::GreaterOrEqual, 1000), true);
}

#[test]
fn path_matches_object_path_or_passed_name() {
    let both = EventFacts {
        objects: &[PASSWD, NOTES],
        ..openat()
    };
    for (path, found) in [
        (&b"/etc/passwd"[..], true),
        (b"/link/notes", true),
        (b"passwd", true),
        (b"/etc", false),
        (b"/etc/passwd/", false),
        (b"", false),
    ] {
        is(&both, text(Field::Path, Op::Equal, path), found);
    }
}

#[test]
fn directory_contains_itself_and_descendants() {
    for (directory, found) in [
        (&b"/etc"[..], true),
        (b"/etc/", true),
        (b"/", true),
        (b"/etc/passwd", true),
        (b"/et", false),
        (b"/etc/pass", false),
        (b"etc", false),
        (b"", false),
    ] {
        is(&openat(), text(Field::Dir, Op::Equal, directory), found);
    }
    let unknown = ObjectFacts {
        path: b"",
        ..PASSWD
    };
    is(
        &EventFacts {
            objects: &[unknown],
            ..openat()
        },
        text(Field::Dir, Op::Equal, b"/"),
        false,
    );
}

#[test]
fn perm_is_the_class_of_the_syscall() {
    is(&openat(), number(Field::Perm, Op::Equal, 4), true);
    is(&openat(), number(Field::Perm, Op::Equal, 2 | 8), false);
    is(&openat(), number(Field::Perm, Op::NotEqual, 2 | 8), true);
    let created = EventFacts {
        args: [0, 0, 0o102, 0],
        ..openat()
    };
    is(&created, number(Field::Perm, Op::Equal, 2), true);
    let how = EventFacts {
        syscall: Syscall(437),
        open_how_flags: 1,
        ..openat()
    };
    is(&how, number(Field::Perm, Op::Equal, 2), true);
    is(&how, number(Field::Perm, Op::Equal, 4), false);
    let bind = EventFacts {
        arch: Arch::I386,
        syscall: Syscall(102),
        args: [2, 0, 0, 0],
        ..openat()
    };
    is(&bind, number(Field::Perm, Op::Equal, 2), true);
    is(
        &EventFacts {
            args: [3, 0, 0, 0],
            ..bind
        },
        number(Field::Perm, Op::Equal, 2),
        false,
    );
}

#[test]
fn any_object_may_satisfy_an_object_test() {
    let both = EventFacts {
        objects: &[PASSWD, NOTES],
        ..openat()
    };
    is(&both, number(Field::ObjUid, Op::Equal, 1000), true);
    is(&both, number(Field::ObjUid, Op::NotEqual, 1000), true);
    is(&both, number(Field::DevMajor, Op::Equal, 8), true);
    is(&both, number(Field::DevMajor, Op::Equal, 0), true);
    is(&both, number(Field::FileType, Op::Equal, 0o120_000), true);
    is(
        &both,
        number(Field::FileType, Op::NotEqual, 0o120_000),
        false,
    );
    let gone = EventFacts {
        objects: &[GONE],
        ..openat()
    };
    // The kernel compares the initial values of the name.
    is(&gone, number(Field::ObjUid, Op::Equal, 0), true);
    is(&gone, number(Field::DevMajor, Op::Less, 1), true);
    is(&gone, number(Field::Inode, Op::NotEqual, 7), true);
    is(&gone, number(Field::FileType, Op::Equal, 0), false);
    is(
        &gone,
        number(Field::FileType, Op::NotEqual, 0o040_000),
        true,
    );
    is(&gone, text(Field::Path, Op::Equal, b"/etc/gone"), true);
}

#[test]
fn tests_beside_path_apply_to_the_same_object() {
    let both = EventFacts {
        objects: &[PASSWD, NOTES],
        ..openat()
    };
    let passwd = || text(Field::Path, Op::Equal, b"/etc/passwd");
    let of_user = || number(Field::ObjUid, Op::Equal, 1000);
    assert!(!matches(&rule(vec![passwd(), of_user()]), &both));
    let in_etc = text(Field::Dir, Op::Equal, b"/etc");
    assert!(
        matches(&rule(vec![in_etc, of_user()]), &both),
        "a tree is not kept by inode"
    );
    let inode = number(Field::Inode, Op::Equal, 9);
    assert!(matches(&rule(vec![inode, of_user()]), &both));
}

#[test]
fn field_pairs_are_compared() {
    let compare = |field, op, other| FieldTest {
        field,
        op,
        value: Value::Field(other),
    };
    is(
        &openat(),
        compare(Field::Uid, Op::NotEqual, Field::Euid),
        true,
    );
    is(&openat(), compare(Field::Uid, Op::Equal, Field::Auid), true);
    is(
        &openat(),
        compare(Field::Gid, Op::NotEqual, Field::Egid),
        false,
    );
    let both = EventFacts {
        objects: &[PASSWD, NOTES],
        ..openat()
    };
    for op in [Op::Equal, Op::NotEqual] {
        is(&both, compare(Field::Auid, op, Field::ObjUid), true);
        is(&both, compare(Field::ObjUid, op, Field::Auid), true);
        is(
            &EventFacts {
                objects: &[],
                ..openat()
            },
            compare(Field::Auid, op, Field::ObjUid),
            false,
        );
    }
}

#[test]
fn task_without_program_matches_no_exe() {
    is(
        &openat(),
        text(Field::Exe, Op::Equal, b"/usr/bin/cat"),
        true,
    );
    let mut kernel = openat();
    kernel.task.exe = None;
    is(&kernel, text(Field::Exe, Op::Equal, b"/usr/bin/cat"), false);
    is(
        &kernel,
        text(Field::Exe, Op::NotEqual, b"/usr/bin/cat"),
        true,
    );
}

#[test]
fn first_matching_rule_of_the_exit_list_decides() {
    let never = Rule {
        action: Action::Never,
        ..rule(vec![number(Field::Uid, Op::Equal, 1000)])
    };
    let other_list = Rule {
        list: List::Exclude,
        ..rule(vec![])
    };
    let rules = [
        other_list,
        rule(vec![number(Field::Uid, Op::Equal, 0)]),
        never,
        rule(vec![]),
    ];
    assert_eq!(first_match(&rules, &openat()), Some(2));
    assert!(!recorded(&rules, &openat()));
    let mut other = openat();
    other.task.uid = 5;
    assert_eq!(first_match(&rules, &other), Some(3));
    assert!(recorded(&rules, &other));
    assert_eq!(first_match(&[], &other), None);
}

#[test]
fn class_bits_of_the_mask_select_no_syscall() {
    let beyond = EventFacts {
        syscall: Syscall(2020),
        ..openat()
    };
    assert!(!matches(&rule(vec![]), &beyond));
}

#[test]
fn label_tests_use_the_task_and_any_object() {
    let shadow = ObjectFacts {
        label: SelinuxLabel::parse(b"system_u:object_r:shadow_t:s0"),
        ..PASSWD
    };
    let both = EventFacts {
        objects: &[NOTES, shadow],
        ..openat()
    };
    is(&both, text(Field::SubjType, Op::Equal, b"staff_t"), true);
    is(&both, text(Field::SubjType, Op::Equal, b"shadow_t"), false);
    is(&both, text(Field::ObjType, Op::Equal, b"shadow_t"), true);
    is(&both, text(Field::ObjType, Op::Equal, b"staff_t"), false);
    let bare = EventFacts {
        label: None,
        ..openat()
    };
    is(&bare, text(Field::SubjType, Op::NotEqual, b"x"), false);
}

#[test]
fn saddr_fam_is_the_family_of_the_passed_address() {
    let connect = EventFacts {
        socket_family: Some(10),
        ..openat()
    };
    is(&connect, number(Field::SaddrFam, Op::Equal, 10), true);
    is(&connect, number(Field::SaddrFam, Op::NotEqual, 2), true);
    is(&openat(), number(Field::SaddrFam, Op::NotEqual, 2), false);
}

#[test]
fn exit_of_restarted_syscall_is_eintr() {
    for (exit, expected) in [
        (-512, -4),
        (-513, -4),
        (-514, -4),
        (-515, -515),
        (-516, -4),
        (-4, -4),
        (3, 3),
        (i64::MIN + 1, i64::MIN + 1),
    ] {
        assert_eq!(reported(exit), expected, "{exit}");
    }
}

#[test]
fn key_is_kept_when_inode_rule_without_key_wins() {
    let keyed = |key: &str, rule: Rule| Rule {
        keys: vec![key.into()],
        ..rule
    };
    let path = || rule(vec![text(Field::Path, Op::Equal, b"/etc/passwd")]);
    let any = || rule(Vec::new());
    for (rules, expected) in [
        (vec![keyed("a", path()), keyed("b", any())], Some(0)),
        (vec![path(), keyed("b", any())], Some(1)),
        (vec![path(), any(), keyed("b", any())], None),
        (vec![any(), keyed("b", path())], None),
        (vec![path()], None),
        (Vec::new(), None),
    ] {
        assert_eq!(recorded_key(&rules, &openat()), expected, "{rules:?}");
    }
}
