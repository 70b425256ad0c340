//! What `-e 2` has locked, and daemons that are started with something else in mind.
//!
//! Where programs can refuse calls nobody takes away what a test has locked: `tests/vm` has those kernels.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use bstr::ByteSlice as _;
use nix::sys::signal::Signal;

use super::calls;
use super::daemon::{Account, CommandOutput, Daemon, program};
use super::event;
use super::harness::wait_for;
use super::place::Place;
use super::survive::{self, Bpf, each_once, needs_no_guard, opens};

/// Settings of somebody who would like to see less.
const OTHERS: &str = "engine = \"fentry\"\nio_uring = false\nkernel_messages = \"multicast\"\n";

/// What is pinned and stays: each daemon has programs of its own.
fn names(pins: &Path) -> Vec<String> {
    let mut names = survive::names(pins);
    names.retain(|name| !name.starts_with("prog-"));
    names.sort();
    names
}

/// Rules about the opens of a place, locked.
fn locked(place: &Place) -> String {
    format!("{}-e 2\n", opens(place, "locked"))
}

pub(crate) fn other_settings_change_nothing() {
    needs_no_guard();
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let pins = bpf.pins();
    Daemon::start_pinned(&place, &locked(&place), &pins).end(Signal::SIGTERM);
    let before = names(&pins);
    assert!(before.contains(&"locked".to_owned()), "{before:?}");
    let conf = place.own.join("tollgate.toml");
    let json = format!("[json]\nfile = \"{}\"\n", place.own.join("json").display());
    let deny = "[on_loss]\ndeny = [\"locked\"]\n";
    let mut bursts = 0;
    for (settings, told) in [
        (
            OTHERS.to_owned(),
            &["engine = \"fentry\"", "io_uring = false", "multicast"][..],
        ),
        (deny.to_owned(), &["[on_loss] deny"]),
        (json, &["[json]"]),
        (String::new(), &[]),
    ] {
        place.workload().burst(&file, 10);
        fs::write(&conf, settings).unwrap();
        let options = [
            "--pins".as_ref(),
            pins.as_os_str(),
            "--config".as_ref(),
            conf.as_os_str(),
        ];
        let daemon = Daemon::start_with_options(&place, &program(), "", &locked(&place), &options);
        assert!(daemon.has_printed("goes on where the daemon before this one has ended"));
        let not_taken = "not taken, because `-e 2` has locked the settings as well: ";
        assert_eq!(daemon.has_printed(not_taken), !told.is_empty());
        for told in told {
            assert!(daemon.has_printed(told), "not told: {told}");
        }
        place.workload().burst(&file, 10);
        bursts += 2;
        let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
        assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
        assert_eq!(names(&pins), before);
    }
    each_once(&place.own.join("audit.log"), &file, bursts * 10);
}

/// What the log says of how it is kept, and what others would like: elsewhere, nowhere, or shortened.
pub(crate) fn a_restart_moves_stops_and_shortens_no_log() {
    const KEPT: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\nwrite_logs = yes\n\
                        num_logs = 5\nmax_log_file = 99\nmax_log_file_action = KEEP_LOGS\n";
    let place = Place::new();
    let file = place.file("file", "");
    let (log, other) = (place.own.join("audit.log"), place.own.join("other.log"));
    let rules = opens(&place, "other");
    Daemon::start_configured(&place, &locked(&place), &log, KEPT).end(Signal::SIGTERM);
    // More than a MiB, after which a log of others is rotated.
    let old = "type=USER msg=audit(1.000:1): pid=1 uid=0 auid=0 ses=1 msg='old'\n".repeat(1 << 15);
    fs::write(&log, &old).unwrap();

    let none = KEPT.replace("write_logs = yes", "write_logs = no");
    let short = KEPT
        .replace("num_logs = 5", "num_logs = 2")
        .replace("99", "1")
        .replace("KEEP_LOGS", "ROTATE");
    let elsewhere = format!("log_file = {}", other.display());
    let configured: [(&Path, &str, &[&str]); 4] = [
        (&other, KEPT, &[&elsewhere]),
        (&log, &none, &["write_logs = no"]),
        (
            &log,
            &short,
            &[
                "num_logs = 2",
                "max_log_file = 1",
                "max_log_file_action = rotate",
            ],
        ),
        (&log, KEPT, &[]),
    ];
    let starts = configured.map(|(log, conf, told)| (Some((log, conf)), told));
    let only_written: (_, &[&str]) = (None, &["no auditd.conf"]);
    let mut bursts = 0;
    for (conf, told) in [only_written].into_iter().chain(starts) {
        let daemon = match conf {
            Some((log, conf)) => Daemon::start_configured(&place, &rules, log, conf),
            None => Daemon::start_with_options(&place, &program(), "", &rules, &[]),
        };
        let not_taken = "not taken, because `-e 2` has locked the settings as well: ";
        assert_eq!(daemon.has_printed(not_taken), !told.is_empty(), "{told:?}");
        for told in told {
            assert!(daemon.has_printed(told), "not told: {told}");
        }
        assert_eq!(daemon.status()["log"], log.to_str().unwrap());
        if conf.is_some() && !told.is_empty() {
            let (key, _) = told[0].split_once(' ').unwrap();
            daemon.signal(Signal::SIGHUP);
            daemon.wait_for_line(&format!("`{key}` stays as it is"));
        }
        place.workload().burst(&file, 10);
        bursts += 1;
        assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
        let text = fs::read(&log).unwrap();
        assert!(
            text.starts_with(old.as_bytes()),
            "it was shortened: {told:?}"
        );
        let name = format!(" name=\"{}\" ", file.display());
        assert_eq!(text.find_iter(&name).count(), bursts * 10, "{told:?}");
    }
    let old_log = place.own.join("audit.log.1");
    assert!(!other.exists() && !old_log.exists(), "it was moved");
}

/// The same command line, ended when it does not end by itself.
fn start_with_limit(place: &Place, pins: &Path, limit: &str) -> CommandOutput {
    let own = |name: &str| place.own.join(name);
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            "ulimit $1 && shift && exec timeout -s QUIT 5 \"$@\"",
            "bash",
            limit,
        ])
        .arg(program())
        .args(["daemon", "--foreground", "--rules"])
        .arg(own("rules"))
        .arg("--log")
        .arg(own("audit.log"))
        .arg("--control")
        .arg(own("run/control"))
        .arg("--pins")
        .arg(pins);
    CommandOutput::of(&mut command)
}

pub(crate) fn what_cannot_be_gone_on_with_stays() {
    // Where the header has the version of what is in the ring, and the hash of the programs.
    const WIRE: usize = 12;
    const OBJECT: usize = 16;
    needs_no_guard();
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let pins = bpf.pins();
    let daemon = Daemon::start_pinned(&place, &locked(&place), &pins);
    daemon.wait_for_line("rules and settings are locked");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    place.workload().burst(&file, 10);
    let before = names(&pins);
    let refused = |limit: &str, why: &str| {
        let asked = start_with_limit(&place, &pins, limit);
        assert_eq!(asked.code, Some(1), "{why}: {asked:?}");
        for part in [why, "is locked until the machine starts again"] {
            assert!(asked.stderr.contains(part), "{why}: {asked:?}");
        }
    };
    refused("-n40", "Too many open files");
    assert_eq!(names(&pins), before);
    for (offset, why) in [
        (WIRE, "its events are in format 4711"),
        (OBJECT, "another build"),
    ] {
        let word = calls::poke(&pins.join("header"), offset, 4711);
        refused("-n1024", why);
        calls::poke(&pins.join("header"), offset, word);
        assert_eq!(names(&pins), before);
    }
    let (header, away) = (pins.join("header"), pins.join("away"));
    fs::rename(&header, &away).unwrap();
    refused("-n1024", "No such file");
    fs::rename(&away, &header).unwrap();
    assert_eq!(names(&pins), before);

    // What programs and links need, the daemon takes where it may.
    place.workload().burst(&file, 10);
    let left = start_with_limit(&place, &pins, "-Sn40");
    assert!(left.stderr.contains("goes on where the daemon"), "{left:?}");
    assert!(left.stderr.contains("what audits goes on"), "{left:?}");
    assert_eq!(names(&pins), before);
    each_once(&place.own.join("audit.log"), &file, 20);
}

pub(crate) fn failed_lock_leaves_nothing_half_applied() {
    let place = Place::new();
    let bpf = Bpf::mount(&place);
    let file = place.file("file", "");
    let daemon = Daemon::start_pinned(&place, &opens(&place, "first"), &bpf.pins());
    let listed = daemon.auditctl(&["-l"]);
    let lock = daemon.control.with_file_name("locked");
    fs::create_dir(&lock).unwrap();
    let change = place.own.join("change");
    fs::write(
        &change,
        format!("-D\n-f 0\n{}-e 2\n", opens(&place, "second")),
    )
    .unwrap();
    let change: &OsStr = change.as_os_str();
    let refused = daemon.auditctl(&["-R", change.to_str().unwrap()]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(daemon.auditctl(&["-l"]), listed);
    let settings = &daemon.status()["settings"];
    assert_eq!(
        (&settings["enabled"], &settings["failure"]),
        (&1.into(), &1.into())
    );
    fs::remove_dir(&lock).unwrap();
    let left = fs::read_dir(lock.parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["control"]);
    place.workload().burst(&file, 10);
    daemon.flush();
    let opened = wait_for("the events", || {
        let log = fs::read(&daemon.log).unwrap();
        let name = format!(" name=\"{}\" ", file.display());
        (log.find_iter(&name).count() == 10).then_some(log)
    });
    event::expect_dense(&opened);
    assert_eq!(opened.find_iter(" key=\"first\"").count(), 10);
    assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
    assert_eq!(
        fs::read_dir(bpf.pins()).unwrap().count(),
        0,
        "nothing is locked"
    );
}
