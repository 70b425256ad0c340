//! Opens and execs that the kernel retries: the check of access to the file that it finds first fails with `ESTALE`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event::{Event, show};

use super::stale_server::{StaleServer, Targets};
use super::{nr, one};
use crate::daemon::Daemon;
use crate::differential::steps::{self, step};
use crate::differential::uring::{Layout, Queue, openat2};
use crate::filesystems::events;
use crate::half_seen::events_of;
use crate::machine::{PROGRAMS, USER};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The rule about `creat` needs no watch, so the hook on refused opens is attached. Only the execs of the tests have no
/// environment.
pub(crate) const SESSION: Session = Session {
    name: "retried_opens",
    engine: "fentry",
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S getpgid -F uid=1001 -k last\n\
         -a always,exit -F arch=b64 -S creat -F exit=-EACCES -F uid=1002 -k refused\n\
         -a never,exit -F arch=b64 -S execve,openat2 -F dir=/tmp/retried/quiet\n\
         -a always,exit -F arch=b64 -S execve -F uid=1001 -F a2=0 -k execs\n\
         -a always,exit -F arch=b64 -S openat2 -F uid=1001 -k opens\n",
    ),
    tests: &[
        ("exec_record_names_no_other_object", |daemon| {
            exec(daemon, OWN_NAME)
        }),
        ("exec_is_not_suppressed", |daemon| exec(daemon, QUIET_NAME)),
        ("uring_open_record_names_no_other_object", |daemon| {
            uring_open(daemon, OWN_NAME)
        }),
        ("uring_open_is_not_suppressed", |daemon| {
            uring_open(daemon, QUIET_NAME)
        }),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The program that the names lead to in the end.
const OBJECT: &str = "/tmp/programs/retried_object";
const TARGETS: Targets = Targets {
    file: OBJECT,
    from: "",
    to: "",
};
/// A name in the mounted directory.
const OWN_NAME: &str = "/tmp/retried/own/mount/checked";
/// The same below the directory of the `never` rule.
const QUIET_NAME: &str = "/tmp/retried/quiet/mount/checked";
/// A program in the directory of the `never` rule.
const QUIET_PROGRAM: &str = "/tmp/retried/quiet/program";

fn prepare() -> anyhow::Result<()> {
    super::prepare()?;
    let program = Program::new(Entry::Syscall);
    for path in [OBJECT, QUIET_PROGRAM] {
        program.write(Path::new(path))?;
    }
    Ok(())
}

/// Runs a program with the server mounted at the directory of a name; returns its process id.
fn run(daemon: &Daemon, name: &str, program: &Program) -> anyhow::Result<u32> {
    let program = program.install("retries")?;
    let mount = Path::new(name).parent().context("no directory")?;
    let server = StaleServer::mount(mount, USER, TARGETS)?;
    let pid = daemon.run_user(&program, &[])?;
    let stale = server.end()?;
    ensure!(stale == 1, "{stale} requests were answered with ESTALE");
    Ok(pid)
}

/// Fails unless there is one event, of a success, and its only object is [`OBJECT`] with this name.
fn expect(events: &[Event], name: &str) -> anyhow::Result<()> {
    let [event] = events else {
        anyhow::bail!("{} events of one call: {}", events.len(), show(events));
    };
    let inode = fs::metadata(OBJECT)?.ino().to_string();
    let found = ["name", "inode"].map(|field| event.fields("PATH", field));
    ensure!(
        found == [vec![name.to_owned()], vec![inode.clone()]],
        "the record has {found:?}, the kernel used inode {inode}"
    );
    let success = ["SYSCALL", "URINGOP"].map(|kind| event.field(kind, "success"));
    ensure!(success.concat() == "yes", "{event}");
    Ok(())
}

/// An exec is recorded with the program that was executed, and a rule about the file found first does not suppress it.
fn exec(daemon: &Daemon, name: &'static str) -> anyhow::Result<()> {
    let exec = |name| one(nr::EXECVE, args![name, Arg::Texts(&["word"]), 0]);
    let suppressed = exec(QUIET_PROGRAM).install("suppressed")?;
    let suppressed = daemon.run_user(&suppressed, &[])?;
    let pid = run(daemon, name, &exec(name))?;
    expect(&events_of(daemon, pid)?, name)?;
    let suppressed = daemon.logged(suppressed)?;
    ensure!(suppressed.is_empty(), "{}", show(&suppressed));
    Ok(())
}

/// The same for an open by an `io_uring` operation, after one that the rule suppresses.
fn uring_open(daemon: &Daemon, name: &'static str) -> anyhow::Result<()> {
    let mut queue = Queue::new(Layout::ask(Path::new(PROGRAMS))?, false);
    let mut steps = queue.made();
    for name in [QUIET_PROGRAM, name] {
        steps.push(queue.give(openat2(name, 0), false));
    }
    steps.push(step!("exit_group", 0));
    let program = steps::program(Entry::Syscall, &steps)?;
    let pid = run(daemon, name, &program)?;
    events_of(daemon, pid)?;
    let mut opens = events(daemon, "opens")?;
    opens.retain(|event| event.field("URINGOP", "pid") == pid.to_string());
    expect(&opens, name)
}
