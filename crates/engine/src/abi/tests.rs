//! Tests that the mirror agrees with `wire.h` and its BTF.

use audit::plan::filesystem_list::FilesystemList;
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize as _};

use super::watch::{WireIdentity, WireInodeKey, WireInodeWatch, WireNameWatch, WireWatchSet};
use super::*;

/// Layout of one struct: name in `wire.h`, size, and members with their offsets.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! layout {
    ($ty:ty as $name:literal: $($field:ident),+) => {
        ($name, size_of::<$ty>(), vec![$((stringify!($field), core::mem::offset_of!($ty, $field))),+])
    };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(WireCounts as "wire_counts": matched, delivered, lost, truncated, unread, _pad),
        layout!(WireRingOwner as "wire_ring_owner": used, lost, reported, key, _pad),
        layout!(WireShape as "wire_shape": lookup, dir, arg, effect),
        layout!(WireSyscall as "wire_syscall": tests, tests_unwatched, facts, open_arg, watch_perm, epoch, aux_source, address, attribute, hooks, _pad, objects),
        layout!(WireTest as "wire_test": value, on_false, word, op, kind, verdict),
        layout!(WireInodeKey as "wire_inode_key": ino, dev, half),
        layout!(WireIdentity as "wire_identity": ino, dev, generation),
        layout!(WireInodeWatch as "wire_inode_watch": watch, sole_name, generation, _pad),
        layout!(WireWatchSet as "wire_watch_set": count, watch),
        layout!(WireNameWatch as "wire_name_watch": watch, sole_name, led_to),
        layout!(WireEvent as "wire_event": len, version, flags, jiffies, args, exit, abi, nr,
            rule, success, pid, ppid, auid, auid_set, ses, personality, uid, gid, euid, suid,
            fsuid, egid, sgid, fsgid, open_perm, argc, comm, tty, argv_len, exe_len,
            cwd_len, proctitle_len, sockaddr_len, subj_len, subj_mode, objects, aux_count, uring_op),
        layout!(WireAux as "wire_aux": kind, _pad, word),
        layout!(WireInode as "wire_inode": ino, dev, rdev, mode, uid, gid, generation),
        layout!(WireObject as "wire_object": inode, parent, name_len, flags, effect, lookup, named_by, path_len),
    ]
}

#[test]
fn wire_structs_match_btf_of_built_object() {
    let object = concat!(env!("OUT_DIR"), "/abi.bpf.o");
    let btf = Btf::from_path(object).unwrap();
    for (name, size, members) in layouts() {
        let c: Struct<'_> = btf.type_by_name(name).unwrap();
        let in_c: Vec<(String, usize)> = c
            .iter()
            .map(|member| {
                let MemberAttr::Normal { offset } = member.attr else {
                    panic!("bit-field in {name}")
                };
                let name = member.name.unwrap().to_string_lossy().into_owned();
                (name, usize::try_from(offset).unwrap() / 8)
            })
            .collect();
        let in_rust: Vec<(String, usize)> = members
            .into_iter()
            .map(|(field, offset)| (field.to_owned(), offset))
            .collect();
        assert_eq!(in_c, in_rust, "members of {name}");
        assert_eq!(c.size(), size, "size of {name}");
    }
}

#[test]
fn enumerators_match_wire_h() {
    let header = include_str!("../../bpf/wire.h");
    let enumerators = |name: &str| -> Vec<String> {
        let body = header.split(&format!("enum {name} {{")).nth(1).unwrap();
        body.split("};")
            .next()
            .unwrap()
            .lines()
            .filter_map(|line| line.trim().split([',', ' ']).next())
            .filter(|word| word.starts_with("WIRE_"))
            .map(str::to_owned)
            .collect()
    };
    let at = |list: &[String], name: &str| {
        u8::try_from(list.iter().position(|entry| entry == name).unwrap()).unwrap()
    };
    let lookup = enumerators("wire_lookup");
    for (name, value) in [
        ("NONE", WireShape::default().lookup),
        ("PATH", lookup::PATH),
        ("AT", lookup::AT),
        ("FD", lookup::FD),
        ("OPENED", lookup::OPENED),
        ("OPENED_AT", lookup::OPENED_AT),
        ("EXEC", lookup::EXEC),
        ("EXEC_AT", lookup::EXEC_AT),
        ("TEXT", lookup::TEXT),
        ("AT_NAMED", lookup::AT_NAMED),
        ("RETURNED", lookup::RETURNED),
        ("CWD", lookup::CWD),
        ("AT_OR_CWD", lookup::AT_OR_CWD),
        ("AT_OR_NULL", lookup::AT_OR_NULL),
    ] {
        assert_eq!(at(&lookup, &format!("WIRE_LOOKUP_{name}")), value, "{name}");
    }
    let test = enumerators("wire_test_kind");
    for (name, value) in [
        ("TRUE", TEST_TRUE),
        ("END", TEST_END),
        ("WORD", TEST_WORD),
        ("WORDS", TEST_WORDS),
        ("GROUP", TEST_GROUP),
        ("OBJECT", TEST_OBJECT),
        ("OBJECTS", TEST_OBJECTS),
        ("TYPE", TEST_TYPE),
        ("MAJOR", TEST_MAJOR),
        ("MINOR", TEST_MINOR),
        ("PATH", TEST_PATH),
        ("DIR", TEST_DIR),
        ("EXE", TEST_EXE),
        ("SAME", TEST_SAME),
        ("BY_WATCH", TEST_BY_WATCH),
        ("ENTRY", TEST_ENTRY),
    ] {
        assert_eq!(at(&test, &format!("WIRE_TEST_{name}")), value, "{name}");
    }
    let op = enumerators("wire_op");
    for (name, value) in [
        ("EQ", OP_EQ),
        ("NE", OP_NE),
        ("GT", OP_GT),
        ("GE", OP_GE),
        ("LT", OP_LT),
        ("LE", OP_LE),
        ("ANY", OP_ANY),
        ("ALL", OP_ALL),
    ] {
        assert_eq!(at(&op, &format!("WIRE_OP_{name}")), value, "{name}");
    }
    let effect = enumerators("wire_effect");
    for (name, value) in [
        ("USE", EFFECT_USE),
        ("CREATE", EFFECT_CREATE),
        ("DELETE", EFFECT_DELETE),
    ] {
        assert_eq!(at(&effect, &format!("WIRE_EFFECT_{name}")), value, "{name}");
    }
    assert_eq!(enumerators("wire_lost").len(), LOST + 1);
    assert_eq!(enumerators("wire_trunc").len(), TRUNC + 1);
}

#[test]
fn defines_match_wire_h() {
    let header = include_str!("../../bpf/wire.h");
    let defined = |name: &str| -> u64 {
        let mut lines = header.lines().map(str::split_whitespace);
        let mut words = lines
            .find(|words| words.clone().take(2).eq(["#define", name]))
            .unwrap();
        let value = words.nth(2).unwrap().trim_end_matches('u');
        value.strip_prefix("0x").map_or_else(
            || value.parse().unwrap(),
            |hex| u64::from_str_radix(hex, 16).unwrap(),
        )
    };
    for (name, value) in [
        ("WIRE_VERSION", u64::from(VERSION)),
        ("WIRE_SYSCALLS", u64::from(SYSCALLS)),
        ("WIRE_RING_OWNERS", RING_OWNERS as u64),
        ("WIRE_FIRST_NAMESPACE", FIRST_NAMESPACE.into()),
        ("WIRE_NO_SYSCALL", u64::from(NO_SYSCALL)),
        ("WIRE_NO_FINGERPRINT", u64::from(NO_FINGERPRINT)),
        ("WIRE_NO_VERDICT", u64::from(NO_VERDICT)),
        ("WIRE_RECORD", u64::from(RECORD)),
        ("WIRE_OBJECTS", OBJECTS as u64),
        ("WIRE_ITEMS", ITEMS as u64),
        ("WIRE_URING_FIRST", URING_FIRST.into()),
        ("WIRE_PLAN_ENTRIES", PLAN_ENTRIES.into()),
        ("WIRE_PROCTITLE_BYTES", PROCTITLE_BYTES as u64),
        ("WIRE_EVENT_RETURNED", u64::from(EVENT_RETURNED)),
        ("WIRE_EVENT_SCRIPT", u64::from(EVENT_SCRIPT)),
        ("WIRE_EVENT_EXE", u64::from(EVENT_EXE)),
        ("WIRE_EVENT_EXE_DELETED", u64::from(EVENT_EXE_DELETED)),
        ("WIRE_EVENT_CWD_DELETED", u64::from(EVENT_CWD_DELETED)),
        ("WIRE_EVENT_STARTED", u64::from(EVENT_STARTED)),
        ("WIRE_EVENT_CWD", u64::from(EVENT_CWD)),
        ("WIRE_EVENT_STAMPED", u64::from(EVENT_STAMPED)),
        ("WIRE_EVENT_UNPROVEN", u64::from(EVENT_UNPROVEN)),
        ("WIRE_EVENT_DESCRIPTOR", u64::from(EVENT_DESCRIPTOR)),
        ("WIRE_EVENT_JOINED", u64::from(EVENT_JOINED)),
        ("WIRE_EVENT_EXE_LONG", u64::from(EVENT_EXE_LONG)),
        ("WIRE_EVENT_CWD_LONG", u64::from(EVENT_CWD_LONG)),
        ("WIRE_EVENT_URING_ENTER", u64::from(EVENT_URING_ENTER)),
        ("WIRE_EVENT_LOADED", u64::from(EVENT_LOADED)),
        ("WIRE_HOOKS_OPEN", u64::from(HOOKS_OPEN)),
        ("WIRE_HOOKS_NAMES", u64::from(HOOKS_NAMES)),
        ("WIRE_HOOKS_ADDRESS", u64::from(HOOKS_ADDRESS)),
        ("WIRE_OBJECT_INODE", u64::from(OBJECT_INODE)),
        ("WIRE_OBJECT_PARENT", u64::from(OBJECT_PARENT)),
        ("WIRE_OBJECT_CREATED", u64::from(OBJECT_CREATED)),
        ("WIRE_OBJECT_NAMED", u64::from(OBJECT_NAMED)),
        ("WIRE_OBJECT_KERNEL", u64::from(OBJECT_KERNEL)),
        ("WIRE_OBJECT_FS_EXCLUDED", u64::from(OBJECT_FS_EXCLUDED)),
        ("WIRE_OBJECT_REMOVED", u64::from(OBJECT_REMOVED)),
        ("WIRE_FILESYSTEMS", FilesystemList::MOST as u64),
        ("WIRE_FACT_CREDS", u64::from(FACT_CREDS)),
        ("WIRE_FACT_TASK", u64::from(FACT_TASK)),
        ("WIRE_FACT_OBJECTS", u64::from(FACT_OBJECTS)),
        ("WIRE_FACT_EXE", u64::from(FACT_EXE)),
        ("WIRE_FACT_OPEN_HOW", u64::from(FACT_OPEN_HOW)),
        ("WIRE_FACT_OPEN_FLAGS", u64::from(FACT_OPEN_FLAGS)),
        ("WIRE_FACT_ENTER_STATE", u64::from(FACT_ENTER_STATE)),
        ("WIRE_FACT_EXEC", u64::from(FACT_EXEC)),
        ("WIRE_FACT_FORKS", u64::from(FACT_FORKS)),
        ("WIRE_FACT_AUX", u64::from(FACT_AUX)),
        ("WIRE_FACT_TASK_MARK", u64::from(FACT_TASK_MARK)),
        ("WIRE_FACT_SADDR", u64::from(FACT_SADDR)),
        ("WIRE_FACT_DENY", u64::from(FACT_DENY)),
        ("WIRE_FACT_FOUND_ONLY", u64::from(FACT_FOUND_ONLY)),
        ("WIRE_FACT_RESULT", u64::from(FACT_RESULT)),
        ("WIRE_ADDRESS_OUTPUT", u64::from(ADDRESS_OUTPUT)),
        ("WIRE_WATCH_SET", u64::from(watch::WATCH_SET)),
        ("WIRE_WATCH_SETS", u64::from(watch::WATCH_SETS)),
        ("WIRE_SET_WATCHES", watch::SET_WATCHES as u64),
        ("WIRE_ADDRESS_EARLY", u64::from(ADDRESS_EARLY)),
    ] {
        assert_eq!(defined(name), value, "{name}");
    }
}
