//! `tollgate-collect` as a user runs it, with peers of its own; `stock` has the stock one, `shipped` `tollgate-ship`,
//! and `tls` the same with certificates.

mod hostile;
mod shipped;
mod stock;
mod tls;

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::place::{PATIENCE, Run, wait_until};

const ACKNOWLEDGED: u32 = 0x4000_0000;
const ENDING: u32 = 0x4000_0001;
const DISK_FULL: u32 = 0x6000_0001;
const REFUSED: u32 = 0x6000_0003;

/// A listener with its configuration and directories.
pub(crate) struct Collector {
    place: tempfile::TempDir,
    pub(crate) port: u16,
    run: Option<Run>,
}

impl Collector {
    /// Starts one with settings before its peers, of which one is the host `web1` at 127.0.0.1.
    pub(crate) fn start(settings: &str, more_peers: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        for name in ["logs", "state"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let port = free_port();
        let text = format!(
            "listen = [\"127.0.0.1:{port}\"]\ndirectory = {:?}\n{settings}\n[hosts]\nweb1 = [\"127.0.0.1\"]\n{more_peers}",
            place.path().join("logs")
        );
        fs::write(place.path().join("collect.toml"), text).unwrap();
        let mut started = Self {
            place,
            port,
            run: None,
        };
        started.run_again();
        started
    }

    /// Starts the program, and waits until it listens.
    pub(crate) fn run_again(&mut self) {
        let errors = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.path("stderr"));
        let listening = |collector: &Self| {
            let errors = fs::read_to_string(collector.path("stderr")).unwrap();
            errors.matches("listens at").count()
        };
        let before = listening(self);
        let mut command = self.command(&["run", "--config", "collect.toml"]);
        let child = command.stdin(Stdio::null()).stderr(errors.unwrap()).spawn();
        self.run = Some(Run(child.unwrap()));
        wait_until("the listener", || listening(self) > before);
    }

    pub(crate) fn kill(&mut self) {
        self.run.take().unwrap().kill();
    }

    /// Ends it in order.
    pub(crate) fn end(&mut self) {
        assert!(self.run.take().unwrap().end());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The log of a host, with its rotated predecessors; empty if there is none yet.
    pub(crate) fn log(&self, host: &str) -> String {
        let log = self.path(&format!("logs/{host}/audit.log"));
        if !log.exists() {
            return String::new();
        }
        let set = logs::log_set::LogSet::rotated(&log).unwrap();
        let texts = set
            .as_files()
            .iter()
            .map(|file| fs::read_to_string(file.path()).unwrap());
        texts.collect()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-collect"));
        command
            .current_dir(self.place.path())
            .args(words)
            .args(["--state", "state"]);
        command
    }

    pub(crate) fn status_text(&self) -> Output {
        self.command(&["status"]).output().unwrap()
    }

    /// What `status --json` prints; null without a run.
    pub(crate) fn status(&self) -> Value {
        let output = self.command(&["status", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// What it tells of a host.
    pub(crate) fn host(&self, name: &str) -> Value {
        let status = self.status();
        let mut hosts = status["hosts"].as_array().into_iter().flatten();
        let host = hosts.find(|host| host["name"] == name);
        host.cloned().unwrap_or_default()
    }
}

/// A port at which nobody listens.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A peer that speaks the protocol.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    pub(crate) fn connect(collector: &Collector) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", collector.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, kind: u32, sequence: u32, body: &str) {
        self.0.write_all(&frame(kind, sequence, body)).unwrap();
    }

    /// The kind, sequence and text of an answer.
    pub(crate) fn answer(&mut self) -> (u32, u32, String) {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        assert_eq!(header[..6], [0xfe, 0, 0, 0xff, 0, 0]);
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; usize::from(u16::from_le_bytes([header[10], header[11]]))];
        self.0.read_exact(&mut body).unwrap();
        (number(6), number(12), String::from_utf8(body).unwrap())
    }

    /// Whether the listener has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.0.read(&mut byte), Ok(0) | Err(_))
    }
}

pub(crate) fn frame(kind: u32, sequence: u32, body: &str) -> Vec<u8> {
    let mut frame = vec![0xfe, 0, 0, 0xff, 0, 0];
    frame.extend(kind.to_le_bytes());
    frame.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
    frame.extend(sequence.to_le_bytes());
    frame.extend(body.as_bytes());
    frame
}

/// A record.
pub(crate) fn line(serial: u32) -> String {
    format!("type=CWD msg=audit(1700000000.123:{serial}): cwd=\"/\"\n")
}

#[test]
fn acknowledged_records_are_in_the_log() {
    let mut collector = Collector::start("space_left = 0", "");
    let mut peer = Peer::connect(&collector);
    for sequence in 1..=50 {
        peer.send(0, sequence, &line(sequence));
        assert_eq!(peer.answer(), (ACKNOWLEDGED, sequence, String::new()));
        let written: String = (1..=sequence).map(line).collect();
        assert_eq!(collector.log("web1"), written);
    }
    peer.send(1, 51, "");
    assert_eq!(peer.answer(), (ACKNOWLEDGED, 51, String::new()));
    // One is not answered before another one is written.
    peer.0
        .write_all(
            &[
                frame(0, 52, &line(52)),
                frame(1, 53, ""),
                frame(0, 54, &line(54)),
            ]
            .concat(),
        )
        .unwrap();
    for sequence in 52..=54 {
        assert_eq!(peer.answer(), (ACKNOWLEDGED, sequence, String::new()));
    }
    wait_until("the status", || collector.host("web1")["records"] == 52);
    let host = collector.host("web1");
    assert_eq!(
        (&host["connections"], &host["address"]),
        (&1.into(), &"127.0.0.1".into())
    );
    assert_eq!(host["last"]["serial"], 54);
    let status = collector.status_text();
    assert!(status.status.success());
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(
        text.contains("host        web1\npeer        127.0.0.1, connected\n"),
        "{text}"
    );
    // The peer is told, and the log stays.
    collector.end();
    assert_eq!(peer.answer().0, ENDING);
    assert!(peer.is_closed());
    assert_eq!(collector.log("web1").lines().count(), 52);
    assert_eq!(collector.status_text().status.code(), Some(1));
}

#[test]
fn logs_are_rotated_and_a_killed_run_leaves_whole_lines() {
    let mut collector = Collector::start("space_left = 0\nmax_log_file = 1\nnum_logs = 3", "");
    let mut peer = Peer::connect(&collector);
    // 1.5 MiB of lines, in the ascii format.
    let body = "x".repeat(8000);
    let lines =
        (0..200).map(|serial| format!("type=USER msg=audit(1.000:{serial}): msg='{body}'\n"));
    let lines: String = lines.collect();
    peer.0.write_all(lines.as_bytes()).unwrap();
    wait_until("the log", || collector.log("web1").len() == lines.len());
    assert_eq!(collector.log("web1"), lines);
    assert_eq!(
        fs::read_dir(collector.path("logs/web1")).unwrap().count(),
        2
    );
    collector.kill();
    let mut log = OpenOptions::new()
        .append(true)
        .open(collector.path("logs/web1/audit.log"))
        .unwrap();
    log.write_all(b"type=USER msg=audit(1.000:200): ms")
        .unwrap();
    collector.run_again();
    let mut peer = Peer::connect(&collector);
    peer.send(0, 1, &line(200));
    assert_eq!(peer.answer().0, ACKNOWLEDGED);
    let mut expected = lines + &line(200);
    assert_eq!(collector.log("web1"), expected);
    // As if it had been killed before it acknowledged this one, which then comes first on the next connection.
    collector.kill();
    collector.run_again();
    let mut peer = Peer::connect(&collector);
    for sequence in 1..=2 {
        peer.send(0, sequence, &line(200));
        assert_eq!(peer.answer(), (ACKNOWLEDGED, sequence, String::new()));
        assert_eq!(collector.log("web1"), expected);
        expected += &line(200);
    }
    wait_until("the status", || collector.host("web1")["repeated"] == 1);
}

#[test]
fn mistakes_in_the_configuration_are_told() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("collect.toml");
    fs::write(&config, "listen = [\"x\"]\n").unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-collect"));
        let output = command
            .args(words)
            .current_dir(place.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = run(&["run", "--config", "collect.toml", "--state", "."]);
    let expected = "tollgate-collect: collect.toml:1:11: `x` is no address to listen at; ";
    assert!(errors.starts_with(expected), "{errors}");
    let errors = run(&["run", "--config", "absent.toml"]);
    assert!(
        errors.contains("`absent.toml`: write it, or name another with --config"),
        "{errors}"
    );
    fs::write(
        &config,
        "listen = [\"127.0.0.1:0\"]\ndirectory = \"/absent\"\n[hosts]\na = [\"::1\"]\n",
    )
    .unwrap();
    let errors = run(&["run", "--config", "collect.toml", "--state", "."]);
    assert!(
        errors.contains("cannot open the directory of logs `/absent`: create it: "),
        "{errors}"
    );
    fs::create_dir(place.path().join("new")).unwrap();
    let errors = run(&["status", "--state", "new"]);
    assert!(
        errors.contains("has no status: no `tollgate collect run` has used it"),
        "{errors}"
    );
}
