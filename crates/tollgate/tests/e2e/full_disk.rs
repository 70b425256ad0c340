//! A full disk: losses are counted and reported; if old logs may be removed, nothing is lost.

use std::fs;

use nix::sys::signal::Signal;

use super::daemon::Daemon;
use super::harness::wait_for;
use super::log_settings::{SPACE, Small, apart, rmdir, rule, told};
use super::test_dir::TestDir;

pub(crate) fn full_disk_losses_are_counted_and_reported() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("small");
    let small = Small::mount(&path, "512k");
    let ballast = small.0.join("ballast");
    fs::write(&ballast, vec![0; 300 << 10]).unwrap();
    let log = small.0.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\ndisk_full_action = SYSLOG\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    // Some 800 bytes each, in total more than the disk holds.
    test_dir.workload().run(&vec![rmdir(); 1000]);
    // No pending event may use the space freed now: the disk would be full again, and the last losses could not
    // be reported.
    daemon.flush();
    fs::remove_file(&ballast).unwrap();
    test_dir.workload().run(&vec![rmdir(); 20]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    let summary = &stopped.summary;
    assert_eq!(summary.matched, 1020);
    assert_eq!(summary.written + summary.lost, 1020);
    assert!(
        summary.lost > 0 && summary.written >= 20,
        "{}",
        summary.lost
    );
    assert_eq!(stopped.code, Some(3), "a loss is not success");
    let (events, own) = apart(&stopped);
    assert_eq!(u64::try_from(events.len()).unwrap(), summary.written);
    // SYSCALL, CWD, PATH, PROCTITLE: no event is in the log in part.
    for event in &events {
        assert_eq!(event.records.len(), 4, "{event}");
    }
    assert_eq!(told(&own), summary.lost);
    drop(stopped);
}

/// Events without room are written after the oldest log has been removed.
pub(crate) fn rotation_on_a_full_disk_loses_nothing() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("small");
    let small = Small::mount(&path, "512k");
    let log = small.0.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\nnum_logs = 3\ndisk_full_action = ROTATE\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    test_dir.workload().run(&vec![rmdir(); 400]);
    daemon.flush();
    assert_eq!(daemon.auditctl(&["--signal", "rotate"]).code, Some(0));
    wait_for("the log is rotated", || {
        small.0.join("audit.log.1").exists().then_some(())
    });
    // One batch, of which about half fits.
    daemon.signal(Signal::SIGSTOP);
    test_dir.workload().run(&vec![rmdir(); 400]);
    daemon.signal(Signal::SIGCONT);
    daemon.flush();
    daemon.wait_for_line("removed the oldest file, `audit.log.1`");
    assert!(!small.0.join("audit.log.1").exists());
    let stopped = daemon.stop_with(Signal::SIGTERM);
    let summary = &stopped.summary;
    assert_eq!(
        (summary.matched, summary.written, summary.lost),
        (800, 800, 0)
    );
    assert_eq!(stopped.code, Some(0));
    let (events, _own) = apart(&stopped);
    assert_eq!(events.len(), 400, "none is in part or twice");
    drop(stopped);
}

pub(crate) fn status_shows_a_suspended_log() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("small");
    let small = Small::mount(&path, "512k");
    let ballast = small.0.join("ballast");
    fs::write(&ballast, vec![0; 300 << 10]).unwrap();
    let log = small.0.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\ndisk_full_action = SUSPEND\n");
    let daemon = Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    assert!(daemon.status()["suspended"].is_null());
    test_dir.workload().run(&vec![rmdir(); 1000]);
    daemon.flush();
    let status = daemon.status();
    let suspended = &status["suspended"];
    assert_eq!(suspended["setting"], "disk_full_action", "{status}");
    let reason = format!("no space left for log `{}`: ", log.display());
    let found = suspended["reason"].as_str().unwrap();
    assert!(
        found.starts_with(&reason) && found.ends_with(" KiB free"),
        "{found}"
    );
    let message = daemon.wait_for_line("disk_full_action suspends logging");
    assert!(message.contains(found), "{message}");
    assert!(
        message.contains("run `tollgate auditctl --signal resume`"),
        "{message}"
    );
    let shown = daemon.show_status();
    assert_eq!(shown.code, Some(3), "{shown:?}");
    assert!(shown.stdout.contains(&reason), "{}", shown.stdout);
    let missing = suspended["events"].as_u64().unwrap();
    assert!(missing > 0 && missing < 1000, "{missing}");
    assert!(suspended["since"].as_u64().unwrap() > 0);
    let still_full = daemon.auditctl(&["--signal", "resume"]);
    assert_ne!(still_full.code, Some(0), "{}", still_full.stderr);
    assert!(
        still_full.stderr.contains("still suspended"),
        "{}",
        still_full.stderr
    );
    fs::remove_file(&ballast).unwrap();
    let resumed = daemon.auditctl(&["--signal", "resume"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    // The log thread may take the flush before the command.
    wait_for("the log is resumed", || {
        daemon.status()["suspended"].is_null().then_some(())
    });
    test_dir.workload().run(&vec![rmdir(); 20]);
    let stopped = daemon.stop_with(Signal::SIGTERM);
    assert_eq!(stopped.summary.written + stopped.summary.lost, 1020);
    assert!(stopped.summary.lost >= missing);
    drop(stopped);
}

/// Room is there again when the next daemon starts.
pub(crate) fn next_daemon_reports_what_a_killed_one_lost() {
    let test_dir = TestDir::new();
    let path = test_dir.own.join("small");
    let small = Small::mount(&path, "512k");
    let ballast = small.0.join("ballast");
    fs::write(&ballast, vec![0; 300 << 10]).unwrap();
    let log = small.0.join("audit.log");
    let conf = format!("{SPACE}log_format = RAW\ndisk_full_action = SUSPEND\n");
    let start = || Daemon::start_configured(&test_dir, &rule(&test_dir), &log, &conf);
    let daemon = start();
    test_dir.workload().run(&vec![rmdir(); 1000]);
    daemon.flush();
    let missing = daemon.status()["suspended"]["events"].as_u64().unwrap();
    assert!(missing > 0, "{missing}");
    daemon.kill();
    fs::remove_file(&ballast).unwrap();
    let stopped = start().stop_with(Signal::SIGTERM);
    let (events, own) = apart(&stopped);
    assert_eq!(told(&own), missing);
    assert_eq!(u64::try_from(events.len()).unwrap() + missing, 1000);
    assert!(!small.0.join(".audit.log.lock").exists());
    drop(stopped);
}
