//! The audit language: what rules say, what they compile to, what happened, and how it is written.
//!
//! Data flows one way: rule text -> [`rule`] -> [`plan`]; ring bytes (decoded by the engine) ->
//! [`event`] -> [`record`]. Beside it stands what the daemon is told by files: [`conf`].
//!
//! Invariants of the crate, held by `forbid(unsafe_code)` and `cargo xtask tidy`:
//! it does no I/O, reads no clock, and its encoders allocate nothing per event.
//! What it must ask the machine (user names, whether a path is a directory) it asks through
//! [`rule::Host`], which the caller implements.

#![forbid(unsafe_code)]

pub mod conf;
pub mod event;
pub mod ids;
pub mod plan;
pub mod record;
pub mod rule;
pub mod table;
