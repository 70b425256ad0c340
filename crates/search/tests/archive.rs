//! Archives answer as the text does, and give it back to the stock tools.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::CommandExt as _;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    const AUSEARCH: &str = "/usr/sbin/ausearch";

    /// A log of a rotated and a current file, as text in one directory, and with an archive in another.
    struct Place {
        directory: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let golden =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/auditd/raw.log");
            let golden = String::from_utf8_lossy(&fs::read(golden).unwrap()).into_owned();
            let mut old = String::new();
            for second in 0..200 {
                let stamp = format!("msg=audit({}.", 1_800_000_000 + second);
                old.extend(
                    golden
                        .lines()
                        .filter(|line| line.contains("msg=audit("))
                        .map(|line| {
                            let (head, rest) = line.split_once("msg=audit(").unwrap();
                            let (_, rest) = rest.split_once('.').unwrap();
                            format!("{head}{stamp}{rest}\n")
                        }),
                );
            }
            let directory = tempfile::tempdir().unwrap();
            for name in ["text", "archived"] {
                let logs = directory.path().join(name);
                fs::create_dir(&logs).unwrap();
                fs::write(logs.join("audit.log.1"), &old).unwrap();
                fs::write(logs.join("audit.log"), &golden).unwrap();
            }
            let logs = directory.path().join("archived");
            let archive = logs.join("audit.log.000001.zst");
            let written = support::archive::write(&logs.join("audit.log.1"), &archive).unwrap();
            assert!(written.archive_len * 10 < written.text_len, "{written:?}");
            fs::remove_file(logs.join("audit.log.1")).unwrap();
            Self { directory }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }
    }

    /// Output of `tollgate NAME`.
    fn tollgate(name: &str, words: &[&str], logs: &Path) -> Vec<u8> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-search"));
        command
            .arg0(format!("tollgate-{name}"))
            .args(words)
            .arg(logs);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// What the stock tool answers about a text in a pipe.
    fn ausearch(text: &[u8], words: &[&str]) -> Vec<u8> {
        let mut command = Command::new(AUSEARCH);
        support::piped::output(command.args(words), text)
            .unwrap()
            .stdout
    }

    #[test]
    fn archives_give_the_text_and_the_answers() {
        let place = Place::new();
        let (text, archived) = (place.path("text"), place.path("archived"));
        let cat = tollgate("log", &["cat"], &archived);
        let files = ["audit.log.1", "audit.log"].map(|name| fs::read(text.join(name)).unwrap());
        assert!(cat == files.concat());
        for expression in [
            "type=SYSCALL and success=no",
            "uid=0",
            "syscall=openat",
            "type=USER_LOGIN",
        ] {
            let words = [expression, "--raw", "--log"];
            let found = tollgate("search", &words, &archived);
            assert!(!found.is_empty(), "{expression}");
            assert!(found == tollgate("search", &words, &text), "{expression}");
        }
    }

    #[test]
    fn stock_ausearch_reads_what_search_and_cat_print() {
        if !Path::new(AUSEARCH).exists() {
            println!("skipped: stock_ausearch_reads_what_search_and_cat_print: no {AUSEARCH}");
            return;
        }
        let place = Place::new();
        let text = tollgate("log", &["cat"], &place.path("text"));
        let archived = tollgate("log", &["cat"], &place.path("archived"));
        let question = ["-m", "SYSCALL", "--raw"];
        let expected = ausearch(&text, &question);
        assert!(!expected.is_empty());
        assert!(ausearch(&archived, &question) == expected);
        let found = tollgate(
            "search",
            &["type=SYSCALL", "--raw", "--log"],
            &place.path("archived"),
        );
        assert!(ausearch(&found, &question) == expected);
    }
}
