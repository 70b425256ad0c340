//! Wildcards as regular expressions.
//!
//! The engine compares them in three ways that the specification does not mean: `*` and `?` stop at a line break, which
//! a task can put into its arguments; texts with `startswith` and `endswith` are compared at the other end; and texts
//! without a field are compared with whole values. Numbers without a field, which it compares with no text, are texts.
//!
//! # Source
//! Sigma specification 2.0.0, "Sigma Rules": wildcards, keywords; "Sigma Modifiers".

use rsigma_parser::value::{SpecialChar, StringPart};
use rsigma_parser::{Detection, DetectionItem, FieldSpec, Modifier, SigmaString, SigmaValue};

/// What `-` means with `windash`.
const DASHES: &str = "[-/\u{2013}\u{2014}\u{2015}]";

/// Replaces texts with wildcards, and those beside them, by regular expressions.
pub(super) fn to_regexes(detection: &mut Detection) {
    match detection {
        Detection::AllOf(items) => {
            let mut parts = Vec::new();
            items.retain_mut(|item| {
                if item.field.name.is_none() {
                    item.values.iter_mut().for_each(number_to_text);
                }
                let others = split_off_others(item);
                item_to_regexes(item);
                let Some(others) = others else {
                    return true;
                };
                let either = [item.clone(), others].map(|item| Detection::AllOf(vec![item]));
                parts.push(Detection::AnyOf(either.into()));
                false
            });
            if !parts.is_empty() {
                if !items.is_empty() {
                    parts.push(Detection::AllOf(std::mem::take(items)));
                }
                *detection = Detection::And(parts);
            }
        }
        Detection::AnyOf(parts) | Detection::And(parts) => parts.iter_mut().for_each(to_regexes),
        Detection::Keywords(values) => {
            values.iter_mut().for_each(number_to_text);
            if !values.iter().any(has_wildcard) {
                return;
            }
            let (patterns, plain): (Vec<_>, Vec<_>) =
                std::mem::take(values).into_iter().partition(has_wildcard);
            let contains = [Modifier::Contains];
            let patterns = patterns.iter().filter_map(|value| regex(value, &contains));
            let item = DetectionItem {
                field: FieldSpec::new(None, vec![Modifier::Re]),
                values: patterns.collect(),
            };
            let mut parts = vec![Detection::AllOf(vec![item])];
            if !plain.is_empty() {
                parts.push(Detection::Keywords(plain));
            }
            *detection = Detection::AnyOf(parts);
        }
        Detection::ArrayMatch { .. } | Detection::Conditional { .. } => {}
    }
}

fn number_to_text(value: &mut SigmaValue) {
    if matches!(value, SigmaValue::Integer(_) | SigmaValue::Float(_)) {
        *value = SigmaValue::String(SigmaString::new(&value.to_string()));
    }
}

/// Takes away the values beside texts with wildcards that are no texts or numbers: null, true and false.
fn split_off_others(item: &mut DetectionItem) -> Option<DetectionItem> {
    let is_other = |value: &SigmaValue| matches!(value, SigmaValue::Null | SigmaValue::Bool(_));
    let has_both = item.values.iter().any(is_other) && item.values.iter().any(has_wildcard);
    if !has_both {
        return None;
    }
    let (values, texts) = std::mem::take(&mut item.values)
        .into_iter()
        .partition(is_other);
    item.values = texts;
    Some(DetectionItem {
        field: item.field.clone(),
        values,
    })
}

fn item_to_regexes(item: &mut DetectionItem) {
    let is_about_texts = item.field.modifiers.iter().all(|modifier| {
        matches!(
            modifier,
            Modifier::Contains
                | Modifier::StartsWith
                | Modifier::EndsWith
                | Modifier::All
                | Modifier::Cased
                | Modifier::WindAsh
        )
    });
    if !is_about_texts || !item.values.iter().any(has_wildcard) {
        return;
    }
    let modifiers = &item.field.modifiers;
    let values = item.values.iter().map(|value| regex(value, modifiers));
    if let Some(values) = values.collect() {
        let is_all = |modifier: &Modifier| *modifier == Modifier::All;
        let all = modifiers.iter().copied().filter(is_all);
        item.field.modifiers = all.chain([Modifier::Re]).collect();
        item.values = values;
    }
}

/// Whether a value has a wildcard.
pub(super) fn has_wildcard(value: &SigmaValue) -> bool {
    matches!(value, SigmaValue::String(text) if !text.is_plain())
}

/// A value as a regular expression; `None` if it is no text or number.
fn regex(value: &SigmaValue, modifiers: &[Modifier]) -> Option<SigmaValue> {
    let other;
    let mut parts = match value {
        SigmaValue::String(text) => text.parts.as_slice(),
        SigmaValue::Integer(_) | SigmaValue::Float(_) => {
            other = [StringPart::Plain(value.to_string())];
            &other
        }
        SigmaValue::Bool(_) | SigmaValue::Null => return None,
    };
    const ANY: StringPart = StringPart::Special(SpecialChar::WildcardMulti);
    let has = |modifier| modifiers.contains(&modifier);
    let mut is_open_before = has(Modifier::Contains) || has(Modifier::EndsWith);
    let mut is_open_after = has(Modifier::Contains) || has(Modifier::StartsWith);
    while let [ANY, rest @ ..] = parts {
        (parts, is_open_before) = (rest, true);
    }
    while let [rest @ .., ANY] = parts {
        (parts, is_open_after) = (rest, true);
    }
    let mut pattern = match has(Modifier::Cased) {
        true => "(?s)",
        false => "(?is)",
    }
    .to_owned();
    if !is_open_before {
        pattern.push('^');
    }
    for part in parts {
        match part {
            StringPart::Plain(text) if has(Modifier::WindAsh) => {
                let texts = text.split('-').map(regex::escape);
                pattern.push_str(&texts.collect::<Vec<_>>().join(DASHES));
            }
            StringPart::Plain(text) => pattern.push_str(&regex::escape(text)),
            StringPart::Special(SpecialChar::WildcardMulti) => pattern.push_str(".*"),
            StringPart::Special(SpecialChar::WildcardSingle) => pattern.push('.'),
        }
    }
    if !is_open_after {
        pattern.push('$');
    }
    Some(SigmaValue::String(SigmaString::from_raw(&pattern)))
}
