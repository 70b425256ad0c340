//! Destinations: what is sent where.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use logs::expression::Expression;

use super::document::Start;
use crate::http::{Endpoint, HeaderFile, HeaderValue};
use crate::kafka::KafkaSettings;
use crate::otlp::Compression;
use crate::parquet_files::ParquetSettings;
use crate::s3::S3Settings;
use crate::transport::TlsSettings;

/// A destination.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    /// Which events are sent.
    pub(crate) filter: Expression,
    /// Where the first run begins.
    pub(crate) start: Start,
    /// How long a connection must live until what was sent on it need not be sent again.
    pub(crate) resend: Duration,
    pub(crate) kind: Kind,
}

/// What a destination is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// JSON lines to standard output.
    JsonOutput,
    /// JSON lines to a Unix stream socket.
    JsonUnix(PathBuf),
    /// Syslog messages over TCP or TLS.
    Syslog(Address, Option<TlsSettings>),
    /// Records to the listener of an `auditd`, with the longest wait for an answer.
    Auditd(Address, Duration),
    /// Log records of OpenTelemetry over HTTP.
    Otlp(Endpoint, Compression),
    /// JSON lines to a topic of Kafka.
    Kafka(KafkaSettings),
    /// Parquet files.
    Parquet(ParquetSettings),
}

/// A host and a port of TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    /// `HOST:PORT`.
    pub(crate) text: String,
}

impl Address {
    /// Parses `HOST:PORT`; an IPv6 address has brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let is_v6 = host.starts_with('[') && host.ends_with(']');
        let is_host = !host.is_empty() && (is_v6 || !host.contains(':'));
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        (is_host && is_port).then(|| Self {
            text: text.to_owned(),
        })
    }

    /// The host, without the brackets of an IPv6 address.
    pub(super) fn host(&self) -> &str {
        let host = self.text.rsplit_once(':').map_or("", |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl Kind {
    /// `HOST:PORT` of TCP that it connects to.
    fn addresses(&self) -> Vec<&str> {
        match self {
            Self::Syslog(address, _) | Self::Auditd(address, _) => vec![&address.text],
            Self::Otlp(endpoint, _) => vec![&endpoint.address],
            Self::Kafka(settings) => settings.brokers.iter().map(String::as_str).collect(),
            Self::Parquet(settings) => match &settings.s3 {
                Some(s3) => vec![&s3.endpoint.address],
                None => Vec::new(),
            },
            Self::JsonOutput | Self::JsonUnix(_) => Vec::new(),
        }
    }

    /// The ports of TCP that it connects to.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let addresses = self.addresses().into_iter();
        let ports = addresses.filter_map(|address| address.rsplit_once(':')?.1.parse().ok());
        ports.collect()
    }

    /// Whether the name of a host must be looked up: brokers of Kafka may have other names than those of the configuration.
    pub(crate) fn has_host_name(&self) -> bool {
        let is_name = |address: &&str| address.parse::<SocketAddr>().is_err();
        matches!(self, Self::Kafka(_)) || self.addresses().iter().any(is_name)
    }

    /// Files that are read for each connection.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let (tls, headers) = match self {
            Self::Syslog(_, tls) => (tls.as_ref(), &[][..]),
            Self::Otlp(endpoint, _) => (endpoint.tls.as_ref(), &endpoint.headers[..]),
            Self::Kafka(settings) => (settings.tls.as_ref(), &[][..]),
            Self::Parquet(settings) => {
                let s3 = settings.s3.as_ref();
                (s3.and_then(|s3| s3.endpoint.tls.as_ref()), &[][..])
            }
            Self::JsonOutput | Self::JsonUnix(_) | Self::Auditd(..) => (None, &[][..]),
        };
        let mut files = Vec::new();
        if let Some(tls) = tls {
            files.push(tls.ca.as_path());
            let identity = tls.identity.iter();
            files.extend(identity.flat_map(|(certificate, key)| [&**certificate, &**key]));
        }
        files.extend(headers.iter().filter_map(|(_, value)| match value {
            HeaderValue::File(HeaderFile { file }) => Some(file.as_path()),
            HeaderValue::Text(_) => None,
        }));
        files.extend(self.secrets());
        files
    }

    /// The files of its password or key.
    fn secrets(&self) -> Vec<&Path> {
        match self {
            Self::Kafka(settings) => {
                let sasl = settings.sasl.iter();
                sasl.map(|sasl| &*sasl.password_file).collect()
            }
            Self::Parquet(settings) => {
                let s3 = settings.s3.iter();
                s3.flat_map(S3Settings::files).collect()
            }
            Self::JsonOutput
            | Self::JsonUnix(_)
            | Self::Syslog(..)
            | Self::Auditd(..)
            | Self::Otlp(..) => Vec::new(),
        }
    }

    /// What it is, for people.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::JsonOutput => "JSON lines to standard output".to_owned(),
            Self::JsonUnix(path) => format!("JSON lines to socket {}", path.display()),
            Self::Syslog(address, None) => format!("syslog to {} over TCP", address.text),
            Self::Syslog(address, Some(_)) => format!("syslog to {} over TLS", address.text),
            Self::Auditd(address, _) => format!("auditd at {}", address.text),
            Self::Otlp(endpoint, _) => format!("OTLP to {}", endpoint.shown()),
            Self::Kafka(settings) => {
                format!(
                    "topic {} of Kafka at {}",
                    settings.topic,
                    settings.brokers.join(", ")
                )
            }
            Self::Parquet(settings) => match &settings.s3 {
                Some(s3) => format!("Parquet files at {}", s3.endpoint.shown()),
                None => format!("Parquet files in {}", settings.directory.display()),
            },
        }
    }
}
