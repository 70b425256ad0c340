//! Who may connect, and whose log a peer writes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::prefix::{Prefix, canonical};

/// How the hosts of a network are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Naming {
    /// By the address of the peer.
    Address,
    /// By `node=` of each line: peers of the network can write the logs of each other.
    Node,
}

/// Peers whose hosts are not listed.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) prefixes: Vec<Prefix>,
    pub(super) naming: Naming,
    /// Most hosts that may have a log.
    pub(super) max_hosts: usize,
}

/// The peers that may connect.
#[derive(Debug, Default)]
pub(super) struct Peers {
    hosts: BTreeMap<String, Vec<Prefix>>,
    networks: Vec<Network>,
}

/// Which logs a peer may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// That of a host.
    Host(String),
    /// That of its address, which a network has.
    Address(usize, String),
    /// Those that `node=` of its lines name, in a network.
    Node(usize),
}

impl Peers {
    pub(super) fn add_host(&mut self, prefix: Prefix, name: &str) {
        self.hosts.entry(name.to_owned()).or_default().push(prefix);
    }

    pub(super) fn add_network(&mut self, network: Network) {
        self.networks.push(network);
    }

    /// Names of the hosts that are listed.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.keys().map(String::as_str)
    }

    pub(super) fn is_host(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// The networks; [`Writes`] has indexes.
    pub(super) fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// What a peer may write: as the longest prefix says. `None` if it may not connect.
    pub(super) fn find(&self, address: IpAddr) -> Option<Writes> {
        let address = canonical(address);
        let is_listed = |(_, prefixes): &(&String, &Vec<Prefix>)| {
            prefixes.iter().any(|prefix| prefix.contains(address))
        };
        if let Some((name, _)) = self.hosts.iter().find(is_listed) {
            return Some(Writes::Host(name.clone()));
        }
        let longest = |network: &Network| {
            let containing = network
                .prefixes
                .iter()
                .filter(|prefix| prefix.contains(address));
            containing.map(|prefix| prefix.bits()).max()
        };
        let networks = self.networks.iter().enumerate();
        let matching =
            networks.filter_map(|(index, network)| Some((longest(network)?, index, network)));
        let (_, index, network) = matching.max_by_key(|(bits, ..)| *bits)?;
        Some(match network.naming {
            Naming::Address => Writes::Address(index, address.to_string()),
            Naming::Node => Writes::Node(index),
        })
    }

    /// The network that a name belongs to, as the name of a directory that a run has left; `None` if no network now has
    /// it.
    pub(super) fn network_of(&self, name: &str) -> Option<usize> {
        match name.parse() {
            Ok(address) => match self.find(address)? {
                Writes::Address(index, _) => Some(index),
                Writes::Host(_) | Writes::Node(_) => None,
            },
            Err(_) => {
                let mut networks = self.networks.iter();
                networks.position(|network| network.naming == Naming::Node)
            }
        }
    }
}
