//! Plugins: real programs that are given events as `auditd` gives them.

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
use super::keeping::told;
use super::place::Place;
use super::step::{Step, step};

const CONF: &str = "space_left = 2\nadmin_space_left = 1\nmax_restarts = 3\n";

/// Room for some 250 events, and for what a step has.
const SHORT_QUEUE: &str = "q_depth = 30\n";

fn rule(place: &Place) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k plugin\n",
        place.id
    )
}

fn rmdirs(count: usize) -> Vec<Step> {
    vec![step!("rmdir", "/etc/missing"); count]
}

/// Configures a plugin of these lines.
fn configure(place: &Place, name: &str, lines: &str) {
    let directory = place.own.join("plugins.d");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join(format!("{name}.conf")),
        format!("active = yes\ndirection = out\ntype = always\n{lines}"),
    )
    .unwrap();
}

/// Writes a script that a plugin runs; the shell that runs it is what is executed.
fn script(place: &Place, name: &str, text: &str) -> String {
    let path = place.own.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
    path.display().to_string()
}

/// Runs 2000 events; in steps that any reader can follow, each until this many are counted.
#[track_caller]
fn in_steps(place: &Place, steps: usize, counted: impl Fn() -> usize) {
    let step = 2000 / steps;
    for done in 1..=steps {
        place.workload().run(&rmdirs(step));
        wait_for("the events of a step", || {
            (counted() == done * step).then_some(())
        });
    }
}

/// Events that the daemon says a plugin did not get.
fn not_given(said: &[String], plugin: &str) -> usize {
    let before = format!("plugin {plugin} did not get ");
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

/// Events that records say a plugin did not get.
fn told_of_plugins(events: &[Event]) -> u64 {
    let own: Vec<&Event> = events
        .iter()
        .filter(|event| event.records[0].kind == "DAEMON_ERR")
        .collect();
    told(&own)
}

/// Number of lines of a file that hold a text.
fn lines_with(path: &Path, text: &str) -> usize {
    let all = fs::read_to_string(path).unwrap_or_default();
    all.lines().filter(|line| line.contains(text)).count()
}

pub(crate) fn a_plugin_is_given_every_line_and_the_end_of_each_event() {
    let place = Place::new();
    let (out, blocked) = (place.own.join("out"), place.own.join("blocked"));
    let text = format!(
        "grep SigBlk /proc/self/status > {}\nexec cat >> {}\n",
        blocked.display(),
        out.display()
    );
    let shell = script(&place, "copy", &text);
    let lines = format!("path = /bin/sh\nargs = {shell}\nformat = string\n");
    configure(&place, "copy", &lines);
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = ENRICHED\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    place.workload().run(&rmdirs(200));
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

pub(crate) fn a_plugin_that_ends_is_started_again_and_no_line_is_cut() {
    let place = Place::new();
    let out = place.own.join("out");
    // Takes five lines, each with its own read, and ends.
    let text = format!(
        "for i in 1 2 3 4 5; do read -r line && printf '%s\\n' \"$line\" >> {}; done\n",
        out.display()
    );
    let shell = script(&place, "short", &text);
    configure(
        &place,
        "short",
        &format!("path = /bin/sh\nargs = {shell}\n"),
    );
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    for started in 1..=3 {
        place.workload().run(&rmdirs(10));
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

pub(crate) fn a_plugin_that_never_reads_loses_only_its_own_events() {
    let place = Place::new();
    let out = place.own.join("out");
    let copy = script(&place, "copy", &format!("exec cat >> {}\n", out.display()));
    let idle = script(&place, "idle", "exec sleep 1000\n");
    configure(&place, "copy", &format!("path = /bin/sh\nargs = {copy}\n"));
    configure(&place, "idle", &format!("path = /bin/sh\nargs = {idle}\n"));
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n{SHORT_QUEUE}");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    in_steps(&place, 10, || lines_with(&out, "type=SYSCALL "));
    // A second later nothing more is lost, and all is told, though nothing has happened since.
    wait_for("the losses in the log", || {
        let counted = daemon.status()["plugins"]["idle.conf"].as_u64().unwrap();
        (counted != 0 && told_of_plugins(&daemon.events()) == counted).then_some(())
    });
    assert_eq!(daemon.status()["plugins"]["copy.conf"], 0);
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (2000, 0));
    assert_eq!(lines_with(&out, "type=SYSCALL "), 2000);
    // What still lay in the queue has come to it.
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
    let full = "the queue of plugin idle.conf is full: events are lost to it";
    assert!(ended.output.iter().any(|line| line.contains(full)));
    assert!(not_given(&ended.output, "idle.conf") > 0);
    assert_eq!(not_given(&ended.output, "copy.conf"), 0);
}

pub(crate) fn what_a_slow_plugin_loses_is_counted_exactly() {
    let place = Place::new();
    let (out, go) = (place.own.join("out"), place.own.join("go"));
    mkfifo(&go, Mode::S_IRWXU).unwrap();
    let text = format!(
        "read -r _ < {}\nexec cat >> {}\n",
        go.display(),
        out.display()
    );
    let slow = script(&place, "slow", &text);
    configure(&place, "slow", &format!("path = /bin/sh\nargs = {slow}\n"));
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n{SHORT_QUEUE}");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    in_steps(&place, 10, || lines_with(&log, "type=SYSCALL "));
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

pub(crate) fn a_plugin_that_crashes_is_given_up_until_hup() {
    let place = Place::new();
    let starts = place.own.join("starts");
    let text = format!("echo started >> {}\nkill -SEGV $$\n", starts.display());
    let crash = script(&place, "crash", &text);
    configure(
        &place,
        "crash",
        &format!("path = /bin/sh\nargs = {crash}\n"),
    );
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let mut events = 0;
    wait_for("the daemon to give up", || {
        place.workload().run(&rmdirs(1));
        events += 1;
        daemon
            .has_printed("plugin crash.conf ended too often")
            .then_some(())
    });
    assert_eq!(lines_with(&starts, "started"), 4, "and three times again");
    let file = place.own.join("auditd.conf");
    let other = fs::read_to_string(&file).unwrap();
    let other = other.replace("max_restarts = 3", "max_restarts = 1");
    fs::write(&file, other).unwrap();
    daemon.replace(&rule(&place));
    wait_for("another two starts", || {
        place.workload().run(&rmdirs(1));
        events += 1;
        daemon
            .has_printed("plugin crash.conf ended and was restarted (1 of 1 times)")
            .then_some(())
    });
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (events, 0));
}

pub(crate) fn stock_audisp_syslog_passes_events_on() {
    const STOCK: &str = "/sbin/audisp-syslog";
    needs(
        Path::new(STOCK).exists(),
        "audisp-syslog, of Debian's package auditd",
    );
    let place = Place::new();
    let syslog = place.own.join("log");
    let socket = UnixDatagram::bind(&syslog).unwrap();
    // A /dev of its own, in which syslog is the test.
    let text = format!(
        "mount -t tmpfs tmpfs /dev && ln -s {} /dev/log && exec {STOCK} LOG_INFO LOG_LOCAL3\n",
        syslog.display()
    );
    let inside = script(&place, "inside", &text);
    let lines = format!("path = /usr/bin/unshare\nargs = --mount /bin/sh {inside}\n");
    configure(&place, "syslog", &lines);
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    place.workload().run(&rmdirs(1));
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

pub(crate) fn a_plugin_that_feeds_auparse_sees_every_event() {
    needs_auparse();
    let place = Place::new();
    let plugin = place.compiled("plugin", include_str!("auparse_plugin.c"), &["-lauparse"]);
    for format in ["RAW", "ENRICHED"] {
        let out = place.own.join(format);
        let lines = format!("path = {}\nargs = {}\n", plugin.display(), out.display());
        configure(&place, "auparse", &lines);
        let log = place.own.join(format!("{format}.log"));
        let conf = format!("{CONF}log_format = {format}\n");
        let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
        place.workload().run(&rmdirs(200));
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

pub(crate) fn the_builtin_socket_serves_both_formats() {
    let place = Place::new();
    let sockets = ["string", "binary"].map(|format| {
        let path = place.own.join(format);
        let lines = format!(
            "path = builtin_af_unix\nargs = 0640 {}\nformat = {format}\n",
            path.display()
        );
        configure(&place, format, &lines);
        path
    });
    let log = place.own.join("audit.log");
    let conf = format!("{CONF}log_format = RAW\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let [text, mut binary] = sockets
        .clone()
        .map(|path| UnixStream::connect(path).unwrap());
    place.workload().run(&rmdirs(1));
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
