//! The workload of a list: the same syscalls for each list, by its own task in its own directory.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::calls::{O_WRONLY, narrow, wide};
use crate::differential::steps::{ProgramStep, numbers, program, step};
use crate::differential::uring::{Layout, Queue, on_files};
use crate::program::{Arg, Entry, Program, args};

/// Parent of the lists' directories.
pub(crate) const PLACES: &str = "/tmp/tollgate-lists";

/// First id of the first list; each list has [`IDS`] ids, which no user has.
const FIRST_ID: u32 = 600_000;
const IDS: u32 = 16;

/// The workload of a list: its ids and its directory.
#[derive(Clone, Debug)]
pub(crate) struct ListWorkload {
    /// Its number.
    pub(crate) number: u32,
    /// Its first id; the methods below name the others.
    pub(crate) ids: u32,
    /// Its directory.
    pub(crate) place: String,
}

impl ListWorkload {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            ids: FIRST_ID + number * IDS,
            place: format!("{PLACES}/{number}"),
        }
    }

    pub(crate) const fn uid(&self) -> u32 {
        self.ids
    }

    pub(crate) const fn euid(&self) -> u32 {
        self.ids + 1
    }

    pub(crate) const fn suid(&self) -> u32 {
        self.ids + 2
    }

    pub(crate) const fn gid(&self) -> u32 {
        self.ids + 4
    }

    pub(crate) const fn egid(&self) -> u32 {
        self.ids + 5
    }

    pub(crate) const fn sgid(&self) -> u32 {
        self.ids + 6
    }

    /// A supplementary group; the next number is another one.
    pub(crate) const fn group(&self) -> u32 {
        self.ids + 8
    }

    pub(crate) const fn auid(&self) -> u32 {
        self.ids + 10
    }

    /// Conditions that only the list's task meets.
    pub(crate) fn scopes(&self) -> [String; 7] {
        [
            format!("uid={}", self.uid()),
            format!("suid={}", self.suid()),
            format!("gid={}", self.gid()),
            format!("sgid={}", self.sgid()),
            format!("gid={}", self.group()),
            format!("egid={}", self.group() + 1),
            format!("auid={}", self.auid()),
        ]
    }

    /// Inode number and device of a permanent file.
    pub(crate) fn kept(&self) -> Option<(u64, u64)> {
        let kept = fs::metadata(format!("{}/kept", self.place)).ok()?;
        Some((kept.ino(), kept.dev()))
    }

    /// Creates the directory and its files.
    pub(crate) fn prepare(&self, layout: Layout) -> anyhow::Result<()> {
        self.make_files()?;
        for (name, entry) in PROGRAMS {
            self.write(name, entry, &self.steps(entry))?;
        }
        self.write(RING, Entry::Syscall, &self.ring(layout))
    }

    fn write(&self, name: &str, entry: Entry, steps: &[ProgramStep]) -> anyhow::Result<()> {
        program(entry, steps)?
            .write(&self.at(name))
            .with_context(|| format!("cannot write {}/{name}", self.place))
    }

    /// Creates the directory and its files but the programs.
    pub(crate) fn make_files(&self) -> anyhow::Result<()> {
        self.make()
            .with_context(|| format!("cannot create the files in {}", self.place))
    }

    /// A path in the directory.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        Path::new(&self.place).join(name)
    }

    fn make(&self) -> std::io::Result<()> {
        for (directory, owner) in [
            ("", self.euid()),
            ("sub", self.euid()),
            ("full", self.euid()),
            ("theirs", 0),
        ] {
            fs::create_dir_all(self.at(directory))?;
            chown(self.at(directory), Some(owner), Some(self.egid()))?;
        }
        for (name, mode, owner) in [
            ("file", 0o644, self.euid()),
            ("kept", 0o666, self.suid()),
            ("other", 0o644, 0),
            ("secret", 0o600, 0),
            ("text", 0o755, self.euid()),
            ("sub/below", 0o644, self.euid()),
            ("full/file", 0o644, self.suid()),
            ("theirs/file", 0o644, 0),
        ] {
            fs::write(self.at(name), "text\n")?;
            chown(self.at(name), Some(owner), Some(self.group()))?;
            fs::set_permissions(self.at(name), Permissions::from_mode(mode))?;
        }
        fs::hard_link(self.at("kept"), self.at("twin"))?;
        for (target, link) in [("kept", "link"), ("nowhere", "dangling"), ("sub", "way")] {
            symlink(target, self.at(link))?;
        }
        let end = Program::new(Entry::Syscall)
            .call(2, args!["kept", 0, 0])
            .call(231, args![3]);
        end.write(&self.at("end"))
    }

    /// Runs the programs of a list; returns their process ids.
    pub(crate) fn run(&self, subject: ListSubject) -> anyhow::Result<Vec<u32>> {
        let names: &[&str] = match subject {
            ListSubject::Calls => &PROGRAMS.map(|(name, _)| name),
            ListSubject::Operations => &[RING],
        };
        let mut pids = Vec::new();
        for name in names {
            let path = self.at(name);
            let mut child = Command::new(&path)
                .args(["word", "two words"])
                .current_dir(&self.place)
                .stdin(Stdio::null())
                .spawn()
                .with_context(|| format!("cannot start {}", path.display()))?;
            let status = child.wait().context("cannot wait for a workload")?;
            ensure!(
                status.code() == Some(3),
                "{} ended with {status}",
                path.display()
            );
            pids.push(child.id());
        }
        Ok(pids)
    }

    fn steps(&self, entry: Entry) -> Vec<ProgramStep> {
        let mut steps = self.set_ids(entry);
        steps.extend(if entry == Entry::Syscall {
            wide(self)
        } else {
            narrow(self)
        });
        steps.push(step!("execve", "end", Arg::Texts(&["end", "of it"]), 0));
        steps
    }

    /// `io_uring` operations, run by the program and then by a worker.
    fn ring(&self, layout: Layout) -> Vec<ProgramStep> {
        let mut steps = self.set_ids(Entry::Syscall);
        let mut queue = Queue::new(layout, false);
        steps.extend(queue.made());
        for by_worker in [false, true] {
            let operations = on_files().into_iter();
            steps.extend(operations.map(|operation| queue.give(operation, by_worker)));
        }
        steps.push(step!("exit_group", 3));
        steps
    }

    /// Sets the ids of the list, which drops all privileges.
    fn set_ids(&self, entry: Entry) -> Vec<ProgramStep> {
        let groups = || numbers([7, self.group(), self.group() + 1].map(u32::to_ne_bytes));
        let ids = |[real, effective, saved]: [u32; 3]| {
            args![i64::from(real), i64::from(effective), i64::from(saved)]
        };
        let [of_groups, of_group, of_user] = if entry == Entry::Syscall {
            ["setgroups", "setresgid", "setresuid"]
        } else {
            ["setgroups32", "setresgid32", "setresuid32"]
        };
        let auid = self.auid().to_string();
        let length = i64::try_from(auid.len()).unwrap_or(0);
        let call = |name, args| ProgramStep {
            name,
            args,
            saved: None,
            stores: Vec::new(),
        };
        vec![
            step!("open", "/proc/self/loginuid", O_WRONLY),
            call(
                "write",
                vec![Arg::Result, Arg::Bytes(auid.into_bytes()), length.into()],
            ),
            call(of_groups, vec![3.into(), groups()]),
            call(of_group, ids([self.gid(), self.egid(), self.sgid()])),
            call(of_user, ids([self.uid(), self.euid(), self.suid()])),
        ]
    }
}

/// The subject of a list's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListSubject {
    Calls,
    Operations,
}

/// The program that submits `io_uring` operations.
const RING: &str = "ring";

/// The programs of a list that make syscalls.
const PROGRAMS: [(&str, Entry); 2] = [("wide", Entry::Syscall), ("narrow", Entry::Int80)];

/// The last event of a run, by its own task.
pub(crate) struct LastEvent;

impl LastEvent {
    pub(crate) const RULE: &str =
        "-a always,exit -F arch=b64 -S exit -F uid=599999 -k last-of-all-lists";
    pub(crate) const KEY: &str = "last-of-all-lists";
    const UID: u32 = 599_999;
    const PATH: &str = "/tmp/tollgate-lists/last";

    pub(crate) fn prepare() -> anyhow::Result<()> {
        fs::create_dir_all(PLACES).context("cannot create the directory of lists")?;
        Program::new(Entry::Syscall)
            .write(Path::new(Self::PATH))
            .context("cannot write the last program")
    }

    pub(crate) fn run() -> anyhow::Result<()> {
        let mut command = Command::new(Self::PATH);
        let status = command
            .uid(Self::UID)
            .gid(Self::UID)
            .stdin(Stdio::null())
            .status();
        let status = status.context("cannot start the last program")?;
        ensure!(status.success(), "the last program ended with {status}");
        Ok(())
    }
}

/// Removes the lists' directories.
pub(crate) fn clear() -> anyhow::Result<()> {
    empty_directory(PLACES)
}

/// Creates a directory, without what another run left there.
pub(crate) fn empty_directory(path: &str) -> anyhow::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {path} of another run"))
        }
        _ => fs::create_dir(path).with_context(|| format!("cannot create {path}")),
    }
}
