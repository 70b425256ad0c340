//! The state of syscalls in progress: what one user's processes do takes no event from others, and no event has what
//! another syscall left. `crates/engine/bpf/lib/state_slots.bpf.h` has the design.

pub(crate) mod mapped_users;
pub(crate) mod operations;
pub(crate) mod subordinate_users;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
use nix::sys::signal::Signal;
use support::event::Event;
use support::wait::{wait_for, wait_within};

use crate::daemon::{Daemon, LONGEST_END, LOST};
use crate::machine::{STRANGER, THIS_PROGRAM, USER, WORK, has_option, make_directory, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "slots",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S connect -F uid=1001 -k connects\n\
         -a always,exit -F arch=b64 -S tgkill -F uid=1001 -k signals\n\
         -a always,exit -F arch=b64 -S execve -F uid=1001 -F path=/tmp/slots/broken -k broken\n\
         -w /tmp/slots/watched -p wa -k watched\n",
    ),
    tests: &[
        ("dumped_cores_take_no_slot", dumped_cores_take_no_slot),
        (
            "blocked_threads_lose_events_of_their_user",
            blocked_threads_lose_events_of_their_user,
        ),
        (
            "ended_threads_give_slots_back",
            ended_threads_give_slots_back,
        ),
        (
            "failed_exec_of_a_second_thread",
            failed_exec_of_a_second_thread,
        ),
        ("reused_numbers", reused_numbers),
    ],
    stop: stop_with_lost_events,
    after: |_log| Ok(()),
    stays: false,
};

/// The socket whose backlog is full.
const SOCKET: &str = "/tmp/slots/socket";
const WATCHED: &str = "/tmp/slots/watched";
/// An executable that the kernel refuses after it has ended the other threads.
const BROKEN: &str = "/tmp/slots/broken";

/// The full number of threads starts slowly under emulation.
const LONGEST_FILL: Duration = Duration::from_secs(240);

/// More than the full number of threads.
const MOST_FILES: u64 = 8_192;

/// How much is tried.
struct Scale {
    /// Threads that block, at once.
    threads: usize,
    /// Processes that dump core, one after the other.
    cores: usize,
    /// Processes of the test of reused numbers.
    short_processes: usize,
}

impl Scale {
    /// Threads and cores are more than a user's share of the slots on a machine with 1 GiB: `Slots::for_memory` in the
    /// engine.
    const QUICK: Self = Self {
        threads: 400,
        cores: 300,
        short_processes: 500,
    };

    const FULL: Self = Self {
        threads: 5_000,
        cores: 10_000,
        short_processes: 100_000,
    };

    /// The kernel option `vm.slots=full` selects the full scale, which takes long.
    fn of_machine() -> anyhow::Result<&'static Self> {
        let is_full = has_option("vm.slots=full")?;
        Ok(if is_full { &Self::FULL } else { &Self::QUICK })
    }
}

/// After so many processes a line is printed: a machine without output is taken for one that hangs.
const REPORTED: usize = 1_000;
/// Calls of the user while his threads hold all slots of his share.
const LOST_CALLS: u64 = 3;
/// The highest process number in the test of reused numbers.
const HIGHEST_NUMBER: &str = "400";

mod nr {
    pub(super) const GETPID: u32 = 39;
    pub(super) const EXIT_GROUP: u32 = 231;
    pub(super) const TGKILL: u32 = 234;
}

fn prepare() -> anyhow::Result<()> {
    make_directory(Path::new("/tmp/slots"), USER)?;
    make_directory(Path::new(WATCHED), USER)?;
    fs::set_permissions(WATCHED, fs::Permissions::from_mode(0o777))?;
    // A socket with the shortest backlog: connections wait from the third on.
    fs::write("/proc/sys/net/core/somaxconn", "1").context("cannot set the backlog")?;
    fs::write("/proc/sys/kernel/core_pattern", "/tmp/slots/core")
        .context("cannot set core files")?;
    // The full scale needs more threads and sockets than a process may have.
    setrlimit(Resource::RLIMIT_NPROC, RLIM_INFINITY, RLIM_INFINITY)
        .context("cannot lift the limit of threads")?;
    setrlimit(Resource::RLIMIT_NOFILE, MOST_FILES, MOST_FILES)
        .context("cannot lift the limit of files")?;
    fs::write(BROKEN, broken_program())?;
    fs::set_permissions(BROKEN, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// An ELF file whose one segment is at address 0, which no user may map.
fn broken_program() -> Vec<u8> {
    let mut file = vec![0; 4096];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in file.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 62, 0, 1]); // an executable for x86-64
    put(32, &[64]); // offset of the program headers
    put(52, &[64, 0, 56, 0, 1]); // size of this header, of a program header, their number
    put(64, &[1, 0, 0, 0, 5]); // a loaded segment, readable and executable
    put(64 + 32, &[0, 16]); // its size in the file
    put(64 + 40, &[0, 16]); // and in memory
    put(64 + 48, &[0, 16]); // its alignment
    file
}

/// Runs a task of this program that tests start as a user: `blocked N`, `mapped N:UID`, `subordinate N:UID` or
/// `exec PATH`.
///
/// # Errors
/// The task is unknown, or fails.
pub(crate) fn run_task(task: &str, argument: &str) -> anyhow::Result<()> {
    match task {
        "blocked" => block(argument.parse()?, SOCKET),
        "mapped" => mapped_users::run_task(argument),
        "subordinate" => subordinate_users::run_task(argument),
        "exec" => {
            let path = argument.to_owned();
            let thread = thread::spawn(move || Command::new(path).exec());
            Err(thread
                .join()
                .map_err(|_panic| anyhow::anyhow!("panic"))?
                .into())
        }
        _ => anyhow::bail!("there is no task `{task}`"),
    }
}

/// Blocks threads in `connect` until the process is killed.
fn block(threads: usize, socket: &str) -> anyhow::Result<()> {
    let _listener = UnixListener::bind(socket)?;
    let connected: Vec<_> = (0..threads)
        .map(|_| {
            let small = thread::Builder::new().stack_size(16 << 10);
            let socket = socket.to_owned();
            small.spawn(move || UnixStream::connect(socket).map(|_connected| thread::park()))
        })
        .collect::<Result<_, _>>()?;
    for thread in connected {
        drop(thread.join());
    }
    Ok(())
}

/// Threads of a user that hold slots until the value is dropped.
struct Blocked(Child);

impl Blocked {
    fn start() -> anyhow::Result<Self> {
        let _absent = fs::remove_file(SOCKET);
        let threads = Scale::of_machine()?.threads;
        let child = Command::new(THIS_PROGRAM)
            .args(["blocked", &threads.to_string()])
            .current_dir(WORK)
            .uid(USER)
            .gid(USER)
            .spawn()
            .context("cannot start the threads")?;
        let mut blocked = Self(child);
        blocked.wait(threads)?;
        Ok(blocked)
    }

    /// Waits until its threads sleep, but for those whose connection the backlog takes.
    fn wait(&mut self, threads: usize) -> anyhow::Result<()> {
        let mut sleeping = 0;
        let wait = wait_within(LONGEST_FILL, "all threads to sleep in connect", || {
            let ended = self.0.try_wait()?;
            ensure!(ended.is_none(), "the threads ended: {ended:?}");
            sleeping = self.in_connect()?;
            Ok((sleeping + 3 >= threads).then_some(()))
        });
        wait.with_context(|| format!("{sleeping} threads of {threads} sleep"))
    }

    /// The number of its threads in `connect`, which is syscall 42.
    fn in_connect(&self) -> anyhow::Result<usize> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id()))?;
        let calls = threads
            .flatten()
            .map(|thread| thread.path().join("syscall"));
        let calls = calls.filter_map(|path| fs::read_to_string(path).ok());
        Ok(calls.filter(|call| call.starts_with("42 ")).count())
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It runs until killed.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// Makes files of root in the watched directory, which user space then removes.
fn watched_files(owner: &str, count: usize) -> anyhow::Result<Vec<String>> {
    let files = (0..count).map(|number| format!("{WATCHED}/{owner}-{number}"));
    files
        .map(|file| {
            make_file(Path::new(&file), USER)?;
            Ok(file)
        })
        .collect()
}

/// Removes files as a user; returns the process.
fn remove(uid: u32, files: &[String]) -> anyhow::Result<u32> {
    let mut rm = Command::new("/bin/busybox");
    // Without -f it asks before it removes what it may not write.
    rm.args(["rm", "-f"]).args(files).current_dir(WORK);
    rm.uid(uid).gid(uid).stdin(Stdio::null());
    let mut child = rm.spawn().context("cannot start rm")?;
    let status = child.wait()?;
    ensure!(status.success(), "rm ended with {status}");
    Ok(child.id())
}

/// Checks that each removal is recorded with the directory and the name.
fn expect_removed(daemon: &Daemon, pid: u32, files: &[String]) -> anyhow::Result<()> {
    let events = daemon.events("watched", pid, files.len())?;
    ensure!(events.len() == files.len(), "{} events", events.len());
    for (event, file) in events.iter().zip(files) {
        let names = event.fields("PATH", "name");
        ensure!(
            names.last().is_some_and(|name| name == file) && names.len() == 2,
            "{file}: {names:?}"
        );
    }
    Ok(())
}

fn report(number: usize, what: &str) {
    if number > 0 && number.is_multiple_of(REPORTED) {
        println!("vm: note {number} {what}");
    }
}

/// A hook that runs while a core is written still sees the registers of the syscall before.
fn dumped_cores_take_no_slot(daemon: &Daemon) -> anyhow::Result<()> {
    let abort = 6;
    let path = Program::new(Entry::Syscall)
        .call(nr::GETPID, args![])
        .save("pid")
        .call(
            nr::TGKILL,
            args![Arg::Saved("pid"), Arg::Saved("pid"), abort],
        )
        .call(nr::EXIT_GROUP, args![0])
        .install("dumped")?;
    setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY)?;
    let mut last = 0;
    for number in 1..=Scale::of_machine()?.cores {
        let mut dumped = Command::new(&path);
        let mut child = dumped.current_dir(WORK).uid(USER).gid(USER).spawn()?;
        let status = child.wait()?;
        ensure!(status.core_dumped(), "no core: {status}");
        last = child.id();
        report(number, "cores dumped");
    }
    ensure!(daemon.events("signals", last, 1)?.len() == 1, "tgkill");
    let files = watched_files("dumped", 3)?;
    let remover = remove(USER, &files)?;
    expect_removed(daemon, remover, &files)
}

/// Events that have no slot are lost for the user whose threads hold his share, and counted; see
/// [`stop_with_lost_events`].
fn blocked_threads_lose_events_of_their_user(daemon: &Daemon) -> anyhow::Result<()> {
    let lost = watched_files("lost", LOST_CALLS.try_into()?)?;
    let others = watched_files("others", 3)?;
    let roots = watched_files("roots", 3)?;
    let blocked = Blocked::start()?;
    let user = remove(USER, &lost)?;
    let stranger = remove(STRANGER, &others)?;
    let root = remove(0, &roots)?;
    expect_removed(daemon, stranger, &others)?;
    expect_removed(daemon, root, &roots)?;
    let recorded = daemon.logged(user)?;
    ensure!(
        recorded.is_empty(),
        "{} events without a slot",
        recorded.len()
    );
    drop(blocked);
    Ok(())
}

/// What was blocked has ended: the user has his share again.
fn ended_threads_give_slots_back(daemon: &Daemon) -> anyhow::Result<()> {
    for _ in 0..3 {
        drop(Blocked::start()?);
    }
    let files = watched_files("back", 20)?;
    let remover = remove(USER, &files)?;
    expect_removed(daemon, remover, &files)
}

/// A thread that is not the leader takes the leader's number before this exec fails.
fn failed_exec_of_a_second_thread(daemon: &Daemon) -> anyhow::Result<()> {
    let mut exec = Command::new(THIS_PROGRAM);
    exec.args(["exec", BROKEN]).current_dir(WORK);
    let mut child = exec.uid(USER).gid(USER).spawn()?;
    let status = child.wait()?;
    ensure!(
        status.signal() == Some(Signal::SIGSEGV as i32)
            || status.signal() == Some(Signal::SIGKILL as i32),
        "the exec did not fail where it should: {status}"
    );
    let events = daemon.events("broken", child.id(), 1)?;
    let [event] = events.as_slice() else {
        anyhow::bail!("{} events", events.len());
    };
    ensure!(
        event.field("SYSCALL", "success") == "no",
        "{}",
        event.summary()
    );
    ensure!(event.field("PATH", "name") == BROKEN, "{}", event.summary());
    Ok(())
}

/// Processes with the numbers of processes that ended in the middle of a syscall.
fn reused_numbers(daemon: &Daemon) -> anyhow::Result<()> {
    let before = fs::read_to_string("/proc/sys/kernel/pid_max")?;
    fs::write("/proc/sys/kernel/pid_max", HIGHEST_NUMBER)?;
    let processes = Scale::of_machine()?.short_processes;
    let tried = (0..processes).try_for_each(|number| -> anyhow::Result<()> {
        report(number, "processes");
        let program = if number % 10 == 0 {
            BROKEN
        } else {
            "/bin/true"
        };
        let mut child = Command::new(program);
        let child = child.current_dir(WORK).uid(USER).gid(USER);
        let _status: Result<ExitStatus, _> = child.stdin(Stdio::null()).status();
        Ok(())
    });
    fs::write("/proc/sys/kernel/pid_max", before.trim())?;
    tried?;
    let key = |event: &Event| event.field("SYSCALL", "key") == "broken";
    let events = wait_for("the failed programs", || {
        let mut events = support::event::parse(&daemon.log_text()?)?;
        events.retain(key);
        Ok((events.len() > processes / 10).then_some(events))
    })?;
    for event in &events {
        ensure!(event.field("PATH", "name") == BROKEN, "{}", event.summary());
        ensure!(
            event.field("SYSCALL", "success") == "no",
            "{}",
            event.summary()
        );
    }
    ensure!(
        events.len() == processes / 10 + 1,
        "{} events",
        events.len()
    );
    Ok(())
}

/// Ends the daemon; it has lost the calls of [`blocked_threads_lose_events_of_their_user`] and no other.
fn stop_with_lost_events(daemon: &Daemon) -> anyhow::Result<()> {
    let account = daemon.end(Signal::SIGTERM, LONGEST_END)?;
    let (line, counts) = (account.line, account.summary);
    ensure!(
        account.status.code() == Some(LOST),
        "{}: {line}",
        account.status
    );
    ensure!(line.contains("no state slot"), "{line}");
    ensure!(counts.lost == LOST_CALLS, "{line}");
    println!("vm: note {line}");
    Ok(())
}
