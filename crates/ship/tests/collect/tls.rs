//! `tollgate-ship` as the peer, over TLS.

use std::os::unix::fs::symlink;

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::certificates::{self, EXPIRED, VALID};
use super::super::place::{FIRST, Place};
use super::*;

const IDENTITY: &str =
    "certificate = \"DIR/certificates/h.pem\"\nkey = \"DIR/certificates/h.key\"\n";

/// A listener at a port with TLS, and the port. Its own certificate is `own.pem`, a link. With `ca` the host `h` has the
/// certificate of that name.
fn start(place: &Place, ca: Option<&str>) -> (Collector, u16) {
    link(place, "server");
    let port = free_port();
    let file = |name: &str| place.path("certificates").join(name);
    let (ca, host) = match ca {
        Some(ca) => (format!("ca = {:?}", file(ca)), "h = [\"H\"]"),
        None => (String::new(), ""),
    };
    let tls = format!(
        "space_left = 0\n[tls]\nlisten = [\"127.0.0.1:{port}\"]\ncertificate = {:?}\nkey = {:?}\n{ca}\n",
        file("own.pem"),
        file("own.key"),
    );
    (Collector::start(&tls, host), port)
}

/// Makes `own.pem` and `own.key` links to a certificate and its key.
fn link(place: &Place, name: &str) {
    for end in ["key", "pem"] {
        let own = place.path(&format!("certificates/own.{end}"));
        let new = own.with_extension("new");
        symlink(format!("{name}.{end}"), &new).unwrap();
        fs::rename(new, own).unwrap();
    }
}

fn syslog(port: u16) -> String {
    let destination = format!("address = \"localhost:{port}\"\nstart = \"begin\"\nresend = 2\n");
    format!(
        "heartbeat = 1\n[syslog.c]\n{destination}[syslog.c.tls]\nca = \"DIR/certificates/ca.pem\"\n"
    )
}

fn otlp(port: u16) -> String {
    let destination = format!("url = \"https://localhost:{port}/v1/logs\"\nstart = \"begin\"\n");
    format!(
        "heartbeat = 1\n[otlp.c]\n{destination}[otlp.c.tls]\nca = \"DIR/certificates/ca.pem\"\n"
    )
}

#[test]
fn every_event_arrives_by_syslog_over_tls_and_kills_of_both_sides() {
    kills(syslog);
}

#[test]
fn every_event_arrives_by_otlp_over_tls_and_kills_of_both_sides() {
    kills(otlp);
}

fn kills(destination: fn(u16) -> String) {
    const EACH: u32 = 300;
    let place = certificates::place();
    let (mut collector, port) = start(&place, Some("ca.pem"));
    place.configure(&(destination(port) + IDENTITY));
    let mut run = place.start();
    for part in 0..3 {
        place.append_events(part * EACH, EACH);
        let half = format!(":{}): ", FIRST + part * EACH + EACH / 2);
        wait_until("some events", || collector.log("h").contains(&half));
        match part {
            0 => {
                collector.kill();
                collector.run_again();
            }
            1 => {
                run.kill();
                run = place.start();
            }
            _ => {
                collector.end();
                collector.run_again();
            }
        }
    }
    let all = fs::read_to_string(place.log()).unwrap();
    wait_until("all events", || collector.log("h").len() >= all.len());
    wait_until("a heartbeat", || {
        !collector.host("h")["completeness"]["heartbeat"].is_null()
    });
    assert!(run.end(), "{}", place.text("stderr"));
    assert!(collector.log("h") == all, "another log");
    assert_eq!(collector.host("h")["completeness"]["gaps"]["count"], 0);
    // The address of the other host does not matter.
    assert!(!collector.path("logs/web1").exists());
}

#[test]
fn without_authorities_of_peers_their_addresses_count() {
    let place = certificates::place();
    place.append_events(0, 10);
    let (collector, port) = start(&place, None);
    place.configure(&otlp(port));
    assert!(place.once().status.success());
    assert_eq!(
        collector.log("web1"),
        fs::read_to_string(place.log()).unwrap()
    );
}

/// Runs until an error is told, and returns it.
#[track_caller]
fn error(place: &Place) -> String {
    fs::write(place.path("stderr"), "").unwrap();
    let run = place.start();
    wait_until("an error", || place.error("c").is_some());
    run.kill();
    place.error("c").unwrap()
}

#[test]
fn peers_with_the_certificate_of_no_host_are_told() {
    let place = certificates::place();
    place.append_events(0, 10);
    let (collector, port) = start(&place, Some("ca.pem"));
    for (file, authority, name, times) in [
        ("expired-client", "ca", "h", EXPIRED),
        ("other-client", "other-ca", "h", VALID),
        ("unlisted", "ca", "h2.example", VALID),
    ] {
        certificates::client(&place, file, authority, name, times);
    }
    let mut count = 0;
    for (tls, expected) in [
        (
            IDENTITY.replace("h.", "expired-client."),
            "invalid peer certificate: certificate expired",
        ),
        (
            IDENTITY.replace("h.", "other-client."),
            "is of another authority than those in `ca`",
        ),
        (
            IDENTITY.replace("h.", "unlisted."),
            "its certificate is of `h2.example`: list the name",
        ),
        (
            String::new(),
            "peer sent no certificates: set `certificate` and `key`",
        ),
    ] {
        place.configure(&(syslog(port) + &tls));
        error(&place);
        wait_until(expected, || {
            let status = collector.status();
            let told = status["tls_refusal"].as_str().unwrap_or_default();
            told.starts_with("127.0.0.1: ") && told.contains(expected)
        });
        let refused = collector.status()["refused"]["tls"].as_u64();
        assert!(refused > Some(count), "{refused:?}");
        count = refused.unwrap();
    }
    let text = String::from_utf8(collector.status_text().stdout).unwrap();
    assert!(
        text.contains("\nrefused     127.0.0.1: no TLS with the peer: peer sent no"),
        "{text}"
    );
    let errors = fs::read_to_string(collector.path("stderr")).unwrap();
    assert!(errors.contains("certificate expired"), "{errors}");
    assert_eq!(fs::read_dir(collector.path("logs")).unwrap().count(), 0);
    // Other connections do not come to this port.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(line(1).as_bytes()).unwrap();
    plain.read_to_end(&mut Vec::new()).unwrap();
    wait_until("the status", || {
        let status = collector.status();
        status["tls_refusal"]
            .as_str()
            .unwrap()
            .contains("it is not TLS")
    });
    place.configure(&(otlp(port) + IDENTITY));
    assert!(place.once().status.success());
    assert_eq!(collector.log("h"), fs::read_to_string(place.log()).unwrap());
}

#[test]
fn renewed_certificates_need_no_restart() {
    let place = certificates::place();
    place.append_events(0, 10);
    let (collector, port) = start(&place, Some("ca.pem"));
    link(&place, "expired");
    place.configure(&(otlp(port) + IDENTITY));
    let told = error(&place);
    assert!(
        told.contains("invalid peer certificate: certificate expired"),
        "{told}"
    );
    wait_until("the status", || {
        let status = collector.status();
        let told = status["tls_refusal"].as_str().unwrap_or_default();
        told.contains("the peer refuses the certificate of this listener")
    });
    link(&place, "server");
    assert!(place.once().status.success());
    assert_eq!(collector.log("h"), fs::read_to_string(place.log()).unwrap());
    // What cannot be used is told, and what was read before stays.
    link(&place, "absent");
    place.append_events(10, 10);
    assert!(place.once().status.success());
    assert_eq!(collector.log("h"), fs::read_to_string(place.log()).unwrap());
    wait_until("the status", || {
        let status = collector.status();
        let told = status["tls_error"].as_str().unwrap_or_default();
        told.contains("changed certificates are not used: cannot read key `")
    });
    assert_eq!(collector.status_text().status.code(), Some(1));
    link(&place, "server");
    assert!(place.once().status.success());
    wait_until("the status", || collector.status()["tls_error"].is_null());
}

/// A connection of the host `h` that has sent bytes and nothing else, not the end of TLS either.
fn send_with_tls(place: &Place, port: u16, bytes: &[u8], behind: &[u8]) -> TcpStream {
    let file = |name: &str| place.path("certificates").join(name);
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_file(file("h.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(file("h.key")).unwrap(),
        )
        .unwrap();
    let name = "localhost".try_into().unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp).unwrap();
    }
    tls.writer().write_all(bytes).unwrap();
    let mut records = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut records).unwrap();
    }
    records.extend_from_slice(behind);
    tcp.write_all(&records).unwrap();
    tcp
}

/// rsyslog, for example, does not end TLS in order (`close_notify`).
#[test]
fn end_without_that_of_tls_cuts_off_what_is_not_complete() {
    let place = certificates::place();
    let (collector, port) = start(&place, Some("ca.pem"));
    let whole = format!("<86>1 - h - - - - {}", line(2).trim_end());
    let whole = format!("{} {whole}", whole.len());
    let (half, _) = whole.split_at(whole.len() - 1);
    // A record of TLS that is none: what came before it is not dropped.
    let garbage = [&[0x17, 3, 3, 0, 32][..], &[0; 32]].concat();
    let mut expected = String::new();
    let mut refused = 0;
    for (bytes, behind, written, is_refused) in [
        (line(1) + line(2).trim_end(), &[][..], 1, true),
        (whole.clone() + half, &[], 2, false),
        (line(3) + &line(4), &garbage, 3, false),
        (
            line(5) + "type=CWD msg=audit(1700000000.123:6",
            &garbage,
            5,
            true,
        ),
    ] {
        drop(send_with_tls(&place, port, bytes.as_bytes(), behind));
        expected += &line(written);
        if written == 3 {
            expected += &line(4);
        }
        refused += u64::from(is_refused);
        wait_until("the log", || collector.log("h").len() >= expected.len());
        wait_until("the end of the connection", || {
            let host = collector.host("h");
            host["connections"] == 0 && host["refused"] == refused
        });
        assert_eq!(collector.log("h"), expected);
    }
    let refusal = &collector.host("h")["refusal"];
    assert_eq!(
        refusal,
        "the connection has ended before the end of the line"
    );
}
