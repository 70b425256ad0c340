//! The syscall that ends a signal handler does not return, and has the registers of what it interrupted.

use std::path::Path;

use anyhow::ensure;
use support::event;
use support::wait::wait_for;

use crate::daemon::{Daemon, calls};
use crate::suite::{Rules, Session};

/// The test.
pub(crate) const SESSION: Session = Session {
    name: "signals",
    engine: "fentry",
    prepare: || Ok(()),
    rules: Rules::Text("-a always,exit -F arch=b64 -S rt_sigreturn -F uid=1001 -k return\n"),
    tests: &[("sigreturn_is_recorded", sigreturn_is_recorded)],
    stop: Daemon::stop,
    after: |_log| Ok(()),
    stays: false,
};

fn sigreturn_is_recorded(daemon: &Daemon) -> anyhow::Result<()> {
    const RT_SIGRETURN: u32 = 15;
    let script = "trap : USR1; kill -USR1 $$; :";
    let pid = daemon.run_user(Path::new("/bin/busybox"), &["sh", "-c", script])?;
    let events = wait_for("the end of the handler", || {
        let events = daemon.logged(pid)?;
        Ok((!events.is_empty()).then_some(events))
    })?;
    let found = calls(&events, RT_SIGRETURN);
    ensure!(found.len() == events.len(), "{}", event::show(&events));
    let first = found.first().map(|event| event.field("SYSCALL", "key"));
    ensure!(
        first.as_deref() == Some("return"),
        "{}",
        event::show(&events)
    );
    Ok(())
}
