//! Rules locked with `-e 2`, and later daemons with other settings.
//!
//! On kernels where BPF programs can deny calls, a test cannot remove its locked state: `tests/vm` tests those.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bstr::ByteSlice as _;
use nix::sys::signal::Signal;

use super::daemon::{Account, CommandOutput, Daemon, program};
use super::event;
use super::handover::{self, Bpf, each_once, needs_no_guard, opens};
use super::harness::wait_for;
use super::raw_syscalls;
use super::test_dir::TestDir;

/// Settings that would record less.
const OTHERS: &str = "engine = \"fentry\"\nio_uring = false\nkernel_messages = \"multicast\"\n";

/// Pinned objects that stay: each daemon has its own programs.
fn names(pins: &Path) -> Vec<String> {
    let mut names = handover::names(pins);
    names.retain(|name| !name.starts_with("prog-"));
    names.sort();
    names
}

/// Locked rules for opens in a test directory.
fn locked(test_dir: &TestDir) -> String {
    format!("{}-e 2\n", opens(test_dir, "locked"))
}

pub(crate) fn settings_cannot_change_while_locked() {
    needs_no_guard();
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let pins = bpf.pins();
    Daemon::start_pinned(&test_dir, &locked(&test_dir), &pins).end(Signal::SIGTERM);
    let before = names(&pins);
    assert!(before.contains(&"locked".to_owned()), "{before:?}");
    let conf = test_dir.own.join("tollgate.toml");
    let json = format!(
        "[json]\nfile = \"{}\"\n",
        test_dir.own.join("json").display()
    );
    let deny = "[on_loss]\ndeny = [\"locked\"]\n";
    let mut bursts = 0;
    for (settings, told) in [
        (
            OTHERS.to_owned(),
            &["engine = \"fentry\"", "io_uring = false", "multicast"][..],
        ),
        (deny.to_owned(), &["[on_loss] deny"]),
        (json, &["[json]"]),
        (String::new(), &[]),
    ] {
        test_dir.workload().burst(&file, 10);
        fs::write(&conf, settings).unwrap();
        let options = [
            "--pins".as_ref(),
            pins.as_os_str(),
            "--config".as_ref(),
            conf.as_os_str(),
        ];
        let daemon =
            Daemon::start_with_options(&test_dir, &program(), "", &locked(&test_dir), &options);
        assert!(daemon.has_printed("took over the BPF programs of the previous daemon"));
        let not_taken = "settings ignored because `-e 2` locked them: ";
        assert_eq!(daemon.has_printed(not_taken), !told.is_empty());
        for told in told {
            assert!(daemon.has_printed(told), "not told: {told}");
        }
        test_dir.workload().burst(&file, 10);
        bursts += 2;
        let Account { summary, code, .. } = daemon.end(Signal::SIGTERM);
        assert_eq!((summary.lost, code), (0, Some(0)), "{summary:?}");
        assert_eq!(names(&pins), before);
    }
    each_once(&test_dir.own.join("audit.log"), &file, bursts * 10);
}

/// Settings of the log in force, and other settings: another path, no log, or a shorter log.
pub(crate) fn restart_keeps_the_locked_log() {
    const KEPT: &str = "space_left = 2\nadmin_space_left = 1\nlog_format = RAW\nwrite_logs = yes\n\
                        num_logs = 5\nmax_log_file = 99\nmax_log_file_action = KEEP_LOGS\n";
    let test_dir = TestDir::new();
    let file = test_dir.file("file", "");
    let (log, other) = (
        test_dir.own.join("audit.log"),
        test_dir.own.join("other.log"),
    );
    let rules = opens(&test_dir, "other");
    Daemon::start_configured(&test_dir, &locked(&test_dir), &log, KEPT).end(Signal::SIGTERM);
    // More than the 1 MiB at which an unlocked log is rotated.
    let old = "type=USER msg=audit(1.000:1): pid=1 uid=0 auid=0 ses=1 msg='old'\n".repeat(1 << 15);
    fs::write(&log, &old).unwrap();

    let none = KEPT.replace("write_logs = yes", "write_logs = no");
    let short = KEPT
        .replace("num_logs = 5", "num_logs = 2")
        .replace("99", "1")
        .replace("KEEP_LOGS", "ROTATE");
    let elsewhere = format!("log_file = {}", other.display());
    let configured: [(&Path, &str, &[&str]); 4] = [
        (&other, KEPT, &[&elsewhere]),
        (&log, &none, &["write_logs = no"]),
        (
            &log,
            &short,
            &[
                "num_logs = 2",
                "max_log_file = 1",
                "max_log_file_action = rotate",
            ],
        ),
        (&log, KEPT, &[]),
    ];
    let starts = configured.map(|(log, conf, told)| (Some((log, conf)), told));
    let only_written: (_, &[&str]) = (None, &["no auditd.conf"]);
    let mut bursts = 0;
    for (conf, told) in [only_written].into_iter().chain(starts) {
        let daemon = match conf {
            Some((log, conf)) => Daemon::start_configured(&test_dir, &rules, log, conf),
            None => Daemon::start_with_options(&test_dir, &program(), "", &rules, &[]),
        };
        let not_taken = "settings ignored because `-e 2` locked them: ";
        assert_eq!(daemon.has_printed(not_taken), !told.is_empty(), "{told:?}");
        for told in told {
            assert!(daemon.has_printed(told), "not told: {told}");
        }
        assert_eq!(daemon.status()["log"], log.to_str().unwrap());
        if conf.is_some() && !told.is_empty() {
            let (key, _) = told[0].split_once(' ').unwrap();
            daemon.signal(Signal::SIGHUP);
            daemon.wait_for_line(&format!("`-e 2` locked `{key}`"));
        }
        test_dir.workload().burst(&file, 10);
        bursts += 1;
        assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
        let text = fs::read(&log).unwrap();
        assert!(
            text.starts_with(old.as_bytes()),
            "it was shortened: {told:?}"
        );
        let name = format!(" name=\"{}\" ", file.display());
        assert_eq!(text.find_iter(&name).count(), bursts * 10, "{told:?}");
    }
    let old_log = test_dir.own.join("audit.log.1");
    assert!(!other.exists() && !old_log.exists(), "it was moved");
}

/// A script that runs the program under test with a limit of open files.
fn program_with_limit(test_dir: &TestDir, limit: &str) -> PathBuf {
    let path = test_dir.own.join("limited");
    let script = format!(
        "#!/bin/bash\nulimit {limit} && exec {} \"$@\"\n",
        program().display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// Starts a daemon that must fail.
fn failed_start(test_dir: &TestDir, pins: &Path, limit: &str) -> CommandOutput {
    let own = |name: &str| test_dir.own.join(name);
    let mut command = Command::new("timeout");
    command
        .args(["-s", "QUIT", "60"])
        .arg(program_with_limit(test_dir, limit))
        .args(["daemon", "--foreground", "--rules"])
        .arg(own("rules"))
        .arg("--log")
        .arg(own("audit.log"))
        .arg("--control")
        .arg(own("run/control"))
        .arg("--pins")
        .arg(pins);
    CommandOutput::of(&mut command)
}

pub(crate) fn unusable_pinned_state_is_kept() {
    // Offsets of the ring's format version and of the programs' hash in the header.
    const WIRE: usize = 12;
    const OBJECT: usize = 16;
    needs_no_guard();
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let pins = bpf.pins();
    let daemon = Daemon::start_pinned(&test_dir, &locked(&test_dir), &pins);
    daemon.wait_for_line("rules and settings are locked");
    daemon.kill();
    test_dir.workload().burst(&file, 10);
    let before = names(&pins);
    let refused = |limit: &str, why: &str| {
        let asked = failed_start(&test_dir, &pins, limit);
        assert_eq!(asked.code, Some(1), "{why}: {asked:?}");
        for part in [why, "until the machine restarts"] {
            assert!(asked.stderr.contains(part), "{why}: {asked:?}");
        }
    };
    refused("-n40", "Too many open files");
    assert_eq!(names(&pins), before);
    for (offset, why) in [
        (WIRE, "its events are in format 4711"),
        (OBJECT, "another build"),
    ] {
        let word = raw_syscalls::poke(&pins.join("header"), offset, 4711);
        refused("-n1024", why);
        raw_syscalls::poke(&pins.join("header"), offset, word);
        assert_eq!(names(&pins), before);
    }
    let (header, away) = (pins.join("header"), pins.join("away"));
    fs::rename(&header, &away).unwrap();
    refused("-n1024", "No such file");
    fs::rename(&away, &header).unwrap();
    assert_eq!(names(&pins), before);

    // The daemon opens pinned programs and links if it can.
    test_dir.workload().burst(&file, 10);
    let options = [OsStr::new("--pins"), pins.as_os_str()];
    let limited = program_with_limit(&test_dir, "-Sn40");
    let rules = locked(&test_dir);
    let daemon = Daemon::start_with_options(&test_dir, &limited, "", &rules, &options);
    let output = daemon.end(Signal::SIGQUIT).output.join("\n");
    for text in ["took over the BPF programs", "BPF programs stay attached"] {
        assert!(output.contains(text), "{output}");
    }
    assert_eq!(names(&pins), before);
    each_once(&test_dir.own.join("audit.log"), &file, 20);
}

pub(crate) fn failed_lock_leaves_nothing_half_applied() {
    let test_dir = TestDir::new();
    let bpf = Bpf::mount(&test_dir);
    let file = test_dir.file("file", "");
    let daemon = Daemon::start_pinned(&test_dir, &opens(&test_dir, "first"), &bpf.pins());
    let listed = daemon.auditctl(&["-l"]);
    let lock = daemon.control.with_file_name("locked");
    fs::create_dir(&lock).unwrap();
    let change = test_dir.own.join("change");
    fs::write(
        &change,
        format!("-D\n-f 0\n{}-e 2\n", opens(&test_dir, "second")),
    )
    .unwrap();
    let change: &OsStr = change.as_os_str();
    let refused = daemon.auditctl(&["-R", change.to_str().unwrap()]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(daemon.auditctl(&["-l"]), listed);
    let settings = &daemon.status()["settings"];
    assert_eq!(
        (&settings["enabled"], &settings["failure"]),
        (&1.into(), &1.into())
    );
    fs::remove_dir(&lock).unwrap();
    let left = fs::read_dir(lock.parent().unwrap()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["control"]);
    test_dir.workload().burst(&file, 10);
    daemon.flush();
    let opened = wait_for("the events", || {
        let log = fs::read(&daemon.log).unwrap();
        let name = format!(" name=\"{}\" ", file.display());
        (log.find_iter(&name).count() == 10).then_some(log)
    });
    event::expect_dense(&opened);
    assert_eq!(opened.find_iter(" key=\"first\"").count(), 10);
    assert_eq!(daemon.end(Signal::SIGTERM).code, Some(0));
    assert_eq!(
        fs::read_dir(bpf.pins()).unwrap().count(),
        0,
        "nothing is locked"
    );
}
