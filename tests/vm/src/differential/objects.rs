//! Syscalls on descriptors, processes, memory, capabilities, modules and clocks, 64-bit.

use nix::libc::{AF_UNIX, SOCK_STREAM};

use super::steps::{CWD, ProgramStep, Run, RunAs, numbers, step};
use crate::program::{Arg, Entry};

pub(super) fn runs() -> Vec<Run> {
    let run = |user, steps| Run {
        user,
        entry: Entry::Syscall,
        steps,
    };
    vec![
        run(RunAs::Root, pairs_and_maps()),
        run(RunAs::Root, processes()),
        run(RunAs::Root, capabilities()),
        run(RunAs::Root, modules()),
        run(RunAs::Root, clocks()),
        run(RunAs::User, refused()),
    ]
}

fn pairs_and_maps() -> Vec<ProgramStep> {
    let two = || Arg::Bytes(vec![0; 8]);
    let (read, private) = (1, 2);
    vec![
        step!("pipe", two()),
        step!("pipe2", two(), 0o2_000_000),
        step!("pipe2", two(), 1),
        step!("pipe2", 1, 0),
        step!("socketpair", AF_UNIX, SOCK_STREAM, 0, two()),
        step!("socketpair", 77, SOCK_STREAM, 0, two()),
        step!("openat", CWD, "file", 0).save("fd"),
        step!("mmap", 0, 4096, read, private, Arg::Saved("fd"), 0),
        step!("mmap", 0, 4096, read, private | 0x20, -1, 0),
        step!("mmap", 0, 4096, read, private, 77, 0),
        step!("mmap", 0, 0, read, private, Arg::Saved("fd"), 0),
        step!("memfd_create", "memory", 0),
    ]
}

fn processes() -> Vec<ProgramStep> {
    let this = || Arg::Saved("this");
    let info = || Arg::Bytes(vec![0; 128]);
    vec![
        step!("getpid").save("this"),
        step!("kill", this(), 0),
        step!("kill", 1, 0),
        step!("kill", 2, 0),
        step!("kill", 999_999, 0),
        step!("kill", 1, 77),
        step!("tkill", this(), 0),
        step!("tgkill", this(), this(), 0),
        step!("rt_sigqueueinfo", this(), 0, info()),
        // PTRACE_SEIZE, PTRACE_ATTACH and PTRACE_TRACEME.
        step!("ptrace", 0x4206, 1, 0, 0),
        step!("ptrace", 16, this(), 0, 0),
        step!("ptrace", 16, 999_999, 0, 0),
        step!("ptrace", 0, 0, 0, 0),
    ]
}

fn capabilities() -> Vec<ProgramStep> {
    // `_LINUX_CAPABILITY_VERSION_3` and this process.
    let header = || numbers([0x2008_0522_u32, 0].map(u32::to_ne_bytes));
    let sets = |effective: u32, permitted: u32, inheritable: u32| {
        let sets = [effective, permitted, inheritable, 0, 0, 0];
        numbers(sets.map(u32::to_ne_bytes))
    };
    vec![
        step!("capset", header(), sets(0xff, 0xffff, 0)),
        step!("capset", header(), sets(0, 0xffff_ffff, 0)),
        step!("capset", header(), 1),
        step!("capset", 1, 1),
        step!(
            "capset",
            numbers([7_u32, 0].map(u32::to_ne_bytes)),
            sets(0, 0, 0)
        ),
        step!("capset", header(), sets(0, 0xff, 0)),
        step!("capset", header(), sets(0, 0, 0)),
    ]
}

fn modules() -> Vec<ProgramStep> {
    vec![
        step!("init_module", "no module", 9, "options"),
        step!("openat", CWD, "file", 0).save("fd"),
        step!("finit_module", Arg::Saved("fd"), "options", 0),
        step!("finit_module", 77, "options", 0),
        step!("delete_module", "missing", 0o4000),
        step!("delete_module", 1, 0o4000),
    ]
}

/// A `struct timex` with these members.
fn timex(modes: u32, words: &[(usize, i64)]) -> Arg {
    let mut bytes = vec![0; 208];
    let mut put = |at: usize, value: &[u8]| {
        for (byte, value) in bytes.iter_mut().skip(at).zip(value) {
            *byte = *value;
        }
    };
    put(0, &modes.to_ne_bytes());
    for &(at, value) in words {
        put(at, &value.to_ne_bytes());
    }
    Arg::Bytes(bytes)
}

fn clocks() -> Vec<ProgramStep> {
    let adjust = |modes, words: &[(usize, i64)]| step!("adjtimex", timex(modes, words));
    let (offset, frequency, status, seconds, fraction, tick) = (8, 16, 40, 72, 80, 88);
    let (tai, single, set_offset, nanoseconds) = (0x80, 0x8001, 0x100, 0x2000);
    vec![
        adjust(0, &[]),
        adjust(2, &[(frequency, 65_536)]),
        adjust(2, &[(frequency, 0)]),
        adjust(0x4000, &[(tick, 10_001)]),
        adjust(0x4000, &[(tick, 10_000)]),
        adjust(0x4000, &[(tick, 5)]),
        adjust(0x10, &[(status, 0)]),
        adjust(0x10, &[(status, 0x40)]),
        adjust(0x11, &[(status, 1), (offset, 1000)]),
        adjust(tai, &[(48, 37)]),
        adjust(tai, &[(48, 0)]),
        adjust(single, &[(offset, 1)]),
        adjust(set_offset | nanoseconds, &[(seconds, 0), (fraction, 1)]),
        adjust(set_offset, &[(seconds, 0), (fraction, -1)]),
        step!("adjtimex", 1),
        step!("clock_adjtime", 0, timex(2, &[(frequency, 0)])),
        step!("clock_adjtime", 7, timex(2, &[])),
        step!(
            "clock_settime",
            0,
            numbers([0_i64, -1].map(i64::to_ne_bytes))
        ),
        step!(
            "clock_settime",
            1,
            numbers([0_i64, 0].map(i64::to_ne_bytes))
        ),
        step!(
            "settimeofday",
            numbers([0_i64, -1].map(i64::to_ne_bytes)),
            0
        ),
        step!("settimeofday", 1, 0),
        // The clock loses the time between the two.
        step!("clock_gettime", 0, Arg::Shared("now", vec![0; 16])),
        step!("clock_settime", 0, Arg::Shared("now", vec![0; 16])),
    ]
}

/// The same in the 32-bit table, and `openat2`.
pub(super) fn runs_32(entry: Entry) -> Vec<Run> {
    let two = || Arg::Bytes(vec![0; 8]);
    let info = || Arg::Bytes(vec![0; 128]);
    let this = || Arg::Saved("this");
    let (read, private, anonymous) = (1, 2, 0x22);
    let header = || numbers([0x2008_0522_u32, 0].map(u32::to_ne_bytes));
    // A `struct old_timex32`: modes, offset, frequency, and eleven words from `tick` on.
    let timex = |modes: u32, frequency: u32| {
        let mut words = [0_u32; 32];
        (words[0], words[2]) = (modes, frequency);
        numbers(words.map(u32::to_ne_bytes))
    };
    // The first free descriptor: an array of arguments cannot contain results.
    let old = |flags, fd: i32, offset: i32| {
        Arg::Words(crate::program::args![0, 4096, read, flags, fd, offset])
    };
    let steps = vec![
        step!("openat", CWD, "file", 0).save("fd"),
        step!("mmap", old(private, 3, 0)),
        step!("mmap", old(private, 3, 5)),
        step!("mmap", old(anonymous, -1, 0)),
        step!("mmap", 1),
        step!("mmap2", 0, 4096, read, private, Arg::Saved("fd"), 0),
        step!("mmap2", 0, 4096, read, anonymous, -1, 0),
        step!("pipe", two()),
        step!("pipe2", two(), 0o2_000_000),
        step!("socketpair", AF_UNIX, SOCK_STREAM, 0, two()),
        step!("getpid").save("this"),
        step!("kill", this(), 0),
        step!("kill", 1, 0),
        step!("tkill", this(), 0),
        step!("tgkill", this(), this(), 0),
        step!("rt_sigqueueinfo", this(), 0, info()),
        step!("ptrace", 0x4206, 1, 0, 0),
        step!("ptrace", 16, this(), 0, 0),
        step!("adjtimex", timex(2, 65_536)),
        step!("clock_adjtime", 0, timex(2, 0)),
        step!("adjtimex", 1),
        step!("settimeofday", 1, 0),
        step!("delete_module", "missing", 0o4000),
        step!(
            "capset",
            header(),
            numbers([255_u32, 255, 0, 0, 0, 0].map(u32::to_ne_bytes))
        ),
    ];
    vec![Run {
        user: RunAs::Root,
        entry,
        steps,
    }]
}

fn refused() -> Vec<ProgramStep> {
    vec![
        step!("kill", 1, 0),
        step!("ptrace", 0x4206, 1, 0, 0),
        step!("setresuid", 0, 0, 0),
        step!("setresuid", -1, 1001, -1),
        step!("adjtimex", timex(2, &[])),
        step!(
            "clock_settime",
            0,
            numbers([1_i64, 0].map(i64::to_ne_bytes))
        ),
        step!("settimeofday", numbers([1_i64, 0].map(i64::to_ne_bytes)), 0),
        step!("delete_module", "missing", 0),
        step!("init_module", "x", 1, ""),
        step!(
            "capset",
            numbers([0x2008_0522_u32, 0].map(u32::to_ne_bytes)),
            numbers([[255_u8; 24]])
        ),
    ]
}
