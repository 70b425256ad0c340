//! Filters: what is known to be harmless, told once for many rules.
//!
//! A filter's condition must hold for an event too, so that one which leaves events out is written `not selection`.
//! The text of the specification is not clear here: its example leaves out what `condition: selection` selects, and
//! its implementations keep only that. A filter whose condition has a selection that is not negated is refused,
//! because one of both readings would make rules silent.
//!
//! # Source
//! Sigma specification 2.1.0, "Sigma Filters"; `SigmaFilter.apply_on_rule` in pySigma 0.11.

use std::collections::{BTreeMap, HashSet};

use rsigma_parser::{
    ConditionExpr, Detection, Detections, LogSource, Quantifier, SelectorPattern, SigmaRule,
};
use serde::Deserialize;

use super::detection::{check_condition, check_detections, split_keywords};
use super::{collection, compiled, parsed};
use crate::sigma::mistake::{line_of, line_of_key};
use crate::sigma::placeholder::Placeholders;
use crate::sigma::{Mistake, one_line};

/// Most filters.
const MAX_FILTERS: usize = 1000;
/// Most values of filters in all rules together.
const MAX_JOINED: usize = 200_000;

/// Filters, and the rules that they have met.
#[derive(Debug, Default)]
pub(super) struct Filters {
    filters: Vec<Filter>,
    /// Ids, names and titles of all rules that were looked at, also of those that cannot be used.
    known: HashSet<String>,
    /// Values of filters in all rules.
    joined: usize,
}

/// A filter.
#[derive(Debug)]
struct Filter {
    /// Rules by id, name or title, with their line in the document; `None` for any rule.
    rules: Option<BTreeMap<String, Named>>,
    log_source: LogSource,
    /// With names that no rule has.
    detections: Detections,
    condition: ConditionExpr,
    /// Number of its values.
    values: usize,
}

/// A rule that a filter names.
#[derive(Debug)]
struct Named {
    line: usize,
    /// Whether the log source of the rule is another one.
    is_other_source: bool,
}

/// The part of a filter that the parser of rules reads too leniently.
#[derive(Deserialize)]
struct Document {
    filter: Section,
}

#[derive(Deserialize)]
struct Section {
    rules: Rules,
}

/// Rules of a filter as they are written.
#[derive(Deserialize)]
#[serde(untagged)]
enum Rules {
    One(String),
    List(Vec<String>),
}

impl Filters {
    /// Adds the filter of a document. `filled_bytes` are those of placeholders that were filled in before, and become
    /// those with its own.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn add(
        &mut self,
        document: &str,
        placeholders: &Placeholders,
        filled_bytes: &mut usize,
    ) -> Result<(), Mistake> {
        let number = self.filters.len();
        if number >= MAX_FILTERS {
            let reason = format!("only the first {MAX_FILTERS} filters are loaded");
            return Err(Mistake::new(1, reason, "name more rules in each filter"));
        }
        let mut collection = collection(document)?;
        let line = line_of_key(document, "filter");
        let (Some(mut found), true) = (collection.filters.pop(), collection.rules.is_empty())
        else {
            return Err(Mistake::new(
                line,
                "expected one filter in the document",
                "write `filter:` with `rules`, `selection` and `condition`",
            ));
        };
        let rules = rules(document, line)?;
        let log_source = found.logsource.take().ok_or_else(|| {
            Mistake::new(
                line,
                "the filter has no log source",
                "write the `logsource` of its rules",
            )
        })?;
        check_source(&log_source, document)?;
        let mut detections = found.detection;
        *filled_bytes = placeholders.fill(&mut detections, document, *filled_bytes)?;
        detections.named.values_mut().for_each(split_keywords);
        check_condition(&detections, document)?;
        let (items, _bytes) = check_detections(&detections, document, 0)?;
        check_compiled(&detections, line)?;
        let values: usize = items.iter().map(|item| item.values.len()).sum();
        let values = values + detections.named.values().map(keyword_count).sum::<usize>();
        let line = line_of_key(document, "condition");
        let [condition] = detections.conditions.as_slice() else {
            return Err(Mistake::new(
                line,
                "the filter has several conditions",
                "join them with `and`, or write a filter for each",
            ));
        };
        if !is_negative(condition, false) {
            return Err(Mistake::new(
                line,
                "a selection in the condition of the filter is not negated: only events that it selects would match",
                "write `not selection` to leave out the events that it selects",
            ));
        }
        let rename = |name: &str| format!("_filter{number}_{name}");
        let names: Vec<String> = sorted(detections.named.keys());
        let condition = with_names(condition, &names, &|_| true, &rename).ok_or_else(|| {
            let reason = "a number of selections is counted in the condition of the filter";
            Mistake::new(line, reason, "write `1 of` or `all of`")
        })?;
        detections.conditions.clear();
        let named = std::mem::take(&mut detections.named).into_iter();
        detections.named = named
            .map(|(name, detection)| (rename(&name), detection))
            .collect();
        self.filters.push(Filter {
            rules,
            log_source,
            detections,
            condition,
            values,
        });
        Ok(())
    }

    /// Notes that there is a rule, also one that cannot be used.
    pub(super) fn note(&mut self, rule: &SigmaRule) {
        for name in names(rule) {
            for filter in &mut self.filters {
                let named = filter.rules.as_mut();
                if let Some(named) = named.and_then(|rules| rules.get_mut(name)) {
                    named.is_other_source |= !fits(&filter.log_source, &rule.logsource);
                }
            }
            self.known.insert(name.clone());
        }
    }

    /// Joins the condition of a rule with those of its filters.
    ///
    /// # Errors
    /// The rule cannot be joined, or has too many filters.
    pub(super) fn join(&mut self, rule: &mut SigmaRule, document: &str) -> Result<(), Mistake> {
        let (mut conditions, mut added) = (Vec::new(), BTreeMap::new());
        for filter in &self.filters {
            let named = filter.rules.as_ref();
            let is_named =
                named.is_none_or(|named| names(rule).any(|name| named.contains_key(name)));
            if is_named && fits(&filter.log_source, &rule.logsource) {
                self.joined = self.joined.saturating_add(filter.values.max(1));
                if self.joined > MAX_JOINED {
                    let reason = format!(
                        "filters add more than {MAX_JOINED} values to this rule and those before"
                    );
                    let line = line_of_key(document, "detection");
                    return Err(Mistake::new(line, reason, "write filters for fewer rules"));
                }
                conditions.push(filter.condition.clone());
                let named = filter.detections.named.iter();
                added.extend(named.map(|(name, detection)| (name.clone(), detection.clone())));
            }
        }
        if conditions.is_empty() {
            return Ok(());
        }
        let detections = &mut rule.detection;
        let names = sorted(detections.named.keys());
        let is_ambiguous = |pattern: &SelectorPattern| {
            let mut added = added.keys();
            added.any(|name| pattern.matches_detection_name(name))
        };
        for condition in &mut detections.conditions {
            let own = with_names(condition, &names, &is_ambiguous, &str::to_owned);
            let own = own.filter(|_| !names.iter().any(|name| added.contains_key(name)));
            let own = own.ok_or_else(|| {
                let reason =
                    "the condition counts selections whose names those of filters may have";
                Mistake::new(
                    line_of_key(document, "condition"),
                    reason,
                    "name them in the condition",
                )
            })?;
            let parts = std::iter::once(own).chain(conditions.iter().cloned());
            *condition = ConditionExpr::And(parts.collect());
        }
        detections.named.extend(added);
        Ok(())
    }

    /// What filters name that cannot be filtered, with the number of the filter.
    pub(super) fn mistakes(&self) -> Vec<(usize, Mistake)> {
        let named = self
            .filters
            .iter()
            .enumerate()
            .flat_map(|(number, filter)| {
                let rules = filter.rules.iter().flatten();
                rules.map(move |(name, named)| (number, name, named))
            });
        let mistakes = named.filter_map(|(number, name, named)| {
            let mistake = match (self.known.contains(name), named.is_other_source) {
                (false, _) => {
                    let reason =
                        format!("the filter names `{name}`, and no rule has this id or name");
                    let advice = "correct the name, or load the rule; for a correlation rule, name the rules to which it refers";
                    Mistake::new(named.line, reason, advice)
                }
                (true, true) => {
                    let reason =
                        format!("the rule `{name}` has another log source than its filter");
                    Mistake::new(named.line, reason, "correct the log source of the filter")
                }
                (true, false) => return None,
            };
            Some((number, mistake))
        });
        mistakes.collect()
    }
}

/// What a filter can call a rule: its id, name or title.
fn names(rule: &SigmaRule) -> impl Iterator<Item = &String> {
    let names = [rule.id.as_ref(), rule.name.as_ref(), Some(&rule.title)];
    names.into_iter().flatten()
}

/// Checks that the engine accepts the detections of a filter, which would refuse each rule of the filter otherwise.
fn check_compiled(detections: &Detections, line: usize) -> Result<(), Mistake> {
    const FRAME: &str = "title: x\nlogsource:\n    category: x\ndetection:\n    s:\n        x: x\n    condition: s\n";
    let mut rule = parsed(FRAME)?;
    rule.detection = detections.clone();
    let refuse = |reason| Mistake::new(line, reason, "correct the selections of the filter");
    compiled(&rule).map(drop).map_err(refuse)
}

/// The rules that the filter in a document names; `None` for any.
fn rules(document: &str, line: usize) -> Result<Option<BTreeMap<String, Named>>, Mistake> {
    let advice = "list the ids or names of rules, or write `rules: any`";
    let read: Result<Document, _> = yaml_serde::from_str(document);
    let read = read
        .map_err(|_error| Mistake::new(line, "the filter has no list `rules` of texts", advice))?;
    let names = match read.filter.rules {
        Rules::One(name) if name.eq_ignore_ascii_case("any") => return Ok(None),
        Rules::One(name) => vec![name],
        Rules::List(names) => names,
    };
    if names.is_empty() {
        return Err(Mistake::new(line, "the filter names no rule", advice));
    }
    let named = names.into_iter().map(|name| {
        let line = line_of(document, &name);
        let named = Named {
            line,
            is_other_source: false,
        };
        (name, named)
    });
    Ok(Some(named.collect()))
}

/// Refuses a filter for rules that audit events do not feed.
fn check_source(log_source: &LogSource, document: &str) -> Result<(), Mistake> {
    let LogSource {
        category,
        product,
        service,
        ..
    } = log_source;
    let is = |value: &Option<String>, known: &[&str]| {
        let known = |value: &String| known.iter().any(|known| value.eq_ignore_ascii_case(known));
        value.as_ref().is_none_or(known)
    };
    let categories = ["process_creation", "file_event", "network_connection"];
    if is(product, &["linux"]) && is(service, &["auditd"]) && is(category, &categories) {
        return Ok(());
    }
    let parts = [product, category, service].into_iter().flatten();
    let name = parts.map(String::as_str).collect::<Vec<_>>().join("/");
    Err(Mistake::foreign(
        line_of_key(document, "logsource"),
        &one_line(&name),
    ))
}

/// Whether the log source of a filter, which [`check_source`] accepts, is that of a rule.
fn fits(filter: &LogSource, rule: &LogSource) -> bool {
    let is = |filter: &Option<String>, rule: Option<&str>| {
        filter
            .as_deref()
            .is_none_or(|filter| rule.is_some_and(|rule| rule.eq_ignore_ascii_case(filter)))
    };
    // Rules without a product are for Linux here, and categories are those of auditd.
    is(&filter.category, rule.category.as_deref())
        && is(&filter.product, rule.product.as_deref().or(Some("linux")))
        && is(&filter.service, rule.service.as_deref().or(Some("auditd")))
}

/// Number of the texts of a detection that have no field.
fn keyword_count(detection: &Detection) -> usize {
    match detection {
        Detection::Keywords(values) => values.len(),
        Detection::AnyOf(parts) | Detection::And(parts) => parts.iter().map(keyword_count).sum(),
        Detection::AllOf(_) | Detection::ArrayMatch { .. } | Detection::Conditional { .. } => 0,
    }
}

/// Whether all selections in a condition are negated.
fn is_negative(condition: &ConditionExpr, is_negated: bool) -> bool {
    match condition {
        ConditionExpr::And(parts) | ConditionExpr::Or(parts) => {
            parts.iter().all(|part| is_negative(part, is_negated))
        }
        ConditionExpr::Not(part) => is_negative(part, !is_negated),
        ConditionExpr::Identifier(_) | ConditionExpr::Selector { .. } => is_negated,
    }
}

/// A condition with other names, in which the patterns that `expand` accepts are replaced by the names that they
/// select; `None` if one of them counts.
fn with_names(
    condition: &ConditionExpr,
    names: &[String],
    expand: &dyn Fn(&SelectorPattern) -> bool,
    rename: &dyn Fn(&str) -> String,
) -> Option<ConditionExpr> {
    let of = |condition: &ConditionExpr| with_names(condition, names, expand, rename);
    let all = |parts: &[ConditionExpr]| parts.iter().map(of).collect::<Option<Vec<_>>>();
    Some(match condition {
        ConditionExpr::And(parts) => ConditionExpr::And(all(parts)?),
        ConditionExpr::Or(parts) => ConditionExpr::Or(all(parts)?),
        ConditionExpr::Not(part) => ConditionExpr::Not(Box::new(of(part)?)),
        ConditionExpr::Identifier(name) => ConditionExpr::Identifier(rename(name)),
        ConditionExpr::Selector {
            quantifier,
            pattern,
        } if expand(pattern) => {
            let selected = names
                .iter()
                .filter(|name| pattern.matches_detection_name(name));
            let selected = selected.map(|name| ConditionExpr::Identifier(rename(name)));
            match quantifier {
                Quantifier::Any | Quantifier::Count(1) => ConditionExpr::Or(selected.collect()),
                Quantifier::All => ConditionExpr::And(selected.collect()),
                Quantifier::Count(_) => return None,
            }
        }
        selector @ ConditionExpr::Selector { .. } => selector.clone(),
    })
}

fn sorted<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    let mut names: Vec<String> = names.cloned().collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
