//! The fentry engine while `kernel.ftrace_enabled` is 0 and its hooks are disabled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use support::event::expect;

use crate::daemon::Daemon;
use crate::machine::{USER, make_file};
use crate::program::{Entry, Program, args};
use crate::suite::{Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "disabled_hooks",
    engine: "fentry",
    prepare: || make_file(Path::new("/tmp/work/file"), USER),
    rules: Rules::Text(RULES),
    tests: &[
        (
            "reports_disabled_hooks_and_recovers",
            reports_disabled_hooks_and_recovers,
        ),
        (
            "second_daemon_refuses_to_start",
            second_daemon_refuses_to_start,
        ),
    ],
    stop: Daemon::stop_after_disabled_hooks,
    after: |_log| Ok(()),
    stays: false,
};

const RULES: &str = "-a always,exit -F arch=b64 -S open -F uid=1001 -k opened\n";

/// Sysctl that enables programs on kernel functions.
const FTRACE_ENABLED: &str = "/proc/sys/kernel/ftrace_enabled";

/// The daemon polls the sysctl every 5 s.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs `action` with disabled hooks.
fn while_disabled<T>(action: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    fs::write(FTRACE_ENABLED, "0").context("cannot disable programs on functions")?;
    let done = action();
    fs::write(FTRACE_ENABLED, "1").context("cannot enable programs on functions")?;
    done
}

/// A program that opens a file once.
fn opens() -> anyhow::Result<PathBuf> {
    let calls = Program::new(Entry::Syscall).call(2, args!["file", 0, 0]);
    calls.install("opens_once")
}

fn reports_disabled_hooks_and_recovers(daemon: &Daemon) -> anyhow::Result<()> {
    let path = opens()?;
    let seen = |pid| -> anyhow::Result<()> {
        expect(&daemon.events("opened", pid, 1)?, &["open=3 NORMAL:file"])
    };
    seen(daemon.run_user(&path, &[])?)?;
    let unseen = while_disabled(|| {
        daemon.wait_for_line(&["tollgate: hooks disabled: "], LONGEST)?;
        daemon.run_user(&path, &[])
    })?;
    let recovered = "tollgate: BPF programs on kernel functions run again; hooks disabled for ";
    daemon.wait_for_line(&[recovered], LONGEST)?;
    seen(daemon.run_user(&path, &[])?)?;
    // Events are written in order: earlier events of the process are in the log.
    expect(&daemon.logged(unseen)?, &[])
}

/// With disabled hooks, a daemon does not start, and prints advice.
fn second_daemon_refuses_to_start(_daemon: &Daemon) -> anyhow::Result<()> {
    let started = while_disabled(|| Ok(Daemon::start("refused", "fentry", RULES)))?;
    let said = match started {
        Ok(daemon) => {
            daemon.stop()?;
            "it started".to_owned()
        }
        Err(error) => format!("{error:#}"),
    };
    ensure!(said.contains("sysctl kernel.ftrace_enabled=1"), "{said}");
    Ok(())
}
