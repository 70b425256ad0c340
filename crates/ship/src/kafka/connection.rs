//! A connection to a broker: requests and their answers, one after another.
//!
//! Answers are not trusted: their size and the time until their end are bounded.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};

use super::KafkaSettings;
use super::messages::{API_VERSIONS, Api, ApiVersions, METADATA, PRODUCE, request};
use super::wire::{Malformed, Reader};
use super::{sasl, verdict};
use crate::transport::{DeadlineStream, TlsSettings};

/// Most bytes of an answer: some for each broker and partition.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Longest time in which a broker may ask for no request.
const MAX_QUIET: Duration = Duration::from_secs(60);

/// A connection.
pub(super) struct Connection {
    stream: DeadlineStream,
    /// `HOST:PORT` of the broker.
    address: String,
    /// Longest time from a request to the end of its answer.
    timeout: Duration,
    /// Number of the last request.
    number: i32,
    /// Until when the broker reads nothing, as it says.
    quiet_until: Instant,
}

impl Connection {
    /// Connects to a broker, and authenticates.
    ///
    /// # Errors
    /// It cannot be reached, does not know the requests of this program, or does not want it.
    pub(super) fn open(address: &str, settings: &KafkaSettings) -> anyhow::Result<Self> {
        let tls = settings.tls.as_ref().map(|tls| TlsSettings {
            server_name: host(address).to_owned(),
            ..tls.clone()
        });
        let mut connection = Self {
            stream: DeadlineStream::connect(address, tls.as_ref(), settings.timeout)?,
            address: address.to_owned(),
            timeout: settings.timeout,
            number: 0,
            quiet_until: Instant::now(),
        };
        connection.check_versions(settings.sasl.is_some())?;
        if let Some(sasl) = &settings.sasl {
            sasl::authenticate(&mut connection, sasl)?;
        }
        Ok(connection)
    }

    /// `HOST:PORT` of the broker.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The broker reads nothing for a time: what is sent meanwhile has longer.
    pub(super) fn is_quiet_for(&mut self, time: Duration) {
        self.quiet_until = Instant::now() + time.min(MAX_QUIET);
    }

    /// Whether the broker has closed the connection.
    pub(super) fn is_stale(&mut self) -> bool {
        self.stream.is_stale()
    }

    fn check_versions(&mut self, has_sasl: bool) -> anyhow::Result<()> {
        let answer = self.exchange(API_VERSIONS, &[])?;
        let versions = self.parsed(ApiVersions::read(&answer))?;
        verdict::check(versions.error, &format!("`{}`", self.address))?;
        let sasl = sasl::REQUESTS.iter().filter(|_| has_sasl);
        for api in [METADATA, PRODUCE].iter().chain(sasl) {
            ensure!(
                versions.has(*api),
                "`{}` does not know version {} of {}: it is older than Kafka 2.1, or refuses that request; use a broker that takes it",
                self.address,
                api.version,
                api.name
            );
        }
        Ok(())
    }

    /// What was read of an answer, or that it is none.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parsed<T>(&self, read: Result<T, Malformed>) -> anyhow::Result<T> {
        read.with_context(|| format!("`{}`", self.address))
    }

    /// Sends a request, and returns the body of its answer.
    ///
    /// # Errors
    /// The broker is gone, takes too long, or its answer is none.
    pub(super) fn exchange(&mut self, api: Api, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.number = self.number.wrapping_add(1);
        let request = request(api, self.number, body)?;
        let begun = Instant::now().max(self.quiet_until);
        self.stream.set_deadline(begun + self.timeout);
        let answer = self.stream.write_all(&request).and_then(|()| {
            self.stream.flush()?;
            read_answer(&mut self.stream)
        });
        let answer = answer.map_err(|error| self.failed(api, error))?;
        let mut reader = Reader(&answer);
        let number = self.parsed(reader.i32())?;
        ensure!(
            number == self.number,
            "`{}` answers request {number} and not {}, the only one: it is no broker of Kafka",
            self.address,
            self.number
        );
        Ok(reader.0.to_vec())
    }

    /// What has failed in a request.
    fn failed(&self, api: Api, error: io::Error) -> anyhow::Error {
        let (address, name) = (&self.address, api.name);
        match error.kind() {
            io::ErrorKind::TimedOut => anyhow!(
                "`{address}` has not answered {name} for {} seconds: it hangs, or is too slow",
                self.timeout.as_secs()
            ),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => anyhow!(
                "`{address}` has closed the connection without an answer to {name}: it ends, or its listener wants a table `tls`, `sasl` or a certificate of this machine"
            ),
            _ => anyhow!(error).context(format!("`{address}`, asked for {name}")),
        }
    }
}

/// The host of an address, without the brackets of an IPv6 address.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Reads an answer, without the length in front.
fn read_answer(stream: &mut DeadlineStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_ANSWER_BYTES {
        return Err(io::Error::other(
            "it answers, but not as a broker of Kafka: look at the port, and whether its listener wants a table `tls`",
        ));
    }
    let mut answer = Vec::new();
    let limit = u64::try_from(length).unwrap_or(u64::MAX);
    let read = stream.take(limit).read_to_end(&mut answer)?;
    match read == length {
        true => Ok(answer),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
