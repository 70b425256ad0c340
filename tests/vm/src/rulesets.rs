//! Rule files of administrators with the fentry engine: each rule is triggered, or reported with the reason why it
//! cannot be triggered in a test machine.
//!
//! A rule's key is replaced with its line number, because rules of one file share keys. [`scene`] creates watched
//! files; [`workload`] makes programs that match a rule, from the syscalls in [`call`]. A rule may fail to match
//! only for a proven reason: the plan names one, earlier rules match all of its syscalls, or the kernel lacks them.
//!
//! A session with tracepoints triggers the rules for all syscalls again.

mod fixtures;
mod syscall_steps;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use audit::ids::Arch;
use audit::ids::Dialect;
use audit::plan::rule_list::{RuleEntry, RuleList};
use audit::plan::{Plan, SyscallId};
use audit::rule::{Action, List, Rule, Severity, parse_file, print};
use bstr::ByteSlice as _;
use support::event::{self, Event};
use support::wait::wait_within;

use crate::daemon::{Daemon, replace};
use crate::lists::LastEvent;
use crate::reload::held;
use crate::suite::{Rules, Session, Skipped};
use fixtures::MachineHost;
use workload::Workload;

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "rulesets",
    engine: "fentry",
    prepare: fixtures::prepare,
    rules: Rules::Text(LastEvent::RULE),
    tests: &[
        ("own_rules_match", |daemon| {
            let cannot = all_rules_match(daemon, &fixtures::own()?)?;
            ensure!(cannot == OWN_UNTRIGGERED, "{cannot} rules cannot fire");
            Ok(())
        }),
        ("public_rules_match", |daemon| {
            let files = fixtures::public()?;
            if files.is_empty() {
                return Err(Skipped("no public rule sets in ../shared/rulesets").into());
            }
            all_rules_match(daemon, &files).map(drop)
        }),
    ],
    stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Rules for all syscalls, with tracepoints.
pub(crate) const SESSION_ALL_CALLS: Session = Session {
    name: "rulesets_all_calls",
    engine: "tracepoint",
    tests: &[("all_syscall_rules_match", |daemon| {
        let mut files = fixtures::own()?;
        files.extend(fixtures::public()?);
        all_rules_match(daemon, &files).map(drop)
    })],
    stop: Daemon::stop,
    ..SESSION
};

/// Number of the repository's rules that cannot match with the fentry engine: those at the end of the file.
const OWN_UNTRIGGERED: usize = 4;

/// Rules about so many syscalls are triggered with tracepoints too.
const MANY_CALLS: usize = 251;

const LONGEST_LAG: Duration = Duration::from_secs(60);

/// Detaching takes more than 100 ms per function.
const LONGEST_DETACHING: Duration = Duration::from_secs(110);

/// Maximum number of links of one rule.
const FEW_LINKS: usize = 20;

/// The results of a file's rules.
#[derive(Debug, Default)]
struct FileReport {
    fired: usize,
    /// Rules that cannot match here, with the reason.
    cannot: BTreeMap<u32, String>,
    /// Rules that should have matched, with their events.
    silent: BTreeMap<u32, String>,
}

/// A rule and the programs that trigger it.
struct RuleWorkloads {
    line: u32,
    workloads: Vec<Workload>,
}

/// Detaches the hooks of the last file first, which takes longer than the deadline of an exit.
fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    replace(daemon, LastEvent::RULE)?;
    wait_within(
        LONGEST_DETACHING,
        "the hooks of the last file to be detached",
        || Ok((held(daemon, &["link_id"])? <= FEW_LINKS).then_some(())),
    )?;
    daemon.stop()
}

/// Triggers the rules of all files; returns how many cannot match.
fn all_rules_match(daemon: &Daemon, files: &[PathBuf]) -> anyhow::Result<usize> {
    let (mut fired, mut cannot, mut silent) = (0, 0, 0);
    for file in files {
        let name = file.display();
        let text = fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let report = try_file(daemon, &text).with_context(|| format!("{name}"))?;
        let tried = report.fired + report.silent.len();
        if tried == 0 && !daemon.sees_inside() {
            continue;
        }
        println!(
            "vm: note {name}: {} rules fire, {} cannot, {} do not",
            report.fired,
            report.cannot.len(),
            report.silent.len()
        );
        for (kind, rules) in [("cannot", &report.cannot), ("DOES NOT", &report.silent)] {
            for (number, reason) in rules {
                let index = usize::try_from(*number)?.saturating_sub(1);
                let line = text.lines().nth(index).unwrap_or_default();
                println!("vm: note   {kind} {number}: {}: {reason}", line.as_bstr());
            }
        }
        fired += report.fired;
        cannot += report.cannot.len();
        silent += report.silent.len();
    }
    println!("vm: note {fired} rules fire, {cannot} cannot, {silent} do not");
    ensure!(silent == 0, "{silent} rules do not fire");
    ensure!(fired > 0, "no rule fires");
    Ok(cannot)
}

/// Loads the rules of a file and triggers each.
fn try_file(daemon: &Daemon, text: &[u8]) -> anyhow::Result<FileReport> {
    let mut report = FileReport::default();
    let mut triggers = Vec::new();
    let mut loaded = format!("{}\n", LastEvent::RULE).into_bytes();
    for RuleEntry { mut rule, line, .. } in read(text, &mut report) {
        let planned = match (calls_of(&rule, line), daemon.sees_inside()) {
            (Err(reason), _) => Err(reason),
            (Ok(..MANY_CALLS), false) => continue,
            (Ok(_), _) => Ok(()),
        };
        if let Err(reason) = planned {
            report.cannot.insert(line, reason);
            continue;
        }
        let workloads = workload::workloads(&rule);
        // A `never` rule makes no event, and may not have a key in some lists.
        if rule.action == Action::Always {
            rule.keys = vec![key(line).into()];
        }
        loaded.extend_from_slice(&print(&rule, Arch::X86_64, Dialect::V4));
        loaded.push(b'\n');
        match workloads {
            Ok(workloads) => triggers.push(RuleWorkloads { line, workloads }),
            Err(reason) => drop(report.cannot.insert(line, reason)),
        }
    }
    if triggers.is_empty() {
        return Ok(report);
    }
    let rules = loaded.as_bstr().to_str().context("a rule is not UTF-8")?;
    replace(daemon, rules)?;
    // A machine without output is stopped.
    println!("vm: note {} rules are loaded", triggers.len());
    let before = fs::metadata(daemon.log()).map_or(0, |log| log.len());
    let mut ran = Vec::new();
    for trigger in &triggers {
        let pids: anyhow::Result<Vec<u32>> = trigger.workloads.iter().map(run).collect();
        ran.push((trigger, pids?));
    }
    LastEvent::run()?;
    let symbols = functions()?;
    let events = events_since(daemon, usize::try_from(before)?)?;
    for (RuleWorkloads { line, workloads }, pids) in ran {
        let of = |pid: u32| {
            let pid = pid.to_string();
            let is_own = move |event: &&Event| event.field("SYSCALL", "pid") == pid;
            events.iter().filter(is_own)
        };
        let own: Vec<&Event> = pids.iter().flat_map(|&pid| of(pid)).collect();
        if own.iter().any(|event| by_line(event) == Some(*line)) {
            report.fired += 1;
            continue;
        }
        let calls = workloads.iter().zip(&pids).flat_map(|(workload, &pid)| {
            let calls = workload.calls.iter();
            calls.map(move |&call| taken_by(of(pid), call, *line))
        });
        let taken: Option<BTreeSet<u32>> = calls.collect();
        if let Some(lines) = taken {
            let lines: Vec<String> = lines.iter().map(u32::to_string).collect();
            let lines = lines.join(", ");
            let reason = format!("earlier rules match all of its syscalls: {lines}");
            report.cannot.insert(*line, reason);
        } else if !workloads
            .iter()
            .any(|workload| has_some(&symbols, workload))
        {
            let reason = "this kernel has none of its syscalls".to_owned();
            report.cannot.insert(*line, reason);
        } else {
            let seen: Vec<String> = own.iter().map(|event| event.summary()).collect();
            let reason = format!("its programs caused [{}]", seen.join("; "));
            report.silent.insert(*line, reason);
        }
    }
    Ok(report)
}

/// The rules of a file in order; rejected lines are added to the report.
fn read(text: &[u8], report: &mut FileReport) -> Vec<RuleEntry> {
    let (lines, diagnostics) = parse_file(text, &MachineHost);
    let mut list = RuleList::default();
    let refused = list.load(0, lines);
    let errors = diagnostics
        .into_iter()
        .filter(|found| found.severity == Severity::Error);
    for found in errors.chain(refused) {
        let reason = format!("rejected, as by auditctl: {}", found.message);
        report.cannot.insert(found.line, reason);
    }
    list.into_rules()
}

/// Number of syscalls of a rule.
///
/// # Errors
/// Why no engine supports it.
fn calls_of(rule: &Rule, line: u32) -> Result<usize, String> {
    let listed = RuleEntry {
        rule: rule.clone(),
        source: 0,
        line,
    };
    let plan = Plan::compile([listed], &[Arch::X86_64, Arch::I386]);
    match plan.unsupported.into_iter().next() {
        Some(unsupported) => Err(unsupported.reason),
        None if rule.list == List::User => {
            Err("the user list applies to user messages only".into())
        }
        None if rule.list == List::Exclude => Err("the exclude list only removes records".into()),
        None => Ok(plan.syscalls.len()),
    }
}

fn key(line: u32) -> String {
    format!("line-{line}")
}

/// The line of the rule that matched an event.
fn by_line(event: &Event) -> Option<u32> {
    let key = event.field("SYSCALL", "key");
    key.strip_prefix("line-")?.parse().ok()
}

/// Runs a program; returns its process id. Its exit status is ignored: it may have executed another program.
fn run(workload: &Workload) -> anyhow::Result<u32> {
    let path = workload.write().context("cannot write a program")?;
    let mut child = Command::new(&path)
        .current_dir(fixtures::PLACE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    child.wait().context("cannot wait for a workload")?;
    Ok(child.id())
}

/// Events after an offset of the log, once the last event is in it.
fn events_since(daemon: &Daemon, start: usize) -> anyhow::Result<Vec<Event>> {
    let new = wait_within(LONGEST_LAG, "the last event in the log", || {
        let log = fs::read(daemon.log()).context("cannot read the log")?;
        let new = log.get(start..).unwrap_or_default();
        let whole = new.rfind_byte(b'\n').map_or(0, |end| end + 1);
        let new = new.get(..whole).unwrap_or_default();
        Ok(new.contains_str(LastEvent::KEY).then(|| new.to_vec()))
    })?;
    event::parse(&new)
}

/// Syscall functions of this kernel.
fn functions() -> anyhow::Result<BTreeSet<String>> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("cannot read the symbols")?;
    let names = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    Ok(names
        .filter(|name| name.contains("_sys_"))
        .map(str::to_owned)
        .collect())
}

/// Whether the kernel has a syscall of a workload.
fn has_some(functions: &BTreeSet<String>, workload: &Workload) -> bool {
    let mut names = workload.calls.iter().filter_map(|call| call.name());
    names.any(|name| {
        let end = format!("_sys_{name}");
        functions.iter().any(|function| function.ends_with(&end))
    })
}

/// The line of an earlier rule that matched a syscall.
fn taken_by<'a>(own: impl Iterator<Item = &'a Event>, call: SyscallId, line: u32) -> Option<u32> {
    let number = call.syscall.0.to_string();
    own.filter(|event| event.field("SYSCALL", "syscall") == number)
        .find_map(by_line)
        .filter(|&other| other < line)
}
