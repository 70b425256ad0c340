//! Texts of which an event has one if a rule matches it, so that most events meet few rules.

use std::cmp::Reverse;

use rsigma_parser::value::StringPart;
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Detections, Modifier, Quantifier, SigmaValue,
};

use super::requirement::{TYPE, selects, types_of};

/// Texts in lower case, one of which is in a value of every event that a rule matches; case is ignored in ASCII only.
/// `None` if nothing is known: also for texts that are not ASCII, because case folding may lead out of it. With `kind`,
/// events are records of this type, in upper case, and no texts are those of a rule that cannot match them.
pub(super) fn required(detections: &Detections, kind: Option<&str>) -> Option<Vec<String>> {
    let rule = Rule { detections, kind };
    let conditions = detections.conditions.iter();
    any(conditions.map(|condition| rule.of_condition(condition)))
}

/// A rule, and the type of the records that it is compared with.
#[derive(Clone, Copy)]
struct Rule<'r> {
    detections: &'r Detections,
    kind: Option<&'r str>,
}

/// One of several must hold.
fn any(mut sets: impl Iterator<Item = Option<Vec<String>>>) -> Option<Vec<String>> {
    sets.try_fold(Vec::new(), |mut all, set| {
        all.extend(set?);
        Some(all)
    })
}

/// All of several must hold: the one that fewest events have, and none before all.
fn all(sets: impl Iterator<Item = Option<Vec<String>>>) -> Option<Vec<String>> {
    let shortest = |set: &Vec<String>| set.iter().map(String::len).min().unwrap_or(usize::MAX);
    let known = sets.flatten();
    known.max_by_key(|set| (set.is_empty(), shortest(set).min(8), Reverse(set.len())))
}

impl Rule<'_> {
    fn of_condition(self, condition: &ConditionExpr) -> Option<Vec<String>> {
        let of = |condition| self.of_condition(condition);
        match condition {
            ConditionExpr::And(parts) => all(parts.iter().map(of)),
            ConditionExpr::Or(parts) => any(parts.iter().map(of)),
            ConditionExpr::Not(_) => None,
            ConditionExpr::Identifier(name) => self.of_detection(self.detections.named.get(name)?),
            ConditionExpr::Selector {
                quantifier,
                pattern,
            } => {
                let named = self.detections.named.iter();
                let selected = named.filter(|(name, _)| selects(pattern, name));
                let sets = selected.map(|(_, detection)| self.of_detection(detection));
                match quantifier {
                    // A pattern may select more here than in the engine.
                    Quantifier::Any | Quantifier::All | Quantifier::Count(1..) => any(sets),
                    Quantifier::Count(0) => None,
                }
            }
        }
    }

    fn of_detection(self, detection: &Detection) -> Option<Vec<String>> {
        match detection {
            Detection::AllOf(items) => all(items.iter().map(|item| self.of_item(item))),
            Detection::AnyOf(parts) => any(parts.iter().map(|part| self.of_detection(part))),
            Detection::And(parts) => all(parts.iter().map(|part| self.of_detection(part))),
            Detection::Keywords(values) => values.iter().map(literal).collect(),
            Detection::ArrayMatch { .. } | Detection::Conditional { .. } => None,
        }
    }

    fn of_item(self, item: &DetectionItem) -> Option<Vec<String>> {
        if item.field.name.as_deref() == Some(TYPE) {
            // Every record of the type has it, and no other one.
            let types = types_of(item)?;
            return (!types.contains(self.kind?)).then(Vec::new);
        }
        let mut needs_all = false;
        for modifier in &item.field.modifiers {
            match modifier {
                Modifier::Contains
                | Modifier::StartsWith
                | Modifier::EndsWith
                | Modifier::Cased => {}
                Modifier::All => needs_all = true,
                _ => return None,
            }
        }
        let mut literals = item.values.iter().map(literal);
        match needs_all {
            true => all(literals.map(|literal| Some(vec![literal?]))),
            false => literals.try_fold(Vec::new(), |mut all, literal| {
                all.push(literal?);
                Some(all)
            }),
        }
    }
}

/// The longest text without wildcards in a value.
fn literal(value: &SigmaValue) -> Option<String> {
    let SigmaValue::String(text) = value else {
        return None;
    };
    let parts = text.parts.iter().filter_map(|part| match part {
        StringPart::Plain(text) => Some(text),
        StringPart::Special(_) => None,
    });
    let longest = parts.max_by_key(|part| part.len())?;
    let is_usable = text.original.is_ascii() && !longest.is_empty();
    is_usable.then(|| longest.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(detection: &str) -> Option<Vec<String>> {
        let text = format!("title: t\nlogsource:\n    service: auditd\ndetection:\n{detection}");
        let mut parsed = rsigma_parser::parse_sigma_yaml(&text).unwrap();
        assert_eq!(parsed.errors, [""; 0]);
        let mut found = required(&parsed.rules.remove(0).detection, Some("EXECVE"))?;
        found.sort_unstable();
        Some(found)
    }

    #[test]
    fn literals_are_those_without_which_the_condition_fails() {
        let list = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        let a = "    a:\n        type: EXECVE\n        x: [Cat, '*/nc*xy']\n    b:\n        y|re: a+\n    c:\n        z|contains|all: [q, longer]\n";
        let of = |condition: &str| literals(&format!("{a}    condition: {condition}\n"));
        assert_eq!(of("a"), list(&["/nc", "cat"]));
        assert_eq!(of("b"), None);
        assert_eq!(of("c"), list(&["longer"]));
        assert_eq!(of("a and b"), list(&["/nc", "cat"]));
        assert_eq!(of("a and c"), list(&["longer"]));
        assert_eq!(of("a or c"), list(&["/nc", "cat", "longer"]));
        assert_eq!(of("a or b"), None);
        assert_eq!(of("not a"), None);
        assert_eq!(of("c and not a"), list(&["longer"]));
        assert_eq!(of("1 of them"), None);
        assert_eq!(of("all of a*"), list(&["/nc", "cat"]));
        for selection in [
            "x: 5",
            "x: ''",
            "x: '*'",
            "x: '\u{fc}bc'",
            "x|base64: abc",
            "x|windash: -a",
            "type: EXECVE",
        ] {
            let detection = format!("    a:\n        {selection}\n    condition: a\n");
            assert_eq!(literals(&detection), None, "{selection}");
        }
        let types = "    a:\n        type: EXECVE\n        x: cat\n    b:\n        type: [TTY, PATH]\n    condition: ";
        assert_eq!(literals(&format!("{types}a or b\n")), list(&["cat"]));
        assert_eq!(literals(&format!("{types}1 of them\n")), list(&["cat"]));
        assert_eq!(literals(&format!("{types}a and b\n")), list(&[]));
        assert_eq!(literals(&format!("{types}a and not b\n")), list(&["cat"]));
        let keywords = "    a:\n        - shutdown\n        - 'h*lt now'\n    condition: a\n";
        assert_eq!(literals(keywords), list(&["lt now", "shutdown"]));
    }
}
