//! The audit language: rules, the plans that they compile to, events, and the records of events.
//!
//! Data flows one way: rule text -> [`rule`] -> [`plan`]; ring bytes (decoded by the engine) ->
//! [`event`] -> [`record`]. [`conf`] parses configuration files.
//!
//! Invariants, checked by `forbid(unsafe_code)` and `cargo xtask tidy`: the crate does no I/O, reads no
//! clock, and its encoders allocate nothing per event.
//! The caller implements [`rule::RuleHost`], which answers questions about the host: user names, and whether
//! a path is a directory.

#![forbid(unsafe_code)]

pub mod conf;
pub mod event;
pub mod ids;
pub mod plan;
pub mod record;
pub mod rule;
pub mod spelling;
pub mod table;
