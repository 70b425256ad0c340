//! The JSON log of the daemon.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::daemon::{CommandOutput, Daemon, program};
use super::event::{self, Event};
use super::harness::wait_for;
use super::log_settings::{Small, told};
use super::step::{WorkloadStep, step};
use super::test_dir::TestDir;

fn rule(test_dir: &TestDir) -> String {
    format!(
        "-a always,exit -F arch=b64 -S rmdir -F uid={} -k json\n",
        test_dir.id
    )
}

fn rmdirs(count: usize) -> Vec<WorkloadStep> {
    vec![step!("rmdir", "/etc/missing"); count]
}

/// The log has every event once, with fields that no record has: the path of an opened object, the parent's
/// name and the control group.
pub(crate) fn json_log_has_more_than_records() {
    let test_dir = TestDir::new();
    let secret = test_dir.file("secret", "x");
    symlink("secret", test_dir.work.join("soft")).unwrap();
    let rules = format!(
        "-a always,exit -F arch=b64 -S openat,rmdir -F uid={} -k json\n",
        test_dir.id
    );
    let log = test_dir.own.join("json/events.json");
    let settings = format!("[json]\nfile = \"{}\"\n", log.display());
    let daemon = Daemon::start_with_settings(&test_dir, &rules, &settings);
    let mut steps = vec![step!("openat", libc::AT_FDCWD, "soft", libc::O_RDONLY, 0)];
    steps.extend(vec![step!("rmdir", "/etc/missing"); 200]);
    test_dir.workload().run(&steps);
    assert_eq!(daemon.status()["json"]["left_out"], 0);
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
    let logged = CommandOutput::of(Command::new(program()).arg("convert").arg(&stopped.log));
    let logged: Vec<Value> = logged
        .stdout
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
    // Neither the log nor another file has these.
    let records = fs::read_to_string(&stopped.log).unwrap();
    assert!(!records.contains("UNKNOWN[") && !text.contains("UNKNOWN["));
}

/// Each event is in exactly one of the old and the new log.
pub(crate) fn json_log_is_rotated_on_request() {
    let test_dir = TestDir::new();
    let rules = rule(&test_dir);
    let log = test_dir.own.join("json/events.json");
    let old = test_dir.own.join("json/events.json.1");
    let settings = format!("[json]\nfile = \"{}\"\nkeep = 1\n", log.display());
    let daemon = Daemon::start_with_settings(&test_dir, &rules, &settings);
    let serials = |path| -> Vec<u64> {
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last line may be incomplete.
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .map(|event| event["serial"].as_u64().unwrap())
            .collect()
    };
    test_dir.workload().run(&rmdirs(7));
    wait_for("the events", || (serials(&log).len() == 7).then_some(()));
    daemon.signal(Signal::SIGUSR1);
    wait_for("the new log", || (serials(&old).len() == 7).then_some(()));
    test_dir.workload().run(&rmdirs(5));
    drop(daemon.stop());
    let all = [serials(&old), serials(&log)];
    assert_eq!([all[0].len(), all[1].len()], [7, 5]);
    assert!(all.concat().is_sorted_by(|a, b| a + 1 == *b), "{all:?}");
}

/// After a flush, both logs have all earlier events.
pub(crate) fn flush_waits_for_the_json_log() {
    let test_dir = TestDir::new();
    let log = test_dir.own.join("json/events.json");
    let settings = format!("[json]\nfile = \"{}\"\n", log.display());
    let daemon = Daemon::start_with_settings(&test_dir, &rule(&test_dir), &settings);
    for round in 1..=20 {
        test_dir.workload().run(&rmdirs(1));
        assert_eq!(daemon.flush(), "\"done\"\n");
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text.lines().count(), 2 * round - 1, "the event");
        let message = format!("round-{round}.");
        assert_eq!(daemon.auditctl(&["-m", &message]).code, Some(0));
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains(&message), "the message");
    }
    drop(daemon);
}

/// Losses of the JSON log are in the log and in the status, and a flush reports them.
pub(crate) fn json_log_losses_are_reported_in_the_log() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("small");
    let small = Small::mount(&path, "68k");
    let log = small.0.join("events.json");
    let settings = format!("[json]\nfile = \"{}\"\n", log.display());
    let daemon = Daemon::start_with_settings(&test_dir, &rule(&test_dir), &settings);
    let ballast = small.0.join("ballast");
    fs::write(&ballast, vec![0; 64 << 10]).unwrap();
    let left_out = || daemon.status()["json"]["left_out"].as_u64().unwrap();
    for run in 1..=3 {
        test_dir.workload().run(&rmdirs(100));
        let answer = daemon.flush();
        assert!(answer.contains("cannot write the JSON log: No space"));
        assert_eq!(left_out(), run * 100);
    }
    wait_for("the losses in the log", || {
        (told_of_json(&daemon.events()) == 300).then_some(())
    });
    fs::remove_file(&ballast).unwrap();
    test_dir.workload().run(&rmdirs(20));
    assert_eq!(daemon.flush(), "\"done\"\n");
    assert_eq!(left_out(), 300);
    // No page is left; an event may still fit at the end of the last page. The lock has a page.
    fs::write(&ballast, vec![0; 64 << 10]).unwrap_err();
    test_dir.workload().run(&rmdirs(100));
    let ended = daemon.end(Signal::SIGTERM);
    assert_eq!((ended.summary.written, ended.summary.lost), (420, 0));
    let before = "missing in the JSON log: ";
    let counted = ended.output.iter().find_map(|line| {
        let (_, rest) = line.split_once(before)?;
        rest.split(' ').next()?.parse::<u64>().ok()
    });
    let events = event::events(&fs::read(&ended.log).unwrap());
    let told = told_of_json(&events);
    assert!(told > 300 && Some(told) == counted, "{told}, {counted:?}");
    let written = fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(u64::try_from(written).unwrap() + told, 420);
}

/// Losses of the JSON log according to records.
fn told_of_json(events: &[Event]) -> u64 {
    let own: Vec<&Event> = events
        .iter()
        .filter(|event| {
            let record = &event.records[0];
            record.kind == "DAEMON_ERR" && record.value("op") == "lost-json-events"
        })
        .collect();
    told(&own)
}
