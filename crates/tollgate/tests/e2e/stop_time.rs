//! How long starts, stops and commands take when rules name very many syscalls, or when the daemon does not run.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use audit::ids::Arch;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::daemon::{Account, Daemon};
use super::event;
use super::handover::Bpf;
use super::raw_syscalls;
use super::step::{CWD, WorkloadStep, step};
use super::test_dir::TestDir;

/// Limit of each start, stop and command, on a slow and busy host: a second is usual. One hook after the other, as
/// before, they took 30 seconds and more.
const LIMIT: Duration = Duration::from_secs(8);

/// A rule about all 64-bit syscalls, which no process matches but those of the test.
fn all(test_dir: &TestDir, key: &str) -> String {
    let id = test_dir.id;
    format!("-a always,exit -F arch=b64 -S all -F uid={id} -k {key}")
}

#[track_caller]
fn timed<T>(what: &str, action: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let result = action();
    let taken = since.elapsed();
    println!("{what}: {taken:?}");
    assert!(taken < LIMIT, "{what} took {taken:?}");
    result
}

#[track_caller]
fn auditctl(daemon: &Daemon, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = timed(line, || daemon.auditctl(&words));
    assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
}

#[track_caller]
fn stop(daemon: Daemon, signal: Signal) -> Account {
    let account = timed(&format!("{signal}"), || daemon.end(signal));
    assert_eq!((account.summary.lost, account.code), (0, Some(0)));
    account
}

/// The kernel detaches some ten perf events or functions in a second.
pub(crate) fn stops_are_quick_with_rules_about_all_calls() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let rules = all(&test_dir, "all") + "\n";
    let start = || Daemon::start_pinned(&test_dir, &rules, &bpf.pins());
    let daemon = start();
    stop(daemon, Signal::SIGQUIT);
    let daemon = timed("start after SIGQUIT", start);
    stop(daemon, Signal::SIGTERM);
    let daemon = timed("start after SIGTERM", start);
    stop(daemon, Signal::SIGTERM);
    // As many as have tracepoints of their own.
    let some: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let id = test_dir.id;
    let rule = format!(
        "-a always,exit -F arch=b64 -S {} -F uid={id} -k some\n",
        some.join(",")
    );
    let daemon = Daemon::start_pinned(&test_dir, &rule, &bpf.pins());
    stop(daemon, Signal::SIGTERM);
}

pub(crate) fn commands_are_quick_with_rules_about_all_calls() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let id = test_dir.id;
    let few = format!("-a always,exit -F arch=b64 -S rmdir -F uid={id} -k few");
    let daemon = Daemon::start_pinned(&test_dir, &format!("{few}\n"), &bpf.pins());
    for _ in 0..2 {
        auditctl(&daemon, &all(&test_dir, "all"));
        auditctl(&daemon, "-D");
        auditctl(&daemon, &few);
        auditctl(&daemon, "-w /etc/shadow -p wa -k shadow");
    }
    auditctl(&daemon, &all(&test_dir, "all"));
    stop(daemon, Signal::SIGTERM);
}

/// Syscalls that have their own hooks keep them, the others are seen at the raw tracepoint: none by both.
pub(crate) fn each_call_is_recorded_once_when_rules_about_all_calls_come_and_go() {
    let test_dir = TestDir::new();
    let id = test_dir.id;
    let few = format!("-a always,exit -F arch=b64 -S rmdir,openat -F uid={id} -k few");
    let daemon = Daemon::start(&test_dir, &format!("{few}\n"));
    let calls = || {
        let steps: [WorkloadStep; 3] = [
            step!("rmdir", "/missing"),
            step!("openat", CWD, "/missing", 0),
            step!("mkdir", "/etc", 0o700),
        ];
        test_dir.workload().run(&steps);
    };
    calls();
    auditctl(&daemon, &all(&test_dir, "all"));
    calls();
    auditctl(&daemon, &all(&test_dir, "all").replacen("-a", "-d", 1));
    calls();
    auditctl(&daemon, &all(&test_dir, "again"));
    calls();
    auditctl(&daemon, "-D");
    calls();
    auditctl(&daemon, &few);
    calls();
    let log = daemon.log.clone();
    let Account { summary, .. } = daemon.end(Signal::SIGTERM);
    assert_eq!(summary.lost, 0, "{summary:?}");
    let events = event::without_changes(&std::fs::read(log).unwrap());
    let keys = |call: &str| -> Vec<String> {
        let number = raw_syscalls::number(Arch::X86_64, call).to_string();
        let calls = events
            .iter()
            .filter(|event| event.syscall("syscall") == number);
        let keys = calls.filter_map(|event| event.key().map(|key| key.to_string()));
        keys.collect()
    };
    assert_eq!(keys("rmdir"), ["few"; 5]);
    assert_eq!(keys("mkdir"), ["all", "again"]);
}

/// Connects to a socket. `None` if its queue is full.
fn connect_at_once(path: &Path) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    match connect(client.as_raw_fd(), &UnixAddr::new(path).unwrap()) {
        Ok(()) => Some(client),
        Err(errno) => {
            assert_eq!(errno, Errno::EAGAIN);
            None
        }
    }
}

/// A daemon that a signal has stopped answers nobody.
pub(crate) fn stopped_daemon_is_reported_soon() {
    // The command waits for two seconds, and for four if it cannot connect.
    const LONGEST: Duration = Duration::from_secs(5);
    let test_dir = TestDir::new();
    let daemon = Daemon::start(&test_dir, "");
    let timed = |arguments: &[&str]| {
        let since = Instant::now();
        let output = daemon.auditctl(arguments);
        let taken = since.elapsed();
        assert!(taken < LONGEST, "it took {taken:?}");
        output
    };
    daemon.signal(Signal::SIGSTOP);
    let output = timed(&["-s"]);
    let unsignalled = timed(&["--signal", "state"]);
    // Clients that nobody takes fill the queue of the socket.
    let queue: Vec<OwnedFd> = (0..10_000)
        .map_while(|_| connect_at_once(&daemon.control))
        .collect();
    assert!(queue.len() < 10_000, "the queue of the socket has no end");
    let refused = timed(&["-s"]);
    assert!(
        refused.stderr.contains("queue of clients is full"),
        "{}",
        refused.stderr
    );
    drop(queue);
    daemon.signal(Signal::SIGCONT);
    let pid = daemon.pid();
    let expected = format!(
        "the daemon (process {pid}) is stopped; `kill -CONT {pid}` continues it, and then it does what was asked"
    );
    for output in [output, unsignalled] {
        assert!(output.stderr.contains(&expected), "{}", output.stderr);
        assert_ne!(output.code, Some(0));
    }
    let output = daemon.auditctl(&["-s"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    daemon.stop();
}
