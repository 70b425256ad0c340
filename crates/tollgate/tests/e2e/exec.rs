//! Program starts and task exits.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use bstr::{BString, ByteSlice as _};

use super::daemon::Daemon;
use super::event::{Event, ausearch, with_key};
use super::step::{Arg, WorkloadStep, step};
use super::test_dir::TestDir;

const TRUE: &str = "/usr/bin/true";

/// An execve of `path` with these arguments and an empty environment.
pub(crate) fn execve(path: &str, args: &[&[u8]]) -> WorkloadStep {
    let args = args.iter().map(|arg| arg.to_vec()).collect();
    WorkloadStep {
        args: vec![path.into(), Arg::Texts(args), Arg::Texts(Vec::new())],
        ..step!("execve")
    }
}

/// The exec events of one task.
fn of(events: &[Event], pid: u32) -> &Event {
    let mut found = events
        .iter()
        .filter(|event| event.syscall("pid") == pid.to_string());
    match (found.next(), found.next()) {
        (Some(event), None) => event,
        _ => panic!("not one event of {pid}"),
    }
}

#[track_caller]
fn check_inode(event: &Event, item: usize, path: &std::path::Path) {
    let record = event.all("PATH").nth(item).unwrap();
    let inode = fs::metadata(path).unwrap().ino();
    assert_eq!(
        record.value("inode"),
        inode.to_string(),
        "{} in\n{event}",
        path.display()
    );
}

pub(crate) fn programs_scripts_and_descriptors() {
    let test_dir = TestDir::new();
    let program = test_dir.program("program", TRUE);
    let script = test_dir.program("script", TRUE);
    fs::write(&script, "#!/bin/sh -e\nexit 0\n").unwrap();
    let rule = format!(
        "-a always,exit -F arch=b64 -S execve,execveat -F uid={} -k start\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let workload = test_dir.workload();
    let by_path = workload.run(&[execve("./program", &[b"name", b"one", b"two words", b""])]);
    let by_script = workload.run(&[execve("script", &[b"ignored", b"argument"])]);
    let by_fd = workload.run(&[
        step!("open", "program", 0),
        WorkloadStep {
            args: vec![
                Arg::Result(0),
                "".into(),
                Arg::Texts(vec![b"fd".to_vec()]),
                Arg::Texts(Vec::new()),
                libc::AT_EMPTY_PATH.into(),
            ],
            ..step!("execveat")
        },
    ]);
    let stopped = daemon.stop();
    assert_eq!(with_key(&stopped.log, "start"), stopped.events);

    let event = of(&stopped.events, by_path.pid);
    assert_eq!(event.syscall("success"), "yes");
    assert_eq!(event.syscall("exit"), "0");
    for (name, value) in ["a0", "a1", "a2"].into_iter().zip(by_path.made[0].args) {
        assert_eq!(
            event.syscall(name),
            format!("{value:x}"),
            "{name} in\n{event}"
        );
    }
    assert_eq!(event.syscall("comm"), "\"program\"", "{event}");
    assert_eq!(
        event.one("SYSCALL").text("exe").unwrap(),
        program.to_str().unwrap()
    );
    assert_eq!(event.paths()[0], "NORMAL ./program", "{event}");
    check_inode(event, 0, &program);
    assert_eq!(
        event
            .one("EXECVE")
            .line
            .split_once_str(": ")
            .unwrap()
            .1
            .as_bstr(),
        "argc=4 a0=\"name\" a1=\"one\" a2=74776F20776F726473 a3=\"\""
    );
    assert_eq!(
        event.one("PROCTITLE").text("proctitle").unwrap(),
        "name\0one\0two words"
    );

    let event = of(&stopped.events, by_script.pid);
    assert_eq!(event.syscall("comm"), "\"script\"", "{event}");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    assert_eq!(
        event.one("SYSCALL").text("exe").unwrap(),
        shell.to_str().unwrap(),
        "{event}"
    );
    assert_eq!(
        event.paths()[..2],
        ["NORMAL script", "NORMAL /bin/sh"],
        "{event}"
    );
    check_inode(event, 1, &shell);
    let args: Vec<BString> = ["/bin/sh", "-e", "script", "argument"]
        .map(BString::from)
        .into();
    assert_eq!(event.arguments().unwrap().args, args, "{event}");

    let event = of(&stopped.events, by_fd.pid);
    assert_eq!(event.syscall("syscall"), "322", "{event}");
    assert_eq!(
        event.one("SYSCALL").text("exe").unwrap(),
        program.to_str().unwrap()
    );
    assert_eq!(event.paths()[0], "NORMAL ", "{event}");
    check_inode(event, 0, &program);
    assert_eq!(event.arguments().unwrap().args, ["fd"], "{event}");

    let shown = ausearch(&stopped.log, &["-i", "-k", "start"]);
    assert!(shown.contains_str("a2=two words"), "{}", shown.as_bstr());
    assert!(
        shown.contains_str("proctitle=name one two words"),
        "{}",
        shown.as_bstr()
    );
}

pub(crate) fn each_exec_variant_is_recorded() {
    // After the exec, the registers of all three show execve of a 64-bit program.
    for (rule, number) in [
        ("-F arch=b64 -S execve", "59"),
        ("-F arch=b64 -S execveat", "322"),
        ("-F arch=b32 -S execve", "11"),
    ] {
        let test_dir = TestDir::new();
        let program = test_dir.program("program", TRUE);
        let path = program.to_str().unwrap();
        let no_strings = || Arg::Texts(Vec::new());
        let execveat = WorkloadStep {
            args: vec![(-1).into(), path.into(), no_strings(), no_strings()],
            ..step!("execveat")
        };
        let rule = format!("-a always,exit {rule} -F uid={} -k way\n", test_dir.id);
        let daemon = Daemon::start(&test_dir, &rule);
        let workload = test_dir.workload();
        let pids = [
            workload.run(&[execve(path, &[b"59"])]).pid,
            workload.run(&[execveat]).pid,
            workload.run(&[execve(path, &[b"11"]).in_32_bits()]).pid,
        ];
        let stopped = daemon.stop();
        let at = ["59", "322", "11"]
            .iter()
            .position(|way| *way == number)
            .unwrap();
        assert_eq!(stopped.events.len(), 1, "{rule}");
        let event = of(&stopped.events, pids[at]);
        assert_eq!(event.syscall("syscall"), number, "{event}");
        assert_eq!(event.syscall("success"), "yes", "{event}");
        assert_eq!(event.one("SYSCALL").text("exe").unwrap(), path, "{event}");
    }
}

pub(crate) fn failed_execs_name_the_program() {
    let test_dir = TestDir::new();
    test_dir.file("plain", "text");
    let rule = format!(
        "-a always,exit -F arch=b64 -S execve -F uid={} -k start\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let done = test_dir.workload().run(&[
        execve("missing", &[b"missing"]),
        execve("plain", &[b"plain"]),
        execve("/etc", &[b"/etc"]),
    ]);
    let stopped = daemon.stop();
    let outcomes: Vec<_> = done.made.iter().map(|made| made.result.unwrap()).collect();
    assert_eq!(outcomes, [-2, -13, -13]);
    assert_eq!(stopped.events.len(), 3);
    for ((event, made), name) in stopped
        .events
        .iter()
        .zip(&done.made)
        .zip(["missing", "plain", "/etc"])
    {
        assert_eq!(event.syscall("success"), "no");
        assert_eq!(event.syscall("exit"), made.result.unwrap().to_string());
        assert_eq!(event.syscall("a0"), format!("{:x}", made.args[0]));
        assert_eq!(event.all("EXECVE").count(), 0, "{event}");
        assert_eq!(event.all("PATH").count(), 1, "{event}");
        assert_eq!(event.one("PATH").text("name").unwrap(), name, "{event}");
    }
}

pub(crate) fn task_exit_is_an_event() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S exit,exit_group -F uid={} -k end\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let done = test_dir.workload().run(&[step!("exit_group", 0)]);
    let pid = test_dir.workload().program(&["sh", "-c", "exit 7"]);
    let stopped = daemon.stop();
    assert_eq!(with_key(&stopped.log, "end"), stopped.events);
    assert_eq!(stopped.events.len(), 2);
    for (pid, status) in [(done.pid, "0"), (pid, "7")] {
        let event = of(&stopped.events, pid);
        let call = event.one("SYSCALL");
        assert_eq!(call.value("syscall"), "231");
        assert_eq!(call.value("a0"), status);
        assert!(
            !call.line.contains_str("success=") && !call.line.contains_str("exit="),
            "{event}"
        );
        assert_eq!(call.value("items"), "0");
        assert_ne!(call.value("exe"), "(null)", "{event}");
    }
}

pub(crate) fn arguments_fill_several_records() {
    let test_dir = TestDir::new();
    let rule = format!(
        "-a always,exit -F arch=b64 -S execve -F uid={} -k long\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let long = vec![b'x'; 9000];
    let mut args: Vec<&[u8]> = vec![b"true", &long, b"a b"];
    args.extend(vec![b"word".as_slice(); 2000]);
    let done = test_dir.workload().run(&[execve(TRUE, &args)]);
    let stopped = daemon.stop();
    let event = of(&stopped.events, done.pid);
    assert!(event.all("EXECVE").count() > 1);
    let found = event.arguments().unwrap();
    assert_eq!(found.argc, 2003);
    assert_eq!(found.args, args, "arguments come back");
    let again = with_key(&stopped.log, "long");
    assert_eq!(again, stopped.events, "ausearch finds all records");
}
