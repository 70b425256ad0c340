//! Changes of the system clock under load, which only a test machine allows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime, clock_settime};
use support::event;
use support::wait::wait_for;

use crate::daemon::Daemon;
use crate::load;
use crate::machine::{USER, make_file};
use crate::suite::{Rules, Session};

/// The test.
pub(crate) const SESSION: Session = Session {
    name: "clock",
    engine: "tracepoint",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text("-a always,exit -F arch=b64 -S openat,rmdir -F uid=1001 -k clock\n"),
    tests: &[("clock_changes", clock_changes)],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Clock changes in seconds; their sum is 0.
const STEPS: [i64; 4] = [-10, 7200, -90_000, 82_810];
/// An event has the time of the last tick, and the daemon reads the clock's offset only when it drains the ring. One
/// host thread emulates both CPUs in turns of 100 ms: the CPU that keeps the time can be that late, and later on a
/// busy host. Each step of the clock is much larger.
const TOLERANCE_MS: u64 = 2000;
/// The kernel's tick count and its coarse clock need not advance at one time.
const TICK_MS: u64 = 4;

/// Milliseconds since 1970.
fn now_ms() -> anyhow::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).context("cannot read the clock")?;
    Ok(u64::try_from(
        now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000,
    )?)
}

/// Sets the clock.
fn step(seconds: i64) -> anyhow::Result<()> {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).context("cannot read the clock")?;
    let then = TimeSpec::new(now.tv_sec() + seconds, now.tv_nsec());
    clock_settime(ClockId::CLOCK_REALTIME, then).context("cannot set the clock")
}

/// Number of events of a process in the log, which is too long to parse each time.
fn logged(daemon: &Daemon, process: u32) -> anyhow::Result<usize> {
    let log = fs::read(daemon.log()).context("cannot read the log")?;
    let pid = format!(" pid={process} ");
    let is_its = |line: &&[u8]| line.starts_with(b"type=SYSCALL ") && line.contains_str(&pid);
    Ok(log.lines().filter(is_its).count())
}

fn clock_changes(daemon: &Daemon) -> anyhow::Result<()> {
    const ROUNDS: u32 = 20;
    let path = load::program("clocked", ROUNDS)?;
    let calls = 2 * usize::try_from(ROUNDS)?;
    // Events before the first change.
    let first = load::make_calls(&path)?;
    wait_for("the first events", || {
        Ok((logged(daemon, first)? >= calls).then_some(()))
    })?;
    let mut timed = Vec::new();
    let (mut processes, ()) = load::during(&path, 0, || {
        STEPS.iter().try_for_each(|&seconds| {
            step(seconds)?;
            let before = now_ms()?;
            let process = load::make_calls(&path)?;
            timed.push((process, before, now_ms()?));
            // Events in the ring at a change get the new time.
            wait_for("the events before the next step", || {
                Ok((logged(daemon, process)? >= calls).then_some(()))
            })
        })
    })?;
    processes.push(first);
    processes.extend(timed.iter().map(|(process, ..)| process));

    let events = wait_for("all events", || {
        let log = fs::read(daemon.log()).context("cannot read the log")?;
        // The last line may be incomplete.
        let whole = log.rfind_byte(b'\n').map_or(0, |newline| newline + 1);
        let events = event::parse(log.get(..whole).unwrap_or_default())?;
        Ok((events.len() >= processes.len() * calls).then_some(events))
    })?;
    event::expect_dense(&events)?;
    let back = events
        .windows(2)
        .filter(|pair| matches!(pair, [one, next] if next.time_ms + 500 < one.time_ms));
    let wanted_back = STEPS.iter().filter(|&&step| step < 0).count();
    let back = back.count();
    ensure!(
        back == wanted_back,
        "the time in the log goes back {back} times, not {wanted_back}"
    );
    let mut by_process: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in &events {
        let times = by_process.entry(event.field("SYSCALL", "pid")).or_default();
        times.push(event.time_ms);
    }
    for process in &processes {
        let seen = by_process.get(&process.to_string()).map_or(0, Vec::len);
        ensure!(seen == calls, "{process}: {seen} events, not {calls}");
    }
    for (process, before, after) in timed {
        let times = by_process.get(&process.to_string());
        for &time in times.into_iter().flatten() {
            ensure!(
                (before.saturating_sub(TOLERANCE_MS)..=after + TICK_MS).contains(&time),
                "{process} ran from {before} to {after}, but has an event of {time}"
            );
        }
        let found = event::ausearch(
            daemon.log(),
            &["--raw", "-k", "clock", "-p", &process.to_string()],
        )?
        .len();
        ensure!(found == calls, "ausearch finds {found} events of {process}");
    }
    println!(
        "vm: note {} events, {} processes, the clock set {} times",
        events.len(),
        processes.len(),
        STEPS.len()
    );
    Ok(())
}
