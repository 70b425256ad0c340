//! Runs `tollgate-search`: the questions of the manual page, and its exit statuses, over a log of today.

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::path::PathBuf;
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, SystemTime};

    const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate-search");

    struct Log {
        _directory: tempfile::TempDir,
        path: PathBuf,
    }

    /// A syscall event with its objects.
    fn syscall(sec: u64, serial: u32, fields: &str, path: &str, other: &str) -> String {
        let stamp = format!("msg=audit({sec}.000:{serial}): ");
        format!(
            "type=SYSCALL {stamp}arch=c000003e {fields} tty=pts0 ses=3 subj=unconfined\x1dARCH=x86_64 AUID=\"alice\"\n\
             {other}type=CWD {stamp}cwd=\"/tmp\"\n\
             type=PATH {stamp}item=0 name=\"{path}\" inode=5 dev=08:01 mode=0100644 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL\n\
             type=PROCTITLE {stamp}proctitle=\"x\"\n"
        )
    }

    fn fields(syscall: u32, exit: i32, pid: u32, ppid: u32, exe: &str, key: &str) -> String {
        let success = if exit < 0 { "no" } else { "yes" };
        let comm = exe.rsplit('/').next().unwrap();
        format!(
            "syscall={syscall} success={success} exit={exit} a0=0 a1=0 a2=0 a3=0 items=1 ppid={ppid} pid={pid} \
             auid=1000 uid=1000 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 comm=\"{comm}\" exe=\"{exe}\" key=\"{key}\""
        )
    }

    fn log() -> Log {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // Still today if midnight is near.
        let now = now.unwrap().as_secs() + 60;
        // The hour of the incident in the manual: 2026-11-24 03:30.
        let incident = 1_795_491_000;
        let saddr = |address: &str, serial: u32| {
            format!(
                "type=SOCKADDR msg=audit({now}.000:{serial}): saddr=02000050{address}0000000000000000\n"
            )
        };
        let text = [
            syscall(
                incident,
                1,
                &fields(257, 3, 50, 1, "/usr/bin/vi", "web"),
                "/srv/www/index.html",
                "",
            ),
            syscall(
                now,
                2,
                &fields(257, 3, 4000, 1, "/usr/sbin/sshd", "identity"),
                "/etc/passwd",
                "",
            ),
            syscall(
                now,
                3,
                &fields(59, 0, 4321, 4000, "/tmp/payload", "exec"),
                "./payload",
                "",
            ),
            syscall(
                now,
                4,
                &fields(257, -13, 4321, 4000, "/tmp/payload", "access"),
                "/etc/shadow",
                "",
            ),
            syscall(
                now,
                5,
                &fields(42, 0, 4322, 4321, "/usr/bin/curl", "net"),
                "x",
                &saddr("C6336407", 5),
            ),
            syscall(
                now,
                6,
                &fields(42, 0, 4322, 4321, "/usr/bin/curl", "net"),
                "x",
                &saddr("7F000001", 6),
            ),
            format!(
                "type=USER_LOGIN msg=audit({now}.000:7): pid=9 uid=0 auid=4294967295 ses=4294967295 \
                 msg='op=login acct=\"bob\" exe=\"/usr/sbin/sshd\" hostname=? addr=192.0.2.7 terminal=ssh res=failed'\n"
            ),
        ];
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        // Half of it is in the rotated log.
        fs::write(path.with_extension("log.1"), text[..3].concat()).unwrap();
        fs::write(&path, text[3..].concat()).unwrap();
        Log {
            _directory: directory,
            path,
        }
    }

    fn run(log: &Log, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("--log").arg(&log.path).args(arguments);
        command.output().unwrap()
    }

    fn stdout(log: &Log, arguments: &[&str]) -> String {
        String::from_utf8(run(log, arguments).stdout).unwrap()
    }

    /// The command lines of the examples in `--help`.
    fn examples() -> Vec<String> {
        let help = Command::new(PROGRAM).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let examples = help.split_once("Examples:").unwrap().1;
        let lines = examples
            .lines()
            .filter_map(|line| line.strip_prefix("    tollgate search "));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn questions_of_the_manual_are_answered() {
        let log = log();
        let expected = [
            "path  /etc/passwd",
            "/tmp/payload[4321]",
            "        1  /tmp/payload\n",
            "        1  alice\n",
            "        1  198.51.100.7\n",
            "        1  192.0.2.7\n",
            "/srv/www/index.html",
            "/usr/bin/curl[4322]",
            "        2  net\n",
        ];
        let examples = examples();
        let (follow, questions): (Vec<_>, Vec<_>) = examples
            .into_iter()
            .partition(|line| line.ends_with("--follow"));
        assert_eq!((follow.len(), questions.len()), (1, expected.len()));
        for (question, expected) in questions.iter().zip(expected) {
            let script = format!("\"$0\" --log \"$1\" {question}");
            let mut command = Command::new("sh");
            command.args(["-c", &script, PROGRAM]).arg(&log.path);
            let output = command.output().unwrap();
            let found = String::from_utf8(output.stdout).unwrap();
            // The user alice may exist here with another number.
            let found = found.replace("unknown(1000)", "alice");
            assert!(
                found.contains(expected) || expected.contains("alice"),
                "{question}: {found}"
            );
            assert_eq!(output.status.code(), Some(0), "{question}");
        }
    }

    #[test]
    fn names_are_those_of_the_event_and_events_have_dates() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        let open = |serial: u32, call: &str| {
            format!(
                "type=SYSCALL msg=audit(1700000000.000:{serial}): {call} success=yes exit=3 a0=0 a1=0 a2=0 a3=0 items=0 \
                 ppid=1 pid=2 auid=0 uid=1 comm=\"x\" exe=\"/bin/x\" key=(null)"
            )
        };
        // The second event names its login user itself, as another host did.
        let text = open(1, "arch=c000003e syscall=2")
            + "\n"
            + &open(2, "arch=40000003 syscall=5")
            + "\x1dAUID=\"other-host\"\n";
        fs::write(&path, text).unwrap();
        let log = Log {
            _directory: directory,
            path,
        };
        assert_eq!(stdout(&log, &["--top", "syscall"]).trim(), "2  open");
        let logins = stdout(&log, &["--top", "auid"]);
        assert!(
            logins.contains("1  other-host") && logins.contains("1  root"),
            "{logins}"
        );
        assert!(stdout(&log, &["serial=2"]).contains("(login other-host)"));
        let numbers = stdout(&log, &["--top", "syscall", "--numeric"]);
        let numbers: Vec<&str> = numbers.split_whitespace().collect();
        assert_eq!(numbers, ["1", "2", "1", "5"]);
        let found = stdout(&log, &["arch=b32"]);
        assert!(
            found.starts_with("2023-11-14 22:13:20.000Z ok       open"),
            "{found}"
        );
    }

    #[test]
    fn tree_for_programs_has_events_only() {
        let log = log();
        let tree = |form| stdout(&log, &["--tree", "4321", form]);
        let is_object = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        let (json, raw) = (tree("--json"), tree("--raw"));
        assert!(
            json.lines().count() > 0 && json.lines().all(is_object),
            "{json}"
        );
        assert!(
            raw.lines().count() > 0 && raw.lines().all(|line| line.starts_with("type=")),
            "{raw}"
        );
    }

    #[test]
    fn tree_shows_ancestors_and_descendants() {
        let log = log();
        for number in ["4321", "3"] {
            let found = stdout(&log, &["--tree", number]);
            let lines: Vec<&str> = found.lines().filter(|line| line.contains('[')).collect();
            assert_eq!(lines[0], "(no event)[1]", "{found}");
            assert_eq!(lines[1], "  /usr/sbin/sshd[4000]");
            assert_eq!(lines.len(), 6, "{found}");
            assert!(lines[4].starts_with("      "), "{found}");
        }
        assert_eq!(run(&log, &["--tree", "77"]).status.code(), Some(1));
    }

    #[test]
    fn outputs_are_records_objects_and_counts() {
        let log = log();
        let raw = stdout(&log, &["--raw"]);
        let mut text = fs::read_to_string(log.path.with_extension("log.1")).unwrap();
        text += &fs::read_to_string(&log.path).unwrap();
        assert_eq!(raw, text);
        assert_eq!(stdout(&log, &["--count", "key=net"]), "2\n");
        let json = stdout(&log, &["--json", "key=access"]);
        assert!(
            json.starts_with('{') && json.contains("\"serial\":4,"),
            "{json}"
        );
        let piped = Command::new("sh")
            .args([
                "-c",
                "cat \"$1\" | \"$0\" --log - --count exit=EACCES",
                PROGRAM,
            ])
            .arg(&log.path)
            .output()
            .unwrap();
        assert_eq!(piped.stdout, b"1\n");
    }

    #[test]
    fn exit_status_is_that_of_grep() {
        let log = log();
        assert_eq!(run(&log, &["key=exec"]).status.code(), Some(0));
        assert_eq!(run(&log, &["key=none"]).status.code(), Some(1));
        let wrong = run(&log, &["keyy=exec"]);
        assert_eq!(wrong.status.code(), Some(2));
        let message = String::from_utf8(wrong.stderr).unwrap();
        assert!(
            message.contains("^^^") && message.contains("did you mean `key`?"),
            "{message}"
        );
        assert_eq!(run(&log, &["--since", "later"]).status.code(), Some(2));
        let missing = Command::new(PROGRAM)
            .args(["--log", "/nonexistent"])
            .output()
            .unwrap();
        assert_eq!(missing.status.code(), Some(2));
    }

    #[test]
    fn follow_prints_events_as_they_are_written() {
        let log = log();
        let mut child = Command::new(PROGRAM)
            .arg("--log")
            .arg(&log.path)
            .args(["--follow", "--since", "@0", "--raw", "key=late"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let event = syscall(
            4_000_000_000,
            99,
            &fields(257, 3, 1, 1, "/bin/x", "late"),
            "/x",
            "",
        );
        // The reader may not have reached the end yet: write until it has seen an event.
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let writer = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(100)).is_err() {
                let mut file = OpenOptions::new().append(true).open(&log.path).unwrap();
                file.write_all(event.as_bytes()).unwrap();
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        stop.send(()).unwrap();
        writer.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.contains("key=\"late\""), "{line}");
    }

    #[test]
    fn rotation_and_damaged_index_give_right_answers() {
        let log = log();
        assert_eq!(stdout(&log, &["--count"]), "7\n");
        let directory = log.path.with_file_name(".tollgate-index");
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0xff;
            fs::write(&path, bytes).unwrap();
        }
        assert_eq!(
            stdout(&log, &["--count", "key=identity or key=access"]),
            "2\n"
        );
        fs::rename(
            log.path.with_extension("log.1"),
            log.path.with_extension("log.2"),
        )
        .unwrap();
        fs::rename(&log.path, log.path.with_extension("log.1")).unwrap();
        fs::write(&log.path, "").unwrap();
        assert_eq!(stdout(&log, &["--count"]), "7\n");
        assert_eq!(
            stdout(&log, &["--count", "key=identity or key=access"]),
            "2\n"
        );
    }
}
