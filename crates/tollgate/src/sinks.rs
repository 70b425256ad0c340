//! Where events go.

mod accounts;
pub(crate) mod journal;
pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod outlet;
mod shown;
pub(crate) mod terminal;

pub(crate) use accounts::Accounts;
