//! Rules with watches, and cases in which they could miss an object: `io_uring` operations that run within a
//! syscall or at its end, and state of an earlier syscall.
//!
//! Without the object there is no event: the tests expect the events in tollgate's log.

use anyhow::ensure;
use audit::ids::{Arch, Syscall};
use audit::table;
use support::event::{self, Event};
use support::wait::wait_for;

use super::steps::{self, ProgramStep, Run, RunAs, step};
use super::uring::{self, Worker};
use crate::daemon::Daemon;
use crate::program::{Arg, Entry};
use crate::suite::{Rules, Session, Skipped};

pub(crate) const SESSION: Session = Session {
    name: "differential_uring_watched",
    prepare: || Ok(()),
    rules: Rules::Text(RULES),
    tests: &[
        (
            "uring_ops_run_at_the_end_of_a_syscall",
            uring_ops_run_at_the_end_of_a_syscall,
        ),
        ("uring_op_runs_inside_an_exec", uring_op_runs_inside_an_exec),
        (
            "failed_exec_has_nothing_of_an_earlier_one",
            failed_exec_has_nothing_of_an_earlier_one,
        ),
        ("access_control_lists", access_control_lists),
        ("xattr_operations", xattr_operations),
    ],
    ..super::SESSION
};

/// So many other syscalls are named that all are seen at the raw `sys_exit`, where the registers have the result.
pub(crate) const SESSION_RAW: Session = Session {
    name: "differential_watched_raw",
    rules: Rules::Made(|| format!("{RULES}{}", all_other_calls())),
    tests: &[
        ("watched_calls_with_many_others", watched_calls),
        (
            "failed_exec_has_nothing_of_an_earlier_one",
            failed_exec_has_nothing_of_an_earlier_one,
        ),
        ("access_control_lists", access_control_lists),
    ],
    ..SESSION
};

/// A rule that names all syscalls that [`RULES`] do not name, and matches none.
fn all_other_calls() -> String {
    let names = (0..500).filter_map(|number| table::syscall_name(Arch::X86_64, Syscall(number)));
    let others = names.filter(|name| {
        let mut words = RULES.split([' ', ',']);
        words.all(|word| word != *name)
    });
    let names = others.collect::<Vec<_>>().join(",");
    format!("-a always,exit -F arch=b64 -S {names} -F gid=4243 -k others\n")
}

const RULES: &str = "\
-a always,exit -F arch=b64 -S openat,openat2 -F path=/tmp/w/file -F gid=4242 -k watched
-a always,exit -F arch=b64 -S execve -F path=/tmp/w/busybox -F gid=4242 -k watched
-a always,exit -F arch=b64 -S execve -F path=/tmp/w/text -F gid=4242 -k watched
-a always,exit -F arch=b64 -S setxattr,fsetxattr,getxattr,removexattr -F path=/tmp/w/file -F gid=4242 -k watched
-a always,exit -F arch=b64 -S exit,exit_group -F gid=4242 -k watched
";

/// Skips a test about operations of `io_uring` if the engine does not see them.
fn needs_operations(daemon: &Daemon) -> anyhow::Result<()> {
    if daemon.sees_inside() {
        return Ok(());
    }
    Err(Skipped("the engine does not see operations of io_uring").into())
}

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

/// The attribute that is a file's access control list.
pub(crate) const ACL: &str = "system.posix_acl_access";

/// Bytes of [`acl`].
pub(crate) const ACL_BYTES: i32 = 44;

/// An access control list that lets [`crate::machine::USER`] read.
///
/// # Source
/// `include/uapi/linux/posix_acl_xattr.h`, Linux 6.12: a version, then tag, permissions and id of each entry.
pub(crate) fn acl() -> Arg {
    let (read, none) = (4, u32::MAX);
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, none),
        (0x02, read, crate::machine::USER),
        (0x04, read, none),
        (0x10, read, none),
        (0x20, read, none),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    Arg::Bytes(bytes)
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
fn uring_ops_run_at_the_end_of_a_syscall(daemon: &Daemon) -> anyhow::Result<()> {
    needs_operations(daemon)?;
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

fn run(steps: Vec<ProgramStep>) -> [Run; 1] {
    [Run {
        user: RunAs::Root,
        entry: Entry::Syscall,
        steps,
    }]
}

/// An exec runs or cancels pending `io_uring` operations after it has found its program.
fn uring_op_runs_inside_an_exec(daemon: &Daemon) -> anyhow::Result<()> {
    needs_operations(daemon)?;
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

/// The rules of these calls need a watch; what hooks have recorded inside the call is found at its end.
fn watched_calls(daemon: &Daemon) -> anyhow::Result<()> {
    let steps = vec![
        step!("openat", steps::CWD, "other", 0),
        step!("openat", steps::CWD, "./sub/../file", 0),
        step!("openat", steps::CWD, "link", 0),
        // tmpfs has attributes of users since 6.6 only.
        step!("setxattr", "link", "trusted.x", "v", 1, 0),
    ];
    let events = logged(daemon, "watched_calls", &run(steps))?;
    let found: Vec<String> = events.iter().map(Event::summary).collect();
    let expected = [
        "openat=4 NORMAL:./sub/../file",
        "openat=5 NORMAL:link",
        "setxattr=0 NORMAL:/tmp/w/file",
    ];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

/// The process started with an exec without event: the event of a later failed exec contains nothing of it.
fn failed_exec_has_nothing_of_an_earlier_one(daemon: &Daemon) -> anyhow::Result<()> {
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

/// Kernels since 6.2 set access control lists by functions of their own.
fn access_control_lists(daemon: &Daemon) -> anyhow::Result<()> {
    let room = Arg::Shared("room", vec![0; 256]);
    let steps = vec![
        step!("openat", steps::CWD, "other", 2).save("other"),
        step!("setxattr", "file", ACL, acl(), ACL_BYTES, 0),
        step!("setxattr", "other", ACL, acl(), ACL_BYTES, 0),
        step!("fsetxattr", Arg::Saved("other"), ACL, acl(), ACL_BYTES, 0),
        step!("getxattr", "link", ACL, room, 256),
        step!("removexattr", "./file", ACL),
        step!("removexattr", "other", ACL),
    ];
    let events = logged(daemon, "access_control_lists", &run(steps))?;
    let found: Vec<String> = events.iter().map(Event::summary).collect();
    let expected = [
        "setxattr=0 NORMAL:file",
        "getxattr=44 NORMAL:/tmp/w/file",
        "removexattr=0 NORMAL:./file",
    ];
    ensure!(found == expected, "{found:?}");
    Ok(())
}

/// The kernel lists no object of an operation on a descriptor: it is the watch that shows here.
fn xattr_operations(daemon: &Daemon) -> anyhow::Result<()> {
    needs_operations(daemon)?;
    let events = logged(daemon, "xattr_operations", &run(uring::xattr_steps()?))?;
    let operations = operations(&events);
    let found: Vec<_> = operations
        .iter()
        .map(|(operation, success, names)| (operation.as_str(), success.as_str(), names.len()))
        .collect();
    ensure!(
        found
            == [
                ("42", "yes", 1),
                ("41", "yes", 1),
                ("42", "yes", 1),
                ("44", "yes", 1)
            ],
        "{operations:?}"
    );
    let named = operations.iter().flat_map(|(.., names)| names);
    let named: Vec<&String> = named.filter(|name| name.ends_with("file")).collect();
    ensure!(named == ["file", "/tmp/w/file", "./file"], "{named:?}");
    Ok(())
}
