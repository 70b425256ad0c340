//! The configuration file as it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use metrics::MetricsAddress;
use serde::Deserialize;
use toml::Spanned;

use crate::http::HeaderValue;
use crate::kafka::{Codec, Mechanism};
use crate::otlp::Compression;
use crate::s3::AccessKey;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) log: Option<PathBuf>,
    pub(super) host: Option<Spanned<String>>,
    pub(super) heartbeat: Option<Spanned<i64>>,
    pub(super) metrics: Option<MetricsAddress>,
    /// JSON lines to programs of this machine.
    #[serde(default)]
    pub(super) json: BTreeMap<Spanned<String>, Json>,
    /// Syslog over TCP or TLS.
    #[serde(default)]
    pub(super) syslog: BTreeMap<Spanned<String>, Syslog>,
    /// Records to listeners of `auditd`.
    #[serde(default)]
    pub(super) auditd: BTreeMap<Spanned<String>, Auditd>,
    /// Log records of OpenTelemetry to collectors.
    #[serde(default)]
    pub(super) otlp: BTreeMap<Spanned<String>, Otlp>,
    /// JSON lines to topics of Kafka.
    #[serde(default)]
    pub(super) kafka: BTreeMap<Spanned<String>, Kafka>,
    /// Parquet files.
    #[serde(default)]
    pub(super) parquet: BTreeMap<Spanned<String>, Parquet>,
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
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
    pub(super) resend: Option<Spanned<i64>>,
}

/// A table `[syslog.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Syslog {
    pub(super) address: Spanned<String>,
    pub(super) tls: Option<Tls>,
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
    pub(super) resend: Option<Spanned<i64>>,
}

/// A table `[auditd.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Auditd {
    pub(super) address: Spanned<String>,
    pub(super) timeout: Option<Spanned<i64>>,
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
}

/// A table `[otlp.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Otlp {
    pub(super) url: Spanned<String>,
    pub(super) compression: Option<Compression>,
    pub(super) timeout: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) headers: BTreeMap<Spanned<String>, HeaderValue>,
    pub(super) tls: Option<Tls>,
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
}

/// A table `[kafka.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kafka {
    pub(super) brokers: Spanned<Vec<Spanned<String>>>,
    pub(super) topic: Spanned<String>,
    pub(super) compression: Option<Codec>,
    pub(super) timeout: Option<Spanned<i64>>,
    pub(super) tls: Option<Tls>,
    pub(super) sasl: Option<Sasl>,
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
}

/// A table `[kafka.NAME.sasl]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sasl {
    pub(super) mechanism: Spanned<Mechanism>,
    pub(super) user: Spanned<String>,
    pub(super) password_file: Spanned<PathBuf>,
}

/// A table `[syslog.NAME.tls]`, `[otlp.NAME.tls]`, `[kafka.NAME.tls]` or `[parquet.NAME.s3.tls]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tls {
    pub(super) ca: Spanned<PathBuf>,
    pub(super) certificate: Option<Spanned<PathBuf>>,
    pub(super) key: Option<Spanned<PathBuf>>,
    pub(super) server_name: Option<Spanned<String>>,
}

/// A table `[parquet.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parquet {
    pub(super) directory: Spanned<PathBuf>,
    pub(super) rows: Option<Spanned<i64>>,
    pub(super) seconds: Option<Spanned<i64>>,
    pub(super) s3: Option<S3>,
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
}

/// A table `[parquet.NAME.s3]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct S3 {
    pub(super) url: Spanned<String>,
    pub(super) region: Option<Spanned<String>>,
    pub(super) access_key: Spanned<AccessKey>,
    pub(super) secret_file: Spanned<PathBuf>,
    pub(super) session_token_file: Option<Spanned<PathBuf>>,
    pub(super) timeout: Option<Spanned<i64>>,
    pub(super) tls: Option<Tls>,
}

/// What every destination has.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) filter: Option<Spanned<String>>,
    pub(super) start: Option<Start>,
    /// None where the peer confirms what it has.
    pub(super) resend: Option<Spanned<i64>>,
}

/// A table of a destination.
pub(super) trait DestinationTable {
    /// Takes what every destination has.
    fn take_common(&mut self) -> Common;
}

macro_rules! destination_tables {
    ($($table:ty, $resend:expr;)+) => {$(
        impl DestinationTable for $table {
            fn take_common(&mut self) -> Common {
                let resend: fn(&mut Self) -> Option<Spanned<i64>> = $resend;
                Common {
                    filter: self.filter.take(),
                    start: self.start,
                    resend: resend(self),
                }
            }
        }
    )+};
}

destination_tables! {
    Json, |json| json.resend.take();
    Syslog, |syslog| syslog.resend.take();
    Auditd, |_| None;
    Otlp, |_| None;
    Kafka, |_| None;
    Parquet, |_| None;
}
