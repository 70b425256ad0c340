//! `tollgate-detect test` as a user runs it, and the example in `docs/detect.md`.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Output};

    use serde_json::Value;

    const GUIDE: &str = include_str!("../../../docs/detect.md");

    fn test(directory: &Path, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command.current_dir(directory).arg("test").args(options);
        command.output().unwrap()
    }

    #[track_caller]
    fn stdout(output: &Output, status: i32) -> String {
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stdout.clone()).unwrap()
    }

    /// Writes the files of the guide: a name in a line of its own, and a block.
    fn write_guide(directory: &Path) {
        let mut lines = GUIDE.lines();
        let mut written = 0;
        while let Some(line) = lines.next() {
            let name = line
                .strip_prefix('`')
                .and_then(|line| line.strip_suffix("`:"));
            let Some(name) = name else {
                continue;
            };
            let block = lines
                .by_ref()
                .skip_while(|line| !line.starts_with("```"))
                .skip(1);
            let block = block.take_while(|line| *line != "```");
            let text: Vec<&str> = block.collect();
            assert!(!name.starts_with('/'), "{name} is outside of the directory");
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.join("\n") + "\n").unwrap();
            written += 1;
        }
        assert_eq!(written, 2);
    }

    /// Words of each line without the time.
    fn words(text: &str) -> Vec<Vec<&str>> {
        let line = |line| str::split_whitespace(line).collect::<Vec<_>>();
        let mut lines: Vec<Vec<&str>> = text.lines().map(line).collect();
        for line in &mut lines {
            if line.len() == 5 && line[1] == "passed" {
                line.pop();
            }
        }
        lines
    }

    #[test]
    fn example_of_the_guide_prints_what_it_says() {
        let place = tempfile::tempdir().unwrap();
        write_guide(place.path());
        let (_, session) = GUIDE.split_once("$ tollgate detect test cases\n").unwrap();
        let (expected, _) = session.split_once("\n```").unwrap();
        let printed = stdout(&test(place.path(), &["cases"]), 0);
        assert_eq!(words(&printed), words(expected));
    }

    #[test]
    fn unmet_expectations_are_named_in_each_form() {
        let place = tempfile::tempdir().unwrap();
        write_guide(place.path());
        let case = place.path().join("cases/web-shell.toml");
        let good = fs::read_to_string(&case).unwrap();
        let exactly = "exactly = [\"Shell Started By A Web Server\"]";
        let id = "0a3f9a52-7d0f-4f0c-8a5b-0d1f6f1f2c11";
        let unexpected = format!("`{id}` (Shell Started By A Web Server) matches 1 event");
        for (expect, status, reason) in [
            ("exactly = []", 1, unexpected.as_str()),
            (&format!("none = [\"{id}\"]"), 1, &unexpected),
            (
                &format!("at_least = [\"{id}\"]\nlevel = \"critical\""),
                1,
                &format!("`{id}` does not match"),
            ),
            (&format!("at_least = [\"{id}\"]\nlevel = \"high\""), 0, ""),
            (
                "at_least = [\"x\"]",
                2,
                "cases/web-shell.toml:12: no loaded rule has the id or title `x`; correct the name, or load the rule",
            ),
            (
                "level = \"high\"",
                2,
                "cases/web-shell.toml:1: nothing is expected; ",
            ),
            (
                "exactly = 1",
                2,
                "cases/web-shell.toml:12: invalid type: integer `1`, expected a sequence; see CASES in tollgate-detect(8)",
            ),
            (
                "exactly = []\nlevel = \"big\"",
                2,
                "cases/web-shell.toml:13: `big` is not a level; ",
            ),
        ] {
            fs::write(&case, good.replace(exactly, expect)).unwrap();
            let printed = stdout(&test(place.path(), &["cases"]), status);
            assert!(
                printed.contains(&format!("\n  {reason}")) || status == 0,
                "{printed}"
            );
            let printed = stdout(
                &test(place.path(), &["cases", "--json", "--junit", "out.xml"]),
                status,
            );
            let value: Value = serde_json::from_str(&printed).unwrap();
            let result = ["passed", "failed", "error"][usize::try_from(status).unwrap()];
            assert_eq!(value["cases"][0]["result"], result);
            let xml = fs::read_to_string(place.path().join("out.xml")).unwrap();
            let element = ["/>", "<failure message=\"`", "<error message=\""]
                [usize::try_from(status).unwrap()];
            assert!(xml.contains(element), "{xml}");
            assert!(
                xml.contains(
                    "<testcase classname=\"detect\" name=\"cases/web-shell.toml\" time=\""
                )
            );
        }
    }

    #[test]
    fn what_cannot_be_run_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        write_guide(place.path());
        let case = place.path().join("cases/web-shell.toml");
        let good = fs::read_to_string(&case).unwrap();
        for (from, to, reason) in [
            ("rules = [", "rulez = [", "unknown field `rulez`"),
            ("rules = [\"../rules\"]\n", "", "the case has no rules; "),
            (
                "rules = [\"../rules\"]\n",
                "rules = [\"../none\"]\n",
                "the file cannot be read: ",
            ),
            (
                "events = ",
                "log = \"x.log\"\nevents = ",
                "a case needs a log or events, and not both; ",
            ),
            (
                "type=EXECVE msg=audit(1790000000.100:1)",
                "no record",
                "events:2: column 1: expected `type=`",
            ),
        ] {
            fs::write(&case, good.replace(from, to)).unwrap();
            let printed = stdout(&test(place.path(), &["cases"]), 2);
            assert!(printed.contains(reason), "{printed}");
        }
        let hostile = "a = ".to_owned() + &"[".repeat(200_000);
        fs::write(&case, hostile).unwrap();
        stdout(&test(place.path(), &["cases"]), 2);
        let output = test(place.path(), &["rules"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("there are no cases"));
    }

    #[test]
    fn names_in_xml_are_escaped() {
        let place = tempfile::tempdir().unwrap();
        let name = "a<&\"\u{1b}\u{ffff}.toml";
        fs::write(place.path().join(name), "x").unwrap();
        stdout(&test(place.path(), &[".", "--junit", "out.xml"]), 2);
        let xml = fs::read_to_string(place.path().join("out.xml")).unwrap();
        assert!(xml.contains("a&lt;&amp;&quot;\\u{1b}"), "{xml}");
        assert!(!xml.contains(['\u{1b}', '\u{ffff}']));
    }

    /// The log may be a file, and an archive.
    #[test]
    fn log_of_a_case_is_read() {
        let place = tempfile::tempdir().unwrap();
        write_guide(place.path());
        let case = place.path().join("cases/web-shell.toml");
        let good = fs::read_to_string(&case).unwrap();
        let (before, rest) = good.split_once("events = '''\n").unwrap();
        let (events, after) = rest.split_once("'''\n").unwrap();
        fs::write(place.path().join("cases/x.log"), events).unwrap();
        fs::write(&case, format!("{before}log = \"x.log\"\n{after}")).unwrap();
        let printed = stdout(&test(place.path(), &["cases"]), 0);
        assert!(printed.ends_with("1 passed, 0 failed, 0 errors\n"));
    }
}
