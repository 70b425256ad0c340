//! Outputs: the audit log, the JSON log, plugins, the console and viewers.

pub(crate) mod audit_log;
pub(crate) mod json;
pub(crate) mod log_file;
pub(crate) mod plugins;
pub(crate) mod queue;
pub(crate) mod viewers;
