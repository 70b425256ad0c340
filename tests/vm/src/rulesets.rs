//! Rule files as administrators load them, on the fentry engine: each rule that can be triggered on such
//! a machine is, and each that cannot is named with the reason.
//!
//! A rule gets its line as its key, so that the log says which rule an event is by: rules of one file
//! share keys. [`scene`] makes the files that rules watch, [`workload`] reads a rule and makes programs
//! that satisfy it, of the calls that [`call`] knows. A rule that does not fire is accepted only where
//! the reason can be proven: the plan says it, rules further up in the file took each of the calls, or the
//! kernel has none of them.
//!
//! Rules about all calls are more than the fentry engine hooks; a session on tracepoints triggers those.

mod call;
mod scene;
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

use crate::daemon::Daemon;
use crate::lists::Last;
use crate::reload::{held, replace};
use crate::suite::{Rules, Session, Skipped};
use scene::Machine;
use workload::Workload;

/// The tests.
pub(crate) const SESSION: Session = Session {
    name: "rulesets",
    engine: "fentry",
    prepare: scene::prepare,
    rules: Rules::Text(Last::RULE),
    tests: &[
        ("own_rules_fire", |daemon| {
            let cannot = all_fire(daemon, &scene::own()?)?;
            ensure!(cannot == OWN_CANNOT, "{cannot} rules cannot fire");
            Ok(())
        }),
        ("public_rules_fire", |daemon| {
            let files = scene::public()?;
            if files.is_empty() {
                return Err(Skipped("no public rule sets in ../shared/rulesets").into());
            }
            all_fire(daemon, &files).map(drop)
        }),
    ],
    stop,
    after: |_log| Ok(()),
    stays: false,
};

/// Rules about all calls, on tracepoints.
pub(crate) const SESSION_ALL_CALLS: Session = Session {
    name: "rulesets_all_calls",
    engine: "tracepoint",
    tests: &[("rules_about_all_calls_fire", |daemon| {
        let mut files = scene::own()?;
        files.extend(scene::public()?);
        all_fire(daemon, &files).map(drop)
    })],
    stop: Daemon::stop,
    ..SESSION
};

/// How many of the rules of this repository cannot fire on the fentry engine: those at the end of the file.
const OWN_CANNOT: usize = 5;

/// As many calls the fentry engine does not hook.
const TOO_MANY_CALLS: usize = 251;

const LONGEST_LAG: Duration = Duration::from_secs(60);

/// The kernel needs more than 100 ms to free each function.
const LONGEST_DETACHING: Duration = Duration::from_secs(110);

/// Links that one rule needs at most.
const FEW_LINKS: usize = 20;

/// What became of the rules of a file.
#[derive(Debug, Default)]
struct Account {
    fired: usize,
    /// Rules that cannot fire here, with the reason.
    cannot: BTreeMap<u32, String>,
    /// Rules that should have fired.
    silent: BTreeMap<u32, String>,
}

/// A rule and the programs that trigger it.
struct Trial {
    line: u32,
    workloads: Vec<Workload>,
}

/// Frees the functions of the last file first: that takes longer than an end may.
fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    replace(daemon, Last::RULE)?;
    wait_within(LONGEST_DETACHING, "the end of all hooks but a few", || {
        Ok((held(daemon, &["link_id"])? <= FEW_LINKS).then_some(()))
    })?;
    daemon.stop()
}

/// Triggers the rules of all files; gives how many cannot fire.
fn all_fire(daemon: &Daemon, files: &[PathBuf]) -> anyhow::Result<usize> {
    let (mut fired, mut cannot, mut silent) = (0, 0, 0);
    for file in files {
        let name = file.display();
        let text = fs::read(file).with_context(|| format!("cannot read {name}"))?;
        let account = try_file(daemon, &text).with_context(|| format!("{name}"))?;
        let tried = account.fired + account.silent.len();
        if tried == 0 && !daemon.sees_inside() {
            continue;
        }
        println!(
            "vm: note {name}: {} rules fire, {} cannot, {} do not",
            account.fired,
            account.cannot.len(),
            account.silent.len()
        );
        for (kind, rules) in [("cannot", &account.cannot), ("DOES NOT", &account.silent)] {
            for (number, reason) in rules {
                let index = usize::try_from(*number)?.saturating_sub(1);
                let line = text.lines().nth(index).unwrap_or_default();
                println!("vm: note   {kind} {number}: {}: {reason}", line.as_bstr());
            }
        }
        fired += account.fired;
        cannot += account.cannot.len();
        silent += account.silent.len();
    }
    println!("vm: note {fired} rules fire, {cannot} cannot, {silent} do not");
    ensure!(silent == 0, "{silent} rules do not fire");
    ensure!(fired > 0, "no rule fires");
    Ok(cannot)
}

/// Loads the rules of a file and triggers each.
fn try_file(daemon: &Daemon, text: &[u8]) -> anyhow::Result<Account> {
    let mut account = Account::default();
    let mut trials = Vec::new();
    let mut loaded = format!("{}\n", Last::RULE).into_bytes();
    for RuleEntry { mut rule, line, .. } in read(text, &mut account) {
        let planned = match (calls_of(&rule, line), daemon.sees_inside()) {
            (Err(reason), _) => Err(reason),
            (Ok(calls @ TOO_MANY_CALLS..), true) => Err(format!(
                "it is about {calls} calls, which are too many to hook: tracepoints take it"
            )),
            (Ok(..TOO_MANY_CALLS), false) => continue,
            (Ok(_), _) => Ok(()),
        };
        if let Err(reason) = planned {
            account.cannot.insert(line, reason);
            continue;
        }
        let workloads = workload::workloads(&rule);
        // One that suppresses makes no event, and not all of them can have a key.
        if rule.action == Action::Always {
            rule.keys = vec![key(line).into()];
        }
        loaded.extend_from_slice(&print(&rule, Arch::X86_64, Dialect::V4));
        loaded.push(b'\n');
        match workloads {
            Ok(workloads) => trials.push(Trial { line, workloads }),
            Err(reason) => drop(account.cannot.insert(line, reason)),
        }
    }
    if trials.is_empty() {
        return Ok(account);
    }
    let rules = loaded.as_bstr().to_str().context("a rule is no text")?;
    replace(daemon, rules)?;
    // A machine that is silent for long is given up.
    println!("vm: note {} rules are in force", trials.len());
    let before = fs::metadata(daemon.log()).map_or(0, |log| log.len());
    let mut ran = Vec::new();
    for trial in &trials {
        let pids: anyhow::Result<Vec<u32>> = trial.workloads.iter().map(run).collect();
        ran.push((trial, pids?));
    }
    Last::run()?;
    let symbols = functions()?;
    let events = events_since(daemon, usize::try_from(before)?)?;
    for (Trial { line, workloads }, pids) in ran {
        let of = |pid: u32| {
            let pid = pid.to_string();
            let is_own = move |event: &&Event| event.field("SYSCALL", "pid") == pid;
            events.iter().filter(is_own)
        };
        let own: Vec<&Event> = pids.iter().flat_map(|&pid| of(pid)).collect();
        if own.iter().any(|event| by_line(event) == Some(*line)) {
            account.fired += 1;
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
            let reason =
                format!("each call that it asks for is taken by a rule before it: {lines}");
            account.cannot.insert(*line, reason);
        } else if !workloads
            .iter()
            .any(|workload| has_some(&symbols, workload))
        {
            let reason = "this kernel has none of its calls".to_owned();
            account.cannot.insert(*line, reason);
        } else {
            let seen: Vec<String> = own.iter().map(|event| event.summary()).collect();
            let reason = format!("its programs made [{}]", seen.join("; "));
            account.silent.insert(*line, reason);
        }
    }
    Ok(account)
}

/// The rules of a file in their order; lines that are none, for a reason, go to the account.
fn read(text: &[u8], account: &mut Account) -> Vec<RuleEntry> {
    let (lines, diagnostics) = parse_file(text, &Machine);
    let mut list = RuleList::default();
    let refused = list.load(0, lines);
    let errors = diagnostics
        .into_iter()
        .filter(|found| found.severity == Severity::Error);
    for found in errors.chain(refused) {
        let reason = format!("refused, as by auditctl: {}", found.message);
        account.cannot.insert(found.line, reason);
    }
    list.into_rules()
}

/// How many calls a rule is about.
///
/// # Errors
/// Why no engine takes it.
fn calls_of(rule: &Rule, line: u32) -> Result<usize, String> {
    let listed = RuleEntry {
        rule: rule.clone(),
        source: 0,
        line,
    };
    let plan = Plan::compile([listed], &[Arch::X86_64, Arch::I386]);
    match plan.unsupported.into_iter().next() {
        Some(left_out) => Err(left_out.reason),
        None if rule.list == List::User => Err("it is asked about messages of programs".into()),
        None if rule.list == List::Exclude => Err("it strikes records and makes none".into()),
        None => Ok(plan.syscalls.len()),
    }
}

fn key(line: u32) -> String {
    format!("line-{line}")
}

/// The line of the rule that an event is by.
fn by_line(event: &Event) -> Option<u32> {
    let key = event.field("SYSCALL", "key");
    key.strip_prefix("line-")?.parse().ok()
}

/// Runs a program; gives its process id. How it ends does not count: it may have become another one.
fn run(workload: &Workload) -> anyhow::Result<u32> {
    let path = workload.write().context("cannot write a program")?;
    let mut child = Command::new(&path)
        .current_dir(scene::PLACE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    child.wait().context("cannot wait for a workload")?;
    Ok(child.id())
}

/// What the log holds behind a place, when the last event is in it.
fn events_since(daemon: &Daemon, start: usize) -> anyhow::Result<Vec<Event>> {
    let new = wait_within(LONGEST_LAG, "the last event in the log", || {
        let log = fs::read(daemon.log()).context("cannot read the log")?;
        let new = log.get(start..).unwrap_or_default();
        let whole = new.rfind_byte(b'\n').map_or(0, |end| end + 1);
        let new = new.get(..whole).unwrap_or_default();
        Ok(new.contains_str(Last::KEY).then(|| new.to_vec()))
    })?;
    event::parse(&new)
}

/// Names of this kernel's functions for syscalls.
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

/// The line of a rule further up that took a call.
fn taken_by<'a>(own: impl Iterator<Item = &'a Event>, call: SyscallId, line: u32) -> Option<u32> {
    let number = call.syscall.0.to_string();
    own.filter(|event| event.field("SYSCALL", "syscall") == number)
        .find_map(by_line)
        .filter(|&other| other < line)
}
