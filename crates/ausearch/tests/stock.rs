//! Random questions over random logs, and over logs of real events, answered as the stock tools answer them.
//!
//! With `TOLLGATE_LOGS` as a directory, each log in it is asked about too.
//!
//! `tests/golden/ausearch/answers.tsv` has the answers of 4.2.1, as digests; `TOLLGATE_GOLDEN=write` with
//! `TOLLGATE_STOCK` as the directory of those tools rewrites it. The installed tools are asked too, whatever their
//! version. `tests/differential/ausearch.toml` lists the permitted differences.

#[cfg(test)]
#[path = "stock/differences.rs"]
mod differences;
#[cfg(test)]
#[path = "stock/index.rs"]
mod index;
#[cfg(test)]
#[path = "stock/logs.rs"]
mod logs;
#[cfg(test)]
#[path = "stock/public.rs"]
mod public;
#[cfg(test)]
#[path = "stock/question.rs"]
mod question;
#[cfg(test)]
#[path = "stock/questions.rs"]
mod questions;
#[cfg(test)]
#[path = "stock/random.rs"]
mod random;
#[cfg(test)]
#[path = "stock/tools.rs"]
mod tools;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::{Path, PathBuf};

    use bstr::ByteSlice as _;

    use crate::differences::{Differences, tests_directory};
    use crate::logs::{self, Damage};
    use crate::question::Question;
    use crate::questions;
    use crate::random::Random;
    use crate::tools::{Answer, ours, run, stock};

    /// Questions of the golden file.
    const QUESTIONS: u64 = 600;
    /// Random logs.
    const LOGS: u64 = 24;

    /// Logs in a directory of their own.
    struct Logs {
        directory: tempfile::TempDir,
        names: Vec<String>,
    }

    impl Logs {
        /// The logs, without the lines that these tools' versions read differently.
        fn new(differences: &Differences) -> Self {
            let write = |path: PathBuf, log: &[u8]| {
                fs::write(path, differences.kept_lines(log)).unwrap();
            };
            let directory = tempfile::tempdir().unwrap();
            let mut names = Vec::new();
            for name in ["raw", "enriched", "raw-node", "enriched-node"] {
                let from = tests_directory()
                    .join("golden/auditd")
                    .join(format!("{name}.log"));
                write(directory.path().join(name), &fs::read(from).unwrap());
                names.push(name.to_owned());
            }
            for seed in 0..LOGS {
                let mut random = Random::new(seed);
                let damage = Damage {
                    once_in: if seed % 3 == 2 { 12 } else { 0 },
                    interleaved: seed % 4 > 1,
                    enriched: seed % 5 > 2,
                    nodes: seed % 6 == 5,
                };
                let log = logs::log(&mut random, 60, damage);
                let name = format!("random{seed}");
                write(directory.path().join(&name), &log);
                names.push(name);
            }
            Self { directory, names }
        }

        fn text(&self, name: &str) -> Vec<u8> {
            fs::read(self.directory.path().join(name)).unwrap()
        }

        fn question(&self, seed: u64) -> Question {
            let mut random = Random::new(seed);
            let log = self.names[random.below(self.names.len())].clone();
            let (tool, words) = if random.once_in(3) {
                ("aureport", questions::report(&mut random, None))
            } else {
                ("ausearch", questions::search(&mut random, None))
            };
            Question {
                tool,
                words,
                log,
                is_piped: random.once_in(10),
            }
        }

        fn ask(&self, program: &Path, question: &Question) -> Answer {
            question.ask(program, self.directory.path())
        }
    }

    #[test]
    fn answers_equal_those_of_the_installed_tools() {
        let Some((directory, version)) = stock() else {
            let reason = "ausearch is not installed (Debian package auditd)";
            let line = format!("\nskipped: answers_equal_those_of_the_installed_tools: {reason}\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
            return;
        };
        let differences = Differences::of_version(&version);
        let logs = Logs::new(&differences);
        let mut report = String::new();
        let (mut equal, mut permitted) = (0, 0);
        for seed in 0..count() {
            let question = logs.question(seed);
            let theirs = logs.ask(&directory.join(question.tool), &question);
            let ours = logs.ask(&ours(question.tool), &question);
            if theirs == ours {
                equal += 1;
                continue;
            }
            // The stock tools crash on some logs.
            if theirs.status.is_none() {
                permitted += 1;
                continue;
            }
            let log = logs.text(&question.log);
            if differences.permit(&question, &log, &ours) {
                permitted += 1;
                continue;
            }
            write!(
                report,
                "{seed}: {}",
                question.shown_difference(&theirs, &ours)
            )
            .unwrap();
        }
        println!("{version}: {equal} answers are equal, {permitted} differ as permitted");
        assert!(report.is_empty(), "{version}:\n{report}");
        assert!(equal >= 300, "{equal}");
    }

    /// Number of questions to the installed tools.
    fn count() -> u64 {
        let count = std::env::var("TOLLGATE_QUESTIONS").ok();
        count.map_or(450, |count| count.parse().unwrap())
    }

    #[test]
    fn answers_equal_the_golden_ones() {
        let path = tests_directory().join("golden/ausearch/answers.tsv");
        // The version of the golden answers.
        let differences = Differences::of_version("4.2.1");
        let logs = Logs::new(&differences);
        let is_set = std::env::var_os("TOLLGATE_STOCK").is_some();
        if is_set && std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
            let (directory, version) = stock().unwrap();
            let mut file = File::create(&path).unwrap();
            for seed in 0..QUESTIONS {
                let question = logs.question(seed);
                let theirs = logs.ask(&directory.join(question.tool), &question);
                writeln!(
                    file,
                    "{version}\t{seed}\t{}\t{}",
                    theirs.digest(),
                    question.shown()
                )
                .unwrap();
            }
        }
        let mut report = String::new();
        let (mut equal, mut all) = (0, 0);
        for line in fs::read_to_string(path).unwrap().lines() {
            let fields: Vec<&str> = line.splitn(6, '\t').collect();
            let question = logs.question(fields[1].parse().unwrap());
            assert_eq!(
                fields[5],
                question.shown(),
                "the questions changed: write the golden file again"
            );
            let ours = logs.ask(&ours(question.tool), &question);
            all += 1;
            let log = logs.text(&question.log);
            let is_permitted = fields[2] == "-" || differences.permit(&question, &log, &ours);
            if fields[2..5].join("\t") == ours.digest() {
                equal += 1;
            } else if !is_permitted {
                writeln!(report, "{}: {}", fields[1], question.shown()).unwrap();
            }
        }
        println!("{equal} of {all} answers are equal");
        assert!(report.is_empty(), "{report}");
        assert!(equal * 10 >= all * 9, "{equal} of {all}");
    }
    /// Events of one record each, ten seconds apart.
    fn logins(serials: std::ops::Range<u64>) -> String {
        let line = |serial: u64| {
            format!(
                "type=USER_LOGIN msg=audit({}.007:{serial}): pid=1 uid=0 auid=0 ses=1 msg='op=login id=0 \
                 exe=\"/x\" hostname=? addr=? terminal=? res=success'\n",
                1_700_000_000 + 10 * serial
            )
        };
        serials.map(line).collect()
    }

    #[test]
    fn checkpoints_of_both_tools_are_interchangeable() {
        let ours = ours("ausearch");
        let stock =
            stock().map_or_else(|| ours.clone(), |(directory, _)| directory.join("ausearch"));
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("audit.log");
        let words = ["-if", "audit.log", "--checkpoint", "mark", "--raw"];
        let mut written = String::new();
        for (round, program) in [&ours, &stock, &ours, &stock, &ours]
            .into_iter()
            .enumerate()
        {
            let first = 1 + 3 * u64::try_from(round).unwrap();
            let new = logins(first..first + 3);
            written.push_str(&new);
            fs::write(&log, &written).unwrap();
            let answer = run(program, &words, directory.path());
            assert_eq!(
                answer.out.as_bstr(),
                new.as_bytes().as_bstr(),
                "round {round}"
            );
            assert_eq!(answer.status, Some(0), "round {round}");
        }
        let nothing = run(&ours, &words, directory.path());
        assert_eq!((nothing.status, nothing.out.len()), (Some(1), 0));
    }

    #[test]
    fn checkpoint_of_another_log_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("audit.log"), logins(1..9)).unwrap();
        let words = ["-if", "audit.log", "--checkpoint", "mark", "--raw"];
        for (mark, status) in [
            ("nonsense\n", 10),
            ("dev=0x1\ninode=1\noutput=- 1699999000.001:1 0x458\n", 12),
        ] {
            fs::write(directory.path().join("mark"), mark).unwrap();
            let answer = run(&ours("ausearch"), &words, directory.path());
            assert_eq!(answer.status, Some(status), "{mark}");
            if let Some((stock, _)) = stock() {
                let theirs = run(&stock.join("ausearch"), &words, directory.path());
                assert_eq!(theirs.err.as_bstr(), answer.err.as_bstr());
                assert_eq!(theirs.status, answer.status, "{mark}");
            }
        }
    }

    #[test]
    fn rotated_logs_are_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for (name, serials) in [
            ("audit.log.2", 1..4),
            ("audit.log.1", 4..7),
            ("audit.log", 7..9),
        ] {
            fs::write(directory.path().join(name), logins(serials)).unwrap();
        }
        let questions: [&[&str]; 6] = [
            &["ausearch", "-if", ".", "--raw"],
            &["ausearch", "-if", ".", "-ts", "11/14/23", "22:14:10"],
            &["ausearch", "-if", ".", "--just-one", "-a", "5"],
            &["ausearch", "-if", "./nothing"],
            &["aureport", "-if", ".", "-t"],
            &["aureport", "-if", ".", "-l"],
        ];
        for question in questions {
            let answer = run(&ours(question[0]), &question[1..], directory.path());
            if question[0] == "ausearch" && question[3..] == ["--raw"] {
                assert_eq!(answer.out.as_bstr(), logins(1..9).as_bytes().as_bstr());
            }
            if let Some((stock, _)) = stock() {
                let theirs = run(&stock.join(question[0]), &question[1..], directory.path());
                assert_eq!(theirs.out.as_bstr(), answer.out.as_bstr(), "{question:?}");
                assert_eq!(theirs.err.as_bstr(), answer.err.as_bstr(), "{question:?}");
                assert_eq!(theirs.status, answer.status, "{question:?}");
            }
        }
    }

    #[test]
    fn hostile_logs_end_no_tool() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let questions: [&[&str]; 8] = [
            &["ausearch", "-if", "log", "-i"],
            &[
                "ausearch",
                "-if",
                "log",
                "--format",
                "csv",
                "--extra-labels",
                "--extra-obj2",
            ],
            &["ausearch", "-if", "log", "--format", "text"],
            &[
                "ausearch", "-if", "log", "-f", "x", "-hn", "x", "-k", "x", "-o", "x", "-su", "x",
                "-x", "x",
            ],
            &["aureport", "-if", "log"],
            &["aureport", "-if", "log", "-a", "-i"],
            &["aureport", "-if", "log", "--tty"],
            &["aureport", "-if", "log", "-f", "-i", "--summary"],
        ];
        for seed in 1000..1020 {
            let damage = Damage {
                once_in: 2,
                interleaved: true,
                enriched: seed % 2 == 0,
                nodes: seed % 3 == 0,
            };
            fs::write(&path, logs::log(&mut Random::new(seed), 40, damage)).unwrap();
            for question in questions {
                let answer = run(&ours(question[0]), &question[1..], directory.path());
                let is_usual = matches!(answer.status, Some(0 | 1));
                assert!(is_usual, "{seed} {question:?}: {}", answer.err.as_bstr());
            }
        }
    }

    /// Events of one second do not take time quadratic in their number: 40,000 took the stock tool 40 s.
    #[test]
    fn events_of_one_second_are_grouped_quickly() {
        const EVENTS: usize = 40_000;
        let directory = tempfile::tempdir().unwrap();
        let mut log = String::new();
        for serial in 0..EVENTS {
            for kind in ["SYSCALL", "CWD"] {
                writeln!(
                    log,
                    "type={kind} msg=audit(1700000000.007:{serial}): x=1 cwd=\"/\""
                )
                .unwrap();
            }
        }
        fs::write(directory.path().join("audit.log"), log).unwrap();
        let start = std::time::Instant::now();
        let answer = run(
            &ours("ausearch"),
            &["-if", "audit.log", "--raw", "-m", "CWD"],
            directory.path(),
        );
        // An event is matched once its fields were read, and these have no syscall.
        assert_eq!(answer.status, Some(1));
        assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
    }
}
