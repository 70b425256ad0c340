//! Which record types a rule needs, so that a record meets only the rules that can match it.

use std::collections::BTreeSet;

use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Detections, Modifier, Quantifier, SigmaValue,
};

/// Field of the record type.
pub(crate) const TYPE: &str = "type";

/// Record types without which a rule cannot match, in upper case; `None` if any type can.
pub(super) fn record_types(detections: &Detections) -> Option<BTreeSet<String>> {
    let conditions = detections.conditions.iter();
    any(conditions.map(|condition| of_condition(condition, detections)))
}

/// One of several must hold.
fn any(mut sets: impl Iterator<Item = Option<BTreeSet<String>>>) -> Option<BTreeSet<String>> {
    sets.try_fold(BTreeSet::new(), |mut all, set| {
        all.extend(set?);
        Some(all)
    })
}

/// All of several must hold.
fn all(sets: impl Iterator<Item = Option<BTreeSet<String>>>) -> Option<BTreeSet<String>> {
    let known = sets.flatten();
    known.reduce(|left, right| left.intersection(&right).cloned().collect())
}

fn of_condition(condition: &ConditionExpr, detections: &Detections) -> Option<BTreeSet<String>> {
    let of = |condition| of_condition(condition, detections);
    match condition {
        ConditionExpr::And(parts) => all(parts.iter().map(of)),
        ConditionExpr::Or(parts) => any(parts.iter().map(of)),
        ConditionExpr::Not(_) => None,
        ConditionExpr::Identifier(name) => of_detection(detections.named.get(name)?),
        ConditionExpr::Selector {
            quantifier,
            pattern,
        } => {
            let named = detections.named.iter();
            let selected = named.filter(|(name, _)| pattern.matches_detection_name(name));
            let sets = selected.map(|(_, detection)| of_detection(detection));
            match quantifier {
                Quantifier::All => all(sets),
                Quantifier::Any | Quantifier::Count(1..) => any(sets),
                Quantifier::Count(0) => None,
            }
        }
    }
}

fn of_detection(detection: &Detection) -> Option<BTreeSet<String>> {
    match detection {
        Detection::AllOf(items) => all(items.iter().map(types_of)),
        Detection::AnyOf(parts) => any(parts.iter().map(of_detection)),
        Detection::And(parts) => all(parts.iter().map(of_detection)),
        Detection::Keywords(_) | Detection::ArrayMatch { .. } | Detection::Conditional { .. } => {
            None
        }
    }
}

/// Types that an item names, in upper case; `None` if it is about something else.
pub(super) fn types_of(item: &DetectionItem) -> Option<BTreeSet<String>> {
    let is_plain = item.field.name.as_deref() == Some(TYPE)
        && item
            .field
            .modifiers
            .iter()
            .all(|modifier| matches!(modifier, Modifier::Cased));
    if !is_plain {
        return None;
    }
    let plain = |value: &SigmaValue| match value {
        SigmaValue::String(text) => Some(text.as_plain()?.to_ascii_uppercase()),
        _ => None,
    };
    item.values.iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(detection: &str) -> Option<Vec<String>> {
        let text = format!("title: t\nlogsource:\n    service: auditd\ndetection:\n{detection}");
        let mut parsed = rsigma_parser::parse_sigma_yaml(&text).unwrap();
        assert_eq!(parsed.errors, [""; 0]);
        let rule = parsed.rules.remove(0);
        record_types(&rule.detection).map(|types| types.into_iter().collect())
    }

    #[test]
    fn types_are_those_without_which_the_condition_fails() {
        let a = "    a:\n        type: SYSCALL\n        x: 1\n    b:\n        type: [PATH, execve]\n    c:\n        x: 1\n";
        let of = |condition: &str| types(&format!("{a}    condition: {condition}\n"));
        let list = |types: &[&str]| Some(types.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(of("a"), list(&["SYSCALL"]));
        assert_eq!(of("a and c"), list(&["SYSCALL"]));
        assert_eq!(of("a or b"), list(&["EXECVE", "PATH", "SYSCALL"]));
        assert_eq!(of("a and not b"), list(&["SYSCALL"]));
        assert_eq!(of("a or c"), None);
        assert_eq!(of("not a"), None);
        assert_eq!(of("1 of them"), None);
        assert_eq!(of("all of them"), list(&[]));
        assert_eq!(of("1 of a*"), list(&["SYSCALL"]));
        assert_eq!(
            types("    a:\n        type|contains: SYS\n    condition: a\n"),
            None
        );
        assert_eq!(
            types("    a:\n        type: SYS*\n    condition: a\n"),
            None
        );
    }
}
