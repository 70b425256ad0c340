//! Start, operation and end of the daemon, and state that it must not change.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::daemon::{CommandOutput, Daemon, MachineFiles, program};
use super::harness::wait_for;
use super::kernel_audit::{Lock, State};
use super::raw_syscalls;
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;

fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k life\n",
        test_dir.id
    )
}

fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

pub(crate) fn signals_stop_the_daemon_with_a_summary() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let test_dir = TestDir::new();
        let daemon = Daemon::start(&test_dir, &rule(&test_dir));
        test_dir.workload().run(&[rmdir(), rmdir()]);
        let stopped = daemon.stop_with(signal);
        assert_eq!(stopped.code, Some(0), "{signal}");
        assert_eq!(stopped.events.len(), 2, "{signal}");
        assert_eq!(stopped.summary.matched, 2, "{signal}");
        assert_eq!(stopped.summary.written, 2, "{signal}");
        assert_eq!(stopped.summary.lost, 0, "{signal}");
        test_dir.workload().run(&[rmdir()]);
        let after = super::event::events(&fs::read(&stopped.log).unwrap());
        assert_eq!(after.len(), 2, "nothing is written after the end");
    }
}

pub(crate) fn events_are_written_at_once() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    // The daemon is idle at each event: the next event follows only when the last one is in the log.
    for expected in 1..=20 {
        test_dir.workload().run(&[rmdir()]);
        wait_for("an event in the log", || {
            (daemon.events().len() == expected).then_some(())
        });
    }
    daemon.stop();
}

/// IDs of the BPF programs that a process holds.
fn programs(pid: u32) -> Vec<u32> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap() {
        // A descriptor may have been closed since.
        let Ok(info) = fs::read_to_string(entry.unwrap().path()) else {
            continue;
        };
        numbers.extend(info.lines().filter_map(|line| {
            let (name, number) = line.split_once(':')?;
            (name == "prog_id").then(|| number.trim().parse::<u32>().ok())?
        }));
    }
    numbers
}

pub(crate) fn killed_daemon_leaves_nothing_attached() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    let programs = programs(daemon.pid());
    assert!(!programs.is_empty());
    assert!(
        programs
            .iter()
            .all(|&program| raw_syscalls::has_program(program))
    );
    test_dir.workload().run(&[rmdir()]);
    let log = daemon.log.clone();
    wait_for("the event", || (daemon.events().len() == 1).then_some(()));
    daemon.kill();
    wait_for("the kernel to drop the programs", || {
        let gone = programs
            .iter()
            .all(|&program| !raw_syscalls::has_program(program));
        gone.then_some(())
    });
    test_dir.workload().run(&[rmdir()]);
    assert_eq!(super::event::events(&fs::read(log).unwrap()).len(), 1);
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    test_dir.workload().run(&[rmdir()]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!(
        (stopped.summary.written, stopped.events.len()),
        (1, 2),
        "the next one appends"
    );
}

pub(crate) fn only_named_syscalls_are_attached() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    for (rule, expected) in [
        (
            format!("-a always,exit -F arch=b64 -S openat,stat -F uid={id} -k a\n"),
            vec!["sys_exit_newstat", "sys_exit_openat"],
        ),
        (
            format!(
                "-a never,exit -F arch=b64 -S openat\n-a always,exit -F arch=b64 -S rmdir -F uid={id}\n"
            ),
            vec!["sys_exit_rmdir"],
        ),
        (
            format!("-a always,exit -F arch=b64 -F perm=x -F uid={id} -k x\n"),
            vec![
                "sched_prepare_exec",
                "sched_process_exec",
                "sys_exit_execve",
                "sys_exit_execveat",
            ],
        ),
        (
            format!("-a always,exit -F arch=b32 -S mkdir -F uid={id} -k narrow\n"),
            vec!["sys_exit"],
        ),
    ] {
        let daemon = Daemon::start(&test_dir, &rule);
        let mut attached = raw_syscalls::attached(daemon.pid());
        // Kernels before v6.10 have another tracepoint at the start of an exec.
        let before = attached.len();
        attached.retain(|name| !name.starts_with("sys_enter_exec"));
        if attached.len() != before {
            attached.insert(0, "sched_prepare_exec".into());
        }
        assert_eq!(attached, expected, "{rule}");
        daemon.stop();
    }
}

pub(crate) fn daemon_is_not_audited() {
    let test_dir = TestDir::new();
    let copy = test_dir.program("tollgate", program().to_str().unwrap());
    let rules = format!(
        "-a always,exit -F arch=b64 -S read,write,openat,close,futex,mmap,munmap,epoll_wait,poll,ppoll,\
         clock_nanosleep,bpf,fdatasync,ioctl,exit_group,rt_sigprocmask,sched_yield -F exe={} -k self\n\
         -a always,exit -F arch=b64 -S rmdir -F uid={} -k life\n",
        copy.display(),
        test_dir.id
    );
    let daemon = Daemon::start_program(&test_dir, &copy, "", &rules);
    for _ in 0..50 {
        test_dir.workload().run(&[rmdir()]);
    }
    let own = daemon.pid().to_string();
    let status = Command::new(&copy)
        .arg("check")
        .arg(test_dir.own.join("rules"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0), "tollgate check");
    let stopped = daemon.stop();
    let of_daemon = stopped
        .events
        .iter()
        .filter(|event| event.syscall("pid") == own);
    assert_eq!(of_daemon.count(), 0, "events of the daemon");
    let of_other = stopped
        .events
        .iter()
        .filter(|event| event.one("SYSCALL").text("exe").unwrap() == copy.to_str().unwrap());
    assert_ne!(
        of_other.count(),
        0,
        "events of the same program, not a daemon"
    );
}

pub(crate) fn two_daemons_record_the_same() {
    let test_dir = TestDir::new();
    let one = Daemon::start_program(&test_dir, &program(), "one.", &rule(&test_dir));
    let two = Daemon::start_program(&test_dir, &program(), "two.", &rule(&test_dir));
    test_dir
        .workload()
        .run(&[rmdir(), rmdir(), step!("openat", CWD, "missing", 0)]);
    let one = one.stop();
    test_dir.workload().run(&[rmdir()]);
    let two = two.stop();
    assert_eq!((one.events.len(), two.events.len()), (2, 3));
    for (left, right) in one.events.iter().zip(&two.events) {
        let fields = |event: &super::event::Event| event.records[0].fields()[1..].to_vec();
        assert_eq!(fields(left), fields(right));
    }
}

pub(crate) fn kernel_audit_is_unchanged() {
    let _lock = Lock::take();
    let before = State::ask();
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    test_dir.workload().run(&[rmdir()]);
    let during = State::ask();
    let stopped = daemon.stop();
    assert_eq!(stopped.events.len(), 1);
    assert_eq!(during, before);
    assert_eq!(State::ask(), before);
}

/// Ends a daemon that is no child of the test.
struct Detached(PathBuf);

impl Detached {
    fn pid(&self) -> Option<Pid> {
        let mut command = Command::new(program());
        command.args(["status", "--json", "--control"]).arg(&self.0);
        let status = command.stdin(Stdio::null()).output().ok()?;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
        let pid = status["settings"]["pid"].as_i64()?;
        Some(Pid::from_raw(i32::try_from(pid).ok()?))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _gone = kill(pid, Signal::SIGTERM);
            wait_for("the daemon to end", || self.pid().is_none().then_some(()));
        }
    }
}

/// `tollgate daemon | cat` and `ssh host tollgate daemon` return when auditing has started: neither the daemon nor its
/// helper keeps the streams.
pub(crate) fn detached_daemon_lets_go_of_its_streams() {
    let test_dir = TestDir::new();
    let files = MachineFiles::prepare(&test_dir, &rule(&test_dir));
    let mut arguments = files.arguments();
    arguments.retain(|argument| argument != "--foreground");
    let mut starter = Command::new(program())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let daemon = Detached(files.control.clone());
    let streams: [Box<dyn Read + Send>; 2] = [
        Box::new(starter.stdout.take().unwrap()),
        Box::new(starter.stderr.take().unwrap()),
    ];
    // A reader that never sees the end must not keep the test from failing.
    let readers = streams.map(|mut stream| {
        thread::spawn(move || {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        })
    });
    wait_for("the end of both streams", || {
        readers.iter().all(JoinHandle::is_finished).then_some(())
    });
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap());
    assert_eq!(starter.wait().unwrap().code(), Some(0), "{stderr}");
    assert_eq!(stdout, "");
    assert!(stderr.contains("tollgate: auditing"), "{stderr}");
    test_dir.workload().run(&[rmdir()]);
    wait_for("the event in the log", || {
        let log = fs::read(&files.log).unwrap();
        let events = super::event::events(&log);
        let calls = events
            .iter()
            .filter(|event| event.records[0].kind == "SYSCALL");
        (calls.count() == 1).then_some(())
    });
    assert!(daemon.pid().is_some());
    drop(daemon);
}

/// `tollgate explain` promises no engine that the daemon does not take.
pub(crate) fn explain_names_the_engine_that_the_daemon_takes() {
    let test_dir = TestDir::new();
    for rules in [
        rule(&test_dir),
        format!("-a always,exit -S all -F uid={} -k all\n", test_dir.id),
    ] {
        let file = test_dir.own.join("explained.rules");
        fs::write(&file, &rules).unwrap();
        let explain = |engine: &str| -> serde_json::Value {
            let mut command = Command::new(program());
            command.args(["explain", "--json", "--engine", engine]);
            let output = CommandOutput::of(command.arg(&file));
            assert_eq!(output.code, Some(0), "{output:?}");
            serde_json::from_str(&output.stdout).unwrap()
        };
        let daemon = Daemon::start(&test_dir, &rules);
        let taken = daemon.status()["engine"].clone();
        daemon.stop();
        let auto = explain("auto");
        assert_eq!((&auto["engine"], &auto["machine_engine"]), (&taken, &taken));
        let fentry = explain("fentry");
        assert_eq!(
            (&fentry["engine"], &fentry["machine_engine"]),
            (&"fentry".into(), &taken)
        );
        let refused = auto["refused_engines"].as_array().unwrap();
        assert_eq!(refused.is_empty(), taken == "fentry", "{auto}");
        assert!(
            refused
                .iter()
                .all(|refused| !refused["reason"].as_str().unwrap().is_empty())
        );
    }
}

/// `tollgate doctor` names the engine that a daemon takes, and why not another one, without messages of libbpf.
pub(crate) fn doctor_names_the_engine_that_the_daemon_takes() {
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    let taken = daemon.status()["engine"].clone();
    daemon.stop();
    let doctor =
        |options: &[&str]| CommandOutput::of(Command::new(program()).arg("doctor").args(options));
    let json = doctor(&["--json"]);
    let facts: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(facts["engine"], taken, "{json:?}");
    let is_complete = facts["verdict"] == "complete";
    assert_eq!(json.code, Some(if is_complete { 0 } else { 3 }), "{json:?}");
    let text = doctor(&[]);
    assert_eq!(text.code, json.code);
    for engine in facts["engines"].as_array().unwrap() {
        let Some(refusal) = engine["refusal"].as_str() else {
            continue;
        };
        assert!(text.stdout.contains(refusal), "{text:?}");
        assert!(!text.stdout.contains("BPF program load"), "{text:?}");
    }
}
