//! Fuzz tests: the parsers of rule text, command lines and configuration text.
//!
//! Inputs are mutations of a corpus: the files in `tests/fuzz/rules` and `tests/fuzz/conf`, which keep every
//! input that once failed, and the lines of `tests/golden/auditctl/answers.tsv`.

#[cfg(test)]
mod perm;

#[cfg(test)]
mod tests {
    use std::fs;

    use audit::conf;
    use audit::ids::Arch;
    use audit::ids::Dialect;
    use audit::plan::lint::lint;
    use audit::plan::rule_list::RuleList;
    use audit::rule::auditctl::{self, CliRequest, PARAMETER_ERROR};
    use audit::rule::{
        Command, Diagnostic, Field, FieldTest, List, Rule, RuleHost, Severity, Value, parse_file,
        print,
    };
    use bstr::{BStr, ByteSlice as _};
    use inputs::fuzz::{files, fuzz, tests};

    use super::perm::without_perm_syscalls;

    /// A host with one user and one directory.
    struct TestHost;

    impl RuleHost for TestHost {
        fn uid(&self, name: &[u8]) -> Option<u32> {
            (name == b"root").then_some(0)
        }

        fn gid(&self, name: &[u8]) -> Option<u32> {
            (name == b"root").then_some(0)
        }

        fn is_directory(&self, path: &[u8]) -> bool {
            path == b"/etc"
        }

        fn native(&self) -> Arch {
            Arch::X86_64
        }
    }

    impl conf::ConfigHost for TestHost {
        fn group(&self, name: &[u8]) -> Option<u32> {
            (name == b"adm").then_some(4)
        }

        fn may_run(&self, program: &BStr) -> Result<(), String> {
            match program.strip_prefix(b"/sbin/") {
                Some(_) => Ok(()),
                None => Err("does not exist".to_owned()),
            }
        }

        fn can_mail(&self) -> bool {
            true
        }
    }

    /// Words of rules and of configuration, mixed into inputs.
    const WORDS: &[&str] = &[
        "-a always,exit",
        "-A never,task",
        "-d exit,always",
        "-a never,exclude",
        "-a always,user",
        "-a never,filesystem",
        "-a always,io_uring",
        "-w /etc/passwd",
        "-W /etc/",
        "-p wa",
        "-k key",
        "-F key=",
        "-F arch=b64",
        "-F arch=b32",
        "-F arch=aarch64",
        "-S openat,open",
        "-S all",
        "-S 2047",
        "-C auid!=obj_uid",
        "-F perm=rwxa",
        "-F path=/x",
        "-F dir=/etc",
        "-F exe=/bin/ls",
        "-F auid>=1000",
        "-F auid!=unset",
        "-F uid=4294967296",
        "-F exit=-EACCES",
        "-F a2&0100",
        "-F msgtype=CWD",
        "-F fstype=tracefs",
        "-F filetype=file",
        "-F subj_type=x",
        "-F sessionid=unset",
        "-F saddr_fam=2",
        "-F field_compare=25",
        "-D",
        "-e 2",
        "-b 8192",
        "-i",
        "-c",
        "-R x",
        "--signal",
        "--reset",
        "--",
        "-",
        "#",
        "\n",
        " ",
        "\t",
        "\\ ",
        "\\\\",
        "\r\n",
        "\0",
        "=",
        "!=",
        "&=",
        ",",
        "\u{1}",
        "99999999999999999999",
        "space_left = 75%",
        "exec /sbin/room",
        " = ",
        "yes",
    ];

    fn rules() -> Vec<Vec<u8>> {
        let mut corpus = files("fuzz/rules");
        let answers = fs::read(tests().join("golden/auditctl/answers.tsv")).unwrap();
        let lines = answers.lines().filter(|line| !line.starts_with(b"#"));
        corpus.extend(lines.map(|line| line.split_str("\t").next().unwrap().to_vec()));
        corpus
    }

    /// Each line is loaded or reported, spans are in the text, and `auditctl` parses each loaded line to the
    /// same command.
    fn rule_text(bytes: &[u8]) {
        let (lines, findings) = parse_file(bytes, &TestHost);
        assert_spans_valid(&findings, bytes);
        for (number, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let reported = findings.iter().any(|finding| finding.line == number);
            let failed = findings
                .iter()
                .any(|finding| finding.line == number && finding.severity == Severity::Error);
            let loaded = lines.iter().find(|line| line.number == number);
            let is_blank = matches!(text.iter().find(|&&byte| byte != b' '), None | Some(b'#'));
            assert!(is_blank || reported || loaded.is_some(), "line {number}");
            assert!(!failed || loaded.is_none(), "line {number}");
            // The parser of rule files removes the carriage return, `auditctl` does not.
            if let (Some(loaded), false) = (loaded, text.ends_with(b"\r")) {
                let answer = auditctl::line(text, number, Dialect::V4, &TestHost);
                let answer = answer.unwrap();
                assert_eq!(
                    answer.status,
                    0,
                    "{:?}: {:?}",
                    BStr::new(text),
                    answer.messages
                );
                let Some(CliRequest::Command(last)) = answer.requests.last() else {
                    panic!("{:?} is not a command to auditctl", BStr::new(text));
                };
                let [found, expected] = [&loaded.command, last].map(without_perm_syscalls);
                assert_eq!(found, expected);
            }
        }
    }

    /// Each version exits with a known status, and the listing of each accepted rule parses to the same rule.
    fn command_line(bytes: &[u8]) {
        let words: Vec<&[u8]> = bytes
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .collect();
        for dialect in [Dialect::V3, Dialect::V4] {
            let answer = auditctl::arguments(&words, dialect, &TestHost);
            assert!(matches!(answer.status, 0 | 1 | 255), "{answer:?}");
            if dialect == Dialect::V4 && answer.status == 255 {
                assert_eq!(answer.messages.last().unwrap(), PARAMETER_ERROR);
            }
            for request in &answer.requests {
                let CliRequest::Command(Command::Add { rule, .. }) = request else {
                    continue;
                };
                assert_eq!(answer.status, 0, "{answer:?}");
                let text = print(rule, Arch::X86_64, dialect);
                assert!(text.contains_str("-"), "{text}");
                if dialect == Dialect::V4 && is_listing_complete(rule) {
                    assert_listing_parses(text.as_bstr());
                }
            }
        }
    }

    /// Whether a listing is complete. It is not for names of another arch, for `perm`, which adds syscalls, for
    /// rules without syscalls, and for the `io_uring` list, where newer operations are left out.
    fn is_listing_complete(rule: &Rule) -> bool {
        let is_listed = |test: &FieldTest| match (test.field, &test.value) {
            (Field::Perm, _) => false,
            (Field::Arch, &Value::Number(arch)) => [Arch::X86_64.0, Arch::I386.0].contains(&arch),
            _ => true,
        };
        let has_syscalls = rule.list != List::Exit || rule.syscalls.iter().next().is_some();
        rule.list != List::IoUring && has_syscalls && rule.fields.iter().all(is_listed)
    }

    fn assert_listing_parses(text: &BStr) {
        let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
        let answer = auditctl::arguments(&words, Dialect::V4, &TestHost);
        if let [CliRequest::Command(Command::Add { rule, .. })] = answer.requests.as_slice() {
            assert_eq!(print(rule, Arch::X86_64, Dialect::V4), text);
        }
    }

    /// Loaded rules can be planned and linted.
    fn rule_list(bytes: &[u8]) {
        let mut list = RuleList::default();
        list.load(0, parse_file(bytes, &TestHost).0);
        let findings = lint(list.rules(), Arch::X86_64);
        for finding in findings {
            assert!(finding.rule < list.rules().len(), "{finding:?}");
        }
    }

    fn assert_spans_valid(findings: &[Diagnostic], bytes: &[u8]) {
        for finding in findings {
            assert!(finding.span.start <= finding.span.end, "{finding:?}");
            assert!(finding.span.end <= bytes.len(), "{finding:?}");
            assert!(
                finding.column >= 1 && !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
    }

    /// Each line is an assignment, a comment, or reported, and spans are in the text. Comments around a text
    /// without errors do not change its settings.
    fn conf_text(bytes: &[u8]) {
        let (lines, _) = conf::assignment::parse_assignments(bytes);
        assert_spans_valid(&conf::plugin::parse(bytes).1, bytes);
        let (settings, findings) = conf::auditd::parse(bytes, &TestHost);
        assert_spans_valid(&findings, bytes);
        for (number, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let reported = findings.iter().any(|finding| finding.line == number);
            let parsed = lines.iter().any(|line| line.position.line == number);
            let is_blank = matches!(text.iter().find(|&&byte| byte != b' '), None | Some(b'#'));
            assert!(is_blank || reported || parsed, "line {number}");
        }
        if findings
            .iter()
            .all(|finding| finding.severity != Severity::Error)
        {
            let commented = [b"# more\n".as_slice(), bytes, b"\n#"].concat();
            let again = conf::auditd::parse(&commented, &TestHost).0;
            assert!(bytes.is_empty() || settings == again);
        }
    }

    #[test]
    fn fuzz_conf_text() {
        fuzz("conf_text", &files("fuzz/conf"), WORDS, 3000, conf_text);
    }

    #[test]
    fn fuzz_rule_text() {
        fuzz("rule_text", &rules(), WORDS, 3000, rule_text);
    }

    #[test]
    fn fuzz_command_line() {
        fuzz("command_line", &rules(), WORDS, 3000, command_line);
    }

    #[test]
    fn fuzz_rule_list() {
        fuzz("rule_list", &rules(), WORDS, 100, rule_list);
    }
}
