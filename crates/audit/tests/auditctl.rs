//! Rule lines and command lines give the recorded answers of two versions of `auditctl`.
//!
//! `tests/golden/auditctl/answers.tsv` has answers of 3.0.9 and 4.2.1. `tests/golden/auditctl/rules` has rule
//! files with the answers of 3.0.9; `TOLLGATE_GOLDEN=write` runs that `auditctl` as root and rewrites them.
//! Public rule sets with the answers of both versions are read from `../shared/rulesets` beside the
//! repository, or from `TOLLGATE_RULESETS`; without them the tests that compare them are skipped.

#[cfg(test)]
mod golden_host;
#[cfg(test)]
mod perm;
#[cfg(test)]
mod recorder;
#[cfg(test)]
mod skip;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use audit::ids::Arch;
    use audit::ids::Dialect;
    use audit::rule::auditctl::{self, CliRequest, Invocation};
    use audit::rule::{Command, Severity, parse_file, parse_line, print};
    use bstr::{BString, ByteSlice as _};

    use super::golden_host::{GoldenHost, PERMITTED};
    use super::perm::without_perm_syscalls;
    use super::recorder;
    use super::skip::skipped;

    /// Both versions, with the names of their golden files.
    const VERSIONS: [(&str, Dialect); 2] = [("3.0.9", Dialect::V3), ("4.2.1", Dialect::V4)];

    /// Golden command lines of the public rule sets.
    const CLI: &str = "golden/auditctl-cli.tsv";

    /// Messages that the library of 4.2.1 should print but does not, because a second copy of the switch for
    /// messages is unset. 3.0.9 and tollgate print them.
    const LOST_IN_4: &[&str] = &[
        "Unknown user: ",
        "Unknown group: ",
        "Syscall name unknown: ",
    ];

    /// Answer of a real `auditctl` to a line.
    struct Golden {
        place: String,
        input: BString,
        status: i32,
        /// Empty if there is none.
        listing: BString,
        /// Messages with ` / ` between them.
        messages: BString,
    }

    /// The directory of the public rule sets; `None` when it is missing, which skips `test`.
    fn public_rulesets(test: &str) -> Option<PathBuf> {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/rulesets");
        let directory = std::env::var_os("TOLLGATE_RULESETS").map_or(default, PathBuf::from);
        if directory.is_dir() {
            return Some(directory);
        }
        let reason = format!(
            "no public rule sets in `{}`; set TOLLGATE_RULESETS",
            directory.display()
        );
        skipped(test, &reason);
        None
    }

    fn tests_directory() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
    }

    /// The rule files of this repository, sorted.
    fn own_rule_files() -> Vec<PathBuf> {
        let mut paths = Vec::new();
        files(
            &tests_directory().join("golden/auditctl/rules"),
            "rules",
            &mut paths,
        );
        files(&tests_directory().join("rulesets"), "rules", &mut paths);
        paths
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

    /// The golden lines of all public rule sets.
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
                let [at, rc, input, listing, messages] = columns.as_slice() else {
                    panic!("{}: not five columns: {}", path.display(), line.as_bstr());
                };
                // A dash is an empty column.
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
                    messages: column(messages),
                });
            }
        }
        all
    }

    /// The golden command lines of one version. The file has both versions side by side.
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
            let [rc, messages, listing] = of_version else {
                panic!("not seven columns: {}", line.as_bstr());
            };
            all.push(Golden {
                place: format!("{}:{at}", file.display()),
                input: (*input).into(),
                status: number(rc),
                listing: (*listing).into(),
                messages: (*messages).into(),
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
            CliRequest::Command(Command::Add { rule, .. }) => {
                Some(print(rule, Arch::X86_64, dialect))
            }
            _ => None,
        });
        bstr::join("\n", rules).trim().into()
    }

    /// Messages in the format of the golden files, without those that only tollgate prints as version 4.
    fn messages(answer: &Invocation, dialect: Dialect) -> BString {
        let lost = |text: &BString| {
            dialect == Dialect::V4 && LOST_IN_4.iter().any(|lost| text.starts_with_str(lost))
        };
        let messages = answer.messages.iter();
        let kept = messages.filter(|text| !lost(text)).map(|text| text.trim());
        bstr::join(" / ", kept).into()
    }

    /// Describes the differences; empty if there are none.
    fn difference(golden: &Golden, dialect: Dialect) -> String {
        let answer = answer(&golden.input, dialect);
        let found = listing(&answer, dialect);
        let messages = messages(&answer, dialect);
        let expected = bstr::join(
            " / ",
            golden
                .messages
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
                format!("said `{messages}`, not `{}`", golden.messages),
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

    /// The rules of a file, with the answers of 3.0.9 from the file beside it.
    fn rules_with_answers(rules: &Path) -> Vec<Golden> {
        let text = fs::read(rules).unwrap();
        let path = rules.with_extension("3.0.9.tsv");
        if std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
            fs::write(&path, recorder::record(&text)).unwrap();
        }
        let answers = fs::read(&path).unwrap();
        let answers = answers.lines().filter(|line| !line.starts_with(b"#"));
        answers
            .map(|line| {
                let columns = columns(line);
                let [number, status, listing, messages] = columns.as_slice() else {
                    panic!("{}: not four columns: {}", path.display(), line.as_bstr());
                };
                let at = usize::try_from(self::number(number)).unwrap();
                Golden {
                    place: format!("{}:{at}", rules.display()),
                    input: text.lines().nth(at - 1).unwrap().into(),
                    status: self::number(status),
                    listing: (*listing).into(),
                    messages: (*messages).into(),
                }
            })
            .collect()
    }

    #[test]
    fn rule_files_are_answered_as_auditctl_3_does() {
        let mut paths = Vec::new();
        files(
            &tests_directory().join("golden/auditctl/rules"),
            "rules",
            &mut paths,
        );
        let mut golden = Vec::new();
        for path in paths {
            let answers = rules_with_answers(&path);
            let rules = fs::read(&path).unwrap();
            let count = rules.lines().filter(|line| recorder::is_rule(line)).count();
            assert_eq!(answers.len(), count, "answers to {}", path.display());
            golden.extend(answers);
        }
        compare("lines of rule files", "3.0.9", Dialect::V3, &golden);
    }

    #[test]
    fn golden_lines_are_answered_as_auditctl_does() {
        let file = tests_directory().join("golden/auditctl/answers.tsv");
        for (version, dialect) in VERSIONS {
            let golden = command_lines(&file, dialect);
            assert!(golden.len() > 100, "only {} golden lines", golden.len());
            compare("golden lines", version, dialect, &golden);
        }
    }

    #[test]
    fn public_rule_lines_are_answered_as_auditctl_does() {
        let Some(rulesets) = public_rulesets("public_rule_lines_are_answered_as_auditctl_does")
        else {
            return;
        };
        for (version, dialect) in VERSIONS {
            let golden = lines(&rulesets, version);
            assert!(golden.len() > 1000, "only {} golden lines", golden.len());
            compare("rule lines", version, dialect, &golden);
        }
    }

    #[test]
    fn public_command_lines_are_answered_as_auditctl_does() {
        let Some(rulesets) = public_rulesets("public_command_lines_are_answered_as_auditctl_does")
        else {
            return;
        };
        for (version, dialect) in VERSIONS {
            let golden = command_lines(&rulesets.join(CLI), dialect);
            assert!(golden.len() > 90, "only {} golden lines", golden.len());
            compare("command lines", version, dialect, &golden);
        }
    }

    /// Compares the rule that the parser of rule files reads from each input with the rule that `auditctl` 4
    /// would send. Returns the number of inputs that were compared.
    #[track_caller]
    fn assert_parsers_agree<'a>(inputs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> usize {
        /// Conditions that `auditctl` accepts and the kernel refuses.
        const REFUSED_BY_THE_KERNEL: &[&str] = &[
            "path=\"/usr/sbin/unix2_chkpwd\"",
            "path!=/etc/passwd",
            "dir!=/etc",
        ];
        let mut compared = 0;
        for (place, input) in inputs {
            let answer = answer(input, Dialect::V4);
            let refused = REFUSED_BY_THE_KERNEL
                .iter()
                .any(|part| input.contains_str(part));
            let [CliRequest::Command(command)] = answer.requests.as_slice() else {
                continue;
            };
            let (found, findings) = parse_line(input, &GoldenHost);
            if refused {
                assert_eq!(found, None, "{place}");
                continue;
            }
            if answer.status == 0 {
                compared += 1;
                assert_eq!(
                    found.as_ref().map(without_perm_syscalls),
                    Some(without_perm_syscalls(command)),
                    "{place}: {findings:?}"
                );
            }
        }
        compared
    }

    #[test]
    fn rule_files_are_read_as_auditctl_reads_them() {
        let mut compared = 0;
        for path in own_rule_files() {
            let text = fs::read(&path).unwrap();
            let place = path.display().to_string();
            compared += assert_parsers_agree(text.lines().map(|line| (place.as_str(), line)));
        }
        assert!(compared > 80, "only {compared} lines");
    }

    #[test]
    fn public_rule_files_are_read_as_auditctl_reads_them() {
        let Some(rulesets) = public_rulesets("public_rule_files_are_read_as_auditctl_reads_them")
        else {
            return;
        };
        let (version, dialect) = VERSIONS[1];
        let mut golden = lines(&rulesets, version);
        golden.extend(command_lines(&rulesets.join(CLI), dialect));
        let inputs = golden
            .iter()
            .map(|line| (line.place.as_str(), line.input.as_slice()));
        let compared = assert_parsers_agree(inputs);
        assert!(compared > 1000, "only {compared} lines");
    }

    /// Asserts that each line of a rule file is blank, a comment, a command, or has a warning or an error.
    #[track_caller]
    fn assert_every_line_counts(path: &Path) {
        let bytes = fs::read(path).unwrap();
        let (lines, findings) = parse_file(&bytes, &GoldenHost);
        for (number, text) in (1..).zip(bytes.lines()) {
            let idle = text.trim().is_empty() || text.trim_start().starts_with(b"#");
            let loaded = lines.iter().any(|line| line.number == number);
            let reported = findings
                .iter()
                .any(|finding| finding.line == number && finding.severity > Severity::Note);
            assert!(idle || loaded || reported, "{}:{number}", path.display());
        }
    }

    #[test]
    fn every_line_is_loaded_or_reported() {
        let paths = own_rule_files();
        assert!(paths.len() >= 5, "{paths:?}");
        paths.iter().for_each(|path| assert_every_line_counts(path));
    }

    #[test]
    fn every_line_of_public_rule_files_is_loaded_or_reported() {
        let Some(rulesets) =
            public_rulesets("every_line_of_public_rule_files_is_loaded_or_reported")
        else {
            return;
        };
        let mut paths = Vec::new();
        files(&rulesets, "rules", &mut paths);
        assert!(paths.len() > 50);
        paths.iter().for_each(|path| assert_every_line_counts(path));
    }
}
