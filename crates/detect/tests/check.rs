//! `tollgate-detect check` as a user runs it.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Output};

    use serde_json::Value;

    const GOOD: &str = "title: Netcat\nid: n1\nlogsource:\n    product: linux\n    category: process_creation\n\
        detection:\n    a:\n        Image|endswith: /nc\n    condition: a\nlevel: high\n";

    fn check(directory: &Path, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command.current_dir(directory).arg("check").args(options);
        command.output().unwrap()
    }

    #[track_caller]
    fn stdout(output: &Output, status: i32) -> String {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    #[test]
    fn rules_are_counted_and_mistakes_named() {
        let place = tempfile::tempdir().unwrap();
        let rules = place.path().join("rules");
        fs::create_dir(&rules).unwrap();
        fs::write(rules.join("good.yml"), GOOD).unwrap();
        let text = stdout(&check(place.path(), &["rules"]), 0);
        assert_eq!(
            text,
            "log source          informational  low  medium  high  critical  loaded\n\
             auditd                          0    0       0     0         0       0\n\
             process_creation                0    0       0     1         0       1\n\
             file_event                      0    0       0     0         0       0\n\
             network_connection              0    0       0     0         0       0\n\
             all                             0    0       0     1         0       1\n\
             1 files; 0 rules or files cannot be loaded\n"
        );
        let broken = GOOD
            .replace("id: n1", "id: n2")
            .replace("condition: a", "condition: a and not filter");
        fs::write(rules.join("broken.yml"), broken).unwrap();
        let other = GOOD.replace("linux", "windows");
        fs::write(rules.join("other.yml"), other).unwrap();
        let text = stdout(&check(place.path(), &["rules"]), 1);
        // The line in docs/detect.md.
        let line = "rules/broken.yml:9: the condition names `filter`, which the detection does not have; correct the name";
        assert_eq!(text.lines().next(), Some(line));
        assert!(text.ends_with("1 rules for another log source: windows/process_creation\n"));
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/detect.md");
        assert!(fs::read_to_string(guide).unwrap().contains(line));
        let text = stdout(&check(place.path(), &["--all", "rules"]), 1);
        assert!(text.contains(
            "rules/other.yml:3: log source `windows/process_creation` is not in audit logs; "
        ));
        let text = stdout(&check(place.path(), &["--json", "rules"]), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["rules"][0]["id"], "n1");
        assert_eq!(value["rules"][0]["line"], 1);
        assert_eq!(value["problems"][0]["line"], 9);
        assert_eq!(value["problems"][0]["other_log_source"], Value::Null);
        assert_eq!(
            value["problems"][1]["other_log_source"],
            "windows/process_creation"
        );
    }

    #[test]
    fn filters_apply_to_rules_of_other_files_and_unknown_names_are_told() {
        let place = tempfile::tempdir().unwrap();
        let filter = "title: F\nlogsource:\n    product: linux\nfilter:\n    rules: [n1]\n    s:\n        \
            User: backup\n    condition: not s\n";
        fs::write(place.path().join("rule.yml"), GOOD).unwrap();
        fs::write(place.path().join("a-filter.yml"), filter).unwrap();
        let text = stdout(&check(place.path(), &["."]), 0);
        assert!(
            text.ends_with("2 files, 1 filters; 0 rules or files cannot be loaded\n"),
            "{text}"
        );
        let unknown = filter.replace("[n1]", "[n1, n2]");
        fs::write(place.path().join("z-filter.yml"), unknown).unwrap();
        let text = stdout(&check(place.path(), &["."]), 1);
        assert!(
            text.contains("z-filter.yml:5: the filter names `n2`, and no rule has this id or name; correct the name, or load the rule; for a correlation rule, name"),
            "{text}"
        );
        let text = stdout(&check(place.path(), &["--json", "."]), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["filters"], 2);
    }

    #[test]
    fn placeholders_are_filled_in_by_each_command() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let rule = GOOD.replace("Image|endswith: /nc", "User|expand: '%admins%'");
        fs::write(path("rule.yml"), rule).unwrap();
        fs::write(path("values.toml"), "admins = [\"root\"]\n").unwrap();
        let stamp = "msg=audit(1790000000.100:1)";
        let log = format!(
            "type=SYSCALL {stamp}: arch=c000003e syscall=59 success=yes exit=0 ppid=1 pid=80 uid=0 euid=0 exe=\"/bin/x\"\n\
             type=EXECVE {stamp}: argc=1 a0=\"x\"\ntype=EOE {stamp}:\n"
        );
        fs::write(path("audit.log"), &log).unwrap();
        fs::create_dir(path("state")).unwrap();
        let case = "rules = [\"rule.yml\"]\nlog = \"audit.log\"\n[expect]\nexactly = [\"n1\"]\n";
        fs::write(path("case.toml"), case).unwrap();
        fs::write(path("audit.rules"), "").unwrap();
        let run = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
            let output = command.current_dir(place.path()).args(words).output();
            output.unwrap()
        };
        for words in [
            &["check", "rule.yml"][..],
            &["explain", "rule.yml", "--rules-file", "audit.rules"],
            &["test", "case.toml"],
            &[
                "run", "rule.yml", "--log", ".", "--state", "state", "--once",
            ],
        ] {
            let output = run(words);
            assert!(!output.status.success(), "{output:?}");
            let all = [output.stdout, output.stderr].concat();
            let all = String::from_utf8(all).unwrap();
            let expected = "rule.yml:8: the placeholder `%admins%` has no values; write its values into the file of --placeholders";
            assert!(all.contains(expected), "{all}");
            let output = run(&[words, &["--placeholders", "values.toml"]].concat());
            assert!(output.status.success(), "{output:?}");
        }
        fs::write(path("values.toml"), "admins = []\n").unwrap();
        let output = run(&["check", "rule.yml", "--placeholders", "values.toml"]);
        assert_eq!(output.status.code(), Some(2));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.contains("values.toml:1: the placeholder `admins` has no value; "),
            "{told}"
        );
    }

    #[test]
    fn names_in_rules_and_of_files_are_escaped() {
        let place = tempfile::tempdir().unwrap();
        let rule = "title: \"a\\e[2J\"\nlogsource:\n    service: \"\\e]0;x\\u202e\"\ndetection:\n    a: 1\n    condition: a\n";
        fs::write(place.path().join("\u{1b}[2J.yml"), rule).unwrap();
        let text = stdout(&check(place.path(), &["--all", "."]), 0);
        assert!(text.contains("\\u{1b}"), "{text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }

    /// The rules of `SigmaHQ` at commit 8eaafff, if they are there: a check-out in `TOLLGATE_SIGMAHQ`.
    #[test]
    fn all_rules_of_sigmahq_load() {
        let Some(place) = std::env::var_os("TOLLGATE_SIGMAHQ") else {
            eprintln!("skipped: TOLLGATE_SIGMAHQ names no check-out of SigmaHQ/sigma");
            return;
        };
        let directories = [
            "rules/linux",
            "rules-emerging-threats",
            "rules-threat-hunting",
        ];
        let options = [&["--json"], &directories[..]].concat();
        let text = stdout(&check(Path::new(&place), &options), 0);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["rules"].as_array().unwrap().len(), 221);
    }
}
