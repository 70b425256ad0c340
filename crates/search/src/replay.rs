//! `tollgate replay`: what rules would have recorded of what a log has.
//!
//! The log was recorded under broader rules. The reference evaluator of the crate `audit` decides each syscall of it
//! again. What a log cannot tell is listed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use audit::ids::{Dialect, NativeArch};
use audit::plan::rule_list::RuleList;
use audit::record::assemble::EventRecords;
use audit::rule::{Action, Field, List, Rule, Severity, parse_file, print};
use bstr::ByteSlice as _;
use clap::Parser as _;
use logs::accounts::Accounts;
use logs::event_reader::EventReader;
use logs::rule_decision::deciding_rule;
use logs::syscall_event::SyscallEvent;

use crate::ERROR;
use crate::logs_arg::Logs;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// Examples of the help and the manual page.
const EXAMPLES: &str = "\
Examples:
  Count what stricter rules would have recorded since the log began:
    tollgate replay new.rules
  Look at the events that they choose:
    tollgate replay --raw new.rules /var/log/audit/audit.log | ausearch -i";

/// Count the events of a log that rules would have recorded
///
/// The log must have been recorded under rules that choose more: replay chooses among its events. The exit status is 0,
/// or 2 after an error: a file that cannot be read is reported, and the events of the others are counted.
#[derive(Debug, clap::Parser)]
#[command(name = "tollgate-replay", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Rule file in the format of `auditctl -R`
    #[arg(value_name = "RULES")]
    rules: PathBuf,
    /// Logs [default: /var/log/audit/audit.log with its predecessors and archives]
    ///
    /// One file or directory is read with its rotated predecessors and archives; several are read in this order. An
    /// archive is read alone. `-` is standard input, which may be compressed with zstd.
    #[arg(value_name = "LOG", conflicts_with = "log")]
    logs: Vec<PathBuf>,
    /// The same as LOG
    #[arg(long, value_name = "LOG")]
    log: Vec<PathBuf>,
    /// Print the records of the chosen events instead of counts
    #[arg(long)]
    raw: bool,
}

/// Prints counts, or the chosen events.
///
/// # Errors
/// A file cannot be read, the rules have errors, or the output cannot be written.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let args = Args::parse_from(words);
    let rules = load(&args.rules)?;
    let mut replay = Replay::new(rules);
    let logs = Logs::new("tollgate-replay", [args.logs, args.log].concat());
    let mut reader = EventReader::new(logs.open()?);
    let mut out = io::BufWriter::new(io::stdout().lock());
    loop {
        let event = match reader.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(error) => {
                logs.report(&error);
                continue;
            }
        };
        let is_chosen = replay.add(event);
        if is_chosen && args.raw {
            match out.write_all(event.text()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(ExitCode::SUCCESS);
                }
                written => written.context("cannot write to standard output")?,
            }
        }
    }
    if !args.raw {
        out.write_all(replay.report().as_bytes())
            .context("cannot write to standard output")?;
    }
    out.flush().context("cannot write to standard output")?;
    Ok(match logs.have_errors() {
        true => ExitCode::from(ERROR),
        false => ExitCode::SUCCESS,
    })
}

/// Reads the rules of a file.
fn load(path: &Path) -> anyhow::Result<Vec<Rule>> {
    let text = fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let host = Accounts::read().unwrap_or_default();
    let (lines, findings) = parse_file(&text, &host);
    let mut errors = findings
        .iter()
        .filter(|found| found.severity == Severity::Error);
    if let Some(first) = errors.next() {
        bail!(
            "{}:{}: {}; `tollgate check` shows all errors",
            path.display(),
            first.line,
            first.message
        );
    }
    let mut list = RuleList::default();
    list.load(0, lines);
    let rules = list.into_rules().into_iter();
    Ok(rules.map(|entry| entry.rule).collect())
}

/// What the events of one rule, or of none, add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    events: u64,
    bytes: u64,
}

impl Total {
    fn add(&mut self, event: &EventRecords) {
        self.events += 1;
        self.bytes += u64::try_from(event.text().len()).unwrap_or(u64::MAX);
    }
}

/// Decides the events of a log by rules.
struct Replay {
    rules: Vec<Rule>,
    /// For each rule.
    totals: Vec<Total>,
    /// Syscalls that no rule matches.
    unmatched: Total,
    /// Events that are no syscalls: rules of the list exit do not decide about them.
    others: Total,
    /// Syscalls of each arch that the log has.
    seen: BTreeSet<(u32, u32)>,
    /// Least and greatest time, in milliseconds since the epoch.
    span_ms: Option<(u64, u64)>,
}

impl Replay {
    fn new(rules: Vec<Rule>) -> Self {
        Self {
            totals: vec![Total::default(); rules.len()],
            rules,
            unmatched: Total::default(),
            others: Total::default(),
            seen: BTreeSet::new(),
            span_ms: None,
        }
    }

    /// Counts an event. Returns whether it is recorded.
    fn add(&mut self, event: &EventRecords) -> bool {
        let time = event.time();
        let ms = time
            .sec
            .saturating_mul(1000)
            .saturating_add(time.milli.into());
        let (least, greatest) = self.span_ms.unwrap_or((ms, ms));
        self.span_ms = Some((least.min(ms), greatest.max(ms)));
        let Some(syscall) = SyscallEvent::of(event) else {
            self.others.add(event);
            return true;
        };
        let syscall = syscall.event();
        self.seen.insert((syscall.arch.0, syscall.syscall.0));
        let Some(decisive) = deciding_rule(&self.rules, &syscall, event) else {
            self.unmatched.add(event);
            return false;
        };
        if let Some(total) = self.totals.get_mut(decisive) {
            total.add(event);
        }
        self.rules
            .get(decisive)
            .is_some_and(|rule| rule.action == Action::Always)
    }

    fn report(&self) -> String {
        let mut lines = vec![format!("{:>10} {:>10}  rule", "events", "KiB/day")];
        for (rule, total) in self.rules.iter().zip(&self.totals) {
            let text = print(rule, NativeArch::BUILD.b64(), Dialect::V4);
            lines.push(self.line(*total, &text.to_str_lossy()));
        }
        lines.push(self.line(self.unmatched, "(no rule: not recorded)"));
        lines.push(self.line(self.others, "(no syscall: not decided by these rules)"));
        let mut unknown: Vec<String> = Vec::new();
        for rule in &self.rules {
            let text = print(rule, NativeArch::BUILD.b64(), Dialect::V4);
            unknown.extend(self.unknown(rule).map(|why| format!("  {text}: {why}")));
        }
        if !unknown.is_empty() {
            lines.push("The log cannot tell:".to_owned());
            lines.append(&mut unknown);
        }
        lines.push(String::new());
        lines.join("\n")
    }

    fn line(&self, total: Total, what: &str) -> String {
        let span = self.span_ms.map_or(0, |(least, greatest)| greatest - least);
        let per_day = u128::from(total.bytes) * u128::from(DAY_MS) / u128::from(span.max(1)) / 1024;
        let per_day = if span == 0 {
            "?".to_owned()
        } else {
            per_day.to_string()
        };
        format!("{:>10} {per_day:>10}  {what}", total.events)
    }

    /// What the log cannot tell about a rule.
    fn unknown(&self, rule: &Rule) -> impl Iterator<Item = &'static str> {
        let has = |wanted: &[Field]| rule.fields.iter().any(|test| wanted.contains(&test.field));
        let is_seen = self
            .seen
            .iter()
            .any(|(_, number)| rule.syscalls.contains(*number));
        let is_exit = rule.list == List::Exit;
        [
            (!is_exit).then_some("only rules of the list exit are replayed"),
            (is_exit && !is_seen).then_some(
                "the log has none of its syscalls: they did not happen, or no rule recorded them",
            ),
            has(&[Field::Gid, Field::Egid]).then_some("supplementary groups are not recorded"),
            has(&[Field::Path, Field::Dir]).then_some(
                "names are compared as recorded: links, and names relative to a descriptor, are not resolved",
            ),
        ]
        .into_iter()
        .flatten()
    }
}

#[cfg(test)]
mod tests {
    use audit::record::assemble::EventAssembler;
    use clap::CommandFactory as _;

    use super::*;

    fn replay(rules: &str) -> Replay {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.rules");
        fs::write(&path, rules).unwrap();
        Replay::new(load(&path).unwrap())
    }

    fn add(replay: &mut Replay, lines: &str) -> bool {
        let mut assembler = EventAssembler::default();
        for line in lines.lines() {
            assembler.take(line.as_bytes(), 0).unwrap();
        }
        replay.add(&assembler.next_ended().unwrap())
    }

    fn open(sec: u32, uid: u32, name: &str) -> String {
        let stamp = format!("msg=audit({sec}.000:{sec}): ");
        format!(
            "type=SYSCALL {stamp}arch=c000003e syscall=257 success=yes exit=3 a0=ffffff9c a1=7f a2=241 a3=0 items=1 \
             ppid=1 pid=2 auid=1000 uid={uid} gid=0 euid=0 suid=0 fsuid=0 egid=0 sgid=0 fsgid=0 tty=pts0 ses=1 \
             comm=\"x\" exe=\"/bin/x\" key=\"all\"\n\
             type=CWD {stamp}cwd=\"/etc\"\n\
             type=PATH {stamp}item=0 name=\"{name}\" inode=5 dev=08:01 mode=0100644 ouid=0 ogid=0 rdev=00:00 nametype=NORMAL\n\
             type=PROCTITLE {stamp}proctitle=\"x\"\n"
        )
    }

    #[test]
    fn events_are_decided_by_the_first_matching_rule() {
        let mut replay = replay(
            "-a never,exit -F arch=b64 -S openat -F uid=33\n\
             -a always,exit -F path=/etc/passwd -F perm=wa -k identity\n\
             -a always,exit -F arch=b64 -S openat -F dir=/etc -k etc\n\
             -a always,exit -F arch=b64 -S kill -k kill\n",
        );
        assert!(add(&mut replay, &open(0, 0, "passwd")));
        assert!(add(&mut replay, &open(86_400, 0, "/etc/group")));
        assert!(!add(&mut replay, &open(86_400, 33, "passwd")));
        assert!(!add(&mut replay, &open(86_400, 0, "/tmp/x")));
        let login = "type=USER_LOGIN msg=audit(5.000:9): pid=1 msg='op=login res=success'\n";
        assert!(add(&mut replay, login));
        let events: Vec<u64> = replay.totals.iter().map(|total| total.events).collect();
        assert_eq!(events, [1, 1, 1, 0]);
        assert_eq!((replay.unmatched.events, replay.others.events), (1, 1));
        let report = replay.report();
        let lines: Vec<&str> = report.lines().collect();
        assert_eq!(lines[0], "    events    KiB/day  rule");
        assert!(
            lines[1].starts_with("         1          0  -a never,exit "),
            "{report}"
        );
        assert!(
            report.contains("-S kill -F key=kill: the log has none of its syscalls"),
            "{report}"
        );
        assert!(
            report.contains("names are compared as recorded"),
            "{report}"
        );
    }

    #[test]
    fn rules_with_errors_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.rules");
        fs::write(
            &path,
            "-a always,exit -S openat\n-a sometimes,exit -S open\n",
        )
        .unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("x.rules:2: "), "{error}");
    }

    #[test]
    fn manual_page_is_current() {
        let page = manual::Page::new("tollgate-replay", Args::command());
        page.check().unwrap();
    }
}
