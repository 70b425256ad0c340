//! Collectors that do not answer, or are none.

use std::fs;

use super::server::{Reply, Server, answer};
use super::{configuration, place, wait_for_all, wait_for_status};
use crate::certificates::{self, server_config};
use crate::place::{Place, wait_until};

/// Starts a run, and waits until it has told an error with a text.
#[track_caller]
fn failure(place: &Place, expected: &str) {
    fs::write(place.path("stderr"), "").unwrap();
    let run = place.start();
    wait_until(expected, || {
        let Some(line) = place.error("c") else {
            return false;
        };
        assert!(line.contains(expected), "{expected}: {line}");
        true
    });
    run.kill();
}

#[test]
fn answers_that_are_none_are_told_and_nothing_is_lost() {
    let other = Server::new(|_| Reply::Take);
    let redirect = format!("Location: http://127.0.0.1:{}/v1/logs\r\n", other.port);
    let server = Server::new(|_| Reply::Hang);
    // The query may have a secret.
    let place = place(&server, "timeout = 1\n");
    let url = format!("{}/v1/logs?key=s3cret", server.port);
    let configured = configuration(&server, "timeout = 1\n[otlp.c.headers]\nx = \"s3cret\"\n");
    place.configure(&configured.replace(&format!("{}/v1/logs", server.port), &url));
    place.append_events(0, 300);
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (reply, expected) in [
        (Reply::Hang, "has not answered within 1 seconds"),
        (
            Reply::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".into()),
            "has not answered within 1 seconds",
        ),
        (
            Reply::Send(b"SSH-2.0-OpenSSH\r\n\r\n".into()),
            "has not answered in HTTP: ",
        ),
        (
            Reply::SendForEver(b"HTTP/1.1 200 OK\r\nx: y".into()),
            "has not answered in HTTP: ",
        ),
        (
            Reply::SendForEver(b"HTTP/1.1 100 Continue\r\n\r\n".into()),
            "no answer follows those of a status below 200",
        ),
        (
            Reply::SendForEver(format!("{head}4\r\nabcd\r\n").into()),
            "has not answered in HTTP: ",
        ),
        (
            Reply::Send(format!("{head}zz\r\n").into()),
            "a chunk has no size",
        ),
        (
            Reply::Send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".into(),
            ),
            "it has two lengths",
        ),
        (
            Reply::SendForEver(answer(200, "", "x".repeat(70_000).as_bytes())),
            "its answer is too long",
        ),
        (
            Reply::status(200, "Content-Type: text/html\r\n", b"<html>Welcome"),
            "answers 200, but is no OTLP collector: its answer has the type `text/html`",
        ),
        (
            Reply::status(307, &redirect, b""),
            "which is not followed: write the right `url`",
        ),
        (
            Reply::status(
                401,
                "Content-Type: application/json\r\n",
                b"{\"message\":\"bad token\"}",
            ),
            "answers 401: bad token: look at `headers`",
        ),
        (
            Reply::status(500, "Content-Type: text/plain\r\n", b"a\r\nb\x1b[2J"),
            "answers 500: a  b [2J: nothing is dropped",
        ),
    ] {
        server.plan(move |_| reply.clone());
        failure(&place, expected);
    }
    assert_eq!(other.requests().len(), 0);
    for text in [
        place.text("state/status"),
        place.text("stderr"),
        format!("{:?}", place.status(&[])),
    ] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    server.plan(|_| Reply::status(500, "", b""));
    let run = place.start();
    wait_for_status(&place, "an error", |status| {
        let error = status["error"].as_str();
        error.is_some_and(|error| error.contains("answers 500: nothing is dropped"))
    });
    server.plan(|_| Reply::Take);
    wait_for_all(&server, 300, &place);
    assert!(run.end());
    assert_eq!(place.confirmed(), 300);
}

/// A server with a certificate, that wants one of an authority.
fn tls_server(place: &Place, certificate: &str) -> Server {
    Server::start(Some(server_config(place, certificate)), |_| Reply::Take)
}

#[test]
fn collectors_and_certificates_that_are_wrong_are_told() {
    const CA: &str = "ca = \"DIR/certificates/ca.pem\"\n";
    let identity = "certificate = \"DIR/certificates/h.pem\"\nkey = \"DIR/certificates/h.key\"\n";
    let place = certificates::place();
    place.append_events(0, 10);
    let server = tls_server(&place, "server");
    let expired = tls_server(&place, "expired");
    let configure = |server: &Server, tls: &str| {
        place.configure(&format!(
            "[otlp.c]\nurl = \"https://localhost:{}/v1/logs\"\nstart = \"begin\"\n[otlp.c.tls]\n{tls}",
            server.port
        ));
    };
    let good = format!("{CA}{identity}");
    for (server, tls, expected) in [
        (
            &expired,
            good.clone(),
            "invalid peer certificate: certificate expired",
        ),
        (
            &server,
            good.replace("ca.pem", "other-ca.pem"),
            "invalid peer certificate: UnknownIssuer",
        ),
        (
            &server,
            format!("{good}server_name = \"other\"\n"),
            "certificate not valid for name \"other\"",
        ),
        (&server, CA.to_owned(), "ertificate"),
        (
            &server,
            good.replace("h.pem", "absent.pem"),
            "cannot read certificates `",
        ),
    ] {
        configure(server, &tls);
        failure(&place, expected);
    }
    assert_eq!((server.requests().len(), expired.requests().len()), (0, 0));
    // What was refused is sent when the certificates are right.
    configure(&server, &good);
    assert!(place.once().status.success());
    assert_eq!(server.numbers().len(), 10);
}
