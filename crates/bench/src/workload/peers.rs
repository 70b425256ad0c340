//! The workloads of eAudit's evaluation, written anew: they find files, read a tree, start programs, read and
//! write single bytes, and work on small files as a mail server does.
//!
//! A workload is a number of tasks, processes that begin at the same moment. Files and transactions come from
//! generators with fixed seeds, so that all machines run the same. Everything is below one directory, in memory.
//! Each task counts the calls that it makes for certain, to be compared with the log.
//!
//! # Source
//! `eval/README.md` of eAudit, <https://github.com/ugswork/eaudit>, commit 77d66d9, which names what each does.

mod files;
mod postmark;
mod random;

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, bail};

use super::{TASK, WORKLOAD_OPTION, print};
use files::{TREE, archive, find, make_tree};
use postmark::Postmark;
use random::Random;

pub(crate) use files::TreeSize;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Lists the files of a tree; an amount is a pass.
    Find,
    /// Reads the files of a tree, as for an archive; an amount is a pass.
    Tar,
    /// Starts programs one after another; an amount is a program.
    Programs,
    /// Reads and writes bytes one by one; an amount is a byte.
    ReadWrite,
    /// Creates, appends to, reads and deletes small files; an amount is a transaction.
    Postmark,
}

/// A short program of every Linux system.
const PROGRAM: &str = "/bin/echo";
/// What a task prints before its calls.
const CALLS: &str = "calls=";
/// Bytes that are read or written at once.
const BLOCK_BYTES: usize = 4096;

impl Workload {
    const ALL: [Self; 5] = [
        Self::Find,
        Self::Tar,
        Self::Programs,
        Self::ReadWrite,
        Self::Postmark,
    ];

    /// Its name on the command line of a task.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Tar => "tar",
            Self::Programs => "programs",
            Self::ReadWrite => "readwrite",
            Self::Postmark => "postmark",
        }
    }

    /// Makes the files that the tasks read.
    fn prepare(self, directory: &Path, tasks: u32, amount: u32, tree: TreeSize) -> io::Result<()> {
        match self {
            Self::Find | Self::Tar => make_tree(directory, tree),
            Self::ReadWrite => (0..tasks).try_for_each(|task| {
                let bytes = Random::new(task).bytes(amount);
                fs::write(directory.join(format!("in{task}")), bytes)
            }),
            Self::Programs | Self::Postmark => Ok(()),
        }
    }

    /// Does the work of a task; returns the number of calls that it has made at least.
    fn run(self, directory: &Path, task: u32, amount: u32) -> anyhow::Result<u64> {
        Ok(match self {
            Self::Find => {
                let mut calls = 0;
                for _ in 0..amount {
                    calls += find(&directory.join(TREE))?;
                }
                calls
            }
            Self::Tar => {
                let mut calls = 0;
                for _ in 0..amount {
                    calls += archive(&directory.join(TREE))?;
                }
                calls
            }
            Self::Programs => start_programs(amount)?,
            Self::ReadWrite => {
                let [input, output] =
                    ["in", "out"].map(|name| directory.join(format!("{name}{task}")));
                copy_bytes(&input, &output, amount)?
            }
            Self::Postmark => {
                Postmark::new(directory.join(format!("mail{task}")), task)?.run(amount)?
            }
        })
    }
}

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.with_context(|| format!("no workload is called `{name}`"))
    }
}

/// Makes the files that the tasks of a workload read, if they are not there yet.
///
/// # Errors
/// When they cannot be written.
pub(super) fn prepare(
    name: &str,
    directory: &Path,
    tasks: u32,
    amount: u32,
    tree: TreeSize,
) -> anyhow::Result<()> {
    let workload: Workload = name.parse()?;
    workload
        .prepare(directory, tasks, amount, tree)
        .with_context(|| format!("cannot make files in `{}`", directory.display()))
}

/// Runs tasks at once; prints the time from the release of all until the end of the last one, and their calls.
///
/// # Errors
/// When a task fails.
pub(super) fn run_tasks(tasks: u32, words: &[&str]) -> anyhow::Result<()> {
    let mut waiting = Vec::new();
    for task in 0..tasks {
        waiting.push(WaitingTask::start(words, task)?);
    }
    let began = Instant::now();
    let running: Vec<Child> = waiting.into_iter().map(WaitingTask::release).collect();
    let mut calls = 0;
    let mut outputs = Vec::new();
    for mut task in running {
        let mut printed = String::new();
        if let Some(output) = &mut task.stdout {
            output
                .read_to_string(&mut printed)
                .context("cannot read the output of a task")?;
        }
        outputs.push((task, printed));
    }
    let elapsed = began.elapsed();
    for (mut task, printed) in outputs {
        let status = task.wait().context("cannot wait for a task")?;
        if !status.success() {
            bail!("a task of `{}` failed: {status}", words.join(" "));
        }
        let counted = printed.trim().strip_prefix(CALLS).map(str::parse::<u64>);
        calls += counted.context("a task printed no calls")??;
    }
    print(&format!(
        "elapsed_ns={} {CALLS}{calls}\n",
        elapsed.as_nanos()
    ))
}

/// A task: says that it is ready, waits for the end of standard input, and works.
///
/// # Errors
/// When its work fails.
pub(super) fn task(name: &str, directory: &Path, amount: u32, task: u32) -> anyhow::Result<()> {
    let workload: Workload = name.parse()?;
    print("\n")?;
    io::stdin()
        .read_to_end(&mut Vec::new())
        .context("cannot wait for the other tasks")?;
    let calls = workload
        .run(directory, task, amount)
        .with_context(|| format!("cannot run `{name}` in `{}`", directory.display()))?;
    print(&format!("{CALLS}{calls}\n"))
}

/// A task that waits for the others.
struct WaitingTask {
    child: Child,
    input: ChildStdin,
}

impl WaitingTask {
    /// Starts a task and waits until it is ready.
    fn start(words: &[&str], task: u32) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args([WORKLOAD_OPTION, TASK])
            .args(words)
            .arg(task.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a task")?;
        let input = child.stdin.take().context("a task has no input")?;
        let output = child.stdout.as_mut().context("a task has no output")?;
        output
            .read_exact(&mut [0])
            .context("a task has not started")?;
        Ok(Self { child, input })
    }

    fn release(self) -> Child {
        drop(self.input);
        self.child
    }
}

/// Starts programs; each is at least a fork and an exec.
fn start_programs(programs: u32) -> anyhow::Result<u64> {
    for number in 0..programs {
        let status = Command::new(PROGRAM)
            .arg(number.to_string())
            // Locales of this machine would be read.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("cannot run `{PROGRAM}`"))?;
        if !status.success() {
            bail!("`{PROGRAM}` {status}");
        }
    }
    Ok(u64::from(programs) * 2)
}

/// Copies a file byte by byte.
fn copy_bytes(input: &Path, output: &Path, bytes: u32) -> io::Result<u64> {
    let (mut input, mut output) = (File::open(input)?, File::create(output)?);
    let mut byte = [0];
    for _ in 0..bytes {
        input.read_exact(&mut byte)?;
        output.write_all(&byte)?;
    }
    Ok(u64::from(bytes) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE_SIZE: TreeSize = TreeSize {
        directories: 5,
        files: 20,
    };

    #[test]
    fn workloads_make_the_calls_that_they_count() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path();
        let run = |workload: Workload, amount| {
            prepare(workload.name(), directory, 1, amount, TREE_SIZE).unwrap();
            workload.run(directory, 0, amount).unwrap()
        };
        // The names fit in one write.
        assert_eq!(run(Workload::Find, 2), 2 * (2 * 5 + 1));
        let blocks = {
            let mut bytes = 0;
            let mut file_reads = 0;
            files::walk(&directory.join(TREE), |file| {
                let length = file.metadata()?.len();
                bytes += length;
                file_reads += if length == 0 { 1 } else { 2 };
                Ok(())
            })
            .unwrap();
            (bytes, file_reads)
        };
        let counted = run(Workload::Tar, 1);
        let of_reading = 2 * 5 + 2 * 20 + blocks.1;
        assert!(
            (1..=20).contains(&(counted - of_reading)),
            "{counted} {blocks:?}"
        );
        assert_eq!(run(Workload::Programs, 2), 4);
        assert_eq!(run(Workload::ReadWrite, 9), 18);
        let [read, written] = ["in0", "out0"].map(|name| fs::read(directory.join(name)).unwrap());
        assert_eq!((read.len(), &read), (9, &written));
        assert!(run(Workload::Postmark, 50) > 800 * 4);
        assert!(!directory.join("mail0").exists());
    }

    #[test]
    fn tree_is_the_same_on_each_machine() {
        let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = places.each_ref().map(|place| {
            make_tree(place.path(), TREE_SIZE).unwrap();
            let mut found = Vec::new();
            files::walk(&place.path().join(TREE), |file| {
                let name = file.strip_prefix(place.path()).unwrap().to_owned();
                found.push((name, fs::read(file)?));
                Ok(())
            })
            .unwrap();
            found.sort();
            found
        });
        assert_eq!(one.len(), 20);
        assert_eq!(one, other);
        // The first number of splitmix64 with seed 0.
        assert_eq!(
            Random::new(0).bytes(8),
            0xe220_a839_7b1d_cdaf_u64.to_le_bytes()
        );
        assert_eq!(Random::new(0).below(0), 0);
    }

    #[test]
    fn unknown_workload_is_refused() {
        let error = prepare("frobnicate", Path::new("/"), 1, 1, TREE_SIZE).unwrap_err();
        assert!(error.to_string().contains("`frobnicate`"), "{error}");
    }
}
