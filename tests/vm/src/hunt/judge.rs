//! Compares the records of both auditors about one program.
//!
//! The split: events of a program without threads have one order in each process, and are compared as the differential
//! tests do, field by field. Threads that race leave the order of the events open: the records of such programs are
//! compared as a set of calls, by syscall, arguments, result and key, and tollgate's records must name nothing that the
//! program does not name.

use std::collections::BTreeSet;

use anyhow::Context as _;
use bstr::ByteSlice as _;
use support::compare::{Difference, compare};
use support::event::Event;
use support::permitted::{OBJECT_FIELDS, Permitted, RecordEntry, Setting};

use super::batch::HOST;
use super::program::HuntProgram;
use crate::lists::list_workload::ListWorkload;
use crate::lists::permitted::{self, PermittedCall};
use crate::lists::recorded_call::{self, CallDifference, RecordedCall, Side};

/// The names of this test in `tests/differential/known.toml`: in a machine, and on the host.
const TESTS: [&str; 2] = ["hunt", "hunt_host"];

/// What the comparison found.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) events: usize,
    pub(super) permitted: usize,
    pub(super) findings: Vec<Finding>,
    pub(super) rules: Vec<String>,
}

/// A difference that no entry permits.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// What two differences with the same cause have in common: syscall, record and field.
    pub(super) signature: String,
    /// The difference and the events.
    pub(super) text: Vec<String>,
}

/// A program that has run.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) program: &'a HuntProgram,
    pub(super) workload: &'a ListWorkload,
    pub(super) rules: Vec<String>,
    pub(super) pid: u32,
}

/// Compares the events of a program and its children.
///
/// # Errors
/// If an event has no call.
pub(super) fn judge(
    theirs: &[Event],
    ours: &[Event],
    subject: Subject<'_>,
    engine: &str,
    line: &str,
) -> anyhow::Result<Verdict> {
    let theirs: Vec<Event> = theirs
        .iter()
        .filter(|event| !is_anomaly(event))
        .cloned()
        .collect();
    let theirs = theirs.as_slice();
    let pids = family(theirs, ours, subject.pid);
    let [in_machine, on_host] = TESTS;
    let setting = Setting {
        test: if line == HOST { on_host } else { in_machine },
        line,
        engine,
    };
    let mut judge = Judge {
        records: Permitted::records(setting)?,
        calls: permitted::for_engine(engine)?,
        verdict: Verdict::default(),
        rules: &subject.rules,
        program: subject.program.calls(),
        theirs,
        ours,
        pids: &pids,
    };
    if subject.program.has_threads() {
        judge.as_sets()?;
        judge.names(&subject);
    } else {
        judge.in_order()?;
    }
    let verdict = judge.verdict;
    Ok(Verdict {
        rules: subject.rules,
        ..verdict
    })
}

/// The permitted differences, and what was found so far.
struct Judge<'a> {
    records: Permitted<RecordEntry>,
    calls: Permitted<PermittedCall>,
    verdict: Verdict,
    rules: &'a [String],
    /// Names of the program's calls.
    program: Vec<&'static str>,
    theirs: &'a [Event],
    ours: &'a [Event],
    /// Of the program and its children.
    pids: &'a [u32],
}

impl Judge<'_> {
    /// Differences between events in the same order.
    fn in_order(&mut self) -> anyhow::Result<()> {
        let comparison = compare(self.theirs, self.ours, self.pids);
        self.verdict.events += comparison.events;
        for pair in &comparison.pairs {
            for difference in &pair.differences {
                if self.records.permits_difference(difference)
                    || self.permits_call(difference, &pair.text)?
                {
                    self.verdict.permitted += 1;
                    continue;
                }
                let mut text = vec![difference.to_string()];
                text.extend(pair.text.iter().cloned());
                if difference.field == "event" {
                    text.extend(self.heads("kernel", self.theirs));
                    text.extend(self.heads("tollgate", self.ours));
                }
                self.find(signature(difference), text);
            }
        }
        Ok(())
    }

    /// Differences between the sets of events.
    fn as_sets(&mut self) -> anyhow::Result<()> {
        let sorted = |events: &[Event]| -> anyhow::Result<Vec<RecordedCall>> {
            let mut calls = Vec::new();
            for line in events.iter().filter_map(head) {
                let (pid, call) = RecordedCall::read(line)?;
                if self.pids.contains(&pid) {
                    calls.push(call);
                }
            }
            calls.sort();
            Ok(calls)
        };
        let (theirs, ours) = (sorted(self.theirs)?, sorted(self.ours)?);
        self.verdict.events += theirs.len().max(ours.len());
        for found in recorded_call::differences(&theirs, &ours) {
            if self
                .calls
                .permits(|entry| entry.permits(self.rules, &self.program, &found))
            {
                self.verdict.permitted += 1;
                continue;
            }
            let signature = format!("{} in threads: {:?}", found.call.call, found.side);
            self.find(signature, vec![found.to_string()]);
        }
        Ok(())
    }

    /// Names in tollgate's events that are neither the program's nor below its directory.
    fn names(&mut self, subject: &Subject<'_>) {
        let mut known = subject.program.texts(subject.workload);
        // The program that some end with opens `kept`.
        known.extend(["end", "kept"].map(Vec::from));
        let place = subject.workload.place.as_bytes();
        let pids = self.pids;
        let own = |event: &&Event| {
            let pid = event.field("SYSCALL", "pid").parse();
            pid.is_ok_and(|pid| pids.contains(&pid))
        };
        for event in self.ours.iter().filter(own) {
            for name in event.all("PATH").filter_map(|path| path.text("name")) {
                // The item of a directory has the beginning of a name.
                let is_known = name.starts_with(place)
                    || known.iter().any(|text| text.starts_with(&name))
                    || place.starts_with(&name);
                if !is_known {
                    let text = vec![
                        format!("{name} is no name of the program"),
                        event.to_string(),
                    ];
                    self.find("a name of another program".to_owned(), text);
                }
            }
        }
    }

    /// Whether an entry about events under random rules permits that one auditor has no event, or another key.
    fn permits_call(&mut self, difference: &Difference, text: &[String]) -> anyhow::Result<bool> {
        let side = match (difference.field.as_str(), &difference.kernel) {
            ("event", Some(_)) => Side::Kernel,
            ("event", None) => Side::Tollgate,
            ("key", _) => Side::Key,
            _ => return Ok(false),
        };
        // Each line starts with the auditor's name.
        let records = text
            .iter()
            .filter_map(|line| line.trim_start().split_once(' '));
        let records: Vec<&str> = records.map(|(_, record)| record.trim_start()).collect();
        // The event of an operation also has the call in which it ran.
        let of_kind = |kind| records.iter().rfind(|record| record.starts_with(kind));
        let head = of_kind("type=URINGOP ").or_else(|| of_kind("type=SYSCALL "));
        let (_, call) = RecordedCall::read(head.context("an event without a call")?.as_bytes())?;
        let difference = CallDifference {
            side,
            call,
            key: difference.tollgate.clone().unwrap_or_default(),
        };
        Ok(self
            .calls
            .permits(|entry| entry.permits(self.rules, &self.program, &difference)))
    }

    /// The first records of all events of the processes, and of those that have no record of a call.
    fn heads(&self, auditor: &str, events: &[Event]) -> Vec<String> {
        let is_own =
            |line: &[u8]| RecordedCall::read(line).is_ok_and(|(pid, _)| self.pids.contains(&pid));
        let lines = events.iter().filter_map(|event| match head(event) {
            Some(line) => is_own(line).then_some(line),
            None => Some(event.records.first()?.line.as_slice()),
        });
        lines
            .map(|line| format!("all of {auditor}: {}", line.as_bstr()))
            .collect()
    }

    fn find(&mut self, signature: String, text: Vec<String>) {
        let findings = &mut self.verdict.findings;
        if !findings.iter().any(|known| known.signature == signature) {
            findings.push(Finding { signature, text });
        }
    }
}

fn signature(difference: &Difference) -> String {
    let Difference {
        call,
        record,
        field,
        kernel,
        tollgate,
    } = difference;
    let side = match (kernel, tollgate) {
        (Some(_), None) => "kernel only",
        (None, Some(_)) => "tollgate only",
        _ => "both",
    };
    let field = if OBJECT_FIELDS.contains(&field.as_str()) {
        "object"
    } else {
        field
    };
    format!("{call} {record} {field}: {side}")
}

/// Whether the kernel recorded a call only because it wrote a record that tollgate does not write: about a refused link,
/// or a watch that it removes because a directory moves. All rules have keys.
fn is_anomaly(event: &Event) -> bool {
    let has_no_key = |kind| event.field(kind, "key") == "(null)";
    let kinds = ["ANOM_LINK", "CONFIG_CHANGE"];
    let is_joined = kinds.iter().any(|kind| event.all(kind).next().is_some());
    is_joined && (has_no_key("SYSCALL") || has_no_key("URINGOP"))
}

/// The record of the call.
fn head(event: &Event) -> Option<&[u8]> {
    let is_head = |kind: &str| ["SYSCALL", "URINGOP"].contains(&kind);
    let head = event.records.iter().find(|record| is_head(&record.kind))?;
    Some(&head.line)
}

/// The process and all that it started.
fn family(theirs: &[Event], ours: &[Event], pid: u32) -> Vec<u32> {
    let mut pids = BTreeSet::from([pid]);
    loop {
        let before = pids.len();
        for event in theirs.iter().chain(ours) {
            let number = |name| event.field("SYSCALL", name).parse::<u32>().ok();
            if let (Some(parent), Some(child)) = (number("ppid"), number("pid"))
                && pids.contains(&parent)
            {
                pids.insert(child);
            }
        }
        if pids.len() == before {
            return pids.into_iter().collect();
        }
    }
}
