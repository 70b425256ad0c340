//! Rule lines and command lines against what two real `auditctl` answered.
//!
//! `tests/golden/auditctl/answers.tsv` holds some of each. The public rule sets that it was chosen
//! from live beside the repository, in `../shared/rulesets` (or where `TOLLGATE_RULESETS` says);
//! without them the tests that need them say so and check nothing.

#[cfg(test)]
mod perm;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use audit::ids::Arch;
    use audit::ids::Dialect;
    use audit::rule::auditctl::{self, Invocation, Request};
    use audit::rule::{Command, RuleHost, Severity, parse_file, parse_line, print};
    use bstr::{BString, ByteSlice as _};

    use super::perm::without_perm_syscalls;

    /// Both versions, by what their golden files are called.
    const VERSIONS: [(&str, Dialect); 2] = [("3.0.9", Dialect::V3), ("4.2.1", Dialect::V4)];

    /// The command lines among the golden files.
    const CLI: &str = "golden/auditctl-cli.tsv";

    /// Inputs on which the two differ on purpose, with the version, and why.
    const PERMITTED: &[(&str, Dialect, &str)] = &[
        (
            "-a always,foo",
            Dialect::V4,
            "4.2.1 adds a rule to no list; 3.0.9 refuses it, and so do we",
        ),
        (
            "-A task,never",
            Dialect::V3,
            "the kernel forgets the flag that puts a rule in front, the shim of the golden run did not",
        ),
        ("-A task,never", Dialect::V4, "as above"),
        (
            "stray -l",
            Dialect::V3,
            "both versions crash; we say what they say of `-l stray`",
        ),
        ("stray -l", Dialect::V4, "as above"),
        (
            "--reset-lost",
            Dialect::V3,
            "the number is the shim's; offline nothing is counted",
        ),
        ("--reset-lost", Dialect::V4, "as above"),
        (
            "-W /etc/passwd -p wa -k id",
            Dialect::V3,
            "the message is the shim's",
        ),
        ("-W /etc/passwd -p wa -k id", Dialect::V4, "as above"),
        (
            "-R /nonexistent",
            Dialect::V3,
            "reading files is the caller's: tested in `crates/tollgate/src/cli/auditctl`",
        ),
        ("-R /nonexistent", Dialect::V4, "as above"),
    ];

    /// Messages that the library of 4.2.1 means to print and does not, because it has a second copy
    /// of the switch for it. 3.0.9 prints them, and so do we.
    const LOST_IN_4: &[&str] = &[
        "Unknown user: ",
        "Unknown group: ",
        "Syscall name unknown: ",
    ];

    /// The machine on which the golden results were made: Debian 12 without chrony and ntp.
    struct GoldenHost;

    impl RuleHost for GoldenHost {
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

    /// What a real `auditctl` made of a line.
    struct Golden {
        place: String,
        input: BString,
        status: i32,
        /// Empty when there is none.
        listing: BString,
        /// Messages with ` / ` between them.
        said: BString,
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

    fn columns(line: &[u8]) -> Vec<&[u8]> {
        line.split(|&byte| byte == b'\t').collect()
    }

    fn number(text: &[u8]) -> i32 {
        text.to_str().unwrap().parse().unwrap()
    }

    /// The lines of all rule sets.
    fn lines(rulesets: &Path, version: &str) -> Vec<Golden> {
        let mut paths = Vec::new();
        files(&rulesets.join("golden").join(version), "tsv", &mut paths);
        let mut all = Vec::new();
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            for line in bytes
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
            {
                let columns = columns(line);
                let [at, rc, input, listing, said] = columns.as_slice() else {
                    panic!("{}: not five columns: {}", path.display(), line.as_bstr());
                };
                // A single dash stands for nothing.
                let column = |text: &[u8]| {
                    if text == b"-" {
                        BString::default()
                    } else {
                        text.into()
                    }
                };
                all.push(Golden {
                    place: format!("{}:{}", path.display(), at.as_bstr()),
                    input: (*input).into(),
                    status: number(rc.strip_prefix(b"rc=").unwrap()),
                    listing: column(listing),
                    said: column(said),
                });
            }
        }
        all
    }

    /// What both versions answered, side by side.
    fn command_lines(file: &Path, dialect: Dialect) -> Vec<Golden> {
        let bytes = fs::read(file).unwrap();
        let mut all = Vec::new();
        for (at, line) in (1..).zip(bytes.lines()) {
            if line.starts_with(b"#") {
                continue;
            }
            let columns = columns(line);
            let [input, three @ .., _, _, _] = columns.as_slice() else {
                panic!("too few columns: {}", line.as_bstr());
            };
            let of_version = match dialect {
                Dialect::V3 => three,
                Dialect::V4 => &columns[4..],
            };
            let [rc, said, listing] = of_version else {
                panic!("not seven columns: {}", line.as_bstr());
            };
            all.push(Golden {
                place: format!("{}:{at}", file.display()),
                input: (*input).into(),
                status: number(rc),
                listing: (*listing).into(),
                said: (*said).into(),
            });
        }
        all
    }

    fn answer(input: &[u8], dialect: Dialect) -> Invocation {
        let words: Vec<&[u8]> = input
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .collect();
        auditctl::arguments(&words, dialect, &GoldenHost)
    }

    fn listing(answer: &Invocation, dialect: Dialect) -> BString {
        let rules = answer.requests.iter().filter_map(|request| match request {
            Request::Command(Command::Add { rule, .. }) => Some(print(rule, Arch::X86_64, dialect)),
            _ => None,
        });
        bstr::join("\n", rules).trim().into()
    }

    /// Messages as the golden files have them. What only we print in version 4 is left out.
    fn said(answer: &Invocation, dialect: Dialect) -> BString {
        let lost = |text: &BString| {
            dialect == Dialect::V4 && LOST_IN_4.iter().any(|lost| text.starts_with_str(lost))
        };
        let said = answer.messages.iter();
        let kept = said.filter(|text| !lost(text)).map(|text| text.trim());
        bstr::join(" / ", kept).into()
    }

    /// What differs, as text; empty when nothing does.
    fn difference(golden: &Golden, dialect: Dialect) -> String {
        let answer = answer(&golden.input, dialect);
        let found = listing(&answer, dialect);
        let messages = said(&answer, dialect);
        let expected = bstr::join(
            " / ",
            golden
                .said
                .split_str(" / ")
                .map(<[u8]>::trim)
                .filter(|text| {
                    dialect == Dialect::V3
                        || !LOST_IN_4.iter().any(|lost| text.starts_with_str(lost))
                }),
        );
        let differs = [
            (
                i32::from(answer.status) != golden.status,
                format!("status {} is not {}", answer.status, golden.status),
            ),
            (
                found != golden.listing,
                format!("listing `{found}` is not `{}`", golden.listing),
            ),
            (
                messages != expected,
                format!("said `{messages}`, not `{}`", golden.said),
            ),
        ];
        let what: Vec<String> = differs
            .into_iter()
            .filter_map(|(differs, what)| differs.then_some(what))
            .collect();
        if what.is_empty() {
            String::new()
        } else {
            format!("{}: `{}`: {}", golden.place, golden.input, what.join("; "))
        }
    }

    #[track_caller]
    fn compare(what: &str, version: &str, dialect: Dialect, golden: &[Golden]) {
        let mut differences = Vec::new();
        let mut permitted = 0;
        for line in golden {
            let difference = difference(line, dialect);
            let is_permitted = PERMITTED
                .iter()
                .any(|&(input, of, _)| input == line.input && of == dialect);
            assert!(
                !is_permitted || !difference.is_empty(),
                "not needed: {}",
                line.input
            );
            permitted += usize::from(is_permitted);
            if !difference.is_empty() && !is_permitted {
                differences.push(difference);
            }
        }
        eprintln!(
            "{version}: {} of {} {what} agree, {permitted} differ on purpose",
            golden.len() - permitted - differences.len(),
            golden.len(),
        );
        assert_eq!(differences, Vec::<String>::new());
    }

    #[test]
    fn golden_lines_are_answered_as_auditctl_does() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/auditctl/answers.tsv");
        for (version, dialect) in VERSIONS {
            let golden = command_lines(&file, dialect);
            assert!(golden.len() > 100, "only {} golden lines", golden.len());
            compare("lines kept here", version, dialect, &golden);
        }
    }

    #[test]
    fn rule_lines_are_answered_as_auditctl_does() {
        let Some(rulesets) = rulesets() else { return };
        for (version, dialect) in VERSIONS {
            let golden = lines(&rulesets, version);
            assert!(golden.len() > 1000, "only {} golden lines", golden.len());
            compare("rule lines", version, dialect, &golden);
        }
    }

    #[test]
    fn command_lines_are_answered_as_auditctl_does() {
        let Some(rulesets) = rulesets() else { return };
        for (version, dialect) in VERSIONS {
            let golden = command_lines(&rulesets.join(CLI), dialect);
            assert!(golden.len() > 90, "only {} golden lines", golden.len());
            compare("command lines", version, dialect, &golden);
        }
    }

    /// What `auditctl` 4 takes, the parser of rule files takes too, as the same rule, unless the
    /// kernel would refuse it.
    #[test]
    fn rule_files_are_read_as_auditctl_reads_them() {
        const REFUSED_BY_THE_KERNEL: &[&str] = &[
            "path=\"/usr/sbin/unix2_chkpwd\"",
            "path!=/etc/passwd",
            "dir!=/etc",
        ];
        let Some(rulesets) = rulesets() else { return };
        let (version, dialect) = VERSIONS[1];
        let mut golden = lines(&rulesets, version);
        golden.extend(command_lines(&rulesets.join(CLI), dialect));
        let mut compared = 0;
        for line in &golden {
            let answer = answer(&line.input, dialect);
            let refused = REFUSED_BY_THE_KERNEL
                .iter()
                .any(|part| line.input.contains_str(part));
            let [Request::Command(command)] = answer.requests.as_slice() else {
                continue;
            };
            let (found, findings) = parse_line(&line.input, &GoldenHost);
            if refused {
                assert_eq!(found, None, "{}", line.place);
                continue;
            }
            if answer.status == 0 {
                compared += 1;
                assert_eq!(
                    found.as_ref().map(without_perm_syscalls),
                    Some(without_perm_syscalls(command)),
                    "{}: {findings:?}",
                    line.place
                );
            }
        }
        assert!(compared > 1000, "only {compared} lines");
    }

    #[test]
    fn every_line_is_loaded_or_reported() {
        let Some(rulesets) = rulesets() else { return };
        let mut paths = Vec::new();
        files(&rulesets, "rules", &mut paths);
        assert!(paths.len() > 50);
        for path in paths {
            let bytes = fs::read(&path).unwrap();
            let (lines, findings) = parse_file(&bytes, &GoldenHost);
            for (number, text) in (1..).zip(bytes.lines()) {
                let idle = text.trim().is_empty() || text.trim_start().starts_with(b"#");
                let loaded = lines.iter().any(|line| line.number == number);
                let named = findings
                    .iter()
                    .any(|finding| finding.line == number && finding.severity > Severity::Note);
                assert!(idle || loaded || named, "{}:{number}", path.display());
            }
        }
    }
}
