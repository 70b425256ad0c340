//! Losses that the log does not report when the daemon ends.

use super::super::disk_actions::Fault;
use super::*;

impl TestLog {
    /// Loses events of a log that is suspended.
    fn lose(&mut self, events: u64) {
        let full = std::io::ErrorKind::StorageFull.into();
        self.log.disk_failed(Fault::Write, &full);
        assert_eq!(self.log.append(EVENT, events, &mut ()).lost, events);
    }

    /// Records of the log about losses.
    fn losses(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        let lines = text.lines().filter(|line| line.contains("op=lost-events"));
        let behind_stamp = |line: &str| line.split_once("): ").unwrap().1.to_owned();
        lines.map(behind_stamp).collect()
    }
}

fn suspending() -> Settings {
    Settings {
        disk_full_action: Action::Suspend,
        ..settings()
    }
}

#[test]
fn next_daemon_reports_what_a_suspended_log_lost() {
    let mut test = TestLog::new(suspending());
    test.lose(3);
    test.lose(2);
    test.log.end(SignalSender::this());
    let mut test = test.reopen();
    let expected = ["op=lost-events lost=5 reason=\"the-log-is-suspended\" res=failed"];
    assert_eq!(test.losses("audit.log"), expected);
    test.log.end(SignalSender::this());
    let test = test.reopen();
    assert_eq!(test.losses("audit.log"), expected, "reported once");
}

#[test]
fn losses_of_several_daemons_add_up() {
    let mut test = TestLog::new(suspending());
    test.lose(3);
    let mut test = test.reopen();
    // The record about the first three was written.
    test.lose(2);
    assert_eq!(test.log.suspension().unwrap().events, 2);
    let test = test.reopen();
    assert_eq!(test.losses("audit.log").len(), 2);
}

#[test]
fn resume_that_fails_keeps_the_count_and_says_nothing() {
    let mut test = TestLog::new(Settings {
        max_log_file_action: MaxLogFileAction::Suspend,
        ..suspending()
    });
    test.log.append(&mebibyte(), 5, &mut ());
    assert_eq!(test.log.append(EVENT, 3, &mut ()).lost, 3);
    test.log.resume_on_signal(SignalSender::this());
    assert_eq!(test.log.suspension().unwrap().events, 3);
    assert!(!test.text("audit.log").contains("op=resume-logging"));
}

#[test]
fn another_log_reports_what_the_one_before_did_not() {
    let mut test = TestLog::new(suspending());
    test.lose(4);
    let other = test.path("other.log");
    let config = LogConfig::configured(suspending(), Some(other)).unwrap();
    assert!(test.log.configure(Some(config), SignalSender::this()));
    test.log.append(EVENT, 1, &mut ());
    assert_eq!(test.losses("other.log").len(), 1);
    let test = test.reopen();
    assert_eq!(test.losses("audit.log").len(), 0);
}

#[test]
fn log_that_is_not_locked_for_lack_of_room_is_locked_later() {
    let mut test = TestLog::new(settings());
    let lock = test.path(".audit.log.lock");
    test.log.lock = None;
    assert!(!lock.exists());
    test.log.append(EVENT, 1, &mut ());
    assert!(lock.exists());
}

#[test]
fn record_about_losses_that_cannot_be_written_is_no_event() {
    let mut test = TestLog::new(settings());
    test.log.log = None;
    for _ in 0..3 {
        test.log.append(EVENT, 2, &mut ());
    }
    assert_eq!(test.log.suspension().unwrap().events, 6);
}
