//! Where alerts of `tollgate-detect run` go beside standard output.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, Instant};

    use nix::sys::signal::{Signal, kill};
    use serde_json::Value;

    const RULES: &str = "title: Shell\nid: shell-1\nlogsource:\n    category: process_creation\n\
        detection:\n    a:\n        Image|endswith: /sh\n    condition: a\nlevel: high\n\
        ---\ntitle: Cat\nid: cat-1\nlogsource:\n    category: process_creation\n\
        detection:\n    a:\n        Image|endswith: /cat\n    condition: a\nlevel: medium\n";

    fn exec(serial: u32, exe: &str) -> String {
        let stamp = format!("msg=audit({}.500:{serial}): ", 1_790_000_000 + serial);
        format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 ppid=4999999 pid={} auid=54321 uid=0 euid=0 \
             comm=\"c\" exe=\"{exe}\"\ntype=EXECVE {stamp}argc=1 a0=\"x\"\ntype=EOE {stamp}\n",
            5_000_000 + serial,
        )
    }

    /// A directory with rules, a log of some programs, and a state directory.
    fn place(programs: &[&str]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("rules.yml"), RULES).unwrap();
        fs::create_dir(place.path().join("state")).unwrap();
        fs::create_dir(place.path().join("log")).unwrap();
        let log = (2..)
            .zip(programs)
            .map(|(serial, program)| exec(serial, program));
        fs::write(place.path().join("log/audit.log"), log.collect::<String>()).unwrap();
        place
    }

    fn run(place: &Path, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        let words = [
            "run",
            "rules.yml",
            "--once",
            "--log",
            "log",
            "--state",
            "state",
        ];
        command.current_dir(place).args(words).args(options);
        command.output().unwrap()
    }

    fn status(place: &Path) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        let words = ["status", "--state", "state", "--log", "log", "--json"];
        let output = command.current_dir(place).args(words).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Landlock is in force when the socket is looked up.
    #[test]
    fn alerts_go_to_syslog_too() {
        let place = place(&["/bin/sh", "/bin/cat"]);
        let place = place.path();
        let daemon = UnixDatagram::bind(place.join("socket")).unwrap();
        daemon.set_nonblocking(true).unwrap();
        let options = ["--syslog=high", "--syslog-socket", "socket"];
        let output = run(place, &options);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.matches("  id ").count(), 2, "{printed}");
        let mut buffer = [0; 8192];
        let length = daemon.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]);
        assert!(
            text.starts_with("<83>1 2026-09-21T14:13:22.500Z - tollgate-detect "),
            "{text}"
        );
        assert!(
            text.contains(" alert - Shell; id: shell-1:1790000002.500:2; who: login 54321, "),
            "{text}"
        );
        daemon.recv(&mut buffer).unwrap_err();
        assert_eq!(status(place)["outputs"]["syslog_sent"], 1);
        fs::remove_file(place.join("state/cursor")).unwrap();
        let output = run(
            place,
            &["--syslog", "--syslog-socket", "socket", "--format", "ocsf"],
        );
        assert!(output.status.success(), "{output:?}");
        let length = daemon.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let value: Value = serde_json::from_str(text.split_once(" alert - ").unwrap().1).unwrap();
        assert_eq!(value["finding_info"]["uid"], "shell-1:1790000002.500:2");
        daemon.recv(&mut buffer).unwrap();
    }

    #[test]
    fn absent_syslog_is_told_once_and_stops_nothing() {
        let place = place(&["/bin/sh", "/bin/cat", "/usr/bin/sh"]);
        let place = place.path();
        let output = run(place, &["--syslog", "--syslog-socket", "none"]);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.matches("  id ").count(), 3, "{printed}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            told.matches("cannot send alerts to syslog socket `none`")
                .count(),
            1,
            "{told}"
        );
        assert_eq!(status(place)["outputs"]["syslog_lost"], 3);
    }

    /// An absolute path without links of a program with a script.
    fn program(place: &Path, script: &str) -> String {
        let program = place.canonicalize().unwrap().join("program");
        let text = format!("#!/bin/sh\ncd {}\n{script}\n", place.display());
        // A process of another thread must not have the file open to be written.
        let made = Command::new("/bin/sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .arg(&program)
            .arg(text)
            .status();
        assert!(made.unwrap().success());
        program.into_os_string().into_string().unwrap()
    }

    #[test]
    fn program_is_started_for_alerts_of_its_level() {
        let place = place(&["/bin/sh", "/bin/cat", "/bin/sh"]);
        let place = place.path();
        let program = program(place, "cat > \"out.$TOLLGATE_ALERT_ID\"");
        let output = run(place, &["--on-alert", &program, "--window", "0"]);
        assert!(output.status.success(), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.matches("  id ").count(), 3, "{printed}");
        for id in ["shell-1:1790000002.500:2", "shell-1:1790000004.500:4"] {
            let text = fs::read_to_string(place.join(format!("out.{id}"))).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["finding_info"]["uid"], id);
        }
        assert!(!place.join("out.cat-1:1790000003.500:3").exists());
        let outputs = &status(place)["outputs"];
        assert_eq!(
            (&outputs["programs_started"], &outputs["programs_failed"]),
            (&2.into(), &0.into())
        );
        fs::remove_file(place.join("state/cursor")).unwrap();
        run(
            place,
            &[
                "--on-alert",
                &program,
                "--window",
                "0",
                "--on-alert-level",
                "medium",
            ],
        );
        assert!(place.join("out.cat-1:1790000003.500:3").exists());
    }

    #[test]
    fn program_gets_the_alert_and_nothing_else() {
        let place = place(&["/bin/sh"]);
        let place = place.path();
        let script = "cat > input\nenv > environment\ngrep SigBlk /proc/self/status > signals\n\
            links=$(readlink /proc/$$/fd/1 /proc/$$/fd/2)\necho \"$links\" > outputs\necho text\necho text >&2";
        let program = program(place, script);
        let output = run(place, &["--on-alert", &program]);
        assert!(output.status.success(), "{output:?}");
        let read = |name: &str| fs::read_to_string(place.join(name)).unwrap();
        let input: Value = serde_json::from_str(read("input").strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(input["finding_info"]["uid"], "shell-1:1790000002.500:2");
        assert_eq!(read("signals"), "SigBlk:\t0000000000000000\n");
        assert_eq!(read("outputs"), "/dev/null\n/dev/null\n");
        let environment = read("environment");
        let mut names: Vec<&str> = environment
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            // Shells set them.
            .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["PATH", "TOLLGATE_ALERT_ID", "TOLLGATE_ALERT_LEVEL"]);
        let id = "TOLLGATE_ALERT_ID=shell-1:1790000002.500:2\n";
        assert!(environment.contains(id), "{environment}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!told.contains("text"), "{told}");
    }

    #[test]
    fn reason_why_the_program_does_not_start_is_told() {
        let place = place(&["/bin/sh"]);
        let place = place.path();
        let program = program(place, "");
        fs::write(&program, "#!/nonexistent\n").unwrap();
        let output = run(place, &["--on-alert", &program]);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(
            told.contains("cannot start it: No such file or directory"),
            "{told}"
        );
        let outputs = &status(place)["outputs"];
        assert_eq!(
            (&outputs["programs_started"], &outputs["programs_failed"]),
            (&0.into(), &1.into())
        );
    }

    /// Whoever runs a program chooses its arguments and those of the programs above it.
    #[test]
    fn no_arguments_keep_the_program_from_being_started() {
        let place = place(&[]);
        let place = place.path();
        let (argument, directory) = ("01".repeat(4096), "01".repeat(4090));
        let log = (2..20).map(|serial| {
            let stamp = format!("msg=audit(1790000000.500:{serial}): ");
            let (parent, pid) = (5_000_000 + serial - 1, 5_000_000 + serial);
            let exe = if serial == 19 { "/bin/sh" } else { "/bin/x" };
            format!(
                "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 ppid={parent} pid={pid} auid=54321 uid=0 \
                 euid=0 comm=\"c\" exe=\"{exe}\"\ntype=EXECVE {stamp}argc=1 a0={argument}\n\
                 type=CWD {stamp}cwd=2F{directory}\ntype=EOE {stamp}\n"
            )
        });
        fs::write(place.join("log/audit.log"), log.collect::<String>()).unwrap();
        let program = program(place, "cat > out");
        let output = run(place, &["--on-alert", &program]);
        assert!(output.status.success(), "{output:?}");
        let text = fs::read(place.join("out")).unwrap();
        assert!((10_000..=64 << 10).contains(&text.len()), "{}", text.len());
        let value: Value = serde_json::from_slice(&text).unwrap();
        let process = &value["evidences"][0]["process"];
        assert_eq!(process["file"]["path"], "/bin/sh");
        assert_eq!(process["parent_process"]["file"]["path"], "/bin/x");
        assert_eq!(status(place)["outputs"]["programs_started"], 1);
    }

    /// What the program does is not to slow detection down, and its failures are told once.
    #[test]
    fn slow_program_leaves_alerts_out() {
        let programs = vec!["/bin/sh"; 400];
        let place = place(&programs);
        let place = place.path();
        let program = program(place, "sleep 0.2\nexit 1");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        let words = [
            "run",
            "rules.yml",
            "--from-start",
            "--log",
            "log",
            "--state",
            "state",
        ];
        command.current_dir(place).args(words);
        command.args(["--on-alert", &program, "--window", "0", "--rate", "1000000"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ids = lines
            .map_while(Result::ok)
            .filter(|line| line.starts_with("  id "));
        assert_eq!(ids.by_ref().take(1).count(), 1);
        // What a service manager may send to all processes does not end the helper.
        let id = child.id();
        let helper = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let helper = nix::unistd::Pid::from_raw(helper.trim().parse().unwrap());
        for signal in [Signal::SIGHUP, Signal::SIGTERM] {
            kill(helper, signal).unwrap();
        }
        // The pipe stays open.
        assert_eq!(ids.by_ref().take(399).count(), 399);
        // All programs, four at once, take twenty seconds.
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("it has too many"), "{told}");
        assert!(told.contains("it failed: exit status: 1"), "{told}");
        let outputs = &status(place)["outputs"];
        let count = |name: &str| outputs[name].as_u64().unwrap();
        let (started, left_out) = (count("programs_started"), count("programs_left_out"));
        assert!(started >= 68 && left_out >= 100, "{outputs}");
        assert_eq!(
            (started + left_out, count("programs_failed")),
            (400, started)
        );
    }

    #[test]
    fn program_that_others_can_replace_is_refused() {
        let place = place(&["/bin/sh"]);
        let place = place.path();
        let program = program(place, "");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        for (program, told) in [
            (
                &*program,
                "can be written by group or others: run `chmod go-w` on it",
            ),
            ("program", "is not an absolute path"),
        ] {
            let output = run(place, &["--on-alert", program]);
            assert_eq!(output.status.code(), Some(2));
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(errors.contains(told), "{errors}");
        }
    }
}
