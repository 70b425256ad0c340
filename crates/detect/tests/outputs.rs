//! Where alerts of `tollgate-detect run` go beside standard output.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::process::{Command, Output};

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
}
