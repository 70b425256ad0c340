//! The helper process: starts plugins, programs of actions, mail and init for the daemon.
//!
//! The daemon drops its privileges at start, and its children would have none either. The helper is started before
//! that and keeps them. It starts only what the configuration names, and it reads the configuration itself: a
//! compromised daemon cannot start anything else.
//!
//! ```text
//! daemon: HelperClient, LaunchedProgram ---- one message, one answer ----> helper: serve
//! ```
//!
//! [`protocol`] has the messages, [`client`] the daemon's end, [`server`] the helper's end, [`permission`] the rules
//! for what may be started.

mod client;
mod permission;
mod protocol;
mod server;

pub(crate) use client::{HelperClient, LaunchedProgram};
pub(crate) use protocol::{HelperProgram, ProgramSignal, Runlevel};
pub(crate) use server::serve;

/// Name of the helper's command.
pub(crate) const COMMAND: &str = "daemon-helper";
