//! What a run does, for `tollgate collect status`: the file `status` in the state directory.

use serde::{Deserialize, Serialize};

use super::completeness::Completeness;
use super::hosts::Refusal;
use super::peers::Network;

/// Name of the file.
pub(super) const STATUS: &str = "status";
/// Most bytes of it: some hundred for each host, and texts of peers.
pub(super) const MAX_STATUS_BYTES: u64 = 64 << 20;
/// Version of the file: another one cannot be read.
const VERSION: u32 = 1;

/// What a run does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Progress {
    version: u32,
    /// Whether the run has ended in order: then this is all that it knew.
    #[serde(default)]
    pub(super) is_ended: bool,
    /// In milliseconds since the epoch.
    pub(super) started_ms: u64,
    /// Addresses at which it listens.
    pub(super) listen: Vec<String>,
    /// Where the logs are.
    pub(super) directory: String,
    pub(super) connections: usize,
    pub(super) refused: RefusedConnections,
    /// Why a log is not on the disk, although its records were acknowledged.
    pub(super) sync_error: Option<String>,
    /// Why changed certificates of the listener are not used.
    pub(super) tls_error: Option<String>,
    /// Address of the last peer without TLS or with the certificate of no host, and why.
    pub(super) tls_refusal: Option<String>,
    pub(super) networks: Vec<NetworkProgress>,
    pub(super) hosts: Vec<HostProgress>,
}

/// Connections that were refused, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct RefusedConnections {
    /// The peer is not in the configuration.
    pub(super) unknown: u64,
    /// The port is not below 1024.
    pub(super) port: u64,
    /// There are too many connections.
    pub(super) limit: u64,
    /// What came is not of the protocol.
    pub(super) protocol: u64,
    /// There is no TLS with the peer, or its certificate names no host.
    #[serde(default)]
    pub(super) tls: u64,
}

/// A network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NetworkProgress {
    pub(super) name: String,
    /// Number of hosts that have logs, and its bound.
    pub(super) hosts: usize,
    pub(super) max_hosts: usize,
    /// Lines that were refused with their hosts, or before their peers have written a log.
    pub(super) refused: u64,
    /// Why, the last time.
    pub(super) refusal: Option<String>,
}

impl NetworkProgress {
    /// A network without hosts.
    pub(super) fn new(network: &Network) -> Self {
        Self {
            name: network.name.clone(),
            hosts: 0,
            max_hosts: network.max_hosts,
            refused: 0,
            refusal: None,
        }
    }
}

/// A host. Numbers are counted since the run began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct HostProgress {
    pub(super) name: String,
    /// Address of the last peer that was connected.
    pub(super) address: Option<String>,
    pub(super) connections: usize,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Records that came again at the beginning of a connection, and are in the log once.
    pub(super) repeated: u64,
    /// Searches for such records that were left out or short, so that some may be in the log twice.
    #[serde(default)]
    pub(super) limited_searches: u64,
    /// Lines that were refused.
    pub(super) refused: u64,
    /// Why, the last time.
    pub(super) refusal: Option<String>,
    /// When the last record came, in milliseconds since the epoch; 0 if none did.
    pub(super) received_ms: u64,
    /// When a record, gap or heartbeat came last, in milliseconds since the epoch, in this run or before; 0 if none did.
    #[serde(default)]
    pub(super) heard_ms: u64,
    pub(super) last: Option<LastRecord>,
    /// Whether what `tollgate-ship` sends is complete.
    pub(super) completeness: Option<Completeness>,
    /// Why its last record is not in the log.
    pub(super) error: Option<String>,
}

impl HostProgress {
    /// Counts a refused line.
    pub(super) fn count_refused(&mut self, refusal: &Refusal) {
        self.refused += 1;
        self.refusal = Some(refusal.to_string());
    }
}

/// The last record of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastRecord {
    /// In milliseconds since the epoch.
    pub(super) time_ms: u64,
    pub(super) serial: u32,
}

impl Progress {
    /// A run that begins.
    pub(super) fn new(started_ms: u64, listen: Vec<String>, directory: String) -> Self {
        Self {
            version: VERSION,
            is_ended: false,
            started_ms,
            listen,
            directory,
            connections: 0,
            refused: RefusedConnections::default(),
            sync_error: None,
            tls_error: None,
            tls_refusal: None,
            networks: Vec::new(),
            hosts: Vec::new(),
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let progress: Self = serde_json::from_str(text)?;
        anyhow::ensure!(
            progress.version == VERSION,
            "it has version {}, and this program reads {VERSION}: use the version of the run",
            progress.version
        );
        Ok(progress)
    }

    /// Text of the file.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// What the run knew of the hosts. A run that was killed has taken more since it wrote this.
    pub(super) fn into_known_hosts(mut self) -> Vec<HostProgress> {
        if !self.is_ended {
            let hosts = self.hosts.iter_mut();
            hosts
                .filter_map(|host| host.completeness.as_mut())
                .for_each(Completeness::forget_serials);
        }
        self.hosts
    }
}

#[cfg(test)]
mod tests {
    use super::super::shipped::RecordNumber;
    use super::*;

    /// A run that was killed has acknowledged more than its status has.
    #[test]
    fn gaps_are_counted_from_the_status_of_a_run_that_has_ended() {
        let record = |known: &mut Completeness, serial: u32, n: u32| {
            let serial = 0x8000_0000 + serial;
            known.record("b", RecordNumber { serial, n, of: 2 });
        };
        let mut known = Completeness::default();
        record(&mut known, 1, 1);
        let mut progress = Progress::new(0, Vec::new(), String::new());
        progress.hosts.push(HostProgress {
            completeness: Some(known),
            ..HostProgress::default()
        });
        let killed = progress.text();
        let older = killed.replace("\"is_ended\":false,", "");
        assert_ne!(older, killed);
        progress.is_ended = true;
        for (text, missing) in [(killed, 1), (older, 1), (progress.text(), 6)] {
            let mut hosts = Progress::parse(&text).unwrap().into_known_hosts();
            let known = hosts[0].completeness.as_mut().unwrap();
            for (serial, n) in [(6, 1), (6, 2), (8, 1)] {
                record(known, serial, n);
            }
            known.heartbeat(b"{\"events\":9,\"sent\":9}", 0);
            assert_eq!(known.gaps.missing, missing, "{text}");
        }
    }
}
