//! A debugger replaces the syscall number, or the result, of a task that it has stopped inside a syscall. The syscall
//! that the kernel runs must be recorded, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, ensure};
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use support::event::{self, Event};
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::differential::steps::{self, step};
use crate::differential::uring::{Layout, Queue, openat2};
use crate::machine::{PROGRAMS, USER, make_directory, make_file, start_waiting};
use crate::program::{Arg, Entry, Program, args};
use crate::registers;
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "traced",
    engine: "fentry",
    prepare: || Ok(()),
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S fork,vfork,clone,clone3,execve,rmdir -F uid=1001 -k traced\n\
         -a always,exit -F arch=b32 -S fork,vfork,clone,clone3,execve,rmdir -F uid=1001 -k traced\n",
    ),
    tests: &[
        ("fork_is_recorded", |daemon| fork(daemon, "fork", 57)),
        ("vfork_is_recorded", |daemon| fork(daemon, "vfork", 58)),
        ("clone_is_recorded", |daemon| fork(daemon, "clone", 56)),
        ("clone3_is_recorded", |daemon| fork(daemon, "clone3", 435)),
        ("fork_by_int80_is_recorded", fork_by_int80),
        ("exec_makes_no_other_call", exec),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The engine that reads from registers whether a task is inside a syscall.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "traced_tracepoint",
    engine: "tracepoint",
    rules: Rules::Text("-a always,exit -F arch=b64 -S io_uring_enter -F uid=1001 -k traced\n"),
    tests: &[("uring_operation_is_recorded", uring_operation)],
    ..SESSION
};

/// Rules that need to see objects: the names lead through a symbolic link.
pub(crate) const SESSION_WATCHED: Session = Session {
    name: "traced_watched",
    prepare: || {
        make_directory(Path::new("/tmp/traced/dir"), USER)?;
        make_file(Path::new("/tmp/traced/dir/file"), USER)?;
        symlink("/tmp/traced/dir", "/tmp/traced/link").context("cannot make a link")
    },
    rules: Rules::Text("-w /tmp/traced/dir -p wa -k watched\n"),
    tests: &[("changed_result_hides_no_object", changed_result)],
    ..SESSION
};

/// Rules that test the result.
pub(crate) const SESSION_RESULT: Session = Session {
    name: "traced_result",
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S fork,vfork,clone,clone3 -F uid=1001 -F success=1 -k result\n\
         -a always,exit -F arch=b64 -S execve -F exe=/tmp/programs/next -F success=1 -k result\n",
    ),
    tests: &[
        ("fork_has_its_result", |daemon| {
            result_of_fork(daemon, "fork", 57)
        }),
        ("vfork_has_its_result", |daemon| {
            result_of_fork(daemon, "vfork", 58)
        }),
        ("clone_has_its_result", |daemon| {
            result_of_fork(daemon, "clone", 56)
        }),
        ("clone3_has_its_result", |daemon| {
            result_of_fork(daemon, "clone3", 435)
        }),
        ("clone_has_its_arguments", clone_has_its_arguments),
        ("exec_has_its_result", exec_has_its_result),
    ],
    ..SESSION
};

/// Rules that deny what cannot be recorded.
pub(crate) const SESSION_DENIED: Session = Session {
    name: "traced_denied",
    prepare: || {
        make_directory(Path::new("/tmp/traced_denied"), USER)?;
        fs::write(
            "/tmp/traced_denied.toml",
            "[on_loss]\ndeny = [\"denied\"]\n",
        )
        .context("no settings")
    },
    rules: Rules::Text("-a always,exit -F arch=b64 -S unlink -F uid=1001 -k denied\n"),
    tests: &[(
        "call_beside_operations_is_recorded_or_denied",
        recorded_or_denied,
    )],
    stop: Daemon::stop,
    ..SESSION
};

/// The numbers that the debugger sets: a syscall that no rule names, and one of the rules.
const GETPID: u64 = 39;
const RMDIR: u64 = 84;

/// The syscall that starts operations.
const IO_URING_ENTER: u32 = 426;

/// A program that waits for a byte, makes a syscall and exits.
fn waiting(entry: Entry, number: u32, args: Vec<Arg>) -> Program {
    let (read, exit_group) = match entry {
        Entry::Syscall => (0, 231),
        Entry::Int80 | Entry::I386 => (3, 252),
    };
    Program::new(entry)
        .call(read, args![0, Arg::Buffer, 1])
        .call(number, args)
        .call(exit_group, args![0])
}

/// What a debugger changes.
#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    /// The number at each stop inside a syscall.
    number: Option<u64>,
    /// The first argument at each stop inside a syscall.
    argument: Option<u64>,
    /// The register of the result when a syscall of this number begins.
    begun: Option<(u32, u64)>,
}

/// What a debugger has seen.
#[derive(Debug, Default)]
struct Trace {
    pid: u32,
    /// Stops inside a syscall.
    stops: u32,
    /// The last new task.
    made: Option<i64>,
}

/// Runs a program as the user under a debugger, until all its tasks have ended.
fn trace(path: &Path, changes: Changes) -> anyhow::Result<Trace> {
    let mut traced = start_waiting(path, USER)?;
    let pid = Pid::from_raw(traced.id().try_into()?);
    ptrace::seize(
        pid,
        Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC,
    )
    .context("cannot trace")?;
    ptrace::interrupt(pid)?;
    let mut input = traced.stdin.take().context("no input")?;
    input.write_all(b"x")?;
    let mut trace = Trace {
        pid: traced.id(),
        ..Trace::default()
    };
    let mut running = BTreeSet::from([pid]);
    while !running.is_empty() {
        // The daemon is a child too, and does not end.
        match waitpid(None, Some(WaitPidFlag::__WALL)).context("cannot wait")? {
            WaitStatus::PtraceEvent(stopped, _, event) => {
                // A new task is traced too, and begins with a stop of its own.
                running.insert(stopped);
                if stopped == pid && event != ptrace::Event::PTRACE_EVENT_STOP as i32 {
                    let mut registers = ptrace::getregs(stopped)?;
                    let number = registers::number(&mut registers);
                    *number = changes.number.unwrap_or(*number);
                    let argument = registers::argument(&mut registers);
                    *argument = changes.argument.unwrap_or(*argument);
                    ptrace::setregs(stopped, registers)?;
                    trace.stops += 1;
                    if event != ptrace::Event::PTRACE_EVENT_EXEC as i32 {
                        let made = ptrace::getevent(stopped)?;
                        trace.made = Some(made);
                        running.insert(Pid::from_raw(made.try_into()?));
                    }
                }
                ptrace::syscall(stopped, None)?;
            }
            WaitStatus::PtraceSyscall(stopped) => {
                let mut registers = ptrace::getregs(stopped)?;
                let number = *registers::number(&mut registers);
                if let Some((call, result)) = changes.begun
                    && stopped == pid
                    && number == u64::from(call)
                    && *registers::result(&mut registers) == BEGUN
                {
                    *registers::result(&mut registers) = result;
                    ptrace::setregs(stopped, registers)?;
                }
                ptrace::syscall(stopped, None)?;
            }
            WaitStatus::Stopped(stopped, signal) => ptrace::syscall(stopped, signal)?,
            WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, ..) => {
                running.remove(&ended);
            }
            _ => {}
        }
    }
    Ok(trace)
}

/// Checks that a process has exactly one event besides that of its own start.
fn expect_one(daemon: &Daemon, pid: u32, call: &str) -> anyhow::Result<()> {
    let events = wait_for("the event", || {
        let mut events = daemon.logged(pid)?;
        if !events.is_empty() {
            events.remove(0); // the start of the program
        }
        Ok((!events.is_empty()).then_some(events))
    });
    let events = events.with_context(|| format!("{call} is not recorded"))?;
    let summaries: Vec<String> = events.iter().map(Event::summary).collect();
    ensure!(
        events.len() == 1 && summaries.iter().all(|summary| summary.starts_with(call)),
        "{summaries:?} for {call}"
    );
    Ok(())
}

/// The arguments of a call that makes a process.
fn fork_arguments(call: &str) -> Vec<Arg> {
    let sigchld = 17;
    match call {
        "clone" => args![sigchld, 0, 0, 0, 0],
        "clone3" => {
            let mut clone_args = vec![0_u8; 64];
            if let Some(signal) = clone_args.get_mut(32) {
                *signal = 17;
            }
            args![Arg::Bytes(clone_args), 64]
        }
        _ => args![],
    }
}

/// Traces a program that makes one call, whose number becomes another at each stop inside it.
fn replace_number(name: &str, program: &Program, number: u64) -> anyhow::Result<Trace> {
    let trace = trace(
        &program.install(name)?,
        Changes {
            number: Some(number),
            ..Changes::default()
        },
    )?;
    ensure!(trace.stops > 0, "the debugger saw no {name}");
    Ok(trace)
}

fn fork(daemon: &Daemon, call: &str, number: u32) -> anyhow::Result<()> {
    for replaced in [GETPID, RMDIR] {
        let program = waiting(Entry::Syscall, number, fork_arguments(call));
        let trace = replace_number(call, &program, replaced)?;
        expect_one(daemon, trace.pid, call)?;
    }
    Ok(())
}

fn fork_by_int80(daemon: &Daemon) -> anyhow::Result<()> {
    let program = waiting(Entry::Int80, 2, args![]);
    let trace = replace_number("fork32", &program, GETPID)?;
    expect_one(daemon, trace.pid, "fork")
}

/// A fork in whose middle the debugger stops the task has its result, whatever the register had when it began.
fn result_of_fork(daemon: &Daemon, call: &str, number: u32) -> anyhow::Result<()> {
    for begun in [None, Some((number, 0)), Some((number, 7))] {
        let program = waiting(Entry::Syscall, number, fork_arguments(call)).install(call)?;
        let changes = Changes {
            begun,
            ..Changes::default()
        };
        let trace = trace(&program, changes)?;
        let made = trace.made.context("the debugger saw no new task")?;
        let events = daemon.events_until(trace.pid, number);
        let events = events.with_context(|| format!("{call} begun with {begun:?}"))?;
        let exits: Vec<&str> = events.iter().map(|event| event.syscall("exit")).collect();
        ensure!(
            exits == [made.to_string().as_str()],
            "{call} of {made}, begun with {begun:?}, has the results {exits:?}"
        );
    }
    Ok(())
}

/// A debugger changes the flags of a clone that it has stopped after the kernel used them.
fn clone_has_its_arguments(daemon: &Daemon) -> anyhow::Result<()> {
    const CLONE: u32 = 56;
    let program = waiting(Entry::Syscall, CLONE, fork_arguments("clone")).install("clone")?;
    let changes = Changes {
        argument: Some(0),
        ..Changes::default()
    };
    let trace = trace(&program, changes)?;
    ensure!(trace.stops > 0, "the debugger saw no clone");
    let events = daemon.events_until(trace.pid, CLONE)?;
    let flags: Vec<&str> = events.iter().map(|event| event.syscall("a0")).collect();
    ensure!(flags == ["11"], "the clone has the flags {flags:?}");
    Ok(())
}

const EXECVE: u32 = 59;

/// A program that executes another one.
fn executing() -> anyhow::Result<Program> {
    Program::new(Entry::Syscall)
        .call(231, args![0])
        .install("next")?;
    let argv = Arg::Texts(&["next"]);
    let args = args!["/tmp/programs/next", argv, Arg::Number(0)];
    Ok(waiting(Entry::Syscall, EXECVE, args))
}

/// After the exec the number is that of `rmdir`, and the result 0.
fn exec(daemon: &Daemon) -> anyhow::Result<()> {
    let trace = replace_number("execs", &executing()?, RMDIR)?;
    expect_one(daemon, trace.pid, "execve")
}

/// An exec in whose middle the debugger stops the task is recorded with its result.
fn exec_has_its_result(daemon: &Daemon) -> anyhow::Result<()> {
    let trace = trace(&executing()?.install("executes")?, Changes::default())?;
    ensure!(trace.stops > 0, "the debugger saw no exec");
    let events = daemon.events_until(trace.pid, EXECVE)?;
    let exits: Vec<&str> = events.iter().map(|event| event.syscall("exit")).collect();
    ensure!(exits == ["0"], "the exec has the results {exits:?}");
    Ok(())
}

/// A debugger that changes the register of the result when `io_uring_enter` begins hides no operation.
fn uring_operation(daemon: &Daemon) -> anyhow::Result<()> {
    for result in [None, Some(0)] {
        let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
        let mut all = vec![step!("read", 0, Arg::Buffer, 1)];
        all.extend(queue.made());
        all.push(queue.give(openat2("/tmp/work", 0), false));
        let path = steps::program(Entry::Syscall, &all)?.install("operates")?;
        let changes = Changes {
            begun: result.map(|result| (IO_URING_ENTER, result)),
            ..Changes::default()
        };
        let pid = trace(&path, changes)?.pid;
        let events = daemon.events_until(pid, IO_URING_ENTER)?;
        let has_operation = |event: &&Event| event.all("URINGOP").count() == 1;
        let count = events.iter().filter(has_operation).count();
        ensure!(
            count == 1,
            "{count} operations with result {result:?}: {}",
            event::show(&events)
        );
    }
    Ok(())
}

/// A debugger that changes the register of the result when a syscall begins hides no object of it.
fn changed_result(daemon: &Daemon) -> anyhow::Result<()> {
    const CHMOD: u32 = 90;
    const OPENAT: u32 = 257;
    const O_WRONLY: i64 = 1;
    const UNLINK: u32 = 87;
    let file = "/tmp/traced/link/file";
    for (number, args) in [
        (OPENAT, args![steps::CWD, file, O_WRONLY]),
        (CHMOD, args![file, 0o600]),
        (UNLINK, args![file]),
    ] {
        let program = waiting(Entry::Syscall, number, args);
        let path = program.install(&format!("traced{number}"))?;
        let changes = Changes {
            begun: Some((number, 0)),
            ..Changes::default()
        };
        let pid = trace(&path, changes)?.pid;
        wait_for("the event", || {
            let events = daemon.logged(pid)?;
            let is_call = |event: &Event| event.syscall("syscall") == number.to_string();
            Ok(events.iter().any(is_call).then_some(()))
        })
        .with_context(|| format!("syscall {number} is not recorded"))?;
    }
    Ok(())
}

/// A task that can have operations of `io_uring`, and whose debugger changes the register of the result when a call
/// begins, does nothing that is not recorded.
fn recorded_or_denied(daemon: &Daemon) -> anyhow::Result<()> {
    const UNLINK: u32 = 87;
    let file = Path::new("/tmp/traced_denied/file");
    for result in [None, Some(0), Some(7)] {
        make_file(file, USER)?;
        let queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
        let mut all = vec![step!("read", 0, Arg::Buffer, 1)];
        all.extend(queue.made());
        all.push(step!("unlink", "/tmp/traced_denied/file"));
        let path = steps::program(Entry::Syscall, &all)?.install("unlinks")?;
        let changes = Changes {
            begun: result.map(|result| (UNLINK, result)),
            ..Changes::default()
        };
        let pid = trace(&path, changes)?.pid;
        if !file.exists() {
            let recorded = daemon.events_until(pid, UNLINK);
            recorded.with_context(|| format!("removed with result {result:?}"))?;
        }
    }
    Ok(())
}

/// The register of the result when a syscall begins: `-ENOSYS`.
pub(crate) const BEGUN: u64 = (-38_i64).cast_unsigned();
