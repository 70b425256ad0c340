//! Correlation rules as a user runs them: alerts, kills and restarts, cases, and what they need.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, OpenOptions};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    use serde_json::Value;

    const RULES: &str = "title: Many Failed Logins\nid: many\nlevel: high\ntags: [attack.t1110]\ncorrelation:\n    \
        type: event_count\n    rules: [failed]\n    group-by: [acct]\n    timespan: 1h\n    condition:\n        gte: 5\n\
        ---\ntitle: Failed Login\nid: one\nname: failed\nlogsource:\n    service: auditd\ndetection:\n    s:\n        \
        type: USER_LOGIN\n        res: failed\n    condition: s\nlevel: low\n";

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("rules.yml"), RULES).unwrap();
        fs::create_dir(place.path().join("state")).unwrap();
        fs::write(place.path().join("audit.log"), "").unwrap();
        place
    }

    fn append(place: &Path, text: &str) {
        let mut options = OpenOptions::new();
        let mut log = options.append(true).open(place.join("audit.log")).unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }

    fn login(second: u32, user: &str) -> String {
        let stamp = format!("msg=audit({}.500:{second})", 1_790_000_000 + second);
        format!(
            "type=USER_LOGIN {stamp}: pid=80 uid=0 auid=4294967295 ses=4294967295 msg='op=login acct=\"{user}\" \
             exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'\n"
        )
    }

    fn command(place: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command.current_dir(place).args(words);
        command
    }

    const RUN: [&str; 7] = [
        "run",
        "rules.yml",
        "--log",
        ".",
        "--state",
        "state",
        "--from-start",
    ];

    fn once(place: &Path, options: &[&str]) -> Output {
        let words = [&RUN[..], &["--once"], options].concat();
        command(place, &words).output().unwrap()
    }

    #[track_caller]
    fn stdout(output: &Output, status: i32) -> String {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    #[test]
    fn alert_names_group_and_events_over_restarts() {
        let place = place();
        let place = place.path();
        for second in 1..5 {
            append(place, &login(second, "root"));
            append(place, &login(second + 10, "x"));
            assert_eq!(stdout(&once(place, &[]), 0), "");
        }
        append(place, &login(20, "root"));
        let printed = stdout(&once(place, &[]), 0);
        let expected = "2026-09-21T14:13:40.500Z high     Many Failed Logins\n\
            \x20 id       many:1790000020.500:20\n\
            \x20 who      login unset, user root(0)\n\
            \x20 program  /usr/sbin/sshd[80]\n\
            \x20 because  event_count=5\n\
            \x20 group    acct=root\n\
            \x20 events   1790000001.500:1 1790000002.500:2 1790000003.500:3 1790000004.500:4 1790000020.500:20\n\
            \x20 tags     attack.t1110\n\
            \x20 records  ausearch -a 20\n";
        assert_eq!(printed, expected);
        assert!(include_str!("../../../docs/detect.md").contains(expected));
        let output = command(place, &["status", "--state", "state", "--log", "."]).output();
        let printed = stdout(&output.unwrap(), 1);
        let windows =
            "windows    2 groups of 1 correlation rules; 0 forgotten, 0 events too late\n";
        assert!(printed.contains(windows), "{printed}");
        // The other group has four.
        append(place, &login(21, "x"));
        let printed = stdout(&once(place, &["--format", "ocsf"]), 0);
        let value: Value = serde_json::from_str(&printed).unwrap();
        let related = &value["finding_info"]["related_events"];
        assert_eq!(related.as_array().unwrap().len(), 5);
        assert_eq!(related[4]["uid"], "1790000021.500:21");
        let group = &value["unmapped"]["correlation"]["group"][0];
        assert_eq!(
            (&group["name"], &group["value"]),
            (&"acct".into(), &"x".into())
        );
    }

    #[test]
    fn fields_that_no_event_has_are_noted() {
        let place = place();
        let place = place.path();
        let rules = "title: Many\nid: many\ncorrelation:\n    type: event_count\n    rules: [sh, failed]\n    \
            group-by: [user, node]\n    aliases:\n        user:\n            sh: Usr\n            failed: acct\n    \
            timespan: 1h\n    condition:\n        gte: 5\n---\ntitle: Shell\nid: sh\nlogsource:\n    \
            category: process_creation\ndetection:\n    s:\n        Image: /bin/sh\n    condition: s\n---\n";
        let (_, failed) = RULES.split_once("---\n").unwrap();
        fs::write(place.join("rules.yml"), [rules, failed].concat()).unwrap();
        let printed = stdout(
            &command(place, &["check", "rules.yml"]).output().unwrap(),
            0,
        );
        let note = "rules.yml:1: note: events of a rule of this correlation do not have `Usr`, which is empty for them\n";
        assert!(printed.contains(note), "{printed}");
    }

    /// An event has a record for each of its names.
    #[test]
    fn each_record_of_an_event_has_a_value_and_a_group() {
        let place = place();
        let place = place.path();
        let rules = "title: Named\nid: one\nname: named\nlogsource:\n    service: auditd\ndetection:\n    s:\n        \
            type: PATH\n    condition: s\nlevel: low\n";
        let correlation = |id: &str, section: &str| {
            format!(
                "---\ntitle: {id}\nid: {id}\nlevel: high\ncorrelation:\n    rules: [named]\n    timespan: 1h\n{section}"
            )
        };
        let values = correlation(
            "values",
            "    type: value_count\n    condition:\n        field: name\n        gte: 3\n",
        );
        let groups = correlation(
            "groups",
            "    type: event_count\n    group-by: [name]\n    condition:\n        gte: 2\n",
        );
        let events = correlation(
            "events",
            "    type: event_count\n    condition:\n        gte: 3\n",
        );
        let rules = [rules, &values, &groups, &events].concat();
        fs::write(place.join("rules.yml"), rules).unwrap();
        let event = |serial: u32, names: &[&str]| {
            let stamp = format!("msg=audit({}.500:{serial})", 1_790_000_000 + serial);
            let path = |name: &&str| format!("type=PATH {stamp}: item=0 name=\"{name}\"\n");
            let paths: String = names.iter().map(path).collect();
            format!(
                "type=SYSCALL {stamp}: arch=c000003e syscall=82 ppid=1 pid={serial}\n{paths}type=EOE {stamp}:\n"
            )
        };
        append(place, &event(1, &["/d/", "/d/a", "/d/"]));
        append(place, &event(2, &["/d/", "/d/b"]));
        let printed = stdout(&once(place, &["--window", "0"]), 0);
        let lines = printed.lines().filter_map(|line| {
            let (_, told) = line
                .split_once("because  ")
                .or_else(|| line.split_once("group    "))?;
            Some(told)
        });
        let expected = ["value_count=3", "event_count=2", "name=/d/"];
        assert_eq!(lines.collect::<Vec<_>>(), expected, "{printed}");
    }

    /// The program may end between the files that it writes.
    #[test]
    fn windows_belong_to_a_position() {
        let place = place();
        let place = place.path();
        let state = |name: &str| place.join("state").join(name);
        append(
            place,
            &(1..4)
                .map(|second| login(second, "root"))
                .collect::<String>(),
        );
        stdout(&once(place, &[]), 0);
        let before = fs::read(state("cursor")).unwrap();
        append(place, &login(4, "root"));
        stdout(&once(place, &[]), 0);
        // The windows are those of the newer position.
        fs::write(state("cursor"), &before).unwrap();
        append(place, &login(5, "root"));
        let printed = stdout(&once(place, &["--format", "ocsf"]), 0);
        let value: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(value["unmapped"]["correlation"]["event_count"], 5);
        // Neither is of another position, nor damaged.
        let windows = fs::read_to_string(state("windows")).unwrap();
        fs::write(state("cursor"), &before).unwrap();
        let output = once(place, &[]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains("it belongs to another position in the log"),
            "{told}"
        );
        fs::write(state("windows"), windows.split_at(windows.len() / 2).0).unwrap();
        let output = once(place, &[]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains("correlation rules begin anew: cannot use `state/windows`: "),
            "{told}"
        );
        // Without correlation rules there are no windows that become old.
        let rule = RULES.split_once("---\n").unwrap().1;
        fs::write(place.join("rules.yml"), rule).unwrap();
        stdout(&once(place, &[]), 0);
        assert!(!state("windows").exists());
    }

    #[test]
    fn killed_runs_miss_no_correlation_and_repeat_ids() {
        const EVENTS: u32 = 1500;
        let place = place();
        let place = place.path();
        let user = |second: u32| format!("u{}", second % 100);
        // Each user has five after 401 to 500 events.
        let expected: BTreeSet<String> = (401..=500)
            .map(|second| format!("many:{}.500:{second}", 1_790_000_000 + second))
            .collect();
        let mut seen = BTreeSet::new();
        let note = |line: &str, seen: &mut BTreeSet<String>| {
            let value: Value = serde_json::from_str(line).unwrap();
            seen.insert(value["event"]["id"].as_str().unwrap().to_owned());
        };
        let options = ["--format", "ecs", "--rate", "100000"];
        let mut written = 1;
        for round in 1..=15 {
            let mut command = command(place, &[&RUN[..], &options].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let until = EVENTS * round / 15;
            let text = (written..until).map(|second| login(second, &user(second)));
            append(place, &text.collect::<String>());
            written = until;
            // It is killed at any moment of reading, printing and saving.
            let begun = std::time::Instant::now();
            while begun.elapsed() < std::time::Duration::from_millis(u64::from(round) * 97 % 400) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            for line in lines.by_ref().map_while(Result::ok) {
                if line.ends_with('}') {
                    note(&line, &mut seen);
                }
            }
        }
        let printed = stdout(&once(place, &options), 0);
        printed.lines().for_each(|line| note(line, &mut seen));
        assert_eq!(seen, expected);
    }

    #[test]
    fn cases_check_and_explain_know_correlations() {
        let place = place();
        let place = place.path();
        append(
            place,
            &(1..6)
                .map(|second| login(second, "root"))
                .collect::<String>(),
        );
        let case = "rules = [\"rules.yml\"]\nlog = \"audit.log\"\n[expect]\nexactly = [\"many\"]\n";
        fs::write(place.join("case.toml"), case).unwrap();
        fs::write(place.join("same.toml"), case).unwrap();
        let test = || {
            command(place, &["test", "case.toml", "same.toml"])
                .output()
                .unwrap()
        };
        let printed = stdout(&test(), 0);
        assert!(
            printed.ends_with("2 passed, 0 failed, 0 errors\n"),
            "{printed}"
        );
        fs::write(place.join("case.toml"), case.replace("\"many\"", "\"one\"")).unwrap();
        let printed = stdout(&test(), 2);
        let told =
            "case.toml:4: the rule `one` makes no alerts of its own; name the correlation rule";
        assert!(printed.contains(told), "{printed}");
        fs::write(
            place.join("rules.yml"),
            RULES.replace("    type: event", "    generate: true\n    type: event"),
        )
        .unwrap();
        let printed = stdout(&test(), 1);
        assert!(
            printed.contains("`many` (Many Failed Logins) matches 1 event"),
            "{printed}"
        );
        fs::write(place.join("rules.yml"), RULES).unwrap();
        let check = |words: &[&str], status| {
            let words = [&["check", "rules.yml"], words].concat();
            stdout(&command(place, &words).output().unwrap(), status)
        };
        let printed = check(&[], 0);
        let note = "rules.yml:13: note: `Failed Login` makes no alerts of its own: a correlation rule without `generate: true` refers to it\n";
        assert!(printed.starts_with(note), "{printed}");
        let correlation = printed
            .lines()
            .find(|line| line.starts_with("correlation "));
        let words: Vec<&str> = correlation.unwrap().split_whitespace().collect();
        assert_eq!(words, ["correlation", "0", "0", "0", "1", "0", "1"]);
        let value: Value = serde_json::from_str(&check(&["--json"], 0)).unwrap();
        assert_eq!(value["rules"][1]["log_source"], "correlation");
        assert_eq!(value["rules"][0]["alerts"], false);
        fs::write(place.join("audit.rules"), "").unwrap();
        let words = [
            "explain",
            "rules.yml",
            "--rules-file",
            "audit.rules",
            "--json",
        ];
        let printed = stdout(&command(place, &words).output().unwrap(), 0);
        let value: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(value["rules"][1]["id"], "many");
        assert_eq!(value["rules"][1]["needs"], value["rules"][0]["needs"]);
        assert_eq!(value["rules"][1]["status"], "sent");
        fs::write(
            place.join("rules.yml"),
            RULES.replace("[failed]", "[success]"),
        )
        .unwrap();
        let printed = check(&[], 1);
        let told = "rules.yml:7: no loaded rule has the id or name `success`; correct the name, or load the rule\n";
        assert!(printed.starts_with(told), "{printed}");
    }
}
