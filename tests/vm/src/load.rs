//! Programs that run again and again while something else happens, and their events.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, ensure};
use nix::poll::{PollTimeout, poll};
use support::event::Event;

use crate::daemon::calls;
use crate::machine::{USER, WORK};
use crate::program::{Arg, Entry, Program, args};

/// Pause between two programs for daemons that start meanwhile. One host thread emulates both CPUs: a load without pauses
/// would delay the start of a daemon by ten seconds and more, for which the ring has no room.
pub(crate) const PAUSE_MS: u8 = 20;

/// A program that opens a file for writing and tries to remove a directory, so many times.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn program(name: &str, rounds: u32) -> anyhow::Result<PathBuf> {
    let calls = Program::new(Entry::Syscall)
        .call(257, args![-100, "file", 2])
        .save("file")
        .call(3, args![Arg::Saved("file")])
        .call(84, args!["missing"])
        .rounds(rounds);
    calls.install(name)
}

/// Runs the program as [`crate::daemon::Daemon::run_user`] does, but from any thread.
///
/// # Errors
/// If it cannot be started, or fails.
pub(crate) fn make_calls(path: &Path) -> anyhow::Result<u32> {
    let child = Command::new(path)
        .current_dir(WORK)
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::null())
        .spawn();
    let mut child = child.context("cannot start a workload")?;
    let status = child.wait().context("cannot wait for a workload")?;
    ensure!(status.success(), "a workload ended with {status}");
    Ok(child.id())
}

/// Runs a [`program`] again and again, with a pause in milliseconds, until `work` ends. Returns
/// its process ids, and what `work` returns.
///
/// # Errors
/// Those of the program and of `work`.
pub(crate) fn during<T>(
    path: &Path,
    pause: u8,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Vec<u32>, T)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut processes = Vec::new();
            while !done.load(Ordering::Relaxed) {
                processes.push(make_calls(path)?);
                poll(&mut [], PollTimeout::from(pause)).context("cannot wait")?;
            }
            anyhow::Ok(processes)
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let processes = load.join().ok().context("the load has panicked")??;
        Ok((processes, result?))
    })
}

/// Checks that events have each call of these processes once. A process id can be that of several processes.
///
/// # Errors
/// An event is missing, or there are too many.
pub(crate) fn expect_each_once(
    events: &[Event],
    processes: &[u32],
    rounds: u32,
) -> anyhow::Result<()> {
    let rounds = usize::try_from(rounds)?;
    for number in [257, 84] {
        let mut by_process: BTreeMap<String, usize> = BTreeMap::new();
        for event in calls(events, number) {
            *by_process.entry(event.field("SYSCALL", "pid")).or_default() += 1;
        }
        for process in processes {
            let seen = by_process.get(&process.to_string()).copied().unwrap_or(0);
            let same = processes.iter().filter(|other| *other == process).count();
            ensure!(
                seen == same * rounds,
                "call {number} of {process}: {seen} times, not {same} times {rounds}"
            );
        }
    }
    Ok(())
}
