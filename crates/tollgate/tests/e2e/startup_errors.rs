//! Startup errors: the daemon reports the cause and attaches nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::daemon::program;
use super::test_dir::TestDir;

/// A daemon that failed to start.
struct Refusal {
    code: Option<i32>,
    said: String,
}

/// Starts the daemon, which must exit before it is ready.
#[track_caller]
fn refuse(command: &mut Command, options: &[&str], rules: &Path, log: &Path) -> Refusal {
    let output = command
        .args(["daemon", "--foreground", "--rules"])
        .arg(rules)
        .arg("--log")
        .arg(log)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("tollgate: auditing"), "it audits:\n{said}");
    Refusal {
        code: output.status.code(),
        said,
    }
}

pub(crate) fn a_missing_configuration_file_exits_with_6() {
    let test_dir = TestDir::new();
    let (rules, log) = (test_dir.own.join("rules"), test_dir.own.join("audit.log"));
    fs::write(&rules, "-a always,exit -F arch=b64 -S mkdir\n").unwrap();
    let missing = test_dir.own.join("missing.conf");
    for option in ["--config", "--auditd-conf"] {
        let options = [option, missing.to_str().unwrap()];
        let refused = refuse(&mut Command::new(program()), &options, &rules, &log);
        assert_eq!(refused.code, Some(6), "{option}: {}", refused.said);
        let expected = format!(
            "configuration `{}` does not exist: create it",
            missing.display()
        );
        assert!(
            refused.said.contains(&expected),
            "{option}: {}",
            refused.said
        );
    }
}

/// Only BPF programs on functions can deny a syscall; rules that need unavailable facts are named.
pub(crate) fn undeniable_syscalls_are_reported() {
    let test_dir = TestDir::new();
    let (rules, log) = (test_dir.own.join("rules"), test_dir.own.join("audit.log"));
    let settings = test_dir.own.join("tollgate.toml");
    fs::write(&settings, "[on_loss]\ndeny = [\"deny\"]\n").unwrap();
    for (rule, word) in [
        (
            "-S mkdir -F success=1 -k deny",
            "`success` is known only after the syscall",
        ),
        ("-S mkdir -k deny", "need the engine fentry"),
    ] {
        fs::write(&rules, format!("-a always,exit -F arch=b64 {rule}\n")).unwrap();
        let options = [
            "--engine",
            "tracepoint",
            "--config",
            settings.to_str().unwrap(),
        ];
        let refused = refuse(&mut Command::new(program()), &options, &rules, &log);
        assert_eq!(refused.code, Some(1), "{}", refused.said);
        assert!(refused.said.contains(word), "{}", refused.said);
    }
}

pub(crate) fn invalid_rules_attach_nothing() {
    let test_dir = TestDir::new();
    let good = "-a always,exit -F arch=b64 -S openat -k good\n";
    let long = format!("-a always,exit -S openat -F key={}\n", "x".repeat(100_000));
    // Rule text, and the line and column of its error.
    let cases: [(&str, String, u32, u32); 9] = [
        (
            "unknown field",
            "-a always,exit -S open -F colour=3\n".into(),
            2,
            27,
        ),
        (
            "bad operator",
            "-a always,exit -S open -F uid=!3\n".into(),
            2,
            31,
        ),
        ("missing list", "-S open -F uid=0\n".into(), 2, 9),
        (
            "unknown syscall",
            "-a always,exit -F arch=b64 -S opennat\n".into(),
            2,
            31,
        ),
        ("long line", long, 2, 0),
        ("NUL byte", "-a always,exit -S open\0 -k x\n".into(), 2, 23),
        (
            "carriage returns",
            "-a always,exit -S opennat\r\n".into(),
            2,
            19,
        ),
        (
            "no final newline",
            "-a always,exit -S opennat".into(),
            2,
            19,
        ),
        ("unknown option", "-Z\n".into(), 2, 1),
    ];
    for (name, text, line, column) in cases {
        let (rules, log) = (test_dir.own.join("rules"), test_dir.own.join("audit.log"));
        fs::write(&rules, format!("{good}{text}")).unwrap();
        let refusal = refuse(&mut Command::new(program()), &[], &rules, &log);
        let said = &refusal.said;
        assert_eq!(refusal.code, Some(1), "{name}:\n{said}");
        let position = if column == 0 {
            format!("{}:{line}", rules.display())
        } else {
            format!("{}:{line}:{column}", rules.display())
        };
        assert!(
            said.contains(&position),
            "{name} is not at {position}:\n{said}"
        );
        assert!(said.contains("nothing is attached"), "{name}:\n{said}");
        assert!(!log.exists(), "{name}: a log without auditing");
    }
}

/// Also if the configuration cannot be read by the user.
pub(crate) fn unprivileged_user_gets_an_error() {
    let test_dir = TestDir::new();
    let copy = test_dir.program("tollgate", program().to_str().unwrap());
    let rules = test_dir.file("rules", "-a always,exit -F arch=b64 -S openat\n");
    let log = test_dir.work.join("audit.log");
    let secret = test_dir.own.join("tollgate.toml");
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    for options in [&[][..], &["--config", secret.to_str().unwrap()]] {
        let mut command = Command::new(&copy);
        let command = command.uid(test_dir.id).gid(test_dir.id);
        let refusal = refuse(command, options, &rules, &log);
        assert_eq!(refusal.code, Some(4), "{}", refusal.said);
        assert!(refusal.said.contains("root"), "{}", refusal.said);
        assert_eq!(refusal.said.lines().count(), 1, "{}", refusal.said);
        assert!(!log.exists());
    }
}

pub(crate) fn unsafe_log_directory_is_refused() {
    let test_dir = TestDir::new();
    let rules = test_dir.own.join("rules");
    fs::write(&rules, "-a always,exit -F arch=b64 -S rmdir\n").unwrap();
    let open = test_dir.own.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for directory in [open.as_path(), &test_dir.work] {
        let refusal = refuse(
            &mut Command::new(program()),
            &[],
            &rules,
            &directory.join("audit.log"),
        );
        assert_eq!(refusal.code, Some(1), "{}", refusal.said);
        assert!(
            refusal.said.contains(directory.to_str().unwrap()),
            "{}",
            refusal.said
        );
        assert!(!directory.join("audit.log").exists());
    }
}
