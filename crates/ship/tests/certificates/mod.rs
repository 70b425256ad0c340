//! Certificates for tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::place::Place;

/// A place with an authority `ca`, a certificate of this machine `h`, and those of peers: `localhost`, and one that has
/// expired.
pub(crate) fn place() -> Place {
    let place = Place::new("");
    let certificates = place.path("certificates");
    fs::create_dir(&certificates).unwrap();
    let server = "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\n";
    for name in ["ca", "other-ca"] {
        let lines = format!("cn = {name}\nca\ncert_signing_key\nexpiration_days = 2\n");
        certificate(&certificates, name, None, &lines);
    }
    let client = "cn = h\ndns_name = h\ntls_www_client\nsigning_key\nexpiration_days = 2\n";
    certificate(&certificates, "h", Some("ca"), client);
    certificate(
        &certificates,
        "server",
        Some("ca"),
        &format!("{server}expiration_days = 2\n"),
    );
    let expired =
        "activation_date = \"2020-01-01 00:00:00\"\nexpiration_date = \"2020-02-01 00:00:00\"\n";
    certificate(
        &certificates,
        "expired",
        Some("ca"),
        &format!("{server}{expired}"),
    );
    place
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
