//! The workloads of this program; each runs in its own unprivileged process.
//!
//! `--workload` runs them; they print `name=value` words.

pub(crate) mod peers;

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::observer;
use peers::TreeSize;

/// The option that runs a workload.
pub(crate) const WORKLOAD_OPTION: &str = "--workload";
/// Name of the file that workloads open in their working directory.
pub(crate) const FILE: &str = "file1";
/// Open and close a file: `open-close PAIRS`.
pub(crate) const OPEN_CLOSE: &str = "open-close";
/// The same for some time: `load MILLISECONDS`.
pub(crate) const LOAD: &str = "load";
/// Make probe calls and watch a log, standard input: `observe MILLISECONDS`.
pub(crate) const OBSERVE: &str = "observe";
/// Time syscalls: `calls CALLS FILE-TO-WRITE`.
pub(crate) const CALLS: &str = "calls";
/// The `io_uring` workload, a program: `nop|read enter|sqpoll MILLISECONDS FILE`.
pub(crate) const URING_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/workload-uring"));
/// Delete files with numbers as names in the working directory: `delete FILES`.
pub(crate) const DELETE: &str = "delete";
/// Read records as a plugin of auditd and count events.
pub(crate) const PLUGIN: &str = "plugin";

/// Make what a workload of [`peers`] reads: `prepare NAME DIRECTORY TASKS AMOUNT DIRECTORIES FILES`.
pub(crate) const PREPARE: &str = "prepare";
/// Run tasks of such a workload at once: `tasks TASKS NAME DIRECTORY AMOUNT`.
pub(crate) const TASKS: &str = "tasks";
/// One of these tasks: `task NAME DIRECTORY AMOUNT NUMBER`.
const TASK: &str = "task";

/// Names under which `calls` prints nanoseconds.
pub(crate) const TIMED: [&str; 5] = ["getpid", "stat", "read", "open", "write"];

/// Duplicates of standard input that occupy the descriptors below the measured one. No descriptor of process
/// startup is that high, so `exit=` and `a0=` select the measured calls. `fcntl` makes them; it is not audited.
const RESERVED_DESCRIPTORS: usize = 32;

/// Repetitions of `calls`, short enough that some see neither a timer tick nor another task.
const REPETITIONS: u32 = 25;
/// An open takes ten times as long as the shortest call.
const FEWER_OPENS: u32 = 10;

/// Runs a workload.
///
/// # Errors
/// When it fails, or the words are wrong.
pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let count = |text: &str| text.parse::<u32>().context("not a number");
    match words[..] {
        [OPEN_CLOSE, pairs] => open_close(count(pairs)?),
        [LOAD, ms] => load(Duration::from_millis(count(ms)?.into())),
        [OBSERVE, ms] => observer::observe(Duration::from_millis(count(ms)?.into())),
        [CALLS, calls, written] => timed(count(calls)?, Path::new(written)),
        [DELETE, files] => delete(count(files)?),
        [PLUGIN, ..] => plugin(),
        [PREPARE, name, directory, tasks, amount, directories, files] => {
            let tree = TreeSize {
                directories: count(directories)?,
                files: count(files)?,
            };
            peers::prepare(
                name,
                Path::new(directory),
                count(tasks)?,
                count(amount)?,
                tree,
            )
        }
        [TASKS, tasks, ref words @ ..] => peers::run_tasks(count(tasks)?, words),
        [TASK, name, directory, amount, number] => {
            peers::task(name, Path::new(directory), count(amount)?, count(number)?)
        }
        _ => bail!(
            "workloads: {OPEN_CLOSE}, {LOAD}, {OBSERVE}, {CALLS}, {DELETE}, {PLUGIN}, {PREPARE}, {TASKS}, {TASK}"
        ),
    }
}

/// Prints the result.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot print the result")
}

/// Opens and closes the file.
fn open_close(pairs: u32) -> anyhow::Result<()> {
    let input = io::stdin();
    let account = File::open("/proc/self/schedstat")?;
    let mut lower = Vec::with_capacity(RESERVED_DESCRIPTORS);
    for _ in 0..RESERVED_DESCRIPTORS {
        lower.push(input.as_fd().try_clone_to_owned()?);
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true);

    let waited = runqueue_wait_ns(&account)?;
    let started = Instant::now();
    let mut descriptor = -1;
    for _ in 0..pairs {
        descriptor = options.open(FILE)?.as_raw_fd();
    }
    let elapsed = started.elapsed();
    let waited = runqueue_wait_ns(&account)?.saturating_sub(waited);
    print(&format!(
        "pid={} descriptor={descriptor} pairs={pairs} elapsed_ns={} waited_ns={waited}\n",
        process::id(),
        elapsed.as_nanos(),
    ))
}

/// Opens and closes the file until the time is over.
fn load(time: Duration) -> anyhow::Result<()> {
    // Between two checks of the clock.
    const PAIRS: u32 = 100;
    let began = Instant::now();
    while began.elapsed() < time {
        for _ in 0..PAIRS {
            drop(File::open(FILE)?);
        }
    }
    Ok(())
}

/// Times syscalls. `written` is opened for writing.
fn timed(calls: u32, written: &Path) -> anyhow::Result<()> {
    let zeros = File::open("/dev/zero")?;
    let mut byte = [0; 1];
    let mut to_write = OpenOptions::new();
    to_write.write(true);
    let opens = (calls / FEWER_OPENS).max(1);
    let mut best = [f64::INFINITY; TIMED.len()];
    for _ in 0..REPETITIONS {
        let times = [
            // glibc does not cache the process id since 2.25.
            time(calls, || {
                black_box(process::id());
                Ok(())
            })?,
            time(calls, || {
                fs::metadata(FILE).map(|about| _ = black_box(about))
            })?,
            time(calls, || (&zeros).read_exact(&mut byte))?,
            time(opens, || File::open(FILE).map(drop))?,
            time(opens, || to_write.open(written).map(drop))?,
        ];
        for (best, time) in best.iter_mut().zip(times) {
            *best = time.min(*best);
        }
    }
    let words: Vec<String> = TIMED
        .iter()
        .zip(best)
        .map(|(name, ns)| format!("{name}={ns:.1}\n"))
        .collect();
    print(&words.concat())
}

/// Nanoseconds per call.
fn time(calls: u32, mut call: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e9 / f64::from(calls))
}

fn delete(files: u32) -> anyhow::Result<()> {
    let started = Instant::now();
    for number in 0..files {
        fs::remove_file(number.to_string())?;
    }
    let elapsed = started.elapsed().as_secs_f64();
    print(&format!(
        "pid={} rate={:.0}\n",
        process::id(),
        f64::from(files) / elapsed
    ))
}

/// Reads records until end of file and writes the count beside the log.
fn plugin() -> anyhow::Result<()> {
    // auditd sends SIGTERM to plugins before it closes their input.
    let term = SigSet::from(Signal::SIGTERM);
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&term), None)?;
    let mut events = 0_u64;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? != 0 {
        events += u64::from(line.starts_with(b"type=SYSCALL "));
        line.clear();
    }
    let program = std::env::current_exe()?;
    let work = program
        .parent()
        .context("cannot find the directory of this program")?;
    ensure!(
        work.join("log").is_dir(),
        "this is not the work directory of a benchmark"
    );
    // Renamed, so that a reader sees the whole file.
    let part = work.join("log/plugin.part");
    fs::write(&part, format!("{events}\n"))?;
    fs::rename(part, work.join("log/plugin"))?;
    Ok(())
}

/// Run-queue wait of this task: the second field of `schedstat`. The file stays open, because opening it would
/// change the measured descriptor.
fn runqueue_wait_ns(schedstat: &File) -> anyhow::Result<u64> {
    let mut text = [0; 96];
    let length = schedstat.read_at(&mut text, 0)?;
    let text = str::from_utf8(text.get(..length).unwrap_or_default())?;
    let field = text.split_whitespace().nth(1);
    Ok(field.context("`/proc/self/schedstat` is short")?.parse()?)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;
    use crate::work_dir::{output, parse_value};

    #[test]
    fn invalid_arguments_are_refused() {
        for words in [
            &["frobnicate"][..],
            &[OPEN_CLOSE],
            &[OPEN_CLOSE, "many"],
            &[],
        ] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert!(run(&words).is_err(), "{words:?}");
        }
    }

    /// Some containers forbid `io_uring`: then `cargo xtask` counts the test as skipped.
    #[test]
    fn uring_runs_both_operations_in_both_ways() {
        let place = tempfile::tempdir().unwrap();
        let (program, file) = (place.path().join("uring"), place.path().join("file"));
        fs::write(&program, URING_PROGRAM).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let run = |operation, submission| {
            loop {
                let mut command = Command::new(&program);
                let result = output(command.args([operation, submission, "15"]).arg(&file));
                // A process that another test forks has the program open for writing until its `execve`.
                if !matches!(&result, Err(why) if format!("{why:#}").contains("Text file busy")) {
                    return result;
                }
            }
        };
        let is_forbidden = |why: &str| {
            ["Operation not permitted", "Function not implemented"]
                .iter()
                .any(|errno| why.contains(errno))
        };
        fs::write(&file, [7; 3 * 4096]).unwrap();
        for submission in ["enter", "sqpoll"] {
            for operation in ["nop", "read"] {
                match run(operation, submission) {
                    Ok(printed) => assert!(parse_value(&printed, "rate").unwrap() > 0.0),
                    Err(why) => {
                        assert!(is_forbidden(&why.to_string()), "{why}");
                        let line = b"\nskipped: uring: io_uring is forbidden\n";
                        return io::stdout().write_all(line).unwrap();
                    }
                }
            }
        }
        assert!(run("read", "call").is_err());
        fs::write(&file, "").unwrap();
        assert!(run("read", "enter").is_err(), "an empty file");
    }

    #[test]
    fn calls_are_timed_as_often_as_requested() {
        let mut calls = 0;
        let ns = time(7, || {
            calls += 1;
            Ok(())
        });
        assert!(ns.unwrap() >= 0.0);
        assert_eq!(calls, 7);
    }
}
