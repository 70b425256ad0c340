//! The daemon: rules in, records out, until told to stop.
//!
//! [`start`] holds the order of start and stop, [`confine`] what it gives up in between and [`notify`] what
//! systemd is told of it; [`pipeline`] the threads between the ring and the log, of
//! which [`reader`] is the first, with [`encoding`]; [`orders`] what other threads ask of it while it runs;
//! [`store`] the rules in force and the requests that change them, [`live`] what it orders, [`change`] the
//! records of that, [`locked`] what `-e 2` leaves to the next daemon, [`means`] what of it is no rule;
//! [`kernel`] has the kernel's own audit send its messages, which [`messages`] takes into the stream;
//! [`losses`] tells what was lost on the way, [`rule_counts`] of which rules, [`heartbeat`] how long the
//! engine saw nothing; [`survive`] what outlives the daemon, and is taken over by the next; [`summary`] what is said about it at the end; [`log_controller`] what is done to the log.

mod confinement;
mod event_loop;
mod kernel_audit;
mod log_controller;
mod pipeline_handle;
mod start;
mod systemd;

pub(crate) use log_controller::LogSource;
pub(crate) use start::{ControlSocket, DaemonConfig, RuleSource, run};
