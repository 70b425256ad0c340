//! Tests of connections whose time or disk would take too long to wait for.

mod requests;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::ResolvesServerCertUsingSni;

use super::super::config::Config;
use super::super::host_log::tests::settings;
use super::*;
use crate::transport::provider;

const IDLE: Duration = Duration::from_secs(3600);
const LINE: &str = "type=CWD msg=audit(1700000000.123:7): cwd=\"/\"\n";

/// A connection and its peer.
fn pair() -> (Connection, TcpStream) {
    pair_with(&BodyMemory::new())
}

/// The same, with memory that others use, too.
fn pair_with(memory: &BodyMemory) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (stream, address) = listener.accept().unwrap();
    let writes = Writes::Host("web1".to_owned());
    let stream = PeerStream::new(stream, None).unwrap();
    let connection = Connection::new(stream, address.ip(), Some(writes), memory.clone());
    (connection, peer)
}

fn hosts(place: &std::path::Path) -> Hosts {
    let config = Config::parse("[hosts]\nweb1 = [\"127.0.0.1\"]\n").unwrap();
    Hosts::open(place, settings(1 << 20), config.peers).unwrap()
}

/// Sends bytes, and serves the connection once.
fn send(peer: &mut TcpStream, bytes: &[u8], connection: &mut Connection, hosts: &mut Hosts) {
    peer.write_all(bytes).unwrap();
    connection.serve(&mut vec![0; READ_BYTES], hosts).unwrap();
}

#[test]
fn slow_peers_are_late() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    let after = |seconds| Instant::now() + Duration::from_secs(seconds);
    connection.check_time(after(3599), IDLE).unwrap();
    connection.check_time(after(3601), IDLE).unwrap_err();
    // Bytes of a frame that is not complete do not prolong its time.
    let begun = Instant::now();
    for byte in LINE.as_bytes().iter().take(20) {
        send(&mut peer, &[*byte], &mut connection, &mut hosts);
    }
    connection
        .check_time(begun + Duration::from_secs(59), IDLE)
        .unwrap();
    assert!(connection.stuck_since.unwrap() - begun < Duration::from_secs(1));
    connection.check_time(after(61), IDLE).unwrap_err();
    // A whole one does.
    send(
        &mut peer,
        &LINE.as_bytes()[20..],
        &mut connection,
        &mut hosts,
    );
    connection.check_time(after(61), IDLE).unwrap();
    send(&mut peer, b"type", &mut connection, &mut hosts);
    connection.check_time(after(61), IDLE).unwrap_err();
}

#[test]
fn handshakes_are_tls_and_have_their_time() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (connection, mut peer) = pair();
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
    let tcp = connection.stream.tcp;
    tcp.set_nonblocking(true).unwrap();
    let stream = PeerStream::new(tcp, Some(Arc::new(config))).unwrap();
    let address = connection.address;
    let mut connection = Connection::new(stream, address, None, connection.memory);
    peer.write_all(b"\x16\x03").unwrap();
    while connection.stream.tcp.peek(&mut [0]).is_err() {
        std::thread::yield_now();
    }
    connection
        .serve(&mut vec![0; READ_BYTES], &mut hosts)
        .unwrap();
    assert_eq!(connection.waits(), Waits::Readable);
    let after = |seconds| Instant::now() + Duration::from_secs(seconds);
    connection.check_time(after(9), IDLE).unwrap();
    let late = connection.check_time(after(11), IDLE);
    assert!(matches!(late, Err(End::NoTls)), "{late:?}");
    peer.write_all(LINE.as_bytes()).unwrap();
    while connection.stream.tcp.peek(&mut [0]).is_err() {
        std::thread::yield_now();
    }
    let end = connection.serve(&mut vec![0; READ_BYTES], &mut hosts);
    assert!(matches!(end, Err(End::Tls(_))), "{end:?}");
}

#[test]
fn ascii_lines_wait_for_room() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let (mut connection, mut peer) = pair();
    hosts.reserve(u64::MAX);
    let bytes = [LINE, LINE, "type=C"].concat();
    send(&mut peer, bytes.as_bytes(), &mut connection, &mut hosts);
    assert_eq!(connection.waits(), Waits::Disk);
    connection.resume(&mut hosts).unwrap();
    assert_eq!(connection.waits(), Waits::Disk);
    connection
        .check_time(Instant::now() + IDLE * 2, IDLE)
        .unwrap();
    hosts.reserve(0);
    connection.resume(&mut hosts).unwrap();
    assert_eq!(connection.waits(), Waits::Readable);
    send(
        &mut peer,
        &LINE.as_bytes()[6..],
        &mut connection,
        &mut hosts,
    );
    let text = std::fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
    assert_eq!(text, LINE.repeat(3));
}

/// A peer of the ascii format sends nothing again. Others do, so what is left of a frame is no loss.
#[test]
fn line_that_is_not_finished_is_refused_and_not_written() {
    let message = format!("<86>1 - web1 - - - - {}", LINE.trim_end());
    let message = format!("{} {message}", message.len());
    let (part, _) = message.split_at(message.len() - 1);
    for (bytes, is_refused) in [
        ([LINE, LINE.trim_end()].concat(), true),
        ([LINE, "t"].concat(), true),
        (LINE.to_owned(), false),
        ([&message, part].concat(), false),
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut hosts = hosts(place.path());
        let (mut connection, mut peer) = pair();
        send(&mut peer, bytes.as_bytes(), &mut connection, &mut hosts);
        drop(peer);
        let end = connection
            .serve(&mut vec![0; READ_BYTES], &mut hosts)
            .unwrap_err();
        assert!(matches!(end, End::Peer), "{end:?}");
        connection.close(&end, &mut hosts);
        let text = std::fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
        assert_eq!(text, LINE);
        let progress = hosts.progress("web1").unwrap();
        assert_eq!(progress.refused, u64::from(is_refused), "{bytes}");
        assert_eq!(progress.refusal.is_some(), is_refused, "{bytes}");
    }
}

/// The peer confirms what a kernel has taken for some seconds, so the connection must not stay. What was looked at and not
/// written is neither lost nor taken for repeated.
#[test]
fn shipped_records_come_again_without_room() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = hosts(place.path());
    let message = |serial: u32| {
        let line = LINE.trim_end().replace(":7)", &format!(":{serial})"));
        let text = format!(
            "<86>1 - web1 - - - [audit@32473 boot=\"b\" serial=\"{serial}\" n=\"1\" of=\"1\"] {line}"
        );
        format!("{} {text}", text.len())
    };
    let messages =
        |serials: &[u32]| -> String { serials.iter().map(|serial| message(*serial)).collect() };
    let (mut connection, mut peer) = pair();
    hosts.reserve(u64::MAX);
    peer.write_all(messages(&[0x8000_0001, 0x8000_0002]).as_bytes())
        .unwrap();
    let end = connection.serve(&mut vec![0; READ_BYTES], &mut hosts);
    assert!(matches!(end, Err(End::Write(_))), "{end:?}");
    hosts.reserve(0);
    for serials in [&[0x8000_0001, 0x8000_0002][..], &[0x8000_0002, 0x8000_0003]] {
        let (mut connection, mut peer) = pair();
        send(
            &mut peer,
            messages(serials).as_bytes(),
            &mut connection,
            &mut hosts,
        );
    }
    let text = std::fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
    let found: Vec<bool> = (1..=3)
        .map(|n| text.matches(&format!(":{})", 0x8000_0000_u32 + n)).count() == 1)
        .collect();
    assert_eq!((found, text.lines().count()), (vec![true; 3], 3));
    let progress = hosts.progress("web1").unwrap();
    assert_eq!((progress.records, progress.repeated), (3, 1));
    let known = progress.completeness.clone().unwrap();
    assert_eq!(known.last(), Some(("b", 0x8000_0003)));
}

/// The peer takes for stored what it has sent on a connection that stays.
#[test]
fn syslog_of_a_refused_host_ends_the_connection() {
    let line = |serial: u32| LINE.replace(":7)", &format!(":{serial})"));
    let message = |(host, serial): &(&str, u32)| {
        let text = format!("<86>1 - {host} - - - - {}", line(*serial).trim_end());
        format!("{} {text}", text.len())
    };
    let member = |name: &str| Writes::Member(0, name.to_owned());
    for (naming, first, second) in [
        ("node", Writes::Node(0), Writes::Node(0)),
        ("address", member("web1"), member("web2")),
    ] {
        let place = tempfile::tempdir().unwrap();
        let text = format!(
            "[networks.lab]\nprefixes = [\"10.0.0.0/8\"]\nhost = \"{naming}\"\nmax_hosts = 1\n"
        );
        let peers = Config::parse(&text).unwrap().peers;
        let mut hosts = Hosts::open(place.path(), settings(1 << 20), peers).unwrap();
        let mut serve = |writes: &Writes, messages: &[(&str, u32)]| {
            let (mut connection, mut peer) = pair();
            connection.writes = Some(Arc::new(writes.clone()));
            let text: String = messages.iter().map(message).collect();
            peer.write_all(text.as_bytes()).unwrap();
            connection.serve(&mut vec![0; READ_BYTES], &mut hosts)
        };
        serve(&first, &[("web1", 1)]).unwrap();
        let end = serve(&second, &[("web2", 2)]);
        assert!(
            matches!(end, Err(End::Host(Refusal::TooManyHosts(_)))),
            "{end:?}"
        );
        let mut written = vec![1];
        if naming == "node" {
            // What came before is written.
            serve(&second, &[("web1", 3), ("web2", 4), ("web1", 5)]).unwrap_err();
            written.push(3);
        }
        let log = std::fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
        let refused = u64::try_from(written.len()).unwrap();
        assert_eq!(log, written.into_iter().map(line).collect::<String>());
        assert_eq!(hosts.networks()[0].refused, refused);
    }
}
