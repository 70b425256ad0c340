//! The end of a daemon with many hooks, which the kernel detaches one after the other.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bstr::ByteSlice as _;
use nix::sys::signal::{Signal, kill};
use support::wait::wait_within;

use crate::daemon::{Daemon, TOLLGATE};
use crate::suite::{Rules, Session};

/// The test.
pub(crate) const SESSION: Session = Session {
    name: "stopping",
    engine: "fentry",
    prepare: || Ok(()),
    rules: Rules::Text(
        "-a always,exit -F arch=b64 -S all -F uid=12345 -k all\n\
         -a always,exit -F arch=b32 -S all -F uid=12345 -k all\n",
    ),
    tests: &[(
        "requests_do_not_wait_for_hooks",
        requests_do_not_wait_for_hooks,
    )],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Much less than detaching takes: more than 100 ms for each of more than 100 functions.
const LONGEST: Duration = Duration::from_secs(5);

/// A request while the hooks are detached is refused at once.
fn requests_do_not_wait_for_hooks(daemon: &Daemon) -> anyhow::Result<()> {
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
