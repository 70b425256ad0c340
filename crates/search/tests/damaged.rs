//! A file that cannot be read is reported, and the others are read.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    const EVENTS: u32 = 12_000;

    fn text(second: u32, events: u32) -> String {
        let event = |number: u32| {
            let stamp = format!("msg=audit({}.000:{number})", second + number / 100);
            format!(
                "type=SYSCALL {stamp}: arch=c000003e syscall=257 success=yes exit=3 a0=0 a1=0 a2=0 a3=0 items=0 ppid=1 \
                 pid={number} auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 \
                 comm=\"cat\" exe=\"/usr/bin/cat\" key=\"k\"\ntype=EOE {stamp}: \n"
            )
        };
        (0..events).map(event).collect()
    }

    /// A log with an archive of several blocks, and a current file.
    struct Place {
        directory: tempfile::TempDir,
        old: String,
        current: String,
    }

    impl Place {
        fn new() -> Self {
            let place = Self {
                directory: tempfile::tempdir().unwrap(),
                old: text(1_700_000_000, EVENTS),
                current: text(1_800_000_000, 7),
            };
            fs::write(place.path("audit.log"), &place.current).unwrap();
            let source = place.path("source");
            fs::write(&source, &place.old).unwrap();
            support::archive::write(&source, &place.archive()).unwrap();
            fs::remove_file(source).unwrap();
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn archive(&self) -> PathBuf {
            self.path("audit.log.000002.zst")
        }

        /// Adds files that are no archives; returns their paths with what is said about them.
        fn add_bad_archives(&self) -> Vec<(PathBuf, &'static str)> {
            let archive = fs::read(self.archive()).unwrap();
            let names = [1, 3, 4, 5].map(|n| self.path(&format!("audit.log.00000{n}.zst")));
            let [cut, other, directory, empty] = names;
            fs::write(&cut, &archive[..archive.len() / 2]).unwrap();
            fs::write(&other, &self.current).unwrap();
            fs::create_dir(&directory).unwrap();
            fs::write(&empty, "").unwrap();
            vec![
                (cut, "its end, with the seek table, is missing"),
                (other, "it is no archive"),
                (directory, "is not a file"),
                (empty, "it is no archive"),
            ]
        }

        /// Damages the second block of the archive.
        fn damage(&self) {
            let mut archive = fs::read(self.archive()).unwrap();
            let frames: Vec<usize> = (0..archive.len() - 4)
                .filter(|&at| archive[at..at + 4] == 0xfd2f_b528_u32.to_le_bytes())
                .collect();
            assert!(frames.len() >= 3, "{frames:?}");
            let middle = usize::midpoint(frames[1], frames[2]);
            archive[middle] ^= 0xff;
            fs::write(self.archive(), archive).unwrap();
        }
    }

    fn command(name: &str, words: &[&str]) -> Command {
        // What hangs ends with status 124.
        let mut command = Command::new("timeout");
        command.args(["60", "bash", "-c", r#"exec -a "$0" "$@""#]);
        command.arg(format!("tollgate-{name}"));
        command
            .arg(env!("CARGO_BIN_EXE_tollgate-search"))
            .args(words);
        command
    }

    fn run(name: &str, words: &[&str], log: &Path) -> Output {
        let mut command = command(name, words);
        command.arg(log).stdin(Stdio::null()).output().unwrap()
    }

    /// Output of a program whose standard input is a pipe with `input`.
    fn piped(name: &str, words: &[&str], input: &[u8]) -> Output {
        support::piped::output(&mut command(name, words), input).unwrap()
    }

    fn stdout(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn stderr(output: &Output) -> String {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    #[track_caller]
    fn assert_reported(output: &Output, bad: &[(PathBuf, &str)]) {
        let errors = stderr(output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.lines().count(), bad.len(), "{errors}");
        for (path, what) in bad {
            let name = path.display().to_string();
            let line = errors.lines().find(|line| line.contains(&name)).unwrap();
            assert!(line.contains(what), "{line}");
            assert!(
                line.ends_with("; move it out of the directory, or restore it from a backup"),
                "{line}"
            );
        }
    }

    #[test]
    fn bad_archives_are_reported_and_the_other_files_are_read() {
        let place = Place::new();
        let bad = place.add_bad_archives();
        let log = place.directory.path();
        let all = EVENTS + 7;

        let found = run("search", &["type=SYSCALL", "--count", "--log"], log);
        assert_eq!(stdout(&found).trim(), all.to_string());
        assert_reported(&found, &bad);
        let none = run("search", &["type=LOGIN", "--log"], log);
        assert_reported(&none, &bad);
        let tree = run("search", &["--tree", "5", "--log"], log);
        assert!(stdout(&tree).contains("/usr/bin/cat"), "{}", stdout(&tree));
        assert_reported(&tree, &bad);

        let cat = run("log", &["cat"], log);
        assert!(stdout(&cat) == format!("{}{}", place.old, place.current));
        assert_reported(&cat, &bad);

        let rules = place.path("rules");
        fs::write(&rules, "-a always,exit -F arch=b64 -S openat -k k\n").unwrap();
        let replay = run("replay", &[rules.to_str().unwrap()], log);
        let counted = stdout(&replay);
        assert!(
            counted
                .lines()
                .nth(1)
                .unwrap()
                .trim()
                .starts_with(&all.to_string()),
            "{counted}"
        );
        assert_reported(&replay, &bad);
    }

    #[test]
    fn list_has_a_row_for_each_file() {
        let place = Place::new();
        let bad = place.add_bad_archives();
        let list = run("log", &["list", "--log"], place.directory.path());
        assert_eq!(
            (list.status.code(), stderr(&list)),
            (Some(2), String::new())
        );
        let table = stdout(&list);
        assert_eq!(table.lines().count(), 8, "{table}");
        for (path, what) in &bad {
            let name = path.file_name().unwrap().to_str().unwrap();
            let row = table.lines().find(|line| line.contains(name)).unwrap();
            assert!(
                row.contains("error: ") && row.contains(what.trim_start_matches("is ")),
                "{row}"
            );
        }
        let json = run("log", &["list", "--json"], place.directory.path());
        assert_eq!(json.status.code(), Some(2));
        let objects: Vec<serde_json::Value> = stdout(&json)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let numbers: Vec<&str> = objects
            .iter()
            .map(|object| {
                let file = object["file"].as_str().unwrap();
                file.rsplit_once("audit.log").unwrap().1
            })
            .collect();
        assert_eq!(
            numbers,
            [
                ".000001.zst",
                ".000002.zst",
                ".000003.zst",
                ".000004.zst",
                ".000005.zst",
                ""
            ]
        );
        for (object, is_bad) in objects.iter().zip([true, false, true, true, true, false]) {
            assert_eq!(object["error"].is_string(), is_bad, "{object}");
            assert_eq!(object["text_bytes"].is_null(), is_bad, "{object}");
            assert!(object["stored_bytes"].is_u64(), "{object}");
        }
    }

    #[test]
    fn blocks_around_a_damaged_one_are_read() {
        let place = Place::new();
        place.damage();
        let bad = [(place.archive(), "the archive is damaged: the frame at byte")];
        let log = place.directory.path();
        let cat = run("log", &["cat"], log);
        assert_reported(&cat, &bad);
        let rest = stdout(&cat);
        assert!(rest.len() < place.old.len() && rest.ends_with(&place.current));
        let events = rest.matches("type=SYSCALL").count();
        assert!(events > 7 + 1000, "{events}");

        let find = || {
            let found = run("search", &["type=SYSCALL", "--count", "--log"], log);
            assert_eq!(stdout(&found).trim(), events.to_string());
            assert_reported(&found, &bad);
        };
        find();
        // An index that others can write is not used: all of the text is read.
        fs::set_permissions(place.archive(), fs::Permissions::from_mode(0o666)).unwrap();
        find();
        // Blocks that the question does not need are not read.
        fs::set_permissions(place.archive(), fs::Permissions::from_mode(0o600)).unwrap();
        let found = run("search", &["pid=3", "--raw", "--log"], log);
        assert_eq!(
            (found.status.code(), stderr(&found)),
            (Some(0), String::new())
        );
    }

    #[test]
    fn option_and_argument_name_the_same_log() {
        let place = Place::new();
        let log = place.directory.path();
        let rules = place.path("rules");
        fs::write(&rules, "-a always,exit -F arch=b64 -S openat -k k\n").unwrap();
        let rules = rules.to_str().unwrap();
        let commands: [(&str, &[&str]); 3] =
            [("log", &["cat"]), ("log", &["list"]), ("replay", &[rules])];
        for (name, words) in commands {
            let argument = run(name, words, log);
            let option = run(name, &[words, &["--log"]].concat(), log);
            assert!(argument.status.success() && !argument.stdout.is_empty());
            assert!(argument.stdout == option.stdout, "{name}");
            let log = log.to_str().unwrap();
            let both = run(name, &[words, &[log, "--log"]].concat(), log.as_ref());
            assert_eq!(both.status.code(), Some(2));
        }
    }

    #[test]
    fn archives_are_not_followed() {
        let place = Place::new();
        let renamed = place.path("old");
        fs::copy(place.archive(), &renamed).unwrap();
        for path in [place.archive(), renamed] {
            let refused = run("search", &["--follow", "--log"], &path);
            assert_eq!(refused.status.code(), Some(2));
            let errors = stderr(&refused);
            assert!(
                errors.contains("is compressed and does not grow"),
                "{errors}"
            );
        }
        let gzip = place.path("audit.log.gz");
        fs::write(&gzip, b"\x1f\x8b\x08\0").unwrap();
        let refused = run("search", &["--follow", "--log"], &gzip);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            stderr(&refused).contains("compressed with gzip"),
            "{}",
            stderr(&refused)
        );
    }

    #[test]
    fn compressed_standard_input_is_decompressed_or_refused() {
        let place = Place::new();
        let rules = place.path("rules");
        fs::write(&rules, "-a always,exit -F arch=b64 -S openat -k k\n").unwrap();
        let programs: [(&str, &[&str]); 2] = [
            ("search", &["type=SYSCALL", "--raw", "--log", "-"]),
            ("replay", &["--raw", rules.to_str().unwrap(), "-"]),
        ];
        let zstd = fs::read(place.archive()).unwrap();
        for (name, words) in programs {
            let text = piped(name, words, place.old.as_bytes());
            assert!(text.status.success() && !text.stdout.is_empty());
            let decompressed = piped(name, words, &zstd);
            assert!(decompressed.status.success(), "{}", stderr(&decompressed));
            assert!(decompressed.stdout == text.stdout);
            let cut = piped(name, words, &zstd[..zstd.len() / 2]);
            assert_eq!(cut.status.code(), Some(2));
            assert!(
                stderr(&cut).contains("the zstd stream is cut off"),
                "{}",
                stderr(&cut)
            );
            for (start, advice) in [
                (&b"\x1f\x8b\x08\0\0\0\0\0"[..], "`zcat FILE | ...`"),
                (b"\xfd7zXZ\0\0\0", "`xzcat FILE | ...`"),
            ] {
                let refused = piped(name, words, start);
                assert_eq!(refused.status.code(), Some(2));
                let errors = stderr(&refused);
                assert!(
                    errors.contains(advice) && errors.contains("standard input"),
                    "{errors}"
                );
            }
        }
    }
}
