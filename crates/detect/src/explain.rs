//! `tollgate detect explain`: which audit rules Sigma rules need, whether there are, and what they cost.
//!
//! [`crate::sigma::need`] has what events a Sigma rule needs, [`feed`] what makes their records, [`audit_rules`] the
//! audit rules for them, and [`coverage`] whether others record the same.

mod audit_rules;
mod coverage;
mod demand;
mod feed;
mod json;
mod record_types;
mod rule_source;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use audit::ids::NativeArch;
use audit::plan::Plan;
use audit::plan::cost::{Cost, syscalls_of};
use audit::plan::rule_list::RuleList;
use audit::plan::uring::UringCoverage;
use audit::rule::parse_file;
use logs::accounts::Accounts;
use logs::escaped::EscapedJson;

use crate::check::problem_line;
use crate::output::{Output, info};
use crate::placeholder_file::PlaceholderArgs;
use crate::rule_files::RuleFiles;
use crate::{ERROR, FAILED};
use audit_rules::{AuditRule, audit_rules, rule_file};
use coverage::{AuditRules, Coverage, Status};
use feed::Feed;
use rule_source::{Explanation, RuleSource};

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of Sigma rules, or directories with files `*.yml` and `*.yaml`
    #[arg(value_name = "RULES", required = true)]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    placeholders: PlaceholderArgs,
    /// Compare with the audit rules of FILE, or of the files `*.rules` in a directory [default: those of this machine]
    ///
    /// Those of this machine are the rules that the daemon has loaded, if it runs and this user may ask it, or the files
    /// that it would read.
    #[arg(long, value_name = "FILE")]
    rules_file: Option<PathBuf>,
    /// Print only a file of audit rules that feeds the Sigma rules, for `auditctl -R` or `/etc/audit/rules.d`
    #[arg(long, conflicts_with_all = ["json", "rules_file"])]
    audit_rules: bool,
    /// Make also audit rules that record every access to any file, or every syscall
    #[arg(long)]
    excessive: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is known of a Sigma rule.
#[derive(Debug)]
struct Explained {
    feeds: Vec<Feed>,
    /// What the compared audit rules record; `None` if there are none to compare with.
    coverage: Option<Coverage>,
    /// Cost of the audit rules that are made for it; `None` if none is.
    cost: Option<Cost>,
    /// Why it is not fed, or only partly, by the audit rules that are made.
    unfed: BTreeSet<String>,
}

/// An audit rule that is made, and its cost.
#[derive(Debug)]
struct Priced {
    rule: AuditRule,
    cost: Cost,
    /// Number of syscalls that evaluate it.
    syscalls: usize,
}

/// All that is explained.
#[derive(Debug)]
struct Report<'r> {
    sigma: &'r RuleFiles,
    explained: Vec<Explained>,
    audit_rules: Vec<Priced>,
    /// Numbers of the 64-bit syscalls that evaluate an audit rule, and of all.
    evaluating: (usize, usize),
    /// Name of the audit rules that were compared.
    compared: Option<String>,
    price: Option<Explanation>,
}

/// Explains Sigma rules.
///
/// # Errors
/// Audit rules cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let sigma = RuleFiles::load(&args.rules, &args.placeholders.read()?);
    let mut is_complete = true;
    for mistake in sigma.mistakes() {
        info(problem_line(mistake));
        is_complete = false;
    }
    if sigma.places.is_empty() {
        info("no rule can be loaded: `tollgate detect check RULES` tells why");
        return Ok(ExitCode::from(ERROR));
    }
    let source = match &args.rules_file {
        _ if args.audit_rules => None,
        Some(path) => Some(RuleSource::of_path(path)?),
        None => RuleSource::of_this_machine()
            .map_err(|error| info(format_args!("{error:#}")))
            .ok(),
    };
    for error in source.iter().flat_map(|source| &source.errors) {
        info(error);
        is_complete = false;
    }
    let mut report = Report::new(&sigma, source.as_ref(), args.excessive);
    let mut out = Output::new();
    if args.audit_rules {
        out.text(report.rule_file())?;
    } else {
        report.price = Explanation::of_rules(&report.rule_file());
        match args.json {
            true => out.line(EscapedJson(&json::document(&report)))?,
            false => text::print(&report, &mut out)?,
        }
    }
    out.end()?;
    Ok(match is_complete {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FAILED),
    })
}

impl<'r> Report<'r> {
    fn new(sigma: &'r RuleFiles, source: Option<&RuleSource>, with_excessive: bool) -> Self {
        let needs = sigma.engine.needs();
        // A correlation needs what its rules need.
        let feeds: Vec<Vec<Feed>> = (0..sigma.places.len())
            .map(|rule| {
                let needs = sigma.correlations.needs_of(rule, needs).into_iter();
                let mut feeds: Vec<Feed> = Vec::new();
                for feed in needs.flat_map(feed::feeds) {
                    if !feeds.contains(&feed) {
                        feeds.push(feed);
                    }
                }
                feeds
            })
            .collect();
        let numbered = feeds
            .iter()
            .enumerate()
            .flat_map(|(number, feeds)| feeds.iter().map(move |feed| (number, feed)));
        let made = audit_rules(numbered, with_excessive);
        let (audit_rules, plan) = priced(made);
        let native = NativeArch::BUILD.b64();
        let evaluating = plan
            .syscalls
            .keys()
            .filter(|syscall| syscall.arch == native)
            .count();
        let mut explained: Vec<Explained> = Vec::new();
        for (number, feeds) in feeds.into_iter().enumerate() {
            let coverage = source.map(|source| {
                let line = |file, line| source.line(file, line);
                of_feeds(&source.plan, &line, &feeds)
            });
            let own = audit_rules
                .iter()
                .filter(|priced| priced.rule.feeds.contains(&number));
            let made_line = |rule: usize, line: u32| {
                let lines = audit_rules.get(rule).map(|priced| &priced.rule.lines);
                let line = usize::try_from(line)
                    .ok()
                    .and_then(|line| line.checked_sub(1));
                let text = lines.zip(line).and_then(|(lines, line)| lines.get(line));
                format!("`{}`", text.map_or("", |text| text))
            };
            explained.push(Explained {
                coverage,
                cost: own.map(|priced| priced.cost).max(),
                unfed: unfed(&plan, &made_line, &feeds, with_excessive),
                feeds,
            });
        }
        Self {
            sigma,
            explained,
            audit_rules,
            evaluating: (evaluating, syscalls_of(native)),
            compared: source.map(|source| source.name.clone()),
            price: None,
        }
    }

    /// Title of a Sigma rule, with its id if it has one.
    fn name(&self, number: usize) -> String {
        match self.sigma.rule(number) {
            Some(rule) if rule.id == rule.title => rule.title.clone(),
            Some(rule) => format!("{} ({})", rule.title, rule.id),
            None => String::new(),
        }
    }

    /// The audit rules as a file, and what they do not feed.
    fn rule_file(&self) -> String {
        let rules: Vec<AuditRule> = self
            .audit_rules
            .iter()
            .map(|priced| priced.rule.clone())
            .collect();
        let mut text = rule_file(&rules, |number| self.name(number));
        let mut unfed = self
            .explained
            .iter()
            .enumerate()
            .filter(|(_, rule)| !rule.unfed.is_empty());
        if let Some(first) = unfed.next() {
            text += "\n## Not fed by these rules, or only partly:\n";
            for (number, rule) in std::iter::once(first).chain(unfed) {
                for reason in &rule.unfed {
                    let line = format!("# {}: {reason}\n", self.name(number));
                    text += &line.replace('\\', "/");
                }
            }
        }
        text
    }
}

/// What audit rules record of all feeds of a rule.
fn of_feeds(plan: &Plan, line: &dyn Fn(usize, u32) -> String, feeds: &[Feed]) -> Coverage {
    let rules = AuditRules { plan, line };
    let all = feeds.iter().map(|feed| rules.coverage(feed));
    let joined = all.reduce(|mut left, right| {
        left.status = left.status.and(right.status);
        left.reasons.extend(right.reasons);
        left
    });
    joined.unwrap_or(Coverage {
        status: Status::Impossible,
        reasons: BTreeSet::new(),
    })
}

/// Why audit rules that are made, of a plan, do not feed a rule, or only partly.
fn unfed(
    plan: &Plan,
    line: &dyn Fn(usize, u32) -> String,
    feeds: &[Feed],
    with_excessive: bool,
) -> BTreeSet<String> {
    let mut reasons = BTreeSet::new();
    for feed in feeds {
        match feed {
            Feed::Nothing(reason) => drop(reasons.insert(reason.clone())),
            Feed::Recorded(demand) if demand.is_excessive() && !with_excessive => {
                reasons.insert(format!(
                    "it needs records of {}, for which --excessive makes an audit rule",
                    text::events(demand)
                ));
            }
            Feed::Sent { kind, sender } if sender.contains(" if ") => {
                reasons.insert(format!("{kind} records are sent by {sender}"));
            }
            // Rules with the keys of others can come first.
            Feed::Recorded(demand) if demand.key.is_some() => {
                let coverage = AuditRules { plan, line }.coverage(feed);
                if coverage.status != Status::Given {
                    reasons.extend(coverage.reasons);
                }
            }
            Feed::Recorded(_) | Feed::Written { .. } | Feed::Sent { .. } => {}
        }
    }
    reasons
}

/// Costs of audit rules, and their plan.
fn priced(rules: Vec<AuditRule>) -> (Vec<Priced>, Plan) {
    let mut list = RuleList::default();
    for (number, rule) in rules.iter().enumerate() {
        let (lines, _) = parse_file(rule.lines.join("\n").as_bytes(), &Accounts::default());
        let _refused = list.load(number, lines);
    }
    let plan = Plan::compile(list.into_rules(), &NativeArch::BUILD.abis());
    let scopes = plan.rule_scopes(UringCoverage::SyscallRules);
    let of = |(number, rule)| {
        let own = plan
            .rules
            .iter()
            .zip(&scopes)
            .filter(|(planned, _)| planned.source == number);
        let (mut cost, mut syscalls) = (Cost::Nothing, BTreeSet::new());
        for (_, scope) in own {
            cost = cost.max(scope.cost);
            syscalls.extend(scope.syscall_ids());
        }
        Priced {
            rule,
            cost,
            syscalls: syscalls.len(),
        }
    };
    let priced = rules.into_iter().enumerate().map(of).collect();
    (priced, plan)
}

#[cfg(test)]
mod tests;
