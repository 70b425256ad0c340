//! The control socket: requests of commands to a running daemon, and its answers.
//!
//! A unix stream socket for root, and for reading for one group. A request is one line of JSON, and so is its answer;
//! see `docs/control.md`. [`protocol`], [`rule_json`], [`rule_costs`] and [`watch`] have the types, [`server`] is the
//! daemon's end, [`client`] the commands' end, and [`rule_store`] handles requests.

pub(crate) mod change_records;
pub(crate) mod client;
pub(crate) mod lock_file;
pub(crate) mod protocol;
pub(crate) mod rule_costs;
pub(crate) mod rule_json;
pub(crate) mod rule_store;
pub(crate) mod server;
pub(crate) mod watch;

/// Default path of the control socket.
pub(crate) const SOCKET: &str = "/run/tollgate/control";

/// Describes an answer that this program does not know.
pub(crate) const INVALID_REPLY: &str = "cannot read the reply of the daemon, which may be another version: compare \
     `tollgate --version` with `journalctl -u tollgate`, then run `systemctl restart tollgate`";

/// Longest request including its newline: room for more than ten thousand rules.
pub(crate) const LINE_LIMIT_BYTES: usize = 8 << 20;
