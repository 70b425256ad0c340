//! Instruction counts of the engine `lsm`.

use std::fs;

use anyhow::Context as _;

use super::{FENTRY, MeasuredCall, TEN, compare, measure, same};
use crate::daemon::Daemon;
use crate::suite::{Rules, Session};

/// Rules about other calls than the measured ones.
pub(super) const SESSION: Session = Session {
    name: "count_lsm",
    engine: "lsm",
    tests: &[("no_call_costs_more", no_call_costs_more)],
    ..FENTRY
};

/// Ten watched directories.
pub(super) const SESSION_10_RULES: Session = Session {
    name: "count_lsm_10_rules",
    engine: "lsm",
    rules: Rules::Text(TEN),
    tests: &[("only_opens_cost_more", only_opens_cost_more)],
    ..FENTRY
};

fn no_call_costs_more(_daemon: &Daemon) -> anyhow::Result<()> {
    same("lsm", &MeasuredCall::ALL)
}

/// Maximum instructions that are added to opens.
struct Limits {
    /// That no rule names.
    unnamed: u64,
    /// For reading, unwatched.
    to_read: u64,
    /// For writing, unwatched.
    to_write: u64,
    /// In a watched directory, with its event.
    watched: u64,
}

const LIMITS: Limits = Limits {
    unnamed: 200,
    to_read: 600,
    to_write: 3300,
    watched: 6500,
};

/// Limits with `PREEMPT_RT`, where a session sees the end of a call, and locks of the kernel can sleep.
const REALTIME_LIMITS: Limits = Limits {
    unnamed: 200,
    to_read: 850,
    to_write: 9700,
    watched: 12_500,
};

fn only_opens_cost_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let version = fs::read_to_string("/proc/version").context("cannot read /proc/version")?;
    let limits = if version.contains("PREEMPT_RT") {
        REALTIME_LIMITS
    } else {
        LIMITS
    };
    let now = measure("lsm, ten rules")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    for (call, most) in [
        (MeasuredCall::Open, limits.unnamed),
        (MeasuredCall::ToRead, limits.to_read),
        (MeasuredCall::ToWrite, limits.to_write),
        (MeasuredCall::Watched, limits.watched),
    ] {
        let expected = format!("at most {most} above");
        compare(&now, &[call], &expected, |now, before| {
            *now <= before + most
        })?;
    }
    Ok(())
}
