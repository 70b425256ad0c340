//! `-f 2`: a machine on which an event is lost goes down. One that does cannot say so itself: it says what is to
//! come, `vm: dies NAME`, and the harness waits for the kernel's last words.

use std::convert::Infallible;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::mkdir;
use support::wait::{wait_for, wait_within};

use crate::daemon::{Daemon, TOLLGATE};
use crate::suite::one_line;

/// The test.
const NAME: &str = "panic::what_is_lost_takes_the_machine_down";

const RULES: &str = "-f 2\n-a always,exit -F arch=b64 -S mkdir -k fill\n";

/// Bytes of the ring.
const RING: usize = 64 << 20;

/// How long the machine may live when it must not.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the test, which never ends well.
pub(crate) fn run() {
    println!("vm: plan {NAME}");
    let started = Instant::now();
    let error = match what_is_lost_takes_the_machine_down() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let seconds = started.elapsed().as_secs_f64();
    println!("vm: FAIL {seconds:.2} {NAME}: {}", one_line(&error));
    println!("vm: end");
}

fn what_is_lost_takes_the_machine_down() -> anyhow::Result<Infallible> {
    let daemon = Daemon::start("panic", "tracepoint", RULES)?;
    // What is recorded harms nobody.
    fs::create_dir("/tmp/work/recorded").context("cannot make a directory")?;
    wait_for("the event", || {
        Ok(daemon.log_text()?.contains_str("recorded").then_some(()))
    })?;
    let mut status = Command::new(TOLLGATE);
    let status = status.args(["auditctl", "-s"]).output();
    let status = status.context("cannot ask the daemon")?.stdout;
    ensure!(status.contains_str("failure 2"), "{}", status.as_bstr());

    kill(daemon.pid(), Signal::SIGSTOP).context("cannot stop the daemon")?;
    fill();
    println!("vm: dies {NAME}");
    kill(daemon.pid(), Signal::SIGCONT).context("cannot let the daemon go on")?;
    wait_within(GRACE, "the end of the machine", || Ok(None))
}

/// More events than the ring has room for.
fn fill() {
    // Each is an event of more than 4,000 bytes, and does nothing else.
    let name = "/none".repeat(800);
    for _ in 0..2 * RING / name.len() {
        let _fails = mkdir(name.as_str(), Mode::empty());
    }
}
