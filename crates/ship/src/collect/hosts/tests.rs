//! Tests of the hosts that have logs.

use std::os::unix::fs::symlink;

use super::super::config::Config;
use super::*;

impl Hosts {
    /// Changes what stays free.
    pub(in crate::collect) fn reserve(&mut self, bytes: u64) {
        self.settings.reserve_bytes = bytes;
        self.update_room();
    }
}

const LINE: &str = "type=CWD msg=audit(1700000000.123:7): cwd=\"/\"";

fn open_hosts(place: &Path) -> Hosts {
    let text = "[hosts]\nweb1 = [\"10.0.0.1\"]\n\
         [networks.lab]\nprefixes = [\"10.1.0.0/16\"]\nhost = \"address\"\nmax_hosts = 2\n\
         [networks.far]\nprefixes = [\"10.2.0.1\"]\nhost = \"node\"\nmax_hosts = 2\n";
    let config = Config::parse(text).unwrap();
    let settings = LogSettings {
        reserve_bytes: 0,
        ..config.logs
    };
    Hosts::open(place, settings, config.peers).unwrap()
}

/// The host whose log gets a line.
fn taken(hosts: &mut Hosts, peer: &str, line: &str) -> Result<String, Refusal> {
    let writes = hosts.peers.find(peer.parse().unwrap()).unwrap();
    let checked = hosts.check(&writes, line.as_bytes(), None)?;
    let mut lines = Lines {
        host: checked.host.to_owned(),
        ..Lines::default()
    };
    lines.push(line.as_bytes(), checked.last);
    hosts.write(&lines).unwrap();
    Ok(lines.host)
}

#[test]
fn a_peer_writes_its_own_log_whatever_it_claims() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    for node in ["", "node=web2 ", "node=../../etc "] {
        let line = format!("{node}{LINE}");
        assert_eq!(taken(&mut hosts, "10.0.0.1", &line).unwrap(), "web1");
        assert_eq!(taken(&mut hosts, "10.1.0.9", &line).unwrap(), "10.1.0.9");
    }
    let text = fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
    assert_eq!(
        text,
        format!("{LINE}\nnode=web2 {LINE}\nnode=../../etc {LINE}\n")
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    let progress = hosts.progress("web1").unwrap();
    assert_eq!((progress.records, progress.error.clone()), (3, None));
    let last = LastRecord {
        time_ms: 1_700_000_000_123,
        serial: 7,
    };
    assert_eq!(progress.last, Some(last));
}

#[test]
fn names_by_node_are_host_names_that_no_other_peer_has() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    let mut take = |node: &str| taken(&mut hosts, "10.2.0.1", &format!("node={node} {LINE}"));
    assert_eq!(take("db1").unwrap(), "db1");
    for node in [
        "web1", "10.1.0.9", "::1", "..", ".", "a/b", "../x", "\u{e9}",
    ] {
        assert!(matches!(take(node), Err(Refusal::Node(_))), "{node}");
    }
    for bytes in [256, 1 << 16] {
        let Err(refusal) = take(&"\u{1}".repeat(bytes)) else {
            panic!("{bytes} bytes");
        };
        assert!(refusal.to_string().len() < 2048, "{bytes}");
    }
    assert!(matches!(take(&"n".repeat(256)), Err(Refusal::Node(_))));
    assert_eq!(taken(&mut hosts, "10.2.0.1", LINE), Err(Refusal::NoNode));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn networks_have_a_bounded_number_of_hosts_over_restarts() {
    let place = tempfile::tempdir().unwrap();
    let line = |node: &str| format!("node={node} {LINE}");
    let mut hosts = open_hosts(place.path());
    for (peer, node) in [
        ("10.2.0.1", "a"),
        ("10.2.0.1", "b"),
        ("10.1.0.1", "a"),
        ("10.1.0.2", "a"),
    ] {
        taken(&mut hosts, peer, &line(node)).unwrap();
    }
    // What is no directory of a host counts for none.
    fs::write(place.path().join("file"), "").unwrap();
    symlink("a", place.path().join("link")).unwrap();
    for _ in 0..2 {
        for (peer, network) in [("10.2.0.1", "far"), ("10.1.0.3", "lab")] {
            let refused = Err(Refusal::TooManyHosts(network.to_owned()));
            assert_eq!(taken(&mut hosts, peer, &line("c")), refused);
        }
        taken(&mut hosts, "10.2.0.1", &line("b")).unwrap();
        taken(&mut hosts, "10.1.0.1", &line("c")).unwrap();
        taken(&mut hosts, "10.0.0.1", &line("c")).unwrap();
        hosts = open_hosts(place.path());
    }
    assert!(hosts.networks().iter().all(|network| network.hosts == 2));
}

#[test]
fn lines_that_are_no_record_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    let forged = format!("{LINE}\n{LINE}");
    assert_eq!(
        taken(&mut hosts, "10.0.0.1", &forged),
        Err(Refusal::ManyLines)
    );
    let nul = format!("{LINE}\0");
    assert_eq!(taken(&mut hosts, "10.0.0.1", &nul), Err(Refusal::ManyLines));
    for line in ["", "type=", "Nov 29 host sshd: no record", "node=a"] {
        let refused = taken(&mut hosts, "10.0.0.1", line);
        assert!(matches!(refused, Err(Refusal::NoRecord(_))), "{line}");
    }
    assert!(!place.path().join("web1").exists());
}

#[test]
fn removed_logs_are_made_again() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    taken(&mut hosts, "10.0.0.1", LINE).unwrap();
    assert_eq!(hosts.take_unsynced().len(), 1);
    fs::remove_dir_all(place.path().join("web1")).unwrap();
    assert_eq!(hosts.take_unsynced().len(), 0);
    taken(&mut hosts, "10.0.0.1", LINE).unwrap();
    let text = fs::read_to_string(place.path().join("web1/audit.log")).unwrap();
    assert_eq!(text, format!("{LINE}\n"));
}

#[test]
fn nothing_is_written_without_room() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    hosts.reserve(u64::MAX);
    let mut lines = Lines {
        host: "web1".to_owned(),
        ..Lines::default()
    };
    lines.push(LINE.as_bytes(), LastRecord::default());
    let error = hosts.write(&lines).unwrap_err();
    assert!(error.is_full());
    assert!(hosts.progress("web1").unwrap().error.is_some());
    hosts.reserve(0);
    hosts.write(&lines).unwrap();
    assert_eq!(hosts.progress("web1").unwrap().error, None);
}

/// An idle host has heartbeats, and a silent one is known after a restart of the listener.
#[test]
fn when_a_host_was_heard_is_known_over_restarts() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    let heard = |hosts: &mut Hosts| hosts.progress("web1").unwrap().heard_ms;
    let begun = now_ms();
    assert_eq!(heard(&mut hosts), 0);
    let own = hosts.peers.find("10.0.0.1".parse().unwrap()).unwrap();
    hosts.heard(Some(&own), None);
    assert!(heard(&mut hosts) >= begun);
    // A heartbeat of a shipper, without a record.
    hosts.progress("web1").unwrap().heard_ms = 5;
    let lines = Lines {
        host: "web1".to_owned(),
        completeness: Some(Completeness::default()),
        ..Lines::default()
    };
    hosts.write(&lines).unwrap();
    assert!(heard(&mut hosts) >= begun);
    let progress = hosts.progress("web1").unwrap();
    assert_eq!(progress.received_ms, 0);
    progress.heard_ms = 7;
    let known = hosts.all_progress();
    let mut hosts = open_hosts(place.path());
    hosts.restore(known);
    assert_eq!(heard(&mut hosts), 7);
}

#[test]
fn searches_are_bounded_for_a_host_and_for_all() {
    let place = tempfile::tempdir().unwrap();
    let mut hosts = open_hosts(place.path());
    taken(&mut hosts, "10.0.0.1", LINE).unwrap();
    taken(&mut hosts, "10.1.0.1", LINE).unwrap();
    let limited = |hosts: &mut Hosts, host: &str| hosts.progress(host).unwrap().limited_searches;
    for _ in 0..MAX_SEARCHES {
        let end = hosts.recent("web1");
        assert_eq!((end.parts.len(), end.window), (1, WINDOW_BYTES));
    }
    assert_eq!(limited(&mut hosts, "web1"), 0);
    assert!(hosts.recent("web1").parts.is_empty());
    assert_eq!(limited(&mut hosts, "web1"), 1);
    // Another host still has some, until all of them have searched too much.
    assert_eq!(hosts.recent("10.1.0.1").window, WINDOW_BYTES);
    hosts.searched.exhaust();
    assert_eq!(hosts.recent("10.1.0.1").window, 0);
    assert_eq!(limited(&mut hosts, "10.1.0.1"), 1);
    // An empty log hides nothing.
    let log = place.path().join("10.1.0.1/audit.log");
    fs::remove_dir_all(log.parent().unwrap()).unwrap();
    hosts.take_unsynced();
    hosts.recent("10.1.0.1");
    assert_eq!(limited(&mut hosts, "10.1.0.1"), 1);
}
