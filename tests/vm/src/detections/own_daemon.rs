//! The Sigma rules of the package about the daemon itself match what a user who has logged in does to it: loads other rules,
//! makes it lose events, and ends it.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkdir;
use support::wait::wait_for;

use super::exercise::{self, Exercise};
use crate::daemon::{Daemon, TOLLGATE};
use crate::suite::{Rules, Session};

/// The tests; the end of the session's daemon is one.
pub(crate) const SESSION: Session = Session {
    name: "detections_of_the_daemon",
    prepare,
    rules: Rules::Text("-a always,exit -F arch=b64 -S mkdir -F key=fill\n"),
    tests: &[
        ("losses_are_found", losses_are_found),
        ("loaded_rules_are_found", loaded_rules_are_found),
    ],
    stop: end_is_found,
    ..super::SESSION
};

/// Rules that a user loads in place of the others.
const OTHER_RULES: &str = "-D\n-a always,exit -F arch=b64 -S acct -k other\n";

/// Size of the ring in bytes.
const RING: usize = 64 << 20;

/// Maximum time until the daemon has written the ring and ended.
const LONGEST_END: Duration = Duration::from_secs(300);

/// Exit status of a daemon that lost events.
const LOST: i32 = 3;

/// With `auditd.conf`, the daemon records its end; the log is one file.
fn prepare() -> anyhow::Result<()> {
    const CONF: &str = "/tmp/own-daemon.conf";
    let settings = format!("auditd_conf = \"{CONF}\"\n");
    let conf = "max_log_file_action = ignore\nspace_left = 2\nadmin_space_left = 1\n";
    fs::write(CONF, conf).context("no configuration")?;
    fs::write("/tmp/detections_of_the_daemon.toml", settings).context("no settings")?;
    exercise::prepare()
}

/// More events than the ring holds, while nothing reads it.
fn losses_are_found(daemon: &Daemon) -> anyhow::Result<()> {
    kill(daemon.pid(), Signal::SIGSTOP).context("cannot stop the daemon")?;
    // Each makes only an event of more than 4,000 bytes.
    let name = "/none".repeat(800);
    for _ in 0..2 * RING / name.len() {
        let _fails = mkdir(name.as_str(), Mode::empty());
    }
    kill(daemon.pid(), Signal::SIGCONT).context("cannot continue the daemon")?;
    is_found(daemon, "op=lost-events", "Audit Events Lost")
}

fn loaded_rules_are_found(daemon: &Daemon) -> anyhow::Result<()> {
    const FILE: &str = "/tmp/other.rules";
    fs::write(FILE, OTHER_RULES).context("cannot write the rules")?;
    exercise::in_session("/", &[TOLLGATE, "auditctl", "-R", FILE])?;
    is_found(
        daemon,
        "op=remove_rule",
        "Audit Rules Removed In A Login Session",
    )
}

/// The process that sends the signal may have gone when the daemon asks for its login uid.
fn end_is_found(daemon: &Daemon) -> anyhow::Result<()> {
    let kill = format!("kill -TERM {}", daemon.pid());
    exercise::in_session("/", &["bash", "-c", &kill])?;
    let status = daemon.wait(LONGEST_END)?;
    ensure!(status.code() == Some(LOST), "it ended with {status}");
    is_found(daemon, "type=DAEMON_END", "Audit Daemon Ended By A User")
}

/// Waits until the log has a text, and fails unless the rule with a title matches what the log has that is no syscall.
fn is_found(daemon: &Daemon, text: &str, title: &str) -> anyhow::Result<()> {
    const PLACE: &str = "/srv/own-daemon";
    let told = wait_for(text, || {
        let told = records_without_syscall(daemon)?;
        Ok(told.contains(text).then_some(told))
    })?;
    let exercise = Exercise {
        name: "daemon",
        rule: title.to_owned(),
        script: String::new(),
    };
    let silent = exercise::without_match(PLACE, super::RULES, &[exercise], &[&told])?;
    ensure!(silent.is_empty(), "{silent:?}: {told}");
    Ok(())
}

/// Records that tell of the daemon.
fn records_without_syscall(daemon: &Daemon) -> anyhow::Result<String> {
    let log = daemon.log_text()?;
    let kinds = [&b"type=DAEMON_"[..], b"type=CONFIG_CHANGE"];
    let is_told = |line: &&[u8]| kinds.iter().any(|kind| line.starts_with(kind));
    let told: Vec<u8> = log
        .lines_with_terminator()
        .filter(is_told)
        .flatten()
        .copied()
        .collect();
    Ok(String::from_utf8_lossy(&told).into_owned())
}
