//! The daemon: rules in, records out, until told to stop.
//!
//! [`start`] holds the order of start and stop; [`pipeline`] the threads between the ring and the log;
//! [`heartbeat`] how long the engine saw nothing; [`summary`] what is said about it at the end.

mod heartbeat;
mod pipeline;
mod start;
mod summary;

pub(crate) use start::{Settings, run};
