//! Syscalls of which hooks see one end only: they begin before a rule names them, end when none names them any longer,
//! or never end. They leave nothing to the next syscall of the task, and no event is made up.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::event::{self, Event};
use support::wait::wait_for;

use crate::daemon::{Daemon, calls, replace};
use crate::filesystems::{LOAD_MODULES, shell};
use crate::machine::{USER, start_waiting};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// Hooks on functions.
pub(crate) const SESSION: Session = Session {
    name: "half_seen",
    engine: "fentry",
    prepare: || {
        shell(LOAD_MODULES)?;
        shell(PREPARE)
    },
    rules: Rules::Text(LAST),
    tests: &[
        ("stale_address", stale_address),
        ("stale_slot_chmod", stale_slot_chmod),
        ("stale_slot_open", stale_slot_open),
        ("stale_enter", stale_enter),
        ("stale_exec", stale_exec),
        ("reboot_in_pid_namespace", reboot_in_pid_namespace),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Tracepoints have no slots.
pub(crate) const SESSION_TRACEPOINT: Session = Session {
    name: "half_seen_tracepoint",
    engine: "tracepoint",
    tests: &[
        ("stale_enter", stale_enter),
        ("stale_exec", stale_exec),
        ("reboot_in_pid_namespace", reboot_in_pid_namespace),
    ],
    ..SESSION
};

/// The rule about the syscall that ends a program. All rules of the tests have it.
pub(crate) const LAST: &str = "-a always,exit -F arch=b64 -S getpgid -F uid=1001 -k last\n";

const PREPARE: &str = "
mkdir -p /tmp/half_seen/below /tmp/half_seen/fuse
cd /tmp/half_seen
[ -e fifo ] || mkfifo -m 666 fifo
echo text > below/file
echo text > secret
echo text > other
chown -R 1001:1001 .
";

/// Syscall numbers of the 64-bit table.
mod nr {
    pub(super) const READ: u32 = 0;
    pub(super) const POLL: u32 = 7;
    pub(super) const SOCKET: u32 = 41;
    pub(super) const SENDTO: u32 = 44;
    pub(super) const BIND: u32 = 49;
    pub(super) const EXECVE: u32 = 59;
    pub(super) const EXIT: u32 = 60;
    pub(super) const CHMOD: u32 = 90;
    pub(super) const GETPGID: u32 = 121;
    pub(super) const REBOOT: u32 = 169;
    pub(super) const EXIT_GROUP: u32 = 231;
    pub(super) const OPENAT: u32 = 257;
    pub(super) const RECVMMSG: u32 = 299;
}

const AT_FDCWD: i64 = -100;
const O_RDWR: i64 = 2;
const STDIN: i64 = 0;

/// The events of a process that has ended.
///
/// # Errors
/// If the log cannot be read, or is not written.
pub(crate) fn events_of(daemon: &Daemon, pid: u32) -> anyhow::Result<Vec<Event>> {
    // Events are written in order.
    let last = Program::new(Entry::Syscall).call(nr::GETPGID, args![0]);
    let last = daemon.run_user(&last.install("last")?, &[])?;
    daemon.events_until(last, nr::GETPGID)?;
    daemon.logged(pid)
}

/// The recorded values of an argument of a syscall of the user.
fn arguments(events: &[Event], number: u32, name: &str) -> Vec<String> {
    let events = calls(events, number).into_iter();
    events.map(|event| event.field("SYSCALL", name)).collect()
}

/// Starts a program as the user.
fn start(program: &Program, name: &str) -> anyhow::Result<Child> {
    start_waiting(&program.install(name)?, USER)
}

/// Waits until a process sleeps in the syscall of this number that has this argument at this position.
fn sleeps_in(child: &Child, number: u32, (at, argument): (usize, u64)) -> anyhow::Result<()> {
    let path = format!("/proc/{}/syscall", child.id());
    let (number, argument) = (number.to_string(), format!("{argument:#x}"));
    wait_for(&format!("a program to sleep in syscall {number}"), || {
        let text = fs::read_to_string(&path).context("no such process")?;
        let mut words = text.split_whitespace();
        let is_number = words.next() == Some(&number);
        Ok((is_number && words.nth(at) == Some(&argument)).then_some(()))
    })
}

fn send_byte(child: &Child) -> anyhow::Result<()> {
    let mut input = child.stdin.as_ref().context("no standard input")?;
    input.write_all(b"x").context("cannot write to a program")
}

/// Waits for the end of a process; returns its events.
fn end(daemon: &Daemon, mut child: Child) -> anyhow::Result<Vec<Event>> {
    let status = child.wait().context("cannot wait for a program")?;
    ensure!(status.success(), "a program ended with {status}");
    events_of(daemon, child.id())
}

/// A `recvmmsg` that stores no address has no `SOCKADDR` of one that began before the rules.
fn stale_address(daemon: &Daemon) -> anyhow::Result<()> {
    const DONT_WAIT: u64 = 0x40;
    const WAIT_FOR_ONE: u64 = 0x1_0000;
    const UNIX: i64 = 1;
    const DATAGRAM: i64 = 2;
    /// Abstract addresses and their lengths.
    const SENDER: (&[u8], i64) = (b"\x01\0\0sender", 9);
    const RECEIVER: (&[u8], i64) = (b"\x01\0\0receiver", 11);
    let socket = |(address, length): (&[u8], i64)| {
        let address = Arg::Bytes(address.to_vec());
        Program::new(Entry::Syscall)
            .call(nr::SOCKET, args![UNIX, DATAGRAM, 0])
            .save("socket")
            .call(nr::BIND, args![Arg::Saved("socket"), address, length])
    };
    // struct mmsghdr: name, its length, struct iovec, their number, control, its length, flags, length.
    let receive = |name: Arg, bytes: i64, flags: u64| {
        let parts = Arg::Words(args![Arg::Buffer, 16]);
        let header = Arg::Words(args![name, bytes, parts, 1, 0, 0, 0, 0]);
        args![Arg::Saved("socket"), header, 1, flags.cast_signed(), 0]
    };
    let name = || Arg::Bytes(vec![0; 128]);
    let receiver = socket(RECEIVER)
        .call(nr::RECVMMSG, receive(name(), 128, 0))
        .call(nr::RECVMMSG, receive(0.into(), 0, DONT_WAIT))
        .call(nr::RECVMMSG, receive(name(), 128, WAIT_FOR_ONE));
    let (to, length) = RECEIVER;
    let to = Arg::Bytes(to.to_vec());
    let send = args![Arg::Saved("socket"), "x", 1, 0, to, length];
    let sender = socket(SENDER).call(nr::SENDTO, send).install("sender")?;

    let receiver = start(&receiver, "receiver")?;
    sleeps_in(&receiver, nr::RECVMMSG, (3, 0))?;
    replace(
        daemon,
        &format!("{LAST}-a always,exit -F arch=b64 -S recvmmsg -F uid=1001 -k received\n"),
    )?;
    daemon.run_user(&sender, &[])?;
    sleeps_in(&receiver, nr::RECVMMSG, (3, WAIT_FOR_ONE))?;
    daemon.run_user(&sender, &[])?;
    let events = end(daemon, receiver)?;
    replace(daemon, LAST)?;
    let addresses = |flags: u64| -> Vec<usize> {
        let mut events = calls(&events, nr::RECVMMSG);
        events.retain(|event| event.field("SYSCALL", "a3") == format!("{flags:x}"));
        let events = events.into_iter();
        events.map(|event| event.all("SOCKADDR").count()).collect()
    };
    let found = addresses(WAIT_FOR_ONE);
    ensure!(found == [1], "addresses of the last call: {found:?}");
    let found = addresses(DONT_WAIT);
    ensure!(found == [0], "addresses of a call without one: {found:?}");
    Ok(())
}

/// A `chmod` that began before the rules takes no event from the next one.
fn stale_slot_chmod(daemon: &Daemon) -> anyhow::Result<()> {
    let program = Program::new(Entry::Syscall)
        .call(nr::CHMOD, args!["/tmp/half_seen/fuse/file", 0o600])
        .call(nr::CHMOD, args!["/tmp/half_seen/secret", 0o640])
        .call(nr::CHMOD, args!["/tmp/half_seen/secret", 0o600]);
    let mut server = Command::new("/usr/bin/bindfs");
    server.args(["-f", "/tmp/half_seen/below", "/tmp/half_seen/fuse"]);
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().context("cannot start bindfs")?;
    wait_for("the mount", || {
        let mounts = fs::read_to_string("/proc/mounts")?;
        Ok(mounts.contains(" /tmp/half_seen/fuse ").then_some(()))
    })?;
    let signal =
        |signal| kill(Pid::from_raw(server.id().try_into()?), signal).map_err(anyhow::Error::from);
    signal(Signal::SIGSTOP)?;
    let begun = start(&program, "chmods").and_then(|child| {
        sleeps_in(&child, nr::CHMOD, (1, 0o600))?;
        replace(
            daemon,
            &format!(
                "{LAST}-a always,exit -F arch=b64 -S chmod -F path=/tmp/half_seen/secret -k secret\n\
                 -a always,exit -F arch=b64 -S chmod -F uid=1001 -F a1=0711 -k mode\n"
            ),
        )?;
        Ok(child)
    });
    signal(Signal::SIGCONT)?;
    let events = end(daemon, begun?)?;
    shell("umount /tmp/half_seen/fuse")?;
    server.wait().context("cannot wait for bindfs")?;
    replace(daemon, LAST)?;
    event::expect(&events, &["chmod=0 NORMAL:/tmp/half_seen/secret"; 2])?;
    let modes = arguments(&events, nr::CHMOD, "a1");
    ensure!(modes == ["1a0", "180"], "{modes:?}");
    Ok(())
}

/// An `openat` that began before the rules does not make the next one one of its file.
fn stale_slot_open(daemon: &Daemon) -> anyhow::Result<()> {
    const FIFO: &str = "/tmp/half_seen/fifo";
    const LAST_FILE: &str = "6";
    let rule = |syscalls: &str| {
        format!(
            "{LAST}-a always,exit -F arch=b64 -S {syscalls} -F path={FIFO} -F uid=1001 -k fifo\n"
        )
    };
    replace(daemon, &rule("open"))?;
    let program = Program::new(Entry::Syscall)
        .call(nr::OPENAT, args![AT_FDCWD, FIFO, 0])
        .call(nr::OPENAT, args![AT_FDCWD, "/tmp/half_seen/other", 0])
        .call(nr::OPENAT, args![AT_FDCWD, "/tmp/half_seen/other", 0])
        .call(nr::OPENAT, args![AT_FDCWD, FIFO, O_RDWR]);
    let reader = start(&program, "opens_fifo")?;
    sleeps_in(&reader, nr::OPENAT, (2, 0))?;
    replace(daemon, &rule("open,openat"))?;
    let _writer = File::options().write(true).open(FIFO).context("no fifo")?;
    let events = end(daemon, reader)?;
    replace(daemon, LAST)?;
    let shown = event::show(&events);
    let mut files: Vec<String> = events
        .iter()
        .map(|event| event.field("SYSCALL", "exit"))
        .collect();
    ensure!(
        files.pop().as_deref() == Some(LAST_FILE),
        "the last open: {shown}"
    );
    // Nothing has seen the begin of the first one.
    ensure!(files.is_empty() || files == ["3"], "{shown}");
    Ok(())
}

/// `poll` with a timeout.
fn poll(program: Program, timeout: i64) -> Program {
    const POLLIN: u8 = 1;
    // struct pollfd of standard input.
    let input = Arg::Bytes(vec![0, 0, 0, 0, POLLIN, 0, 0, 0]);
    program.call(nr::POLL, args![input, 1, timeout])
}

/// Timeouts of two calls that wait for input.
const FIRST: i64 = -1;
const SECOND: i64 = -2;

/// An event has the arguments of its own syscall, not those of an earlier one that no rule named at its end.
fn stale_enter(daemon: &Daemon) -> anyhow::Result<()> {
    // So many syscalls are seen at the raw tracepoint, also those that began before.
    let syscalls = if daemon.sees_all() {
        let numbers: Vec<String> = (0..420).map(|number| number.to_string()).collect();
        numbers.join(",")
    } else {
        "poll".to_owned()
    };
    let rules = format!(
        "{LAST}-a always,exit -F arch=b64 -S {syscalls} -F uid=1001 -F exe=/tmp/programs/polls -k polls\n"
    );
    let read = |program: Program| program.call(nr::READ, args![STDIN, Arg::Buffer, 1]);
    let program = read(poll(Program::new(Entry::Syscall), FIRST));
    let program = poll(read(poll(program, SECOND)), 0);
    replace(daemon, &rules)?;
    let child = start(&program, "polls")?;
    sleeps_in(&child, nr::POLL, (2, FIRST.cast_unsigned()))?;
    replace(daemon, LAST)?;
    send_byte(&child)?;
    sleeps_in(&child, nr::POLL, (2, SECOND.cast_unsigned()))?;
    replace(daemon, &rules)?;
    send_byte(&child)?;
    let events = end(daemon, child)?;
    replace(daemon, LAST)?;
    let mut timeouts = arguments(&events, nr::POLL, "a2");
    ensure!(
        timeouts.pop().as_deref() == Some("0"),
        "no last poll: {}",
        event::show(&events)
    );
    let second = format!("{SECOND:x}");
    ensure!(
        timeouts.iter().all(|timeout| *timeout == second),
        "arguments of another poll: {timeouts:?}"
    );
    Ok(())
}

/// An exec that no rule names is not recorded as an earlier syscall that no rule named at its end.
fn stale_exec(daemon: &Daemon) -> anyhow::Result<()> {
    let rules = |syscalls: &str| {
        format!("{LAST}-a always,exit -F arch=b64 -S {syscalls} -F uid=1001 -k execs\n")
    };
    poll(Program::new(Entry::Syscall), 0).install("executed")?;
    let words = Arg::Texts(&["executed", "word"]);
    let program = poll(Program::new(Entry::Syscall), FIRST)
        .call(nr::READ, args![STDIN, Arg::Buffer, 1])
        .call(nr::READ, args![STDIN, Arg::Buffer, 2])
        .call(nr::EXECVE, args!["/tmp/programs/executed", words, 0]);
    replace(daemon, &rules("poll,execveat"))?;
    let child = start(&program, "executes")?;
    sleeps_in(&child, nr::POLL, (2, FIRST.cast_unsigned()))?;
    replace(daemon, &rules("execveat"))?;
    send_byte(&child)?;
    sleeps_in(&child, nr::READ, (2, 2))?;
    replace(daemon, &rules("poll,execveat"))?;
    send_byte(&child)?;
    let events = end(daemon, child)?;
    replace(daemon, LAST)?;
    let timeouts = arguments(&events, nr::POLL, "a2");
    ensure!(
        timeouts.last().map(String::as_str) == Some("0"),
        "no last poll: {}",
        event::show(&events)
    );
    ensure!(events.len() == 1, "made up: {}", event::show(&events));
    Ok(())
}

/// A `reboot` that ends its task is not recorded as `exit_group`; before Linux 6.16 it is not recorded at all.
fn reboot_in_pid_namespace(daemon: &Daemon) -> anyhow::Result<()> {
    const MAGIC: i64 = 0xfee1_dead;
    const SECOND_MAGIC: i64 = 0x2812_1969;
    const RESTART: i64 = 0x0123_4567;
    const EXE: &str = "/tmp/programs/reboots";
    replace(
        daemon,
        &format!(
            "{LAST}-a always,exit -F arch=b64 -S reboot -F uid=1001 -k reboots\n\
             -a always,exit -F arch=b64 -S exit,exit_group -F exe={EXE} -k ends\n"
        ),
    )?;
    Program::new(Entry::Syscall)
        .call(nr::REBOOT, args![MAGIC, SECOND_MAGIC, 1, 0])
        .call(nr::REBOOT, args![MAGIC, SECOND_MAGIC, RESTART, 0])
        .install("reboots")?;
    // The end of its first process ends the namespace, and `unshare` with the same signal.
    let script = format!("unshare -U -r -p -f {EXE} || true");
    daemon.run_user(Path::new("/bin/busybox"), &["sh", "-c", &script])?;
    events_of(daemon, 0)?;
    let mut events = event::parse(&daemon.log_text()?)?;
    events.retain(|event| event.field("SYSCALL", "exe") == EXE);
    replace(daemon, LAST)?;
    let shown = event::show(&events);
    let commands = arguments(&events, nr::REBOOT, "a2");
    ensure!(
        commands.first().map(String::as_str) == Some("1"),
        "no refused reboot: {shown}"
    );
    let ends = [nr::EXIT, nr::EXIT_GROUP].map(|number| calls(&events, number).len());
    ensure!(ends == [0, 0], "made up: {shown}");
    let recorded = events.get(1..).unwrap_or_default();
    ensure!(
        recorded.is_empty() || event::show(recorded) == "[reboot]",
        "{shown}"
    );
    Ok(())
}
