//! Exact instruction counts of syscalls.
//!
//! These sessions run in QEMU with `-icount shift=0`, where the time stamp counter counts instructions. Nearly
//! all calls of a syscall then have the same count, and none has less. A timer interrupt or a switch to a daemon
//! adds instructions; so does another kernel path in about one open of 15 on 6.1, with or without a daemon. The
//! tests compare the most frequent count exactly.

mod lsm;
pub(crate) mod stages;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use anyhow::{Context as _, ensure};

use crate::daemon::Daemon;
use crate::differential::uring::Layout;
use crate::machine::{PROGRAMS, USER, WORK, make_directory, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Calls in a measurement.
const SAMPLES: u32 = 3000;

/// Rules of the measuring user for other syscalls than the measured ones.
const OTHER_CALLS: &str = "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2,execve -F uid=1001 -k other\n";

/// The same, and `openat` of another user.
const OPENAT_AS_WELL: &str = "\
-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2,execve -F uid=1001 -k other
-a always,exit -F arch=b64 -S openat -F uid=12345 -k opened
";

/// One of the ten rules in <https://lore.kernel.org/audit/20230523181624.19932-1-ivan@cloudflare.com/>.
macro_rules! below {
    ($($directory:literal)+) => {
        concat!($("-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,openat,renameat2 -F perm=wa -F dir=/tmp/audit-bench/", $directory, " -F key=BENCH", $directory, "\n"),+)
    };
}

/// The measured unwatched directory is not among them.
const WATCHED: &str = "/tmp/audit-bench/3";
const ONE: &str = below!("3");
const TEN: &str = below!("0" "1" "2" "3" "4" "5" "6" "7" "8" "9");

/// The sessions of the counting machine. `cargo xtask vm` selects it by the prefix of their names.
pub(crate) const SESSIONS: &[Session] = &[
    FENTRY,
    Session {
        name: "count_fentry_openat",
        rules: Rules::Text(OPENAT_AS_WELL),
        tests: &[("only_openat_costs_more", only_openat_costs_more)],
        ..FENTRY
    },
    Session {
        name: "count_fentry_1_rule",
        rules: Rules::Text(ONE),
        tests: &[("open_cost_is_constant", open_cost_is_constant)],
        ..FENTRY
    },
    Session {
        name: "count_fentry_10_rules",
        rules: Rules::Text(TEN),
        tests: &[
            ("no_other_call_costs_more", no_other_call_costs_more),
            ("open_cost_is_constant", open_cost_is_constant),
        ],
        ..FENTRY
    },
    Session {
        name: "count_fentry_100_rules",
        rules: Rules::Made(|| many(100)),
        tests: &[("open_cost_is_constant", open_cost_is_constant)],
        ..FENTRY
    },
    Session {
        name: "count_fentry_1000_rules",
        rules: Rules::Made(|| many(1000)),
        tests: &[("open_cost_is_constant", open_cost_is_constant)],
        ..FENTRY
    },
    Session {
        name: "count_tracepoint",
        engine: "tracepoint",
        tests: &[("every_call_costs_more", every_call_costs_more)],
        ..FENTRY
    },
    lsm::SESSION,
    lsm::SESSION_10_RULES,
    // The last one: its lock also holds for later sessions.
    Session {
        name: "count_fentry_locked",
        rules: Rules::Made(|| format!("{OTHER_CALLS}-e 2\n")),
        tests: &[("only_opens_cost_more", only_opens_cost_more)],
        ..FENTRY
    },
];

const FENTRY: Session = Session {
    name: "count_fentry",
    engine: "fentry",
    prepare: || before().map(|_counts| ()),
    rules: Rules::Text(OTHER_CALLS),
    tests: &[("no_call_costs_more", no_call_costs_more)],
    stop: Daemon::stop,
    after: |_log| same("after", &MeasuredCall::ALL),
    stays: false,
};

/// The measured calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MeasuredCall {
    Getppid,
    Stat,
    Read,
    Write,
    Futex,
    /// `io_uring_enter` with a NOP.
    Nop,
    /// `io_uring_enter` with a read of one byte.
    UringRead,
    /// `open` for reading, and `close`.
    Open,
    /// `openat` for reading, and `close`.
    ToRead,
    /// `openat` for reading and writing, and `close`.
    ToWrite,
    /// The same in a watched directory.
    Watched,
}

impl MeasuredCall {
    const ALL: [Self; 11] = [
        Self::Getppid,
        Self::Stat,
        Self::Read,
        Self::Write,
        Self::Futex,
        Self::Nop,
        Self::UringRead,
        Self::Open,
        Self::ToRead,
        Self::ToWrite,
        Self::Watched,
    ];
    const BUT_OPENAT: [Self; 7] = [
        Self::Getppid,
        Self::Stat,
        Self::Read,
        Self::Write,
        Self::Futex,
        Self::Nop,
        Self::UringRead,
    ];

    /// Its name in tables.
    const fn name(self) -> &'static str {
        match self {
            Self::Getppid => "getppid",
            Self::Stat => "stat",
            Self::Read => "read",
            Self::Write => "write",
            Self::Futex => "futex",
            Self::Nop => "uring nop",
            Self::UringRead => "uring read",
            Self::Open => "open",
            Self::ToRead => "openat to read",
            Self::ToWrite => "openat to write",
            Self::Watched => "openat, watched",
        }
    }

    /// Its count; for a futex, the least of all words.
    fn count(self) -> anyhow::Result<Count> {
        let words = if self == Self::Futex {
            &WORDS[..]
        } else {
            &WORDS[..1]
        };
        let counts = words.iter().map(|&word| Count::of(self.program(word)?));
        let counts: Vec<Count> = counts.collect::<anyhow::Result<_>>()?;
        let least = counts.into_iter().min_by_key(|count| count.mode);
        least.context("nothing was measured")
    }

    /// Standard input is `/dev/zero`, open for reading and writing.
    fn program(self, word: i64) -> anyhow::Result<Program> {
        let program = Program::new(Entry::Syscall);
        Ok(match self {
            Self::Getppid => program.call(110, args![]),
            Self::Stat => program.call(4, args!["/tmp/work/file", Arg::Buffer]),
            Self::Read => program.call(0, args![0, Arg::Buffer, 1]),
            Self::Write => program.call(1, args![0, Arg::Buffer, 1]),
            Self::Futex => program.call(202, args![word, FUTEX_WAKE_PRIVATE, 1]),
            Self::Nop => submitting(program, [0; 4])?,
            Self::UringRead => submitting(program, [22, 0, DATA_AT, 1])?,
            Self::Open => program
                .call(2, args!["/tmp/work/file", 0])
                .call(3, args![Arg::Result]),
            Self::ToRead => opened(program, "/tmp/work/file", 0),
            Self::ToWrite => opened(program, "/tmp/work/file", O_RDWR),
            Self::Watched => opened(program, "/tmp/audit-bench/3/file", O_RDWR),
        })
    }
}

/// Address of the read buffer of `io_uring` programs.
const DATA_AT: u64 = 0x1020_0000;

/// Submits one `io_uring` entry per round. All entries are the first one, because the index array is all zeros;
/// all are queued before the first round.
fn submitting(program: Program, entry: [u64; 4]) -> anyhow::Result<Program> {
    const ENTRIES: i64 = 4096;
    let (read_write, shared, own, entries) = (3, 1, 0x32, 0x1000_0000);
    let ring = || Arg::Saved("ring");
    let map = |program: Program, at: i64, len: i64, flags: i32, fd: Arg, offset: i64| {
        let args = vec![
            at.into(),
            len.into(),
            read_write.into(),
            flags.into(),
            fd,
            offset.into(),
        ];
        program.call(9, args)
    };
    let program = program
        .call(425, vec![ENTRIES.into(), Arg::Bytes(vec![0; 120])])
        .save("ring");
    let program = map(program, 0, 4096, shared, ring(), 0).save("rings");
    // An entry has 64 bytes; the kernel maps all entries or none.
    let program = map(program, 0, ENTRIES * 64, shared, ring(), entries).save("entries");
    let data = DATA_AT.cast_signed();
    let mut program = map(program, data, 4096, own, Arg::Number(-1), 0);
    for (at, word) in (0..).step_by(8).zip(entry) {
        program = program.store(Some("entries"), at, word);
    }
    let submitted = Layout::ask(Path::new(PROGRAMS))?.submitted;
    let program = program.store(Some("rings"), submitted, ENTRIES.cast_unsigned());
    let enter = vec![ring(), 1.into(), 0.into(), 0.into(), 0.into(), 0.into()];
    Ok(program.then_rounds(SAMPLES).call(426, enter))
}

const FUTEX_WAKE_PRIVATE: i64 = 0x81;

/// Futex addresses. A thread of the daemon may wait in the same of the kernel's 256 hash buckets, which adds 55
/// instructions; the least count is used.
const WORDS: [i64; 4] = [0x10_0000, 0x20_0040, 0x30_0080, 0x40_00c0];

const O_RDWR: i64 = 2;

fn opened(program: Program, path: &'static str, flags: i64) -> Program {
    program
        .call(257, args![-100, path, flags])
        .call(3, args![Arg::Result])
}

/// Counts before the first daemon.
static BEFORE: OnceLock<BTreeMap<MeasuredCall, Count>> = OnceLock::new();

/// Instructions of one call, with those that load its arguments.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// The most frequent one.
    mode: u64,
    least: u64,
    /// Samples that are equal to the mode.
    equal: usize,
}

impl Count {
    fn of(program: Program) -> anyhow::Result<Self> {
        let path = program.rounds(SAMPLES).counting().install("count")?;
        let zeros = OpenOptions::new().read(true).write(true).open("/dev/zero");
        let zeros = zeros.context("cannot open /dev/zero")?;
        let output = Command::new(&path)
            .current_dir(WORK)
            .uid(USER)
            .gid(USER)
            .stdin(zeros)
            .stderr(Stdio::null())
            .output()
            .context("cannot start a program")?;
        ensure!(output.status.success(), "it ended with {}", output.status);
        let (samples, _) = output.stdout.as_chunks();
        ensure!(
            u32::try_from(samples.len()) == Ok(SAMPLES),
            "{} samples",
            samples.len()
        );
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        for &sample in samples {
            *found.entry(u64::from_ne_bytes(sample)).or_default() += 1;
        }
        let mode = found.iter().max_by_key(|&(_, equal)| equal);
        let (&mode, &equal) = mode.context("no sample")?;
        let (&least, _) = found.first_key_value().context("no sample")?;
        Ok(Self { mode, least, equal })
    }
}

/// Measures each call and prints the counts.
fn measure(state: &str) -> anyhow::Result<BTreeMap<MeasuredCall, Count>> {
    let mut counts = BTreeMap::new();
    let mut cells = Vec::new();
    for call in MeasuredCall::ALL {
        let count = call.count().with_context(|| format!("{call:?}"))?;
        println!("vm: count {} {}/{state}", count.mode, call.name());
        let Count { mode, least, equal } = count;
        cells.push(format!("{mode} ({least}, {equal})"));
        counts.insert(call, count);
    }
    show_row(state, &cells);
    Ok(counts)
}

/// Prints a row of the table.
fn show_row(title: &str, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>17}")).collect();
    println!("vm: note {title:<29} {}", cells.join(" "));
}

/// The counts before the first daemon; the first session takes them.
fn before() -> anyhow::Result<&'static BTreeMap<MeasuredCall, Count>> {
    if BEFORE.get().is_none() {
        make_file(Path::new("/tmp/work/file"), USER)?;
        make_directory(Path::new("/tmp/audit-bench"), USER)?;
        make_directory(Path::new(WATCHED), USER)?;
        make_file(&Path::new(WATCHED).join("file"), USER)?;
        show_row(
            &format!("of {SAMPLES}: mode (least, equal)"),
            &MeasuredCall::ALL.map(|call| call.name().to_owned()),
        );
        let counts = measure("before any daemon")?;
        BEFORE.get_or_init(|| counts);
    }
    BEFORE.get().context("nothing was measured")
}

fn no_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    same("fentry", &MeasuredCall::ALL)
}

fn only_openat_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("fentry, openat named")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    compare(
        &now,
        &[MeasuredCall::ToRead, MeasuredCall::ToWrite],
        ">",
        u64::gt,
    )
}

/// Instructions of an unwatched and of a watched open, by number of rules.
static OPENS: Mutex<Vec<[u64; 2]>> = Mutex::new(Vec::new());

/// The cost does not depend on the number of watched directories, within 5%.
fn open_cost_is_constant(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("fentry, directories watched")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    let mode = |call| now.get(&call).map(|count| count.mode);
    let unwatched = mode(MeasuredCall::ToWrite).context("not measured")?;
    let watched = mode(MeasuredCall::Watched).context("not measured")?;
    let open = [unwatched, watched];
    let mut opens = OPENS.lock().ok().context("another test has panicked")?;
    opens.push(open);
    for before in opens.iter() {
        let is_near = |(before, now): (&u64, u64)| before.abs_diff(now) * 20 <= *before;
        ensure!(
            before.iter().zip(open).all(is_near),
            "an unwatched and a watched open take {opens:?}"
        );
    }
    Ok(())
}

/// Maximum added to an open by a syscall that no rule names: all opens share a kernel function.
const MOST_OTHER: u64 = 250;
/// Maximum added to an open for reading.
const MOST_TO_READ: u64 = 450;
/// Maximum added to an open in a watched directory, with its event.
const MOST_WATCHED: u64 = 6000;

fn no_other_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("fentry, ten rules")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    compare(
        &now,
        &[MeasuredCall::Open],
        "at most 250 above",
        |now, before| *now <= before + MOST_OTHER,
    )?;
    compare(
        &now,
        &[MeasuredCall::ToRead],
        "at most 450 above",
        |now, before| *now <= before + MOST_TO_READ,
    )?;
    compare(
        &now,
        &[MeasuredCall::Watched],
        "at most 6000 above",
        |now, before| *now <= before + MOST_WATCHED,
    )
}

/// Maximum added to an open while rules are locked: for reading, and for writing.
const MOST_LOCKED_TO_READ: u64 = 250;
const MOST_LOCKED_TO_WRITE: u64 = 1500;

fn only_opens_cost_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("fentry, locked")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    let (to_read, to_write) = (
        [MeasuredCall::Open, MeasuredCall::ToRead],
        [MeasuredCall::ToWrite, MeasuredCall::Watched],
    );
    compare(
        &now,
        &to_read,
        "above, and at most 250 above",
        |now, before| (before + 1..=before + MOST_LOCKED_TO_READ).contains(now),
    )?;
    compare(
        &now,
        &to_write,
        "above, and at most 1500 above",
        |now, before| (before + 1..=before + MOST_LOCKED_TO_WRITE).contains(now),
    )
}

/// So many rules of this kind. That about [`WATCHED`] is one of the last.
fn many(rules: u32) -> String {
    (0..rules)
        .rev()
        .map(|rule| format!("-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,openat,renameat2 -F perm=wa -F dir=/tmp/audit-bench/{rule} -F key=BENCH{rule}\n"))
        .collect()
}

/// Also shows that the comparison finds differences.
fn every_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    compare(&measure("tracepoint")?, &MeasuredCall::ALL, ">", u64::gt)
}

/// Measures, and expects the counts before the first daemon.
fn same(state: &str, calls: &[MeasuredCall]) -> anyhow::Result<()> {
    compare(&measure(state)?, calls, "==", u64::eq)
}

/// Expects this relation to the counts before the first daemon.
fn compare(
    now: &BTreeMap<MeasuredCall, Count>,
    calls: &[MeasuredCall],
    sign: &str,
    holds: impl Fn(&u64, &u64) -> bool,
) -> anyhow::Result<()> {
    let before = before()?;
    for call in calls {
        let mode =
            |counts: &BTreeMap<MeasuredCall, Count>| counts.get(call).map(|count| count.mode);
        let (now, before) = mode(now).zip(mode(before)).context("not measured")?;
        ensure!(holds(&now, &before), "{call:?}: not {now} {sign} {before}");
    }
    Ok(())
}
