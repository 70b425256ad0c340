//! Rules with watches, and cases in which they could miss an object: `io_uring` operations that run within a
//! syscall or at its end, and state of an earlier syscall.
//!
//! Without the object there is no event: the tests expect the events in tollgate's log.

use anyhow::ensure;
use support::event::{self, Event};
use support::wait::wait_for;

use super::steps::{self, Run, Step, Who, step};
use super::uring::{self, Worker};
use crate::daemon::Daemon;
use crate::program::{Arg, Entry};
use crate::suite::{Rules, Session};

pub(crate) const SESSION: Session = Session {
    name: "differential_uring_watched",
    prepare: || Ok(()),
    rules: Rules::Text(RULES),
    tests: &[
        ("operations_on_the_way_out", operations_on_the_way_out),
        ("an_operation_inside_an_exec", an_operation_inside_an_exec),
        ("an_exec_behind_another", an_exec_behind_another),
    ],
    ..super::SESSION
};

const RULES: &str = "\
-a always,exit -F arch=b64 -S openat,openat2 -F path=/tmp/w/file -F gid=4242 -k watched
-a always,exit -F arch=b64 -S execve -F path=/tmp/w/busybox -F gid=4242 -k watched
-a always,exit -F arch=b64 -S execve -F path=/tmp/w/text -F gid=4242 -k watched
-a always,exit -F arch=b64 -S exit,exit_group -F gid=4242 -k watched
";

/// Runs a program of these steps; returns its events without its exit.
fn logged(daemon: &Daemon, test: &str, runs: &[Run]) -> anyhow::Result<Vec<Event>> {
    let mut logged = Vec::new();
    for pid in steps::run(test, runs)? {
        let pid = pid.to_string();
        let is_end = |event: &Event| event.summary().starts_with("exit");
        let mut events = wait_for("the end of the process in the log", || {
            let mut events = event::parse(&daemon.log_text()?)?;
            events.retain(|event| {
                event.is_from_tollgate()
                    && ["SYSCALL", "URINGOP"]
                        .map(|kind| event.field(kind, "pid"))
                        .contains(&pid)
            });
            Ok(events.iter().any(is_end).then_some(events))
        })?;
        events.retain(|event| !is_end(event));
        logged.extend(events);
    }
    Ok(logged)
}

/// The operations among events: name, result and objects.
fn operations(events: &[Event]) -> Vec<(String, String, Vec<String>)> {
    let operation = |event: &Event| {
        let field = |name| event.field("URINGOP", name);
        let names = event.fields("PATH", "name");
        (field("uring_op"), field("success"), names)
    };
    let mut operations: Vec<_> = events.iter().map(operation).collect();
    operations.retain(|(operation, ..)| !operation.is_empty());
    operations
}

/// The submitter runs the same operations in `io_uring_enter` as at the end of `write` and of a syscall that rules
/// name.
fn operations_on_the_way_out(daemon: &Daemon) -> anyhow::Result<()> {
    let done = |test, worker| -> anyhow::Result<_> {
        Ok(operations(&logged(daemon, test, &uring::runs(worker)?)?))
    };
    let mut expected = done("in_enter", Worker::Submitter)?;
    ensure!(expected.len() > 2, "too little to compare: {expected:?}");
    expected.push(("18".into(), "yes".into(), vec!["file".into()]));
    let found = done("on_the_way", Worker::Chain)?;
    ensure!(found == expected, "{found:?} should be {expected:?}");
    Ok(())
}

fn run(steps: Vec<Step>) -> [Run; 1] {
    [Run {
        who: Who::Root,
        entry: Entry::Syscall,
        steps,
    }]
}

/// An exec runs or cancels pending `io_uring` operations after it has found its program.
fn an_operation_inside_an_exec(daemon: &Daemon) -> anyhow::Result<()> {
    let argv = Arg::Words(vec![Arg::Bytes(b"true\0".to_vec()), 0.into()]);
    let mut steps = uring::open_that_waits()?;
    steps.push(step!("execve", "/tmp/w/busybox", argv, 0));
    let events = logged(daemon, "inside_an_exec", &run(steps))?;
    let operations = operations(&events);
    let expected = [("18".into(), "yes".into(), vec!["file".into()])];
    ensure!(operations == expected, "{operations:?}");
    let execs = events.iter().map(Event::summary);
    let execs: Vec<String> = execs.filter(|text| text.starts_with("execve")).collect();
    ensure!(
        execs == ["execve=0 (true) NORMAL:/tmp/w/busybox"],
        "{execs:?}"
    );
    Ok(())
}

/// The process started with an exec without event: the event of a later failed exec contains nothing of it.
fn an_exec_behind_another(daemon: &Daemon) -> anyhow::Result<()> {
    let events = logged(
        daemon,
        "behind_an_exec",
        &run(vec![step!("execve", "/tmp/w/text", 0, 0)]),
    )?;
    let fields = |event: &Event| ["exit", "a1", "a2"].map(|name| event.field("SYSCALL", name));
    let fields: Vec<_> = events.iter().map(fields).collect();
    ensure!(fields == [["-8", "0", "0"]], "{fields:?}");
    Ok(())
}
