//! Syslog over TLS, with certificates of both sides.

use std::fs;

use nix::sys::signal::Signal;

use crate::certificates::place;
use crate::place::{Place, wait_until};
use crate::rsyslog::{Rsyslog, whole_events};

/// Asks for the certificate of a machine that is called `h`.
const MODULE: &str = "streamDriver.name=\"gtls\" streamDriver.mode=\"1\" streamDriver.authMode=\"x509/name\" \
    permittedPeer=[\"h\"]";

/// Starts rsyslog in `directory`, with one of the certificates.
fn start(place: &Place, directory: &str, certificate: &str) -> Rsyslog {
    fs::create_dir(place.path(directory)).unwrap();
    let file = |name: &str| place.path("certificates").join(name).display().to_string();
    let global = format!(
        "global(defaultNetstreamDriver=\"gtls\" defaultNetstreamDriverCAFile=\"{}\" \
         defaultNetstreamDriverCertFile=\"{}\" defaultNetstreamDriverKeyFile=\"{}\")\n",
        file("ca.pem"),
        file(&format!("{certificate}.pem")),
        file(&format!("{certificate}.key")),
    );
    Rsyslog::start(&place.path(directory), &global, MODULE)
}

fn configure(place: &Place, port: u16, tls: &str) {
    place.configure(&format!(
        "[syslog.siem]\naddress = \"localhost:{port}\"\nstart = \"begin\"\nresend = 2\n[syslog.siem.tls]\n{tls}"
    ));
}

const CA: &str = "ca = \"DIR/certificates/ca.pem\"\n";
const IDENTITY: &str =
    "certificate = \"DIR/certificates/h.pem\"\nkey = \"DIR/certificates/h.key\"\n";

#[test]
fn every_serial_arrives_over_tls_and_kills_of_both_sides() {
    let place = place();
    let mut rsyslog = start(&place, "rsyslog", "server");
    configure(&place, rsyslog.port, &format!("{CA}{IDENTITY}"));
    let mut run = place.start();
    for batch in 0..6 {
        place.append_events(batch * 300, 300);
        wait_until("some events", || {
            whole_events(&rsyslog.received()).len() > usize::try_from(batch).unwrap() * 200
        });
        match batch {
            0 | 2 => rsyslog.restart(Signal::SIGKILL),
            4 => rsyslog.restart(Signal::SIGTERM),
            _ => {
                run.kill();
                run = place.start();
            }
        }
    }
    wait_until("all events", || {
        whole_events(&rsyslog.received()).into_keys().eq(0..1800)
    });
    place.wait_sent(1800);
    assert!(run.end(), "{}", place.text("stderr"));
    // An end in order leaves nothing to be sent again.
    assert_eq!(place.confirmed(), 1800);
}

/// The first error of a run.
fn error(place: &Place) -> String {
    fs::write(place.path("stderr"), "").unwrap();
    let run = place.start();
    wait_until("an error", || place.error("siem").is_some());
    run.kill();
    place.error("siem").unwrap()
}

#[test]
fn peers_and_certificates_that_are_wrong_are_told() {
    let place = place();
    place.append_events(0, 10);
    let rsyslog = start(&place, "rsyslog", "server");
    let expired = start(&place, "rsyslog-expired", "expired");
    let other_ca = "ca = \"DIR/certificates/other-ca.pem\"\n";
    let good = format!("{CA}{IDENTITY}");
    for (port, tls, expected) in [
        (
            expired.port,
            good.clone(),
            "invalid peer certificate: certificate expired",
        ),
        (
            rsyslog.port,
            format!("{other_ca}{IDENTITY}"),
            "invalid peer certificate: UnknownIssuer",
        ),
        (
            rsyslog.port,
            format!("{good}server_name = \"other\"\n"),
            "invalid peer certificate: certificate not valid for name \"other\"",
        ),
        (rsyslog.port, CA.to_owned(), "certificate"),
        (
            rsyslog.port,
            good.replace("h.key", "server.key"),
            "cannot use certificate `",
        ),
        (
            rsyslog.port,
            good.replace("h.pem", "absent.pem"),
            "cannot read certificates `",
        ),
        (
            rsyslog.port,
            good.replace("ca.pem", "h.key"),
            "has no certificate: it must be in PEM",
        ),
    ] {
        configure(&place, port, &tls);
        let found = error(&place);
        assert!(found.contains(expected), "{expected}: {found}");
    }
    let output = place.status(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(whole_events(&rsyslog.received()).len(), 0);
    // What was refused is sent when the certificates are right.
    configure(&place, rsyslog.port, &good);
    assert!(place.once().status.success());
    wait_until("all events", || {
        whole_events(&rsyslog.received()).len() == 10
    });
}
