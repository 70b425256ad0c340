//! Messages of the kernel's audit: in the log among the events, and the kernel's audit as it was before.

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

use super::answers::relayed;
use super::daemon::{Account, Daemon, program};
use super::event::{Event, ausearch};
use super::harness::wait_for;
use super::kernel_audit::{KernelAudit, Lock, State, auditctl};
use super::place::Place;
use super::step::{Step, step};
use super::survive::{Bpf, opens};

/// What `auditd` asks for in every configuration.
const CONF: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\n";
/// The other format, with a node.
const ENRICHED: &str = "log_format = ENRICHED\nname_format = HOSTNAME\n";
/// tollgate's serials begin here, and the kernel's below.
const FIRST_SERIAL: u32 = 0x8000_0000;
/// A login uid that nobody has.
const AUID: &str = "424242";

fn rule(place: &Place) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k messages\n",
        place.id
    )
}

fn rmdir() -> Step {
    step!("rmdir", "/etc/missing")
}

fn start(place: &Place, how: &str) -> Daemon {
    let log = place.own.join("audit.log");
    Daemon::start_with_messages(place, &rule(place), &log, CONF, how)
}

/// A shell that says this.
fn shell(text: &str) {
    let mut command = Command::new("sh");
    let quiet = command.args(["-c", text]).stderr(Stdio::null());
    quiet.status().unwrap();
}

/// Waits for the event that a part of a line is in.
#[track_caller]
fn logged(daemon: &Daemon, part: &str) -> Event {
    wait_for(part, || {
        let has = |event: &Event| event.records[0].line.contains_str(part);
        daemon.events().into_iter().find(has)
    })
}

pub(crate) fn what_programs_and_the_kernel_say_is_in_the_log() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let place = Place::new();
    let daemon = start(&place, "unicast");
    let during = State::ask();
    assert_eq!(during.rules, ["-a never,task"]);
    assert_eq!(during.number("enabled"), 1);
    assert_eq!(during.number("pid"), daemon.pid());
    assert_eq!(during.number("backlog_wait_time"), 0, "no task ever waits");

    // Each is in the log before the next happens.
    let mut expected = Vec::new();
    for round in 0..3 {
        place.workload().run(&[rmdir()]);
        wait_for("the event", || {
            let of_calls = |event: &&Event| event.serial >= FIRST_SERIAL;
            let count = daemon.events().iter().filter(of_calls).count();
            (count == round + 1).then_some(())
        });
        expected.push("SYSCALL");
        let text = format!("e2e-{}-{round}", place.id);
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
        ("USER", format!("e2e-{}-1", place.id)),
        ("LOGIN", AUID.to_owned()),
        ("ANOM_ABEND", "sig=11".to_owned()),
    ] {
        let found = ausearch(&stopped.log, &["--raw", "-m", kind]);
        assert!(found.contains_str(&text), "ausearch -m {kind}");
    }
}

pub(crate) fn beside_auditd_messages_are_read_and_nothing_is_changed() {
    let lock = Lock::take();
    let place = Place::new();
    let auditd = KernelAudit::start_with(&lock, &place, &rule(&place), ENRICHED);
    let before = State::ask();
    let log = place.own.join("audit.log");
    let conf = format!("space_left = 2\nadmin_space_left = 1\n{ENRICHED}");
    let daemon = Daemon::start_with_messages(&place, &rule(&place), &log, &conf, "auto");
    assert_eq!(State::ask(), before);
    let marks = ["first", "last"].map(|word| format!("{word}-{}", place.id));
    for text in &marks {
        auditctl(&["-m", text]);
        logged(&daemon, text);
        wait_for("the message in the log of auditd", || {
            auditd.text().contains_str(text).then_some(())
        });
        place.workload().run(&[rmdir()]);
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

pub(crate) fn what_a_killed_daemon_has_changed_is_put_back() {
    let lock = Lock::take();
    let before = State::unused(&lock);
    let place = Place::new();
    let kill = |daemon: Daemon| {
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let left = State::ask();
        assert_eq!(left.rules, ["-a never,task"], "nobody pays meanwhile");
        assert_eq!(left.number("enabled"), 1);
    };
    kill(start(&place, "unicast"));
    // One that goes on where the first was killed, and knows what was before.
    let daemon = start(&place, "auto");
    let text = format!("e2e-{}", place.id);
    auditctl(&["-m", &text]);
    logged(&daemon, &text);
    kill(daemon);
    let daemon = start(&place, "auto");
    let log: PathBuf = daemon.log.clone();
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
    assert!(!ausearch(&log, &["-m", "USER"]).is_empty());
    // One that wants nothing of it puts it back at once.
    kill(start(&place, "unicast"));
    let daemon = start(&place, "off");
    assert_eq!(State::ask(), before);
    daemon.stop_with(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
}

/// Sends messages of a program to the kernel, as fast as that takes them.
fn say(texts: impl Iterator<Item = String>) {
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
        // The kernel ends the text in the last byte.
        message.push(0);
        let kernel = NetlinkAddr::new(0, 0);
        sendto(audit.as_raw_fd(), &message, &kernel, MsgFlags::empty()).unwrap();
    }
}

pub(crate) fn a_daemon_that_leaves_writes_what_it_was_sent() {
    const SENT: usize = 4000;
    let lock = Lock::take();
    let before = State::unused(&lock);
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let pins = bpf.pins();
    let start = || {
        let options = [
            "--pins",
            pins.to_str().unwrap(),
            "--kernel-messages",
            "unicast",
        ];
        let rules = format!("{}-r 40\n", opens(&place, "left"));
        Daemon::start_with_options(&place, &program(), "", &rules, &options.map(OsStr::new))
    };
    let daemon = start();
    // What is lost within a second of the record before waits for the next one.
    place.workload().burst(&file, 20);
    logged(&daemon, "op=lost-events");
    place.workload().burst(&file, 20);
    // It is behind when it is told to leave.
    daemon.signal(Signal::SIGSTOP);
    say((0..SENT).map(|number| format!("left-{}-{number}-", place.id)));
    daemon.signal(Signal::SIGCONT);
    let Account { summary, log, .. } = daemon.end(Signal::SIGQUIT);
    let left = State::ask();
    // The next one knows how the kernel's audit was.
    start().end(Signal::SIGTERM);
    assert_eq!(State::ask(), before);
    let (enabled, reader) = (left.number("enabled"), left.number("pid"));
    assert_eq!((enabled, reader), (1, 0), "on, for the next daemon");
    assert_eq!(left.rules, ["-a never,task"], "nobody pays meanwhile");
    let text = fs::read(&log).unwrap();
    let missing = |number: &usize| !text.contains_str(format!("left-{}-{number}-", place.id));
    let missing = (0..SENT).filter(missing).count();
    let told = text.to_str().unwrap().lines();
    let told = told.filter_map(|line| line.split_once("op=lost-events lost="));
    let told = told.map(|(_, rest)| rest.split(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(told.sum::<u64>(), summary.lost, "{summary:?}");
    assert_ne!(summary.lost, 0, "the rate was kept");
    assert_eq!(missing, 0, "messages that it was sent, of {SENT}");
}
