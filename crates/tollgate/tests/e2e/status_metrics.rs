//! Status with `--watch`, and metrics.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use support::wait::PATIENCE;

use super::daemon::{CommandOutput, Daemon, program};
use super::step::step;
use super::test_dir::TestDir;

/// The sysctl that makes the kernel count program runs.
pub(crate) const BPF_STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k outside\n",
        test_dir.id
    )
}

/// A sysctl, restored on drop.
pub(crate) struct Setting(&'static str, String);

impl Setting {
    pub(crate) fn set(path: &'static str, value: &str) -> Self {
        let before = fs::read_to_string(path).unwrap();
        fs::write(path, value).unwrap();
        Self(path, before)
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _gone = fs::write(self.0, &self.1);
    }
}

/// Sends a GET request; returns the response, head and body.
#[track_caller]
fn get(mut stream: impl Read + Write, path: &str) -> (String, String) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

pub(crate) fn metrics_are_served() {
    let test_dir = TestDir::new();
    let socket = test_dir.own.join("metrics");
    let settings = format!("metrics = \"{}\"\n", socket.display());
    let daemon = Daemon::start_with_settings(&test_dir, &rule(&test_dir), &settings);
    test_dir
        .workload()
        .run(&vec![step!("rmdir", "/etc/missing"); 3]);
    daemon.flush();
    // Clients that send nothing or half a request do not block others.
    drop(UnixStream::connect(&socket).unwrap());
    UnixStream::connect(&socket)
        .unwrap()
        .write_all(b"GET /metr")
        .unwrap();
    let ask = |path: &str| {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        get(stream, path)
    };
    let (head, body) = ask("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    for line in [
        "tollgate_events_matched_total 3",
        "tollgate_events_written_total 3",
        "tollgate_rules 1",
    ] {
        assert!(body.lines().any(|found| found == line), "{line}: {body}");
    }
    assert!(ask("/").0.starts_with("HTTP/1.1 404 "));
    daemon.end(Signal::SIGTERM);

    let daemon =
        Daemon::start_with_settings(&test_dir, &rule(&test_dir), "metrics = \"127.0.0.1:0\"\n");
    let port = listening_port(daemon.pid());
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_, body) = get(stream, "/metrics");
    assert!(
        body.contains("\ntollgate_events_matched_total 0\n"),
        "{body}"
    );
    daemon.end(Signal::SIGTERM);
}

/// The IPv4 TCP port on which a process listens.
///
/// # Source
/// `Documentation/networking/proc_net_tcp.rst`: local address, state (`0A` is LISTEN) and inode.
#[track_caller]
fn listening_port(pid: u32) -> u16 {
    let mut sockets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        sockets.push(target.to_string_lossy().into_owned());
    }
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let port = table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let socket = format!("socket:[{}]", columns[9]);
        let (_, port) = columns[1].split_once(':')?;
        (columns[3] == "0A" && sockets.contains(&socket))
            .then(|| u16::from_str_radix(port, 16).unwrap())
    });
    port.unwrap()
}

pub(crate) fn status_watch_shows_program_runs() {
    let test_dir = TestDir::new();
    let _counted = Setting::set(BPF_STATS, "1");
    let daemon = Daemon::start(&test_dir, &rule(&test_dir));
    test_dir
        .workload()
        .run(&vec![step!("rmdir", "/etc/missing"); 5]);
    daemon.flush();
    let mut watch = Command::new(program())
        .args(["status", "--watch=1", "--json", "--control"])
        .arg(&daemon.control)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line = lines.next().unwrap().unwrap();
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["counts"]["written"], 5);
        let runs = status["runs"].as_array().unwrap();
        let all: u64 = runs.iter().map(|run| run["runs"].as_u64().unwrap()).sum();
        assert!(all >= 5, "{line}");
        assert!(
            runs.iter()
                .any(|run| run["nanoseconds"].as_u64().unwrap() > 0)
        );
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    let mut once = Command::new(program());
    let once = CommandOutput::of(once.args(["status", "--control"]).arg(&daemon.control));
    assert!(once.stdout.contains("\nruns        "), "{}", once.stdout);
    daemon.stop();
}
