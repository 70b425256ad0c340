//! What is lost when the kernel preempts programs: four processes open a file on one CPU, one of them `SCHED_IDLE`,
//! beside a process that updates a BPF map. `tests/differential/contend.c` has the processes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use support::daemon::count;

use crate::daemon::{Daemon, LONGEST_END, allows_loss};
use crate::machine::{USER, make_directory, make_file, option_value};
use crate::suite::{ANY, Rules, Session};

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "contention",
    engine: ANY,
    prepare,
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S openat -F path=/tmp/contend/file -F uid=1001 -k opens\n",
    ),
    tests: &[("opens_on_one_cpu", |_daemon| contend(&[CALLS]))],
    stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Calls that are denied if they cannot be recorded.
pub(crate) const SESSION_DENY: Session = Session {
    name: "contention_deny",
    engine: "lsm",
    prepare: || {
        prepare()?;
        let settings = "[on_loss]\ndeny = [\"modes\"]\n";
        fs::write("/tmp/contention_deny.toml", settings).context("no settings")
    },
    rules: Rules::Text("-a always,exit -F arch=b64 -S chmod -F uid=1001 -k modes\n"),
    tests: &[("modes_on_one_cpu", |_daemon| contend(&["20000", "chmod"]))],
    stop: stop_denied,
    ..SESSION
};

/// Number of opens; fewer than the ring holds, because the reader is slow on an emulated CPU.
const CALLS: &str = "60000";
/// Opens of others that may count as lost.
const MOST_OWN: u64 = 10;
/// Kernel option: how often the processes make that many.
const RUNS: &str = "vm.contentions";
/// How many were made.
const MADE: &str = "/tmp/contend/made";

fn prepare() -> anyhow::Result<()> {
    make_directory(Path::new("/tmp/contend"), USER)?;
    make_file(Path::new("/tmp/contend/file"), USER)
}

/// Runs the processes, and writes down how many calls were made.
fn contend(arguments: &[&str]) -> anyhow::Result<()> {
    let runs = option_value(RUNS)?.map_or(Ok(1), |runs| runs.parse())?;
    let mut made = 0;
    for run in 1..=runs {
        let mut contend = Command::new("/bin/contend");
        let output = contend.args(arguments).stderr(Stdio::inherit());
        let output = output.output().context("cannot start contend")?;
        ensure!(output.status.success(), "contend: {}", output.status);
        made += String::from_utf8(output.stdout)?.trim().parse::<u64>()?;
        if runs > 1 {
            println!("vm: note run {run} of {runs}: {made} calls");
        }
    }
    fs::write(MADE, made.to_string())?;
    Ok(())
}

/// Every call that was let pass is in the log; the kernel has skipped kprobes of others.
fn stop_denied(daemon: &Daemon) -> anyhow::Result<()> {
    let account = daemon.end(Signal::SIGTERM, LONGEST_END)?;
    let (line, counts) = (account.line, account.summary);
    println!("vm: note {line}");
    let made = fs::read_to_string(MADE).context("no modes were changed")?;
    let made: u64 = made.parse()?;
    ensure!(
        (counts.matched, counts.written) == (made, made) && counts.lost > 0,
        "{made} modes were changed: {line}"
    );
    Ok(())
}

/// Every open is in the log, or counted as lost with an engine that starts only with `--allow-loss`. Opens of others
/// than the processes, which no rule records, count as lost if their program is skipped; so can opens that are recorded
/// without a result.
fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    let account = daemon.end(Signal::SIGTERM, LONGEST_END)?;
    let (line, counts) = (account.line, account.summary);
    println!("vm: note {line}");
    let made = fs::read_to_string(MADE).context("no opens were made")?;
    let made: u64 = made.parse()?;
    let unseen = count(&line, "result not seen ").unwrap_or_default();
    ensure!(unseen <= made / 10, "{made} opens: {line}");
    let missing = made.saturating_sub(counts.written);
    ensure!(
        counts.written <= made
            && (missing..=missing + MOST_OWN + unseen).contains(&counts.lost)
            && (missing == 0 || allows_loss()?),
        "{made} opens: {line}"
    );
    Ok(())
}
