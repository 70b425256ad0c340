//! The log as `auditd.conf` has it kept: rotated, enriched, on a disk that is full.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::Group;
use support::event::AUSEARCH;

use super::daemon::{Daemon, Stopped};
use super::event::Event;
use super::harness::{needs, wait_for};
use super::place::Place;
use super::step::{Step, step};

/// What `auditd` asks for in every configuration.
pub(crate) const SPACE: &str = "space_left = 2\nadmin_space_left = 1\n";

pub(crate) fn rule(place: &Place) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k keeping\n",
        place.id
    )
}

pub(crate) fn rmdir() -> Step {
    step!("rmdir", "/etc/missing")
}

/// Events of the workload, and those of the daemon.
pub(crate) fn apart(stopped: &Stopped) -> (Vec<&Event>, Vec<&Event>) {
    stopped
        .events
        .iter()
        .partition(|event| !event.records[0].kind.starts_with("DAEMON_"))
}

fn kinds(events: &[&Event]) -> Vec<String> {
    events
        .iter()
        .map(|event| event.records[0].kind.clone())
        .collect()
}

/// A small file system in memory, unmounted when it is dropped.
pub(crate) struct Small<'a>(pub(crate) &'a Path);

impl<'a> Small<'a> {
    pub(crate) fn mount(path: &'a Path, size: &str) -> Self {
        fs::create_dir(path).unwrap();
        let status = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=0700"),
                "tmpfs",
            ])
            .arg(path)
            .status()
            .unwrap();
        assert!(status.success(), "cannot mount a tmpfs");
        Self(path)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A write fails by a limit of the process, as it would on a disk that fails.
pub(crate) fn a_log_that_cannot_be_written_is_acted_upon() {
    let place = Place::new();
    let log = place.own.join("audit.log");
    let (program, ran) = (place.own.join("action"), place.own.join("ran"));
    let text = format!("#!/bin/sh\necho once >> {}\n", ran.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o750)).unwrap();
    let conf = format!(
        "{SPACE}log_format = RAW\ndisk_error_action = EXEC {}\n",
        program.display()
    );
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let limit = |daemon: &Daemon, bytes: &str| {
        let status = Command::new("prlimit")
            .args(["--pid", &daemon.pid().to_string()])
            .arg(format!("--fsize={bytes}:unlimited"))
            .status();
        assert!(status.unwrap().success(), "cannot limit the daemon");
    };
    place.workload().run(&vec![rmdir(); 3]);
    daemon.flush();
    // Room for a part of an event.
    let bytes = fs::metadata(&log).unwrap().len() + 100;
    limit(&daemon, &bytes.to_string());
    place.workload().run(&vec![rmdir(); 5]);
    daemon.flush();
    wait_for("the program that is run then", || {
        ran.exists().then_some(())
    });
    // Nothing is written until somebody says that it may be.
    place.workload().run(&vec![rmdir(); 7]);
    daemon.flush();
    limit(&daemon, "unlimited");
    place.workload().run(&vec![rmdir(); 11]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR2);
    wait_for("the record of USR2", || {
        let text = fs::read_to_string(&log).unwrap();
        text.contains("type=DAEMON_RESUME").then_some(())
    });
    place.workload().run(&vec![rmdir(); 13]);
    assert!(daemon.has_printed("File too large"), "it says why");
    let stopped = daemon.stop_with(Signal::SIGTERM);
    let summary = &stopped.summary;
    assert_eq!(
        (summary.matched, summary.written, summary.lost),
        (39, 16, 23)
    );
    assert_eq!(stopped.code, Some(3), "a loss is not success");
    assert_eq!(fs::read_to_string(&ran).unwrap(), "once\n");
    let (events, own) = apart(&stopped);
    assert_eq!(events.len(), 16);
    assert!(events.iter().all(|event| event.records.len() == 4));
    assert_eq!(told(&own), summary.lost);
    drop(stopped);
}

/// Lost events that the daemon's own records tell of.
pub(crate) fn told(own: &[&Event]) -> u64 {
    own.iter()
        .flat_map(|event| event.records[0].fields())
        .filter(|(name, _)| name == "lost")
        .map(|(_, value)| value.parse::<u64>().unwrap())
        .sum()
}

pub(crate) fn signals_rotate_and_reconfigure_the_log() {
    let place = Place::new();
    let log = place.own.join("audit.log");
    let conf = format!(
        "{SPACE}log_format = RAW\nnum_logs = 3\nmax_log_file_action = ROTATE\nmax_log_file = 8\n"
    );
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    place.workload().run(&[rmdir()]);
    wait_for("the event", || (daemon.events().len() == 2).then_some(()));
    daemon.signal(Signal::SIGUSR1);
    let old = place.own.join("audit.log.1");
    wait_for("the new log", || {
        (old.exists() && log.exists()).then_some(())
    });
    daemon.signal(Signal::SIGUSR2);
    let has = |kind: &str| fs::read_to_string(&log).unwrap().contains(kind);
    // Signals that wait together are taken by their number, not in the order they were sent.
    wait_for("the record of USR2", || {
        has("type=DAEMON_RESUME").then_some(())
    });
    let file = place.own.join("auditd.conf");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("RAW", "ENRICHED")).unwrap();
    daemon.signal(Signal::SIGHUP);
    wait_for("the configuration", || {
        has("type=DAEMON_CONFIG").then_some(())
    });
    place.workload().run(&[rmdir()]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.summary.written, stopped.summary.lost), (2, 0));
    let (events, own) = apart(&stopped);
    let expected = [
        "DAEMON_ROTATE",
        "DAEMON_RESUME",
        "DAEMON_CONFIG",
        "DAEMON_END",
    ];
    assert_eq!(kinds(&own), expected);
    let asker = format!(" pid={} ", std::process::id());
    assert!(
        own.iter()
            .all(|event| event.records[0].line.to_string().contains(&asker))
    );
    let [event] = events.as_slice() else {
        panic!("{} events in the new log", events.len());
    };
    let line = event.records[0].line.to_string();
    assert!(
        line.contains("\u{1d}ARCH=x86_64 SYSCALL=rmdir AUID="),
        "{line}"
    );
    let old = super::event::events(&fs::read(old).unwrap());
    let old: Vec<&Event> = old.iter().collect();
    assert_eq!(kinds(&old), ["DAEMON_START", "SYSCALL"]);
}

/// What is in the file of the log's configuration, changed.
fn changed(file: &Path, from: &str, to: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let changed = text.replace(from, to);
    assert_ne!(text, changed);
    changed
}

pub(crate) fn a_log_that_is_locked_stays_where_it_is() {
    let place = Place::new();
    let (log, other) = (place.own.join("audit.log"), place.own.join("other.log"));
    let conf = format!(
        "{SPACE}log_format = RAW\nwrite_logs = yes\nnum_logs = 3\nmax_log_file = 8\nmax_log_file_action = ROTATE\n"
    );
    let rules = format!("{}-e 2\n", rule(&place));
    let daemon = Daemon::start_configured(&place, &rules, &log, &conf);
    let file = place.own.join("auditd.conf");
    let here = changed(&file, "RAW", "ENRICHED");
    let records = |kind: &str, result: &str| {
        let text = fs::read_to_string(&log).unwrap();
        let of = |line: &&str| line.starts_with(kind) && line.contains(result);
        text.lines().filter(of).count()
    };

    let paths = [&log, &other].map(|path| path.to_str().unwrap());
    let refused = [
        ("log_file", paths[0], paths[1]),
        ("write_logs", "write_logs = yes", "write_logs = no"),
        ("num_logs", "num_logs = 3", "num_logs = 2"),
    ];
    for (number, (key, from, to)) in (1..).zip(refused) {
        let text = here.replace(from, to);
        assert_ne!(text, here);
        fs::write(&file, text).unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.wait_for_line(&format!(
            "`-e 2` was given, and `{key}` stays as it is until the machine starts again"
        ));
        wait_for("the record of what was refused", || {
            (records("type=DAEMON_CONFIG ", "res=failed") == number).then_some(())
        });
    }
    place.workload().run(&[rmdir()]);
    daemon.flush();
    // What does not move or shorten it is taken.
    fs::write(&file, here).unwrap();
    daemon.signal(Signal::SIGHUP);
    wait_for("the configuration", || {
        (records("type=DAEMON_CONFIG ", "res=success") == 1).then_some(())
    });
    place.workload().run(&[rmdir()]);
    daemon.flush();
    // More often than there may be logs.
    for number in 1..=4 {
        daemon.signal(Signal::SIGUSR1);
        let oldest = place.own.join(format!("audit.log.{number}"));
        wait_for("a new log, and all old ones", || {
            (oldest.exists() && log.exists() && records("type=DAEMON_ROTATE ", "") == 1)
                .then_some(())
        });
    }
    let oldest = super::event::events(&fs::read(place.own.join("audit.log.4")).unwrap());
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.summary.written, stopped.summary.lost), (2, 0));
    assert!(!other.exists(), "it has moved all the same");
    let events = oldest
        .iter()
        .filter(|event| event.records[0].kind == "SYSCALL");
    let enriched = |event: &Event| event.records[0].line.to_string().contains("\u{1d}ARCH=");
    let enriched: Vec<bool> = events.map(enriched).collect();
    assert_eq!(enriched, [false, true], "neither format nor path was taken");
}

/// A log that has moved before, and one that could not.
pub(crate) fn what_is_locked_is_the_log_that_is_written() {
    let place = Place::new();
    let (log, other) = (place.own.join("audit.log"), place.own.join("other.log"));
    let conf = format!("{SPACE}log_format = RAW\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let file = place.own.join("auditd.conf");
    let first = fs::read_to_string(&file).unwrap();
    let moved = changed(&file, log.to_str().unwrap(), other.to_str().unwrap());
    // Nothing can be written to a directory.
    let in_vain = changed(&file, log.to_str().unwrap(), place.own.to_str().unwrap());
    let hang_up = |daemon: &Daemon, text: &str, path: &Path, record: &str| {
        fs::write(&file, text).unwrap();
        daemon.signal(Signal::SIGHUP);
        wait_for("the record of HUP", || {
            let text = fs::read_to_string(path).unwrap_or_default();
            // What becomes of the rules is told after it.
            text.lines()
                .rfind(|line| line.starts_with("type=DAEMON_"))
                .is_some_and(|line| line.contains(record))
                .then_some(())
        });
    };
    hang_up(&daemon, &moved, &other, "state=changed");
    hang_up(&daemon, &in_vain, &other, "state=no-change");
    assert_eq!(daemon.auditctl(&["-e", "2"]).code, Some(0));
    assert_eq!(daemon.status()["log"], other.to_str().unwrap());
    hang_up(&daemon, &first, &other, "state=no-change");
    daemon.wait_for_line("`log_file` stays as it is");
    hang_up(
        &daemon,
        &moved.replace("RAW", "ENRICHED"),
        &other,
        "state=changed",
    );
    place.workload().run(&[rmdir()]);
    daemon.flush();
    let text = fs::read_to_string(&other).unwrap();
    assert!(text.contains("\u{1d}ARCH=x86_64"), "{text}");
    let ended = daemon.end(Signal::SIGTERM);
    let last = ended.output.iter().find(|line| line.contains("stopped: "));
    let last = last.unwrap();
    assert!(last.ends_with(other.to_str().unwrap()), "{last}");
}

/// The daemon is root without the right to pass over modes: it cannot write a file that is closed to writers.
pub(crate) fn a_rotation_that_does_not_happen_costs_no_event() {
    let place = Place::new();
    let (log, old) = (place.own.join("audit.log"), place.own.join("audit.log.1"));
    // As a daemon of an older version leaves it when it is killed amid a rotation.
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o400)).unwrap();
    // Nothing can be renamed to that.
    fs::create_dir(&old).unwrap();
    let conf = format!("{SPACE}log_format = RAW\nnum_logs = 2\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    place.workload().run(&[rmdir()]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_line("cannot rotate the log");
    place.workload().run(&[rmdir()]);
    daemon.flush();
    let writes = |daemon: &Daemon| {
        let text = fs::read_to_string(&daemon.log).unwrap();
        text.matches("type=SYSCALL ").count()
    };
    assert_eq!(writes(&daemon), 2);
    fs::remove_dir(&old).unwrap();
    daemon.signal(Signal::SIGUSR1);
    wait_for("the new log", || {
        (old.is_file() && log.exists()).then_some(())
    });
    place.workload().run(&[rmdir()]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.summary.written, stopped.summary.lost), (3, 0));
    let (events, _own) = apart(&stopped);
    assert_eq!(events.len(), 1, "the others are in the old log");
    let mode = fs::metadata(&old).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400, "it is open to writers");
}

pub(crate) fn the_group_of_the_log_has_the_old_ones_too() {
    let place = Place::new();
    let (log, old) = (place.own.join("audit.log"), place.own.join("audit.log.1"));
    // What somebody has put there is no log.
    let (link, target) = (place.own.join("audit.log.2"), place.own.join("target"));
    fs::write(&target, "").unwrap();
    symlink(&target, &link).unwrap();
    let before = fs::metadata(&target).unwrap().mode();
    let conf = format!("{SPACE}log_format = RAW\nnum_logs = 4\nlog_group = adm\n");
    fs::write(&old, "").unwrap();
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let adm = Group::from_name("adm").unwrap().unwrap().gid.as_raw();
    let holds = |group: u32, modes: [u32; 3]| {
        for (path, mode) in [&place.own, &log, &old].into_iter().zip(modes) {
            let about = fs::metadata(path).unwrap();
            let is = (about.gid(), about.mode() & 0o7777);
            assert_eq!(is, (group, mode), "{}", path.display());
        }
        assert_eq!(fs::metadata(&target).unwrap().mode(), before);
    };
    holds(adm, [0o750, 0o640, 0o440]);
    let file = place.own.join("auditd.conf");
    for (number, (from, to)) in (1..).zip([("adm", "root"), ("root", "adm")]) {
        let text = changed(
            &file,
            &format!("log_group = {from}"),
            &format!("log_group = {to}"),
        );
        fs::write(&file, text).unwrap();
        daemon.signal(Signal::SIGHUP);
        wait_for("the configuration", || {
            let text = fs::read_to_string(&log).unwrap();
            (text.matches("type=DAEMON_CONFIG ").count() == number).then_some(())
        });
        match to {
            "root" => holds(0, [0o700, 0o600, 0o400]),
            _ => holds(adm, [0o750, 0o640, 0o440]),
        }
    }
    daemon.stop_with(Signal::SIGTERM);
}

pub(crate) fn another_priority_holds_at_once() {
    let place = Place::new();
    let log = place.own.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\npriority_boost = 3\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    let nice = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        let stat = stats
            .map(|stat| stat.unwrap())
            .find(|stat| stat.contains("(tlg-log)"))
            .unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        // The nineteenth field of all, of which two are before the name's end.
        fields.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    assert_eq!(nice(), -3);
    let file = place.own.join("auditd.conf");
    fs::write(&file, changed(&file, "boost = 3", "boost = 7")).unwrap();
    daemon.signal(Signal::SIGHUP);
    wait_for("the other priority", || (nice() == -7).then_some(()));
    daemon.stop_with(Signal::SIGTERM);
}

pub(crate) fn stock_ausearch_reads_an_enriched_log() {
    needs(
        Path::new(AUSEARCH).exists(),
        "ausearch, of Debian's package auditd",
    );
    let place = Place::new();
    let log = place.own.join("audit.log");
    let conf = format!("{SPACE}log_format = ENRICHED\nname_format = user\nname = web1\n");
    let daemon = Daemon::start_configured(&place, &rule(&place), &log, &conf);
    place.workload().run(&vec![rmdir(); 3]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.summary.written, stopped.summary.lost), (3, 0));
    let found = |arguments: &[&str]| {
        let output = Command::new(AUSEARCH)
            .arg("-if")
            .arg(&log)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = found(&["-i", "-k", "keeping", "--node", "web1"]);
    assert_eq!(text.matches("syscall=rmdir").count(), 3, "{text}");
    let unknown = format!("uid=unknown({})", place.id);
    assert!(text.contains(&unknown), "{text}");
    for kind in ["DAEMON_START", "DAEMON_END"] {
        assert!(found(&["-m", kind]).contains(kind));
    }
}
