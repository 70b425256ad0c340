//! Syscalls of the 32-bit table share functions: `chown` and `chown32` both have hooks on the function of `chown32`, as
//! `clock_nanosleep` and `clock_nanosleep_time64` have. Here one of each pair stays at the raw tracepoint, because the rules
//! before were about nearly all syscalls, and the other gets hooks.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use support::event;

use crate::daemon::{Daemon, calls, replace};
use crate::machine::{USER, make_file};
use crate::program::{Arg, Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "shared_functions",
    engine: "fentry",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text(OTHER),
    tests: &[
        ("syscalls_are_recorded_once", syscalls_are_recorded_once),
        ("sleeping_syscall_is_recorded", sleeping_syscall_is_recorded),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const OTHER: &str = "-a always,exit -F arch=b64 -S acct -F uid=1001 -k other\n";

const CHOWN: u32 = 182;
const CHOWN32: u32 = 212;
const CLOCK_NANOSLEEP: u32 = 267;
const CLOCK_NANOSLEEP_TIME64: u32 = 407;

/// Rules about more syscalls than get hooks of their own, without one of each pair.
fn most() -> String {
    let numbers = (0..420).filter(|number| ![CHOWN, CLOCK_NANOSLEEP].contains(number));
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    let numbers = numbers.join(",");
    format!("-a always,exit -F arch=b32 -S {numbers} -F uid=1001 -k most\n")
}

/// Rules about both of each pair.
fn both(key: &str) -> String {
    format!(
        "-a always,exit -F arch=b32 -S chown,chown32,clock_nanosleep,clock_nanosleep_time64 -F uid=1001 -k {key}\n"
    )
}

fn syscalls_are_recorded_once(daemon: &Daemon) -> anyhow::Result<()> {
    let path = Program::new(Entry::I386)
        .call(CHOWN32, args!["/tmp/work/file", -1, -1])
        .call(CHOWN, args!["/tmp/work/missing", -1, -1])
        .install("chowns")?;
    replace(daemon, &most())?;
    for key in ["first", "second"] {
        replace(daemon, &both(key))?;
        let pid = daemon.run_user(&path, &[])?;
        let events = daemon.events_until(pid, CHOWN)?;
        let counts = [CHOWN, CHOWN32].map(|number| calls(&events, number).len());
        ensure!(counts == [1, 1], "{}", event::show(&events));
    }
    replace(daemon, OTHER)
}

/// It sleeps in the function since before that is hooked.
fn sleeping_syscall_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    const CLOCK_MONOTONIC: i64 = 1;
    /// In 32-bit words. Longer than three replacements take.
    const TIME: [i64; 4] = [20, 0, 0, 0];
    let time = Arg::Words(TIME.map(Arg::from).into());
    let path = Program::new(Entry::I386)
        .call(CLOCK_NANOSLEEP_TIME64, args![CLOCK_MONOTONIC, 0, time, 0])
        .install("sleeper")?;
    replace(daemon, &most())?;
    let pid = thread::scope(|scope| {
        let sleeper = scope.spawn(|| daemon.run_user(&path, &[]));
        // Until it sleeps.
        thread::park_timeout(Duration::from_secs(1));
        for key in ["third", "fourth"] {
            replace(daemon, &both(key))?;
        }
        ensure!(!sleeper.is_finished(), "it sleeps too short");
        sleeper.join().ok().context("the sleeper has panicked")?
    })?;
    let events = daemon.events_until(pid, CLOCK_NANOSLEEP_TIME64)?;
    let count = calls(&events, CLOCK_NANOSLEEP_TIME64).len();
    ensure!(count == 1, "{}", event::show(&events));
    Ok(())
}
