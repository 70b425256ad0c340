//! Audit logs on disk.
//!
//! Everything that reads logs stands on this crate: a [`log_set::LogSet`] is a log with its rotated predecessors, a
//! single file, or a stream; an [`event_reader::EventReader`] yields its events, also while it grows and is rotated;
//! a [`cursor::Cursor`] is a position to continue from.
//!
//! ```text
//! LogSet: audit.log.000001.zst, audit.log.2, audit.log.1, audit.log --> lines --> audit::record::assemble --> events
//! ```
//!
//! Logs are untrusted: a malformed line is reported and skipped, and memory is bounded. Logs are never mapped into
//! memory: a log that shrinks while it is read would end the reader with SIGBUS.

#![forbid(unsafe_code)]

pub mod accounts;
mod archive;
pub mod archive_writer;
pub mod candidates;
pub mod compressed;
pub mod confinement;
pub mod console;
pub mod ctext;
pub mod cursor;
pub mod escaped;
pub mod event_accounts;
pub mod event_context;
pub mod event_reader;
pub mod event_values;
pub mod expression;
mod follow;
mod hash;
pub mod index;
pub mod json;
mod line_buffer;
mod log_error;
pub mod log_file;
pub mod log_set;
pub mod name_service;
pub mod rule_decision;
pub mod stamp;
pub mod state_directory;
pub mod syscall_event;
