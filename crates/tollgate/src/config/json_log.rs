//! Settings of the JSON log: `[json]` in `tollgate.toml`.

use std::path::PathBuf;

use serde::Deserialize;

/// Settings of the JSON log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JsonLogConfig {
    /// Path of the log.
    pub(crate) file: PathBuf,
    /// Schema of the events.
    #[serde(default)]
    pub(crate) schema: JsonSchema,
    /// Size at which the log is rotated, in MiB; 0 disables rotation.
    #[serde(default = "default_max_mib")]
    pub(crate) max_mib: u32,
    /// Number of rotated logs to keep.
    #[serde(default = "default_keep")]
    pub(crate) keep: u8,
}

/// Schema of JSON events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JsonSchema {
    /// Fields of the audit records.
    #[default]
    Records,
    /// Elastic Common Schema.
    Ecs,
    /// Open Cybersecurity Schema Framework.
    Ocsf,
}

const fn default_max_mib() -> u32 {
    64
}

const fn default_keep() -> u8 {
    4
}
