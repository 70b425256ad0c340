//! The control socket: what commands ask of a running daemon, and what it answers.
//!
//! A unix stream socket that only root can open. A request is one line of JSON, and so is its answer;
//! `docs/control.md` describes them. [`protocol`] and [`rule_json`] are their types, [`server`] is the daemon's
//! end and [`client`] the commands'; what a request does is the business of [`crate::daemon`].

pub(crate) mod change_records;
pub(crate) mod client;
pub(crate) mod lock_file;
pub(crate) mod protocol;
pub(crate) mod rule_json;
pub(crate) mod rule_store;
pub(crate) mod server;

/// Where the daemon listens unless told otherwise.
pub(crate) const SOCKET: &str = "/run/tollgate/control";

/// Longest request, its newline included: more than ten thousand rules.
pub(crate) const LINE_LIMIT_BYTES: usize = 8 << 20;
