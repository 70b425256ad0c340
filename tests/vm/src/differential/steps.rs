//! Workloads: programs in order, each with its syscalls by name.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::table;

use super::GROUP;
use crate::machine::USER;
use crate::program::{Arg, Entry, Program};

/// The directory of workloads. Many syscalls have its absolute name.
pub(crate) const PLACE: &str = "/tmp/w";

/// `AT_FDCWD`: names are relative to the working directory.
pub(crate) const CWD: i32 = -100;

/// The user of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunAs {
    /// Root.
    Root,
    /// [`USER`].
    User,
}

/// A program.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) user: RunAs,
    pub(crate) entry: Entry,
    pub(crate) steps: Vec<ProgramStep>,
}

/// A syscall.
#[derive(Clone, Debug)]
pub(crate) struct ProgramStep {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<Arg>,
    pub(crate) saved: Option<&'static str>,
    /// Words that are written to memory before the syscall.
    pub(crate) stores: Vec<Store>,
}

/// A word, and its address as an offset from the result of a syscall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) base: &'static str,
    pub(crate) at: u64,
    pub(crate) word: u64,
}

/// A syscall: its name, then its arguments.
macro_rules! step {
    ($name:literal $(, $arg:expr)* $(,)?) => {
        $crate::differential::steps::ProgramStep {
            name: $name,
            args: $crate::program::args![$($arg),*],
            saved: None,
            stores: Vec::new(),
        }
    };
}
pub(crate) use step;

impl ProgramStep {
    /// Saves the result for [`Arg::Saved`].
    pub(crate) const fn save(mut self, name: &'static str) -> Self {
        self.saved = Some(name);
        self
    }

    /// Writes words to memory before the syscall.
    pub(crate) fn storing(mut self, stores: Vec<Store>) -> Self {
        self.stores = stores;
        self
    }
}

/// The concatenated bytes of numbers.
pub(crate) fn numbers<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Arg {
    Arg::Bytes(numbers.into_iter().flatten().collect())
}

/// A program that makes these syscalls, in the table of its entry.
///
/// # Errors
/// If the table has no such syscall.
pub(crate) fn program(entry: Entry, steps: &[ProgramStep]) -> anyhow::Result<Program> {
    let mut program = Program::new(entry);
    for step in steps {
        program = add(program, entry, step)?;
    }
    Ok(program)
}

/// Adds a syscall of the table of this entry.
///
/// # Errors
/// If the table has no such syscall.
pub(crate) fn add(
    mut program: Program,
    entry: Entry,
    step: &ProgramStep,
) -> anyhow::Result<Program> {
    let number = table::syscall_number(entry.arch(), step.name.as_bytes());
    let number = number.with_context(|| format!("no syscall `{}`", step.name))?;
    for &Store { base, at, word } in &step.stores {
        program = program.store(Some(base), at, word);
    }
    program = program.call(number.0, step.args.clone());
    Ok(match step.saved {
        Some(name) => program.save(name),
        None => program,
    })
}

/// Runs the programs in a new directory; returns their process ids.
///
/// # Errors
/// If one cannot be written or started, or fails.
pub(crate) fn run(test: &str, runs: &[Run]) -> anyhow::Result<Vec<u32>> {
    make_directory().context("cannot create the working directory")?;
    let pids = run_in_directory(test, runs);
    std::env::set_current_dir("/").context("cannot leave the working directory")?;
    pids
}

/// Each program inherits the working directory: no rule may match a syscall before its `execve`, or the kernel
/// would keep this process's command line for it.
fn run_in_directory(test: &str, runs: &[Run]) -> anyhow::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let path = program(run.entry, &run.steps)?.install(&format!("{test}{number}"))?;
        let uid = if run.user == RunAs::Root { 0 } else { USER };
        let mut child = Command::new(&path)
            .args(["word", "two words"])
            .uid(uid)
            .gid(GROUP)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", path.display()))?;
        let status = child.wait().context("cannot wait for a workload")?;
        ensure!(status.success(), "{} ended with {status}", path.display());
        pids.push(child.id());
    }
    Ok(pids)
}

/// Creates the files of workloads. This process has another group and is not audited.
fn make_directory() -> std::io::Result<()> {
    match fs::remove_dir_all(PLACE) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir(PLACE)?,
    }
    std::env::set_current_dir(PLACE)?;
    for (directory, mode) in [
        (".", 0o777),
        ("sub", 0o777),
        ("full", 0o777),
        ("own", 0o700),
    ] {
        fs::create_dir_all(directory)?;
        fs::set_permissions(directory, Permissions::from_mode(mode))?;
    }
    for (file, mode) in [
        ("file", 0o644),
        ("other", 0o666),
        ("secret", 0o600),
        ("full/file", 0o644),
        ("own/file", 0o644),
        ("sub/below", 0o644),
    ] {
        fs::write(file, "text\n")?;
        fs::set_permissions(file, Permissions::from_mode(mode))?;
    }
    chown("other", Some(USER), Some(GROUP))?;
    for (script, text) in [
        ("script", "#!/bin/busybox true\n"),
        ("nested", "#!/tmp/w/script word and word\n"),
        ("orphan", "#!/missing\n"),
        ("text", "text\n"),
    ] {
        fs::write(script, text)?;
        fs::set_permissions(script, Permissions::from_mode(0o755))?;
    }
    fs::copy("/bin/busybox", "busybox")?;
    for (target, link) in [
        ("file", "link"),
        ("nowhere", "dangling"),
        ("loop", "loop"),
        ("sub", "way"),
        ("busybox", "linked"),
    ] {
        symlink(target, link)?;
    }
    Ok(())
}
