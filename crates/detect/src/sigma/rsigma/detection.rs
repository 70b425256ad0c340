//! What the engine would accept, but not as the author means it, or at too high a price.

use regex::RegexBuilder;
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Modifier, SelectorPattern, SigmaRule, SigmaValue,
};

use crate::sigma::Mistake;
use crate::sigma::mistake::{line_of, line_of_key};
use crate::sigma::requirement::selects;

/// Most bytes that a regular expression takes when it is compiled.
const MAX_REGEX_BYTES: usize = 256 << 10;
/// Most regular expressions in a rule.
const MAX_REGEXES: usize = 256;
/// Checks that the names in the conditions exist, and that every condition can match.
pub(super) fn check_condition(rule: &SigmaRule, document: &str) -> Result<(), Mistake> {
    let mut pending: Vec<&ConditionExpr> = rule.detection.conditions.iter().collect();
    let line = line_of_key(document, "condition");
    if pending.is_empty() {
        return Err(Mistake::new(
            line,
            "the detection has no condition",
            "add a condition",
        ));
    }
    if rule.detection.timeframe.is_some() {
        return Err(Mistake::new(
            line_of_key(document, "timeframe"),
            "`timeframe` and aggregations are not supported",
            "write a rule without them",
        ));
    }
    while let Some(condition) = pending.pop() {
        let names = || rule.detection.named.keys();
        match condition {
            ConditionExpr::And(parts) | ConditionExpr::Or(parts) => pending.extend(parts),
            ConditionExpr::Not(part) => pending.push(part),
            ConditionExpr::Identifier(name) if !rule.detection.named.contains_key(name) => {
                let reason =
                    format!("the condition names `{name}`, which the detection does not have");
                return Err(Mistake::new(line, reason, "correct the name"));
            }
            ConditionExpr::Identifier(_) => {}
            ConditionExpr::Selector { pattern, .. } => {
                if !names().any(|name| selects(pattern, name)) {
                    let pattern = match pattern {
                        SelectorPattern::Them => "them",
                        SelectorPattern::Pattern(pattern) => pattern,
                    };
                    let reason =
                        format!("no name in the detection is like `{pattern}` of the condition");
                    return Err(Mistake::new(line, reason, "correct the pattern"));
                }
            }
        }
    }
    Ok(())
}

/// Makes each of the texts in `'|all'` a keyword: all of them must be in the event, not in one field.
///
/// # Source
/// Sigma specification 2.0.0, "Keyword search".
pub(super) fn split_keywords(detection: &mut Detection) {
    match detection {
        Detection::AllOf(items) => {
            let is_keywords = |item: &DetectionItem| {
                let name = item.field.name.as_deref().unwrap_or_default();
                name.is_empty() && item.field.modifiers == [Modifier::All]
            };
            if !items.iter().any(is_keywords) {
                return;
            }
            let (keywords, others): (Vec<_>, Vec<_>) =
                std::mem::take(items).into_iter().partition(is_keywords);
            let values = keywords.into_iter().flat_map(|item| item.values);
            let mut parts: Vec<Detection> = values
                .map(|value| Detection::Keywords(vec![value]))
                .collect();
            if !others.is_empty() {
                parts.push(Detection::AllOf(others));
            }
            *detection = Detection::And(parts);
        }
        Detection::AnyOf(parts) | Detection::And(parts) => {
            parts.iter_mut().for_each(split_keywords);
        }
        Detection::Keywords(_) | Detection::ArrayMatch { .. } | Detection::Conditional { .. } => {}
    }
}

/// Collects the items of a detection; false if it is about arrays.
pub(super) fn collect_items<'r>(
    detection: &'r Detection,
    items: &mut Vec<&'r DetectionItem>,
) -> bool {
    match detection {
        Detection::AllOf(all) => items.extend(all),
        Detection::AnyOf(parts) | Detection::And(parts) => {
            return parts.iter().all(|part| collect_items(part, items));
        }
        Detection::Keywords(_) => {}
        Detection::ArrayMatch { .. } | Detection::Conditional { .. } => return false,
    }
    true
}

/// Checks what the engine would accept, but not as the author means it, or at too high a price.
pub(super) fn check_items(items: &[&DetectionItem], document: &str) -> Result<(), Mistake> {
    let mut regexes = 0;
    for item in items {
        let has = |modifier| item.field.modifiers.contains(&modifier);
        let line = || line_of_key(document, item.field.name.as_deref().unwrap_or_default());
        if has(Modifier::Expand) {
            return Err(Mistake::new(
                line(),
                "the placeholders of `expand` have no values here",
                "write the values into the rule",
            ));
        }
        if !has(Modifier::Re) {
            continue;
        }
        for value in &item.values {
            let SigmaValue::String(pattern) = value else {
                continue;
            };
            let line = match line_of(document, &pattern.original) {
                1 => line(),
                line => line,
            };
            regexes += 1;
            if regexes > MAX_REGEXES {
                return Err(Mistake::new(
                    line,
                    format!("the rule has more than {MAX_REGEXES} regular expressions"),
                    "split the rule",
                ));
            }
            let compiled = RegexBuilder::new(&pattern.original)
                .size_limit(MAX_REGEX_BYTES)
                .nest_limit(64)
                .build();
            if let Err(error) = compiled {
                return Err(Mistake::new(
                    line,
                    format!(
                        "the regular expression cannot be used: {}",
                        last_line(&error.to_string())
                    ),
                    "correct or shorten it; lookaround and backreferences are not supported",
                ));
            }
        }
    }
    Ok(())
}

/// Fields that items look at; `fieldref` compares with another field.
pub(super) fn items_fields<'r>(items: &[&'r DetectionItem]) -> Vec<&'r str> {
    let mut names: Vec<&str> = Vec::new();
    for item in items {
        names.extend(item.field.name.as_deref());
        if item.field.modifiers.contains(&Modifier::FieldRef) {
            names.extend(item.values.iter().filter_map(|value| match value {
                SigmaValue::String(name) => Some(name.original.as_str()),
                _ => None,
            }));
        }
    }
    names
}

/// The last line of an error of a regular expression, which tells the reason.
fn last_line(text: &str) -> &str {
    let last = text.lines().next_back().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last)
}
