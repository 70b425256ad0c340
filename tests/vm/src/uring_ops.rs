//! `io_uring` operations that end in unusual ways are recorded: those that would block and are never tried again, and
//! those of a submission whose syscall number has other upper bits. `tests/differential/uring_ops.c` has them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event::{self, Event};

use crate::daemon::Daemon;
use crate::filesystems::shell;
use crate::half_seen::{LAST, events_of};
use crate::machine::{USER, make_file};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "uring_ops",
    engine: "fentry",
    prepare: || {
        make_file(Path::new(OPENED), USER)?;
        fs::set_permissions(OPENED, fs::Permissions::from_mode(0o644))?;
        shell("ifconfig lo 127.0.0.1 up")
    },
    rules: Rules::Made(|| {
        format!(
            "{LAST}-a always,io_uring -S connect,sendmsg,recvmsg -F uid=1001 -k operations\n\
             -w {OPENED} -p r -k opened\n"
        )
    }),
    tests: &[
        ("cancelled_connect_is_recorded", |daemon| {
            expect(daemon, "cancelled_connect", &["connect no"])
        }),
        ("cancelled_connect_by_poller_is_recorded", |daemon| {
            expect(daemon, "polled_connect", &["connect no"])
        }),
        ("connect_of_ended_task_is_recorded", |daemon| {
            expect(daemon, "abandoned_connect", &["connect no"])
        }),
        (
            "delayed_connect_is_recorded_with_success",
            delayed_connect_is_recorded_with_success,
        ),
        ("dont_wait_is_recorded", |daemon| {
            expect(daemon, "dont_wait", &["sendmsg no", "recvmsg no"])
        }),
        (
            "submission_with_upper_bits_has_a_syscall_record",
            submission_with_upper_bits_has_a_syscall_record,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// The program of the operations.
pub(crate) const URING_OPS: &str = "/bin/uring_ops";
/// What an operation opens.
const OPENED: &str = "/tmp/uring_ops_opened";

/// The operations that rules name.
const NAMES: [(&str, &str); 4] = [
    ("9", "sendmsg"),
    ("10", "recvmsg"),
    ("16", "connect"),
    ("18", "openat"),
];

/// Runs the program as the user; returns the events of operations of its process and of that process's children.
fn run(daemon: &Daemon, words: &[&str]) -> anyhow::Result<Vec<Event>> {
    let pid = daemon.run_user(Path::new(URING_OPS), words)?.to_string();
    events_of(daemon, 0)?;
    let mut events = event::parse(&daemon.log_text()?)?;
    events.retain(|event| {
        let of = |field| event.field("URINGOP", field) == pid;
        of("pid") || of("ppid")
    });
    Ok(events)
}

/// Name and success of an operation: `connect no`.
fn outcome(event: &Event) -> String {
    let number = event.field("URINGOP", "uring_op");
    let name = NAMES.iter().find(|(known, _)| *known == number);
    let name = name.map_or(number.as_str(), |(_, name)| name);
    format!("{name} {}", event.field("URINGOP", "success"))
}

fn outcomes(events: &[Event]) -> Vec<String> {
    events.iter().map(outcome).collect()
}

/// Fails unless the operations of the program have exactly these events.
fn expect(daemon: &Daemon, mode: &str, expected: &[&str]) -> anyhow::Result<()> {
    let found = outcomes(&run(daemon, &[mode])?);
    ensure!(
        found == expected,
        "operations recorded: {found:?}, not {expected:?}"
    );
    Ok(())
}

/// As in the kernel's audit, the first try has an event too.
fn delayed_connect_is_recorded_with_success(daemon: &Daemon) -> anyhow::Result<()> {
    let mut found = outcomes(&run(daemon, &["delayed_connect"])?);
    ensure!(
        found.pop().as_deref() == Some("connect yes"),
        "the last operation: {found:?}"
    );
    ensure!(found == ["connect no"], "earlier operations: {found:?}");
    Ok(())
}

fn submission_with_upper_bits_has_a_syscall_record(daemon: &Daemon) -> anyhow::Result<()> {
    let events = run(daemon, &["upper_bits", OPENED])?;
    let [event] = events.as_slice() else {
        anyhow::bail!("operations recorded: {:?}", outcomes(&events));
    };
    ensure!(outcome(event) == "openat yes", "{event}");
    let enter = event.all("SYSCALL").next();
    let enter = enter.with_context(|| format!("no SYSCALL record:\n{event}"))?;
    ensure!(enter.value("syscall") == "426", "{event}");
    Ok(())
}
