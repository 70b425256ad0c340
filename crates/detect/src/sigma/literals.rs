//! Texts of which an event has one if a rule matches it, so that most events meet few rules.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;

use rsigma_parser::value::StringPart;
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Detections, Modifier, Quantifier, SigmaString,
    SigmaValue,
};

use super::regex_texts::{self, Flags, Required};
use super::requirement::{TYPE, types_of};

/// A text that a value of an event must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Literal {
    /// Field of the value; `None` for any.
    pub(crate) field: Option<String>,
    /// The text, in lower case. Case is ignored in ASCII only.
    pub(crate) text: String,
    /// Where in the value it is.
    pub(crate) place: Place,
    /// Bytes of the value, at least, if the text is empty: then no text is known.
    pub(crate) least_bytes: usize,
}

/// Where in a value a text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// At the start.
    pub(crate) at_start: bool,
    /// At the end.
    pub(crate) at_end: bool,
}

impl Literal {
    /// How few events have it, roughly.
    fn selectivity(&self) -> usize {
        match self.field.as_deref() {
            Some("success" | "arch" | "exit" | "nametype" | "Initiated") => 0,
            Some("SYSCALL" | "syscall") => 1,
            _ if self.text.is_empty() => (1 + self.least_bytes / 16).min(8),
            _ => {
                let anchors = usize::from(self.place.at_start) + usize::from(self.place.at_end);
                (1 + self.text.len() + 3 * anchors).min(8)
            }
        }
    }
}

/// The texts that a rule requires.
pub(super) struct RuleTexts<'r> {
    detections: &'r Detections,
    /// What regular expressions require, by their flags and text.
    regexes: RefCell<HashMap<(Flags, String), Option<Required>>>,
}

impl<'r> RuleTexts<'r> {
    pub(super) fn new(detections: &'r Detections) -> Self {
        Self {
            detections,
            regexes: RefCell::default(),
        }
    }

    /// Texts one of which is in a value of every event that a rule matches. `None` if nothing is known: also for texts that
    /// are not ASCII, because case folding may lead out of it. With `kind`, events are records of this type, in upper case,
    /// and no texts are those of a rule that cannot match them.
    pub(super) fn required(&self, kind: Option<&str>) -> Option<Vec<Literal>> {
        let rule = Rule { texts: self, kind };
        let conditions = self.detections.conditions.iter();
        any(conditions.map(|condition| rule.of_condition(condition)))
    }

    /// What a regular expression requires. To parse one can take longer than to compile it, and each record type asks.
    fn of_regex(&self, flags: Flags, pattern: &str) -> Option<Required> {
        let mut regexes = self.regexes.borrow_mut();
        let key = (flags, pattern.to_owned());
        let new = || regex_texts::required(pattern, flags);
        regexes.entry(key).or_insert_with(new).clone()
    }
}

/// A rule, and the type of the records that it is compared with.
#[derive(Clone, Copy)]
struct Rule<'r> {
    texts: &'r RuleTexts<'r>,
    kind: Option<&'r str>,
}

/// One of several must hold.
fn any(mut sets: impl Iterator<Item = Option<Vec<Literal>>>) -> Option<Vec<Literal>> {
    sets.try_fold(Vec::new(), |mut all, set| {
        all.extend(set?);
        Some(all)
    })
}

/// All of several must hold: the one that fewest events have, and none before all.
fn all(sets: impl Iterator<Item = Option<Vec<Literal>>>) -> Option<Vec<Literal>> {
    let least = |set: &Vec<Literal>| set.iter().map(Literal::selectivity).min();
    let known = sets.flatten();
    known.max_by_key(|set| (set.is_empty(), least(set), Reverse(set.len())))
}

impl Rule<'_> {
    fn of_condition(self, condition: &ConditionExpr) -> Option<Vec<Literal>> {
        let of = |condition| self.of_condition(condition);
        match condition {
            ConditionExpr::And(parts) => all(parts.iter().map(of)),
            ConditionExpr::Or(parts) => any(parts.iter().map(of)),
            ConditionExpr::Not(_) => None,
            ConditionExpr::Identifier(name) => {
                self.of_detection(self.texts.detections.named.get(name)?)
            }
            ConditionExpr::Selector {
                quantifier,
                pattern,
            } => {
                let named = self.texts.detections.named.iter();
                let selected = named.filter(|(name, _)| pattern.matches_detection_name(name));
                let sets = selected.map(|(_, detection)| self.of_detection(detection));
                match quantifier {
                    Quantifier::All => all(sets),
                    Quantifier::Any | Quantifier::Count(1..) => any(sets),
                    Quantifier::Count(0) => None,
                }
            }
        }
    }

    fn of_detection(self, detection: &Detection) -> Option<Vec<Literal>> {
        match detection {
            Detection::AllOf(items) => all(items.iter().map(|item| self.of_item(item))),
            Detection::AnyOf(parts) => any(parts.iter().map(|part| self.of_detection(part))),
            Detection::And(parts) => all(parts.iter().map(|part| self.of_detection(part))),
            Detection::Keywords(values) => {
                let literal = |value| literal(value, None, Place::default());
                values.iter().map(literal).collect()
            }
            Detection::ArrayMatch { .. } | Detection::Conditional { .. } => None,
        }
    }

    fn of_item(self, item: &DetectionItem) -> Option<Vec<Literal>> {
        if item.field.name.as_deref() == Some(TYPE) {
            // Every record of the type has it, and no other one.
            let types = types_of(item)?;
            return (!types.contains(self.kind?)).then(Vec::new);
        }
        let mut needs_all = false;
        let is_regex = item.field.modifiers.contains(&Modifier::Re);
        // Keywords are anywhere in a value.
        let field = item.field.name.as_deref().filter(|name| !name.is_empty());
        let is_anchored = field.is_some();
        let mut place = Place {
            at_start: is_anchored,
            at_end: is_anchored,
        };
        for modifier in &item.field.modifiers {
            match modifier {
                Modifier::Contains => place = Place::default(),
                Modifier::StartsWith => place.at_end = false,
                Modifier::EndsWith => place.at_start = false,
                Modifier::Re
                | Modifier::IgnoreCase
                | Modifier::Multiline
                | Modifier::DotAll
                | Modifier::All
                    if is_regex =>
                {
                    needs_all |= *modifier == Modifier::All;
                }
                _ if is_regex => return None,
                Modifier::Cased => {}
                Modifier::All => needs_all = true,
                _ => return None,
            }
        }
        let literals = item.values.iter().map(|value| match is_regex {
            true => self.of_regex(value, field?, &item.field.modifiers),
            false => Some(vec![literal(value, field, place)?]),
        });
        match needs_all {
            true => all(literals),
            false => any(literals),
        }
    }

    /// What a regular expression requires of the value of a field.
    fn of_regex(
        self,
        pattern: &SigmaValue,
        field: &str,
        modifiers: &[Modifier],
    ) -> Option<Vec<Literal>> {
        let SigmaValue::String(text) = pattern else {
            return None;
        };
        let pattern = text.as_plain();
        let pattern = pattern.as_deref().unwrap_or(&text.original);
        let literal = |text: String, least_bytes: usize| Literal {
            field: Some(field.to_owned()),
            text,
            place: Place::default(),
            least_bytes,
        };
        let has = |modifier| modifiers.contains(&modifier);
        let flags = Flags {
            ignores_case: has(Modifier::IgnoreCase),
            is_multiline: has(Modifier::Multiline),
            dot_is_all: has(Modifier::DotAll),
        };
        Some(match self.texts.of_regex(flags, pattern)? {
            Required::Texts(texts) => texts.into_iter().map(|text| literal(text, 0)).collect(),
            Required::Bytes(bytes) => vec![literal(String::new(), bytes)],
        })
    }
}

/// The longest text without wildcards in a value that is compared at a place.
fn literal(value: &SigmaValue, field: Option<&str>, place: Place) -> Option<Literal> {
    let text = match value {
        SigmaValue::String(text) => text,
        SigmaValue::Integer(number) if field.is_some_and(is_decimal) => {
            return Some(Literal {
                field: field.map(str::to_owned),
                text: number.to_string(),
                place,
                least_bytes: 0,
            });
        }
        _ => return None,
    };
    let (number, longest) = longest_part(text)?;
    let is_usable = text.original.is_ascii() && !longest.is_empty();
    is_usable.then(|| Literal {
        field: field.map(str::to_owned),
        text: longest.to_ascii_lowercase(),
        place: Place {
            at_start: place.at_start && number == 0,
            at_end: place.at_end && number + 1 == text.parts.len(),
        },
        least_bytes: 0,
    })
}

/// Whether a field has decimal numbers without leading zeros, so that the same number is the same text.
fn is_decimal(field: &str) -> bool {
    const FIELDS: [&str; 15] = [
        "auid",
        "uid",
        "gid",
        "euid",
        "suid",
        "fsuid",
        "egid",
        "sgid",
        "fsgid",
        "ses",
        "pid",
        "ppid",
        "syscall",
        "DestinationPort",
        "SourcePort",
    ];
    FIELDS.contains(&field)
}

/// Number and text of the longest part that is no wildcard.
fn longest_part(text: &SigmaString) -> Option<(usize, &str)> {
    let parts = text.parts.iter().enumerate();
    let plain = parts.filter_map(|(number, part)| match part {
        StringPart::Plain(text) => Some((number, text.as_str())),
        StringPart::Special(_) => None,
    });
    plain.max_by_key(|(_, part)| part.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field and text, with `*` where other text may be.
    fn written(literal: &Literal) -> String {
        let Literal {
            field, text, place, ..
        } = literal;
        let open = |is_anchored: bool| if is_anchored { "" } else { "*" };
        let (before, after) = (open(place.at_start), open(place.at_end));
        let field = field.as_deref().unwrap_or("any");
        format!("{field}={before}{text}{after}")
    }

    fn literals(detection: &str) -> Option<Vec<String>> {
        let text = format!("title: t\nlogsource:\n    service: auditd\ndetection:\n{detection}");
        let mut parsed = rsigma_parser::parse_sigma_yaml(&text).unwrap();
        assert_eq!(parsed.errors, [""; 0]);
        let detection = parsed.rules.remove(0).detection;
        let mut found = RuleTexts::new(&detection).required(Some("EXECVE"))?;
        found.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        Some(found.iter().map(written).collect())
    }

    #[test]
    fn literals_are_those_without_which_the_condition_fails() {
        let list = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        let a = "    a:\n        type: EXECVE\n        x: [Cat, '*/nc*xy']\n    b:\n        y|re: a+\n    c:\n        z|contains|all: [q, longer]\n";
        let of = |condition: &str| literals(&format!("{a}    condition: {condition}\n"));
        assert_eq!(of("a"), list(&["x=*/nc*", "x=cat"]));
        assert_eq!(of("b"), None);
        assert_eq!(of("c"), list(&["z=*longer*"]));
        assert_eq!(of("a and b"), list(&["x=*/nc*", "x=cat"]));
        assert_eq!(of("a and c"), list(&["z=*longer*"]));
        assert_eq!(of("a or c"), list(&["x=*/nc*", "x=cat", "z=*longer*"]));
        assert_eq!(of("a or b"), None);
        assert_eq!(of("not a"), None);
        assert_eq!(of("c and not a"), list(&["z=*longer*"]));
        assert_eq!(of("1 of them"), None);
        assert_eq!(of("all of a*"), list(&["x=*/nc*", "x=cat"]));
        for selection in [
            "x: 5",
            "a0: 5",
            "uid: null",
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
        assert_eq!(literals(&format!("{types}a or b\n")), list(&["x=cat"]));
        assert_eq!(literals(&format!("{types}1 of them\n")), list(&["x=cat"]));
        assert_eq!(literals(&format!("{types}a and b\n")), list(&[]));
        assert_eq!(literals(&format!("{types}a and not b\n")), list(&["x=cat"]));
        let keywords = "    a:\n        - shutdown\n        - 'h*lt now'\n    condition: a\n";
        assert_eq!(
            literals(keywords),
            list(&["any=*lt now*", "any=*shutdown*"])
        );
    }

    #[test]
    fn literals_have_the_place_that_the_modifiers_and_wildcards_leave() {
        for (item, literal) in [
            ("x: Ab", "x=ab"),
            ("euid: 33", "euid=33"),
            ("x: 'ab*'", "x=ab*"),
            ("x: '*ab'", "x=*ab"),
            ("x: 'ab?cde'", "x=*cde"),
            ("x: 'abc?de'", "x=abc*"),
            ("x|contains: ab", "x=*ab*"),
            ("x|startswith: ab", "x=ab*"),
            ("x|startswith: '?ab'", "x=*ab*"),
            ("x|startswith: 'ab?c'", "x=ab*"),
            ("x|endswith: ab", "x=*ab"),
            ("x|endswith: 'a?bc'", "x=*bc"),
            ("x|endswith: 'bc?a'", "x=*bc*"),
            ("x|contains|cased: 'a*bc'", "x=*bc*"),
            ("'|contains': ab", "any=*ab*"),
        ] {
            let detection = format!("    a:\n        {item}\n    condition: a\n");
            assert_eq!(
                literals(&detection),
                Some(vec![literal.to_owned()]),
                "{item}"
            );
        }
    }

    #[test]
    fn literals_are_those_that_fewest_events_have() {
        for (items, literal) in [
            ("SYSCALL: personality\n        x: ab", "x=ab"),
            (
                "SYSCALL: personality\n        success: 'no'",
                "SYSCALL=personality",
            ),
            ("x|contains: abc\n        y: d", "y=d"),
            ("x|contains: abcd\n        y|endswith: ef", "y=*ef"),
            (
                "x|contains: abcdefghi\n        y: [a, b, c, d]",
                "x=*abcdefghi*",
            ),
        ] {
            let detection = format!("    a:\n        {items}\n    condition: a\n");
            assert_eq!(
                literals(&detection),
                Some(vec![literal.to_owned()]),
                "{items}"
            );
        }
    }
}
