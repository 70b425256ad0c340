//! The JSON log of the daemon.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::daemon::{Asked, Daemon, program};
use super::harness::wait_for;
use super::place::Place;
use super::step::step;

/// The log has every event once, with what no record holds: where an opened object lies, the parent's name
/// and the control group.
pub(crate) fn the_json_log_tells_more_than_records() {
    let place = Place::new();
    let secret = place.file("secret", "x");
    symlink("secret", place.work.join("soft")).unwrap();
    let rules = format!(
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid={} -k json\n",
        place.id
    );
    let log = place.own.join("json/events.json");
    let settings = format!("[json]\nfile = \"{}\"\n", log.display());
    let daemon = Daemon::start_with_settings(&place, &rules, &settings);
    let mut steps = vec![step!("openat", libc::AT_FDCWD, "soft", libc::O_RDONLY, 0)];
    steps.extend(vec![step!("rmdir", "/etc/missing"); 200]);
    place.workload().run(&steps);
    let mut status = Command::new(program());
    let status = Asked::of(
        status
            .args(["status", "--json", "--control"])
            .arg(&daemon.control),
    );
    let status: Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(status["json"]["left_out"], 0);
    let stopped = daemon.stop();

    let text = fs::read_to_string(&log).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let serials = |events: &[Value]| -> Vec<u64> {
        let serials = events.iter().map(|event| event["serial"].as_u64().unwrap());
        serials.collect()
    };
    let logged = Asked::of(Command::new(program()).arg("convert").arg(&stopped.log));
    let logged: Vec<Value> = logged
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(serials(&events), serials(&logged));

    let opened = events
        .iter()
        .find(|event| event["path"][0]["name"] == "soft")
        .unwrap();
    assert_eq!(opened["path"][0]["path"], json!(secret));
    assert_eq!(opened["names"]["syscall"], "openat");
    let group = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = group.lines().find_map(|line| line.strip_prefix("0::"));
    assert_eq!(opened["cgroup"].as_str(), group.or(Some("/")));
    assert!(opened["parent"]["comm"].is_string(), "{opened}");
    // Nothing of this is in the log, nor anywhere else.
    let records = fs::read_to_string(&stopped.log).unwrap();
    assert!(!records.contains("UNKNOWN[") && !text.contains("UNKNOWN["));
}

/// Each event is in the old log or in the new one.
pub(crate) fn the_json_log_is_rotated_when_somebody_asks() {
    let place = Place::new();
    let rules = format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k json\n",
        place.id
    );
    let log = place.own.join("json/events.json");
    let old = place.own.join("json/events.json.1");
    let settings = format!("[json]\nfile = \"{}\"\nkeep = 1\n", log.display());
    let daemon = Daemon::start_with_settings(&place, &rules, &settings);
    let serials = |path| -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last line may be under way.
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .map(|event| event["serial"].as_u64().unwrap())
            .collect()
    };
    place
        .workload()
        .run(&vec![step!("rmdir", "/etc/missing"); 7]);
    wait_for("the events", || (serials(&log).len() == 7).then_some(()));
    daemon.signal(Signal::SIGUSR1);
    wait_for("the new log", || (serials(&old).len() == 7).then_some(()));
    place
        .workload()
        .run(&vec![step!("rmdir", "/etc/missing"); 5]);
    drop(daemon.stop());
    let all = [serials(&old), serials(&log)];
    assert_eq!([all[0].len(), all[1].len()], [7, 5]);
    assert!(all.concat().is_sorted_by(|a, b| a + 1 == *b), "{all:?}");
}
