//! The explanation as JSON. Scripts depend on the names: members are added, never renamed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use audit::ids::{Arch, Syscall};
use audit::plan::{PlannedRule, SyscallId};
use audit::rule::Action;
use bstr::ByteSlice as _;
use engine::{EngineKind, Hook, RuleCost, RuleNote};
use serde::Serialize;

use super::super::this_machine::{RefusedEngine, ThisMachineEngine};
use super::Explained;
use super::text::operations;

#[derive(Serialize)]
struct Document {
    engine: &'static str,
    /// The engine that the daemon would take; `null` if it is not known, or none.
    machine_engine: Option<&'static str>,
    /// Engines that the daemon would not take.
    refused_engines: Vec<RefusedEngineJson>,
    measured_on: &'static str,
    /// The files that were read.
    files: Vec<String>,
    rules: Vec<Rule>,
    unsupported: Vec<Unsupported>,
    findings: Vec<Finding>,
    lines_with_errors: usize,
    hooks: Vec<String>,
    raw_tracepoint: bool,
    every_syscall_ns: u32,
    paying_syscall_ns: Option<u32>,
    paying: Vec<Paying>,
    /// Syscalls whose equivalent `io_uring` operations this engine does not see.
    missed: Vec<&'static str>,
    common: BTreeMap<&'static str, bool>,
    /// Functions that the rules need and this kernel lacks, and what records lack without them.
    missing_hooks: BTreeMap<&'static str, String>,
    /// Whether records of tasks with a seccomp filter or a tracer have `executed=?`.
    unproven: bool,
}

#[derive(Serialize)]
struct RefusedEngineJson {
    engine: &'static str,
    reason: String,
}

impl From<&RefusedEngine> for RefusedEngineJson {
    fn from(refused: &RefusedEngine) -> Self {
        Self {
            engine: refused.engine.name(),
            reason: refused.reason.clone(),
        }
    }
}

#[derive(Serialize)]
struct Rule {
    file: String,
    line: u32,
    action: &'static str,
    keys: Vec<String>,
    cost: &'static str,
    syscalls: BTreeMap<&'static str, Vec<String>>,
    /// Operations of `io_uring`.
    operations: Vec<&'static str>,
    hooks: Vec<String>,
    notes: Vec<RuleNoteJson>,
}

#[derive(Serialize)]
struct RuleNoteJson {
    code: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    syscalls: Vec<&'static str>,
}

#[derive(Serialize)]
struct Unsupported {
    file: String,
    line: u32,
    loses_records: bool,
    reason: String,
}

#[derive(Serialize)]
struct Finding {
    file: String,
    line: u32,
    code: &'static str,
    message: String,
    advice: String,
}

#[derive(Serialize)]
struct Paying {
    abi: &'static str,
    paying: usize,
    known: usize,
}

/// Renders the explanation as one JSON object and a newline.
///
/// # Errors
/// When encoding fails.
pub(super) fn render(explained: &Explained) -> anyhow::Result<String> {
    let Explained {
        plan, explanation, ..
    } = explained;
    let unsupported = plan.unsupported.iter().map(|rule| Unsupported {
        file: explained.file(rule.source),
        line: rule.line,
        loses_records: rule.loses_records,
        reason: rule.reason.clone(),
    });
    let findings = explained.findings.iter().map(|(source, finding)| Finding {
        file: explained.file(*source),
        line: finding.line,
        code: finding.code,
        message: finding.message.clone(),
        advice: finding.advice.clone(),
    });
    let paying = explanation.paying.iter().map(|paying| Paying {
        abi: abi(paying.arch),
        paying: paying.paying,
        known: paying.known,
    });
    let rules = plan.rules.iter().zip(&explanation.rules);
    let this_machine = explained.this_machine.as_ref();
    let document = Document {
        engine: explanation.engine.name(),
        machine_engine: this_machine
            .and_then(ThisMachineEngine::engine)
            .map(EngineKind::name),
        refused_engines: this_machine
            .map_or(&[][..], ThisMachineEngine::refused)
            .iter()
            .map(RefusedEngineJson::from)
            .collect(),
        measured_on: "Linux 6.18",
        files: (0..explained.files.len())
            .map(|source| explained.file(source))
            .collect(),
        rules: rules
            .map(|(planned, cost)| rule(explained, planned, cost))
            .collect(),
        unsupported: unsupported.collect(),
        findings: findings.collect(),
        lines_with_errors: explained.errors,
        hooks: labels(explained, &explanation.hooks),
        raw_tracepoint: explanation.price.raw,
        every_syscall_ns: explanation.price.every_syscall_ns,
        paying_syscall_ns: explanation.price.paying_syscall_ns,
        paying: paying.collect(),
        missed: explanation.missed.clone(),
        common: explanation.common.iter().copied().collect(),
        missing_hooks: explanation
            .missing
            .iter()
            .map(|hook| (hook.function(), hook.lacks()))
            .collect(),
        unproven: explanation.unproven,
    };
    let mut text = serde_json::to_string_pretty(&document).context("cannot encode as JSON")?;
    text.push('\n');
    Ok(text)
}

fn rule(explained: &Explained, planned: &PlannedRule, cost: &RuleCost) -> Rule {
    let names = |arch: Arch, syscalls: &[Syscall]| -> Vec<String> {
        syscalls
            .iter()
            .map(|&syscall| SyscallId { arch, syscall }.label())
            .collect()
    };
    Rule {
        file: explained.file(planned.source),
        line: planned.line,
        action: match planned.rule.action {
            Action::Always => "always",
            Action::Never => "never",
        },
        keys: planned
            .rule
            .keys
            .iter()
            .map(|key| key.to_str_lossy().into_owned())
            .collect(),
        cost: cost.scope.cost.name(),
        syscalls: cost
            .scope
            .syscalls
            .iter()
            .map(|(&arch, syscalls)| (abi(arch), names(arch, syscalls)))
            .collect(),
        operations: operations(cost),
        hooks: labels(explained, &cost.hooks),
        notes: cost.notes.iter().map(note).collect(),
    }
}

fn labels(explained: &Explained, hooks: &BTreeSet<Hook>) -> Vec<String> {
    let kernel = &explained.explanation.kernel;
    hooks.iter().map(|&hook| kernel.label(hook)).collect()
}

fn note(note: &RuleNote) -> RuleNoteJson {
    let syscalls = match note {
        RuleNote::NamesFromTask(names) | RuleNote::UnseenObjects(names) => names.clone(),
        _ => Vec::new(),
    };
    RuleNoteJson {
        code: note.code(),
        text: note.to_string(),
        syscalls,
    }
}

/// Name of an ABI in rules.
pub(super) const fn abi(arch: Arch) -> &'static str {
    if arch.is_64_bit() { "b64" } else { "b32" }
}
