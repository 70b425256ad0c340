//! What the engine would accept, but not as the author means it, or at too high a price.

use regex::RegexBuilder;
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Detections, Modifier, SelectorPattern, SigmaValue,
};

use super::wildcards::has_wildcard;
use crate::sigma::Mistake;
use crate::sigma::mistake::{line_of, line_of_key};
use crate::sigma::requirement::TYPE;

/// Most levels of a condition: what looks at it calls itself for each.
const MAX_CONDITION_DEPTH: usize = 64;
/// Most bytes that a regular expression takes when it is compiled.
const MAX_REGEX_BYTES: usize = 256 << 10;
/// Bytes of most of them.
const FEWER_REGEX_BYTES: usize = 32 << 10;
/// Most bytes of the compiled patterns of all rules, about.
const MAX_BYTES: usize = 64 << 20;
/// Most regular expressions in a rule.
const MAX_REGEXES: usize = 256;
/// About the bytes of a wildcard, or of a variant of a text, when they are compiled.
const VALUE_BYTES: usize = 2 << 10;
/// About the bytes of a value, without its text, in a copy of a rule.
const COPY_BYTES: usize = 128;
/// Most texts between wildcards: the time for an event grows with their product with its bytes.
const MAX_PARTS: usize = 512;
/// Variants of a dash.
///
/// # Source
/// Sigma specification 2.0.0, "Sigma Modifiers", `windash`.
const DASHES: usize = 5;
/// Checks that the names in the conditions exist, and that every condition can match.
pub(super) fn check_condition(detections: &Detections, document: &str) -> Result<(), Mistake> {
    let conditions = detections.conditions.iter();
    let mut pending: Vec<(&ConditionExpr, usize)> = conditions.map(|part| (part, 0)).collect();
    let line = line_of_key(document, "condition");
    if pending.is_empty() {
        return Err(Mistake::new(
            line,
            "the detection has no condition",
            "add a condition",
        ));
    }
    if detections.timeframe.is_some() {
        return Err(Mistake::new(
            line_of_key(document, "timeframe"),
            "`timeframe` and aggregations are not supported",
            "write a rule without them",
        ));
    }
    while let Some((condition, depth)) = pending.pop() {
        if depth > MAX_CONDITION_DEPTH {
            return Err(Mistake::new(
                line,
                format!("the condition has more than {MAX_CONDITION_DEPTH} levels"),
                "write it with fewer parentheses and `not`",
            ));
        }
        let names = || detections.named.keys();
        match condition {
            ConditionExpr::And(parts) | ConditionExpr::Or(parts) => {
                pending.extend(parts.iter().map(|part| (part, depth + 1)));
            }
            ConditionExpr::Not(part) => pending.push((part, depth + 1)),
            ConditionExpr::Identifier(name) if !detections.named.contains_key(name) => {
                let reason =
                    format!("the condition names `{name}`, which the detection does not have");
                return Err(Mistake::new(line, reason, "correct the name"));
            }
            ConditionExpr::Identifier(_) => {}
            ConditionExpr::Selector { pattern, .. } => {
                if !names().any(|name| pattern.matches_detection_name(name)) {
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

/// The items of detections, and about the bytes of their compiled patterns with those of `bytes` before.
///
/// # Errors
/// The engine would accept them, but not as the author means it, or at too high a price.
pub(super) fn check_detections<'r>(
    detections: &'r Detections,
    document: &str,
    bytes: usize,
) -> Result<(Vec<&'r DetectionItem>, usize), Mistake> {
    let mut items = Vec::new();
    for (name, detection) in &detections.named {
        if !collect_items(detection, &mut items) {
            return Err(Mistake::new(
                line_of_key(document, name),
                format!("`{name}` matches members of arrays, which audit events do not have"),
                "compare the field itself",
            ));
        }
    }
    let keywords = detections.named.values().map(keyword_bytes);
    let bytes = keywords.fold(bytes, usize::saturating_add);
    let bytes = check_items(&items, document, bytes)?;
    Ok((items, bytes))
}

/// Collects the items of a detection; false if it is about arrays.
fn collect_items<'r>(detection: &'r Detection, items: &mut Vec<&'r DetectionItem>) -> bool {
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

/// Checks what the engine would accept, but not as the author means it, or at too high a price. `bytes` are
/// about those of what is compiled before; returns those with these items.
fn check_items(
    items: &[&DetectionItem],
    document: &str,
    mut bytes: usize,
) -> Result<usize, Mistake> {
    let mut regexes = 0;
    for item in items {
        let has = |modifier| item.field.modifiers.contains(&modifier);
        let line = || line_of_key(document, item.field.name.as_deref().unwrap_or_default());
        if bytes > MAX_BYTES {
            break;
        }
        if !has(Modifier::Re) {
            let is_pattern = item.values.iter().any(has_wildcard);
            let has_variants = has(Modifier::WindAsh) && !is_pattern;
            let of_values = item.values.iter().map(|value| match is_pattern {
                true => pattern_bytes(value),
                false if has_variants => variant_bytes(value),
                false => 0,
            });
            bytes = of_values.fold(bytes, usize::saturating_add);
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
            if bytes > MAX_BYTES {
                break;
            }
            regexes += 1;
            if regexes > MAX_REGEXES {
                return Err(Mistake::new(
                    line,
                    format!("the rule has more than {MAX_REGEXES} regular expressions"),
                    "split the rule",
                ));
            }
            let compile = |most: usize| {
                RegexBuilder::new(&pattern.original)
                    .size_limit(most)
                    .nest_limit(64)
                    .build()
                    .map(|_| most)
            };
            let compiled =
                compile(FEWER_REGEX_BYTES).or_else(|_too_large| compile(MAX_REGEX_BYTES));
            bytes = bytes.saturating_add(compiled.map_err(|error| {
                Mistake::new(
                    line,
                    format!(
                        "the regular expression cannot be used: {}",
                        last_line(&error.to_string())
                    ),
                    "correct or shorten it; lookaround and backreferences are not supported",
                )
            })?);
        }
    }
    match bytes > MAX_BYTES {
        true => Err(Mistake::new(
            line_of_key(document, "detection"),
            "the patterns of this rule and those before are too large",
            "write simpler patterns, with fewer wildcards, or load fewer rules",
        )),
        false => Ok(bytes),
    }
}

/// Checks the bytes of a rule that is kept for each of some record types. `bytes` are about those of what is compiled
/// before; returns those with the copies.
///
/// # Errors
/// The copies are too large.
pub(super) fn check_copies(
    copies: usize,
    detections: &Detections,
    document: &str,
    bytes: usize,
) -> Result<usize, Mistake> {
    let further = copies.saturating_sub(1);
    let values = detections.named.values().map(value_count);
    let of_copy = values.fold(1, usize::saturating_add) * COPY_BYTES + document.len();
    let bytes = bytes.saturating_add(further.saturating_mul(of_copy));
    match bytes > MAX_BYTES {
        true => Err(Mistake::new(
            line_of_key(document, TYPE),
            format!(
                "the rule names {copies} record types and is kept for each: with the rules before it is too large"
            ),
            "name fewer types, write fewer values, or load fewer rules",
        )),
        false => Ok(bytes),
    }
}

/// Number of the values of a detection.
fn value_count(detection: &Detection) -> usize {
    match detection {
        Detection::AllOf(items) => items.iter().map(|item| 1 + item.values.len()).sum(),
        Detection::AnyOf(parts) | Detection::And(parts) => parts.iter().map(value_count).sum(),
        Detection::Keywords(values) => values.len(),
        Detection::ArrayMatch { .. } | Detection::Conditional { .. } => 0,
    }
}

/// About the bytes of the texts of a detection that have no field, when they are compiled.
fn keyword_bytes(detection: &Detection) -> usize {
    match detection {
        Detection::Keywords(values) => {
            let patterns = values.iter().filter(|value| has_wildcard(value));
            patterns.map(pattern_bytes).fold(0, usize::saturating_add)
        }
        Detection::AnyOf(parts) | Detection::And(parts) => {
            let parts = parts.iter().map(keyword_bytes);
            parts.fold(0, usize::saturating_add)
        }
        Detection::AllOf(_) | Detection::ArrayMatch { .. } | Detection::Conditional { .. } => 0,
    }
}

/// About the bytes of a regular expression for a value, and more than all may have if it is too slow.
fn pattern_bytes(value: &SigmaValue) -> usize {
    let parts = match value {
        SigmaValue::String(text) => text.parts.len(),
        _ => 1,
    };
    match parts > MAX_PARTS {
        true => usize::MAX,
        false => parts * VALUE_BYTES,
    }
}

/// About the bytes of all variants of the dashes in a value.
fn variant_bytes(value: &SigmaValue) -> usize {
    let dashes = match value {
        SigmaValue::String(text) => text.original.matches('-').count(),
        _ => 0,
    };
    let dashes = u32::try_from(dashes).unwrap_or(u32::MAX);
    DASHES.saturating_pow(dashes).saturating_mul(VALUE_BYTES)
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
