//! The engine `tracepoint` when root changes the preemption mode, while a daemon runs and between two daemons.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::mount::{MsFlags, mount, umount};
use support::event;

use crate::daemon::{Daemon, replace};
use crate::handover::{LISTS, TOOK_OVER};
use crate::load::{self, PAUSE_MS};
use crate::locked;
use crate::machine::{USER, make_file, mount_bpf_file_system};
use crate::suite::{Rules, Session, Skipped};

/// The tests. They do not use the session's daemon.
pub(crate) const SESSION: Session = Session {
    name: "preemption",
    engine: "tracepoint",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text("-a always,exit -F arch=b64 -S mkdir -F uid=77 -k nobody\n"),
    tests: &[
        ("change_is_reported", change_is_reported),
        (
            "next_daemon_has_the_hooks_of_its_mode",
            next_daemon_has_the_hooks_of_its_mode,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

const DEBUGFS: &str = "/sys/kernel/debug";
const MODE: &str = "/sys/kernel/debug/sched/preempt";
const BPF: &str = "/tmp/preemption-bpf";
const PINS: &str = "/tmp/preemption-bpf/tollgate";
/// The daemon reads the mode every five seconds.
const LONGEST: Duration = Duration::from_secs(60);
const EXCHANGED: &str = "tollgate: took over from the previous daemon with other hooks";
const RISK: &str = "can skip programs on tracepoints of single syscalls";
const NO_RISK: &str = "the kernel no longer skips programs";

/// Runs `test` with debugfs mounted, and restores the preemption mode.
fn with_modes(test: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let (kind, flags) = (Some("debugfs"), MsFlags::empty());
    mount(kind, DEBUGFS, kind, flags, None::<&str>).context("cannot mount debugfs")?;
    // The current mode is in parentheses.
    let modes = fs::read_to_string(MODE).unwrap_or_default();
    let current = modes
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(')'));
    let result = match current.filter(|_| modes.contains("none")) {
        Some((current, _)) => {
            let result = test();
            set_mode(current).and(result)
        }
        None => Err(Skipped("the preemption mode cannot be changed to none and back").into()),
    };
    umount(DEBUGFS).context("cannot unmount debugfs")?;
    result
}

fn set_mode(mode: &str) -> anyhow::Result<()> {
    fs::write(MODE, mode).with_context(|| format!("cannot set preempt={mode}"))
}

/// Checks that all syscalls of the rules are seen at the raw tracepoint, or none.
fn check_hooks(is_raw: bool) -> anyhow::Result<()> {
    let names = locked::pinned(PINS)?;
    let count = |start: &str| names.iter().filter(|name| name.starts_with(start)).count();
    let (raw, single) = (count("link-sys_exit_raw"), count("link-sys_exit_tp"));
    let as_wanted = if is_raw {
        (raw, single) == (1, 0)
    } else {
        raw == 0 && single >= 2
    };
    ensure!(
        as_wanted,
        "{raw} raw and {single} single hooks, raw: {is_raw}"
    );
    Ok(())
}

/// The losses that a change makes possible are reported, and do not stop a replacement of the rules.
fn change_is_reported(_daemon: &Daemon) -> anyhow::Result<()> {
    with_modes(|| {
        set_mode("none")?;
        let path = load::program("changed", 1)?;
        let [first, second] = LISTS;
        let daemon = Daemon::start("changed", "tracepoint", first)?;
        set_mode("full")?;
        daemon.wait_for_line(&[RISK], LONGEST)?;
        replace(&daemon, second)?;
        let pid = daemon.run_user(&path, &[])?;
        daemon.events("two", pid, 2)?;
        set_mode("none")?;
        daemon.wait_for_line(&[NO_RISK], LONGEST)?;
        daemon.stop()
    })
}

/// Daemons are killed under load. The next one adopts the hooks if they are those of the present mode; else it attaches
/// others first.
fn next_daemon_has_the_hooks_of_its_mode(_daemon: &Daemon) -> anyhow::Result<()> {
    const ROUNDS: u32 = 20;
    /// Mode and index of the rules of each daemon after the first one, which has `none`.
    const DAEMONS: [(&str, usize); 3] = [("full", 0), ("full", 1), ("voluntary", 1)];
    let is_raw = |mode: &str| mode == "full";
    let path = load::program("modes", ROUNDS)?;
    mount_bpf_file_system(BPF)?;
    let start = |list: usize| {
        let rules = LISTS.get(list).copied().unwrap_or_default();
        Daemon::start_pinned("modes", "tracepoint", rules, PINS)
    };
    let mut gaps = Vec::new();
    with_modes(|| {
        set_mode("none")?;
        let mut running = start(0)?;
        check_hooks(false)?;
        let (mut processes, ()) = load::during(&path, PAUSE_MS, || {
            let mut before = "none";
            DAEMONS.iter().try_for_each(|&(mode, list)| {
                running.kill()?;
                set_mode(mode)?;
                gaps.push(load::make_calls(&path)?);
                running = start(list)?;
                let line = if is_raw(before) == is_raw(mode) {
                    TOOK_OVER
                } else {
                    EXCHANGED
                };
                ensure!(
                    running.has_printed(line),
                    "from {before} to {mode}, not printed: {line}: {}",
                    running.output().join(" | ")
                );
                check_hooks(is_raw(mode))?;
                ensure!(
                    !running.has_printed(RISK),
                    "{}",
                    running.output().join(" | ")
                );
                replace(&running, LISTS.get(1 - list).copied().unwrap_or_default())?;
                gaps.push(load::make_calls(&path)?);
                before = mode;
                Ok(())
            })
        })?;
        processes.append(&mut gaps);
        running.stop_last()?;
        let left = locked::pinned(PINS)?;
        ensure!(left.is_empty(), "left: {left:?}");
        let events = event::parse(&running.log_text()?)?;
        event::expect_dense(&events)?;
        load::expect_each_once(&events, &processes, ROUNDS)?;
        println!(
            "vm: note {} events, {} processes",
            events.len(),
            processes.len()
        );
        Ok(())
    })
}
