//! `tollgate-detect run` as a user runs it: alerts, their forms, and what is left out; kills and restarts.

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::{self, File, OpenOptions};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::path::PathBuf;
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::{Duration, Instant};

    use serde_json::Value;

    const RULES: &str = "title: Shell\nid: shell-1\nauthor: A, B\nlogsource:\n    product: linux\n    category: process_creation\n\
        detection:\n    a:\n        Image|endswith: /sh\n    condition: a\nlevel: high\ntags: [attack.execution, attack.t1059.004]\n\
        ---\ntitle: Low\nlogsource:\n    service: auditd\ndetection:\n    a:\n        type: EXECVE\n    condition: a\nlevel: low\n";

    /// Process ids that this machine does not have.
    const PIDS: u32 = 5_000_000;

    /// A directory with rules, a log and a state directory.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            fs::write(place.path().join("rules.yml"), RULES).unwrap();
            fs::create_dir(place.path().join("state")).unwrap();
            fs::create_dir(place.path().join("log")).unwrap();
            File::create(place.path().join("log/audit.log")).unwrap();
            Self(place)
        }

        fn log(&self) -> PathBuf {
            self.0.path().join("log/audit.log")
        }

        fn append(&self, text: &str) {
            let mut log = OpenOptions::new().append(true).open(self.log()).unwrap();
            log.write_all(text.as_bytes()).unwrap();
        }

        fn append_new(&self, text: &str) {
            File::create_new(self.log()).unwrap();
            self.append(text);
        }

        fn command(&self, options: &[&str]) -> Command {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
            command.current_dir(self.0.path());
            command.args(["run", "rules.yml"]).args(options);
            for (option, value) in [("--log", "log"), ("--state", "state")] {
                if !options.contains(&option) {
                    command.args([option, value]);
                }
            }
            command
        }

        #[track_caller]
        fn once(&self, options: &[&str]) -> String {
            let output = self
                .command(&[&["--once"], options].concat())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        }
    }

    fn exec(serial: u32, exe: &str, arguments: &str) -> String {
        let stamp = format!("msg=audit({}.500:{serial}): ", 1_790_000_000 + serial);
        format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 ppid={} pid={} auid=54321 uid=0 euid=0 \
             comm=\"c\" exe={exe}\ntype=EXECVE {stamp}argc=1 a0={arguments}\ntype=CWD {stamp}cwd=\"/root\"\n\
             type=PROCTITLE {stamp}proctitle={arguments}\n",
            PIDS + serial - 1,
            PIDS + serial,
        )
    }

    fn shell(serial: u32) -> String {
        exec(serial, "\"/bin/sh\"", "\"sh\"")
    }

    #[test]
    fn alert_tells_who_what_and_where_from() {
        let place = Place::new();
        place.append(&(exec(900_001, "\"/usr/sbin/sshd\"", "\"sshd\"") + &shell(900_002)));
        let printed = place.once(&[]);
        assert_eq!(
            printed,
            "2026-10-02T00:13:22.500Z high     Shell\n\
            \x20 id       shell-1:1790900002.500:900002\n\
            \x20 who      login 54321, user root(0)\n\
            \x20 program  /bin/sh[5900002]\n\
            \x20 command  sh\n\
            \x20 in       /root\n\
            \x20 from     /usr/sbin/sshd[5900001]\n\
            \x20 because  Image=/bin/sh\n\
            \x20 tags     attack.execution attack.t1059.004\n\
            \x20 records  ausearch -a 900002\n"
        );
        let guide = include_str!("../../../docs/detect.md");
        assert!(guide.contains(&printed), "docs/detect.md has another alert");
        // The next run continues behind it.
        assert_eq!(place.once(&[]), "");
        place.append(&shell(900_003));
        assert!(place.once(&[]).contains("shell-1:1790900003.500:900003"));
    }

    #[test]
    fn alerts_are_ocsf_and_ecs() {
        let place = Place::new();
        place.append(&(exec(2, "\"/usr/sbin/sshd\"", "\"sshd\"") + &shell(3)));
        let value: Value = serde_json::from_str(&place.once(&["--format", "ocsf"])).unwrap();
        assert_eq!(value["class_uid"], 2004);
        assert_eq!(value["type_uid"], 200_401);
        assert_eq!(value["severity_id"], 4);
        assert_eq!(value["time"], 1_790_000_003_500_u64);
        assert_eq!(value["metadata"]["version"], "1.8.0");
        let info = &value["finding_info"];
        assert_eq!(info["uid"], "shell-1:1790000003.500:3");
        assert_eq!(info["analytic"]["uid"], "shell-1");
        assert_eq!(info["attacks"][0]["sub_technique"]["uid"], "T1059.004");
        let process = &value["evidences"][0]["process"];
        assert_eq!(process["pid"], PIDS + 3);
        assert_eq!(process["parent_process"]["file"]["path"], "/usr/sbin/sshd");
        assert_eq!(value["unmapped"]["rule_author"], "A, B");
        fs::remove_file(place.0.path().join("state/cursor")).unwrap();
        let value: Value = serde_json::from_str(&place.once(&["--format", "ecs"])).unwrap();
        assert_eq!(value["@timestamp"], "2026-09-21T14:13:23.500Z");
        assert_eq!(value["event"]["kind"], "alert");
        assert_eq!(value["event"]["id"], "shell-1:1790000003.500:3");
        assert_eq!(
            value["threat"]["technique"]["subtechnique"]["id"][0],
            "T1059.004"
        );
        assert_eq!(value["process"]["parent"]["executable"], "/usr/sbin/sshd");
        assert_eq!(value["rule"]["author"][0], "A, B");
    }

    #[test]
    fn levels_windows_and_rates_leave_out_and_count() {
        let place = Place::new();
        place.append(&(10..20).map(shell).collect::<String>());
        let again = |options: &[&str]| {
            let _none_before = fs::remove_file(place.0.path().join("state/cursor"));
            place.once(options)
        };
        let printed = again(&[]);
        assert_eq!(printed.matches("high     Shell\n").count(), 1, "{printed}");
        assert!(
            printed.contains("high     Shell: 9 more events\n"),
            "{printed}"
        );
        assert_eq!(again(&["--level", "critical"]), "");
        assert!(again(&["--level", "low"]).contains("low      Low\n"));
        let printed = again(&["--window", "0", "--rate", "3"]);
        assert_eq!(printed.matches("high     Shell\n").count(), 3, "{printed}");
        assert!(
            printed.contains("Alerts left out by the rate limit: 7\n"),
            "{printed}"
        );
        assert!(printed.contains("because  shell-1=7\n"), "{printed}");
    }

    #[test]
    fn hostile_names_are_escaped_in_all_forms() {
        let place = Place::new();
        let long = "2F".repeat(4000) + "1B5B324AFF0A2F7368";
        place.append(&exec(2, &long, "1B5D303B78E280AE07"));
        for format in ["text", "ocsf", "ecs"] {
            let _none_before = fs::remove_file(place.0.path().join("state/cursor"));
            let printed = place.once(&["--format", format]);
            assert!(printed.contains("shell-1:"), "{format}: {printed}");
            assert!(printed.len() < 100_000, "{format}");
            let is_plain = |character: char| character == '\n' || !character.is_control();
            assert!(printed.chars().all(is_plain), "{format}: {printed}");
            assert!(!printed.contains('\u{202e}'), "{format}");
            let lines = if format == "text" { 9 } else { 1 };
            assert_eq!(printed.lines().count(), lines, "{format}: {printed}");
        }
    }

    /// Waits for a line that contains a text.
    #[track_caller]
    fn wait_for(lines: &mut BufReader<ChildStdout>, text: &str) {
        let mut line = String::new();
        while lines.read_line(&mut line).unwrap() > 0 {
            if line.contains(text) {
                return;
            }
            line.clear();
        }
        panic!("the output ends before `{text}`");
    }

    fn start(place: &Place, options: &[&str]) -> (Child, BufReader<ChildStdout>) {
        let mut command = place.command(options);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (child, lines)
    }

    /// Waits until the run has saved its first position.
    fn wait_for_cursor(place: &Place) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !place.0.path().join("state/cursor").exists() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
    }

    #[test]
    fn log_is_followed_from_its_end_over_rotations() {
        let place = Place::new();
        place.append(&shell(2));
        let (mut child, mut lines) = start(&place, &["--window", "0"]);
        wait_for_cursor(&place);
        place.append(&shell(3));
        let started = Instant::now();
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert!(first.ends_with("Shell\n"), "{first}");
        assert!(started.elapsed() < Duration::from_secs(10));
        wait_for(&mut lines, "shell-1:1790000003.500:3");
        fs::rename(place.log(), place.log().with_extension("log.1")).unwrap();
        File::create(place.log()).unwrap();
        place.append(&shell(4));
        wait_for(&mut lines, "shell-1:1790000004.500:4");
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(child.wait().unwrap().success());
        // Nothing is told twice after an orderly end.
        assert_eq!(place.once(&["--window", "0"]), "");
    }

    #[test]
    fn killed_runs_miss_no_event_and_repeat_ids() {
        const EVENTS: u32 = 3000;
        let place = Place::new();
        let options = [
            "--window",
            "0",
            "--rate",
            "1000000",
            "--from-start",
            "--format",
            "ecs",
        ];
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let mut count = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            let id = value["event"]["id"].as_str().unwrap();
            *seen.entry(id.to_owned()).or_default() += 1;
        };
        let mut written = 2;
        for round in 1..=10 {
            let (mut child, lines) = start(&place, &options);
            let until = EVENTS * round / 10 + 2;
            place.append(&(written..until).map(shell).collect::<String>());
            written = until;
            // It is killed after some of them, in the middle of what it does.
            let mut lines = lines.lines();
            for line in lines
                .by_ref()
                .take(100 + usize::try_from(round).unwrap() * 7)
            {
                count(&line.unwrap());
            }
            child.kill().unwrap();
            child.wait().unwrap();
            // What it has written before; a torn line has no alert.
            for line in lines
                .map_while(Result::ok)
                .filter(|line| line.ends_with('}'))
            {
                count(&line);
            }
        }
        place.once(&options).lines().for_each(&mut count);
        for serial in 2..EVENTS + 2 {
            let id = format!("shell-1:{}.500:{serial}", 1_790_000_000 + serial);
            assert!(seen.contains_key(&id), "{id} was not evaluated");
        }
        assert_eq!(seen.len(), EVENTS as usize);
    }

    #[test]
    fn event_that_is_not_whole_is_left_for_the_next_run() {
        let place = Place::new();
        let text = shell(2);
        let (head, tail) = text.split_at(text.find("type=EXECVE").unwrap() + 30);
        place.append(head);
        assert_eq!(place.once(&[]), "");
        place.append(tail);
        assert!(place.once(&[]).contains("  command  sh\n"));
    }

    #[test]
    fn log_that_was_emptied_between_two_runs_is_read_whole() {
        let place = Place::new();
        place.append(
            &(2..5)
                .map(|serial| exec(serial, "\"/bin/x\"", "\"x\""))
                .collect::<String>(),
        );
        assert_eq!(place.once(&[]), "");
        File::create(place.log()).unwrap();
        place.append(&(100_000..100_009).map(shell).collect::<String>());
        let printed = place.once(&["--window", "0"]);
        assert_eq!(printed.matches("shell-1:").count(), 9, "{printed}");
    }

    #[test]
    fn removed_log_has_no_older_one_read_again() {
        let place = Place::new();
        place.append(&shell(2));
        fs::rename(place.log(), place.log().with_extension("log.1")).unwrap();
        place.append_new(&shell(3));
        let (child, mut lines) = start(&place, &["--window", "0"]);
        wait_for_cursor(&place);
        fs::remove_file(place.log()).unwrap();
        place.append_new(&shell(4));
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        first.clear();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first, "  id       shell-1:1790000004.500:4\n");
        assert!(end(child));
    }

    /// Events that are no alerts come all the time on a busy machine.
    #[test]
    fn window_ends_while_other_events_come() {
        let place = Place::new();
        let (child, mut lines) = start(&place, &["--window", "1"]);
        wait_for_cursor(&place);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let at_once = |serial: u32, exe: &str| {
            let stamp = format!("audit({}.", 1_790_000_000 + serial);
            exec(serial, exe, "\"x\"").replace(&stamp, &format!("audit({now}."))
        };
        place.append(&(at_once(2, "\"/bin/sh\"") + &at_once(3, "\"/bin/sh\"")));
        let begun = Instant::now();
        let (told, is_told) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            wait_for(&mut lines, "Shell: 1 more events");
            told.send(()).unwrap();
        });
        let mut serial = 10;
        while is_told.recv_timeout(Duration::from_millis(200)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            place.append(&at_once(serial, "\"/bin/other\""));
            serial += 1;
        }
        reader.join().unwrap();
        assert!(end(child));
    }

    fn end(mut child: Child) -> bool {
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        child.wait().unwrap().success()
    }

    /// Users can fill a disk.
    #[test]
    fn alerts_go_on_without_a_state_directory() {
        let place = Place::new();
        let (child, mut lines) = start(&place, &["--window", "0"]);
        wait_for_cursor(&place);
        // The run may write a file there meanwhile, and then the directory is not empty.
        let state = place.0.path().join("state");
        while fs::remove_dir_all(&state).is_err() {
            assert!(state.exists());
        }
        for serial in 3..6 {
            place.append(&shell(serial));
            wait_for(
                &mut lines,
                &format!("shell-1:{}.500:{serial}", 1_790_000_000 + serial),
            );
            // Longer than the time between two positions.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1100) {
                std::thread::yield_now();
            }
        }
        assert!(!end(child), "the position of the end cannot be written");
    }

    #[test]
    fn log_that_cannot_be_opened_is_told_once_and_tried_again() {
        let place = Place::new();
        let mut command = place.command(&["--window", "0"]);
        let told = place.0.path().join("told");
        command.stdout(Stdio::piped());
        command.stderr(File::create(&told).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        wait_for_cursor(&place);
        fs::rename(place.log(), place.log().with_extension("log.1")).unwrap();
        fs::create_dir(place.log()).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            std::thread::yield_now();
        }
        fs::remove_dir(place.log()).unwrap();
        File::create(place.log()).unwrap();
        place.append(&shell(4));
        wait_for(&mut lines, "shell-1:1790000004.500:4");
        assert!(end(child));
        let told = fs::read_to_string(told).unwrap();
        assert_eq!(told.lines().count(), 3, "{told}");
    }

    #[test]
    fn what_cannot_work_is_an_error_with_advice() {
        let place = Place::new();
        let error = |options: &[&str]| {
            let output = place.command(options).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        assert!(error(&["--log", "none", "--once"]).contains("none"));
        assert!(
            error(&["--state", "none", "--once"])
                .contains("create it, or name another with --state")
        );
        // A position that is lost or damaged hides no event.
        place.append(&shell(2));
        for (cursor, reason) in [
            (&b"1:2:3:4:5 6fa315d4\n"[..], "events may be missing"),
            (b"", "is damaged: continuing with the oldest event"),
            (
                b"1:2:\xff\0",
                "is damaged: continuing with the oldest event",
            ),
        ] {
            fs::write(place.0.path().join("state/cursor"), cursor).unwrap();
            let output = place.command(&["--once"]).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains(reason), "{told}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("shell-1:"));
        }
        fs::write(place.0.path().join("rules.yml"), "title: x\n").unwrap();
        let told = error(&["--once"]);
        assert!(
            told.contains("rules.yml:1: ") && told.contains("no rule can be loaded"),
            "{told}"
        );
    }
}
