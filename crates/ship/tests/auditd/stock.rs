//! The stock `auditd` of Debian as the listener.

use std::collections::HashSet;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::place::Run;
use super::*;

const PROGRAM: &str = "/sbin/auditd";

/// One with settings and a log of its own. With `local_events = no` it changes nothing in the kernel's audit.
struct Auditd {
    place: tempfile::TempDir,
    port: u16,
    run: Option<Run>,
}

impl Auditd {
    /// Starts one; `None`, which is told, if this test may not.
    fn start(settings: &str) -> Option<Self> {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing: run `sh scripts/setup.sh tests`"
        );
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: {PROGRAM} needs root");
            return None;
        }
        // Its PID file has one place only, which is another one in a mount namespace.
        let mut mount = in_namespace("true");
        if !mount.stderr(Stdio::null()).status().unwrap().success() {
            eprintln!("skipped: no mount namespace can be made here");
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        for name in ["log", "plugins.d"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let directory = place.path().display();
        let settings = format!(
            "local_events = no\ntcp_listen_port = {port}\ntransport = TCP\nuse_libwrap = no\nname_format = NONE\n\
             log_file = {directory}/log/audit.log\nlog_format = RAW\nlog_group = root\nflush = INCREMENTAL_ASYNC\n\
             freq = 50\nmax_log_file = 1\nmax_log_file_action = ROTATE\nnum_logs = 99\nspace_left = 2\n\
             space_left_action = IGNORE\nadmin_space_left = 1\nadmin_space_left_action = IGNORE\n\
             disk_full_action = SUSPEND\ndisk_error_action = SUSPEND\npriority_boost = 0\n\
             plugin_dir = {directory}/plugins.d\n{settings}"
        );
        let path = place.path().join("auditd.conf");
        fs::write(&path, settings).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut started = Self {
            place,
            port,
            run: None,
        };
        started.run_again();
        Some(started)
    }

    /// Starts the program, and waits until it listens.
    fn run_again(&mut self) {
        let directory = self.place.path().display();
        let mut command = in_namespace(&format!("exec {PROGRAM} -n -c '{directory}'"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.run = Some(Run(command.stderr(Stdio::null()).spawn().unwrap()));
        wait_until("the listener", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn kill(&mut self) {
        self.run.take().unwrap().kill();
    }

    /// Ends it in order.
    fn end(&mut self) {
        assert!(self.run.take().unwrap().end());
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log/audit.log")
    }

    /// The lines of its log that came from a host, with those of rotated files.
    fn lines(&self) -> Vec<String> {
        let set = logs::log_set::LogSet::rotated(&self.log()).unwrap();
        let files = set.as_files().iter();
        let texts: String = files
            .map(|file| fs::read_to_string(file.path()).unwrap())
            .collect();
        let lines = texts.lines().filter(|line| line.starts_with("node="));
        lines.map(str::to_owned).collect()
    }

    /// A destination, `host` in front of it.
    fn ship(&self) -> Place {
        Place::new(&format!(
            "heartbeat = 1\n[auditd.a]\naddress = \"127.0.0.1:{}\"\nstart = \"begin\"\n",
            self.port
        ))
    }
}

fn in_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg(format!("mount -t tmpfs none /run && {script}"));
    command
}

/// The lines in order, each once.
fn once(lines: &[String]) -> Vec<&String> {
    let mut seen = HashSet::new();
    lines.iter().filter(|line| seen.insert(*line)).collect()
}

/// Whether a line is what a kill has left: of the write of `auditd`, before its first line when it starts again, or of a
/// message that the shipper sent.
fn is_cut(line: &str, all: &[String]) -> bool {
    let part = line.split("type=DAEMON_START ").next().unwrap_or(line);
    all.iter().any(|whole| whole.starts_with(part))
}

/// `auditd` is killed, ended and killed again, and the shipper killed twice, with rotations of both logs.
#[test]
fn every_record_is_in_the_log_of_auditd_over_kills_of_both_sides() {
    const EACH: u32 = 1000;
    let Some(mut auditd) = Auditd::start("") else {
        return;
    };
    let place = auditd.ship();
    let mut all = Vec::new();
    let mut run = place.start();
    for part in 0..5 {
        place.append_events(part * EACH, EACH);
        all.extend(sent(&place.text("log/audit.log")));
        let half = format!(":{}): ", FIRST + part * EACH + EACH / 2);
        wait_until("half of the events", || {
            auditd.lines().iter().any(|line| line.contains(&half))
        });
        match part {
            0 | 3 => auditd.kill(),
            2 => auditd.end(),
            _ => {
                run.kill();
                run = place.start();
            }
        }
        if auditd.run.is_none() {
            auditd.run_again();
        }
        place.rotate(9);
    }
    wait_until("the confirmation of all events", || {
        destination(&place)["counts"]["sent"] == 5 * EACH
    });
    assert!(run.end());
    let mut lines = auditd.lines();
    let known: HashSet<&String> = all.iter().collect();
    lines.retain(|line| known.contains(line) || !is_cut(line, &all));
    assert!(once(&lines).into_iter().eq(&all), "another log");
    assert_eq!(place.confirmed(), 5 * EACH);
    assert!(lines.len() < 2 * all.len(), "{} lines", lines.len());
}

/// Runs a stock reader on the log. It prints the separator of interpretations behind records that have none.
fn ausearch(auditd: &Auditd, words: &[&str]) -> Vec<String> {
    let mut command = Command::new("/sbin/ausearch");
    command
        .arg("-if")
        .arg(auditd.log())
        .args(words)
        .arg("--raw");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| line.trim_end_matches('\u{1d}'));
    lines.map(str::to_owned).collect()
}

/// Also if it passes records on to plugins: then it does not answer the end of an event.
#[test]
fn enriched_long_and_named_records_and_gaps_are_read_by_ausearch() {
    let Some(auditd) = Auditd::start("distribute_network = yes\n") else {
        return;
    };
    let place = auditd.ship();
    let stamp = |serial: u32| format!("msg=audit(1790000000.000:{serial}): ");
    let user = |serial: u32, text: &str| format!("type=USER {}{text}\n", stamp(serial));
    let whole = format!(
        "type=SYSCALL {0}arch=c000003e syscall=59 success=yes exit=0 a0=1 a1=2 a2=3 a3=4 items=0 ppid=1 pid=2 auid=1000 \
         uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 comm=\"id\" exe=\"/usr/bin/id\" \
         key=(null)\u{1d}ARCH=x86_64 SYSCALL=execve AUID=\"a\" UID=\"root\"\n\
         type=CWD {0}cwd=\"/root\"\ntype=PROCTITLE {0}proctitle=\"id\"\n",
        stamp(FIRST + 3)
    );
    let arguments = "a=1 ".repeat(5000);
    let end = format!("type=EOE {}\n", stamp(6));
    let named = format!("node=db {}", user(5, "a=1"));
    for text in [
        &user(FIRST, "a=1"),
        &whole,
        &named,
        &end,
        &user(7, &arguments),
    ] {
        place.append(text);
    }
    place.append(&user(8, "a=1"));
    let run = place.start();
    let last = format!("node=h {}", user(8, "a=1").trim_end());
    wait_until("the records", || auditd.lines().contains(&last));
    wait_until("the message", || {
        place.text("stderr").contains("a: records are cut: ")
    });
    wait_until("the count", || destination(&place)["counts"]["cut"] == 1);
    assert!(run.end());
    let lines = auditd.lines();
    assert!(lines.contains(&named.trim_end().to_owned()));
    assert!(!lines.iter().any(|line| line.contains("type=EOE")));
    let text = String::from_utf8(place.status(&[]).stdout).unwrap();
    assert!(
        text.contains("cut         1 records, too long for the destination\n"),
        "{text}"
    );
    let gap = ausearch(&auditd, &["-m", "DAEMON_ERR"]);
    let [gap] = &gap[..] else {
        panic!("{gap:?}");
    };
    assert!(gap.contains(" lost=2 reason=\"absent\" "), "{gap}");
    let serial = (FIRST + 3).to_string();
    let words = ["-a", &serial, "--node", "h", "-sc", "execve"];
    let mut found = ausearch(&auditd, &words);
    found.sort();
    let mut expected = sent(&whole);
    expected.sort();
    assert_eq!(found, expected);
    let cut = ausearch(&auditd, &["-a", "7"]);
    let [cut] = &cut[..] else {
        panic!("{cut:?}");
    };
    let uncut = format!("node=h {}", user(7, &arguments));
    let left = uncut.strip_prefix(cut.as_str()).unwrap();
    assert!(left.starts_with(" a=1 ") && (8950..=8953).contains(&cut.len()));
}
