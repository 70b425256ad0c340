//! The end of a daemon with many hooks, which the kernel detaches one after the other.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use support::wait::wait_within;

use crate::daemon::{Daemon, TOLLGATE, replace};
use crate::locked;
use crate::machine::mount_bpf_file_system;
use crate::suite::{Rules, Session};

/// The test.
pub(crate) const SESSION: Session = Session {
    name: "stopping",
    engine: "fentry",
    prepare: || Ok(()),
    rules: Rules::Text(OTHER),
    tests: &[
        (
            "pinned_daemon_does_not_wait_for_hooks",
            pinned_daemon_does_not_wait_for_hooks,
        ),
        (
            "requests_do_not_wait_for_hooks",
            requests_do_not_wait_for_hooks,
        ),
    ],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Rules without the hooks of [`RULES`], which would not be detached while another daemon has them.
const OTHER: &str = "-a always,exit -F arch=b64 -S acct -F uid=12345 -k other\n";
const RULES: &str = "-a always,exit -F arch=b64 -S all -F uid=12345 -k all\n\
                     -a always,exit -F arch=b32 -S all -F uid=12345 -k all\n";

/// A bpf file system of the test, and the directory of pins there.
const BPF: &str = "/tmp/stopping-bpf";
const PINS: &str = "/tmp/stopping-bpf/tollgate";

/// Much less than detaching takes: more than 100 ms for each of more than 100 functions.
const LONGEST: Duration = Duration::from_secs(5);

/// The kernel detaches what was pinned in the background: `systemctl stop` need not wait for it.
fn pinned_daemon_does_not_wait_for_hooks(daemon: &Daemon) -> anyhow::Result<()> {
    /// Fewer would be detached within the limit.
    const MANY: usize = 100;
    mount_bpf_file_system(BPF)?;
    let pinned = Daemon::start_pinned("stopping_pinned", daemon.engine(), RULES, PINS)?;
    let links = locked::pinned(PINS)?;
    let links = links
        .iter()
        .filter(|name| name.starts_with("link-"))
        .count();
    ensure!(links >= MANY, "only {links} hooks");
    let began = Instant::now();
    pinned.stop_last()?;
    let taken = began.elapsed();
    println!("vm: note {links} hooks, {taken:?}");
    ensure!(taken < LONGEST, "it took {taken:?}");
    let left = fs::read_dir(PINS).context("cannot list the pinned objects")?;
    ensure!(left.count() == 0, "pinned objects are left");
    Ok(())
}

/// A request while the hooks are detached is refused at once.
fn requests_do_not_wait_for_hooks(daemon: &Daemon) -> anyhow::Result<()> {
    replace(daemon, RULES)?;
    kill(daemon.pid(), Signal::SIGTERM).context("cannot stop the daemon")?;
    let began = Instant::now();
    // The first requests can come before the signal.
    let refused = wait_within(LONGEST, "the refusal", || {
        let asked = Command::new(TOLLGATE).args(["auditctl", "-s"]).output()?;
        Ok((!asked.status.success()).then_some(asked.stderr))
    })?;
    ensure!(began.elapsed() < LONGEST, "it took {:?}", began.elapsed());
    ensure!(
        refused.contains_str("the daemon is ending"),
        "{}",
        refused.as_bstr()
    );
    Ok(())
}
