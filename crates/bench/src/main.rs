//! `tollgate bench`: what auditing costs on this machine, next to none and to the kernel's own.
//!
//! It runs as four kinds of process. The first, [`guard`], saves what is about to be changed, starts the
//! others, and puts everything back when the measuring one ends, however it ends. A [`keeper`] does that when
//! the first is killed. The third, [`measure`], runs the cases round by round and writes a [`report`]. The
//! fourth kind is the workloads: this program again or somebody else's, started anew for each measurement,
//! because a task keeps for life the audit context that it was or was not given when it was made.
//!
//! Method, commands and figures are in `docs/bench.md`.

mod case;
pub(crate) mod component;
mod daemon;
pub(crate) mod guard;
pub(crate) mod keeper;
mod log;
mod machine;
pub(crate) mod measure;
mod observer;
mod place;
mod processes;
pub(crate) mod report;
pub(crate) mod saved;
mod state;
mod statistics;
mod variant;
pub(crate) mod workload;

pub(crate) use case::{Case, find, listing};
pub(crate) use state::State;

/// What is measured, how often and against what.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// In the order of the listing.
    pub(crate) cases: Vec<&'static dyn Case>,
    /// [`State::Off`] is among them: it is what the others are divided by.
    pub(crate) against: Vec<State>,
    /// Rules that take the place of the ten, in cases that measure what calls pay which no rule names.
    pub(crate) rules: Option<String>,
    /// Measurements of each configuration.
    pub(crate) runs: u32,
    /// What `--engine` of the daemon is given.
    pub(crate) engine: String,
    /// As little work as shows that a case works here; its figures mean nothing.
    pub(crate) brief: bool,
    /// Workloads of our own run before all ordinary programs.
    pub(crate) fifo: bool,
}
