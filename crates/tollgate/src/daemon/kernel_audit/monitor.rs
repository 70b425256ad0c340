//! Watches the kernel's own audit for what other programs do to it: rules that the stock `auditctl` or `augenrules`
//! has loaded slow down every syscall, and `auditctl -D` deletes `-a never,task`.

use std::time::{Duration, Instant};

use netlink::AuditSummary;

use crate::messages::{count, info, warn};

/// Interval of the checks.
const PERIOD: Duration = Duration::from_secs(60);

/// The state of the kernel's own audit at the last check.
#[derive(Debug)]
pub(in crate::daemon) struct KernelAuditMonitor {
    /// `None` without the kernel's audit.
    state: Option<AuditSummary>,
    due: Instant,
}

impl KernelAuditMonitor {
    /// Checks for the first time, before the daemon changes the kernel's audit.
    pub(in crate::daemon) fn start() -> Self {
        let mut monitor = Self {
            state: None,
            due: Instant::now(),
        };
        monitor.check();
        monitor
    }

    /// Time until [`Self::check`] is due.
    pub(in crate::daemon) fn next_poll(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Checks now, and reports whether rules of other programs have come or gone. Returns the state.
    pub(in crate::daemon) fn check(&mut self) -> Option<AuditSummary> {
        self.due = Instant::now() + PERIOD;
        // Without the kernel's audit there is nothing to report.
        let state = AuditSummary::query().ok();
        let before = std::mem::replace(&mut self.state, state);
        let slow = |state: Option<AuditSummary>| state.filter(AuditSummary::slows_syscalls);
        match (slow(before), slow(state)) {
            (old, Some(new)) if old.map(|old| old.rules) != Some(new.rules) => warn(&format!(
                "the kernel's own audit is also active ({}, {}) and slows every syscall; \
                 load rules with `tollgate augenrules --load` instead of auditd's augenrules; \
                 auditd's `auditctl -D; auditctl -a never,task` exempts tasks started from then on",
                if new.enabled { "enabled" } else { "disabled" },
                count(new.rules, "rule")
            )),
            (Some(_), None) => {
                info(
                    "the kernel's own audit no longer slows syscalls of tasks started from now on",
                );
            }
            _ => {}
        }
        state
    }
}
