//! Handover with the fentry engine after a daemon was killed under load.
//!
//! The end-to-end tests of crate `tollgate` cover the tracepoint engine.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use support::event;

use crate::daemon::Daemon;
use crate::load::{self, PAUSE_MS};
use crate::locked;
use crate::machine::{USER, make_file, mount_bpf_file_system};
use crate::suite::{Rules, Session};

/// The tests. They do not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "handover",
    engine: "fentry",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text("-a always,exit -F arch=b64 -S mkdir -F uid=77 -k nobody\n"),
    tests: &[(
        "events_of_a_killed_daemon_are_written_once",
        events_of_a_killed_daemon_are_written_once,
    )],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Number of kills; every second daemon has other rules.
const KILLED: usize = 4;
/// Rules of the calls of [`load::program`].
pub(crate) const LISTS: [&str; 2] = [
    "-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -k one\n",
    "-a always,exit -F arch=b64 -S openat,rmdir,chmod -F uid=1001 -k two\n",
];
/// Sets the PID after which the next process is numbered.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
const BPF: &str = "/tmp/bpf";
const PINS: &str = "/tmp/bpf/tollgate";
/// Prefix of pinned programs.
const PROGRAM: &str = "prog-";
const FOLLOWED: &str = "tollgate: took over from another build of tollgate";
pub(crate) const TOOK_OVER: &str = "tollgate: took over the BPF programs of the previous daemon";

/// Number of pinned programs.
fn programs() -> anyhow::Result<usize> {
    let names = locked::pinned(PINS)?;
    Ok(names
        .iter()
        .filter(|name| name.starts_with(PROGRAM))
        .count())
}

/// Changes the hash of the pinned programs, in the header.
fn pretend_other_build() -> anyhow::Result<()> {
    /// Its offset.
    const OBJECT: usize = 16;
    let map = format!("map lookup pinned {PINS}/header key hex 00 00 00 00");
    let shown = bpftool(&map)?;
    let (_, value) = shown.split_once("value:").context("no header")?;
    let mut bytes: Vec<&str> = value.split_whitespace().collect();
    let object = bytes.get_mut(OBJECT).context("a short header")?;
    *object = if *object == "00" { "01" } else { "00" };
    let update = format!(
        "map update pinned {PINS}/header key hex 00 00 00 00 value hex {}",
        bytes.join(" ")
    );
    bpftool(&update).map(drop)
}

fn bpftool(arguments: &str) -> anyhow::Result<String> {
    let output = locked::shell(&format!("bpftool {arguments}"))?;
    ensure!(output.status.success(), "bpftool {arguments}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

fn events_of_a_killed_daemon_are_written_once(daemon: &Daemon) -> anyhow::Result<()> {
    const ROUNDS: u32 = 20;
    mount_bpf_file_system(BPF)?;
    let path = load::program("handover", ROUNDS)?;
    let start = |round: usize| {
        let rules = LISTS.get(round / 2 % 2).copied().unwrap_or_default();
        Daemon::start_pinned("restarted", daemon.engine(), rules, PINS)
    };
    let mut running = start(0)?;
    let (mut pinned, mut dead, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut processes, ()) = load::during(&path, PAUSE_MS, || {
        let killed = (1..=KILLED).try_for_each(|round| {
            println!("vm: note killed {round} of {KILLED} times");
            let number = running.pid();
            running.kill()?;
            // Events without a daemon. A process that gets the daemon's PID is not the daemon.
            fs::write(LAST_PID, (number.as_raw() - 1).to_string())
                .context("cannot set the next PID")?;
            gaps.push(load::make_calls(&path)?);
            dead.push(number.as_raw().unsigned_abs());
            running = start(round)?;
            pinned.push(programs()?);
            ensure!(running.has_printed(TOOK_OVER), "not printed: {TOOK_OVER}");
            Ok(())
        });
        killed.and_then(|()| {
            let (number, unread) = (running.pid(), programs()?);
            running.kill()?;
            pretend_other_build()?;
            dead.push(number.as_raw().unsigned_abs());
            gaps.push(load::make_calls(&path)?);
            running = start(KILLED + 1)?;
            ensure!(
                unread != 0 && running.has_printed(FOLLOWED),
                "not printed: {FOLLOWED}"
            );
            Ok(())
        })
    })?;
    processes.extend(gaps);
    ensure!(
        dead.iter().any(|number| processes.contains(number)),
        "no process got the PID of a daemon: {dead:?}"
    );
    // The rules differ in one syscall: its programs are loaded once.
    let most = pinned.iter().skip(3).max();
    ensure!(
        most <= pinned.iter().take(3).max(),
        "the number of pinned programs grows: {pinned:?}"
    );
    running.stop_last()?;
    let left = fs::read_dir(PINS)
        .context("cannot list the pinned objects")?
        .count();
    ensure!(left == 0, "{left} pinned objects are left");

    let log = fs::read(running.log()).context("cannot read the log")?;
    ensure!(
        log.ends_with(b"\n"),
        "the last line of the log is incomplete"
    );
    let events = event::parse(&log)?;
    event::expect_dense(&events)?;
    load::expect_each_once(&events, &processes, ROUNDS)?;
    println!(
        "vm: note {} events, {} processes, killed {KILLED} times",
        events.len(),
        processes.len()
    );
    Ok(())
}
