//! Random questions over the logs of a directory, which `TOLLGATE_LOGS` names.
//!
//! Public logs are not part of this repository: `docs/compat.md` lists those that were compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;

use crate::differences::Differences;
use crate::question::Question;
use crate::questions;
use crate::random::Random;
use crate::tools::{ours, stock};

/// Fields with values for an option.
const FIELDS: &[(&str, &[&str])] = &[
    ("-c", &["comm"]),
    ("-e", &["exit"]),
    ("-f", &["name", "cwd", "path"]),
    ("-ga", &["gid", "egid"]),
    ("-ge", &["egid"]),
    ("-gi", &["gid"]),
    ("-hn", &["hostname", "addr"]),
    ("-k", &["key"]),
    ("-m", &["type"]),
    ("-n", &["node"]),
    ("-o", &["obj", "tcontext"]),
    ("-p", &["pid"]),
    ("-pp", &["ppid"]),
    ("-sc", &["syscall", "SYSCALL"]),
    ("-se", &["subj", "scontext", "tcontext"]),
    ("--session", &["ses"]),
    ("-su", &["subj", "scontext"]),
    ("-sv", &["success", "res"]),
    ("-tm", &["terminal", "tty"]),
    ("-ua", &["uid", "auid", "UID", "acct"]),
    ("-ue", &["euid"]),
    ("-ui", &["uid", "UID"]),
    ("-ul", &["auid", "AUID"]),
    ("-uu", &["uuid"]),
    ("-vm", &["vm"]),
    ("-x", &["exe"]),
];

/// Values of a log, by option of `ausearch`.
pub(crate) struct Values(BTreeMap<&'static str, Vec<String>>);

impl Values {
    fn new(log: &[u8]) -> Self {
        let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        for line in log.lines() {
            for word in line.split_str(" ").flat_map(|word| word.split_str("\x1d")) {
                let word = word.trim_with(|letter| letter == '\'' || letter == ',');
                let Some((name, value)) = word.split_once_str("=") else {
                    continue;
                };
                let value = value.trim_with(|letter| letter == '"').to_str_lossy();
                if value.is_empty() || value.contains('\0') {
                    continue;
                }
                for (option, _) in FIELDS
                    .iter()
                    .filter(|(_, fields)| fields.iter().any(|field| field.as_bytes() == name))
                {
                    found.entry(option).or_default().insert(value.to_string());
                }
            }
            if let Some((seconds, serial)) = stamp(line) {
                found.entry("-a").or_default().insert(serial);
                let time = written_time(seconds);
                for option in ["-ts", "-te"] {
                    found.entry(option).or_default().insert(time.clone());
                }
            }
        }
        let sorted = |values: BTreeSet<String>| values.into_iter().collect();
        let found = found.into_iter();
        Self(found.map(|(name, values)| (name, sorted(values))).collect())
    }

    /// A value for an option, or none once in four times.
    pub(crate) fn pick(&self, option: &str, random: &mut Random) -> Option<&str> {
        let values = self.0.get(option)?;
        (!random.once_in(4)).then(|| values[random.below(values.len())].as_str())
    }
}

/// Seconds and serial of a line.
fn stamp(line: &[u8]) -> Option<(u64, String)> {
    let (_, rest) = line.split_once_str("audit(")?;
    let (stamp, _) = rest.split_once_str(")")?;
    let (time, serial) = stamp.to_str().ok()?.split_once(':')?;
    let seconds = time.split('.').next()?.parse().ok()?;
    Some((seconds, serial.to_owned()))
}

/// A time as the C locale writes it, in UTC.
fn written_time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, after Howard Hinnant's `civil_from_days`.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{month:02}/{day:02}/{:02} {:02}:{:02}:{:02}",
        year % 100,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[test]
fn times_are_written_as_dates() {
    assert_eq!(written_time(1_700_000_000), "11/14/23 22:13:20");
    assert_eq!(written_time(951_827_696), "02/29/00 12:34:56");
}

fn question(log: &str, values: &Values, seed: u64) -> Question {
    let mut random = Random::new(seed);
    let (tool, words) = if random.once_in(3) {
        ("aureport", questions::report(&mut random, Some(values)))
    } else {
        ("ausearch", questions::search(&mut random, Some(values)))
    };
    Question {
        tool,
        words,
        log: log.to_owned(),
        is_piped: random.once_in(10),
    }
}

/// Number of questions of each log.
fn count() -> u64 {
    let count = std::env::var("TOLLGATE_QUESTIONS").ok();
    count.map_or(300, |count| count.parse().unwrap())
}

/// What was compared over one log.
#[derive(Default)]
struct Compared {
    equal: u64,
    /// Answers that are equal and more than a message.
    equal_with_output: u64,
    permitted: u64,
    crashed: u64,
    different: String,
}

fn compare(log: &Path, seed: u64, directory: &Path, differences: &Differences) -> Compared {
    let text = differences.kept_lines(&fs::read(log).unwrap());
    let values = Values::new(&text);
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("log"), &text).unwrap();
    let mut compared = Compared::default();
    for seed in (seed..).take(usize::try_from(count()).unwrap()) {
        let question = question("log", &values, seed);
        let theirs = question.ask(&directory.join(question.tool), place.path());
        let ours = question.ask(&ours(question.tool), place.path());
        if theirs == ours {
            compared.equal += 1;
            compared.equal_with_output += u64::from(!ours.out.is_empty());
        } else if theirs.status.is_none() {
            compared.crashed += 1;
        } else if differences.permit(&question, &text, &ours) {
            compared.permitted += 1;
        } else {
            let difference = question.shown_difference(&theirs, &ours);
            write!(compared.different, "{seed}: {difference}").unwrap();
        }
    }
    compared
}

/// Number of events of a log.
fn events(log: &[u8]) -> usize {
    let stamps: BTreeSet<_> = log.lines().filter_map(stamp).collect();
    stamps.len()
}

#[test]
fn answers_over_other_logs_equal_those_of_the_stock_tools() {
    let logs = std::env::var_os("TOLLGATE_LOGS");
    let (Some(logs), Some((directory, version))) = (logs, stock()) else {
        let reason = "TOLLGATE_LOGS is not set, or ausearch is not installed";
        let line = format!("\nno other logs: answers_over_other_logs: {reason}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return;
    };
    let differences = Differences::of_version(&version);
    let mut paths: Vec<PathBuf> = fs::read_dir(&logs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} has no logs", logs.display());
    let mut report = String::new();
    println!(
        "log\tevents\tquestions\tequal\tof these with output\tpermitted\tstock crashed\t({version})"
    );
    for (number, path) in (0..).zip(&paths) {
        let compared = compare(path, 1_000_000 * number, &directory, &differences);
        println!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{}",
            path.file_name().unwrap().display(),
            events(&fs::read(path).unwrap()),
            count(),
            compared.equal,
            compared.equal_with_output,
            compared.permitted,
            compared.crashed
        );
        if !compared.different.is_empty() {
            writeln!(report, "{}:\n{}", path.display(), compared.different).unwrap();
        }
    }
    assert!(report.is_empty(), "{version}:\n{report}");
}
