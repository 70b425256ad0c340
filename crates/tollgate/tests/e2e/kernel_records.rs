//! The kernel's own records: they are in the log, and the kernel's audit is restored afterwards.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bstr::{BString, ByteSlice as _};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};

use super::daemon::{Account, Daemon, program};
use super::event::{Event, ausearch};
use super::handover::{Bpf, opens};
use super::harness::wait_for;
use super::kernel_audit::{KernelAudit, Lock, State, auditctl};
use super::step::{WorkloadStep, step};
use super::stock_readers::relayed;
use super::test_dir::TestDir;

/// Settings that `auditd` requires.
const CONF: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\n";
/// The enriched format, with a node.
const ENRICHED: &str = "log_format = ENRICHED\nname_format = HOSTNAME\n";
/// The first serial of tollgate; the kernel's serials are lower.
const FIRST_SERIAL: u32 = 0x8000_0000;
/// An unused login uid.
const AUID: &str = "424242";

fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k messages\n",
        test_dir.id
    )
}

fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

fn start(test_dir: &TestDir, how: &str) -> Daemon {
    let log = test_dir.own.join("audit.log");
    Daemon::start_with_messages(test_dir, &rule(test_dir), &log, CONF, how)
}

/// A shell that sends this message.
fn shell(text: &str) {
    let mut command = Command::new("sh");
    let quiet = command.args(["-c", text]).stderr(Stdio::null());
    quiet.status().unwrap();
}

/// Waits for the event that contains this text.
#[track_caller]
fn logged(daemon: &Daemon, part: &str) -> Event {
    wait_for(part, || {
        let has = |event: &Event| event.records[0].line.contains_str(part);
        daemon.events().into_iter().find(has)
    })
}

pub(crate) fn user_and_kernel_records_are_logged() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let test_dir = TestDir::new();
    let daemon = start(&test_dir, "unicast");
    let during = State::ask();
    assert_eq!(during.rules, ["-a never,task"]);
    assert_eq!(during.number("enabled"), 1);
    assert_eq!(during.number("pid"), daemon.pid());
    assert_eq!(during.number("backlog_wait_time"), 0, "no task ever waits");

    // Each is in the log before the next one is sent.
    let mut expected = Vec::new();
    for round in 0..3 {
        test_dir.workload().run(&[rmdir()]);
        wait_for("the event", || {
            let of_calls = |event: &&Event| event.serial >= FIRST_SERIAL;
            let count = daemon.events().iter().filter(of_calls).count();
            (count == round + 1).then_some(())
        });
        expected.push("SYSCALL");
        let text = format!("e2e-{}-{round}", test_dir.id);
        auditctl(&["-m", &text]);
        let event = logged(&daemon, &text);
        assert_eq!(event.records[0].kind, "USER");
        assert!(event.serial < FIRST_SERIAL, "{event}");
        expected.push("USER");
    }
    shell(&format!("echo {AUID} > /proc/self/loginuid"));
    let login = logged(&daemon, &format!(" auid={AUID} "));
    assert_eq!(login.records[0].kind, "LOGIN", "{login}");
    shell("kill -SEGV $$");
    let crash = logged(&daemon, " sig=11 ");
    assert_eq!(crash.records[0].kind, "ANOM_ABEND", "{crash}");

    assert_eq!(daemon.auditctl(&["-e", "0"]).code, Some(0));
    assert_eq!(State::ask().number("enabled"), 0, "tollgate's -e 0");
    assert_eq!(daemon.auditctl(&["-e", "1"]).code, Some(0));
    assert_eq!(State::ask().number("enabled"), 1, "tollgate's -e 1");

    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
    assert_eq!((stopped.code, stopped.summary.lost), (Some(0), 0));
    assert_eq!(
        stopped.summary.written, 3,
        "messages are no events of calls"
    );
    let ours = |event: &&Event| event.serial >= FIRST_SERIAL || event.records[0].kind == "USER";
    let in_order = stopped.events.iter().filter(ours);
    let kinds: Vec<&str> = in_order
        .map(|event| event.records[0].kind.as_str())
        .filter(|kind| ["SYSCALL", "USER"].contains(kind))
        .collect();
    assert_eq!(kinds, expected);
    for (kind, text) in [
        ("USER", format!("e2e-{}-1", test_dir.id)),
        ("LOGIN", AUID.to_owned()),
        ("ANOM_ABEND", "sig=11".to_owned()),
    ] {
        let found = ausearch(&stopped.log, &["--raw", "-m", kind]);
        assert!(found.contains_str(&text), "ausearch -m {kind}");
    }
}

pub(crate) fn beside_auditd_records_are_read_only() {
    let lock = Lock::take();
    let test_dir = TestDir::new();
    let auditd = KernelAudit::start_with(&lock, &test_dir, &rule(&test_dir), ENRICHED);
    let before = State::ask();
    let log = test_dir.own.join("audit.log");
    let conf = format!("space_left = 2\nadmin_space_left = 1\n{ENRICHED}");
    let daemon = Daemon::start_with_messages(&test_dir, &rule(&test_dir), &log, &conf, "auto");
    assert_eq!(State::ask(), before);
    let marks = ["first", "last"].map(|word| format!("{word}-{}", test_dir.id));
    for text in &marks {
        auditctl(&["-m", text]);
        logged(&daemon, text);
        wait_for("the message in the log of auditd", || {
            auditd.text().contains_str(text).then_some(())
        });
        test_dir.workload().run(&[rmdir()]);
    }
    let (ours, theirs) = (fs::read(&log).unwrap(), auditd.text());
    let lines = relayed(&ours, &marks);
    let call = |line: &&BString| line.contains_str(" SYSCALL=rmdir ");
    assert_eq!(
        lines.iter().filter(call).count(),
        1,
        "what its rule records"
    );
    assert_eq!(lines, relayed(&theirs, &marks));
    assert_eq!(daemon.stop_with(Signal::SIGTERM).code, Some(0));
    assert_eq!(State::ask(), before);
    auditd.stop();
}

pub(crate) fn changes_of_a_killed_daemon_are_restored() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let test_dir = TestDir::new();
    let kill = |daemon: Daemon| {
        daemon.kill();
        let left = State::ask();
        assert_eq!(left.rules, ["-a never,task"], "nobody pays meanwhile");
        assert_eq!(left.number("enabled"), 1);
    };
    kill(start(&test_dir, "unicast"));
    // A daemon that continues after the first was killed, and knows the state before it.
    let daemon = start(&test_dir, "auto");
    let text = format!("e2e-{}", test_dir.id);
    auditctl(&["-m", &text]);
    logged(&daemon, &text);
    kill(daemon);
    let daemon = start(&test_dir, "auto");
    let log: PathBuf = daemon.log.clone();
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
    assert!(!ausearch(&log, &["-m", "USER"]).is_empty());
    // A daemon that does not read kernel records restores the state at once.
    kill(start(&test_dir, "unicast"));
    let daemon = start(&test_dir, "off");
    assert_eq!(State::ask(), before);
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
}

/// Sends user messages to the kernel at the highest rate.
fn send_messages(texts: impl Iterator<Item = String>) {
    const AUDIT_USER: u16 = 1005;
    const NLM_F_REQUEST: u16 = 1;
    let audit = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkAudit,
    )
    .unwrap();
    for text in texts {
        let length = u32::try_from(16 + text.len() + 1).unwrap();
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(AUDIT_USER.to_ne_bytes());
        message.extend(NLM_F_REQUEST.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(text.as_bytes());
        // The kernel terminates the text in the last byte.
        message.push(0);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(audit.as_raw_fd(), &message, &kernel, MsgFlags::empty()).unwrap();
    }
}

pub(crate) fn exiting_daemon_writes_received_records() {
    const SENT: usize = 4000;
    let lock = Lock::take();
    let before = State::unused(&lock);
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let pins = bpf.pins();
    let start = || {
        let options = [
            "--pins",
            pins.to_str().unwrap(),
            "--kernel-messages",
            "unicast",
        ];
        let rules = format!("{}-r 40\n", opens(&test_dir, "left"));
        Daemon::start_with_options(&test_dir, &program(), "", &rules, &options.map(OsStr::new))
    };
    let daemon = start();
    // Losses within a second of the last record are reported in the next one.
    test_dir.workload().burst(&file, 20);
    logged(&daemon, "op=lost-events");
    test_dir.workload().burst(&file, 20);
    // It is behind when it is told to exit.
    daemon.signal(Signal::SIGSTOP);
    send_messages((0..SENT).map(|number| format!("left-{}-{number}-", test_dir.id)));
    daemon.signal(Signal::SIGCONT);
    let Account { summary, log, .. } = daemon.end(Signal::SIGQUIT);
    let left = State::ask();
    // The next daemon knows the earlier state of the kernel's audit.
    start().end(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
    let (enabled, reader) = (left.number("enabled"), left.number("pid"));
    assert_eq!((enabled, reader), (1, 0), "on, for the next daemon");
    assert_eq!(left.rules, ["-a never,task"], "nobody pays meanwhile");
    let text = fs::read(&log).unwrap();
    let missing = |number: &usize| !text.contains_str(format!("left-{}-{number}-", test_dir.id));
    let missing = (0..SENT).filter(missing).count();
    let told = text.to_str().unwrap().lines();
    let told = told.filter_map(|line| line.split_once("op=lost-events lost="));
    let told = told.map(|(_, rest)| rest.split(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(told.sum::<u64>(), summary.lost, "{summary:?}");
    assert_ne!(summary.lost, 0, "the rate was kept");
    assert_eq!(missing, 0, "messages that it was sent, of {SENT}");
}
