//! The structs and constants of `bpf/wire.h` in Rust; `wire.h` documents them.
//!
//! Tests compare the layout with the BTF of the built object, and the constants with the text of `wire.h`.

pub(crate) mod aux_source;
pub(crate) mod form;
pub(crate) mod lookup;
pub(crate) mod watch;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `WIRE_VERSION`: raised with each change of layouts or names.
pub(crate) const VERSION: u16 = 11;
/// The oldest version whose events have the same layout; names of maps and programs differ.
pub(crate) const OLDEST_VERSION: u16 = 2;
pub(crate) const SYSCALLS: u32 = 1024;
pub(crate) const ABIS: usize = 2;
pub(crate) const B64: u32 = 0;
pub(crate) const B32: u32 = 1;
pub(crate) const NO_SYSCALL: u32 = u32::MAX;
pub(crate) const NO_FINGERPRINT: u32 = u32::MAX;
pub(crate) const NO_VERDICT: u32 = u32::MAX;
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
pub(crate) const TRUNC: usize = 10;
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
pub(crate) const FACT_RESULT: u32 = 131_072;

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

pub(crate) const TEST_TRUE: u8 = 0;
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
pub(crate) const TEST_BY_WATCH: u8 = 14;
pub(crate) const TEST_ENTRY: u8 = 15;

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
    unread: u64,
    _pad: [u64; 7],
}

/// Number of owners that the programs tell apart.
pub(crate) const RING_OWNERS: usize = 4096;
/// First number of an owner that is a namespace.
pub(crate) const FIRST_NAMESPACE: u32 = 0xf000_0000;

#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct WireRingOwner {
    used: u64,
    pub(crate) lost: u64,
    pub(crate) reported: u64,
    pub(crate) key: u32,
    _pad: u32,
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

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct WireTest {
    pub(crate) value: u32,
    pub(crate) on_false: u32,
    pub(crate) word: u16,
    pub(crate) op: u8,
    pub(crate) kind: u8,
    pub(crate) verdict: u32,
}

/// A test that is not the last of its rule.
impl Default for WireTest {
    fn default() -> Self {
        Self {
            value: 0,
            on_false: 0,
            word: 0,
            op: 0,
            kind: TEST_TRUE,
            verdict: NO_VERDICT,
        }
    }
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
mod tests;
