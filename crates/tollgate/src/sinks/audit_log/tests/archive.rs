//! Old logs that become archives.

use std::path::PathBuf;
use std::time::Duration;

use logs::log_file::LogFile;
use logs::log_set::LogSet;

use super::*;

/// More than an old log takes to become an archive.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Settings of a log that is rotated at each mebibyte.
pub(super) fn rotating(num_logs: u32) -> Settings {
    Settings {
        num_logs,
        max_log_file_action: MaxLogFileAction::Rotate,
        ..settings()
    }
}

/// Events with distinct serials, as long as an old log.
pub(super) fn batch(number: u32) -> Vec<u8> {
    let mut text = Vec::new();
    for serial in number * 1000..(number + 1) * 1000 {
        text.push_str(format!(
            "type=SYSCALL msg=audit({number}.000:{serial}): pid={serial}"
        ));
        text.push_str(format!(" exe=\"/{}\"\n", "x".repeat(1040)));
    }
    text
}

impl TestLog {
    fn start_archiver(self) -> Self {
        self.start_archiver_on(Machine::local())
    }

    pub(super) fn start_archiver_on(self, machine: Machine) -> Self {
        let compress = LogOptions {
            index: false,
            compress: true,
        };
        self.with_options(compress, machine)
    }

    pub(super) fn with_options(mut self, options: LogOptions, machine: Machine) -> Self {
        self.log = self.log.with_options(options, machine).unwrap();
        self
    }

    pub(super) fn append(&mut self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            assert_eq!(self.log.append(&batch(number), 1000, &mut ()).written, 1000);
        }
    }

    /// Answers the archiver, as the log thread does, until the names are those.
    pub(super) fn await_names(&mut self, expected: &[&str]) {
        let requests = self.log.archiver_requests();
        while self.names() != expected {
            match requests.recv_timeout(PATIENCE) {
                Ok(request) => self.log.answer_archiver(&request),
                Err(_) => panic!("{:?}", self.names()),
            }
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The text of the log with all old logs and archives, without the daemon's own records.
    pub(super) fn all_events(&self) -> String {
        let mut text = String::new();
        for mut file in LogSet::rotated(self.directory.path()).unwrap().into_files() {
            let mut bytes = vec![0; 16 << 20];
            let mut count = 0;
            loop {
                let read = file.read_at(&mut bytes[count..], count as u64).unwrap();
                if read == 0 {
                    break;
                }
                count += read;
            }
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        let lines = text.split_inclusive('\n');
        lines
            .filter(|line| !line.contains("type=DAEMON_"))
            .collect()
    }
}

pub(super) fn expected(numbers: std::ops::Range<u32>) -> String {
    numbers
        .map(|number| String::from_utf8(batch(number)).unwrap())
        .collect()
}

#[test]
fn old_logs_become_archives_and_the_oldest_is_removed() {
    let mut test = TestLog::new(rotating(4));
    test.append(0..2);
    assert_eq!(test.names(), ["audit.log", "audit.log.1", "audit.log.2"]);
    test = test.start_archiver();
    let two = ["audit.log", "audit.log.000001.zst", "audit.log.000002.zst"];
    test.await_names(&two);
    assert!(test.all_events() == expected(0..2));
    let about = fs::metadata(test.path("audit.log.000001.zst")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o400);
    assert!(about.len() < 100_000, "{} bytes", about.len());
    test.append(2..4);
    let three = [
        "audit.log",
        "audit.log.000002.zst",
        "audit.log.000003.zst",
        "audit.log.000004.zst",
    ];
    test.await_names(&three);
    assert!(test.all_events() == expected(1..4));
    test.log.end(SignalSender::this());
    // Without compression the archives age with the old logs.
    let mut next = test.reopen();
    next.append(4..6);
    assert_eq!(
        next.names(),
        [
            "audit.log",
            "audit.log.000004.zst",
            "audit.log.1",
            "audit.log.2"
        ]
    );
    assert!(next.all_events() == expected(3..6));
}

#[test]
fn all_archives_are_kept_if_logs_are() {
    let mut test = TestLog::new(Settings {
        max_log_file_action: MaxLogFileAction::KeepLogs,
        ..rotating(2)
    });
    test = test.start_archiver();
    for number in 0..4 {
        test.append(number..number + 1);
        let archive = |number: u32| format!("audit.log.{:06}.zst", number + 1);
        let names: Vec<String> = (0..=number).map(archive).collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.insert(0, "audit.log");
        test.await_names(&names);
    }
    assert!(test.all_events() == expected(0..4));
}

/// As after a daemon that was killed between its steps.
#[test]
fn interrupted_archiving_is_completed() {
    let mut test = TestLog::new(rotating(5));
    test.append(0..1);
    let text = fs::read(test.path("audit.log.1")).unwrap();
    test = test.start_archiver();
    // The archive has its name, and the old log is not removed.
    let requests = test.log.archiver_requests();
    test.log
        .answer_archiver(&requests.recv_timeout(PATIENCE).unwrap());
    let both = ["audit.log", "audit.log.000001.zst", "audit.log.1"];
    assert_eq!(test.names(), both);
    assert!(test.all_events() == expected(0..1), "read once");
    test.log.end(SignalSender::this());
    fs::write(test.path("audit.log.archive"), b"\x28\xb5\x2f\xfd").unwrap();
    let mut next = test.reopen();
    // Nothing writes it any more.
    assert_eq!(next.names(), both);
    next = next.start_archiver();
    next.await_names(&["audit.log", "audit.log.000001.zst"]);
    next.append(1..2);
    next.await_names(&["audit.log", "audit.log.000001.zst", "audit.log.000002.zst"]);
    assert!(next.all_events() == expected(0..2));
    let mut archive = LogFile::open(&next.path("audit.log.000001.zst")).unwrap();
    let mut start = vec![0; 1000];
    let count = archive.read_at(&mut start, 0).unwrap();
    assert_eq!(start[..count], text[..count]);
}

#[test]
fn rotation_while_an_old_log_is_compressed_removes_the_right_file() {
    let mut test = TestLog::new(rotating(9));
    test.append(0..1);
    test = test.start_archiver();
    let requests = test.log.archiver_requests();
    // Name the archive, then rotate twice: the old log has another number when it is removed.
    for rotations in [1..3, 3..4] {
        let request = requests.recv_timeout(PATIENCE).unwrap();
        test.append(rotations);
        test.log.answer_archiver(&request);
    }
    let archives: Vec<String> = (1..=4)
        .map(|number| format!("audit.log.{number:06}.zst"))
        .collect();
    let mut names = vec!["audit.log"];
    names.extend(archives.iter().map(String::as_str));
    test.await_names(&names);
    assert!(test.all_events() == expected(0..4));
}

#[test]
fn log_that_cannot_be_compressed_stays() {
    let mut test = TestLog::new(rotating(5));
    test.append(0..1);
    // The name of the incomplete archive is taken by what cannot be removed as a file.
    fs::create_dir(test.path("audit.log.archive")).unwrap();
    test = test.start_archiver();
    test.append(1..2);
    test.log.end(SignalSender::this());
    assert_eq!(
        test.names(),
        [
            "audit.log",
            "audit.log.1",
            "audit.log.2",
            "audit.log.archive"
        ]
    );
    assert!(test.all_events() == expected(0..2));
}
