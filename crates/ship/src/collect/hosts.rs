//! The hosts that have logs: their names, which peers choose only within bounds, and what was written for each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use audit::record::decode;
use bstr::{BStr, ByteSlice as _};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;

use super::completeness::Completeness;
use super::config::LogSettings;
use super::frame::MAX_SYSLOG_BYTES;
use super::host_log::{HostLog, has_directory};
use super::peers::{Peers, Writes};
use super::progress::{HostProgress, LastRecord, NetworkProgress};
use super::repeated::LogEnd;
use super::search_budget::{SEARCH_INTERVAL, SearchBudget, WINDOW_BYTES};
use crate::config_file::is_host_name;
use crate::output::now_ms;

/// Most searches in the log of a host in [`SEARCH_INTERVAL`]: peers can connect as often as they want.
const MAX_SEARCHES: u32 = 10;
/// Most bytes of the name of a host, as of [`is_host_name`].
const MAX_NODE: usize = 255;

/// Why a line is refused. The same line is refused again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("not a syslog message of RFC 5424")]
    NoSyslog,
    #[error("not an audit record: {0}")]
    NoRecord(#[from] decode::DecodeError),
    #[error("a byte that ends a line is in the record")]
    ManyLines,
    #[error("the connection has ended before the end of the line")]
    Unfinished,
    #[error("a record of more than {MAX_SYSLOG_BYTES} bytes")]
    TooLong,
    #[error("the body of a log record is no text")]
    NoText,
    #[error("request refused: {0}")]
    Request(String),
    #[error(
        "the record has no `node=`: set `name_format` in auditd.conf, or list the host in the listener's [hosts]"
    )]
    NoNode,
    #[error(
        "`node={0}` cannot be the name of a host in this network: another one has it, or it is no host name"
    )]
    Node(String),
    #[error(
        "network `{0}` has `max_hosts` hosts: raise it, or remove directories of hosts and restart the listener"
    )]
    TooManyHosts(String),
}

impl Refusal {
    /// Whether the configuration refuses the host, and not the record: it would be taken after a change.
    pub(super) const fn is_of_host(&self) -> bool {
        match self {
            Self::NoNode | Self::Node(_) | Self::TooManyHosts(_) => true,
            Self::NoSyslog
            | Self::NoRecord(_)
            | Self::ManyLines
            | Self::Unfinished
            | Self::TooLong
            | Self::NoText
            | Self::Request(_) => false,
        }
    }
}

/// Why lines are not in the log. They can be written later.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("less than `space_left` is free in the file system of the logs")]
    SpaceLeft,
    #[error("cannot write the log of `{0}`")]
    Log(String, #[source] io::Error),
}

impl WriteError {
    /// Whether room would help.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::SpaceLeft => true,
            Self::Log(_, error) => matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
        }
    }
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked<'a> {
    pub(super) host: &'a str,
    pub(super) last: LastRecord,
}

/// Lines of one host.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) host: String,
    /// Each ends with a newline.
    pub(super) text: Vec<u8>,
    pub(super) records: u64,
    pub(super) last: LastRecord,
    /// Records that came before, and are not in the text.
    pub(super) repeated: u64,
    /// What is known of the host after these lines, if it changed.
    pub(super) completeness: Option<Completeness>,
}

impl Lines {
    /// Adds a line.
    pub(super) fn push(&mut self, line: &[u8], last: LastRecord) {
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        self.records += 1;
        self.last = last;
    }

    /// Removes what was written; the host stays.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        (self.records, self.repeated, self.completeness) = (0, 0, None);
    }
}

/// The hosts.
#[derive(Debug)]
pub(super) struct Hosts {
    path: PathBuf,
    directory: OwnedFd,
    settings: LogSettings,
    pub(super) peers: Peers,
    hosts: BTreeMap<String, Host>,
    networks: Vec<NetworkProgress>,
    searched: SearchBudget,
    has_room: bool,
}

#[derive(Debug, Default)]
struct Host {
    log: Option<HostLog>,
    /// Since when its log was searched how often.
    searches: Option<(Instant, u32)>,
    progress: HostProgress,
}

impl Hosts {
    /// Opens the directory of logs, with the hosts that earlier runs have left there.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub(super) fn open(path: &Path, settings: LogSettings, peers: Peers) -> anyhow::Result<Self> {
        let shown = path.display();
        let failed = || format!("cannot open the directory of logs `{shown}`: create it");
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = open(path, flags, Mode::empty()).with_context(failed)?;
        let mut hosts = Self {
            path: path.to_owned(),
            directory,
            settings,
            hosts: BTreeMap::new(),
            networks: peers.networks().iter().map(NetworkProgress::new).collect(),
            peers,
            searched: SearchBudget::default(),
            has_room: true,
        };
        let listed: Vec<String> = hosts.peers.hosts().map(str::to_owned).collect();
        for name in listed {
            hosts.insert(&name);
        }
        for entry in fs::read_dir(path).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            let Some(name) = name.to_str().filter(|name| is_host_name(name)) else {
                continue;
            };
            if hosts.hosts.contains_key(name) || !has_directory(&hosts.directory, name) {
                continue;
            }
            if let Some(network) = hosts.peers.network_of(name) {
                hosts.insert(name);
                if let Some(network) = hosts.networks.get_mut(network) {
                    network.hosts += 1;
                }
            }
        }
        hosts.update_room();
        Ok(hosts)
    }

    /// Goes on from what an earlier run knew of the hosts.
    pub(super) fn restore(&mut self, known: Vec<HostProgress>) {
        for known in known {
            if let Some(progress) = self.progress(&known.name) {
                progress.heard_ms = known.heard_ms.max(known.received_ms);
                progress.completeness = known.completeness;
            }
        }
    }

    /// The host whose log has a line of a peer; `named` is the host that a message around the line names.
    ///
    /// # Errors
    /// The line is refused.
    pub(super) fn check<'a>(
        &mut self,
        writes: &'a Writes,
        line: &'a [u8],
        named: Option<&'a BStr>,
    ) -> Result<Checked<'a>, Refusal> {
        if line.find_byteset(b"\n\0").is_some() {
            return Err(Refusal::ManyLines);
        }
        if line.len() > MAX_SYSLOG_BYTES {
            return Err(Refusal::TooLong);
        }
        let record = decode::header(line)?;
        let host = self.name_of(writes, named.or(record.node))?;
        let last = LastRecord {
            time_ms: record
                .time
                .sec
                .saturating_mul(1000)
                .saturating_add(record.time.milli.into()),
            serial: record.serial.0,
        };
        Ok(Checked { host, last })
    }

    /// The host whose log a peer writes; `node` is the one that it names.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn name_of<'a>(
        &mut self,
        writes: &'a Writes,
        node: Option<&'a BStr>,
    ) -> Result<&'a str, Refusal> {
        let (network, name) = match writes {
            Writes::Host(name) => (None, name.as_str()),
            Writes::Member(network, name) => (Some(*network), name.as_str()),
            Writes::Node(network) => {
                let node = node.ok_or(Refusal::NoNode)?;
                // Of a longer one, which is none, no more is looked at and shown.
                let node = node.get(..=MAX_NODE).map_or(node, BStr::new);
                let name = node.to_str().ok().filter(|name| {
                    let is_address = name.parse::<IpAddr>().is_ok();
                    is_host_name(name) && !is_address && !self.peers.is_host(name)
                });
                let shown = || node.to_str_lossy().escape_debug().to_string();
                (Some(*network), name.ok_or_else(|| Refusal::Node(shown()))?)
            }
        };
        if !self.hosts.contains_key(name) {
            if let Some(network) = network.and_then(|network| self.networks.get_mut(network)) {
                if network.hosts >= network.max_hosts {
                    return Err(Refusal::TooManyHosts(network.name.clone()));
                }
                network.hosts += 1;
            }
            self.insert(name);
        }
        Ok(name)
    }

    /// What is known of a host.
    pub(super) fn completeness(&self, host: &str) -> Completeness {
        let host = self.hosts.get(host);
        let known = host.and_then(|host| host.progress.completeness.clone());
        known.unwrap_or_default()
    }

    /// The end of a log, in which a peer's first line is searched. It is empty if it cannot be read; it is empty or
    /// short, which is counted, if peers made logs be searched too often.
    pub(super) fn recent(&mut self, host: &str) -> LogEnd {
        let Some(host) = self.hosts.get_mut(host) else {
            return LogEnd::default();
        };
        let now = Instant::now();
        let (since, count) = host.searches.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) > SEARCH_INTERVAL {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count > MAX_SEARCHES {
            host.progress.limited_searches += 1;
            return LogEnd::default();
        }
        let log = open_log(host, &self.directory, self.settings);
        let parts = log.and_then(|log| log.recent()).unwrap_or_default();
        let window = self.searched.window(&parts, now);
        let is_longer = parts.iter().any(|part| part.end > window);
        if window < WINDOW_BYTES && is_longer {
            host.progress.limited_searches += 1;
        }
        LogEnd { parts, window }
    }

    /// Writes lines that were checked.
    ///
    /// # Errors
    /// Nothing is written.
    pub(super) fn write(&mut self, lines: &Lines) -> Result<(), WriteError> {
        // No line is checked without a host.
        let Some(host) = self.hosts.get_mut(&lines.host) else {
            return Ok(());
        };
        let result = match self.has_room {
            _ if lines.text.is_empty() => Ok(()),
            false => Err(WriteError::SpaceLeft),
            true => open_log(host, &self.directory, self.settings)
                .and_then(|log| log.write(&lines.text))
                .map_err(|error| WriteError::Log(lines.host.clone(), error)),
        };
        let progress = &mut host.progress;
        match &result {
            Ok(()) => {
                progress.heard_ms = now_ms();
                progress.repeated += lines.repeated;
                if let Some(known) = &lines.completeness {
                    progress.completeness = Some(known.clone());
                }
                if lines.records > 0 {
                    progress.records += lines.records;
                    progress.bytes += u64::try_from(lines.text.len()).unwrap_or(0);
                    progress.received_ms = progress.heard_ms;
                    progress.last = Some(lines.last);
                    progress.error = None;
                }
            }
            Err(error) => progress.error = Some(describe(error)),
        }
        result
    }

    /// Notes a heartbeat that names no host: `host` is the one that the peer wrote last, if it did.
    pub(super) fn heard(&mut self, writes: Option<&Writes>, host: Option<&str>) {
        let own = match writes {
            Some(Writes::Host(name) | Writes::Member(_, name)) => Some(name.as_str()),
            Some(Writes::Node(_)) | None => host,
        };
        if let Some(progress) = own.and_then(|name| self.progress(name)) {
            progress.heard_ms = now_ms();
        }
    }

    /// The progress of a host that is known, for changes.
    pub(super) fn progress(&mut self, name: &str) -> Option<&mut HostProgress> {
        self.hosts.get_mut(name).map(|host| &mut host.progress)
    }

    /// Looks whether more than `space_left` is free. What is not known is no reason to take nothing.
    pub(super) fn update_room(&mut self) {
        let Ok(about) = fstatvfs(&self.directory) else {
            return;
        };
        let free = about
            .blocks_available()
            .saturating_mul(about.fragment_size());
        self.has_room = free > self.settings.reserve_bytes;
    }

    /// Files that are to be synced, with the names of their hosts.
    pub(super) fn take_unsynced(&mut self) -> Vec<(String, File)> {
        let mut files = Vec::new();
        for (name, host) in &mut self.hosts {
            let Some(log) = &mut host.log else { continue };
            if log.is_removed() {
                host.log = None;
                continue;
            }
            match log.take_unsynced() {
                Ok(found) => files.extend(found.into_iter().map(|file| (name.clone(), file))),
                Err(error) => host.progress.error = Some(format!("cannot sync the log: {error}")),
            }
        }
        files
    }

    /// What was written, for `status`.
    pub(super) fn all_progress(&self) -> Vec<HostProgress> {
        self.hosts
            .values()
            .map(|host| host.progress.clone())
            .collect()
    }

    /// What the networks have, for `status`.
    pub(super) fn networks(&self) -> &[NetworkProgress] {
        &self.networks
    }

    /// Counts a refused line of a network whose host is refused or not known.
    pub(super) fn refused_in(&mut self, network: usize, refusal: &Refusal) {
        if let Some(network) = self.networks.get_mut(network) {
            network.refused += 1;
            network.refusal = Some(refusal.to_string());
        }
    }

    /// The directory of logs.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn insert(&mut self, name: &str) {
        let host = self.hosts.entry(name.to_owned()).or_default();
        name.clone_into(&mut host.progress.name);
    }
}

/// The log of a host; it is opened if it is not.
fn open_log<'a>(
    host: &'a mut Host,
    directory: &OwnedFd,
    settings: LogSettings,
) -> io::Result<&'a mut HostLog> {
    let log = match host.log.take() {
        Some(log) => log,
        None => HostLog::open(directory, &host.progress.name, settings)?,
    };
    Ok(host.log.insert(log))
}

/// An error with its cause, on one line.
pub(super) fn describe(error: &WriteError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
