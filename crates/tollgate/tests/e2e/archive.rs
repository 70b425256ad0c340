//! Archives of rotated logs, made by a daemon that is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use logs::event_reader::EventReader;
use logs::log_set::LogSet;
use nix::sys::signal::Signal;

use super::daemon::Daemon;
use super::harness::wait_for;
use super::log_settings::SPACE;
use super::test_dir::TestDir;

/// Pairs of open and close between two kills: several logs of a mebibyte.
const PAIRS: u32 = 2000;
const KILLS: u64 = 8;

/// How often each event is in the log, by its stamp. Each daemon begins with the same serial.
fn stamps(log: &Path) -> BTreeMap<(u64, u16, u32), u32> {
    let mut reader = EventReader::new(LogSet::rotated(log).unwrap());
    let mut stamps = BTreeMap::new();
    while let Some(event) = reader.next_event().unwrap() {
        if event.records().next().unwrap().kind == "SYSCALL" {
            let time = event.time();
            let stamp = (time.sec, time.milli, event.serial().0);
            *stamps.entry(stamp).or_default() += 1;
        }
    }
    stamps
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("audit.log"))
        .collect();
    names.sort();
    names
}

/// The daemon is killed while it rotates and compresses. Each event that was written is in the log once, whatever
/// the step it was killed in, and the next daemon goes on.
pub(crate) fn killed_daemon_loses_nothing_of_its_archives() {
    kill_while_archiving(&TestDir::new());
}

/// The same where a file system does not tell when a file was created, and gives its number to the next one.
pub(crate) fn archives_need_no_time_of_creation() {
    let test_dir = TestDir::new();
    let _mount = Ext4::mount(&test_dir);
    kill_while_archiving(&test_dir);
}

/// An ext4 with inodes of 128 bytes over the own directory of a test, unmounted on drop.
struct Ext4(PathBuf);

impl Ext4 {
    fn mount(test_dir: &TestDir) -> Self {
        let image = test_dir.own.with_extension("ext4");
        File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let run = |command: &mut Command| {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        run(Command::new("mkfs.ext4")
            .args(["-q", "-I", "128"])
            .arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&test_dir.own));
        fs::remove_file(image).unwrap();
        fs::set_permissions(&test_dir.own, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(fs::metadata(&test_dir.own).unwrap().created().is_err());
        Self(test_dir.own.clone())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn kill_while_archiving(test_dir: &TestDir) {
    let rules = format!(
        "-a always,exit -F arch=b64 -S openat,close -F uid={} -k archive\n",
        test_dir.id
    );
    let conf = test_dir.own.join("auditd.conf");
    let text = format!(
        "{SPACE}log_format = RAW\nmax_log_file = 1\nnum_logs = 200\nmax_log_file_action = ROTATE\n"
    );
    fs::write(&conf, text).unwrap();
    let settings = format!(
        "auditd_conf = \"{}\"\npins = false\nkernel_messages = \"off\"\ncompress = true\n",
        conf.display()
    );
    let file = test_dir.file("file", "text");
    let log = test_dir.own.join("audit.log");
    let mut least = 0;
    for number in 1..=KILLS {
        let daemon = Daemon::start_with_settings(test_dir, &rules, &settings);
        test_dir.workload().burst(&file, PAIRS);
        daemon.flush();
        // At another step each time: an old log takes milliseconds.
        thread::park_timeout(Duration::from_millis(number * 3));
        daemon.kill();
        drop(daemon);
        let stamps = stamps(&log);
        let twice = stamps.iter().filter(|&(_, &count)| count != 1).count();
        assert_eq!(
            twice,
            0,
            "events are in the log twice: {:?}",
            names(&test_dir.own)
        );
        least += 2 * usize::try_from(PAIRS).unwrap();
        assert!(stamps.len() >= least, "{} of {least} events", stamps.len());
        least = stamps.len();
    }
    let daemon = Daemon::start_with_settings(test_dir, &rules, &settings);
    daemon.signal(Signal::SIGUSR1);
    wait_for("archives of all old logs", || {
        let names = names(&test_dir.own);
        let is_old = |name: &String| name.starts_with("audit.log.") && !name.ends_with(".zst");
        (!names.iter().any(is_old)).then_some(())
    });
    let (names, stamps) = (names(&test_dir.own), stamps(&log));
    assert!(names.len() > 8, "{names:?}");
    assert!(stamps.len() >= least);
    assert!(stamps.values().all(|&count| count == 1));
    assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
}
