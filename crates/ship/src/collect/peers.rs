//! Who may connect, and whose log a peer writes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::prefix::{Prefix, canonical};
use crate::config_file::is_host_name;

/// How the hosts of a network are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Naming {
    /// By the address of the peer.
    Address,
    /// By `node=` of each line: peers of the network can write the logs of each other.
    Node,
    /// By the certificate of the peer.
    Certificate,
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
    /// Hosts by names of their certificates, in lower case.
    certificates: BTreeMap<String, String>,
    networks: Vec<Network>,
}

/// Which logs a peer may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// That of a host.
    Host(String),
    /// That of a host of a network, which its address or certificate names.
    Member(usize, String),
    /// Those that `node=` of its lines name, in a network.
    Node(usize),
}

/// A certificate that names no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameError {
    #[error("its certificate has no name of DNS: `subjectAltName` must have one")]
    None,
    #[error(
        "its certificate is of `{0}`: list the name in [hosts], or use a network with `host = \"certificate\"` for its address"
    )]
    Unknown(String),
    #[error(
        "its certificate is of `{0}`, which cannot be the name of a host in a network: a listed host has it, or it is no host name"
    )]
    Host(String),
}

impl Peers {
    pub(super) fn add_host(&mut self, prefix: Prefix, name: &str) {
        self.hosts.entry(name.to_owned()).or_default().push(prefix);
    }

    /// Adds a name of the certificates of a host; it is in lower case.
    pub(super) fn add_certificate(&mut self, certificate: &str, name: &str) {
        self.hosts.entry(name.to_owned()).or_default();
        self.certificates
            .insert(certificate.to_owned(), name.to_owned());
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

    /// What a peer without a certificate may write: as the longest prefix says. `None` if it may not connect.
    pub(super) fn find(&self, address: IpAddr) -> Option<Writes> {
        let address = canonical(address);
        let is_listed = |(_, prefixes): &(&String, &Vec<Prefix>)| {
            prefixes.iter().any(|prefix| prefix.contains(address))
        };
        if let Some((name, _)) = self.hosts.iter().find(is_listed) {
            return Some(Writes::Host(name.clone()));
        }
        let (index, network) = self.find_network(address)?;
        match network.naming {
            Naming::Address => Some(Writes::Member(index, address.to_string())),
            Naming::Node => Some(Writes::Node(index)),
            Naming::Certificate => None,
        }
    }

    /// What a peer may write whose certificate has these names, in lower case: the log of the host of the first one that
    /// is listed, else that of the first one, if the network of its address wants it.
    ///
    /// # Errors
    /// None is the name of a host.
    pub(super) fn find_certificate(
        &self,
        address: IpAddr,
        names: &[String],
    ) -> Result<Writes, NameError> {
        let first = names.first().ok_or(NameError::None)?;
        if let Some(host) = names.iter().find_map(|name| self.certificates.get(name)) {
            return Ok(Writes::Host(host.clone()));
        }
        let network = self.find_network(canonical(address));
        let network = network.filter(|(_, network)| network.naming == Naming::Certificate);
        let Some((index, _)) = network else {
            return Err(NameError::Unknown(names.join("`, `")));
        };
        match is_host_name(first) && !self.is_host(first) {
            true => Ok(Writes::Member(index, first.clone())),
            false => Err(NameError::Host(first.clone())),
        }
    }

    /// The network of an address, with its index.
    fn find_network(&self, address: IpAddr) -> Option<(usize, &Network)> {
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
        Some((index, network))
    }

    /// The network that a name belongs to, as the name of a directory that a run has left; `None` if no network now has
    /// it.
    pub(super) fn network_of(&self, name: &str) -> Option<usize> {
        match name.parse() {
            Ok(address) => match self.find(address)? {
                Writes::Member(index, _) => Some(index),
                Writes::Host(_) | Writes::Node(_) => None,
            },
            Err(_) => {
                let mut networks = self.networks.iter();
                networks.position(|network| network.naming != Naming::Address)
            }
        }
    }
}
