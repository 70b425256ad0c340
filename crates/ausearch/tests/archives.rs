//! Archives and compressed input: what can be read is answered, and the rest is reported.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    const AUSEARCH: &str = env!("CARGO_BIN_EXE_tollgate-ausearch");
    const AUREPORT: &str = env!("CARGO_BIN_EXE_tollgate-aureport");
    const REPORT: &str = env!("CARGO_BIN_EXE_tollgate-report");
    const EVENTS: u32 = 20_000;

    /// A directory that has an archive of several blocks, and no other file.
    struct Place {
        directory: tempfile::TempDir,
        text: String,
    }

    impl Place {
        fn new() -> Self {
            let event = |number: u32| {
                let stamp = format!("msg=audit({}.000:{number})", 1_700_000_000 + number / 100);
                format!(
                    "type=SYSCALL {stamp}: arch=c000003e syscall=257 success=yes exit=3 a0=0 a1=0 a2=0 a3=0 items=0 \
                     ppid=1 pid={number} auid=1000 uid=0 gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 \
                     ses=1 comm=\"cat\" exe=\"/usr/bin/cat\" key=\"k\"\n"
                )
            };
            let place = Self {
                directory: tempfile::tempdir().unwrap(),
                text: (0..EVENTS).map(event).collect(),
            };
            let source = place.directory.path().join("source");
            fs::write(&source, &place.text).unwrap();
            support::archive::write(&source, &place.archive()).unwrap();
            fs::remove_file(source).unwrap();
            place
        }

        fn archive(&self) -> PathBuf {
            self.directory.path().join("audit.log.000002.zst")
        }

        fn run(&self, program: &str, words: &[&str]) -> Output {
            let mut command = Command::new(program);
            command.args(words).arg("-if").arg(self.directory.path());
            command.stdin(Stdio::null()).output().unwrap()
        }
    }

    fn piped(program: &str, words: &[&str], input: &[u8]) -> Output {
        support::piped::output(Command::new(program).args(words), input).unwrap()
    }

    fn events(output: &Output) -> usize {
        let text = String::from_utf8_lossy(&output.stdout);
        text.matches("type=SYSCALL").count()
    }

    fn stderr(output: &Output) -> String {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    #[track_caller]
    fn assert_fails(output: &Output, name: &Path, what: &str) {
        let errors = stderr(output);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        let name = name.display().to_string();
        let mut lines = errors.lines().filter(|line| line.contains(&name));
        let line = lines.next().unwrap();
        assert!(
            line.contains(what) && line.contains("restore it from a backup"),
            "{line}"
        );
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn directory_with_archives_only_is_read() {
        let place = Place::new();
        let all = place.run(AUSEARCH, &["-m", "SYSCALL", "--raw"]);
        assert_eq!(all.status.code(), Some(0), "{}", stderr(&all));
        assert!(String::from_utf8_lossy(&all.stdout) == place.text);
        let one = place.run(AUSEARCH, &["-p", "77", "--raw"]);
        assert_eq!((one.status.code(), events(&one)), (Some(0), 1));
        let report = place.run(AUREPORT, &["-s"]);
        assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
        let mut report = Command::new(REPORT);
        report
            .arg("--log")
            .arg(place.directory.path())
            .arg("--html");
        let page = report.stdin(Stdio::null()).output().unwrap();
        let page = (
            page.status.code(),
            String::from_utf8_lossy(&page.stdout).into_owned(),
        );
        assert!(page.0 == Some(0) && page.1.contains("000002.zst"));
    }

    #[test]
    fn bad_archives_are_reported_and_the_other_files_are_read() {
        let place = Place::new();
        let archive = fs::read(place.archive()).unwrap();
        // Before and after the one that can be read.
        for number in [1, 3] {
            let name = format!("audit.log.00000{number}.zst");
            let bad = place.directory.path().join(name);
            fs::write(&bad, &archive[..archive.len() / 2]).unwrap();
            let all = place.run(AUSEARCH, &["-m", "SYSCALL", "--raw"]);
            assert_eq!(events(&all), 20_000);
            assert_fails(&all, &bad, "its end, with the seek table, is missing");
            let report = place.run(AUREPORT, &["-s"]);
            let rows = String::from_utf8_lossy(&report.stdout);
            assert!(rows.contains("20000. "), "{}", rows.len());
            assert_fails(&report, &bad, "its end, with the seek table, is missing");
            let page = place.run(REPORT, &["--html"]);
            assert!(String::from_utf8_lossy(&page.stdout).contains("</html>"));
            assert_fails(&page, &bad, "its end, with the seek table, is missing");
            fs::remove_file(&bad).unwrap();
        }
    }

    #[test]
    fn blocks_around_a_damaged_one_are_read() {
        let place = Place::new();
        let mut archive = fs::read(place.archive()).unwrap();
        let frames: Vec<usize> = (0..archive.len() - 4)
            .filter(|&at| archive[at..at + 4] == 0xfd2f_b528_u32.to_le_bytes())
            .collect();
        assert!(frames.len() >= 3, "{frames:?}");
        archive[usize::midpoint(frames[1], frames[2])] ^= 0xff;
        fs::write(place.archive(), archive).unwrap();
        let all = place.run(AUSEARCH, &["-m", "SYSCALL", "--raw"]);
        assert!((9000..20_000).contains(&events(&all)), "{}", events(&all));
        assert!(
            all.stdout
                .ends_with(&place.text.as_bytes()[place.text.len() - 1000..])
        );
        assert_fails(&all, &place.archive(), "the archive is damaged");
        assert_fails(
            &place.run(AUREPORT, &["-s"]),
            &place.archive(),
            "the archive is damaged",
        );
        let page = place.run(REPORT, &["--html"]);
        assert_fails(&page, &place.archive(), "the archive is damaged");
    }

    #[test]
    fn checkpoint_is_not_moved_past_an_archive_that_cannot_be_read() {
        let place = Place::new();
        let bad = place.directory.path().join("audit.log.000003.zst");
        fs::write(&bad, "").unwrap();
        let checkpoint = place.directory.path().join("checkpoint");
        let words = ["--checkpoint", checkpoint.to_str().unwrap(), "--raw"];
        let found = place.run(AUSEARCH, &words);
        assert_fails(&found, &bad, "it is no archive");
        assert!(!checkpoint.exists());
        fs::remove_file(bad).unwrap();
        let found = place.run(AUSEARCH, &words);
        assert_eq!(found.status.code(), Some(0), "{}", stderr(&found));
        assert!(checkpoint.exists());
    }

    #[test]
    fn compressed_standard_input_is_decompressed_or_refused() {
        let place = Place::new();
        let zstd = fs::read(place.archive()).unwrap();
        let programs: [(&str, &[&str]); 3] = [
            (AUSEARCH, &["-m", "SYSCALL", "--raw"]),
            (AUREPORT, &["-s", "--summary"]),
            (REPORT, &["--html"]),
        ];
        for (program, words) in programs {
            let text = piped(program, words, place.text.as_bytes());
            let decompressed = piped(program, words, &zstd);
            assert_eq!(
                decompressed.status.code(),
                Some(0),
                "{}",
                stderr(&decompressed)
            );
            let (text, found) = (text.stdout, decompressed.stdout);
            assert!(program == REPORT || text == found);
            assert!(String::from_utf8_lossy(&found).contains("20000") || program != AUREPORT);
            let cut = piped(program, words, &zstd[..zstd.len() / 2]);
            assert_eq!(cut.status.code(), Some(1));
            assert!(
                stderr(&cut).contains("the zstd stream is cut off"),
                "{}",
                stderr(&cut)
            );
            for (start, advice) in [
                (&b"\x1f\x8b\x08\0\0\0\0\0"[..], "`zcat FILE | ...`"),
                (b"\xfd7zXZ\0\0\0", "`xzcat FILE | ...`"),
            ] {
                let refused = piped(program, words, start);
                let errors = stderr(&refused);
                assert_eq!(refused.status.code(), Some(1), "{errors}");
                assert!(
                    errors.contains("Error reading standard input: it is"),
                    "{errors}"
                );
                assert!(errors.contains(advice), "{errors}");
            }
        }
    }

    #[test]
    fn hyphen_is_no_input_as_for_the_stock_tool() {
        let output = piped(
            AUSEARCH,
            &["-if", "-"],
            b"type=USER msg=audit(1.000:1): x\n",
        );
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), "Argument is required for -if\n");
        let place = Place::new();
        let log = place.directory.path().join("log");
        fs::write(&log, &place.text).unwrap();
        let output = piped(
            AUSEARCH,
            &["-if", "/dev/stdin", "--raw"],
            place.text.as_bytes(),
        );
        assert_eq!(events(&output), 20_000, "{}", stderr(&output));
    }

    #[test]
    fn compressed_files_are_refused_with_advice() {
        let place = Place::new();
        let gzip = place.directory.path().join("audit.log");
        fs::write(&gzip, b"\x1f\x8b\x08\0").unwrap();
        let output = place.run(AUSEARCH, &["--raw"]);
        assert_eq!((output.status.code(), events(&output)), (Some(1), 20_000));
        assert!(
            stderr(&output).contains("pipe the output of `zcat`"),
            "{}",
            stderr(&output)
        );
    }
}
