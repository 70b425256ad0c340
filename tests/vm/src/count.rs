//! Instructions that syscalls execute, to the last one.
//!
//! These sessions run where the time stamp counter counts instructions: in a machine of QEMU with
//! `-icount shift=0`. A call then takes the same count nearly every time, and never less. It takes more
//! when a timer interrupts it or a daemon gets the one processor, and on 6.1 for about one open in 15, where
//! another path of the kernel is taken, with a daemon or without. What is compared is the most frequent
//! count, to the last instruction.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};

use crate::daemon::Daemon;
use crate::machine::{PROGRAMS, USER, WORK, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::Session;

/// Calls of each kind in a measurement.
const SAMPLES: u32 = 3000;

/// Rules that name other calls than the measured ones, of the user who makes those.
const OTHER_CALLS: &str = "-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2,execve -F uid=1001 -k other\n";

/// The same, and `openat` for somebody else.
const OPENAT_AS_WELL: &str = "\
-a always,exit -F arch=b64 -S unlinkat,linkat,renameat,renameat2,execve -F uid=1001 -k other
-a always,exit -F arch=b64 -S openat -F uid=12345 -k opened
";

/// The sessions of a machine that counts. `cargo xtask vm` knows their tests by how the names start.
pub(crate) const SESSIONS: &[Session] = &[
    FENTRY,
    Session {
        name: "count_fentry_openat",
        rules: OPENAT_AS_WELL,
        tests: &[("only_openat_costs_more", only_openat_costs_more)],
        ..FENTRY
    },
    Session {
        name: "count_tracepoint",
        engine: "tracepoint",
        tests: &[("every_call_costs_more", every_call_costs_more)],
        ..FENTRY
    },
];

const FENTRY: Session = Session {
    name: "count_fentry",
    engine: "fentry",
    prepare: || before().map(|_counts| ()),
    rules: OTHER_CALLS,
    tests: &[("no_call_costs_more", no_call_costs_more)],
    stop: Daemon::stop,
    after: |_log| same("after", &Call::ALL),
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Getppid,
    Stat,
    Read,
    OpenatClose,
}

impl Call {
    const ALL: [Self; 4] = [Self::Getppid, Self::Stat, Self::Read, Self::OpenatClose];
    const BUT_OPENAT: [Self; 3] = [Self::Getppid, Self::Stat, Self::Read];

    /// Standard input is `/dev/zero`.
    fn program(self) -> Program {
        let program = Program::new(Entry::Syscall);
        match self {
            Self::Getppid => program.call(110, args![]),
            Self::Stat => program.call(4, args!["/tmp/work/file", Arg::Buffer]),
            Self::Read => program.call(0, args![0, Arg::Buffer, 1]),
            Self::OpenatClose => program
                .call(257, args![-100, "/tmp/work/file", 0])
                .call(3, args![Arg::Result]),
        }
    }
}

/// Counts in the first state of the machine, before any daemon.
static BEFORE: OnceLock<BTreeMap<Call, Count>> = OnceLock::new();

/// What one call takes, beyond reading the counter.
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
        let path = Path::new(PROGRAMS).join("count");
        let written = program.rounds(SAMPLES).counting().write(&path);
        written.context("cannot write a program")?;
        let zeros = File::open("/dev/zero").context("cannot open /dev/zero")?;
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

/// Measures each call and shows it.
fn measure(state: &str) -> anyhow::Result<BTreeMap<Call, Count>> {
    let reading = Count::of(Program::new(Entry::Syscall))?.mode;
    let mut counts = BTreeMap::new();
    let mut cells = Vec::new();
    for call in Call::ALL {
        let mut count = Count::of(call.program()).with_context(|| format!("{call:?}"))?;
        count.mode -= reading;
        count.least -= reading;
        let Count { mode, least, equal } = count;
        cells.push(format!("{mode} ({least}, {equal})"));
        counts.insert(call, count);
    }
    show_row(state, &cells);
    Ok(counts)
}

/// One line of the table, for people.
fn show_row(title: &str, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>18}")).collect();
    println!("vm: note {title:<29} {}", cells.join(" "));
}

/// The counts before any daemon; the first session takes them.
fn before() -> anyhow::Result<&'static BTreeMap<Call, Count>> {
    if BEFORE.get().is_none() {
        make_file(Path::new("/tmp/work/file"), USER)?;
        let columns = ["getppid", "stat", "read", "openat and close"];
        show_row(
            &format!("of {SAMPLES}: mode (least, equal)"),
            &columns.map(str::to_owned),
        );
        let counts = measure("before any daemon")?;
        BEFORE.get_or_init(|| counts);
    }
    BEFORE.get().context("nothing was measured")
}

fn no_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    same("fentry", &Call::ALL)
}

fn only_openat_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("fentry, openat named")?;
    compare(&now, &Call::BUT_OPENAT, "==", u64::eq)?;
    compare(&now, &[Call::OpenatClose], ">", u64::gt)
}

/// Shows as well that the comparison would find a difference.
fn every_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    compare(&measure("tracepoint")?, &Call::ALL, ">", u64::gt)
}

/// Measures, and expects the counts that the calls had before any daemon.
fn same(state: &str, calls: &[Call]) -> anyhow::Result<()> {
    compare(&measure(state)?, calls, "==", u64::eq)
}

/// Expects that these calls relate so to what they took before any daemon.
fn compare(
    now: &BTreeMap<Call, Count>,
    calls: &[Call],
    sign: &str,
    holds: fn(&u64, &u64) -> bool,
) -> anyhow::Result<()> {
    let before = before()?;
    for call in calls {
        let mode = |counts: &BTreeMap<Call, Count>| counts.get(call).map(|count| count.mode);
        let (now, before) = mode(now).zip(mode(before)).context("not measured")?;
        ensure!(holds(&now, &before), "{call:?}: not {now} {sign} {before}");
    }
    Ok(())
}
