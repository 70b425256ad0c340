//! The configuration file.
//!
//! ```toml
//! host = "web1"
//!
//! [json.vector]
//! to = "unix:/run/vector.sock"
//! filter = "key=exec"
//! ```
//!
//! [`document`] is the file as it is written, [`destination`] what is made of its tables; this module checks it. All
//! mistakes are reported, each with its line and column.

mod destination;
mod document;
mod kafka;
mod otlp;
mod parquet;
mod url;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use logs::accounts::Accounts;
use logs::expression::Expression;
use logs::expression::parse::{self, Mistake};
use metrics::MetricsAddress;
use rustls::pki_types::ServerName;
use toml::Spanned;

use crate::config_file::{self, Mistakes, is_plain};
use crate::transport::TlsSettings;
pub(crate) use destination::{Address, Destination, Kind};
pub(crate) use document::Start;
use document::{Auditd, DestinationTable, Document, Json, Syslog, Tls};

/// Most destinations: each has a thread.
const MAX_DESTINATIONS: usize = 16;
/// Longest name of a destination: it is the name of a file and, with a prefix, of a thread.
const MAX_NAME: usize = 11;
const DEFAULT_LOG: &str = "/var/log/audit/audit.log";
/// Name of this machine.
const HOST: &str = "/proc/sys/kernel/hostname";
const HEARTBEAT_SECS: u64 = 60;
/// Enough for a peer that writes what it has read to a disk.
const RESEND_SECS: u64 = 10;
/// Longest time between two heartbeats, of `resend` and of `seconds`.
const MAX_SECS: u64 = 86_400;
/// Longest wait for an answer, and the default.
const MAX_TIMEOUT_SECS: u64 = 300;
const TIMEOUT_SECS: u64 = 30;

/// What is sent where.
#[derive(Debug)]
pub(crate) struct Config {
    /// The log that is followed.
    pub(crate) log: PathBuf,
    /// Name of this machine in the fleet.
    pub(crate) host: String,
    /// Time between two heartbeats.
    pub(crate) heartbeat: Duration,
    /// Where metrics are served.
    pub(crate) metrics: Option<MetricsAddress>,
    /// Destinations by their names.
    pub(crate) destinations: Vec<Destination>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or has mistakes; these are told.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = config_file::read(path)?;
        let accounts = Accounts::read().unwrap_or_default();
        Self::parse(&text, &accounts)
            .map_err(|mistakes| config_file::report(path, &text, &mistakes))
    }

    /// Parses a text.
    ///
    /// # Errors
    /// All mistakes that were found.
    fn parse(text: &str, accounts: &Accounts) -> Result<Self, Vec<Mistake>> {
        let document: Document = config_file::parse(text, "tollgate-ship.toml(5)")?;
        let mut checker = Checker {
            text,
            accounts,
            mistakes: Mistakes::default(),
        };
        let config = checker.check(document);
        match checker.mistakes.0.is_empty() {
            true => Ok(config),
            false => Err(checker.mistakes.0),
        }
    }
}

/// Finds mistakes.
struct Checker<'a> {
    text: &'a str,
    accounts: &'a Accounts,
    mistakes: Mistakes,
}

impl Checker<'_> {
    fn mistake(&mut self, span: Range<usize>, message: impl Into<String>, advice: &str) {
        self.mistakes.add(span, message, advice);
    }

    fn check(&mut self, document: Document) -> Config {
        let heartbeat = self.mistakes.seconds(
            document.heartbeat.as_ref(),
            "heartbeat",
            1..=MAX_SECS,
            HEARTBEAT_SECS,
        );
        let host = self.host(document.host);
        let mut destinations = Vec::new();
        self.add(document.json, Self::json, &mut destinations);
        self.add(document.syslog, Self::syslog, &mut destinations);
        self.add(document.auditd, Self::auditd, &mut destinations);
        self.add(document.otlp, Self::otlp, &mut destinations);
        self.add(document.kafka, Self::kafka, &mut destinations);
        self.add(document.parquet, Self::parquet, &mut destinations);
        if destinations.is_empty() && self.mistakes.0.is_empty() {
            self.mistake(
                0..0,
                "no destination",
                "add one, for example a table `[json.out]` with `to = \"stdout\"`",
            );
        }
        if destinations.len() > MAX_DESTINATIONS {
            let message = format!("more than {MAX_DESTINATIONS} destinations");
            self.mistake(0..0, message, "send to one that passes events on");
        }
        let is_stdout = |destination: &&Destination| destination.kind == Kind::JsonOutput;
        if destinations.iter().filter(is_stdout).count() > 1 {
            self.mistake(
                0..0,
                "two destinations are the standard output",
                "join their filters with `or`",
            );
        }
        Config {
            log: document.log.unwrap_or_else(|| DEFAULT_LOG.into()),
            host,
            heartbeat,
            metrics: document.metrics,
            destinations,
        }
    }

    /// Adds the destinations of some tables.
    fn add<T: DestinationTable>(
        &mut self,
        tables: BTreeMap<Spanned<String>, T>,
        kind: fn(&mut Self, T) -> Kind,
        destinations: &mut Vec<Destination>,
    ) {
        for (name, mut table) in tables {
            self.name(&name, destinations);
            let common = table.take_common();
            destinations.push(Destination {
                name: name.into_inner(),
                kind: kind(self, table),
                filter: self.filter(common.filter),
                start: common.start.unwrap_or(Start::End),
                resend: self.mistakes.seconds(
                    common.resend.as_ref(),
                    "resend",
                    0..=MAX_SECS,
                    RESEND_SECS,
                ),
            });
        }
    }

    /// The name must not be that of another file in the state directory.
    fn name(&mut self, name: &Spanned<String>, others: &[Destination]) {
        let text = name.get_ref();
        let is_plain = text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !is_plain || text.is_empty() || text.len() > MAX_NAME {
            self.mistake(
                name.span(),
                format!("`{}` is no name of a destination", text.escape_debug()),
                "use one to 11 lower-case letters, digits and `-`",
            );
        }
        if others.iter().any(|other| other.name == *text) {
            let message = format!("two destinations are called `{text}`");
            self.mistake(name.span(), message, "rename one");
        }
    }

    fn host(&mut self, host: Option<Spanned<String>>) -> String {
        let Some(host) = host else {
            let host = fs::read_to_string(HOST).unwrap_or_default();
            return host.trim_end().replace(|letter| !is_plain(letter), "_");
        };
        self.mistakes.host_name(host.get_ref(), host.span());
        host.into_inner()
    }

    fn filter(&mut self, filter: Option<Spanned<String>>) -> Expression {
        let Some(filter) = filter else {
            return Expression::Everything;
        };
        match parse::parse(filter.get_ref(), self.accounts) {
            Ok(expression) => {
                for name in expression.unknown_accounts() {
                    let message = format!("no user or group of this machine is called `{name}`");
                    self.mistake(filter.span(), message, "write the number");
                }
                expression
            }
            Err(mut mistake) => {
                mistake.span = self.within(&filter, &mistake.span);
                self.mistakes.0.push(mistake);
                Expression::Everything
            }
        }
    }

    /// A range of a string in the file. Where the string has escapes, it is the whole string.
    fn within(&self, string: &Spanned<String>, part: &Range<usize>) -> Range<usize> {
        let all = string.span();
        let written = self.text.get(all.clone()).unwrap_or_default();
        match written.find(string.get_ref().as_str()) {
            Some(at) => all.start + at + part.start..all.start + at + part.end,
            None => all,
        }
    }

    fn address(&mut self, address: &Spanned<String>) -> Address {
        let text = address.get_ref();
        Address::parse(text).unwrap_or_else(|| {
            self.mistake(
                address.span(),
                format!("`{}` is no address of TCP", text.escape_debug()),
                "write `HOST:PORT`, and an IPv6 address in brackets",
            );
            Address::default()
        })
    }

    fn timeout(&mut self, timeout: Option<&Spanned<i64>>) -> Duration {
        self.mistakes
            .seconds(timeout, "timeout", 1..=MAX_TIMEOUT_SECS, TIMEOUT_SECS)
    }

    fn tls(&mut self, tls: Tls, address: &Address) -> TlsSettings {
        let files = [Some(&tls.ca), tls.certificate.as_ref(), tls.key.as_ref()];
        for file in files.into_iter().flatten() {
            self.mistakes.absolute(file.get_ref(), file.span());
        }
        let identity = match (tls.certificate, tls.key) {
            (Some(certificate), Some(key)) => Some((certificate.into_inner(), key.into_inner())),
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => {
                self.mistake(
                    one.span(),
                    "`certificate` and `key` belong together",
                    "name both files",
                );
                None
            }
        };
        let server_name = match tls.server_name {
            None => address.host().to_owned(),
            Some(name) => {
                if ServerName::try_from(name.get_ref().as_str()).is_err() {
                    let message = format!("`{}` is no host name", name.get_ref().escape_debug());
                    self.mistake(name.span(), message, "write a host name or an address");
                }
                name.into_inner()
            }
        };
        TlsSettings {
            ca: tls.ca.into_inner(),
            identity,
            server_name,
        }
    }

    fn syslog(&mut self, syslog: Syslog) -> Kind {
        let address = self.address(&syslog.address);
        let tls = syslog.tls.map(|tls| self.tls(tls, &address));
        Kind::Syslog(address, tls)
    }

    fn auditd(&mut self, auditd: Auditd) -> Kind {
        let Auditd {
            address, timeout, ..
        } = auditd;
        Kind::Auditd(self.address(&address), self.timeout(timeout.as_ref()))
    }

    fn json(&mut self, json: Json) -> Kind {
        let to = json.to;
        let text = to.get_ref().as_str();
        if text == "stdout" {
            return Kind::JsonOutput;
        }
        match text.strip_prefix("unix:").map(PathBuf::from) {
            Some(path) if path.is_absolute() => Kind::JsonUnix(path),
            _ => {
                self.mistake(
                    to.span(),
                    "`to` is neither the standard output nor a socket with an absolute path",
                    "write `stdout` or `unix:/PATH`",
                );
                Kind::JsonUnix(PathBuf::new())
            }
        }
    }
}

#[cfg(test)]
mod tests;
