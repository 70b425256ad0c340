//! TLS over TCP, with a certificate of this machine if the peer asks for one.
//!
//! # Source
//! RFC 5425, section 4.2: both sides prove who they are by certificates.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::tcp::{CONNECT, connect, not_acknowledged};
use super::{END, MOST_READS, Transport, not_connected, stalled, wait_for_end};

/// Whom to trust, and who this machine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// File with the certificates of authorities.
    pub(crate) ca: PathBuf,
    /// Files with the certificates of this machine, its own first, and with its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// Name or address that the certificate of the peer must have.
    pub(crate) server_name: String,
}

/// A TLS connection.
pub(crate) struct Tls {
    /// `HOST:PORT`.
    address: String,
    settings: TlsSettings,
    open: Option<Open>,
}

struct Open {
    tls: ClientConnection,
    tcp: TcpStream,
    /// The peer can have a certificate of this machine.
    is_known: bool,
}

impl TlsSettings {
    /// Reads the files: certificates are renewed while the program runs.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub(super) fn read(&self) -> anyhow::Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities(&self.ca)?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let (certificates, own_key) = identity(certificate, key)?;
        builder
            .with_client_auth_cert(certificates, own_key)
            .with_context(|| unusable(certificate, key))
    }
}

/// The cryptography of all connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authorities of a file.
///
/// # Errors
/// It cannot be read, or has no certificates.
pub(crate) fn authorities(ca: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .with_context(|| format!("`{}` is no certificate", ca.display()))?;
    }
    Ok(roots)
}

/// The certificates of this machine, its own first, and its key.
///
/// # Errors
/// A file cannot be read, or is not what it should be.
pub(crate) fn identity(
    certificate: &Path,
    key: &Path,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let own_key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read key `{}`", key.display()))?;
    Ok((certificates(certificate)?, own_key))
}

/// What it means that a certificate and its key are not taken.
pub(crate) fn unusable(certificate: &Path, key: &Path) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    format!(
        "cannot use certificate `{certificate}` with key `{key}`: `openssl pkey` rewrites a key that another program wrote in an unusual form"
    )
}

/// The certificates of a file.
///
/// # Errors
/// It cannot be read, or has none.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read certificates `{shown}`"))?;
    if found.is_empty() {
        bail!("file `{shown}` has no certificate: it must be in PEM");
    }
    Ok(found)
}

/// Makes TLS on a stream to an address.
///
/// # Errors
/// The peer has no certificate of the authorities and of its name, or is too slow.
pub(super) fn handshake(
    address: &str,
    config: ClientConfig,
    settings: &TlsSettings,
    stream: &mut (impl io::Read + io::Write),
) -> anyhow::Result<ClientConnection> {
    let name = ServerName::try_from(settings.server_name.clone())?;
    let mut tls = ClientConnection::new(Arc::new(config), name)?;
    let begun = Instant::now();
    while tls.is_handshaking() {
        if begun.elapsed() > CONNECT {
            bail!("no TLS with `{address}`: the peer is too slow");
        }
        tls.complete_io(stream)
            .with_context(|| format!("no TLS with `{address}`"))?;
    }
    Ok(tls)
}

impl Tls {
    pub(crate) const fn new(address: String, settings: TlsSettings) -> Self {
        Self {
            address,
            settings,
            open: None,
        }
    }
}

impl Open {
    /// Sends what is encrypted.
    fn send(&mut self) -> anyhow::Result<()> {
        while self.tls.wants_write() {
            let sent = self.tls.write_tls(&mut self.tcp);
            sent.map_err(|error| self.failure(stalled(error)))?;
        }
        Ok(())
    }

    /// The error of a read or write. A peer that wants a certificate may say so only by the end of the connection.
    fn failure(&self, error: io::Error) -> anyhow::Error {
        let is_closed = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        let error = anyhow::Error::from(error);
        match (is_closed, self.is_known) {
            (false, _) => error,
            (true, true) => error.context("the peer has closed the connection"),
            (true, false) => error.context(
                "the peer has closed the connection: it may ask for a certificate of this machine",
            ),
        }
    }

    /// Reads what the peer has sent, without waiting: it may refuse the certificate after the handshake.
    fn check(&mut self) -> anyhow::Result<()> {
        self.tcp.set_nonblocking(true)?;
        let read = self.read();
        self.tcp.set_nonblocking(false)?;
        read?;
        self.send()
    }

    fn read(&mut self) -> anyhow::Result<()> {
        for _ in 0..MOST_READS {
            match self.tls.read_tls(&mut self.tcp) {
                Ok(0) => return Err(self.failure(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) if self.drop_text()? => {
                    return Err(self.failure(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(())
    }

    /// Drops what the peer has sent; returns whether it sends no more.
    ///
    /// # Errors
    /// It has refused the connection.
    fn drop_text(&mut self) -> anyhow::Result<bool> {
        let state = self.tls.process_new_packets()?;
        let mut left = state.plaintext_bytes_to_read();
        let mut dropped = [0; 4096];
        while left > 0 {
            left -= self.tls.reader().read(&mut dropped)?;
        }
        Ok(state.peer_has_closed())
    }
}

impl Transport for Tls {
    fn connect(&mut self) -> anyhow::Result<()> {
        let config = self.settings.read()?;
        let mut tcp = connect(&self.address)?;
        tcp.set_read_timeout(Some(CONNECT))?;
        let tls = handshake(&self.address, config, &self.settings, &mut tcp)?;
        self.open = Some(Open {
            tls,
            tcp,
            is_known: self.settings.identity.is_some(),
        });
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let open = self.open.as_mut().ok_or_else(not_connected)?;
        open.check()?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = open.tls.writer().write(rest)?;
            rest = rest.get(count..).unwrap_or_default();
            open.send()?;
        }
        Ok(())
    }

    /// More are sent than `sent`, because they are encrypted: what is not acknowledged is no less.
    fn not_taken(&mut self, _sent: u64) -> anyhow::Result<u64> {
        let open = self.open.as_mut().ok_or_else(not_connected)?;
        open.check()?;
        let waiting = not_acknowledged(&open.tcp);
        // A connection that has ended meanwhile tells why when it is read.
        waiting.or_else(|ended| open.check().and(Err(ended)))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        let mut open = self.open.take().ok_or_else(not_connected)?;
        open.check()?;
        open.tls.send_close_notify();
        open.send()?;
        open.tcp.shutdown(Shutdown::Write)?;
        open.tcp.set_read_timeout(Some(END))?;
        // A peer may refuse the certificate as late as now.
        wait_for_end(|| {
            let count = open.tls.read_tls(&mut open.tcp).map_err(stalled)?;
            Ok(if open.drop_text()? { 0 } else { count })
        })
    }

    fn disconnect(&mut self) {
        self.open = None;
    }
}
