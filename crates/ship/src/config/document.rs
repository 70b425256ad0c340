//! The configuration file as it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) log: Option<PathBuf>,
    pub(super) host: Option<Spanned<String>>,
    pub(super) heartbeat: Option<Spanned<i64>>,
    /// JSON lines to programs of this machine.
    #[serde(default)]
    pub(super) json: BTreeMap<Spanned<String>, Json>,
    /// Syslog over TCP.
    #[serde(default)]
    pub(super) syslog: BTreeMap<Spanned<String>, Syslog>,
}

/// Where the first run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Start {
    /// At the oldest event that the log has.
    Begin,
    /// At the end of the log.
    End,
}

/// A table `[json.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Json {
    pub(super) to: Spanned<String>,
    filter: Option<Spanned<String>>,
    start: Option<Start>,
    resend: Option<Spanned<i64>>,
}

/// A table `[syslog.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Syslog {
    pub(super) address: Spanned<String>,
    filter: Option<Spanned<String>>,
    start: Option<Start>,
    resend: Option<Spanned<i64>>,
}

/// What every destination has.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
    pub(super) resend: Option<Spanned<i64>>,
}

/// The settings of a table that every destination has.
macro_rules! common {
    ($table:ty) => {
        impl From<$table> for Common {
            fn from(table: $table) -> Self {
                Self {
                    filter: table.filter,
                    start: table.start,
                    resend: table.resend,
                }
            }
        }
    };
}

common!(Json);
common!(Syslog);
