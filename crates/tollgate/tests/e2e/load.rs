//! High event rates: nothing is lost while the ring has room, and losses are counted.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;

use super::daemon::{Account, Daemon};
use super::event::{ausearch, events};
use super::step::step;
use super::test_dir::TestDir;
use super::workload::Workload;

pub(crate) fn burst_loses_nothing() {
    const PAIRS: u32 = 50_000;
    const PART_EVENTS: usize = 2500;
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let rule = format!(
        "-a always,exit -F arch=b64 -S open,openat,close -F uid={} -k burst\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    test_dir.workload().burst(&file, PAIRS);
    let Account {
        summary,
        code,
        log: path,
        ..
    } = daemon.end(Signal::SIGTERM);
    assert_eq!(
        (summary.lost, summary.matched, code),
        (0, summary.written, Some(0))
    );
    let name = format!(" name=\"{}\" ", file.display());
    let log = fs::read(&path).unwrap();
    let count = |text: &[u8], needle: &str| text.find_iter(needle).count();
    let pairs = usize::try_from(PAIRS).unwrap();
    let written = usize::try_from(summary.written).unwrap();
    assert_eq!(count(&log, &name), pairs, "opens in the log");
    assert!(count(&log, " syscall=3 ") >= pairs, "closes in the log");
    assert_eq!(count(&log, "type=SYSCALL "), written, "events in the log");

    // For each record ausearch searches all events of the last two seconds: minutes for the whole burst, seconds
    // for its parts.
    let mut found = 0;
    let mut rest = log.as_slice();
    let part = test_dir.own.join("part.log");
    while !rest.is_empty() {
        let at = rest
            .find_iter("\ntype=SYSCALL ")
            .nth(PART_EVENTS)
            .map_or(rest.len(), |at| at + 1);
        fs::write(&part, &rest[..at]).unwrap();
        found += count(&ausearch(&part, &["--raw", "-k", "burst"]), "type=SYSCALL ");
        rest = &rest[at..];
    }
    assert_eq!(found, written, "events that ausearch finds");
}

/// More opens of [`file_with_a_long_name`] than have room in the ring of 64 MiB.
const TOO_MANY_OPENS: u32 = 20_000;

/// A file whose events have a name of 4,000 bytes.
fn file_with_a_long_name(test_dir: &TestDir) -> PathBuf {
    let mut path = test_dir.work.clone();
    while path.as_os_str().len() < 3900 {
        path.push("x".repeat(250).as_str());
        fs::create_dir(&path).unwrap();
        chown(&path, Some(test_dir.id), Some(test_dir.id)).unwrap();
    }
    path.push("file");
    fs::write(&path, "").unwrap();
    path
}

/// A user other than that of the workload.
pub(crate) const fn other_user(test_dir: &TestDir) -> u32 {
    test_dir.id + 1_000_000
}

pub(crate) fn full_ring_losses_are_counted() {
    let test_dir = TestDir::new();
    let path = file_with_a_long_name(&test_dir);
    let other = other_user(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat -F uid={} -k full\n\
         -a always,exit -F arch=b64 -S rmdir -F uid={other} -k after\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    daemon.signal(Signal::SIGSTOP);
    test_dir.workload().burst(&path, TOO_MANY_OPENS);
    daemon.signal(Signal::SIGCONT);
    // The user has used up his share until the daemon has read a part of the ring.
    Workload::new(other, &test_dir.work).run(&[step!("rmdir", "/etc/missing")]);
    daemon.flush();
    let rules = by_rule(&daemon);
    let Account {
        summary, code, log, ..
    } = daemon.end(Signal::SIGTERM);
    let [(after, of_after), (full, of_full)] = rules.as_slice() else {
        panic!("{rules:?}");
    };
    assert!(
        after.contains("after") && full.contains("full"),
        "{rules:?}"
    );
    assert_eq!(*of_after, (1, 0), "a rule that has lost nothing");
    assert_eq!(*of_full, (summary.matched - 1, summary.lost));
    assert!(summary.matched >= u64::from(TOO_MANY_OPENS), "{summary:?}");
    assert!(summary.lost > 0 && summary.written > 0, "{summary:?}");
    assert_eq!(
        summary.matched,
        summary.written + summary.lost,
        "{summary:?}"
    );
    let logged = fs::read(&log).unwrap().find_iter("type=SYSCALL ").count();
    assert_eq!(u64::try_from(logged).unwrap(), summary.written);
    assert_eq!(code, Some(3), "losing events is no success");
    assert_eq!(told(&log, "ring-full"), summary.lost, "the log says so");
}

pub(crate) fn flood_costs_no_event_of_another_user() {
    const OF_OTHER: usize = 500;
    let test_dir = TestDir::new();
    let path = file_with_a_long_name(&test_dir);
    let other = other_user(&test_dir);
    let rule = format!(
        "-a always,exit -F arch=b64 -S openat -F uid={} -k flood\n\
         -a always,exit -F arch=b64 -S rmdir -F uid={other} -k other\n",
        test_dir.id
    );
    let daemon = Daemon::start(&test_dir, &rule);
    daemon.signal(Signal::SIGSTOP);
    test_dir.workload().burst(&path, TOO_MANY_OPENS);
    let steps = vec![step!("rmdir", "/etc/missing"); OF_OTHER];
    Workload::new(other, &test_dir.work).run(&steps);
    daemon.signal(Signal::SIGCONT);
    daemon.flush();
    let status: serde_json::Value = serde_json::from_str(&daemon.ask("status")).unwrap();
    let by_owner = &status["status"]["by_owner"];
    let Account { summary, log, .. } = daemon.end(Signal::SIGTERM);
    let of_other = ausearch(&log, &["--raw", "-k", "other"]);
    assert_eq!(of_other.find_iter("type=SYSCALL ").count(), OF_OTHER);
    // The first half of the ring, and a part of the second, are for anybody.
    assert!(
        summary.written > u64::from(TOO_MANY_OPENS) / 3,
        "{summary:?}"
    );
    assert!(summary.lost > u64::from(TOO_MANY_OPENS) / 4, "{summary:?}");
    let expected =
        serde_json::json!([{"uid": test_dir.id, "namespace": null, "lost": summary.lost}]);
    assert_eq!(*by_owner, expected);
    let reports = events(&ausearch(&log, &["--raw", "-m", "DAEMON_ERR"]));
    let reports = reports.iter().flat_map(|event| &event.records);
    let lost: u64 = reports
        .filter(|record| record.value("uid") == test_dir.id.to_string())
        .map(|record| record.value("lost").parse::<u64>().unwrap())
        .sum();
    assert_eq!(lost, summary.lost, "the log says whose");
}

/// Matched and lost events of each rule, by its text.
#[track_caller]
fn by_rule(daemon: &Daemon) -> Vec<(String, (u64, u64))> {
    let status: serde_json::Value = serde_json::from_str(&daemon.ask("status")).unwrap();
    let rules = status["status"]["by_rule"].as_array().unwrap();
    let count = |value: &serde_json::Value| value.as_u64().unwrap();
    let mut rules: Vec<_> = rules
        .iter()
        .map(|rule| {
            let lost = rule["lost"].as_object().unwrap().values().map(count).sum();
            let text = rule["rule"].as_str().unwrap().to_owned();
            (text, (count(&rule["matched"]), lost))
        })
        .collect();
    rules.sort_by_key(|(_, (matched, _))| *matched);
    rules
}

/// Events lost for this reason according to the log, as read by the stock reader.
#[track_caller]
fn told(log: &Path, reason: &str) -> u64 {
    let found = events(&ausearch(log, &["--raw", "-m", "DAEMON_ERR"]));
    let records = found.iter().flat_map(|event| &event.records);
    records
        .filter(|record| record.value("reason") == format!("\"{reason}\""))
        .map(|record| record.value("lost").parse::<u64>().unwrap())
        .sum()
}

/// New lines of the kernel log.
fn kernel_log() -> File {
    let mut file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open("/dev/kmsg")
        .unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file
}

/// Lines written since; each read returns one.
fn since(mut file: File) -> Vec<String> {
    let mut lines = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        match file.read(&mut buffer) {
            Ok(len) => lines.push(String::from_utf8_lossy(&buffer[..len]).into_owned()),
            // Unread lines were overwritten.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(_none) => return lines,
        }
    }
}

pub(crate) fn rate_limit_losses_are_counted_and_reported() {
    const CALLS: u64 = 2000;
    for (mode, told_by_kernel) in [(0, false), (1, true)] {
        let test_dir = TestDir::new();
        let rules = format!(
            "-r 8\n-f {}\n-a always,exit -F arch=b64 -S rmdir -F uid={} -k rate\n",
            1 - mode,
            test_dir.id
        );
        let daemon = Daemon::start(&test_dir, &rules);
        // The daemon has dropped the capability to open the file.
        let set = daemon.auditctl(&["-f", &mode.to_string()]);
        assert_eq!(set.code, Some(0), "{set:?}");
        let kernel = kernel_log();
        let steps = vec![step!("rmdir", "/etc/missing"); usize::try_from(CALLS).unwrap()];
        test_dir.workload().run(&steps);
        daemon.flush();
        let status = daemon.auditctl(&["-s"]).stdout;
        assert!(!status.contains("\nlost 0\n"), "{status}");
        assert!(status.contains("\nbacklog 0\n"), "{status}");
        let Account {
            summary, code, log, ..
        } = daemon.end(Signal::SIGTERM);
        assert_eq!(summary.matched, CALLS);
        assert_eq!(summary.written + summary.lost, CALLS, "{summary:?}");
        // Two events of four records per second; the calls take far less than a hundred seconds.
        assert!((2..200).contains(&summary.written), "{summary:?}");
        assert_eq!(told(&log, "rate-limit"), summary.lost);
        assert_eq!(code, Some(3));
        let lines = since(kernel);
        let tells = lines
            .iter()
            .any(|line| line.contains("tollgate: ") && line.contains("events lost: rate limit"));
        assert_eq!(tells, told_by_kernel, "-f {mode}: {lines:?}");
    }
}
