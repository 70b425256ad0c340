//! The configuration file of the listener.
//!
//! ```toml
//! listen = ["0.0.0.0:60"]
//!
//! [hosts]
//! web1 = ["192.0.2.17"]
//!
//! [networks.lab]
//! prefixes = ["10.1.0.0/16"]
//! host = "address"
//!
//! [tls]
//! listen = ["0.0.0.0:6514"]
//! certificate = "/etc/tollgate/collect.pem"
//! key = "/etc/tollgate/collect.key"
//! ca = "/etc/tollgate/collect-ca.pem"
//! ```
//!
//! All mistakes are reported, each with its line and column.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use logs::expression::parse::Mistake;
use metrics::MetricsAddress;
use rustls::pki_types::DnsName;
use serde::Deserialize;
use toml::Spanned;

use super::peers::{Naming, Network, Peers};
use super::prefix::Prefix;
use super::tls::TlsSettings;
use crate::config_file::{self, Mistakes};

const LISTEN: &str = "0.0.0.0:60";
const TLS_LISTEN: &str = "0.0.0.0:6514";
const DIRECTORY: &str = "/var/log/tollgate-collect";
const MAX_LISTENERS: usize = 16;
/// Most hosts in all: each has an open file.
pub(super) const MAX_HOSTS: u64 = 4096;
const MAX_CONNECTIONS: u64 = 8192;
const MIB: u64 = 1 << 20;

/// What is taken from whom.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) listen: Vec<SocketAddr>,
    pub(super) tls: Option<TlsSettings>,
    /// Where the logs of hosts are.
    pub(super) directory: PathBuf,
    pub(super) peers: Peers,
    pub(super) limits: Limits,
    pub(super) logs: LogSettings,
    /// Where metrics are served.
    pub(super) metrics: Option<MetricsAddress>,
}

/// Bounds of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) connections_per_address: usize,
    /// A connection without a message for so long is closed.
    pub(super) idle: Duration,
    /// Whether peers must use ports below 1024.
    pub(super) privileged_ports: bool,
}

/// Sizes of logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogSettings {
    /// Most bytes of a file.
    pub(super) file_bytes: u64,
    /// Files of a host, with the current one.
    pub(super) files: u32,
    /// Free bytes of the file system that stay free.
    pub(super) reserve_bytes: u64,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    listen: Option<Spanned<Vec<Spanned<String>>>>,
    directory: Option<Spanned<PathBuf>>,
    connections: Option<Spanned<i64>>,
    connections_per_address: Option<Spanned<i64>>,
    idle: Option<Spanned<i64>>,
    #[serde(default)]
    privileged_ports: bool,
    max_log_file: Option<Spanned<i64>>,
    num_logs: Option<Spanned<i64>>,
    space_left: Option<Spanned<i64>>,
    metrics: Option<MetricsAddress>,
    tls: Option<Spanned<TlsTable>>,
    #[serde(default)]
    hosts: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    networks: BTreeMap<Spanned<String>, NetworkTable>,
}

/// The table `[tls]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    listen: Option<Spanned<Vec<Spanned<String>>>>,
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    ca: Option<Spanned<PathBuf>>,
}

/// A table `[networks.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkTable {
    prefixes: Vec<Spanned<String>>,
    host: Naming,
    max_hosts: Option<Spanned<i64>>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has mistakes; these are told.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = config_file::read(path)?;
        Self::parse(&text).map_err(|mistakes| config_file::report(path, &text, &mistakes))
    }

    /// Parses a text.
    ///
    /// # Errors
    /// All mistakes that were found.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let document: Document = config_file::parse(text, "tollgate-collect.toml(5)")?;
        let mut mistakes = Mistakes::default();
        let config = Self::check(document, &mut mistakes);
        match mistakes.0.is_empty() {
            true => Ok(config),
            false => Err(mistakes.0),
        }
    }

    fn check(document: Document, mistakes: &mut Mistakes) -> Self {
        let mut number = |value: Option<&Spanned<i64>>, name, unit, range, default| {
            mistakes.number(value, name, unit, range, default)
        };
        let connections = document.connections.as_ref();
        let connections = number(
            connections,
            "connections",
            "connections",
            1..=MAX_CONNECTIONS,
            1024,
        );
        let each = document.connections_per_address.as_ref();
        let each = number(
            each,
            "connections_per_address",
            "connections",
            1..=MAX_CONNECTIONS,
            4,
        );
        let idle = number(document.idle.as_ref(), "idle", "seconds", 10..=86_400, 3600);
        let size = number(
            document.max_log_file.as_ref(),
            "max_log_file",
            "MiB",
            1..=65_536,
            8,
        );
        let files = number(document.num_logs.as_ref(), "num_logs", "files", 2..=999, 5);
        let reserve = document.space_left.as_ref();
        let reserve = number(reserve, "space_left", "MiB", 0..=1 << 20, 256);
        let directory = document.directory.map_or_else(
            || DIRECTORY.into(),
            |directory| {
                mistakes.absolute(directory.get_ref(), directory.span());
                directory.into_inner()
            },
        );
        let tls = document.tls.map(|table| tls(table, mistakes));
        let least = usize::from(tls.is_none());
        let has_certificates = tls.as_ref().is_some_and(|tls| tls.ca.is_some());
        Self {
            listen: listeners(document.listen, LISTEN, least, mistakes),
            directory,
            peers: peers(
                document.hosts,
                document.networks,
                has_certificates,
                mistakes,
            ),
            tls,
            limits: Limits {
                connections: usize::try_from(connections).unwrap_or(usize::MAX),
                connections_per_address: usize::try_from(each).unwrap_or(usize::MAX),
                idle: Duration::from_secs(idle),
                privileged_ports: document.privileged_ports,
            },
            logs: LogSettings {
                file_bytes: size * MIB,
                files: u32::try_from(files).unwrap_or(u32::MAX),
                reserve_bytes: reserve * MIB,
            },
            metrics: document.metrics,
        }
    }
}

fn tls(table: Spanned<TlsTable>, mistakes: &mut Mistakes) -> TlsSettings {
    let table = table.into_inner();
    let mut file = |path: Spanned<PathBuf>| {
        mistakes.absolute(path.get_ref(), path.span());
        path.into_inner()
    };
    let (certificate, key, ca) = (file(table.certificate), file(table.key), table.ca.map(file));
    TlsSettings {
        listen: listeners(table.listen, TLS_LISTEN, 1, mistakes),
        certificate,
        key,
        ca,
    }
}

fn listeners(
    listen: Option<Spanned<Vec<Spanned<String>>>>,
    default: &str,
    least: usize,
    mistakes: &mut Mistakes,
) -> Vec<SocketAddr> {
    let Some(listen) = listen else {
        return default.parse().into_iter().collect();
    };
    let count = listen.get_ref().len();
    if !(least..=MAX_LISTENERS).contains(&count) {
        let message = format!("`listen` has {count} addresses");
        let advice = format!("write {least} to {MAX_LISTENERS}");
        mistakes.add(listen.span(), message, &advice);
    }
    let mut found = Vec::new();
    for text in listen.into_inner() {
        match text.get_ref().parse() {
            Ok(address) => found.push(address),
            Err(_) => mistakes.add(
                text.span(),
                format!(
                    "`{}` is no address to listen at",
                    text.get_ref().escape_debug()
                ),
                "write `ADDRESS:PORT`, with an IPv6 address in brackets",
            ),
        }
    }
    found
}

fn peers(
    hosts: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    networks: BTreeMap<Spanned<String>, NetworkTable>,
    has_certificates: bool,
    mistakes: &mut Mistakes,
) -> Peers {
    let mut peers = Peers::default();
    if hosts.is_empty() && networks.is_empty() {
        mistakes.add(
            0..0,
            "no peers",
            "add a table `[hosts]`, for example with `web1 = [\"192.0.2.17\"]`",
        );
    }
    let mut all = u64::try_from(hosts.len()).unwrap_or(u64::MAX);
    let mut seen = Vec::new();
    let mut certificates = BTreeSet::new();
    for (name, addresses) in hosts {
        mistakes.host_name(name.get_ref(), name.span());
        if name.get_ref().parse::<IpAddr>().is_ok() {
            let message = format!("host `{}` has the name of an address", name.get_ref());
            mistakes.add(
                name.span(),
                message,
                "give it a name; addresses name the hosts of networks",
            );
        }
        if addresses.is_empty() {
            let message = format!(
                "host `{}` has no address or name",
                name.get_ref().escape_debug()
            );
            mistakes.add(name.span(), message, "write at least one");
        }
        for address in addresses {
            if let Some(certificate) = certificate_name(address.get_ref()) {
                let shown = address.get_ref();
                if !has_certificates {
                    mistakes.add(
                        address.span(),
                        format!("`{shown}` is the name of a certificate, and peers have none"),
                        "write an address, or a table `[tls]` with `ca`",
                    );
                }
                if !certificates.insert(certificate.clone()) {
                    mistakes.add(
                        address.span(),
                        format!("`{shown}` is written twice"),
                        "remove one",
                    );
                }
                peers.add_certificate(&certificate, name.get_ref());
                continue;
            }
            if let Some(prefix) = prefix(&address, &mut seen, mistakes) {
                if !prefix.is_address() {
                    let message = format!("`{}` is a prefix", address.get_ref());
                    mistakes.add(
                        address.span(),
                        message,
                        "write it in a table `[networks.NAME]`",
                    );
                }
                peers.add_host(prefix, name.get_ref());
            }
        }
    }
    let mut by_claim = false;
    for (name, table) in networks {
        mistakes.host_name(name.get_ref(), name.span());
        if table.host != Naming::Address {
            if by_claim {
                mistakes.add(
                    name.span(),
                    "a second network names its hosts by `node=` or certificates: each could write the logs of the other",
                    "join their prefixes in one table",
                );
            }
            by_claim = true;
        }
        if table.host == Naming::Certificate && !has_certificates {
            mistakes.add(
                name.span(),
                "hosts are named by certificates, and peers have none",
                "write a table `[tls]` with `ca`",
            );
        }
        let most = mistakes.number(
            table.max_hosts.as_ref(),
            "max_hosts",
            "hosts",
            1..=MAX_HOSTS,
            100,
        );
        all = all.saturating_add(most);
        let prefixes = table.prefixes.iter();
        let prefixes = prefixes
            .filter_map(|text| prefix(text, &mut seen, mistakes))
            .collect();
        peers.add_network(Network {
            name: name.into_inner(),
            prefixes,
            naming: table.host,
            max_hosts: usize::try_from(most).unwrap_or(usize::MAX),
        });
    }
    if all > MAX_HOSTS {
        let message = format!("up to {all} hosts, with `max_hosts` of each network");
        let advice = format!("stay below {MAX_HOSTS}, and run a listener for the others elsewhere");
        mistakes.add(0..0, message, &advice);
    }
    peers
}

/// A name of DNS that a certificate can have, in lower case.
fn certificate_name(text: &str) -> Option<String> {
    let is_name = Prefix::parse(text).is_none() && DnsName::try_from(text).is_ok();
    is_name.then(|| text.to_ascii_lowercase())
}

fn prefix(
    text: &Spanned<String>,
    seen: &mut Vec<Prefix>,
    mistakes: &mut Mistakes,
) -> Option<Prefix> {
    let shown = text.get_ref().escape_debug();
    let Some(prefix) = Prefix::parse(text.get_ref()) else {
        mistakes.add(
            text.span(),
            format!("`{shown}` is no address or prefix"),
            "write `ADDRESS` or `ADDRESS/BITS`, with zeros behind the prefix",
        );
        return None;
    };
    if seen.contains(&prefix) {
        mistakes.add(
            text.span(),
            format!("`{shown}` is written twice"),
            "remove one",
        );
    }
    seen.push(prefix);
    Some(prefix)
}

#[cfg(test)]
mod tests;
