//! Capabilities of a running daemon, refused directories, and notifications to systemd.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::fstat;
use nix::unistd::pipe;
use support::wait::PATIENCE;

use super::daemon::{CommandOutput, Daemon, program};
use super::harness::wait_for;
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

const CONF: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\nnum_logs = 3\n\
                    max_log_file = 8\nmax_log_file_action = ROTATE\n";
/// `CAP_CHOWN`, `CAP_DAC_READ_SEARCH`, `CAP_SYS_NICE`, `CAP_AUDIT_CONTROL`, `CAP_AUDIT_READ`,
/// `CAP_PERFMON` and `CAP_BPF`.
const CAPABILITIES: [u32; 7] = [0, 2, 23, 30, 37, 38, 39];
/// An eighth one where opening tracepoints needs it.
const SYS_ADMIN: u32 = 21;

/// Debian's kernels have one more level of this sysctl.
fn opens_tracepoints_by_perfmon() -> bool {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    level.trim().parse::<i32>().unwrap() <= 2
}

fn rule(test_dir: &TestDir, call: &str) -> String {
    format!(
        "-a always,exit -F arch=b64 -S {call} -F uid={} -k privilege\n",
        test_dir.id
    )
}

fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

/// The soft and hard limit of open files of a process.
#[track_caller]
fn open_files(pid: u32) -> (u64, u64) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line
        .unwrap()
        .split_whitespace()
        .map(|word| word.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A line of `/proc/PID/status`.
#[track_caller]
fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    line.unwrap_or_else(|| panic!("no {name} in {status}"))
        .to_owned()
}

/// Child processes.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = tasks.flat_map(|task| {
        let text = fs::read_to_string(task.unwrap().path().join("children")).unwrap();
        text.split_whitespace()
            .map(|child| child.parse().unwrap())
            .collect::<Vec<u32>>()
    });
    of_task.collect()
}

pub(crate) fn running_daemon_has_few_capabilities() {
    let test_dir = TestDir::new();
    let plugins = test_dir.own.join("plugins.d");
    fs::create_dir(&plugins).unwrap();
    // A plugin has capabilities and writable paths that the daemon lacks.
    let (out, had) = (test_dir.work.join("out"), test_dir.work.join("had"));
    let script = test_dir.own.join("copy");
    let text = format!(
        "trap '' HUP\ncat /proc/self/status > {}\nexec cat >> {}\n",
        had.display(),
        out.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o700)).unwrap();
    let lines = format!(
        "active = yes\npath = /bin/sh\nargs = {}\n",
        script.display()
    );
    fs::write(plugins.join("copy.conf"), lines).unwrap();
    let log = test_dir.own.join("log/audit.log");
    let (usual, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let few = most / 2;
    setrlimit(Resource::RLIMIT_NOFILE, few, most).unwrap();
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir, "rmdir"), &log, CONF);
    setrlimit(Resource::RLIMIT_NOFILE, usual, most).unwrap();

    let admin = (!opens_tracepoints_by_perfmon()).then_some(&SYS_ADMIN);
    let kept: u64 = CAPABILITIES.iter().chain(admin).map(|bit| 1 << bit).sum();
    let expected = format!("{kept:016x}");
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let mut looked_at = 0;
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let has = [
            "CapInh",
            "CapPrm",
            "CapEff",
            "CapBnd",
            "CapAmb",
            "NoNewPrivs",
        ]
        .map(|name| field(&status, name));
        let none = "0000000000000000";
        assert_eq!(
            has,
            [none, &expected, &expected, none, none, "1"],
            "{status}"
        );
        looked_at += 1;
    }
    assert!(
        looked_at >= 4,
        "main, log, flush, ring, plugin: {looked_at}"
    );
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let [launcher] = children(daemon.pid())[..] else {
        panic!("one child, the launcher");
    };
    // The daemon raises its file limit; its child processes keep the original limit.
    assert_eq!(open_files(daemon.pid()), (most, most));
    assert_eq!(open_files(launcher), (few, most));
    let launcher = fs::read_to_string(format!("/proc/{launcher}/status")).unwrap();
    assert_eq!(field(&launcher, "CapEff"), field(&own, "CapEff"));

    // Rules, log, socket and plugins work.
    test_dir.workload().run(&[rmdir()]);
    assert!(daemon.replace(&(rule(&test_dir, "rmdir") + &rule(&test_dir, "unlink"))));
    test_dir
        .workload()
        .run(&[rmdir(), step!("unlink", "/etc/missing")]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR1);
    let old = test_dir.own.join("log/audit.log.1");
    wait_for("the new log", || {
        (old.exists() && log.exists()).then_some(())
    });
    let added = daemon.auditctl(&[
        "-a",
        "always,exit",
        "-F",
        "arch=b64",
        "-S",
        "mkdir",
        "-k",
        "m",
    ]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert_eq!(daemon.auditctl(&["-l"]).stdout.lines().count(), 3);
    let mut status = Command::new(program());
    let status = CommandOutput::of(status.args(["status", "--control"]).arg(&daemon.control));
    let admin = if opens_tracepoints_by_perfmon() {
        ""
    } else {
        "sys_admin "
    };
    let confined = format!(
        "capabilities audit_control audit_read bpf chown dac_read_search perfmon {admin}sys_nice, \
         no new privileges, Landlock "
    );
    assert!(status.stdout.contains(&confined), "{}", status.stdout);

    // It has dropped write access to other directories, and reports that.
    if !status.stdout.contains("Landlock not") {
        let elsewhere = test_dir.work.join("socket");
        let lines = format!(
            "active = yes\npath = builtin_af_unix\nargs = 0600 {}\n",
            elsewhere.display()
        );
        fs::write(plugins.join("late.conf"), lines).unwrap();
        daemon.signal(Signal::SIGHUP);
        for text in [
            "plugin late.conf is not started: cannot listen on",
            "when it started: restart it",
        ] {
            wait_for(text, || daemon.has_printed(text).then_some(()));
        }
        assert!(!elsewhere.exists());
    }
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (3, 0));
    let had = fs::read_to_string(had).unwrap();
    for name in ["CapEff", "CapBnd", "NoNewPrivs", "Seccomp"] {
        assert_eq!(field(&had, name), field(&own, name), "{name} of a plugin");
    }
    let given = fs::read_to_string(out).unwrap();
    assert_eq!(given.matches("type=SYSCALL ").count(), 3);
}

pub(crate) fn symlinked_log_directory_is_refused() {
    let test_dir = TestDir::new();
    let (directory, moved) = (test_dir.own.join("log"), test_dir.own.join("moved"));
    let elsewhere = test_dir.own.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let log = directory.join("audit.log");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir, "rmdir"), &log, CONF);
    fs::rename(&directory, &moved).unwrap();
    symlink(&elsewhere, &directory).unwrap();
    test_dir.workload().run(&[rmdir()]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR1);
    let rotated = moved.join("audit.log.1");
    wait_for("the old log, where the directory is now", || {
        rotated.exists().then_some(())
    });
    daemon.signal(Signal::SIGHUP);
    wait_for("the refusal", || {
        daemon.has_printed("is a symbolic link").then_some(())
    });
    test_dir.workload().run(&[rmdir()]);
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (2, 0));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    let text = fs::read_to_string(moved.join("audit.log")).unwrap();
    assert_eq!(text.matches("type=SYSCALL ").count(), 1);
    // No daemon starts there.
    let mut again = Command::new(program());
    again
        .args(["daemon", "--foreground", "--no-control", "--rules"])
        .arg(test_dir.own.join("rules"))
        .arg("--log")
        .arg(&log);
    let refused = CommandOutput::of(&mut again);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("is a symbolic link"),
        "{}",
        refused.stderr
    );
}

pub(crate) fn systemd_is_notified_of_each_state() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let wait_for_state = |expected: &str| {
        let mut buffer = [0; 512];
        loop {
            let length = socket.recv(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|line| line == expected) {
                return text;
            }
        }
    };
    let log = test_dir.own.join("audit.log");
    let environment: [(&str, OsString); 2] = [
        ("NOTIFY_SOCKET", path.into()),
        ("WATCHDOG_USEC", "100000".into()),
    ];
    let daemon = Daemon::start_in(
        &test_dir,
        &rule(&test_dir, "rmdir"),
        &log,
        CONF,
        &environment,
    );
    let ready = wait_for_state("READY=1");
    assert!(ready.contains("STATUS=auditing with engine "), "{ready}");
    wait_for_state("WATCHDOG=1");
    wait_for_state("WATCHDOG=1");
    daemon.signal(Signal::SIGHUP);
    assert!(wait_for_state("RELOADING=1").contains("\nMONOTONIC_USEC="));
    wait_for_state("READY=1");
    daemon.end(Signal::SIGTERM);
    wait_for_state("STOPPING=1");
}

pub(crate) fn journal_messages_have_priorities() {
    let test_dir = TestDir::new();
    let conf = test_dir.own.join("auditd.conf");
    fs::write(&conf, "flush = often\n").unwrap();
    let rules = test_dir.own.join("rules");
    fs::write(&rules, rule(&test_dir, "rmdir")).unwrap();
    let (reads, writes) = pipe().unwrap();
    let about = fstat(writes.as_fd()).unwrap();
    let mut child = Command::new(program())
        .args(["daemon", "--foreground", "--no-control", "--rules"])
        .arg(rules)
        .arg("--auditd-conf")
        .arg(conf)
        .env(
            "JOURNAL_STREAM",
            format!("{}:{}", about.st_dev, about.st_ino),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(writes))
        .spawn()
        .unwrap();
    let mut said = String::new();
    fs::File::from(reads).read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert!(
        said.starts_with("<3>error[") || said.starts_with("<4>warning["),
        "{said}"
    );
    let number = |line: &str| {
        line.strip_prefix('<')
            .and_then(|rest| rest.get(1..2))
            .is_some_and(|end| end == ">")
    };
    assert!(said.lines().all(number), "{said}");
}
