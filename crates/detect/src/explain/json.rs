//! The explanation as JSON. Scripts depend on the names: members are added, never renamed.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Report;
use super::text::need;
use crate::sigma::Rule;

/// The explanation as one object.
pub(super) fn document(report: &Report<'_>) -> Value {
    let rules: Vec<&Rule> = report.sigma.rules().collect();
    let places = &report.sigma.places;
    let explained = report.explained.iter().zip(&rules).zip(places);
    let explained = explained.map(|((explained, rule), (path, line))| {
        let coverage = explained.coverage.as_ref();
        let needs: BTreeSet<String> = explained.feeds.iter().filter_map(need).collect();
        json!({
            "id": rule.id,
            "title": rule.title,
            "level": rule.level.name(),
            "log_source": rule.source_name(),
            "file": logs::json::text(path.as_os_str().as_encoded_bytes()),
            "line": line,
            "needs": needs,
            "status": coverage.map(|coverage| coverage.status.name()),
            "reasons": coverage.map(|coverage| &coverage.reasons),
            "cost": explained.cost.map(audit::plan::cost::Cost::name),
            "not_fed": explained.unfed,
        })
    });
    let id = |number: &usize| rules.get(*number).map(|rule| rule.id.clone());
    let audit_rules = report.audit_rules.iter().map(|priced| {
        json!({
            "lines": priced.rule.lines,
            "feeds": priced.rule.feeds.iter().filter_map(id).collect::<Vec<_>>(),
            "cost": priced.cost.name(),
            "syscalls": priced.syscalls,
        })
    });
    let (evaluating, known) = report.evaluating;
    let price = report.price.as_ref().map(|price| {
        json!({
            "engine": price.engine,
            "every_syscall_ns": price.every_syscall_ns,
            "paying_syscall_ns": price.paying_syscall_ns,
            "measured_on": price.measured_on,
        })
    });
    json!({
        "compared_with": report.compared,
        "rules": explained.collect::<Vec<_>>(),
        "audit_rules": audit_rules.collect::<Vec<_>>(),
        "evaluating_syscalls": evaluating,
        "known_syscalls": known,
        "price": price,
    })
}
