//! An open whose name the kernel cannot read finds no object: it has no `PATH` of what an operation opens at its entry.

use anyhow::Context as _;
use support::event;

use super::{Case, program, reset, trace};
use crate::daemon::Daemon;
use crate::half_seen::{LAST, events_of};
use crate::machine::{USER, start_waiting};
use crate::program::args;
use crate::suite::{Rules, Session};

/// No rule names the operation, and one names another open.
pub(crate) const SESSION: Session = Session {
    name: "operation_at_entry_unreadable_name",
    rules: Rules::Made(|| {
        format!("{LAST}-a always,exit -F arch=b64 -S open -F uid=1001 -k opens\n")
    }),
    tests: &[("open_has_no_object", open_has_no_object)],
    ..super::SESSION
};

/// No page is mapped at address 8.
const OPEN: Case = Case {
    call: "open",
    number: 2,
    args: |_uid| args![8, 0],
    is_done: || Ok(true),
};

fn open_has_no_object(daemon: &Daemon) -> anyhow::Result<()> {
    reset(USER)?;
    let path = program(&OPEN, USER)?.install("open")?;
    let mut traced = start_waiting(&path, USER)?;
    let ended = trace(&mut traced, OPEN.number);
    if ended.is_err() {
        let _gone = traced.kill();
    }
    ended.context("the operation did not run at the entry")?;
    let events = events_of(daemon, traced.id())?;
    event::expect(&events, &["open=-14"])
}
