//! `tollgate-detect explain` as a user runs it.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output};

    use serde_json::Value;

    const PARTLY: &str = "-a always,exit -F arch=b64 -S execve -k exec\n";

    fn guide() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/detect.md");
        fs::read_to_string(path).unwrap()
    }

    /// A directory with the rule of docs/detect.md.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let guide = guide();
        let (_, rule) = guide
            .split_once("`rules/web-shell.yml`:\n\n```yaml\n")
            .unwrap();
        let (rule, _) = rule.split_once("```").unwrap();
        fs::create_dir(place.path().join("rules")).unwrap();
        fs::write(place.path().join("rules/web-shell.yml"), rule).unwrap();
        fs::write(place.path().join("audit.rules"), PARTLY).unwrap();
        place
    }

    fn explain(directory: &Path, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command
            .current_dir(directory)
            .args(["explain", "rules"])
            .args(options);
        command.output().unwrap()
    }

    #[track_caller]
    fn stdout(output: &Output, status: i32) -> String {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    /// The overhead is printed if `tollgate` is beside this program.
    fn without_overhead(text: &str) -> String {
        let lines = text.lines().filter(|line| !line.starts_with("overhead, "));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn guide_shows_what_is_printed() {
        let place = place();
        let output = explain(place.path(), &["--rules-file", "audit.rules"]);
        let text = without_overhead(&stdout(&output, 0));
        let shown = format!(
            "```console\n$ tollgate detect explain rules --rules-file audit.rules\n{text}```\n"
        );
        assert!(guide().contains(&shown), "{shown}");
    }

    #[test]
    fn audit_rules_that_are_made_are_all_that_is_needed() {
        let place = place();
        let output = explain(place.path(), &["--audit-rules"]);
        let rules = stdout(&output, 0);
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(
            rules.contains("\n# Shell Started By A Web Server (0a3f9a52-"),
            "{rules}"
        );
        let directory = place.path().join("rules.d");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("50-sigma.rules"), rules).unwrap();
        fs::write(directory.join("10-base.rules"), "-D\n-b 8192\n").unwrap();
        fs::write(directory.join("notes.txt"), "no rules\n").unwrap();
        let output = explain(place.path(), &["--rules-file", "rules.d", "--json"]);
        let found: Value = serde_json::from_str(&stdout(&output, 0)).unwrap();
        assert_eq!(found["compared_with"], "rules.d");
        let rule = &found["rules"][0];
        assert_eq!(
            (&rule["status"], &rule["cost"]),
            (&"given".into(), &"low".into())
        );
        assert_eq!(rule["needs"][0], "programs that are executed");
        assert_eq!(rule["not_fed"], Value::Array(Vec::new()));
        assert_eq!(found["audit_rules"][0]["feeds"][0], rule["id"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let place = place();
        let with_errors = "-a always,exit -F arch=b64 -S execve\n-a sometimes,exit -S open\n";
        fs::write(place.path().join("wrong.rules"), with_errors).unwrap();
        let output = explain(place.path(), &["--rules-file", "wrong.rules"]);
        stdout(&output, 1);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.starts_with("tollgate-detect: wrong.rules:2:4: "),
            "{errors}"
        );
        let output = explain(place.path(), &["--rules-file", "absent.rules"]);
        stdout(&output, 2);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.starts_with("tollgate-detect: cannot read `absent.rules`: "),
            "{errors}"
        );
        fs::create_dir(place.path().join("empty")).unwrap();
        let output = explain(place.path(), &["--rules-file", "empty"]);
        stdout(&output, 2);
        fs::write(place.path().join("rules/broken.yml"), "title: x\n").unwrap();
        let output = explain(place.path(), &["--audit-rules"]);
        let rules = stdout(&output, 1);
        assert!(rules.contains("-S execve,execveat"), "{rules}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.starts_with("tollgate-detect: rules/broken.yml:1: "),
            "{errors}"
        );
        fs::remove_dir_all(place.path().join("rules")).unwrap();
        fs::create_dir(place.path().join("rules")).unwrap();
        stdout(&explain(place.path(), &[]), 2);
    }

    /// The last line with a `tollgate` beside the program that is this script.
    fn with_tollgate(place: &Path, script: &str) -> String {
        let program = place.join("tollgate-detect");
        let tollgate = place.join("tollgate");
        fs::copy(env!("CARGO_BIN_EXE_tollgate-detect"), &program).unwrap();
        fs::write(&tollgate, format!("#!/bin/sh\ncat >/dev/null\n{script}\n")).unwrap();
        fs::set_permissions(&tollgate, fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(program)
            .current_dir(place)
            .args(["explain", "rules"])
            .output()
            .unwrap();
        let text = stdout(&output, 0);
        text.lines().last().unwrap().to_owned()
    }

    #[test]
    fn rules_of_this_machine_are_those_of_the_daemon_or_its_files() {
        let place = place();
        let explanation = |files: &str| {
            format!(
                "{{\"engine\":\"tracepoint\",\"measured_on\":\"x\",\"every_syscall_ns\":1,\"paying_syscall_ns\":2,\"files\":[{files}]}}"
            )
        };
        let none = explanation("");
        let loaded = format!("case $1 in auditctl) cat audit.rules;; *) echo '{none}';; esac");
        assert_eq!(
            with_tollgate(place.path(), &loaded),
            "of 1 Sigma rules, the loaded rules give 0 all that they need, 1 a part, 0 nothing; 0 need none, 0 nothing feeds"
        );
        let no_rules = format!("case $1 in auditctl) echo No rules;; *) echo '{none}';; esac");
        assert!(
            with_tollgate(place.path(), &no_rules)
                .contains("the loaded rules give 0 all that they need, 0 a part, 1 nothing")
        );
        let read = explanation("\"audit.rules\"");
        let files = format!("case $1 in auditctl) exit 1;; *) echo '{read}';; esac");
        assert!(
            with_tollgate(place.path(), &files)
                .contains("the rule files of this machine give 0 all that they need, 1 a part")
        );
        assert!(
            with_tollgate(place.path(), "exit 1").starts_with("2 of 382 64-bit syscalls evaluate")
        );
    }
}
