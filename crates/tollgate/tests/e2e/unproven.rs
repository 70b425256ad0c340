//! Calls that a program hides from tracepoints, or forges: each is recorded, and a record says what is not known.

use std::path::{Path, PathBuf};
use std::process::Command;

use bstr::ByteSlice as _;
use nix::unistd::symlinkat;

use super::daemon::{CommandOutput, Daemon};
use super::event::{Event, with_key};
use super::test_dir::TestDir;

/// The program that makes the calls.
fn program(test_dir: &TestDir) -> PathBuf {
    test_dir.compiled(
        "unproven",
        include_str!("unproven.c"),
        &["-pthread", "-lrt"],
    )
}

/// Runs it; returns what it prints.
#[track_caller]
fn run(test_dir: &TestDir, program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = CommandOutput::of(command.args(arguments).current_dir(&test_dir.work));
    assert_eq!(output.code, Some(0), "{arguments:?}: {}", output.stderr);
    output.stdout
}

/// Names of the objects, and whether the record says that the call may not have been executed.
fn marked(events: &[Event]) -> Vec<(String, bool)> {
    let name = |event: &Event| event.paths().last().unwrap().to_str_lossy().into_owned();
    let mark = |event: &Event| event.one("SYSCALL").line.ends_with_str(" executed=?");
    events
        .iter()
        .map(|event| (name(event), mark(event)))
        .collect()
}

pub(crate) fn unexecuted_calls_are_marked() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    // Two keys: they are written in hexadecimal.
    let rule = format!(
        "-a always,exit -F arch=b64 -S mkdir -F exe={} -k first -k second\n",
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(&test_dir, &program, &["filtered"]);
    run(&test_dir, &program, &["emulated"]);
    let stopped = daemon.stop();
    let expected = [
        ("CREATE made".to_owned(), false),
        ("CREATE filtered".to_owned(), true),
        ("CREATE emulated".to_owned(), true),
    ];
    assert_eq!(marked(&stopped.events), expected);
    for key in ["first", "second"] {
        assert_eq!(with_key(&stopped.log, key), stopped.events, "{key}");
    }
}

pub(crate) fn unexecuted_calls_without_a_key_are_marked() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S mkdir -F exe={}\n",
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(&test_dir, &program, &["filtered"]);
    let stopped = daemon.stop();
    let marks: Vec<bool> = marked(&stopped.events)
        .iter()
        .map(|(_, mark)| *mark)
        .collect();
    assert_eq!(marks, [false, true]);
    let found = super::event::ausearch(&stopped.log, &["--raw", "-sc", "mkdir"]);
    assert_eq!(super::event::events(&found), stopped.events);
}

pub(crate) fn sigreturn_is_recorded() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S rt_sigreturn -F exe={} -k return\n",
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(&test_dir, &program, &["signalled"]);
    let stopped = daemon.stop();
    assert_eq!(with_key(&stopped.log, "return"), stopped.events);
    assert_eq!(stopped.events.len(), 1);
    let call = stopped.events[0].one("SYSCALL");
    assert_eq!(call.value("syscall"), "15");
    assert!(!call.line.contains_str("success="), "{}", call.line);
}

pub(crate) fn exit_under_a_tracer_is_recorded() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S exit_group -F exe={} -k end\n",
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let child = run(&test_dir, &program, &["renumbered"]);
    let mut threaded = Command::new(&program);
    let threaded = CommandOutput::of(threaded.arg("threaded"));
    assert_eq!(threaded.code, Some(3), "{}", threaded.stderr);
    let stopped = daemon.stop();
    let pids: Vec<&str> = stopped
        .events
        .iter()
        .map(|event| event.syscall("pid"))
        .collect();
    // The tracee, its tracer, and the process whose other thread makes no call.
    assert_eq!(pids.len(), 3, "{pids:?}");
    assert_eq!(pids[0], child.trim());
    for event in &stopped.events {
        assert_eq!(event.syscall("syscall"), "231", "{event}");
    }
}

pub(crate) fn opens_are_recorded_although_threads_replace_descriptors() {
    const TIMES: usize = 10_000;
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let watched = test_dir.file("watched", "");
    let watched = watched.to_str().unwrap();
    symlinkat(watched, nix::fcntl::AT_FDCWD, &test_dir.work.join("link")).unwrap();
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat -F path={watched} -F perm=w -F exe={exe} -k watched\n\
         -a always,exit -F arch=b64 -S openat -F dir={work} -F exe={exe} -k below\n",
        exe = program.display(),
        work = test_dir.work.display(),
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(
        &test_dir,
        &program,
        &["replaced", watched, &TIMES.to_string()],
    );
    run(&test_dir, &program, &["linked", "link"]);
    daemon.flush();
    let counted = daemon.status()["counts"]["incomplete"]["descriptor of another name"].as_u64();
    let stopped = daemon.stop();
    let (watched, below): (Vec<&Event>, Vec<&Event>) = stopped
        .events
        .iter()
        .partition(|event| event.syscall("key") == "\"watched\"");
    assert_eq!(watched.len(), TIMES + 1, "opens for writing");
    assert_eq!(below.len(), 1, "opens of the directory");
    let has_inode = |event: &Event| !event.one("PATH").value("inode").is_empty();
    // The link has another name than the file behind the descriptor; the directory has its own.
    assert!(!has_inode(watched[TIMES]), "{}", watched[TIMES]);
    assert!(has_inode(below[0]), "{}", below[0]);
    let replaced = watched.iter().filter(|event| !has_inode(event)).count();
    assert_eq!(counted, u64::try_from(replaced).ok());
}

pub(crate) fn objects_of_later_arguments_are_seen() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let marked = test_dir.file("marked", "");
    let rule = format!(
        "-a always,exit -F arch=b64 -S fanotify_mark -F path={} -k mark\n\
         -a always,exit -F arch=b64 -S mq_timedsend -F obj_uid=0 -F exe={} -k queue\n",
        marked.display(),
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(&test_dir, &program, &["objects", marked.to_str().unwrap()]);
    let stopped = daemon.stop();
    let found = with_key(&stopped.log, "mark");
    assert_eq!(found.len(), 1);
    let paths = found[0].paths();
    assert!(paths[0].ends_with_str("/marked"), "{}", found[0]);
    let queues = with_key(&stopped.log, "queue");
    assert_eq!(queues.len(), 1);
    assert_eq!(queues[0].one("PATH").value("ouid"), "0", "{}", queues[0]);
}

pub(crate) fn socket_addresses_are_recorded() {
    let test_dir = TestDir::new();
    let program = program(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S connect,getpeername -F exe={} -k address\n",
        program.display()
    );
    let daemon = Daemon::start(&test_dir, &rule);
    run(&test_dir, &program, &["addressed"]);
    let stopped = daemon.stop();
    let address = |event: &Event| {
        let records: Vec<&str> = event
            .all("SOCKADDR")
            .map(|record| record.value("saddr"))
            .collect();
        records.concat()
    };
    let found: Vec<String> = stopped.events.iter().map(address).collect();
    let local = "020000097F0000010000000000000000";
    // The kernel reads no address for a descriptor that is none.
    assert_eq!(found, [local, local, ""]);
    assert_eq!(with_key(&stopped.log, "address"), stopped.events);
}
