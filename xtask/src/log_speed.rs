//! `cargo xtask log-speed`: measures how fast `tollgate-search` indexes and searches a log, in CPU time.
//!
//! Several programs, such as the builds of two commits, take turns. Each has a directory of its own
//! beside the log, with an index that is removed before its building is measured. The log is read before, so that it is in the page cache.

use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::Outcome;
use crate::repository::Repository;

/// What is measured: the first builds the index and reads no text.
const QUESTIONS: [(&str, &str); 20] = [
    ("build the index", "serial=1"),
    ("text that is absent", "text~no-such-text"),
    ("exit that is absent", "exit=-13"),
    ("exit of one event in eight", "exit=-2"),
    ("exit of most events", "exit=3"),
    ("exit not equal", "exit!=0"),
    ("exit less", "exit<-2"),
    ("pid greater", "pid>30000"),
    ("uid not equal", "uid!=root"),
    ("success that is absent", "success=no and ses=3 and exit=0"),
    ("not", "not success=yes"),
    ("argument in hex", "a2=80001"),
    ("number of a record", "inode=131074"),
    ("group of a record", "ogid=43"),
    ("part of a path", "path~/lib/partX"),
    ("directory", "dir~/user77/"),
    ("part of a program", "exe~/cc"),
    ("address", "addr~192.0.2"),
    ("type not equal", "type!=SYSCALL"),
    ("everything", ""),
];

/// Measures and prints MB of the log for each second of CPU: median, least and greatest.
///
/// # Errors
/// If an argument is invalid, or a program cannot be run.
pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Outcome {
    let [log, rounds, programs @ ..] = arguments else {
        return Err("`log-speed` takes a log, a number of rounds, and programs".into());
    };
    let log = PathBuf::from(log);
    let rounds: usize = rounds.parse()?;
    let mut programs: Vec<PathBuf> = programs.iter().map(PathBuf::from).collect();
    if programs.is_empty() {
        programs.push(repository.root.join("target/release/tollgate-search"));
    }
    let bytes = fs::read(&log)?.len();
    let mut runs = Vec::new();
    for (number, program) in programs.iter().enumerate() {
        runs.push(Run::new(program, &log, number)?);
    }
    for (name, question) in QUESTIONS {
        let mut times = vec![Vec::new(); programs.len()];
        for _ in 0..rounds {
            for (run, times) in runs.iter().zip(&mut times) {
                if question == "serial=1" {
                    run.remove_index()?;
                }
                times.push(run.cpu_time(question)?);
            }
        }
        print!("| {name} | `{question}` |");
        for times in &mut times {
            times.sort();
            let speed = |at: usize| {
                let time = times.get(at).copied().unwrap_or_default();
                megabytes(bytes) / time.as_secs_f64().max(1e-9)
            };
            print!(
                " {:.0} ({:.0} to {:.0}) |",
                speed(rounds / 2),
                speed(rounds.saturating_sub(1)),
                speed(0)
            );
        }
        println!();
    }
    Ok(std::process::ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "logs of less than 2^52 bytes")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// A program with a name of the log in a directory of its own: programs may have indexes of different formats.
struct Run {
    program: PathBuf,
    directory: PathBuf,
    /// The log, and an empty file: of several files none grows, so the log is indexed to its end.
    logs: [PathBuf; 2],
}

impl Run {
    fn new(program: &Path, log: &Path, number: usize) -> io::Result<Self> {
        let directory = log.with_extension(format!("speed-{number}"));
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        DirBuilder::new().mode(0o700).create(&directory)?;
        let logs = ["audit.log", "empty"].map(|name| directory.join(name));
        let [link, empty] = &logs;
        fs::hard_link(log, link)?;
        fs::write(empty, "")?;
        Ok(Self {
            program: program.to_owned(),
            directory,
            logs,
        })
    }

    fn remove_index(&self) -> io::Result<()> {
        let index = self.directory.join(".tollgate-index");
        if index.exists() {
            fs::remove_dir_all(&index)?;
        }
        Ok(())
    }

    /// Time of the CPU, in the program and in the kernel for it, that a search takes.
    fn cpu_time(&self, question: &str) -> Result<Duration, Box<dyn Error>> {
        let before = children()?;
        let logs = self.logs.iter();
        let logs = logs.flat_map(|log| [OsStr::new("--log"), log.as_os_str()]);
        let status = Command::new(&self.program)
            .arg("--count")
            .args(logs)
            .arg(question)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        // 1: no event was found.
        if !matches!(status.code(), Some(0 | 1)) {
            return Err(format!("`{}` {question}: {status}", self.program.display()).into());
        }
        Ok(children()?.saturating_sub(before))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _remains = fs::remove_dir_all(&self.directory);
    }
}

/// CPU time of the programs that have ended.
fn children() -> Result<Duration, nix::Error> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let duration = |time: TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(micros.try_into().unwrap_or(0))
    };
    Ok(duration(usage.user_time()) + duration(usage.system_time()))
}
