//! Files for the rules: watched paths, and files whose access succeeds, is denied by mode, and is denied to all.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use audit::ids::Arch;
use audit::rule::{Command as Asked, Field, RuleHost, Value, parse_file};
use bstr::ByteSlice as _;

use crate::differential::steps::{numbers, program, step};
use crate::lists::LastEvent;
use crate::program::{Arg, Entry, Program};

/// User, group and login uid of a task if a rule requires none.
pub(super) const ID: u32 = 1000;

/// Directory of programs and files that no rule names.
pub(super) const PLACE: &str = "/tmp/rulesets";
/// A file that its owner may access.
pub(super) const FREE: &str = "/tmp/rulesets/free/file";
/// A file below a directory that only root may enter.
pub(super) const LOCKED: &str = "/tmp/rulesets/locked/file";
/// An immutable file in an immutable directory.
pub(super) const FIXED: &str = "/tmp/rulesets/fixed/file";
/// A program that exits.
pub(super) const END: &str = "/tmp/rulesets/end";
/// Names of a file that everybody may change and of a file that only root may open, in each watched directory.
pub(super) const OPEN_NAME: &str = "tollgate-open";
pub(super) const CLOSED_NAME: &str = "tollgate-closed";

/// Directories into which `cargo xtask vm` packs rule files.
const OWN: &str = "/rulesets/own";
const PUBLIC: &str = "/rulesets/public";

/// The host for which rules are parsed.
pub(super) struct MachineHost;

/// Users in rules. Loaded rules have their numbers.
const USERS: [(&str, u32); 3] = [("root", 0), ("chrony", 990), ("ntp", 991)];

impl RuleHost for MachineHost {
    fn uid(&self, name: &[u8]) -> Option<u32> {
        let known = USERS.iter().find(|(user, _)| user.as_bytes() == name);
        known.map(|&(_, uid)| uid)
    }

    fn gid(&self, name: &[u8]) -> Option<u32> {
        (name == b"root").then_some(0)
    }

    fn is_directory(&self, path: &[u8]) -> bool {
        path.to_path().is_ok_and(Path::is_dir)
    }

    fn native(&self) -> Arch {
        Arch::X86_64
    }
}

/// Rule files of the repository.
pub(super) fn own() -> anyhow::Result<Vec<PathBuf>> {
    let files = rule_files(Path::new(OWN))?;
    ensure!(!files.is_empty(), "no rule file in the initramfs");
    Ok(files)
}

/// Rule files of public sets; none if they were not packed.
pub(super) fn public() -> anyhow::Result<Vec<PathBuf>> {
    rule_files(Path::new(PUBLIC))
}

/// Files below a directory, sorted.
fn rule_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        if !directory.exists() {
            continue;
        }
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Creates the files that the rules of all files name.
pub(super) fn prepare() -> anyhow::Result<()> {
    LastEvent::prepare()?;
    if Path::new(FIXED).exists() {
        return Ok(());
    }
    places().context("cannot create the working directories")?;
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for path in own()?.into_iter().chain(public()?) {
        let text = fs::read(path).context("cannot read a rule file")?;
        for (path, is_directory) in watched(&text) {
            if is_directory {
                directories.push(path);
            } else {
                files.push(path);
            }
        }
    }
    // A directory of one rule may contain a file of another.
    for path in &directories {
        directory(path).with_context(|| format!("cannot make {}", path.display()))?;
    }
    for path in &files {
        file(path, 0o777).with_context(|| format!("cannot make {}", path.display()))?;
    }
    fix().context("cannot create an immutable file")
}

/// Paths in rules, and whether they are directories: those that end with a slash.
fn watched(text: &[u8]) -> Vec<(PathBuf, bool)> {
    let (lines, _) = parse_file(text, &MachineHost);
    let mut paths = Vec::new();
    for line in lines {
        let Asked::Add { rule, .. } = line.command else {
            continue;
        };
        for test in rule.fields {
            if let (Field::Path | Field::Dir | Field::Exe, Value::Text(path)) =
                (test.field, test.value)
                && path.starts_with(b"/")
            {
                let with_slash = [path.as_slice(), b"/"].concat();
                let is_directory = test.field == Field::Dir || text.contains_str(&with_slash);
                paths.push((path.to_path_lossy().into_owned(), is_directory));
            }
        }
    }
    paths
}

/// Creates a directory with a file that everybody may change and a file that only root may open.
fn directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    file(&path.join(OPEN_NAME), 0o777)?;
    file(&path.join(CLOSED_NAME), 0o600)
}

/// Creates a program that exits at once, unless the path exists.
fn file(path: &Path, mode: u32) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Program::new(Entry::Syscall).write(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn places() -> io::Result<()> {
    for (path, mode, owner) in [(FREE, 0o777, ID), (LOCKED, 0o700, 0), (FIXED, 0o777, 0)] {
        let path = Path::new(path);
        file(path, 0o777)?;
        chown(path, Some(owner), Some(owner))?;
        if let Some(directory) = path.parent() {
            chown(directory, Some(owner), Some(owner))?;
            fs::set_permissions(directory, Permissions::from_mode(mode))?;
        }
    }
    file(Path::new(END), 0o755)
}

/// Makes a file and its directory immutable.
///
/// # Source
/// `FS_IOC_SETFLAGS` and `FS_IMMUTABLE_FL` in `include/uapi/linux/fs.h`, Linux 6.12.
fn fix() -> anyhow::Result<()> {
    const FS_IOC_SETFLAGS: i64 = 0x4008_6602;
    const FS_IMMUTABLE_FL: u64 = 0x10;
    let flags = || numbers([FS_IMMUTABLE_FL.to_ne_bytes()]);
    let steps = [
        step!("open", FIXED, 0),
        step!("ioctl", Arg::Result, FS_IOC_SETFLAGS, flags()),
        step!("open", "/tmp/rulesets/fixed", 0),
        step!("ioctl", Arg::Result, FS_IOC_SETFLAGS, flags()),
    ];
    let path = Path::new(PLACE).join("fix");
    program(Entry::Syscall, &steps)?.write(&path)?;
    let status = Command::new(&path).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{} ended with {status}", path.display());
    let refused = fs::OpenOptions::new().write(true).open(FIXED).is_err();
    ensure!(refused, "{FIXED} can be changed");
    Ok(())
}
