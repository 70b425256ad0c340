//! Plugins: real programs that get events as from `auditd`.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use support::wait::PATIENCE;

use super::daemon::Daemon;
use super::event::{self, Event};
use super::harness::{needs, needs_auparse, wait_for};
use super::log_settings::told;
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

const CONF: &str = "space_left = 2\nadmin_space_left = 1\nmax_restarts = 3\n";

/// Queue size: some 250 events, and the events of one step.
const SHORT_QUEUE: &str = "q_depth = 30\n";

fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k plugin\n",
        test_dir.id
    )
}

fn rmdirs(count: usize) -> Vec<WorkloadStep> {
    vec![step!("rmdir", "/etc/missing"); count]
}

/// Configures a plugin with these lines.
fn configure(test_dir: &TestDir, name: &str, lines: &str) {
    let directory = test_dir.own.join("plugins.d");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join(format!("{name}.conf")),
        format!("active = yes\ndirection = out\ntype = always\n{lines}"),
    )
    .unwrap();
}

/// Writes a script for a plugin; the plugin executes the shell.
fn script(test_dir: &TestDir, name: &str, text: &str) -> String {
    let path = test_dir.own.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    path.display().to_string()
}

/// Makes 2000 events, in steps small enough for any reader; each step waits until its events are counted.
#[track_caller]
fn in_steps(test_dir: &TestDir, steps: usize, counted: impl Fn() -> usize) {
    let step = 2000 / steps;
    for done in 1..=steps {
        test_dir.workload().run(&rmdirs(step));
        wait_for("the events of a step", || {
            (counted() == done * step).then_some(())
        });
    }
}

/// Events that a plugin did not get, according to the status.
fn not_given(said: &[String], plugin: &str) -> usize {
    let before = format!("plugin {plugin} lost ");
    said.iter()
        .filter_map(|line| {
            line.split_once(&before)?
                .1
                .split(' ')
                .next()?
                .parse::<usize>()
                .ok()
        })
        .sum()
}

/// Events that a plugin did not get, according to records.
fn told_of_plugins(events: &[Event]) -> u64 {
    let own: Vec<&Event> = events
        .iter()
        .filter(|event| event.records[0].kind == "DAEMON_ERR")
        .collect();
    told(&own)
}

/// Number of lines of a file that contain a text.
fn lines_with(path: &Path, text: &str) -> usize {
    let all = fs::read_to_string(path).unwrap_or_default();
    all.lines().filter(|line| line.contains(text)).count()
}

pub(crate) fn plugin_gets_every_record_and_eoe() {
    let test_dir = TestDir::new();
    let (out, blocked) = (test_dir.own.join("out"), test_dir.own.join("blocked"));
    let text = format!(
        "grep SigBlk /proc/self/status > {}\nexec cat >> {}\n",
        blocked.display(),
        out.display()
    );
    let shell = script(&test_dir, "copy", &text);
    let lines = format!("path = /bin/sh\nargs = {shell}\nformat = string\n");
    configure(&test_dir, "copy", &lines);
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = ENRICHED\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&rmdirs(200));
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (200, 0));
    let blocked = fs::read_to_string(&blocked).unwrap();
    assert_eq!(blocked, "SigBlk:\t0000000000000000\n", "signals reach it");
    let given = fs::read_to_string(&out).unwrap();
    let (ends, others): (Vec<&str>, Vec<&str>) = given
        .lines()
        .partition(|line| line.starts_with("type=EOE "));
    assert_eq!(ends.len(), 200, "what is one record needs no end");
    let log = fs::read_to_string(&log).unwrap();
    assert!(
        others.iter().copied().eq(log.lines()),
        "the lines of the log"
    );
}

pub(crate) fn ended_plugin_is_restarted_at_a_line_boundary() {
    let test_dir = TestDir::new();
    let out = test_dir.own.join("out");
    // Reads five lines, each with its own read, and exits.
    let text = format!(
        "for i in 1 2 3 4 5; do read -r line && printf '%s\\n' \"$line\" >> {}; done\n",
        out.display()
    );
    let shell = script(&test_dir, "short", &text);
    configure(
        &test_dir,
        "short",
        &format!("path = /bin/sh\nargs = {shell}\n"),
    );
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    for started in 1..=3 {
        test_dir.workload().run(&rmdirs(10));
        wait_for("lines from the plugin", || {
            (lines_with(&out, "") >= 5 * started).then_some(())
        });
    }
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (30, 0));
    let given = fs::read_to_string(&out).unwrap();
    let log = fs::read_to_string(&log).unwrap();
    for line in given.lines().filter(|line| !line.starts_with("type=EOE ")) {
        assert!(log.contains(&format!("{line}\n")), "{line}");
    }
}

pub(crate) fn blocked_plugin_loses_only_its_own_events() {
    let test_dir = TestDir::new();
    let out = test_dir.own.join("out");
    let copy = script(
        &test_dir,
        "copy",
        &format!("exec cat >> {}\n", out.display()),
    );
    let idle = script(&test_dir, "idle", "exec sleep 1000\n");
    configure(
        &test_dir,
        "copy",
        &format!("path = /bin/sh\nargs = {copy}\n"),
    );
    configure(
        &test_dir,
        "idle",
        &format!("path = /bin/sh\nargs = {idle}\n"),
    );
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n{SHORT_QUEUE}");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    in_steps(&test_dir, 10, || lines_with(&out, "type=SYSCALL "));
    // A second later no more events are lost and all losses are reported, without new events.
    wait_for("the losses in the log", || {
        let counted = daemon.status()["plugins"]["idle.conf"].as_u64().unwrap();
        (counted != 0 && told_of_plugins(&daemon.events()) == counted).then_some(())
    });
    assert_eq!(daemon.status()["plugins"]["copy.conf"], 0);
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (2000, 0));
    assert_eq!(lines_with(&out, "type=SYSCALL "), 2000);
    // It has got the events that were still in the queue.
    let events = event::events(&fs::read(&log).unwrap());
    let told = usize::try_from(told_of_plugins(&events)).unwrap();
    assert_eq!(told, not_given(&ended.output, "idle.conf"));
    assert_eq!(
        lines_with(&log, "op=lost-plugin-events plugin=\"idle.conf\""),
        lines_with(&log, "op=lost-")
    );
    assert!(lines_with(&log, " reason=\"queue-full\"") > 0);
    assert_eq!(lines_with(&log, " reason=\"too-slow\""), 1, "at the end");
    assert!(lines_with(&out, "op=lost-plugin-events") > 0, "others know");
    let full = "the queue of plugin idle.conf is full: it loses events";
    assert!(ended.output.iter().any(|line| line.contains(full)));
    assert!(not_given(&ended.output, "idle.conf") > 0);
    assert_eq!(not_given(&ended.output, "copy.conf"), 0);
}

pub(crate) fn slow_plugin_losses_are_counted_exactly() {
    let test_dir = TestDir::new();
    let (out, go) = (test_dir.own.join("out"), test_dir.own.join("go"));
    mkfifo(&go, Mode::S_IRWXU).unwrap();
    let text = format!(
        "read -r _ < {}\nexec cat >> {}\n",
        go.display(),
        out.display()
    );
    let slow = script(&test_dir, "slow", &text);
    configure(
        &test_dir,
        "slow",
        &format!("path = /bin/sh\nargs = {slow}\n"),
    );
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n{SHORT_QUEUE}");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    in_steps(&test_dir, 10, || lines_with(&log, "type=SYSCALL "));
    fs::write(&go, "go\n").unwrap();
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (2000, 0));
    let (given, lost) = (
        lines_with(&out, "type=SYSCALL "),
        not_given(&ended.output, "slow.conf"),
    );
    assert!(given > 0 && lost > 0, "given {given}, lost {lost}");
    assert_eq!(given + lost, 2000);
    assert_eq!(lines_with(&out, "type=PROCTITLE "), given, "whole events");
}

pub(crate) fn crashing_plugin_is_disabled_until_hup() {
    let test_dir = TestDir::new();
    let starts = test_dir.own.join("starts");
    let text = format!("echo started >> {}\nkill -SEGV $$\n", starts.display());
    let crash = script(&test_dir, "crash", &text);
    configure(
        &test_dir,
        "crash",
        &format!("path = /bin/sh\nargs = {crash}\n"),
    );
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let mut events = 0;
    wait_for("the daemon to give up", || {
        test_dir.workload().run(&rmdirs(1));
        events += 1;
        daemon
            .has_printed("plugin crash.conf ended too often")
            .then_some(())
    });
    assert_eq!(lines_with(&starts, "started"), 4, "and three times again");
    let file = test_dir.own.join("auditd.conf");
    let other = fs::read_to_string(&file).unwrap();
    let other = other.replace("max_restarts = 3", "max_restarts = 1");
    fs::write(&file, other).unwrap();
    daemon.replace(&rule(&test_dir));
    wait_for("another two starts", || {
        test_dir.workload().run(&rmdirs(1));
        events += 1;
        daemon
            .has_printed("plugin crash.conf ended and was restarted (1 of 1 times)")
            .then_some(())
    });
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (events, 0));
}

pub(crate) fn stock_audisp_syslog_forwards_events() {
    const STOCK: &str = "/sbin/audisp-syslog";
    needs(
        Path::new(STOCK).exists(),
        "audisp-syslog, of Debian's package auditd",
    );
    let test_dir = TestDir::new();
    let syslog = test_dir.own.join("log");
    let socket = UnixDatagram::bind(&syslog).unwrap();
    // A private /dev, in which the test is syslog.
    let text = format!(
        "mount -t tmpfs tmpfs /dev && ln -s {} /dev/log && exec {STOCK} LOG_INFO LOG_LOCAL3\n",
        syslog.display()
    );
    let inside = script(&test_dir, "inside", &text);
    let lines = format!("path = /usr/bin/unshare\nargs = --mount /bin/sh {inside}\n");
    configure(&test_dir, "syslog", &lines);
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&rmdirs(1));
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let told = loop {
        let size = socket.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..size]).into_owned();
        if text.contains("type=SYSCALL ") {
            break text;
        }
    };
    daemon.end(Signal::SIGTERM);
    // Facility 19, priority 6.
    assert!(told.starts_with("<158>"), "{told}");
    let log = fs::read_to_string(&log).unwrap();
    let line = log.lines().find(|line| line.starts_with("type=SYSCALL "));
    assert!(told.contains(line.unwrap()), "{told}");
}

pub(crate) fn auparse_plugin_gets_every_event() {
    needs_auparse();
    let test_dir = TestDir::new();
    let plugin = test_dir.compiled("plugin", include_str!("auparse_plugin.c"), &["-lauparse"]);
    for format in ["RAW", "ENRICHED"] {
        let out = test_dir.own.join(format);
        let lines = format!("path = {}\nargs = {}\n", plugin.display(), out.display());
        configure(&test_dir, "auparse", &lines);
        let log = test_dir.own.join(format!("{format}.log"));
        let conf = format!("{CONF}log_format = {format}\n");
        let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
        test_dir.workload().run(&rmdirs(200));
        let stopped = daemon.stop_with(Signal::SIGTERM);
        assert_eq!((stopped.summary.written, stopped.summary.lost), (200, 0));
        let seen = fs::read_to_string(&out).unwrap();
        let expected: Vec<String> = stopped
            .events
            .iter()
            .map(|event| {
                let (kind, key) = match event.records[0].kind.as_str() {
                    "SYSCALL" => ("SYSCALL", "plugin"),
                    own => (own, "-"),
                };
                format!("{kind} {} {} {key}", event.serial, event.records.len())
            })
            .collect();
        assert_eq!(
            expected.len(),
            202,
            "and the start and the end of the daemon"
        );
        assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
    }
}

pub(crate) fn builtin_socket_serves_both_formats() {
    let test_dir = TestDir::new();
    let sockets = ["string", "binary"].map(|format| {
        let path = test_dir.own.join(format);
        let lines = format!(
            "path = builtin_af_unix\nargs = 0640 {}\nformat = {format}\n",
            path.display()
        );
        configure(&test_dir, format, &lines);
        path
    });
    let log = test_dir.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let [text, mut binary] = sockets.clone().map(|path| {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    });
    test_dir.workload().run(&rmdirs(1));
    let mut first = String::new();
    let mut text = BufReader::new(text);
    text.read_line(&mut first).unwrap();
    assert!(first.starts_with("type=SYSCALL msg=audit("), "{first}");
    let mut header = [0; 16];
    binary.read_exact(&mut header).unwrap();
    let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(4), word(8)), (0, 16, 1300));
    let mut payload = vec![0; usize::try_from(word(12)).unwrap()];
    binary.read_exact(&mut payload).unwrap();
    assert!(
        first
            .trim_end()
            .ends_with(str::from_utf8(&payload).unwrap())
    );
    daemon.end(Signal::SIGTERM);
    assert!(sockets.iter().all(|path| !path.exists()));
}
