//! Finds the broker that takes the records of this host: the leader of one partition of the topic.

use std::fmt;

use anyhow::{Context as _, anyhow, bail, ensure};

use super::connection::Connection;
use super::messages::{METADATA, Metadata};
use super::{KafkaSettings, partition, verdict};

/// A connection to the leader of a partition.
pub(super) struct Leader {
    pub(super) connection: Connection,
    pub(super) partition: i32,
}

/// The brokers of the configuration.
pub(super) struct Cluster {
    pub(super) settings: KafkaSettings,
    /// The one that is asked first: it has answered last.
    first: usize,
}

impl Cluster {
    pub(super) const fn new(settings: KafkaSettings) -> Self {
        Self { settings, first: 0 }
    }

    /// Connects to the leader of the partition of a key, as the first broker that answers names it.
    ///
    /// # Errors
    /// No broker answers, the topic is not there or not permitted, or its leader cannot be reached.
    pub(super) fn leader(&mut self, key: &[u8]) -> anyhow::Result<Leader> {
        let (connection, metadata) = self.ask()?;
        let topic = &self.settings.topic;
        let from = connection.address();
        verdict::check(metadata.error, &format!("`{from}`, for topic `{topic}`,"))?;
        let count = metadata.partitions.len();
        let number = partition::of_key(key, count)
            .with_context(|| format!("topic `{topic}` has no partition: look at the cluster"))?;
        let partition = metadata
            .partitions
            .iter()
            .find(|partition| partition.partition == number)
            .with_context(|| {
                format!("`{from}` does not know partition {number} of topic `{topic}`: it is asked again")
            })?;
        let who = format!("`{from}`, for partition {number} of topic `{topic}`,");
        // An error that is about replicas does not keep the leader from taking records.
        if partition.leader < 0 {
            verdict::check(partition.error, &who)?;
            bail!("{who} names no leader: it is asked again");
        }
        let mut brokers = metadata.brokers.iter();
        let (_, host, port) = brokers
            .find(|(broker, ..)| *broker == partition.leader)
            .with_context(|| {
                format!("{who} names a leader that is no broker: it is asked again")
            })?;
        let address = Announced { host, port: *port }.to_string();
        let connection = match address == from {
            true => connection,
            false => self.connect_announced(&address, *port)?,
        };
        Ok(Leader {
            connection,
            partition: number,
        })
    }

    /// Connects to a broker at the address that the cluster has announced. Only ports of the configuration are permitted,
    /// which is all that Landlock lets this program connect to.
    fn connect_announced(&self, address: &str, port: i32) -> anyhow::Result<Connection> {
        let port = format!(":{port}");
        let mut known = self.settings.brokers.iter();
        ensure!(
            known.any(|known| known.ends_with(&port)),
            "the cluster announces a broker at `{address}`, and no address in `brokers` has that port: add it, or another listener to `advertised.listeners`"
        );
        Connection::open(address, &self.settings)
            .with_context(|| format!("the cluster announces a broker at `{address}`"))
    }

    /// Asks the first broker that answers about the topic.
    fn ask(&mut self) -> anyhow::Result<(Connection, Metadata)> {
        let count = self.settings.brokers.len();
        let mut failures = Vec::new();
        for number in (self.first..count).chain(0..self.first) {
            let Some(address) = self.settings.brokers.get(number) else {
                continue;
            };
            match self.ask_at(address) {
                Ok(found) => {
                    self.first = number;
                    return Ok(found);
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    // What is wrong on this machine is told once.
                    if !failures.contains(&text) {
                        failures.push(text);
                    }
                }
            }
        }
        Err(anyhow!("{}", failures.join("; ")))
    }

    fn ask_at(&self, address: &str) -> anyhow::Result<(Connection, Metadata)> {
        let topic = &self.settings.topic;
        let mut connection = Connection::open(address, &self.settings)?;
        let answer = connection.exchange(METADATA, &Metadata::request(topic))?;
        let metadata = connection.parsed(Metadata::read(&answer, topic))?;
        Ok((connection, metadata))
    }
}

/// The address of a broker, as the cluster has it.
struct Announced<'a> {
    host: &'a str,
    port: i32,
}

/// As `brokers` has it.
impl fmt::Display for Announced<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(to, "[{}]:{}", self.host, self.port),
            false => write!(to, "{}:{}", self.host, self.port),
        }
    }
}
