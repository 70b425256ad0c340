//! Certificates for tests.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::place::Place;

/// A place with an authority `ca`, a certificate of this machine `h`, and those of peers: `localhost`, and one that has
/// expired.
pub(crate) fn place() -> Place {
    let place = Place::new("");
    let certificates = place.path("certificates");
    fs::create_dir(&certificates).unwrap();
    let server = "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\n";
    for name in ["ca", "other-ca"] {
        let lines = format!("cn = {name}\nca\ncert_signing_key\n{VALID}");
        certificate(&certificates, name, None, &lines);
    }
    client(&place, "h", "ca", "h", VALID);
    certificate(
        &certificates,
        "server",
        Some("ca"),
        &format!("{server}{VALID}"),
    );
    certificate(
        &certificates,
        "expired",
        Some("ca"),
        &format!("{server}{EXPIRED}"),
    );
    place
}

/// What a server with a certificate of a place does, which wants one of the authority `ca` from its peers.
pub(crate) fn server_config(place: &Place, certificate: &str) -> ServerConfig {
    let file = |name: &str| place.path("certificates").join(name);
    let certificates = |name: &str| {
        let found = CertificateDer::pem_file_iter(file(name)).unwrap();
        found.map(Result::unwrap).collect::<Vec<_>>()
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca.pem") {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            certificates(&format!("{certificate}.pem")),
            PrivateKeyDer::from_pem_file(file(&format!("{certificate}.key"))).unwrap(),
        );
    config.unwrap()
}

/// Times of a certificate.
pub(crate) const VALID: &str = "expiration_days = 2\n";
pub(crate) const EXPIRED: &str =
    "activation_date = \"2020-01-01 00:00:00\"\nexpiration_date = \"2020-02-01 00:00:00\"\n";

/// Makes `FILE.key` and `FILE.pem` of a machine of a name.
pub(crate) fn client(place: &Place, file: &str, authority: &str, name: &str, times: &str) {
    let lines = format!("cn = {name}\ndns_name = {name}\ntls_www_client\nsigning_key\n{times}");
    certificate(&place.path("certificates"), file, Some(authority), &lines);
}

/// Makes a key and a certificate of a name: `NAME.key` and `NAME.pem`.
fn certificate(directory: &Path, name: &str, authority: Option<&str>, lines: &str) {
    let run = |arguments: &[&str]| {
        let made = Command::new("certtool")
            .current_dir(directory)
            .args(arguments)
            .output();
        let made = made.unwrap_or_else(|error| {
            panic!("cannot run certtool ({error}): run `sh scripts/setup.sh tests`")
        });
        assert!(made.status.success(), "{made:?}");
    };
    let [key, pem, template] = ["key", "pem", "template"].map(|end| format!("{name}.{end}"));
    fs::write(directory.join(&template), lines).unwrap();
    // GnuTLS writes some ECDSA keys in a form that rustls refuses.
    run(&[
        "--generate-privkey",
        "--key-type",
        "ed25519",
        "--outfile",
        &key,
    ]);
    match authority {
        None => run(&[
            "--generate-self-signed",
            "--load-privkey",
            &key,
            "--template",
            &template,
            "--outfile",
            &pem,
        ]),
        Some(authority) => run(&[
            "--generate-certificate",
            "--load-privkey",
            &key,
            "--load-ca-certificate",
            &format!("{authority}.pem"),
            "--load-ca-privkey",
            &format!("{authority}.key"),
            "--template",
            &template,
            "--outfile",
            &pem,
        ]),
    }
}
