//! `-f 2`: a lost event panics the kernel. The machine announces the panic with `vm: crash NAME`, and `cargo xtask
//! vm` waits for the kernel's message.

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
use crate::machine::flush;
use crate::suite::{one_line, quickest_engine};

/// The test.
const NAME: &str = "panic::lost_event_panics_the_kernel";

const RULES: &str = "-f 2\n-a always,exit -F arch=b64 -S mkdir -k fill\n";

/// Size of the ring in bytes.
const RING: usize = 64 << 20;

/// Maximum time until the panic.
const GRACE: Duration = Duration::from_secs(120);

/// Runs the test, which returns only on failure.
pub(crate) fn run() {
    println!("vm: plan {NAME}");
    let started = Instant::now();
    let error = match lost_event_panics_the_kernel() {
        Ok(never) => match never {},
        Err(error) => error,
    };
    let seconds = started.elapsed().as_secs_f64();
    println!("vm: FAIL {seconds:.2} {NAME}: {}", one_line(&error));
    println!("vm: end");
}

fn lost_event_panics_the_kernel() -> anyhow::Result<Infallible> {
    let daemon = Daemon::start("panic", quickest_engine(), RULES)?;
    // Recorded events do not panic the kernel.
    fs::create_dir("/tmp/work/recorded").context("cannot create a directory")?;
    wait_for("the event", || {
        Ok(daemon.log_text()?.contains_str("recorded").then_some(()))
    })?;
    let mut status = Command::new(TOLLGATE);
    let status = status.args(["auditctl", "-s"]).output();
    let status = status.context("cannot ask the daemon")?.stdout;
    ensure!(status.contains_str("failure 2"), "{}", status.as_bstr());

    kill(daemon.pid(), Signal::SIGSTOP).context("cannot stop the daemon")?;
    fill();
    println!("vm: crash {NAME}");
    flush();
    kill(daemon.pid(), Signal::SIGCONT).context("cannot continue the daemon")?;
    wait_within(GRACE, "the panic", || Ok(None))
}

/// More events than the ring holds.
fn fill() {
    // Each makes only an event of more than 4,000 bytes.
    let name = "/none".repeat(800);
    for _ in 0..2 * RING / name.len() {
        let _fails = mkdir(name.as_str(), Mode::empty());
    }
}
