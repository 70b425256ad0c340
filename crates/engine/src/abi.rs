//! The structs and constants of `bpf/wire.h` in Rust; `wire.h` documents them.
//!
//! Tests compare the layout with the BTF of the built object, and the constants with the text of `wire.h`.

pub(crate) mod aux_source;
pub(crate) mod form;
pub(crate) mod lookup;
pub(crate) mod watch;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `WIRE_VERSION`: raised with each change of layouts or names.
pub(crate) const VERSION: u16 = 9;
/// The oldest version whose events have the same layout; names of maps and programs differ.
pub(crate) const OLDEST_VERSION: u16 = 2;
pub(crate) const SYSCALLS: u32 = 1024;
pub(crate) const ABIS: usize = 2;
pub(crate) const B64: u32 = 0;
pub(crate) const B32: u32 = 1;
pub(crate) const NO_SYSCALL: u32 = u32::MAX;
pub(crate) const NO_FINGERPRINT: u32 = u32::MAX;
pub(crate) const RECORD: u32 = 0x8000_0000;
pub(crate) const DENY: u32 = 0x4000_0000;
pub(crate) const RULE_BITS: u32 = 16;
pub(crate) const EPOCHS: u16 = 16384;
/// No previous plan: `NO_EPOCH` of `bpf/lib/plan.bpf.h`.
pub(crate) const NO_EPOCH: u32 = u32::MAX;
pub(crate) const PROCTITLE_BYTES: usize = 128;
pub(crate) const OBJECTS: usize = 2;
pub(crate) const ITEMS: usize = 8;
pub(crate) const URING_FIRST: u32 = 2048;
pub(crate) const PLAN_ENTRIES: u32 = 2176;
pub(crate) const LOST: usize = 4;
pub(crate) const TRUNC: usize = 9;
pub(crate) const COMM_LEN: usize = 16;

pub(crate) const EVENT_RETURNED: u16 = 1;
pub(crate) const EVENT_SCRIPT: u16 = 2;
pub(crate) const EVENT_EXE: u16 = 4;
pub(crate) const EVENT_EXE_DELETED: u16 = 8;
pub(crate) const EVENT_CWD_DELETED: u16 = 16;
pub(crate) const EVENT_STARTED: u16 = 32;
pub(crate) const EVENT_CWD: u16 = 64;
pub(crate) const EVENT_URING: u16 = 128;
pub(crate) const EVENT_STAMPED: u16 = 256;
pub(crate) const EVENT_UNPROVEN: u16 = 512;
pub(crate) const EVENT_DESCRIPTOR: u16 = 1024;
pub(crate) const EVENT_JOINED: u16 = 2048;
pub(crate) const EVENT_EXE_LONG: u16 = 4096;
pub(crate) const EVENT_CWD_LONG: u16 = 8192;
pub(crate) const EVENT_URING_ENTER: u16 = 16384;
pub(crate) const EVENT_LOADED: u16 = 32768;

pub(crate) const HOOKS_OPEN: u8 = 1;
pub(crate) const HOOKS_NAMES: u8 = 2;
pub(crate) const HOOKS_ADDRESS: u8 = 4;

pub(crate) const OBJECT_INODE: u8 = 1;
pub(crate) const OBJECT_PARENT: u8 = 2;
pub(crate) const OBJECT_CREATED: u8 = 4;
pub(crate) const OBJECT_NAMED: u8 = 8;
pub(crate) const OBJECT_KERNEL: u8 = 16;
pub(crate) const OBJECT_WALKED: u8 = 32;
pub(crate) const OBJECT_FS_EXCLUDED: u8 = 64;
pub(crate) const OBJECT_REMOVED: u8 = 128;

pub(crate) const FACT_CREDS: u32 = 1;
pub(crate) const FACT_TASK: u32 = 2;
pub(crate) const FACT_OBJECTS: u32 = 4;
pub(crate) const FACT_EXE: u32 = 8;
pub(crate) const FACT_OPEN_HOW: u32 = 16;
pub(crate) const FACT_OPEN_FLAGS: u32 = 32;
pub(crate) const FACT_ENTER_STATE: u32 = 64;
pub(crate) const FACT_EXEC: u32 = 128;
pub(crate) const FACT_FORKS: u32 = 256;
pub(crate) const FACT_HOOKED: u32 = 512;
pub(crate) const FACT_WATCH_ONLY: u32 = 1024;
pub(crate) const FACT_HOOKED_NAMES: u32 = 2048;

pub(crate) const FACT_AUX: u32 = 4096;
pub(crate) const FACT_TASK_MARK: u32 = 8192;
pub(crate) const FACT_SADDR: u32 = 16384;
pub(crate) const FACT_DENY: u32 = 32768;
pub(crate) const FACT_FOUND_ONLY: u32 = 65536;

pub(crate) const ADDRESS_SECOND: u8 = 1;
pub(crate) const ADDRESS_FIFTH: u8 = 2;
pub(crate) const ADDRESS_MSGHDR: u8 = 3;
pub(crate) const ADDRESS_MMSGHDR: u8 = 4;
pub(crate) const ADDRESS_SOCKETCALL: u8 = 5;
pub(crate) const ADDRESS_OUTPUT: u8 = 128;
pub(crate) const ADDRESS_EARLY: u8 = 64;

pub(crate) const AUX_WORDS: usize = 15;
pub(crate) const AUX_IPC: u32 = 1303;
pub(crate) const AUX_SOCKETCALL: u32 = 1304;
pub(crate) const AUX_MQ_OPEN: u32 = 1312;
pub(crate) const AUX_MQ_SENDRECV: u32 = 1313;
pub(crate) const AUX_MQ_NOTIFY: u32 = 1314;
pub(crate) const AUX_MQ_GETSETATTR: u32 = 1315;
pub(crate) const AUX_FD_PAIR: u32 = 1317;
pub(crate) const AUX_OBJ_PID: u32 = 1318;
pub(crate) const AUX_BPRM_FCAPS: u32 = 1321;
pub(crate) const AUX_CAPSET: u32 = 1322;
pub(crate) const AUX_MMAP: u32 = 1323;
pub(crate) const AUX_KERN_MODULE: u32 = 1330;
pub(crate) const AUX_TIME_INJOFFSET: u32 = 1332;
pub(crate) const AUX_TIME_ADJNTPVAL: u32 = 1333;
pub(crate) const AUX_OPENAT2: u32 = 1337;

pub(crate) const NAMETYPE_NORMAL: u8 = 1;
pub(crate) const NAMETYPE_PARENT: u8 = 2;
pub(crate) const NAMETYPE_DELETE: u8 = 3;
pub(crate) const NAMETYPE_CREATE: u8 = 4;

pub(crate) const EFFECT_USE: u8 = 0;
pub(crate) const EFFECT_CREATE: u8 = 1;
pub(crate) const EFFECT_DELETE: u8 = 2;

pub(crate) const TEST_DECIDE: u8 = 0;
pub(crate) const TEST_END: u8 = 1;
pub(crate) const TEST_WORD: u8 = 2;
pub(crate) const TEST_WORDS: u8 = 3;
pub(crate) const TEST_GROUP: u8 = 4;
pub(crate) const TEST_OBJECT: u8 = 5;
pub(crate) const TEST_OBJECTS: u8 = 6;
pub(crate) const TEST_TYPE: u8 = 7;
pub(crate) const TEST_MAJOR: u8 = 8;
pub(crate) const TEST_MINOR: u8 = 9;
pub(crate) const TEST_PATH: u8 = 10;
pub(crate) const TEST_DIR: u8 = 11;
pub(crate) const TEST_EXE: u8 = 12;
pub(crate) const TEST_SAME: u8 = 13;

pub(crate) const OP_EQ: u8 = 0;
pub(crate) const OP_NE: u8 = 1;
pub(crate) const OP_GT: u8 = 2;
pub(crate) const OP_GE: u8 = 3;
pub(crate) const OP_LT: u8 = 4;
pub(crate) const OP_LE: u8 = 5;
pub(crate) const OP_ANY: u8 = 6;
pub(crate) const OP_ALL: u8 = 7;

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireCounts {
    pub(crate) matched: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: [u64; LOST],
    pub(crate) truncated: [u64; TRUNC],
    _pad: [u64; 1],
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireShape {
    pub(crate) lookup: u8,
    pub(crate) dir: u8,
    pub(crate) arg: u8,
    pub(crate) effect: u8,
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq,
)]
#[repr(C)]
pub(crate) struct WireSyscall {
    pub(crate) tests: u32,
    pub(crate) tests_unwatched: u32,
    pub(crate) facts: u32,
    pub(crate) open_arg: u8,
    pub(crate) watch_perm: u8,
    pub(crate) epoch: u16,
    pub(crate) aux_source: u8,
    pub(crate) address: u8,
    pub(crate) attribute: u8,
    pub(crate) hooks: u8,
    pub(crate) _pad: [u8; 4],
    pub(crate) objects: [WireShape; OBJECTS],
}

#[derive(
    Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq, Hash,
)]
#[repr(C)]
pub(crate) struct WireTest {
    pub(crate) value: u32,
    pub(crate) on_false: u32,
    pub(crate) word: u16,
    pub(crate) op: u8,
    pub(crate) kind: u8,
    pub(crate) _pad: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireEvent {
    pub(crate) len: u32,
    pub(crate) version: u16,
    pub(crate) flags: u16,
    pub(crate) jiffies: u64,
    pub(crate) args: [u64; 4],
    pub(crate) exit: u64,
    pub(crate) abi: u32,
    pub(crate) nr: u32,
    pub(crate) rule: u32,
    pub(crate) success: u32,
    pub(crate) pid: u32,
    pub(crate) ppid: u32,
    pub(crate) auid: u32,
    pub(crate) auid_set: u32,
    pub(crate) ses: u32,
    pub(crate) personality: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) euid: u32,
    pub(crate) suid: u32,
    pub(crate) fsuid: u32,
    pub(crate) egid: u32,
    pub(crate) sgid: u32,
    pub(crate) fsgid: u32,
    pub(crate) open_perm: u32,
    pub(crate) argc: u32,
    pub(crate) comm: [u8; COMM_LEN],
    pub(crate) tty: [u8; 16],
    pub(crate) argv_len: u16,
    pub(crate) exe_len: u16,
    pub(crate) cwd_len: u16,
    pub(crate) proctitle_len: u16,
    pub(crate) sockaddr_len: u16,
    pub(crate) subj_len: u16,
    pub(crate) subj_mode: u8,
    pub(crate) objects: u8,
    pub(crate) aux_count: u8,
    pub(crate) uring_op: u8,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireAux {
    pub(crate) kind: u32,
    pub(crate) _pad: u32,
    pub(crate) word: [u64; AUX_WORDS],
}

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireInode {
    pub(crate) ino: u64,
    pub(crate) dev: u32,
    pub(crate) rdev: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireObject {
    pub(crate) inode: WireInode,
    pub(crate) parent: WireInode,
    pub(crate) name_len: u16,
    pub(crate) flags: u8,
    pub(crate) effect: u8,
    pub(crate) lookup: u8,
    pub(crate) named_by: u8,
    pub(crate) path_len: u16,
}

/// Offset of a struct member in 32-bit words, by which tests address it. For a 64-bit member this is the low
/// word, which is what the kernel's audit compares.
macro_rules! word {
    ($ty:ident.$($member:ident).+) => {
        u16::try_from(core::mem::offset_of!($ty, $($member).+) / 4)
            .expect("wire structs are smaller than 65,536 words")
    };
}
pub(crate) use word;

#[cfg(test)]
mod tests {
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
            layout!(WireCounts as "wire_counts": matched, delivered, lost, truncated, _pad),
            layout!(WireShape as "wire_shape": lookup, dir, arg, effect),
            layout!(WireSyscall as "wire_syscall": tests, tests_unwatched, facts, open_arg, watch_perm, epoch, aux_source, address, attribute, hooks, _pad, objects),
            layout!(WireTest as "wire_test": value, on_false, word, op, kind, _pad),
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
        let header = include_str!("../bpf/wire.h");
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
            ("DECIDE", TEST_DECIDE),
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
        let header = include_str!("../bpf/wire.h");
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
            ("WIRE_NO_SYSCALL", u64::from(NO_SYSCALL)),
            ("WIRE_NO_FINGERPRINT", u64::from(NO_FINGERPRINT)),
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
            ("WIRE_ADDRESS_OUTPUT", u64::from(ADDRESS_OUTPUT)),
            ("WIRE_WATCH_SET", u64::from(watch::WATCH_SET)),
            ("WIRE_WATCH_SETS", u64::from(watch::WATCH_SETS)),
            ("WIRE_SET_WATCHES", watch::SET_WATCHES as u64),
            ("WIRE_ADDRESS_EARLY", u64::from(ADDRESS_EARLY)),
        ] {
            assert_eq!(defined(name), value, "{name}");
        }
    }
}
