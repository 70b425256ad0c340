//! The log settings of `auditd.conf`: rotation, enrichment, disk error actions.

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
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

/// Settings that `auditd` requires.
pub(crate) const SPACE: &str = "space_left = 2\nadmin_space_left = 1\n";

pub(crate) fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k keeping\n",
        test_dir.id
    )
}

pub(crate) fn rmdir() -> WorkloadStep {
    step!("rmdir", "/etc/missing")
}

/// Events of the workload, and records of the daemon.
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

/// A small tmpfs, unmounted on drop.
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

/// `RLIMIT_FSIZE` makes a write fail, as a failing disk does.
pub(crate) fn log_write_error_runs_its_action() {
    let test_dir = TestDir::new();
    let log = test_dir.own.join("audit.log");
    let (program, ran) = (test_dir.own.join("action"), test_dir.own.join("ran"));
    let text = format!("#!/bin/sh\necho once >> {}\n", ran.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o750)).unwrap();
    let conf = format!(
        "{SPACE}log_format = RAW\ndisk_error_action = EXEC {}\n",
        program.display()
    );
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let limit = |daemon: &Daemon, bytes: &str| {
        let status = Command::new("prlimit")
            .args(["--pid", &daemon.pid().to_string()])
            .arg(format!("--fsize={bytes}:unlimited"))
            .status();
        assert!(status.unwrap().success(), "cannot limit the daemon");
    };
    test_dir.workload().run(&vec![rmdir(); 3]);
    daemon.flush();
    // Space for a part of an event.
    let bytes = fs::metadata(&log).unwrap().len() + 100;
    limit(&daemon, &bytes.to_string());
    test_dir.workload().run(&vec![rmdir(); 5]);
    daemon.flush();
    wait_for("the program that is run then", || {
        ran.exists().then_some(())
    });
    // Nothing is written until a signal resumes the log.
    test_dir.workload().run(&vec![rmdir(); 7]);
    daemon.flush();
    limit(&daemon, "unlimited");
    test_dir.workload().run(&vec![rmdir(); 11]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR2);
    wait_for("the record of USR2", || {
        let text = fs::read_to_string(&log).unwrap();
        text.contains("type=DAEMON_RESUME").then_some(())
    });
    test_dir.workload().run(&vec![rmdir(); 13]);
    wait_for("the reason", || {
        daemon.has_printed("File too large").then_some(())
    });
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

/// Lost events according to the daemon's records.
pub(crate) fn told(own: &[&Event]) -> u64 {
    own.iter()
        .flat_map(|event| event.records[0].fields())
        .filter(|(name, _)| name == "lost")
        .map(|(_, value)| value.parse::<u64>().unwrap())
        .sum()
}

pub(crate) fn signals_rotate_and_reconfigure_the_log() {
    let test_dir = TestDir::new();
    let log = test_dir.own.join("audit.log");
    let conf = format!(
        "{SPACE}log_format = RAW\nnum_logs = 3\nmax_log_file_action = ROTATE\nmax_log_file = 8\n"
    );
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&[rmdir()]);
    wait_for("the event", || (daemon.events().len() == 2).then_some(()));
    daemon.signal(Signal::SIGUSR1);
    let old = test_dir.own.join("audit.log.1");
    wait_for("the new log", || {
        (old.exists() && log.exists()).then_some(())
    });
    daemon.signal(Signal::SIGUSR2);
    let has = |kind: &str| fs::read_to_string(&log).unwrap().contains(kind);
    // Pending signals are delivered by number, not in the order of sending.
    wait_for("the record of USR2", || {
        has("type=DAEMON_RESUME").then_some(())
    });
    let file = test_dir.own.join("auditd.conf");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("RAW", "ENRICHED")).unwrap();
    daemon.signal(Signal::SIGHUP);
    wait_for("the configuration", || {
        has("type=DAEMON_CONFIG").then_some(())
    });
    test_dir.workload().run(&[rmdir()]);
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

/// Changes the file with the log's configuration.
fn changed(file: &Path, from: &str, to: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let changed = text.replace(from, to);
    assert_ne!(text, changed);
    changed
}

pub(crate) fn locked_log_keeps_its_path() {
    let test_dir = TestDir::new();
    let (log, other) = (
        test_dir.own.join("audit.log"),
        test_dir.own.join("other.log"),
    );
    let conf = format!(
        "{SPACE}log_format = RAW\nwrite_logs = yes\nnum_logs = 3\nmax_log_file = 8\nmax_log_file_action = ROTATE\n"
    );
    let rules = format!("{}-e 2\n", rule(&test_dir));
    let daemon = Daemon::start_configured(&test_dir, &rules, &log, &conf);
    let file = test_dir.own.join("auditd.conf");
    let here = changed(&file, "RAW", "ENRICHED");
    let records = |kind: &str, result: &str| {
        // There is none for a moment while it is rotated.
        let text = fs::read_to_string(&log).unwrap_or_default();
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
        daemon.wait_for_line(&format!("`-e 2` locked `{key}` until the machine restarts"));
        wait_for("the record of what was refused", || {
            (records("type=DAEMON_CONFIG ", "res=failed") == number).then_some(())
        });
    }
    test_dir.workload().run(&[rmdir()]);
    daemon.flush();
    // Settings that do not move or shorten the log are accepted.
    fs::write(&file, here).unwrap();
    daemon.signal(Signal::SIGHUP);
    wait_for("the configuration", || {
        (records("type=DAEMON_CONFIG ", "res=success") == 1).then_some(())
    });
    test_dir.workload().run(&[rmdir()]);
    daemon.flush();
    // More rotations than logs may exist.
    for number in 1..=4 {
        let before = fs::metadata(&log).unwrap().ino();
        daemon.signal(Signal::SIGUSR1);
        let oldest = test_dir.own.join(format!("audit.log.{number}"));
        wait_for("a new log, and all old ones", || {
            let is_new = fs::metadata(&log).is_ok_and(|now| now.ino() != before);
            (oldest.exists() && is_new && records("type=DAEMON_ROTATE ", "") == 1).then_some(())
        });
    }
    let oldest = super::event::events(&fs::read(test_dir.own.join("audit.log.4")).unwrap());
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

/// A log that was moved before, and a log that could not be moved.
pub(crate) fn locked_log_is_the_one_in_use() {
    let test_dir = TestDir::new();
    let (log, other) = (
        test_dir.own.join("audit.log"),
        test_dir.own.join("other.log"),
    );
    let conf = format!("{SPACE}log_format = RAW\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let file = test_dir.own.join("auditd.conf");
    let first = fs::read_to_string(&file).unwrap();
    let moved = changed(&file, log.to_str().unwrap(), other.to_str().unwrap());
    // A directory cannot be written to.
    let in_vain = changed(&file, log.to_str().unwrap(), test_dir.own.to_str().unwrap());
    let hang_up = |daemon: &Daemon, text: &str, path: &Path, record: &str| {
        fs::write(&file, text).unwrap();
        daemon.signal(Signal::SIGHUP);
        wait_for("the record of HUP", || {
            let text = fs::read_to_string(path).unwrap_or_default();
            // The result for the rules is printed after it.
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
    daemon.wait_for_line("`-e 2` locked `log_file`");
    hang_up(
        &daemon,
        &moved.replace("RAW", "ENRICHED"),
        &other,
        "state=changed",
    );
    test_dir.workload().run(&[rmdir()]);
    daemon.flush();
    let text = fs::read_to_string(&other).unwrap();
    assert!(text.contains("\u{1d}ARCH=x86_64"), "{text}");
    let ended = daemon.end(Signal::SIGTERM);
    let last = ended.output.iter().find(|line| line.contains("stopped: "));
    let last = last.unwrap();
    assert!(last.ends_with(other.to_str().unwrap()), "{last}");
}

/// The daemon is root without `CAP_DAC_OVERRIDE`: it cannot write a read-only file.
pub(crate) fn failed_rotation_loses_no_event() {
    let test_dir = TestDir::new();
    let (log, old) = (
        test_dir.own.join("audit.log"),
        test_dir.own.join("audit.log.1"),
    );
    // The state that an older version leaves when killed during a rotation.
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o400)).unwrap();
    // The rename to this name fails.
    fs::create_dir(&old).unwrap();
    let conf = format!("{SPACE}log_format = RAW\nnum_logs = 2\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&[rmdir()]);
    daemon.flush();
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_line("cannot rotate log `");
    test_dir.workload().run(&[rmdir()]);
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
    test_dir.workload().run(&[rmdir()]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!((stopped.summary.written, stopped.summary.lost), (3, 0));
    let (events, _own) = apart(&stopped);
    assert_eq!(events.len(), 1, "the others are in the old log");
    let mode = fs::metadata(&old).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o400, "it is open to writers");
}

pub(crate) fn log_group_applies_to_rotated_logs() {
    let test_dir = TestDir::new();
    let (log, old) = (
        test_dir.own.join("audit.log"),
        test_dir.own.join("audit.log.1"),
    );
    // A file of another program is not a log.
    let (link, target) = (
        test_dir.own.join("audit.log.2"),
        test_dir.own.join("target"),
    );
    fs::write(&target, "").unwrap();
    symlink(&target, &link).unwrap();
    let before = fs::metadata(&target).unwrap().mode();
    let conf = format!("{SPACE}log_format = RAW\nnum_logs = 4\nlog_group = adm\n");
    fs::write(&old, "").unwrap();
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let adm = Group::from_name("adm").unwrap().unwrap().gid.as_raw();
    let holds = |group: u32, modes: [u32; 3]| {
        for (path, mode) in [&test_dir.own, &log, &old].into_iter().zip(modes) {
            let about = fs::metadata(path).unwrap();
            let is = (about.gid(), about.mode() & 0o7777);
            assert_eq!(is, (group, mode), "{}", path.display());
        }
        assert_eq!(fs::metadata(&target).unwrap().mode(), before);
    };
    holds(adm, [0o750, 0o640, 0o440]);
    let file = test_dir.own.join("auditd.conf");
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

pub(crate) fn priority_change_applies_at_once() {
    let test_dir = TestDir::new();
    let log = test_dir.own.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\npriority_boost = 3\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let nice = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")));
        let stat = stats
            .map(|stat| stat.unwrap())
            .find(|stat| stat.contains("(tlg-log)"))
            .unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        // Field 19 of `stat`; two fields precede the end of the name.
        fields.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    assert_eq!(nice(), -3);
    let file = test_dir.own.join("auditd.conf");
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
    let test_dir = TestDir::new();
    let log = test_dir.own.join("audit.log");
    let conf = format!("{SPACE}log_format = ENRICHED\nname_format = user\nname = web1\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&vec![rmdir(); 3]);
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
    let unknown = format!("uid=unknown({})", test_dir.id);
    assert!(text.contains(&unknown), "{text}");
    for kind in ["DAEMON_START", "DAEMON_END"] {
        assert!(found(&["-m", kind]).contains(kind));
    }
}
