//! TLS of the listener: its certificate, and the authorities of those of peers.
//!
//! Files are read again for a new connection if they have changed, so that renewed certificates need no restart. Sessions are
//! not resumed: each connection proves anew who its peer is.
//!
//! # Source
//! RFC 5425, sections 4.2 and 5.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{AlertDescription, CertificateError, Error, ServerConfig};
use webpki::EndEntityCert;

use crate::output::info;
use crate::transport::{authorities, identity, provider, unusable};

/// Most names of a certificate that are looked at.
const MAX_NAMES: usize = 16;

/// The table `[tls]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsSettings {
    pub(super) listen: Vec<SocketAddr>,
    /// Files with the certificates of this machine, its own first, and with its key.
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// File with the authorities of peers, which must have certificates then.
    pub(super) ca: Option<PathBuf>,
}

/// The configuration of new connections.
#[derive(Debug)]
pub(super) struct TlsAcceptor {
    settings: TlsSettings,
    config: Arc<ServerConfig>,
    /// Which files were read.
    versions: Vec<Option<FileVersion>>,
    /// Why changed files are not used.
    error: Option<String>,
}

/// What changes when a file is replaced or written, or may be read: its file system, number and length, and times.
type FileVersion = (u64, u64, u64, [i64; 4]);

impl TlsSettings {
    /// The files.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.certificate, &self.key].into_iter();
        files.chain(&self.ca).map(PathBuf::as_path)
    }

    fn versions(&self) -> Vec<Option<FileVersion>> {
        let version = |path: &Path| {
            let about = fs::metadata(path).ok()?;
            let times = [
                about.mtime(),
                about.mtime_nsec(),
                about.ctime(),
                about.ctime_nsec(),
            ];
            Some((about.dev(), about.ino(), about.len(), times))
        };
        self.files().map(version).collect()
    }

    /// Reads the files.
    fn read(&self) -> anyhow::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(authorities(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build();
                builder.with_client_cert_verifier(
                    verifier
                        .with_context(|| format!("`{}` has no authority of peers", ca.display()))?,
                )
            }
        };
        let (certificates, key) = identity(&self.certificate, &self.key)?;
        let mut config = builder
            .with_single_cert(certificates, key)
            .with_context(|| unusable(&self.certificate, &self.key))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl TlsAcceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub(super) fn open(settings: TlsSettings) -> anyhow::Result<Self> {
        let versions = settings.versions();
        let config = Arc::new(settings.read()?);
        Ok(Self {
            settings,
            config,
            versions,
            error: None,
        })
    }

    /// The configuration for a new connection. Files that have changed and cannot be used are told; those that were read
    /// before stay.
    pub(super) fn config(&mut self) -> Arc<ServerConfig> {
        let versions = self.settings.versions();
        if versions != self.versions {
            self.versions = versions;
            match self.settings.read() {
                Ok(config) => {
                    self.config = Arc::new(config);
                    self.error = None;
                }
                Err(error) => {
                    let error = format!("changed certificates are not used: {error:#}");
                    info(&error);
                    self.error = Some(error);
                }
            }
        }
        Arc::clone(&self.config)
    }

    /// Whether peers must have certificates, whose names say whose logs they write.
    pub(super) const fn asks_for_certificates(&self) -> bool {
        self.settings.ca.is_some()
    }

    /// Why changed files are not used.
    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// The names of DNS in the certificate of a peer, which was verified, in lower case.
pub(super) fn names(certificates: &[CertificateDer<'_>]) -> Vec<String> {
    let certificate = certificates.first();
    let certificate = certificate.and_then(|found| EndEntityCert::try_from(found).ok());
    let Some(certificate) = certificate else {
        return Vec::new();
    };
    let names = certificate.valid_dns_names().take(MAX_NAMES);
    names.map(str::to_ascii_lowercase).collect()
}

/// An error of TLS with advice.
pub(super) fn describe(error: &Error) -> String {
    let advice = match error {
        Error::NoCertificatesPresented => {
            "set `certificate` and `key` of the destination of tollgate-ship"
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "renew the certificate of the peer",
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "look at the clocks of both machines",
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate of the peer is of another authority than those in `ca`"
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "the peer does not know the authority of the certificate of this listener"
        }
        Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate,
        ) => "the peer refuses the certificate of this listener: look at its name and time",
        Error::InvalidMessage(_) => "it is not TLS: other connections come to `listen`",
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    use super::*;

    /// A renewed key is given to its group after it was written.
    #[test]
    fn files_whose_mode_has_changed_are_read_again() {
        let place = tempfile::tempdir().unwrap();
        let settings = TlsSettings {
            listen: Vec::new(),
            certificate: place.path().join("own.pem"),
            key: place.path().join("own.key"),
            ca: None,
        };
        settings
            .files()
            .for_each(|file| fs::write(file, "").unwrap());
        let before = settings.versions();
        assert_eq!(settings.versions(), before);
        let begun = Instant::now();
        // The clock of a file system has ticks.
        while settings.versions()[1] == before[1] {
            assert!(begun.elapsed() < Duration::from_secs(5));
            let mode = fs::Permissions::from_mode(0o640);
            fs::set_permissions(&settings.key, mode).unwrap();
        }
        assert_eq!(settings.versions()[0], before[0]);
    }
}
