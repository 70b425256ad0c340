//! Workloads: programs in order, each with its syscalls by name.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::NativeArch;
use audit::table;
use nix::libc::{AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, O_CREAT, O_TRUNC, O_WRONLY};

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
    if number.is_none()
        && let Some(step) = with_descriptor(step)
    {
        return add(program, entry, &step);
    }
    if number.is_none() && NativeArch::BUILD != NativeArch::X86_64 {
        return Ok(program); // the tests are written for x86-64
    }
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

/// The call that a machine without calls of the first Unixes has in place of one of them.
fn with_descriptor(step: &ProgramStep) -> Option<ProgramStep> {
    let at = || Arg::from(CWD);
    let arg = |index: usize| step.args.get(index).cloned().unwrap_or_else(|| 0.into());
    let (name, args) = match step.name {
        "open" => ("openat", vec![at(), arg(0), arg(1), arg(2)]),
        "creat" => {
            let flags = O_CREAT | O_WRONLY | O_TRUNC;
            ("openat", vec![at(), arg(0), flags.into(), arg(1)])
        }
        "unlink" => ("unlinkat", vec![at(), arg(0), 0.into()]),
        "rmdir" => ("unlinkat", vec![at(), arg(0), AT_REMOVEDIR.into()]),
        "mkdir" => ("mkdirat", vec![at(), arg(0), arg(1)]),
        "mknod" => ("mknodat", vec![at(), arg(0), arg(1), arg(2)]),
        "symlink" => ("symlinkat", vec![arg(0), at(), arg(1)]),
        "link" => ("linkat", vec![at(), arg(0), at(), arg(1), 0.into()]),
        "rename" => ("renameat", vec![at(), arg(0), at(), arg(1)]),
        "chmod" => ("fchmodat", vec![at(), arg(0), arg(1)]),
        "chown" => ("fchownat", vec![at(), arg(0), arg(1), arg(2), 0.into()]),
        "lchown" => {
            let flags = AT_SYMLINK_NOFOLLOW.into();
            ("fchownat", vec![at(), arg(0), arg(1), arg(2), flags])
        }
        "access" => ("faccessat", vec![at(), arg(0), arg(1)]),
        "stat" => ("newfstatat", vec![at(), arg(0), arg(1), 0.into()]),
        "lstat" => {
            let flags = AT_SYMLINK_NOFOLLOW.into();
            ("newfstatat", vec![at(), arg(0), arg(1), flags])
        }
        "readlink" => ("readlinkat", vec![at(), arg(0), arg(1), arg(2)]),
        "pipe" => ("pipe2", vec![arg(0), 0.into()]),
        _ => return None,
    };
    Some(ProgramStep {
        name,
        args,
        saved: step.saved,
        stores: step.stores.clone(),
    })
}

/// Rules without the syscalls that this machine does not have.
pub(crate) fn rules_of_this_machine(text: &str) -> String {
    let mut rules = String::new();
    for line in text.lines() {
        let arch = if line.contains("arch=b32") {
            NativeArch::BUILD.b32()
        } else {
            NativeArch::BUILD.b64()
        };
        let known = |name: &&str| table::syscall_number(arch, name.as_bytes()).is_some();
        let words: Vec<String> = line
            .split(' ')
            .map(
                |word| match word.contains(',') && !word.contains("always") {
                    true => word.split(',').filter(known).collect::<Vec<_>>().join(","),
                    false => word.to_owned(),
                },
            )
            .collect();
        rules += &words.join(" ");
        rules.push('\n');
    }
    rules
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
