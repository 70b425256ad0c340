//! The daemon: rules in, records out, until told to stop.
//!
//! [`start`] holds the order of start and stop; [`pipeline`] the threads between the ring and the log, of
//! which [`reader`] is the first; [`orders`] what other threads ask of it while it runs;
//! [`heartbeat`] how long the engine saw nothing; [`summary`] what is said about it at the end.

mod heartbeat;
mod orders;
mod pipeline;
mod reader;
mod start;
mod summary;

pub(crate) use start::{Settings, run};
