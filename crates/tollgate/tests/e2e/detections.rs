//! The Sigma rules of the package find what is done for real under `tollgate run`, and nothing in usual work, with the
//! audit rules that `tollgate detect explain` makes for them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::daemon::{CommandOutput, program};
use super::harness::needs;
use super::test_dir::TestDir;

/// Directory of the sources.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What an intruder does: executes from shared memory, looks at hashes, leaves a set-uid program and makes a namespace
/// as a user. A log of another name stands for the audit log, which this test does not touch.
const ACTIONS: &str = "cp /bin/true /dev/shm/tollgate-test.$$ && /dev/shm/tollgate-test.$$; rm -f /dev/shm/tollgate-test.$$\n\
    cat /etc/shadow >/dev/null\n\
    cp /bin/true suid && chmod 4755 suid && rm suid\n\
    setpriv --reuid 65534 --regid 65534 --clear-groups unshare --user true\n\
    true\n";

/// Programs of the usual work of `usual_work/work.sh`, as the ends of their paths.
const USUAL: [&str; 16] = [
    "/cc1",
    "/chpasswd",
    "/dpkg",
    "/dpkg-deb",
    "/git",
    "/gzip",
    "/logrotate",
    "/make",
    "/pivot_root",
    "/run-parts",
    "/ssh-keygen",
    "/start-stop-daemon",
    "/su",
    "/tar",
    "/useradd",
    "/userdel",
];

/// The least number of its events: it has about 1,500.
const USUAL_EVENTS: usize = 1_000;

/// Sigma rules of the package.
fn rules() -> PathBuf {
    Path::new(ROOT).join("packaging/sigma")
}

fn detect(test_dir: &TestDir) -> Command {
    let mut command = Command::new(program().with_file_name("tollgate-detect"));
    command.current_dir(&test_dir.own);
    command
}

/// Runs a command under `tollgate run` with the audit rules for the Sigma rules; the log is `run.log`.
#[track_caller]
fn run(test_dir: &TestDir, command: &[&OsStr]) {
    let mut explain = detect(test_dir);
    let made = CommandOutput::of(explain.arg("explain").arg(rules()).arg("--audit-rules"));
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    fs::write(test_dir.own.join("own.rules"), made.stdout).unwrap();
    let mut run = Command::new(program());
    run.current_dir(&test_dir.own)
        .args(["run", "--rules", "own.rules", "--log", "run.log", "--"])
        .args(command);
    let done = CommandOutput::of(&mut run);
    assert_eq!(done.code, Some(0), "{done:?}");
}

pub(crate) fn usual_work_raises_no_high_alert() {
    needs(
        Path::new("/usr/sbin/logrotate").exists() && Path::new("/usr/bin/git").exists(),
        "Debian's packages git and logrotate",
    );
    let test_dir = TestDir::new();
    let scripts = Path::new(ROOT).join("crates/tollgate/tests/e2e/usual_work");
    let (container, work) = (scripts.join("container.sh"), scripts.join("work.sh"));
    let place = test_dir.directory("container");
    run(
        &test_dir,
        &[
            "timeout".as_ref(),
            "120".as_ref(),
            "sh".as_ref(),
            container.as_os_str(),
            place.as_os_str(),
            work.as_os_str(),
        ],
    );
    let log = fs::read_to_string(test_dir.own.join("run.log")).unwrap();
    for program in USUAL {
        assert!(log.contains(&format!("{program}\" key=")), "{program}");
    }
    let events = log.lines().filter(|line| line.starts_with("type=SYSCALL "));
    let count = events.count();
    assert!(count >= USUAL_EVENTS, "{count}");
    let case = "log = \"run.log\"\n[expect]\nexactly = []\nlevel = \"high\"\n";
    fs::write(test_dir.own.join("usual.toml"), case).unwrap();
    let mut test = detect(&test_dir);
    let tested = CommandOutput::of(test.args(["test", "usual.toml", "--rules"]).arg(rules()));
    assert_eq!(tested.code, Some(0), "{tested:?}");
}

pub(crate) fn own_sigma_rules_find_what_is_done() {
    needs(
        nix::unistd::geteuid().is_root() && Path::new("/usr/bin/setpriv").exists(),
        "root, and setpriv of Debian's package util-linux",
    );
    let test_dir = TestDir::new();
    run(&test_dir, &["sh", "-c", ACTIONS].map(OsStr::new));
    fs::create_dir(test_dir.own.join("state")).unwrap();
    let mut alerts = detect(&test_dir);
    alerts.arg("run").arg(rules()).args([
        "--log",
        "run.log",
        "--from-start",
        "--once",
        "--format",
        "ocsf",
        "--state",
        "state",
    ]);
    let alerts = CommandOutput::of(&mut alerts);
    assert_eq!(alerts.code, Some(0), "{alerts:?}");
    let title = |line: &str| {
        let alert: Value = serde_json::from_str(line).unwrap();
        alert["finding_info"]["title"].as_str().unwrap().to_owned()
    };
    let found: BTreeSet<String> = alerts.stdout.lines().map(title).collect();
    let expected = [
        "Password Hashes Opened By An Unusual Program",
        "Program Executed From Memory",
        "Set-Uid Bit Set",
        "User Namespace Made By A User",
    ];
    assert_eq!(found, expected.map(str::to_owned).into(), "{alerts:?}");
}
