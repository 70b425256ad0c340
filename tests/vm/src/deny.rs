//! Syscalls that are denied because they could not be recorded.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::mkdir;
use rustix::fs::{getxattr, removexattr};
use rustix::io::Errno;
use support::wait::wait_within;

use crate::daemon::Daemon;
use crate::differential::steps::{self, step};
use crate::differential::uring::{Layout, Operation, Queue, op, xattr};
use crate::differential::watched::{ACL, ACL_BYTES, acl};
use crate::idle_threads::with_idle_threads;
use crate::machine::PROGRAMS;
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "deny",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S mkdir -F a1=0 -k fill\n\
         -w /tmp/work/denied -p wa -k deny\n\
         -w /tmp/work/open -p wa -k other\n\
         -a always,exit -F arch=b64 -F path=/tmp/work/denied/program -F perm=x -k deny\n\
         -a always,exit -F arch=b64 -S kill -F a1=0 -F uid=0 -k deny\n",
    ),
    tests: &[
        ("calls_succeed_while_the_ring_has_room", all_calls_succeed),
        (
            "threads_that_read_take_no_slot",
            threads_that_read_take_no_slot,
        ),
        ("unrecordable_calls_are_denied", all_calls_are_denied),
        (
            "calls_that_pass_no_program_take_no_reserve",
            calls_that_pass_no_program_take_no_reserve,
        ),
        (
            "successful_calls_are_recorded",
            successful_calls_are_recorded,
        ),
    ],
    stop: Daemon::stop_denied,
    after: |_log| Ok(()),
    stays: false,
};

const DENIED: &str = "/tmp/work/denied";
const OPEN: &str = "/tmp/work/open";

const LONGEST: Duration = Duration::from_secs(120);

/// The rules match no open for reading.
fn threads_that_read_take_no_slot(daemon: &Daemon) -> anyhow::Result<()> {
    with_idle_threads("/dev/null", || {
        for script in ["cat /dev/null", "echo x > /tmp/threads_that_read"] {
            daemon
                .run_user(Path::new("/bin/busybox"), &["sh", "-c", script])
                .with_context(|| script.to_owned())?;
        }
        Ok(())
    })
}

/// Size of the ring in bytes.
const RING: usize = 64 << 20;

fn prepare() -> anyhow::Result<()> {
    fs::write("/tmp/deny.toml", "[on_loss]\ndeny = [\"deny\"]\n").context("no settings")?;
    for directory in [DENIED, OPEN] {
        fs::create_dir(directory).with_context(|| directory.to_owned())?;
        let program = Path::new(directory).join("program");
        fs::copy("/bin/tollgate", &program).context("cannot copy a program")?;
    }
    Ok(())
}

/// Runs `action` while the daemon is stopped and the ring is full up to the reserve.
fn while_full<T>(daemon: &Daemon, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    // Each makes only an event of more than 4,000 bytes.
    let name = "/none".repeat(800);
    let fill = |count: usize| {
        for _ in 0..count {
            let _fails = mkdir(name.as_str(), Mode::empty());
        }
    };
    daemon.while_stopped(|| {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| fill(RING / name.len() / 2));
            }
        });
        work()
    })
}

/// Runs all actions in a directory; returns their results.
fn try_all(directory: &str) -> Vec<(&'static str, io::Result<()>)> {
    let at = |name: &str| -> PathBuf { Path::new(directory).join(name) };
    let write = |name: &str| OpenOptions::new().write(true).open(at(name)).map(drop);
    vec![
        ("create", File::create_new(at("made")).map(drop)),
        ("write", write("file")),
        (
            "truncate",
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(at("file"))
                .map(drop),
        ),
        ("mkdir", fs::create_dir(at("directory"))),
        ("symlink", symlink("file", at("link"))),
        ("link", fs::hard_link(at("file"), at("second"))),
        ("rename", fs::rename(at("old"), at("new"))),
        (
            "chmod",
            fs::set_permissions(at("file"), Permissions::from_mode(0o640)),
        ),
        ("chown", chown(at("file"), Some(7), None)),
        (
            "setxattr",
            set_xattr(&at("file"), "trusted.a", "x".into(), 1),
        ),
        ("setfacl", set_xattr(&at("file"), ACL, acl(), ACL_BYTES)),
        ("bind", UnixListener::bind(at("socket")).map(drop)),
        ("unlink", fs::remove_file(at("gone"))),
        ("rmdir", fs::remove_dir(at("empty"))),
    ]
}

/// Sets an extended attribute, by a program whose exit status is the call's error.
pub(crate) fn set_xattr(file: &Path, name: &'static str, value: Arg, bytes: i32) -> io::Result<()> {
    let (setxattr, exit_group) = (188, 231);
    let mut path = file.as_os_str().as_bytes().to_vec();
    path.push(0);
    let program = Path::new(PROGRAMS).join("setxattr");
    Program::new(Entry::Syscall)
        .call(setxattr, args![Arg::Bytes(path), name, value, bytes, 0])
        .call(exit_group, vec![Arg::Result])
        .write(&program)?;
    match Command::new(program).status()?.code() {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(256 - code)),
        None => Err(io::Error::other("a signal")),
    }
}

/// Sets the attribute `trusted.a` of the file by an `io_uring` operation: on its name by the submitter, by a worker, and
/// on a descriptor, one after the other. Returns how many have set it.
fn set_xattr_by_operations(directory: &str) -> anyhow::Result<usize> {
    let file = Path::new(directory).join("file");
    let name = file.to_str().context("the path is text")?;
    // The next descriptor after that of the ring.
    let descriptor = 4;
    let mut set = 0;
    for (operation, by_worker) in [
        (xattr(op::SETXATTR, name, 0), false),
        (xattr(op::SETXATTR, name, 0), true),
        (xattr(op::FSETXATTR, "", descriptor), false),
    ] {
        set += usize::from(sets_xattr(&file, operation, by_worker)?);
        // While calls are denied there is nothing to remove.
        let _absent = removexattr(&file, "trusted.a");
    }
    Ok(set)
}

/// Whether an operation sets the attribute.
fn sets_xattr(file: &Path, operation: Operation, by_worker: bool) -> anyhow::Result<bool> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let mut steps = queue.made();
    // Opening for reading is not denied.
    let name = Arg::Bytes([file.as_os_str().as_bytes(), &[0]].concat());
    steps.push(step!("openat", steps::CWD, name, 0));
    steps.push(queue.give(operation, by_worker));
    steps.push(step!("exit_group", 0));
    let program = steps::program(Entry::Syscall, &steps)?.install("xattr_operations")?;
    let status = Command::new(program).status()?;
    ensure!(status.success(), "the program ended with {status}");
    let mut value = [0; 8];
    match getxattr(file, "trusted.a", &mut value) {
        // `setxattr` of `try_all` sets another value.
        Ok(length) => Ok(value.get(..length) == Some(b"value")),
        Err(Errno::NODATA) => Ok(false),
        Err(errno) => Err(errno).context("cannot read the attribute"),
    }
}

/// Creates the files that `try_all` needs and removes those that it creates.
fn make(directory: &str) -> anyhow::Result<()> {
    let at = |name: &str| Path::new(directory).join(name);
    for left in ["made", "link", "second", "new", "socket", "file"] {
        let _absent = fs::remove_file(at(left));
    }
    let _absent = fs::remove_dir(at("directory"));
    for file in ["file", "old", "gone"] {
        fs::write(at(file), "text").context("cannot make a file")?;
    }
    fs::create_dir_all(at("empty")).context("cannot make a directory")
}

fn expect_done(directory: &str) -> anyhow::Result<()> {
    for (what, ended) in try_all(directory) {
        ended.with_context(|| format!("{what} in {directory}"))?;
    }
    Ok(())
}

/// Executes the program in a directory.
fn start(directory: &str) -> io::Result<()> {
    let program = Path::new(directory).join("program");
    Command::new(program).arg("--version").output().map(drop)
}

fn signal_self() -> nix::Result<()> {
    kill(nix::unistd::Pid::this(), None)
}

fn all_calls_succeed(daemon: &Daemon) -> anyhow::Result<()> {
    for directory in [DENIED, OPEN] {
        make(directory)?;
        expect_done(directory)?;
        start(directory).context(directory)?;
        if daemon.sees_inside() {
            let set = set_xattr_by_operations(directory)?;
            ensure!(set == 3, "{set} operations of 3 in {directory}");
        }
    }
    signal_self().context("kill")
}

fn all_calls_are_denied(daemon: &Daemon) -> anyhow::Result<()> {
    make(DENIED)?;
    make(OPEN)?;
    let names = || -> anyhow::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(DENIED)? {
            names.push(entry?.path());
        }
        names.sort();
        Ok(names)
    };
    let before = names()?;
    while_full(daemon, || {
        for (what, ended) in try_all(DENIED) {
            let error = ended.err().with_context(|| format!("{what} was done"))?;
            ensure!(
                error.kind() == ErrorKind::PermissionDenied,
                "{what}: {error}"
            );
        }
        let started = start(DENIED).err().context("a program was started")?;
        ensure!(started.kind() == ErrorKind::PermissionDenied, "{started}");
        ensure!(
            signal_self() == Err(nix::errno::Errno::EPERM),
            "kill was done"
        );
        if daemon.sees_inside() {
            let set = set_xattr_by_operations(DENIED)?;
            ensure!(set == 0, "{set} operations were done");
        }
        let outside = fs::hard_link(Path::new(DENIED).join("file"), "/tmp/work/linked");
        ensure!(outside.is_err(), "a watched file was linked elsewhere");
        // Reads and calls without a denying rule succeed.
        File::open(Path::new(DENIED).join("file")).context("cannot read")?;
        expect_done(OPEN)?;
        start(OPEN).context("cannot start a program")
    })?;
    let after = names()?;
    ensure!(after == before, "{after:?}, not {before:?}");
    let text = fs::read(Path::new(DENIED).join("file")).context("cannot read")?;
    ensure!(text == b"text", "the file was cut");
    Ok(())
}

/// A signal to a process that does not exist, and an open that opens nothing, in the denied directory. Neither comes by a
/// program that denies.
fn calls_that_pass_none() -> anyhow::Result<()> {
    ensure!(
        kill(nix::unistd::Pid::from_raw(i32::MAX), None) == Err(nix::errno::Errno::ESRCH),
        "kill found a process"
    );
    let file = Path::new(DENIED).join("file");
    let flags = OFlag::O_PATH | OFlag::O_WRONLY;
    open(&file, flags, Mode::empty()).context("open")?;
    Ok(())
}

fn calls_that_pass_no_program_take_no_reserve(daemon: &Daemon) -> anyhow::Result<()> {
    // Each makes an event of more than 400 bytes: together, more than the reserve.
    const TRIES: usize = RING / 8 / 400;
    let mark = |name: &str| -> anyhow::Result<[usize; 2]> {
        let file = Path::new(DENIED).join(name);
        wait_within(LONGEST, "room", || {
            Ok((make(DENIED).is_ok() && File::create(&file).is_ok()).then_some(()))
        })?;
        wait_within(LONGEST, "the events before", || {
            let log = fs::read(daemon.log()).context("cannot read the log")?;
            let count = |part: &str| log.lines().filter(|line| line.contains_str(part)).count();
            Ok(log.contains_str(name).then(|| {
                [
                    count(" syscall=62 success=no exit=-3 "),
                    count(" a2=200001 "),
                ]
            }))
        })
    };
    let none = mark("before_one")?;
    calls_that_pass_none()?;
    let one = mark("before_many")?;
    ensure!(one == none.map(|count| count + 1), "{none:?}, then {one:?}");
    while_full(daemon, || {
        (0..TRIES).try_for_each(|_| calls_that_pass_none())
    })?;
    let many = mark("after_many")?;
    ensure!(many == one, "{one:?}, then {many:?}");
    Ok(())
}

/// Each permitted call is in the log, even if the ring is full.
fn successful_calls_are_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    const TRIES: usize = 2_000;
    let file = Path::new(DENIED).join("file");
    let open_all = || -> usize {
        let opened = |_: &usize| OpenOptions::new().append(true).open(&file).is_ok();
        (0..TRIES).filter(opened).count()
    };
    let room = || wait_within(LONGEST, "room", || Ok(signal_self().is_ok().then_some(())));
    let last = Path::new(DENIED).join("last_before");
    wait_within(LONGEST, "room for the files", || {
        Ok((make(DENIED).is_ok() && File::create(&last).is_ok()).then_some(()))
    })?;
    let before = wait_within(LONGEST, "the events before", || {
        let log = fs::read(daemon.log()).context("cannot read the log")?;
        let all = log.contains_str(last.as_os_str().as_bytes());
        Ok(all.then_some(opened(daemon)?))
    })?;
    let mut done = open_all();
    for _ in 0..2 {
        let both = while_full(daemon, || {
            thread::scope(|scope| {
                let other = scope.spawn(open_all);
                let own = open_all();
                Ok(own + other.join().unwrap_or_default())
            })
        })?;
        ensure!(both == 0, "{both} were opened while there was no room");
        room()?;
        done += open_all();
    }
    ensure!(done > 0, "none was let pass");
    let recorded = wait_within(LONGEST, "the events", || {
        let now = opened(daemon)? - before;
        Ok((now >= done).then_some(now))
    })?;
    ensure!(recorded == done, "{recorded} are recorded of {done}");
    println!("vm: note {done} opens let pass, all recorded");
    Ok(())
}

/// Number of permitted opens of the watched file in the log, which is too long to parse each time.
fn opened(daemon: &Daemon) -> anyhow::Result<usize> {
    let log = fs::read(daemon.log()).context("cannot read the log")?;
    let parts = ["type=SYSCALL", " syscall=257 success=yes ", " key=\"deny\""];
    let done = |line: &&[u8]| parts.iter().all(|part| line.contains_str(part));
    Ok(log.lines().filter(done).count())
}
