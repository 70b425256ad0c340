//! `tollgate-detect status` as a user runs it.

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};
    use std::time::{Duration, Instant};

    use serde_json::Value;

    const RULES: &str = "title: \"Sh\\e[31mell\"\nid: shell-1\nlogsource:\n    product: linux\n    category: process_creation\n\
        detection:\n    a:\n        Image|endswith: /sh\n    condition: a\nlevel: high\n---\ntitle: Broken\n";

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("rules.yml"), RULES).unwrap();
        fs::create_dir(place.path().join("state")).unwrap();
        fs::create_dir(place.path().join("log")).unwrap();
        fs::write(place.path().join("log/audit.log"), "").unwrap();
        place
    }

    fn append(place: &Path, serial: u32) {
        let stamp = format!("msg=audit({}.500:{serial}): ", 1_790_900_000 + serial);
        let text = format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=59 success=yes exit=0 ppid=5000001 pid=500{serial} auid=1 uid=0 \
             euid=0 comm=\"sh\" exe=\"/bin/sh\"\ntype=EXECVE {stamp}argc=1 a0=\"sh\"\ntype=EOE {stamp}\n"
        );
        let mut log = OpenOptions::new()
            .append(true)
            .open(place.join("log/audit.log"))
            .unwrap();
        log.write_all(text.as_bytes()).unwrap();
    }

    fn command(place: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command
            .current_dir(place)
            .args(words)
            .args(["--state", "state", "--log", "log"]);
        command
    }

    fn once(place: &Path) {
        let words = ["run", "rules.yml", "--once", "--window", "0", "--rate", "2"];
        let output = command(place, &words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn status(place: &Path, options: &[&str]) -> Output {
        command(place, &[&["status"], options].concat())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn json(output: &Output, status: i32) -> Value {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn run_that_ended_is_told_with_its_counts_and_lag() {
        let place = place();
        let place = place.path();
        let output = status(place, &[]);
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("state directory `state` has no status: "),
            "{errors}"
        );
        // Within one minute of the log, of which two alerts are printed.
        (0..3).for_each(|serial| append(place, serial));
        once(place);
        append(place, 7);
        append(place, 9);
        let found = json(&status(place, &["--json"]), 1);
        assert_eq!(found["alive"], false);
        assert_eq!(found["lag"]["events"], 2);
        assert_eq!(found["lag"]["milliseconds"], 7000);
        assert_eq!(found["last_event"]["serial"], 2);
        assert_eq!(found["rules"]["loaded"], 1);
        assert_eq!(found["rules"]["refused"], 1);
        assert_eq!(found["events"], 3);
        assert_eq!(found["by_rule"]["shell-1"]["events"], 3);
        assert_eq!(found["by_rule"]["shell-1"]["alerts"], 2);
        assert_eq!(found["by_level"]["high"]["alerts"], 2);
        assert_eq!(found["left_out_by_rate"], 1);
        let output = status(place, &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        for line in [
            "run        does not run: ",
            "position   2026-10-02T00:13:22.500Z, serial 2\n",
            "lag        2 events, 7.000 seconds\n",
            "rules      1 loaded, 1 cannot be loaded, 0 for other log sources\n",
            "left out   1 by the rate limit\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        // What another user may have written there.
        fs::write(place.join("state/status"), "{\"version\":1").unwrap();
        assert_eq!(status(place, &[]).status.code(), Some(2));
        fs::remove_file(place.join("state/status")).unwrap();
        std::os::unix::fs::symlink("../rules.yml", place.join("state/status")).unwrap();
        let errors = String::from_utf8(status(place, &[]).stderr).unwrap();
        assert!(errors.contains("cannot open `state/status`"), "{errors}");
    }

    #[test]
    fn run_that_follows_is_alive() {
        let place = place();
        let place = place.path();
        let mut child = command(place, &["run", "rules.yml"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut serial = 0;
        let found = loop {
            append(place, serial);
            serial += 1;
            let output = status(place, &["--json"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if found["events"].as_u64() >= Some(1) {
                break json(&output, 0);
            }
            assert!(Instant::now() < deadline, "{output:?}");
        };
        assert_eq!(found["alive"], true);
        assert_eq!(found["pid"], child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(json(&status(place, &["--json"]), 1)["alive"], false);
    }

    const SILENCE: &str = "[[silence]]\nrule = \"shell-1\"\nprogram = \"/bin/*\"\nuntil = 2100-01-01T00:00:00Z\nreason = \"test\"\n";

    #[test]
    fn silences_are_counted_and_read_again() {
        let place = place();
        let place = place.path();
        fs::create_dir(place.join("etc")).unwrap();
        let silences = place.join("etc/silences.toml");
        fs::write(&silences, SILENCE.replace("2100", "2000")).unwrap();
        let words = [
            "run",
            "rules.yml",
            "--once",
            "--window",
            "0",
            "--silences",
            "etc/silences.toml",
        ];
        append(place, 0);
        let output = command(place, &words).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            errors
                .matches("etc/silences.toml:1: the silence of `shell-1` until 2000-01-01")
                .count(),
            1,
            "{errors}"
        );
        assert!(!output.stdout.is_empty());
        fs::write(&silences, SILENCE).unwrap();
        append(place, 1);
        let output = command(place, &words).output().unwrap();
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{output:?}"
        );
        let found = json(&status(place, &["--json"]), 1);
        assert_eq!(
            (&found["silences"], &found["by_rule"]["shell-1"]["silenced"]),
            (&1.into(), &1.into())
        );
        assert_eq!(found["by_level"]["high"]["silenced"], 1);
        fs::write(&silences, "[[silence]]\nrule = 5\n").unwrap();
        let output = command(place, &words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("etc/silences.toml:2:8: invalid type: integer `5`"),
            "{errors}"
        );
        // A run that follows reads the file that appears, with Landlock in force.
        fs::remove_file(&silences).unwrap();
        let words = ["run", "rules.yml", "--silences", "etc/silences.toml"];
        let mut child = command(place, &words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut serial = 10;
        loop {
            if serial == 12 {
                fs::write(place.join("etc/new"), SILENCE).unwrap();
                fs::rename(place.join("etc/new"), &silences).unwrap();
            }
            append(place, serial);
            serial += 1;
            let output = status(place, &["--json"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let counts = &found["by_rule"]["shell-1"];
            if found["alive"] == true && counts["silenced"].as_u64() >= Some(1) {
                break;
            }
            assert!(Instant::now() < deadline, "{output:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
