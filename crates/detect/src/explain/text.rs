//! The explanation as text: Sigma rules that need the same are one entry.

use std::collections::{BTreeMap, BTreeSet};

use audit::plan::cost::Cost;

use super::Report;
use super::coverage::Status;
use super::demand::{Demand, Kind};
use super::feed::Feed;
use crate::output::{Output, table};
use crate::sigma::need::Place;

/// What Sigma rules have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    status: Option<Status>,
    cost: Option<Cost>,
    needs: BTreeSet<String>,
    reasons: BTreeSet<String>,
}

/// Prints the explanation.
///
/// # Errors
/// The output cannot be written.
pub(super) fn print(report: &Report<'_>, out: &mut Output) -> anyhow::Result<()> {
    let mut entries: BTreeMap<Entry, Vec<usize>> = BTreeMap::new();
    for (number, rule) in report.explained.iter().enumerate() {
        let coverage = rule.coverage.as_ref();
        let mut reasons = coverage
            .map(|coverage| coverage.reasons.clone())
            .unwrap_or_default();
        reasons.extend(rule.unfed.iter().cloned());
        let entry = Entry {
            status: coverage.map(|coverage| coverage.status),
            cost: rule.cost,
            needs: rule.feeds.iter().filter_map(need).collect(),
            reasons,
        };
        entries.entry(entry).or_default().push(number);
    }
    for (entry, rules) in &entries {
        let count = rules.len();
        let plural = if count == 1 { "" } else { "s" };
        let status = entry
            .status
            .map_or_else(String::new, |status| format!(": {}", status.name()));
        let cost = entry
            .cost
            .map_or_else(String::new, |cost| format!(", cost {}", cost.name()));
        out.line(format_args!("{count} Sigma rule{plural}{status}{cost}"))?;
        for (title, lines) in [("needs", &entry.needs), ("because", &entry.reasons)] {
            section(title, lines.iter().cloned(), out)?;
        }
        section(
            "rules",
            rules.iter().map(|number| report.name(*number)),
            out,
        )?;
        out.line("")?;
    }
    let mut rows = vec![
        ["cost", "syscalls", "Sigma rules"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for priced in &report.audit_rules {
        rows.push(vec![
            priced.cost.name().to_owned(),
            priced.syscalls.to_string(),
            priced.rule.feeds.len().to_string(),
        ]);
    }
    let lines = table(&rows);
    for (number, line) in lines.iter().enumerate() {
        let rule = number
            .checked_sub(1)
            .and_then(|number| report.audit_rules.get(number));
        let text = rule.map_or("audit rules that feed them", |priced| {
            priced.rule.lines.first().map_or("", |line| line)
        });
        out.line(format_args!("{line}  {text}"))?;
        let more = rule.map_or(&[][..], |priced| {
            priced.rule.lines.get(1..).unwrap_or_default()
        });
        for text in more {
            out.line(format_args!("{:width$}  {text}", "", width = line.len()))?;
        }
    }
    totals(report, out)
}

fn section(
    title: &str,
    lines: impl Iterator<Item = String>,
    out: &mut Output,
) -> anyhow::Result<()> {
    for (number, line) in lines.enumerate() {
        let title = if number == 0 { title } else { "" };
        out.line(format_args!("  {title:8} {line}"))?;
    }
    Ok(())
}

fn totals(report: &Report<'_>, out: &mut Output) -> anyhow::Result<()> {
    let (evaluating, all) = report.evaluating;
    out.line(format_args!(
        "{evaluating} of {all} 64-bit syscalls evaluate these audit rules"
    ))?;
    if let Some(price) = &report.price {
        let engine = &price.engine;
        match price.paying_syscall_ns {
            Some(paying) => out.line(format_args!(
                "overhead, engine {engine}: {} ns for every syscall of the machine, about {paying} ns more for one that evaluates \
                 rules (measured on {}, see docs/bench.md)",
                price.every_syscall_ns, price.measured_on
            ))?,
            None => out.line(format_args!(
                "overhead, engine {engine}: none for the other syscalls (docs/instructions.md has what these execute)"
            ))?,
        }
    }
    let Some(compared) = &report.compared else {
        return Ok(());
    };
    let count = |status| {
        let coverages = report
            .explained
            .iter()
            .filter_map(|rule| rule.coverage.as_ref());
        coverages
            .filter(|coverage| coverage.status == status)
            .count()
    };
    out.line(format_args!(
        "of {} Sigma rules, {compared} give {} all that they need, {} a part, {} nothing; {} need none, {} nothing feeds",
        report.explained.len(),
        count(Status::Given),
        count(Status::Partly),
        count(Status::Missing),
        count(Status::Sent),
        count(Status::Impossible),
    ))
}

/// What a feed is, for people; `None` for what nothing feeds.
pub(super) fn need(feed: &Feed) -> Option<String> {
    match feed {
        Feed::Recorded(demand) => Some(events(demand)),
        Feed::Written { key, .. } => Some(format!("its author's audit rules with the key `{key}`")),
        Feed::Sent { kind, sender } => Some(format!(
            "{kind} records, which come from {sender} without audit rules"
        )),
        Feed::Nothing(_) => None,
    }
}

/// The events of a demand, for people.
pub(super) fn events(demand: &Demand) -> String {
    let place = match &demand.place {
        Place::Path(path) => format!(" {path}"),
        Place::Below(directory) => format!(" {directory} or below"),
        Place::Anywhere => String::new(),
    };
    let names: BTreeSet<String> = demand
        .syscalls
        .iter()
        .map(|syscall| syscall.label())
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let (text, about): (String, fn(&str) -> bool) = match demand.kind {
        Kind::Exec => ("programs that are executed".to_owned(), |test| {
            !test.starts_with("success")
        }),
        Kind::File if place.is_empty() => {
            ("files that are created or written".to_owned(), |_| false)
        }
        Kind::File => (format!("files that are created or written:{place}"), |_| {
            false
        }),
        Kind::Access if place.is_empty() => ("every access to any file".to_owned(), |_| true),
        Kind::Access => (format!("access to{place}"), |_| true),
        Kind::Network
            if names.contains("connect")
                || demand.tests.iter().any(|test| test.to_string() == "a0=0x3") =>
        {
            ("connections to hosts".to_owned(), |_| false)
        }
        Kind::Network => ("connections from hosts".to_owned(), |_| false),
        Kind::Call if place.is_empty() => (format!("calls of {names}"), |_| true),
        Kind::Call => (format!("calls of {names} on{place}"), |_| true),
        Kind::Every => ("every syscall".to_owned(), |_| true),
    };
    let tests = demand
        .tests
        .iter()
        .map(ToString::to_string)
        .filter(|test| about(test));
    let tests: Vec<String> = tests.collect();
    let mut parts = vec![text];
    if !tests.is_empty() {
        parts.push(format!(" with {}", tests.join(" ")));
    }
    parts.extend(
        demand
            .key
            .iter()
            .map(|key| format!(", with the key `{key}`")),
    );
    parts.concat()
}
