//! Outputs: the audit log, the JSON log, plugins and the console.

pub(crate) mod audit_log;
pub(crate) mod json;
pub(crate) mod log_file;
pub(crate) mod plugins;
pub(crate) mod queue;
