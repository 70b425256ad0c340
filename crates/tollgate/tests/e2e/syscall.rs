//! Each syscall that names an object is recorded once, with the expected fields.

use bstr::{BString, ByteSlice as _};

use super::cases::{cases, failing, names};
use super::daemon::Daemon;
use super::event::{Event, Record, ausearch, with_key};
use super::raw_syscalls;
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;
use super::workload::{Facts, Made, WorkloadCalls};

/// Checks all fields of an event that do not depend on its objects.
#[track_caller]
fn check_call(event: &Event, made: &Made, test_dir: &TestDir, pid: u32, key: &str) {
    let call = event.one("SYSCALL");
    let (id, exit) = (
        test_dir.id.to_string(),
        made.result.map(|result| result.to_string()),
    );
    let mut expected = vec![
        ("arch", format!("{:x}", made.arch)),
        ("syscall", made.number.to_string()),
        (
            "success",
            if made.result.is_some_and(|result| result < 0) {
                "no"
            } else {
                "yes"
            }
            .into(),
        ),
        ("exit", exit.unwrap_or_else(|| "0".to_owned())),
        ("ppid", std::process::id().to_string()),
        ("pid", pid.to_string()),
        ("comm", format!("\"{}\"", comm())),
        ("key", format!("\"{key}\"")),
        (
            "auid",
            std::fs::read_to_string("/proc/self/loginuid").unwrap(),
        ),
        (
            "ses",
            std::fs::read_to_string("/proc/self/sessionid").unwrap(),
        ),
    ];
    for (name, value) in ["a0", "a1", "a2", "a3"].into_iter().zip(made.args) {
        expected.push((name, format!("{value:x}")));
    }
    for name in [
        "uid", "gid", "euid", "suid", "fsuid", "egid", "sgid", "fsgid",
    ] {
        expected.push((name, id.clone()));
    }
    for (name, value) in expected {
        assert_eq!(call.value(name), value, "{name} of {made:?} in\n{event}");
    }
    let exe = std::env::current_exe().unwrap();
    assert_eq!(
        call.text("exe").unwrap(),
        exe.as_os_str().as_encoded_bytes(),
        "{event}"
    );
    let title = event.one("PROCTITLE").text("proctitle").unwrap();
    assert!(title.starts_with(&proctitle(test_dir)), "{event}");
    let kinds: Vec<&str> = event
        .records
        .iter()
        .map(|record| record.kind.as_str())
        .collect();
    let items: usize = call.value("items").parse().unwrap();
    let mut ordered = vec!["SYSCALL"];
    let (arch, number) = (
        audit::ids::Arch(made.arch),
        audit::ids::Syscall(made.number),
    );
    if audit::table::syscall_name(arch, number) == Some("openat2") {
        ordered.push("OPENAT2");
    }
    if items != 0 {
        ordered.push("CWD");
        assert_eq!(
            event.one("CWD").text("cwd").unwrap(),
            test_dir.work.as_os_str().as_encoded_bytes()
        );
    }
    ordered.extend(vec!["PATH"; items]);
    ordered.push("PROCTITLE");
    assert_eq!(kinds, ordered, "{event}");
    for (number, path) in event.all("PATH").enumerate() {
        assert_eq!(path.value("item"), number.to_string(), "{event}");
    }
}

/// The workload's `comm`: its program's name, truncated by the kernel.
fn comm() -> String {
    let exe = std::env::current_exe().unwrap();
    exe.file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .chars()
        .take(15)
        .collect()
}

/// Words of the command line that all workloads of a test directory share, as far as PROCTITLE has them.
fn proctitle(test_dir: &TestDir) -> BString {
    let exe = std::env::current_exe().unwrap();
    let id = test_dir.id;
    let work = test_dir.work.display();
    let mut title = BString::from(format!(
        "{}\0workload\0calls\0{id},{id},{id}\0{id}\0g\0/\0{work}\0",
        exe.display()
    ));
    // The record has no NUL at its end: `audit_proctitle_rtrim` in `kernel/auditsc.c`, Linux 6.12.
    const LIMIT_BYTES: usize = 128;
    title.truncate(LIMIT_BYTES);
    if title.len() == LIMIT_BYTES {
        let end = title.trim_end_with(|char| char == '\0').len();
        title.truncate(end);
    }
    title
}

/// Checks the PATH records of an event against the file system as the workload saw it.
#[track_caller]
fn check_paths(event: &Event, made: &Made, test_dir: &TestDir, expected: &[&str]) {
    let work = test_dir.work.to_str().unwrap();
    let names: Vec<BString> = expected
        .iter()
        .map(|path| path.trim_end_matches('*').replace("CWD", work).into())
        .collect();
    assert_eq!(event.paths(), names, "{made:?} in\n{event}");
    for (path, expected) in event.all("PATH").zip(expected) {
        let known = expected.ends_with('*');
        assert_eq!(
            !path.value("inode").is_empty(),
            known,
            "inode of {expected} in\n{event}"
        );
        if known && path.value("name") != "(null)" {
            check_inode(event, path, &made.facts);
        }
    }
}

#[track_caller]
fn check_inode(event: &Event, path: &Record, facts: &[Facts]) {
    let part = if path.value("nametype") == "PARENT" {
        "directory"
    } else {
        "object"
    };
    let seen = |facts: &&Facts| {
        facts.part == part
            && facts.inode.to_string() == path.value("inode")
            && facts.dev == path.value("dev")
            && format!("{:#o}", facts.mode).replace("0o", "0") == path.value("mode")
            && facts.uid.to_string() == path.value("ouid")
            && facts.gid.to_string() == path.value("ogid")
    };
    assert!(
        facts.iter().any(|facts| seen(&facts)),
        "{facts:?} do not fit {}\n{event}",
        path.line
    );
    assert_eq!(path.value("rdev"), "00:00", "{event}");
}

/// Each syscall of a workload is in the log once, in order, and stock `ausearch` finds it.
#[track_caller]
fn check_all(
    events: &[Event],
    done: &WorkloadCalls,
    test_dir: &TestDir,
    key: &str,
    paths: &[&[&str]],
) {
    assert_eq!(events.len(), done.made.len(), "events for calls");
    for ((event, made), paths) in events.iter().zip(&done.made).zip(paths) {
        check_call(event, made, test_dir, done.pid, key);
        check_paths(event, made, test_dir, paths);
    }
}

pub(crate) fn every_event_is_found_once() {
    let test_dir = TestDir::new();
    let (steps, paths): (Vec<WorkloadStep>, Vec<_>) = cases()
        .into_iter()
        .map(|case| (case.step, case.paths))
        .unzip();
    let rule = format!(
        "-a always,exit -F arch=b64 -S {} -F uid={} -k all\n",
        names(&steps),
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let done = test_dir.workload().run(&steps);
    let stopped = daemon.stop();
    for (made, step) in done.made.iter().zip(&steps) {
        assert!(made.result.unwrap() >= 0, "{step:?} gave {made:?}");
    }
    // The rule also names calls of the workload itself: it drops its last privilege right before the first step,
    // and reads its facts with other calls.
    let mine = |events: Vec<Event>| -> Vec<Event> {
        let first = events.iter().position(|event| {
            event.syscall("syscall") == raw_syscalls::number(steps[0].arch, "creat").to_string()
        });
        events
            .into_iter()
            .skip(first.unwrap_or(0))
            .take(steps.len())
            .collect()
    };
    check_all(
        &mine(stopped.events.clone()),
        &done,
        &test_dir,
        "all",
        &paths,
    );
    let found = with_key(&stopped.log, "all");
    assert_eq!(found, stopped.events, "the log and what ausearch finds");
    check_interpreted(&stopped.log, &stopped.events);
}

/// Stock `ausearch` prints every event with its names.
#[track_caller]
fn check_interpreted(log: &std::path::Path, events: &[Event]) {
    let shown = ausearch(log, &["-i"]);
    let shown = shown.to_str_lossy();
    for event in events {
        let stamp = format!(":{}) : arch=", event.serial);
        let name = audit::table::syscall_name(
            audit::ids::Arch::X86_64,
            audit::ids::Syscall(event.syscall("syscall").parse().unwrap()),
        );
        let line = shown.lines().find(|line| line.contains(&stamp));
        let line = line.unwrap_or_else(|| panic!("ausearch -i does not show\n{event}"));
        assert!(
            line.contains(&format!(" syscall={} ", name.unwrap())),
            "{line}"
        );
        assert!(line.contains("arch=x86_64 "), "{line}");
    }
}

pub(crate) fn failed_calls_are_found_once() {
    let test_dir = TestDir::new();
    let steps = failing();
    let errors = [2, 2, 13, 13, 2, 13, 13, 2, 1, 13, 17, 9, 14];
    let paths: [&[&str]; 13] = [
        &["UNKNOWN missing"],
        &["UNKNOWN missing/below"],
        &["UNKNOWN /etc/shadow"],
        &["UNKNOWN /etc/new"],
        &["PARENT CWD*"],
        &["PARENT /etc/", "DELETE /etc/passwd"],
        &["PARENT /", "DELETE /etc"],
        &["PARENT CWD*", "PARENT CWD*"],
        &["UNKNOWN /etc/passwd"],
        &["UNKNOWN /etc/passwd"],
        &["PARENT /"],
        &[],
        &[],
    ];
    let rule = format!(
        "-a always,exit -F arch=b64 -S {} -F uid={} -F success=0 -k failed\n",
        names(&steps),
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let done = test_dir.workload().run(&steps);
    let stopped = daemon.stop();
    for (made, error) in done.made.iter().zip(errors) {
        assert_eq!(made.result, Some(-error), "{made:?}");
    }
    check_all(&stopped.events, &done, &test_dir, "failed", &paths);
    assert_eq!(with_key(&stopped.log, "failed"), stopped.events);
    let shown = ausearch(&stopped.log, &["-i"]);
    assert!(shown.contains_str("exit=ENOENT(No such file or directory)"));
    assert!(shown.contains_str("exit=EACCES(Permission denied)"));
}

pub(crate) fn records_of_an_event_are_contiguous() {
    let test_dir = TestDir::new();
    let steps: Vec<WorkloadStep> = (0..300)
        .map(|_| step!("openat", CWD, "/etc/passwd", 0))
        .collect();
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat -F uid={} -F a2=0 -k open\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    let started: Vec<_> = (0..4).map(|_| test_dir.workload().start(&steps)).collect();
    let pids: Vec<u32> = started
        .into_iter()
        .map(|started| started.finish().pid)
        .collect();
    let stopped = daemon.stop();
    for pid in pids {
        let made = stopped
            .events
            .iter()
            .filter(|event| event.syscall("pid") == pid.to_string());
        assert_eq!(made.count(), steps.len(), "events of {pid}");
    }
    // Events are split where the serial changes: a split event would be two events with missing records.
    for (event, expected) in stopped.events.iter().zip(stopped.events[0].serial..) {
        assert_eq!(event.serial, expected, "serials are dense");
        let kinds: Vec<&str> = event
            .records
            .iter()
            .map(|record| record.kind.as_str())
            .collect();
        assert_eq!(kinds, ["SYSCALL", "CWD", "PATH", "PROCTITLE"], "{event}");
    }
}

pub(crate) fn abis_are_distinguished() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F arch=b64 -S mkdir -F uid={id} -k wide\n\
             -a always,exit -F arch=b32 -S mkdir,open -F uid={id} -k narrow\n"
        ),
    );
    let done = test_dir.workload().run(&[
        step!("mkdir", "wide", 0o700),
        step!("mkdir", "narrow", 0o700).in_32_bits(),
        // 39 is mkdir to a 32-bit program and getpid to others; 83 is symlink, and mkdir to others.
        step!("getpid"),
        step!("symlink", "a", "b").in_32_bits(),
        step!("open", "missing", 0).in_32_bits(),
    ]);
    let stopped = daemon.stop();
    let found: Vec<_> = stopped
        .events
        .iter()
        .map(|event| {
            (
                event.syscall("arch"),
                event.syscall("syscall"),
                event.paths().pop().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("c000003e", "83", "CREATE wide".into()),
            ("40000003", "39", "CREATE narrow".into()),
            ("40000003", "5", "UNKNOWN missing".into()),
        ]
    );
    check_call(
        &stopped.events[0],
        &done.made[0],
        &test_dir,
        done.pid,
        "wide",
    );
    check_call(
        &stopped.events[1],
        &done.made[1],
        &test_dir,
        done.pid,
        "narrow",
    );
    check_call(
        &stopped.events[2],
        &done.made[4],
        &test_dir,
        done.pid,
        "narrow",
    );
    assert_eq!(with_key(&stopped.log, "narrow").len(), 2);
}

pub(crate) fn stock_programs_are_seen() {
    let test_dir = TestDir::new();
    test_dir.file("script", "touch one && mv one two && ln two three && chmod 600 two\nls -l >/dev/null\nrm two three missing\n");
    let daemon = Daemon::start(
        &test_dir,
        &format!(
            "-a always,exit -F dir={} -F perm=wa -F uid={} -k change\n",
            test_dir.work.display(),
            test_dir.id
        ),
    );
    test_dir.workload().program(&["sh", "script"]);
    let stopped = daemon.stop();
    let found: Vec<(BString, &str)> = stopped
        .events
        .iter()
        .map(|event| {
            (
                event.one("SYSCALL").text("comm").unwrap(),
                event.syscall("success"),
            )
        })
        .collect();
    let expected = [
        ("touch", "yes"),
        ("mv", "yes"),
        ("ln", "yes"),
        ("chmod", "yes"),
        ("rm", "yes"),
        ("rm", "yes"),
        ("rm", "no"),
    ];
    let expected = expected.map(|(comm, success)| (BString::from(comm), success));
    let text: String = stopped.events.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected, "\n{text}");
}
