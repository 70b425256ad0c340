//! Destinations: what is sent where.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use logs::expression::Expression;

use super::document::Start;
use crate::http::{Endpoint, HeaderFile, HeaderValue};
use crate::otlp::Compression;
use crate::parquet_files::ParquetSettings;
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
    fn address(&self) -> Option<&str> {
        match self {
            Self::Syslog(address, _) | Self::Auditd(address, _) => Some(&address.text),
            Self::Otlp(endpoint, _) => Some(&endpoint.address),
            Self::JsonOutput | Self::JsonUnix(_) | Self::Parquet(_) => None,
        }
    }

    /// The port of TCP that it connects to.
    pub(crate) fn port(&self) -> Option<u16> {
        let (_, port) = self.address()?.rsplit_once(':')?;
        port.parse().ok()
    }

    /// Whether the name of a host must be looked up.
    pub(crate) fn has_host_name(&self) -> bool {
        self.address()
            .is_some_and(|address| address.parse::<SocketAddr>().is_err())
    }

    /// Files that are read for each connection.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let (tls, headers) = match self {
            Self::Syslog(_, tls) => (tls.as_ref(), &[][..]),
            Self::Otlp(endpoint, _) => (endpoint.tls.as_ref(), &endpoint.headers[..]),
            Self::JsonOutput | Self::JsonUnix(_) | Self::Auditd(..) | Self::Parquet(_) => {
                (None, &[][..])
            }
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
        files
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
            Self::Parquet(settings) => format!("Parquet files in {}", settings.directory.display()),
        }
    }
}
