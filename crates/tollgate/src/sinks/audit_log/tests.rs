//! The audit log with a fake machine that records actions.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use audit::conf::auditd::{
    Action, MaxLogFileAction, NameFormat, OverflowAction, Settings, SpaceLimit,
};
use audit::ids::MsgType;
use audit::record::encode;
use bstr::ByteVec as _;
use tempfile::TempDir;

use super::write::whole_events;
use super::*;
use actions::RecordedActions;

mod actions;
mod archive;
mod archive_failures;
mod disk;
mod index;
mod locked;
mod losses;

/// A log in its own directory.
struct TestLog {
    directory: TempDir,
    actions: RecordedActions,
    log: AuditLog,
}

/// Base settings of each test.
fn settings() -> Settings {
    Settings {
        log_format: LogFormat::Raw,
        max_log_file: 1,
        plugin_dir: "/nonexistent".into(),
        ..Settings::default()
    }
}

impl TestLog {
    fn new(settings: Settings) -> Self {
        Self::open(settings, tempfile::tempdir().unwrap())
    }

    /// The log of the next daemon.
    fn reopen(self) -> Self {
        let settings = self.log.config.conf.clone().unwrap();
        drop(self.log);
        Self::open(*settings, self.directory)
    }

    fn open(settings: Settings, directory: TempDir) -> Self {
        let actions = RecordedActions::default();
        let path = directory.path().join("audit.log");
        let config = LogConfig::configured(settings, Some(path)).unwrap();
        let log = AuditLog::open(
            config,
            OldLogPolicy::AsConfigured,
            Box::new(actions.clone()),
            None,
        )
        .unwrap();
        Self {
            directory,
            actions,
            log,
        }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    /// Lines of the log without the daemon's own records.
    fn events(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        let lines = text.lines().filter(|line| !line.contains("type=DAEMON_"));
        lines.map(str::to_owned).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.ends_with(".lock") && name != ".tollgate-index")
            .collect();
        names.sort();
        names
    }
}

const EVENT: &[u8] =
    b"type=SYSCALL msg=audit(1.000:7): arch=c000003e syscall=39 uid=0 key=(null)\n\
                       type=PROCTITLE msg=audit(1.000:7): proctitle=\"x\"\n";

/// A batch of one MiB.
fn mebibyte() -> Vec<u8> {
    EVENT.repeat((1 << 20) / EVENT.len() + 1)
}

#[test]
fn lines_have_the_configured_format_and_node() {
    let settings = Settings {
        log_format: LogFormat::Enriched,
        name_format: NameFormat::User,
        name: Some("web1".into()),
        ..settings()
    };
    let mut test = TestLog::new(settings);
    assert_eq!(test.log.append(EVENT, 1, &mut ()).written, 1);
    assert_eq!(
        test.events("audit.log"),
        [
            "node=web1 type=SYSCALL msg=audit(1.000:7): arch=c000003e syscall=39 uid=0 key=(null)\
             \x1dARCH=x86_64 SYSCALL=getpid UID=\"root\"",
            "node=web1 type=PROCTITLE msg=audit(1.000:7): proctitle=\"x\"",
        ]
    );
    test.log.end(SignalSender::this());
    let text = test.text("audit.log");
    let kinds: Vec<&str> = text
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    let expected = [
        "type=DAEMON_START",
        "type=SYSCALL",
        "type=PROCTITLE",
        "type=DAEMON_END",
    ];
    assert_eq!(kinds, expected);
}

/// Expected line for a line of `auditd`: the same, except lines that are too long; see `docs/compat.md`.
fn line_of_auditd(theirs: &[u8], given: &[u8]) -> Vec<u8> {
    let (text, tail) = match theirs.find_byte(0x1d) {
        Some(at) => theirs.split_at(at),
        None => (theirs, &b""[..]),
    };
    if given.len() > 8937 && given.starts_with(theirs) {
        assert_eq!(theirs.len(), 8937);
        assert_eq!(given.len(), 8968);
        return given.to_vec();
    }
    let is_truncated = theirs.len() == 8969 && !tail.is_empty() && !tail.ends_with(b"\"");
    let whole = if is_truncated {
        tail.rfind_byteset(b" \x1d").unwrap()
    } else {
        tail.len()
    };
    [text, &tail[..whole]].concat()
}

/// The lines of `auditd` 3.0.9 are recorded by `crates/tollgate/tests/e2e/recorded.rs`.
#[test]
fn lines_are_those_of_auditd_for_the_same_messages() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/auditd");
    let messages = fs::read_to_string(golden.join("messages.txt")).unwrap();
    for (name, log_format, name_format) in [
        ("raw.log", LogFormat::Raw, NameFormat::None),
        ("raw-node.log", LogFormat::Raw, NameFormat::User),
        ("enriched.log", LogFormat::Enriched, NameFormat::None),
        ("enriched-node.log", LogFormat::Enriched, NameFormat::User),
    ] {
        let mut test = TestLog::new(Settings {
            log_format,
            name_format,
            name: Some("web1".into()),
            ..settings()
        });
        let mut lines = Vec::new();
        for message in messages.lines() {
            let (kind, text) = message.split_once(' ').unwrap();
            let kind = MsgType(kind.parse().unwrap());
            encode::kernel_record(kind, &Vec::unescape_bytes(text), &mut lines);
        }
        test.log.append(&lines, 1, &mut ());
        let ours = fs::read(test.directory.path().join("audit.log")).unwrap();
        let ours = ours
            .lines()
            .filter(|line| !line.contains_str("type=DAEMON_"));
        let theirs = fs::read(golden.join(name)).unwrap();
        let (ours, theirs): (Vec<&[u8]>, Vec<&[u8]>) = (ours.collect(), theirs.lines().collect());
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for ((ours, theirs), given) in ours.into_iter().zip(theirs).zip(lines.lines()) {
            let expected = line_of_auditd(theirs, given);
            assert_eq!(ours.as_bstr(), expected.as_bstr(), "{name}");
        }
    }
}

#[test]
fn log_without_auditd_conf_has_only_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let system = Box::new(RecordedActions::default());
    let mut log = AuditLog::open(
        LogConfig::plain(path.clone()),
        OldLogPolicy::AsConfigured,
        system,
        None,
    )
    .unwrap();
    assert_eq!(log.append(EVENT, 1, &mut ()).written, 1);
    log.rotate_on_signal(SignalSender::this());
    log.end(SignalSender::this());
    assert_eq!(fs::read(path).unwrap(), EVENT);
}

#[test]
fn full_log_is_rotated_and_old_logs_are_read_only() {
    let settings = Settings {
        num_logs: 3,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    for _ in 0..4 {
        test.log.append(&mebibyte(), 1, &mut ());
        test.log.append(EVENT, 1, &mut ());
    }
    assert_eq!(test.names(), ["audit.log", "audit.log.1", "audit.log.2"]);
    assert_eq!(test.events("audit.log").len(), 2);
    let mode = |name: &str| {
        let about = fs::metadata(test.directory.path().join(name)).unwrap();
        about.permissions().mode() & 0o777
    };
    assert_eq!((mode("audit.log"), mode("audit.log.1")), (0o600, 0o400));
}

#[test]
fn keep_logs_removes_no_log() {
    let settings = Settings {
        max_log_file_action: MaxLogFileAction::KeepLogs,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    for _ in 0..4 {
        test.log.append(&mebibyte(), 1, &mut ());
    }
    assert_eq!(test.names().len(), 5);
}

#[test]
fn events_of_a_suspended_log_are_counted_and_reported() {
    let settings = Settings {
        max_log_file_action: MaxLogFileAction::Suspend,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    test.log.append(&mebibyte(), 5, &mut ());
    let lost = test.log.append(EVENT, 3, &mut ());
    assert_eq!((lost.written, lost.lost), (0, 3));
    assert_eq!(test.actions.take().len(), 1);
    fs::rename(
        test.directory.path().join("audit.log"),
        test.directory.path().join("moved"),
    )
    .unwrap();
    test.log.resume_on_signal(SignalSender::this());
    assert_eq!(test.log.append(EVENT, 1, &mut ()).written, 1);
    let text = test.text("audit.log");
    assert!(text.contains("op=lost-events lost=3 "), "{text}");
    assert!(text.contains("op=resume-logging "), "{text}");
    assert_eq!(test.events("audit.log").len(), 2);
}

#[test]
fn logging_resumes_when_the_program_for_a_large_log_ends() {
    let settings = Settings {
        max_log_file_action: MaxLogFileAction::Exec("/sbin/room".into()),
        ..settings()
    };
    let mut test = TestLog::new(settings);
    test.log.append(&mebibyte(), 1, &mut ());
    assert_eq!(test.actions.take(), ["run /sbin/room"]);
    assert_eq!(test.log.append(EVENT, 1, &mut ()).lost, 1);
    fs::remove_file(test.directory.path().join("audit.log")).unwrap();
    for (run, written) in [(2, 0), (1, 1)] {
        *test.actions.ended.lock().unwrap() = vec![RunId(run)];
        test.log.poll();
        assert_eq!(test.log.append(EVENT, 1, &mut ()).written, written);
    }
}

#[test]
fn low_space_actions_run_once_and_in_order() {
    let settings = Settings {
        max_log_file: 1000,
        space_left: SpaceLimit::Mebibytes(u64::MAX >> 20),
        space_left_action: Action::Email,
        admin_space_left: SpaceLimit::Percent(99),
        admin_space_left_action: Action::Halt,
        ..settings()
    };
    let mut test = TestLog::new(settings);
    test.log.append(EVENT, 1, &mut ());
    test.log.append(EVENT, 1, &mut ());
    let path = test.directory.path().join("audit.log");
    let log = path.display();
    let taken = test.actions.take();
    let expected = [
        "mail root: Audit Disk Space Alert".to_owned(),
        format!("Alert: low on disk space for log `{log}`: "),
        format!("Alert: very low on disk space for log `{log}`: "),
        "go Halt".to_owned(),
    ];
    assert_eq!(taken.len(), expected.len(), "{taken:?}");
    for (taken, expected) in taken.iter().zip(&expected) {
        assert!(taken.starts_with(expected), "{taken}");
    }
    assert!(taken[2].ends_with(" KiB free, admin_space_left is 99 %"));
    assert_eq!(test.events("audit.log").len(), 4);
    let report = test.log.report();
    assert!(
        report.contains("admin space action performed = yes\n"),
        "{report}"
    );
}

/// Lines that monitoring scripts look for, with the values of a log that is not full.
#[test]
fn state_report_has_the_text_of_auditd() {
    let mut test = TestLog::new(Settings {
        q_depth: 77,
        space_left: SpaceLimit::Mebibytes(5),
        ..settings()
    });
    test.log.append(&EVENT.repeat(100), 100, &mut ());
    let report = test.log.report();
    for line in [
        "writing to logs = yes",
        "current log size = 12 KiB",
        "max log size = 1024 KiB",
        "space left on partition = yes",
        "space_left setting = 5 MiB",
        "logging suspended = no",
        "file system space action performed = no",
        "admin space action performed = no",
        "disk error detected = no",
        "listening for network connections = no",
        "Number of active plugins = 0",
        "current plugin queue depth = 0",
        "max plugin queue depth used = 0",
        "plugin queue size = 77",
        "plugin queue overflow detected = no",
        "plugin queueing suspended = no",
    ] {
        assert!(
            report.lines().any(|reported| reported == line),
            "{line}: {report}"
        );
    }
}

#[test]
fn log_group_may_read_the_log() {
    for is_named_by_option in [false, true] {
        check_log_group(is_named_by_option);
    }
}

/// Opens a log whose path is that of `auditd.conf`, or of `--log`.
fn check_log_group(is_named_by_option: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own/audit.log");
    let group = fs::metadata(directory.path()).unwrap().gid().max(1);
    let settings = Settings {
        log_file: path.to_str().unwrap().into(),
        log_group: group,
        ..settings()
    };
    let option = is_named_by_option.then(|| path.clone());
    let config = LogConfig::configured(settings, option).unwrap();
    let _journal = AuditLog::open(
        config,
        OldLogPolicy::AsConfigured,
        Box::new(RecordedActions::default()),
        None,
    )
    .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let modes = || (mode(path.parent().unwrap()), mode(&path));
    assert_eq!(modes(), (0o750, 0o640));
}

#[test]
fn new_settings_are_applied_atomically() {
    let mut test = TestLog::new(settings());
    let other = test.directory.path().join("other/audit.log");
    let config = LogConfig::configured(settings(), Some(other.clone())).unwrap();
    test.log.configure(Some(config), SignalSender::this());
    assert!(
        fs::read_to_string(&other)
            .unwrap()
            .contains("state=changed")
    );
    fs::create_dir(test.directory.path().join("dir")).unwrap();
    let refused =
        LogConfig::configured(settings(), Some(test.directory.path().join("dir"))).unwrap();
    test.log.configure(Some(refused), SignalSender::this());
    test.log.configure(None, SignalSender::this());
    test.log.append(EVENT, 1, &mut ());
    let text = fs::read_to_string(&other).unwrap();
    assert_eq!(text.matches("state=no-change").count(), 2, "{text}");
    assert!(text.contains("type=SYSCALL"), "{text}");
}

#[test]
fn whole_events_of_a_part_are_counted() {
    let text = b"type=A msg=audit(1.000:1): x\ntype=B msg=audit(1.000:1): y\ntype=A msg=audit(1.000:2): x\n";
    assert_eq!(whole_events(text), (58, 1));
    assert_eq!(whole_events(&text[..40]), (0, 0));
    // The truncated line may belong to the same event.
    assert_eq!(whole_events(&text[..60]), (0, 0));
    assert_eq!(whole_events(b""), (0, 0));
    let third = text.rfind(b"audit(1.000:2)").unwrap() + b"audit(1.000:2)".len();
    for end in 0..text.len() {
        let expected = if end < third { (0, 0) } else { (58, 1) };
        assert_eq!(whole_events(&text[..end]), expected, "{end}");
    }
}

#[test]
fn full_plugin_queue_runs_overflow_action() {
    let alert = "the queue of plugin a.conf is full: it loses events";
    for (overflow_action, expected) in [
        (OverflowAction::Ignore, vec![]),
        (OverflowAction::Syslog, vec![format!("Alert: {alert}")]),
        (
            OverflowAction::Suspend,
            vec![format!(
                "Alert: plugins are suspended: {alert}; afterwards run `tollgate auditctl --signal resume`"
            )],
        ),
        (
            OverflowAction::Single,
            vec![format!("Alert: {alert}"), "go Single".to_owned()],
        ),
        (
            OverflowAction::Halt,
            vec![format!("Alert: {alert}"), "go Halt".to_owned()],
        ),
    ] {
        let suspends = overflow_action == OverflowAction::Suspend;
        let mut test = TestLog::new(Settings {
            overflow_action,
            ..settings()
        });
        test.log.overflow("a.conf");
        assert_eq!(test.actions.take(), expected);
        let suspended = "plugin queueing suspended = yes\n";
        assert_eq!(test.log.report().contains(suspended), suspends);
        test.log.resume_on_signal(SignalSender::this());
        assert!(!test.log.report().contains(suspended));
        // Only plugins have lost events.
        assert_eq!(test.log.append(EVENT, 1, &mut ()).written, 1);
    }
}

/// A daemon that is killed can leave a part of a line.
#[test]
fn new_log_lines_do_not_continue_a_partial_one() {
    let mut test = TestLog::new(settings());
    test.log.append(EVENT, 1, &mut ());
    let path = test.directory.path().join("audit.log");
    let partial = "type=SYSCALL msg=audit(1.000:7): arch=c000003e sysc";
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{whole}{partial}")).unwrap();
    let text = test.reopen().text("audit.log");
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|&line| line == partial).unwrap();
    assert!(lines[at + 1].starts_with("type=DAEMON_START "), "{lines:?}");
    assert!(text.starts_with(&whole));
}
