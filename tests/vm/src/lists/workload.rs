//! The workload of a list: the same calls for each, by a task and in a directory that are the list's own.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::differential::steps::{CWD, Step, numbers, program, step};
use crate::differential::uring::{Layout, Queue, on_files};
use crate::program::{Arg, Entry, Program, args};

/// Below it are the directories of the lists.
pub(super) const PLACES: &str = "/tmp/tollgate-lists";

/// Ids of the first list; each takes [`IDS`] of them. No user of a machine has them.
const FIRST_ID: u32 = 600_000;
const IDS: u32 = 16;

/// What a list has to itself.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// Its number.
    pub(super) number: u32,
    /// Its ids start here; the methods below say which is which.
    pub(super) ids: u32,
    /// Its directory.
    pub(super) place: String,
}

impl Scene {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            ids: FIRST_ID + number * IDS,
            place: format!("{PLACES}/{number}"),
        }
    }

    pub(super) const fn uid(&self) -> u32 {
        self.ids
    }

    pub(super) const fn euid(&self) -> u32 {
        self.ids + 1
    }

    pub(super) const fn suid(&self) -> u32 {
        self.ids + 2
    }

    pub(super) const fn gid(&self) -> u32 {
        self.ids + 4
    }

    pub(super) const fn egid(&self) -> u32 {
        self.ids + 5
    }

    pub(super) const fn sgid(&self) -> u32 {
        self.ids + 6
    }

    /// A supplementary group; the next number is another one.
    pub(super) const fn group(&self) -> u32 {
        self.ids + 8
    }

    pub(super) const fn auid(&self) -> u32 {
        self.ids + 10
    }

    /// What only the list's own task has, each as a condition.
    pub(super) fn scopes(&self) -> [String; 7] {
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

    /// Inode number and device of a file that stays.
    pub(super) fn kept(&self) -> Option<(u64, u64)> {
        let kept = fs::metadata(format!("{}/kept", self.place)).ok()?;
        Some((kept.ino(), kept.dev()))
    }

    /// Makes the directory and what is in it.
    pub(super) fn prepare(&self, layout: Layout) -> anyhow::Result<()> {
        self.make()
            .with_context(|| format!("cannot make what is in {}", self.place))?;
        for (name, entry) in PROGRAMS {
            self.write(name, entry, &self.steps(entry))?;
        }
        self.write(RING, Entry::Syscall, &self.ring(layout))
    }

    fn write(&self, name: &str, entry: Entry, steps: &[Step]) -> anyhow::Result<()> {
        program(entry, steps)?
            .write(&self.at(name))
            .with_context(|| format!("cannot write {}/{name}", self.place))
    }

    fn at(&self, name: &str) -> PathBuf {
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

    /// Runs the programs that a list is about; gives their process ids.
    pub(super) fn run(&self, about: About) -> anyhow::Result<Vec<u32>> {
        let names: &[&str] = match about {
            About::Calls => &PROGRAMS.map(|(name, _)| name),
            About::Operations => &[RING],
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

    fn steps(&self, entry: Entry) -> Vec<Step> {
        let mut steps = self.become_user(entry);
        steps.extend(if entry == Entry::Syscall {
            wide(self)
        } else {
            narrow(self)
        });
        steps.push(step!("execve", "end", Arg::Texts(&["end", "of it"]), 0));
        steps
    }

    /// Operations of `io_uring`, by the program and then by a worker.
    fn ring(&self, layout: Layout) -> Vec<Step> {
        let mut steps = self.become_user(Entry::Syscall);
        let mut queue = Queue::new(layout, false);
        steps.extend(queue.made());
        for by_worker in [false, true] {
            let operations = on_files().into_iter();
            steps.extend(operations.map(|operation| queue.give(operation, by_worker)));
        }
        steps.push(step!("exit_group", 3));
        steps
    }

    /// Gives up all rights for the ids of the list.
    fn become_user(&self, entry: Entry) -> Vec<Step> {
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
        let call = |name, args| Step {
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

/// What the rules of a list are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    Calls,
    Operations,
}

/// The program that has operations of `io_uring` done.
const RING: &str = "ring";

/// The programs of a list that make calls.
const PROGRAMS: [(&str, Entry); 2] = [("wide", Entry::Syscall), ("narrow", Entry::Interrupt)];

const O_WRONLY: i32 = 1;
const O_RDWR: i32 = 2;
const O_CREAT: i32 = 0o100;
const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_DIRECTORY: i32 = 0o200_000;
const AT_REMOVEDIR: i32 = 0x200;
const S_IFIFO: i32 = 0o010_000;
const S_IFREG: i32 = 0o100_000;
const ADDR_NO_RANDOMIZE: i32 = 0x0004_0000;

/// A `struct open_how` without mode and resolve flags.
fn open_how(flags: i32) -> Arg {
    numbers([u64::from(flags.cast_unsigned()), 0, 0].map(u64::to_ne_bytes))
}

/// Calls of 64 bits.
fn wide(scene: &Scene) -> Vec<Step> {
    let room = || Arg::Bytes(vec![0; 256]);
    let group = || i64::from(scene.group());
    let mut steps = vec![
        step!("getpid"),
        step!("open", "file", 0),
        step!("open", "file", O_RDWR).save("file"),
        step!("fchmod", Arg::Saved("file"), 0o640),
        step!("ftruncate", Arg::Saved("file"), 2),
        step!("fchown", Arg::Saved("file"), -1, group()),
        step!("openat", CWD, "new", O_CREAT | O_WRONLY, 0o600),
        step!("openat", CWD, "new", O_CREAT | O_EXCL | O_WRONLY, 0o600),
        step!("openat", CWD, "kept", O_WRONLY | O_TRUNC),
        step!("openat", CWD, "twin", 0),
        step!("openat", CWD, "link", O_WRONLY),
        step!("openat", CWD, "missing", 0),
        step!("openat", CWD, "dangling", O_RDWR),
        step!("openat", CWD, "secret", 0),
        step!("openat", CWD, "other", O_WRONLY),
        step!("openat", CWD, "way/below", O_RDWR),
        step!("openat", CWD, "sub", O_DIRECTORY).save("sub"),
        step!("openat", Arg::Saved("sub"), "below", 0),
        step!("openat", Arg::Saved("sub"), "../full/file", 3),
        step!("openat", -1, "below", 0),
        step!("openat2", CWD, "file", open_how(O_RDWR), 24),
        step!("openat2", CWD, "missing", open_how(0), 24),
        step!("creat", "made", 0o644),
        step!("open", "/etc/passwd", 0),
        step!("openat", CWD, "/proc/version", 0),
        step!("openat", CWD, "/proc/version", O_RDWR),
        step!("access", "file", 4),
        step!("access", "missing", 0),
        step!("stat", "file", room()),
        step!("newfstatat", CWD, "sub/below", room(), 0),
        step!("readlink", "link", room(), 64),
        step!("readlink", "file", room(), 64),
        step!("mkdir", "dir", 0o755),
        step!("mkdir", "dir", 0o755),
        step!("mkdirat", CWD, "dir/in", 0o700),
        step!("mkdir", "theirs/dir", 0o700),
        step!("rmdir", "dir"),
        step!("unlinkat", CWD, "dir/in", AT_REMOVEDIR),
        step!("mknodat", CWD, "fifo", S_IFIFO | 0o600, 0),
        step!("mknod", "regular", S_IFREG | 0o600, 0),
        step!("symlink", "made", "made.link"),
        step!("link", "made", "made.too"),
        step!("linkat", CWD, "made", CWD, "kept", 0),
        step!("rename", "made.too", "sub/moved"),
        step!("rename", "missing", "dir/x"),
        step!("renameat2", CWD, "sub/moved", CWD, "regular", 0),
        step!("chmod", "made", 0o600),
        step!("chmod", "other", 0o600),
        step!("chmod", "missing", 0o600),
        step!("fchmodat", CWD, "sub", 0o711),
        step!("chown", "made", -1, group()),
        step!("chown", "file", 0, 0),
        step!("lchown", "made.link", -1, group()),
        step!("truncate", "made", 1),
        step!("truncate", "secret", 1),
        step!("setxattr", "file", "user.x", "v", 1, 0),
        step!("getxattr", "file", "user.x", room(), 16),
        step!("utimensat", CWD, "kept", 0, 0),
        step!("unlink", "made.link"),
        step!("unlink", "new"),
        step!("unlink", "theirs/file"),
        step!("unlink", "missing"),
        step!("unlinkat", Arg::Saved("sub"), "below", 0),
        step!("openat", CWD, "new", O_CREAT | O_RDWR, 0o644),
        step!("chdir", "sub"),
        step!("openat", CWD, "../kept", 0),
        step!("openat", CWD, "again", O_CREAT | O_WRONLY, 0o600),
        step!("chdir", "missing"),
        step!("chdir", ".."),
    ];
    steps.extend(on_sockets());
    steps.extend([
        step!("personality", ADDR_NO_RANDOMIZE),
        step!("getpid"),
        step!("openat", CWD, "file", 0),
        step!("personality", 0),
        step!("setfsuid", i64::from(scene.suid())),
        step!("openat", CWD, "kept", O_RDWR),
        step!("openat", CWD, "file", O_RDWR),
        step!("chmod", "full/file", 0o600),
        step!("mkdir", "sub/no", 0o700),
        step!("setresgid", -1, i64::from(scene.sgid()), -1),
        step!("setresuid", -1, i64::from(scene.suid()), -1),
        step!("setuid", 0),
        step!("kill", 1, 0),
        step!("mount", 0, "sub", 0, 0, 0),
        step!("getpid"),
        step!("execve", "missing", 0, 0),
        step!("execve", "secret", 0, 0),
        step!("execve", "text", 0, 0),
    ]);
    steps
}

/// Calls that give an address, or are given one.
fn on_sockets() -> Vec<Step> {
    let room = || Arg::Bytes(vec![0; 256]);
    vec![
        step!("socket", 1, 1, 0).save("socket"),
        step!("bind", Arg::Saved("socket"), address(b"bound"), 110),
        step!("connect", Arg::Saved("socket"), address(b"nobody"), 110),
        step!(
            "getsockname",
            Arg::Saved("socket"),
            room(),
            numbers([110_u32.to_ne_bytes()])
        ),
        step!(
            "sendto",
            Arg::Saved("socket"),
            "x",
            1,
            0,
            address(b"nobody"),
            110
        ),
        step!("sendto", Arg::Saved("socket"), "x", 1, 0, 0, 0),
        step!("connect", Arg::Saved("file"), inet(), 16),
        step!("connect", 99, inet(), 16),
        step!("connect", Arg::Saved("socket"), inet(), 500),
        step!("socket", 2, 2, 0).save("inet"),
        step!("connect", Arg::Saved("inet"), inet(), 16),
        step!("sendmsg", Arg::Saved("inet"), message(), 0),
        step!(
            "getsockname",
            Arg::Saved("inet"),
            room(),
            numbers([16_u32.to_ne_bytes()])
        ),
    ]
}

/// A `struct sockaddr_un`.
fn address(name: &[u8]) -> Arg {
    let mut bytes = 1_u16.to_ne_bytes().to_vec();
    bytes.extend(name);
    bytes.resize(110, 0);
    Arg::Bytes(bytes)
}

/// A `struct sockaddr_in`.
fn inet() -> Arg {
    let mut bytes = 2_u16.to_ne_bytes().to_vec();
    bytes.extend([0, 9, 127, 0, 0, 1]);
    bytes.resize(16, 0);
    Arg::Bytes(bytes)
}

/// A `struct msghdr` with nothing but an address.
fn message() -> Arg {
    let mut words = vec![inet(), 16.into()];
    words.resize(7, 0.into());
    Arg::Words(words)
}

/// Calls through the 32-bit entry.
fn narrow(scene: &Scene) -> Vec<Step> {
    vec![
        step!("getpid"),
        step!("open", "file", 0),
        step!("open", "n", O_CREAT | O_RDWR, 0o600),
        step!("open", "secret", O_WRONLY),
        step!("open", "missing", 0),
        step!("openat", CWD, "twin", O_WRONLY),
        step!("mkdir", "narrow.dir", 0o700),
        step!("rmdir", "narrow.dir"),
        step!("rename", "n", "full/n"),
        step!("chmod", "full/n", 0o644),
        step!("chown32", "full/n", -1, i64::from(scene.group())),
        step!("truncate", "kept", 1),
        step!("unlink", "full/n"),
        step!("unlink", "theirs/file"),
        step!(
            "socketcall",
            1,
            numbers([1_u32, 1, 0].map(u32::to_ne_bytes))
        ),
        step!(
            "socketcall",
            2,
            numbers([99_u32, 0, 0].map(u32::to_ne_bytes))
        ),
        step!(
            "socketcall",
            2,
            Arg::Words(vec![7.into(), address(b"narrow"), 110.into()])
        ),
        step!(
            "socketcall",
            3,
            Arg::Words(vec![7.into(), inet(), 16.into()])
        ),
        step!("connect", 7, inet(), 16),
        step!("setfsuid32", i64::from(scene.suid())),
        step!("open", "kept", O_RDWR),
        step!("execve", "missing", 0, 0),
    ]
}

/// The last event of a run, by a task of its own.
pub(crate) struct Last;

impl Last {
    pub(crate) const RULE: &str =
        "-a always,exit -F arch=b64 -S exit -F uid=599999 -k last-of-all-lists";
    pub(crate) const KEY: &str = "last-of-all-lists";
    const UID: u32 = 599_999;
    const PATH: &str = "/tmp/tollgate-lists/last";

    pub(crate) fn prepare() -> anyhow::Result<()> {
        fs::create_dir_all(PLACES).context("cannot make a place for lists")?;
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

/// Empties the directory of all lists.
pub(super) fn clear() -> anyhow::Result<()> {
    match fs::remove_dir_all(PLACES) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("cannot remove the lists of another run");
        }
        _ => fs::create_dir(PLACES).context("cannot make a place for lists")?,
    }
    Ok(())
}
