//! Rule text and configuration text of any bytes, thrown at what reads it.
//!
//! Inputs are mutations of a corpus: the files of `tests/fuzz/rules` and `tests/fuzz/conf`, where
//! every input that once failed is to stay, and the lines of `tests/golden/auditctl/answers.tsv`. A plain run is short and
//! always the same. `cargo xtask fuzz` sets `TOLLGATE_FUZZ_SECONDS` to go on for longer, and
//! `TOLLGATE_FUZZ_SEED` to go elsewhere; the seed is printed, and an input that fails is left in the
//! directory that `TOLLGATE_FUZZ_OUT` names.

#[cfg(test)]
mod perm;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use audit::conf;
    use audit::ids::Arch;
    use audit::plan::lint::lint;
    use audit::plan::list::RuleList;
    use audit::rule::auditctl::{self, GENERAL, Request};
    use audit::rule::{
        Command, Dialect, Field, FieldTest, Host, List, Rule, Severity, Value, parse_file, print,
    };
    use bstr::{BStr, ByteSlice as _};

    use super::perm::without_perm_syscalls;

    /// A machine with one user and one directory.
    struct Machine;

    impl Host for Machine {
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

    impl conf::Host for Machine {
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

    /// Words that mean something in rules or in configuration, so that they are met more often than by chance.
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

    /// A generator of numbers that is the same everywhere.
    struct Random(u64);

    impl Random {
        /// splitmix64.
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, end: usize) -> usize {
            usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
        }

        fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
            let index = self.below(from.len());
            &from[index]
        }
    }

    fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
        let at = random.below(input.len() + 1);
        let end = (at + random.below(16)).min(input.len());
        match random.below(7) {
            0 => drop(input.drain(at..end)),
            1 => {
                let byte = u8::try_from(random.below(256)).unwrap();
                input.insert(at, byte);
            }
            2 if at < input.len() => input[at] ^= 1 << random.below(8),
            3 => {
                let other = random.pick(corpus);
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend(&other[from..]);
            }
            4 => {
                let copy = input[at..end].to_vec();
                input.splice(at..at, copy);
            }
            _ => {
                let word = format!(" {} ", random.pick(WORDS));
                input.splice(at..at, word.into_bytes());
            }
        }
        input.truncate(16 << 10);
    }

    fn tests() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
    }

    fn files(directory: &str) -> Vec<Vec<u8>> {
        let mut paths: Vec<PathBuf> = fs::read_dir(tests().join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    fn rules() -> Vec<Vec<u8>> {
        let mut corpus = files("fuzz/rules");
        let answers = fs::read(tests().join("golden/auditctl/answers.tsv")).unwrap();
        let lines = answers.lines().filter(|line| !line.starts_with(b"#"));
        corpus.extend(lines.map(|line| line.split_str("\t").next().unwrap().to_vec()));
        corpus
    }

    fn setting(name: &str) -> Option<u64> {
        let text = std::env::var(name).ok()?;
        Some(
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text}: no number")),
        )
    }

    /// Runs `check` on the corpus, and then on mutations of it: `rounds` of them, or for as long as
    /// the environment says.
    fn fuzz(target: &str, corpus: &[Vec<u8>], rounds: u64, check: fn(&[u8])) {
        let seed = setting("TOLLGATE_FUZZ_SEED").unwrap_or(1);
        let limit = setting("TOLLGATE_FUZZ_SECONDS").map(Duration::from_secs);
        let start = Instant::now();
        let try_one = |input: &[u8]| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
                eprintln!("{target}, seed {seed}: fails on `{}`", input.as_bstr());
                if let Some(directory) = std::env::var_os("TOLLGATE_FUZZ_OUT") {
                    let path = Path::new(&directory).join(format!("{target}-{seed}"));
                    fs::write(&path, input).unwrap();
                    eprintln!("the input is in `{}`", path.display());
                }
                resume_unwind(panic);
            }
        };
        corpus.iter().for_each(|input| try_one(input));
        let mut random = Random(seed);
        let mut done = 0_u64;
        while limit.map_or(done < rounds, |limit| start.elapsed() < limit) {
            let mut input = random.pick(corpus).clone();
            for _ in 0..=random.below(6) {
                mutate(&mut input, corpus, &mut random);
            }
            try_one(&input);
            done += 1;
        }
        println!("{target}: {done} inputs, seed {seed}");
    }

    /// Every line is loaded or named; findings are in the text; and what a rule file may hold,
    /// `auditctl` takes, too, for the same command.
    fn rule_text(bytes: &[u8]) {
        let (lines, findings) = parse_file(bytes, &Machine);
        for finding in &findings {
            assert!(finding.span.start <= finding.span.end, "{finding:?}");
            assert!(finding.span.end <= bytes.len(), "{finding:?}");
            assert!(
                finding.column >= 1 && !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
        for (number, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let named = findings.iter().any(|finding| finding.line == number);
            let failed = findings
                .iter()
                .any(|finding| finding.line == number && finding.severity == Severity::Error);
            let loaded = lines.iter().find(|line| line.number == number);
            let idle = matches!(text.iter().find(|&&byte| byte != b' '), None | Some(b'#'));
            assert!(idle || named || loaded.is_some(), "line {number}");
            assert!(!failed || loaded.is_none(), "line {number}");
            // The carriage return is left out here, and kept by `auditctl`.
            if let (Some(loaded), false) = (loaded, text.ends_with(b"\r")) {
                let answer = auditctl::line(text, number, Dialect::Four, &Machine);
                let answer = answer.unwrap();
                assert_eq!(answer.status, 0, "{:?}: {:?}", BStr::new(text), answer.said);
                let Some(Request::Command(last)) = answer.requests.last() else {
                    panic!("{:?} is not a command to auditctl", BStr::new(text));
                };
                let [found, expected] = [&loaded.command, last].map(without_perm_syscalls);
                assert_eq!(found, expected);
            }
        }
    }

    /// Each version answers with a status and words to it, and lists what it takes so that it is
    /// taken again for the same.
    fn command_line(bytes: &[u8]) {
        let words: Vec<&[u8]> = bytes
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
            .collect();
        for dialect in [Dialect::Three, Dialect::Four] {
            let answer = auditctl::arguments(&words, dialect, &Machine);
            assert!(matches!(answer.status, 0 | 1 | 255), "{answer:?}");
            if dialect == Dialect::Four && answer.status == 255 {
                assert_eq!(answer.said.last().unwrap(), GENERAL);
            }
            for request in &answer.requests {
                let Request::Command(Command::Add { rule, .. }) = request else {
                    continue;
                };
                assert_eq!(answer.status, 0, "{answer:?}");
                let text = print(rule, Arch::X86_64, dialect);
                assert!(text.contains_str("-"), "{text}");
                if dialect == Dialect::Four && can_be_read_again(rule) {
                    listed_again(text.as_bstr());
                }
            }
        }
    }

    /// Whether a listing says all: not where names are of another arch, perm adds syscalls, there is
    /// no syscall at all, or the newer operations of `io_uring` are left out.
    fn can_be_read_again(rule: &Rule) -> bool {
        let is_said = |test: &FieldTest| match (test.field, &test.value) {
            (Field::Perm, _) => false,
            (Field::Arch, &Value::Number(arch)) => [Arch::X86_64.0, Arch::I386.0].contains(&arch),
            _ => true,
        };
        let has_calls = rule.list != List::Exit || rule.syscalls.iter().next().is_some();
        rule.list != List::IoUring && has_calls && rule.fields.iter().all(is_said)
    }

    fn listed_again(text: &BStr) {
        let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
        let answer = auditctl::arguments(&words, Dialect::Four, &Machine);
        if let [Request::Command(Command::Add { rule, .. })] = answer.requests.as_slice() {
            assert_eq!(print(rule, Arch::X86_64, Dialect::Four), text);
        }
    }

    /// Whatever is loaded can be planned and looked at.
    fn rule_list(bytes: &[u8]) {
        let mut list = RuleList::default();
        list.load(0, parse_file(bytes, &Machine).0);
        let findings = lint(list.rules(), Arch::X86_64);
        for finding in findings {
            assert!(finding.rule < list.rules().len(), "{finding:?}");
        }
    }

    /// Every line counts, is a comment, or is named; findings are in the text; a text without errors
    /// means the same whatever is said beside it.
    fn conf_text(bytes: &[u8]) {
        let (lines, _) = conf::line::assignments(bytes);
        let (settings, findings) = conf::auditd::parse(bytes, &Machine);
        for finding in &findings {
            assert!(finding.span.start <= finding.span.end, "{finding:?}");
            assert!(finding.span.end <= bytes.len(), "{finding:?}");
            assert!(
                finding.column >= 1 && !finding.advice.is_empty(),
                "{finding:?}"
            );
        }
        for (number, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
            let named = findings.iter().any(|finding| finding.line == number);
            let counts = lines.iter().any(|line| line.place.line == number);
            let idle = matches!(text.iter().find(|&&byte| byte != b' '), None | Some(b'#'));
            assert!(idle || named || counts, "line {number}");
        }
        if findings
            .iter()
            .all(|finding| finding.severity != Severity::Error)
        {
            let commented = [b"# more\n".as_slice(), bytes, b"\n#"].concat();
            let again = conf::auditd::parse(&commented, &Machine).0;
            assert!(bytes.is_empty() || settings == again);
        }
    }

    #[test]
    fn fuzz_conf_text() {
        fuzz("conf_text", &files("fuzz/conf"), 3000, conf_text);
    }

    #[test]
    fn fuzz_rule_text() {
        fuzz("rule_text", &rules(), 3000, rule_text);
    }

    #[test]
    fn fuzz_command_line() {
        fuzz("command_line", &rules(), 3000, command_line);
    }

    #[test]
    fn fuzz_rule_list() {
        fuzz("rule_list", &rules(), 100, rule_list);
    }
}
