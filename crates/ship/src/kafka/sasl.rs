//! Says who this machine is by a user and a password: SASL PLAIN and SCRAM.
//!
//! # Source
//! RFC 4616 (PLAIN); RFC 5802 and RFC 7677 (SCRAM); Apache Kafka 4.3, "SASL Authentication Sequence".

mod scram;

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::connection::Connection;
use super::messages::{Api, SASL_AUTHENTICATE, SASL_HANDSHAKE};
use super::verdict;
use super::wire::{Malformed, Put as _, Reader};
use crate::secret_file;
use scram::Scram;

/// The requests that it needs.
pub(super) const REQUESTS: [Api; 2] = [SASL_HANDSHAKE, SASL_AUTHENTICATE];

/// Who this machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaslSettings {
    pub(crate) mechanism: Mechanism,
    pub(crate) user: String,
    /// File with the password; it is read for each connection.
    pub(crate) password_file: PathBuf,
}

/// How the broker learns that this machine has the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Mechanism {
    /// It is told; only over TLS.
    #[serde(rename = "PLAIN")]
    Plain,
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Mechanism {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Authenticates a new connection.
///
/// # Errors
/// The password cannot be read; the broker does not take it, or does not know it itself.
pub(super) fn authenticate(
    connection: &mut Connection,
    settings: &SaslSettings,
) -> anyhow::Result<()> {
    let password = secret_file::read(&settings.password_file, "password of table `sasl`")?;
    handshake(connection, settings.mechanism)?;
    let user = &settings.user;
    let algorithm = match settings.mechanism {
        Mechanism::Plain => {
            step(connection, &format!("\0{user}\0{password}"))?;
            return Ok(());
        }
        Mechanism::ScramSha256 => &scram::SHA_256,
        Mechanism::ScramSha512 => &scram::SHA_512,
    };
    let scram = Scram::new(algorithm, user, scram::nonce()?);
    let challenge = step(connection, &scram.first())?;
    let who = format!("`{}`, for user `{user}`", connection.address());
    let proof = scram.prove(&password, &challenge);
    let proof = proof.with_context(|| who.clone())?;
    let last = step(connection, &proof.message)?;
    proof.check(&last).context(who)
}

/// Chooses the mechanism.
fn handshake(connection: &mut Connection, mechanism: Mechanism) -> anyhow::Result<()> {
    let mut body = Vec::new();
    body.put_text(mechanism.name());
    let answer = connection.exchange(SASL_HANDSHAKE, &body)?;
    let mut reader = Reader(&answer);
    let error = connection.parsed(reader.i16())?;
    let offered = connection.parsed(reader.list(Reader::text))?;
    let address = connection.address();
    ensure!(
        error == 0 || offered.is_empty(),
        "`{address}` does not take `{}`, but {}: change `mechanism`",
        mechanism.name(),
        offered.join(", ")
    );
    verdict::check(error, &format!("`{address}`"))
}

/// Sends a message, and returns the one that the broker answers.
fn step(connection: &mut Connection, message: &str) -> anyhow::Result<String> {
    let mut body = Vec::new();
    body.put_bytes(message.as_bytes());
    let answer = connection.exchange(SASL_AUTHENTICATE, &body)?;
    let (error, text) = connection.parsed(read_step(&answer))?;
    verdict::check(error, &format!("`{}`", connection.address()))?;
    Ok(text)
}

/// Error and message; the broker's own text about an error tells no more than its number.
fn read_step(answer: &[u8]) -> Result<(i16, String), Malformed> {
    let mut reader = Reader(answer);
    let error = reader.i16()?;
    let _about = reader.text()?;
    let message = String::from_utf8_lossy(reader.bytes()?).into_owned();
    Ok((error, message))
}
