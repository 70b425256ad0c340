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
use super::daemon::{Account, Asked, Daemon, program};
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
        let daemon = Daemon::plain(&place, &program(), "", &locked(&place), &options);
        assert!(daemon.has_said("goes on where the daemon before this one has ended"));
        let not_taken = "not taken, because `-e 2` has locked the settings as well: ";
        assert_eq!(daemon.has_said(not_taken), !told.is_empty());
        for told in told {
            assert!(daemon.has_said(told), "not told: {told}");
        }
        place.workload().burst(&file, 10);
        bursts += 2;
        let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
        assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
        assert_eq!(names(&pins), before);
    }
    each_once(&place.own.join("audit.log"), &file, bursts * 10);
}

/// The same command line, ended when it does not end by itself.
fn start_with_limit(place: &Place, pins: &Path, limit: &str) -> Asked {
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
    Asked::of(&mut command)
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
    let mut daemon = Daemon::start_pinned(&place, &locked(&place), &pins);
    daemon.hear("rules and settings are locked");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    place.workload().burst(&file, 10);
    let before = names(&pins);
    let refused = |limit: &str, why: &str| {
        let asked = start_with_limit(&place, &pins, limit);
        assert_eq!(asked.code, Some(1), "{why}: {asked:?}");
        for part in [why, "is locked until the machine starts again"] {
            assert!(asked.said.contains(part), "{why}: {asked:?}");
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
    assert!(left.said.contains("goes on where the daemon"), "{left:?}");
    assert!(left.said.contains("what audits goes on"), "{left:?}");
    assert_eq!(names(&pins), before);
    each_once(&place.own.join("audit.log"), &file, 20);
}

pub(crate) fn what_cannot_be_locked_is_not_half_done() {
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
