//! An `io_uring` operation runs in the submitting task between the start of another syscall and its function: a
//! debugger lets the operation become ready while the task is stopped at the syscall's entry, and a filter of
//! seccomp stops the task once more, where the kernel runs it. What the operation finds is no part of the syscall.

pub(crate) mod unreadable_name;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::Child;

use anyhow::{Context as _, ensure};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use support::event::show;

use crate::daemon::Daemon;
use crate::differential::steps::{self, ProgramStep, numbers, step};
use crate::differential::uring::{Layout, Queue, openat2};
use crate::machine::{PROGRAMS, STRANGER, USER, make_directory, make_file, start_waiting};
use crate::program::{Arg, Entry, Program, args};
use crate::registers;
use crate::suite::{Rules, Session};
use crate::traced::BEGUN;

/// No rule names the operation, and rules name the syscalls: by their object, and by a user.
pub(crate) const SESSION: Session = Session {
    name: "operation_at_entry",
    engine: "fentry",
    prepare: || {
        make_directory(Path::new("/tmp/at_entry"), USER)?;
        make_file(Path::new(OPENED), USER)?;
        reset(USER)
    },
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S openat,chmod,truncate,chown -F uid=1002 -k other\n\
         -a always,exit -F arch=b64 -S chmod,truncate,chown -F path=/tmp/at_entry/secret -k secret\n",
    ),
    tests: &[
        ("hides_no_chmod", |daemon| hides_nothing(daemon, &CHMOD)),
        ("hides_no_truncate", |daemon| {
            hides_nothing(daemon, &TRUNCATE)
        }),
        ("hides_no_chown", |daemon| hides_nothing(daemon, &CHOWN)),
        ("forges_no_chmod", |daemon| forges_nothing(daemon, &CHMOD)),
        ("forges_no_truncate", |daemon| {
            forges_nothing(daemon, &TRUNCATE)
        }),
        ("forges_no_chown", |daemon| forges_nothing(daemon, &CHOWN)),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// What syscalls change.
const SECRET: &str = "/tmp/at_entry/secret";
/// What the operation opens.
const OPENED: &str = "/tmp/at_entry/opened";

/// A syscall with a name.
struct Case {
    call: &'static str,
    number: u32,
    args: fn(uid: u32) -> Vec<Arg>,
    is_done: fn() -> anyhow::Result<bool>,
}

const CHMOD: Case = Case {
    call: "chmod",
    number: 90,
    args: |_uid| args![SECRET, 0o640],
    is_done: || Ok(fs::metadata(SECRET)?.mode() & 0o7777 == 0o640),
};

const TRUNCATE: Case = Case {
    call: "truncate",
    number: 76,
    args: |_uid| args![SECRET, 3],
    is_done: || Ok(fs::metadata(SECRET)?.len() == 3),
};

/// It changes no owner, and takes the set-user-ID bit away.
const CHOWN: Case = Case {
    call: "chown",
    number: 92,
    args: |uid| args![SECRET, Arg::Number(uid.into()), Arg::Number(uid.into())],
    is_done: || Ok(fs::metadata(SECRET)?.mode() & 0o4000 == 0),
};

/// Makes the file of a user as it was before any syscall.
fn reset(uid: u32) -> anyhow::Result<()> {
    fs::write(SECRET, "text\n")?;
    chown(SECRET, Some(uid), Some(uid))?;
    fs::set_permissions(SECRET, fs::Permissions::from_mode(0o4755))?;
    Ok(())
}

/// A program that waits for a byte, submits an open that waits for another byte, and makes the syscall, at which its
/// filter stops it.
fn program(case: &Case, uid: u32) -> anyhow::Result<Program> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let input = 0;
    let mut steps = vec![step!("read", input, Arg::Buffer, 1)];
    steps.extend(queue.made());
    steps.push(step!("socket", 1, 1, 0));
    steps.extend(queue.chains());
    let call = ProgramStep {
        name: case.call,
        args: (case.args)(uid),
        saved: None,
        stores: Vec::new(),
    };
    let [submit, call, _wait] = queue.give_chain(openat2(OPENED, 0), 0, call);
    steps.push(submit);
    steps.extend([
        step!("prctl", 38, 1, 0, 0, 0), // no new privileges
        step!("seccomp", 1, 0, filter(case.number)),
        call,
        step!("exit_group", 0),
    ]);
    steps::program(Entry::Syscall, &steps)
}

/// A filter (`struct sock_fprog`) that stops a traced task at one syscall.
fn filter(number: u32) -> Arg {
    let (load, is_equal, end) = (0x20_u64, 0x15, 0x06);
    let (trace, allow) = (0x7ff0_0000, 0x7fff_0000);
    // Code, branches if equal and if not, value; the number comes first in the data.
    let instruction = |code: u64, skip: u64, value: u32| code | skip << 24 | u64::from(value) << 32;
    let instructions = [
        instruction(load, 0, 0),
        instruction(is_equal, 1, number),
        instruction(end, 0, trace),
        instruction(end, 0, allow),
    ];
    let bytes = numbers(instructions.map(u64::to_ne_bytes));
    Arg::Words(vec![4.into(), bytes])
}

/// Traces a program until it ends, which makes its operation ready at the entry of the syscall.
fn trace(traced: &mut Child, number: u32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(traced.id().try_into()?);
    let mut input = traced.stdin.take().context("no input")?;
    ptrace::seize(
        pid,
        Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACESECCOMP
            | Options::PTRACE_O_EXITKILL,
    )
    .context("cannot trace")?;
    ptrace::interrupt(pid)?;
    input.write_all(b"x")?;
    let (mut is_ready, mut has_run) = (false, false);
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)).context("cannot wait")? {
            WaitStatus::PtraceSyscall(_) => {
                let mut registers = ptrace::getregs(pid)?;
                let is_entry = *registers::number(&mut registers) == u64::from(number)
                    && *registers::result(&mut registers) == BEGUN;
                if is_entry && !is_ready {
                    input.write_all(b"x")?;
                    is_ready = true;
                }
                ptrace::syscall(pid, None)?;
            }
            WaitStatus::PtraceEvent(_, _, event) => {
                if event == Event::PTRACE_EVENT_SECCOMP as i32 {
                    ensure!(is_ready, "no stop at the entry of the syscall");
                    has_run = has_opened(pid)?;
                }
                ptrace::syscall(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::syscall(pid, signal)?,
            WaitStatus::Exited(_, status) => {
                ensure!(status == 0, "the program ended with {status}");
                ensure!(has_run, "the operation did not run before the syscall");
                return Ok(());
            }
            other => anyhow::bail!("the program stopped with {other:?}"),
        }
    }
}

/// Whether a process has the operation's file open.
fn has_opened(pid: Pid) -> anyhow::Result<bool> {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let mut targets = open.filter_map(|fd| fs::read_link(fd.path()).ok());
    Ok(targets.any(|target| target == Path::new(OPENED)))
}

/// Runs the syscall with the operation before it, then a plain one that must have an event with `key`. Fails unless
/// the first has one event too, with this key and the changed object only.
fn run(daemon: &Daemon, case: &Case, uid: u32, key: &str) -> anyhow::Result<()> {
    reset(uid)?;
    let call = case.call;
    let path = program(case, uid)?.install(call)?;
    let mut traced = start_waiting(&path, uid)?;
    let ended = trace(&mut traced, case.number);
    if ended.is_err() {
        let _gone = traced.kill();
    }
    ended?;
    ensure!((case.is_done)()?, "{call} changed nothing");
    let plain = Program::new(Entry::Syscall).call(CHMOD.number, args![SECRET, 0o604]);
    let plain = daemon.run(uid, &plain.install("plain")?, &[])?;
    daemon.events(key, plain, 1).context("a plain chmod")?;
    let events = daemon.logged(traced.id())?;
    let [event] = events.as_slice() else {
        anyhow::bail!("{} events of one {call}: {}", events.len(), show(&events));
    };
    let summary = event.summary();
    ensure!(summary.starts_with(call), "{summary} for {call}");
    ensure!(event.field("SYSCALL", "key") == key, "{summary}: {event}");
    let inodes = event.fields("PATH", "inode");
    let changed = fs::metadata(SECRET)?.ino().to_string();
    ensure!(
        inodes == [changed.as_str()],
        "{call} changed inode {changed}, the record has {inodes:?}: {summary}"
    );
    Ok(())
}

/// The syscall is recorded by a rule about the object that it changes, whatever the operation opens before.
fn hides_nothing(daemon: &Daemon, case: &Case) -> anyhow::Result<()> {
    run(daemon, case, USER, "secret")
}

/// The record by a rule for the user has the object that the syscall changes, not the one that the operation opens.
fn forges_nothing(daemon: &Daemon, case: &Case) -> anyhow::Result<()> {
    run(daemon, case, STRANGER, "other")
}
