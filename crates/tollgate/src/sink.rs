//! Where records go: the log file, and a view for people who watch.

mod accounts;
pub(crate) mod log;
mod shown;
pub(crate) mod terminal;

pub(crate) use accounts::Accounts;
