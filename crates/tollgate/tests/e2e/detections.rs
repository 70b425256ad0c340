//! The Sigma rules of the package find what is done for real under `tollgate run`, with the audit rules that
//! `tollgate detect explain` makes for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
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

pub(crate) fn own_sigma_rules_find_what_is_done() {
    needs(
        nix::unistd::geteuid().is_root() && Path::new("/usr/bin/setpriv").exists(),
        "root, and setpriv of Debian's package util-linux",
    );
    let test_dir = TestDir::new();
    let own = |name: &str| test_dir.own.join(name);
    let rules = Path::new(ROOT).join("packaging/sigma");
    let detect = || {
        let mut command = Command::new(program().with_file_name("tollgate-detect"));
        command.current_dir(&test_dir.own);
        command
    };
    let made = CommandOutput::of(detect().arg("explain").arg(&rules).arg("--audit-rules"));
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    fs::write(own("own.rules"), made.stdout).unwrap();
    let mut run = Command::new(program());
    run.current_dir(&test_dir.own).args([
        "run",
        "--rules",
        "own.rules",
        "--log",
        "run.log",
        "--",
        "sh",
        "-c",
        ACTIONS,
    ]);
    let done = CommandOutput::of(&mut run);
    assert_eq!(done.code, Some(0), "{done:?}");
    fs::create_dir(own("state")).unwrap();
    let mut alerts = detect();
    alerts.arg("run").arg(&rules).args([
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
