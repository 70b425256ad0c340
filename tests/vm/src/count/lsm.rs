//! Instruction counts of the engine `lsm`.

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

/// Maximum added on the engine `lsm` to an open that no rule names, and to one for reading.
const MOST_OPEN: u64 = 200;
const MOST_TO_READ: u64 = 650;
/// Maximum added to an unwatched open for writing, and to one in a watched directory, with its event.
const MOST_TO_WRITE: u64 = 3300;
const MOST_WATCHED: u64 = 6500;

fn only_opens_cost_more(_daemon: &Daemon) -> anyhow::Result<()> {
    let now = measure("lsm, ten rules")?;
    compare(&now, &MeasuredCall::BUT_OPENAT, "==", u64::eq)?;
    let within = |call, sign, holds| compare(&now, &[call], sign, holds);
    within(MeasuredCall::Open, "at most 200 above", |now, before| {
        *now <= before + MOST_OPEN
    })?;
    within(MeasuredCall::ToRead, "at most 650 above", |now, before| {
        *now <= before + MOST_TO_READ
    })?;
    within(
        MeasuredCall::ToWrite,
        "at most 3000 above",
        |now, before| *now <= before + MOST_TO_WRITE,
    )?;
    within(
        MeasuredCall::Watched,
        "at most 6500 above",
        |now, before| *now <= before + MOST_WATCHED,
    )
}
