//! Programs that the daemon has started: plugins, programs of actions, mail, init.
//!
//! The daemon gives up its rights when it starts, and what it started then would have none either. So a
//! process of its own, the launcher, is started before that and keeps them. It does one thing: it starts
//! what the configuration names, which it reads itself. A daemon that was taken over can have nothing
//! else started.
//!
//! ```text
//! daemon: Launcher, Launched ---- one message, one answer ----> launcher: serve
//! ```
//!
//! [`protocol`] has the messages, [`client`] the daemon's end, [`server`] the other, and [`permission`] what may be
//! started.

mod client;
mod permission;
mod protocol;
mod server;

pub(crate) use client::{LaunchedProgram, Launcher};
pub(crate) use protocol::{Program, ProgramSignal, Runlevel};
pub(crate) use server::serve;

/// Name of the command that is the launcher.
pub(crate) const COMMAND: &str = "daemon-launcher";
