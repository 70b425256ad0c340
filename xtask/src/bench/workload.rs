//! The workloads: each runs in a process of its own, pinned to one CPU, as a user without rights.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Name of the file that is opened, in the directory that the workload starts in.
pub(super) const FILE: &str = "file1";
/// Names of the workloads.
pub(super) const OPEN_CLOSE: &str = "open-close";
pub(super) const SYSCALLS: &str = "syscalls";
/// What `syscalls` times: the names under which it prints the results.
pub(super) const TIMED: [&str; 3] = ["getpid", "statx", "open_close"];

/// Duplicates of standard input that lie below the descriptor of the measured open. Nothing that
/// happens while a process starts reaches this number, so `exit=` and `a0=` of the records tell
/// the measured calls from all others. `fcntl`, which makes them, is not audited.
const LOWER_DESCRIPTORS: usize = 32;

/// Repetitions of `syscalls`, and calls in each: so short that some meet neither a timer tick nor
/// a neighbour.
const REPETITIONS: u32 = 25;
const CALLS: u32 = 10_000;

/// Runs the workload that the arguments name and prints `name=value` pairs.
///
/// # Errors
/// When the file cannot be opened, or the arguments are wrong.
pub(super) fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [name, pairs] if name == OPEN_CLOSE => open_close(pairs.parse()?)?,
        [name] if name == SYSCALLS => syscalls()?,
        _ => return Err(format!("workloads: {OPEN_CLOSE} PAIRS, {SYSCALLS}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the file and closes it.
fn open_close(pairs: u32) -> Result<(), Box<dyn Error>> {
    let input = io::stdin();
    let account = File::open("/proc/self/schedstat")?;
    let mut lower = Vec::with_capacity(LOWER_DESCRIPTORS);
    for _ in 0..LOWER_DESCRIPTORS {
        lower.push(input.as_fd().try_clone_to_owned()?);
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);

    let waited = waited_ns(&account)?;
    let started = Instant::now();
    let mut descriptor = -1;
    for _ in 0..pairs {
        descriptor = options.open(FILE)?.as_raw_fd();
    }
    let elapsed = started.elapsed();
    let waited = waited_ns(&account)?.saturating_sub(waited);

    println!(
        "pid={} descriptor={descriptor} pairs={pairs} elapsed_ns={} waited_ns={waited}",
        process::id(),
        elapsed.as_nanos(),
    );
    let seconds = elapsed.as_secs_f64();
    println!(
        "{:.0} pairs/s, {:.0} ns per pair",
        f64::from(pairs) / seconds,
        seconds * 1e9 / f64::from(pairs)
    );
    Ok(())
}

/// Times calls that the rules do not select.
fn syscalls() -> Result<(), Box<dyn Error>> {
    let mut best = [Duration::MAX; TIMED.len()];
    for _ in 0..REPETITIONS {
        let times = [
            // The C library has kept no copy of the process id since glibc 2.25.
            time(|| {
                black_box(process::id());
                Ok(())
            })?,
            time(|| fs::metadata(FILE).map(|metadata| _ = black_box(metadata)))?,
            time(|| File::open(FILE).map(drop))?,
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = time.min(*best);
        }
    }
    for (name, time) in TIMED.iter().zip(best) {
        let tenths = time.as_nanos() * 10 / u128::from(CALLS);
        println!("{name}_tenths_ns={tenths}");
    }
    Ok(())
}

fn time(mut call: impl FnMut() -> io::Result<()>) -> io::Result<Duration> {
    let started = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(started.elapsed())
}

/// How long this task has waited for a CPU that others used: the second field of its `schedstat`,
/// a file that stays open because opening it would take the descriptor that is counted.
fn waited_ns(schedstat: &File) -> Result<u64, Box<dyn Error>> {
    let mut text = [0; 96];
    let length = schedstat.read_at(&mut text, 0)?;
    let text = str::from_utf8(text.get(..length).unwrap_or_default())?;
    let field = text.split_whitespace().nth(1);
    Ok(field.ok_or("`/proc/self/schedstat` is short")?.parse()?)
}
