//! Public rule sets against what a real `auditctl` 4.2.1 said of each of their lines.
//!
//! The rule sets live beside the repository, in `../shared/rulesets` (or where
//! `TOLLGATE_RULESETS` says); without them this test says so and checks nothing.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use audit::ids::Arch;
    use audit::rule::{
        Command, Field, FieldTest, Host, Place, Rule, Severity, Value, parse_file, parse_line,
        print,
    };
    use bstr::{BString, ByteSlice as _};

    /// Lines on which the two differ on purpose: what they hold, and why.
    const PERMITTED: &[(&str, &str)] = &[(
        "path=\"/usr/sbin/unix2_chkpwd\"",
        "rules have no quotes: the path begins with one, which auditctl lets through and the \
         kernel answers with EINVAL",
    )];

    /// Command lines on which the two differ on purpose, and why.
    const PERMITTED_COMMAND_LINES: &[(&str, &str)] = &[
        (
            "--signal foo",
            "left out with a warning: it belongs on the command line",
        ),
        (
            "-m hello -F a=b",
            "left out with a warning: it belongs on the command line",
        ),
        (
            "-a always,foo",
            "auditctl 4.2.1 adds a rule to no list; 3.0.9 refuses it, and so do we",
        ),
        (
            "-a always,exit -F arch=b64 -S openat -F path!=/etc/passwd",
            "the kernel answers EINVAL",
        ),
        (
            "-a always,exit -F arch=b64 -S openat -F dir!=/etc",
            "the kernel answers EINVAL",
        ),
    ];

    /// The machine on which the golden results were made: Debian 12 without chrony and ntp.
    struct Debian12;

    impl Host for Debian12 {
        fn uid(&self, name: &[u8]) -> Option<u32> {
            (name == b"root").then_some(0)
        }

        fn gid(&self, name: &[u8]) -> Option<u32> {
            (name == b"root").then_some(0)
        }

        fn is_directory(&self, path: &[u8]) -> bool {
            path.ends_with(b".d") || path == b"/etc"
        }

        fn native(&self) -> Arch {
            Arch::X86_64
        }
    }

    /// One line of a golden file.
    struct Golden {
        place: String,
        accepted: bool,
        input: BString,
        listing: BString,
    }

    fn rulesets() -> Option<PathBuf> {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/rulesets");
        let directory = std::env::var_os("TOLLGATE_RULESETS").map_or(default, PathBuf::from);
        if directory.is_dir() {
            return Some(directory);
        }
        eprintln!(
            "no rule sets in `{}`: nothing was compared; set TOLLGATE_RULESETS",
            directory.display()
        );
        None
    }

    fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, extension, found);
            } else if path.extension().is_some_and(|other| other == extension) {
                found.push(path);
            }
        }
        found.sort();
    }

    fn golden(rulesets: &Path) -> Vec<Golden> {
        let mut paths = Vec::new();
        files(&rulesets.join("golden/4.2.1"), "tsv", &mut paths);
        let mut all = Vec::new();
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            for line in bytes
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
            {
                let columns: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
                let [number, rc, input, listing, _] = columns.as_slice() else {
                    panic!("{}: not five columns: {}", path.display(), line.as_bstr());
                };
                all.push(Golden {
                    place: format!("{}:{}", path.display(), number.as_bstr()),
                    accepted: match *rc {
                        b"rc=0" => true,
                        b"rc=255" => false,
                        other => panic!("{}: unknown status {}", path.display(), other.as_bstr()),
                    },
                    input: (*input).into(),
                    listing: (*listing).into(),
                });
            }
        }
        all
    }

    #[test]
    fn lines_are_accepted_and_rejected_as_auditctl_does() {
        let Some(rulesets) = rulesets() else { return };
        let golden = golden(&rulesets);
        assert!(golden.len() > 1000, "only {} golden lines", golden.len());
        let mut differences = Vec::new();
        for line in &golden {
            let (_, findings) = parse_line(&line.input, &Debian12);
            let accepted = findings
                .iter()
                .all(|finding| finding.severity < Severity::Error);
            let permitted = PERMITTED
                .iter()
                .any(|(part, _)| line.input.contains_str(part.as_bytes()));
            if accepted != line.accepted && !permitted {
                differences.push(format!("{}: `{}`: {findings:?}", line.place, line.input));
            }
        }
        eprintln!("{} lines, {} differences", golden.len(), differences.len());
        assert_eq!(differences, Vec::<String>::new());
    }

    #[test]
    fn command_lines_are_accepted_and_rejected_as_auditctl_does() {
        let Some(rulesets) = rulesets() else { return };
        let bytes = fs::read(rulesets.join("golden/auditctl-cli.tsv")).unwrap();
        let mut compared = 0;
        let mut differences = Vec::new();
        for line in bytes.lines().filter(|line| !line.starts_with(b"#")) {
            let columns: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
            let [input, _, _, _, rc, ..] = columns.as_slice() else {
                panic!("too few columns: {}", line.as_bstr());
            };
            if input.is_empty() {
                continue;
            }
            compared += 1;
            let (_, findings) = parse_line(input, &Debian12);
            let accepted = findings
                .iter()
                .all(|finding| finding.severity < Severity::Error);
            let permitted = PERMITTED_COMMAND_LINES
                .iter()
                .any(|&(text, _)| text.as_bytes() == *input);
            assert!(
                !permitted || accepted != (*rc == b"0"),
                "not needed: {}",
                input.as_bstr()
            );
            if accepted != (*rc == b"0") && !permitted {
                differences.push(format!(
                    "`{}`: {} {findings:?}",
                    input.as_bstr(),
                    rc.as_bstr()
                ));
            }
        }
        eprintln!(
            "{compared} command lines, {} differences",
            differences.len()
        );
        assert!(compared > 90);
        assert_eq!(differences, Vec::<String>::new());
    }

    #[test]
    fn lines_mean_what_auditctl_lists() {
        let Some(rulesets) = rulesets() else { return };
        let mut compared = 0;
        let mut differences = Vec::new();
        for line in golden(&rulesets).iter().filter(|line| line.listing != "-") {
            let (Some(Command::Add { rule, .. }), _) = parse_line(&line.input, &Debian12) else {
                continue;
            };
            let is = |field| rule.fields.iter().any(|test| test.field == field);
            // auditctl lists file types as numbers, which it does not read, and a watch whose
            // perm comes first as `-p x-w PATH`.
            if is(Field::FileType) || line.listing.starts_with(b"-p") {
                continue;
            }
            let listed = parse_line(&line.listing, &Debian12).0;
            let Some(Command::Add { rule: listed, .. }) = listed else {
                panic!("{}: the listing is not read: {}", line.place, line.listing);
            };
            // auditctl narrows the syscalls of a perm rule that names an arch. Here the plan does.
            let narrowed = is(Field::Perm) && is(Field::Arch);
            let mut expected = Rule {
                fields: arch_first(listed.fields),
                ..listed
            };
            let mut found = Rule {
                fields: arch_first(rule.fields.clone()),
                ..rule
            };
            if narrowed {
                expected.syscalls = found.syscalls.clone();
            }
            // The listing of a watch tells neither a path from a directory nor slashes at its end.
            if line.listing.starts_with(b"-w") {
                expected.fields.iter_mut().for_each(as_watch);
                found.fields.iter_mut().for_each(as_watch);
            }
            compared += 1;
            if found != expected {
                differences.push(format!("{}: {found:?} is not {expected:?}", line.place));
            }
        }
        eprintln!("{compared} listings, {} differences", differences.len());
        assert!(compared > 1000);
        assert_eq!(differences, Vec::<String>::new());
    }

    /// The order in which auditctl lists conditions.
    fn arch_first(mut fields: Vec<FieldTest>) -> Vec<FieldTest> {
        fields.sort_by_key(|test| test.field != Field::Arch);
        fields
    }

    fn as_watch(test: &mut FieldTest) {
        if test.field == Field::Dir {
            test.field = Field::Path;
        }
        if let Value::Text(path) = &mut test.value {
            let end = path
                .iter()
                .rposition(|&byte| byte != b'/')
                .map_or(1, |last| last + 1);
            path.truncate(end);
        }
    }

    #[test]
    fn every_line_of_every_file_is_loaded_or_named() {
        let Some(rulesets) = rulesets() else { return };
        let mut paths = Vec::new();
        files(&rulesets, "rules", &mut paths);
        assert!(paths.len() > 50);
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            let (lines, findings) = parse_file(&bytes, &Debian12);
            for (number, text) in (1..).zip(bytes.lines()) {
                let idle = text.trim().is_empty() || text.trim_start().starts_with(b"#");
                let loaded = lines.iter().any(|line| line.number == number);
                let named = findings.iter().any(|finding| finding.line == number);
                assert!(idle || loaded || named, "{}:{number}", path.display());
            }
            for line in &lines {
                let Command::Add { rule, place } = &line.command else {
                    continue;
                };
                let text = print(rule, Arch::X86_64);
                let again = parse_line(&text, &Debian12).0;
                let expected = Command::Add {
                    rule: rule.clone(),
                    place: Place::Tail,
                };
                assert_eq!(*place, Place::Tail);
                assert_eq!(
                    again,
                    Some(expected),
                    "{}:{}: {text}",
                    path.display(),
                    line.number
                );
            }
        }
    }
}
