//! Placeholders: values of rules that the site fills in.
//!
//! ```toml
//! Administrators = ["root", "adm-*"]
//! JumpServers = ["192.0.2.7"]
//! ```
//!
//! A value `%name%` of a field with the modifier `expand` becomes one value for each of the list.
//!
//! # Source
//! Sigma specification 2.1.0, "Placeholders"; `ValueListPlaceholderTransformation` in pySigma 0.11.

use std::collections::BTreeMap;

use rsigma_parser::{Detection, DetectionItem, Detections, Modifier, SigmaString, SigmaValue};
use serde::Deserialize;
use toml::Spanned;

use super::mistake::line_of;
use super::{Mistake, one_line};

/// Most values that one value of a rule becomes.
const MAX_VALUES: usize = 10_000;
/// Most bytes of all values that are filled in, and what each counts beside its text.
const MAX_BYTES: usize = 32 << 20;
const VALUE_BYTES: usize = 128;

/// Values of placeholders by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placeholders(BTreeMap<String, Vec<String>>);

/// A value as it is written.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected texts and whole numbers")]
enum Written {
    Text(String),
    Number(i64),
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'v> {
    Text(&'v str),
    Name(&'v str),
}

impl Placeholders {
    /// The values of a text.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let line_at = |start: usize| {
            let before = text.as_bytes().get(..start).unwrap_or_default();
            before.iter().filter(|byte| **byte == b'\n').count() + 1
        };
        let read: Result<BTreeMap<Spanned<String>, Vec<Written>>, _> = toml::from_str(text);
        let read = read.map_err(|error| {
            Mistake::new(
                line_at(error.span().map_or(0, |span| span.start)),
                error.message(),
                "write `NAME = [\"value\", ...]` for each placeholder",
            )
        })?;
        let mut values = BTreeMap::new();
        for (name, written) in read {
            let line = line_at(name.span().start);
            let name = name.into_inner();
            let refuse = |reason: String| {
                let advice = "names have letters, digits, `_`, `-` and `.`, and at least one value";
                Err(Mistake::new(line, reason, advice))
            };
            if !is_name(&name) {
                return refuse(format!("`{name}` is not the name of a placeholder"));
            }
            if written.is_empty() {
                return refuse(format!("the placeholder `{name}` has no value"));
            }
            let texts = written.into_iter().map(|value| match value {
                Written::Text(text) => text,
                Written::Number(number) => number.to_string(),
            });
            values.insert(name, texts.collect());
        }
        Ok(Self(values))
    }

    /// Fills in the placeholders of detections. `bytes` are those of what was filled in before; returns them with
    /// those of these.
    ///
    /// # Errors
    /// A placeholder has no values, or there would be too many of them.
    pub(super) fn fill(
        &self,
        detections: &mut Detections,
        document: &str,
        mut bytes: usize,
    ) -> Result<usize, Mistake> {
        for detection in detections.named.values_mut() {
            self.fill_detection(detection, document, &mut bytes)?;
        }
        Ok(bytes)
    }

    fn fill_detection(
        &self,
        detection: &mut Detection,
        document: &str,
        bytes: &mut usize,
    ) -> Result<(), Mistake> {
        match detection {
            Detection::AllOf(items) => items
                .iter_mut()
                .try_for_each(|item| self.fill_item(item, document, bytes)),
            Detection::AnyOf(parts) | Detection::And(parts) => parts
                .iter_mut()
                .try_for_each(|part| self.fill_detection(part, document, bytes)),
            Detection::Keywords(_)
            | Detection::ArrayMatch { .. }
            | Detection::Conditional { .. } => Ok(()),
        }
    }

    fn fill_item(
        &self,
        item: &mut DetectionItem,
        document: &str,
        bytes: &mut usize,
    ) -> Result<(), Mistake> {
        let modifiers = &mut item.field.modifiers;
        if !modifiers.contains(&Modifier::Expand) {
            return Ok(());
        }
        modifiers.retain(|modifier| *modifier != Modifier::Expand);
        let is_regex = modifiers.contains(&Modifier::Re);
        let needs_all = modifiers.contains(&Modifier::All);
        let mut values = Vec::new();
        for value in std::mem::take(&mut item.values) {
            let SigmaValue::String(text) = &value else {
                values.push(value);
                continue;
            };
            let line = line_of(document, &text.original);
            let refuse = |reason: String, advice| Err(Mistake::new(line, reason, advice));
            let parts = match parts(&text.original) {
                Ok(parts) => parts,
                Err(name) => {
                    return refuse(
                        format!("`%{}%` is not the name of a placeholder", one_line(name)),
                        "write letters, digits, `_`, `-` and `.`, or `\\%` for a percent sign",
                    );
                }
            };
            let (count, filled_bytes) = match self.size(&parts) {
                Ok(size) => size,
                Err(name) => {
                    return refuse(
                        format!("the placeholder `%{}%` has no values", one_line(name)),
                        "write its values into the file of --placeholders",
                    );
                }
            };
            if count > 1 && needs_all {
                return refuse(
                    "a placeholder with several values is combined with `all`, which no event can mean".to_owned(),
                    "write a selection for each placeholder, without `all`",
                );
            }
            if count > MAX_VALUES {
                return refuse(
                    format!(
                        "the placeholders of the value stand for more than {MAX_VALUES} values"
                    ),
                    "write fewer placeholders into one value, or give them fewer values",
                );
            }
            *bytes = bytes.saturating_add(filled_bytes);
            if *bytes > MAX_BYTES {
                return refuse(
                    "the placeholders of this rule and those before stand for too many values"
                        .to_owned(),
                    "give them fewer values, or load fewer rules",
                );
            }
            for filled in self.filled(&parts) {
                values.push(SigmaValue::String(match is_regex {
                    true => SigmaString::from_raw(&filled),
                    false => SigmaString::new(&filled),
                }));
            }
        }
        item.values = values;
        Ok(())
    }

    /// Number of values that parts stand for, and the bytes that all of them count.
    ///
    /// # Errors
    /// The name of a placeholder without values.
    fn size<'v>(&self, parts: &[Part<'v>]) -> Result<(usize, usize), &'v str> {
        let begin = (1_usize, VALUE_BYTES);
        parts.iter().try_fold(begin, |(count, bytes), part| {
            let (values, of_values) = match part {
                Part::Text(text) => (1, text.len()),
                Part::Name(name) => {
                    let values = self.0.get(*name).ok_or(*name)?;
                    (values.len(), values.iter().map(String::len).sum())
                }
            };
            let before = bytes.saturating_mul(values);
            let bytes = before.saturating_add(count.saturating_mul(of_values));
            Ok((count.saturating_mul(values), bytes))
        })
    }

    /// The values that parts stand for; none if a placeholder has no values.
    fn filled(&self, parts: &[Part<'_>]) -> Vec<String> {
        let begin = vec![String::new()];
        parts.iter().fold(begin, |texts, part| match part {
            Part::Text(part) => texts.into_iter().map(|text| text + part).collect(),
            Part::Name(name) => {
                let values = self.0.get(*name).map(Vec::as_slice).unwrap_or_default();
                let with = |text: &String| -> Vec<String> {
                    values
                        .iter()
                        .map(|value| format!("{text}{value}"))
                        .collect()
                };
                texts.iter().flat_map(with).collect()
            }
        })
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

/// Text and placeholders of a value; `\%` is a percent sign, and so is one that no other follows.
///
/// # Errors
/// What is between two percent signs and is no name: a rule whose placeholders are not filled in must be refused.
fn parts(value: &str) -> Result<Vec<Part<'_>>, &str> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once('%') {
        if let Some(before) = before.strip_suffix('\\') {
            parts.extend([Part::Text(before), Part::Text("%")]);
            rest = after;
            continue;
        }
        match after.split_once('%') {
            Some((name, after)) if is_name(name) => {
                parts.extend([Part::Text(before), Part::Name(name)]);
                rest = after;
            }
            Some((name, _)) if !name.ends_with('\\') => return Err(name),
            _ => {
                parts.extend([Part::Text(before), Part::Text("%")]);
                rest = after;
            }
        }
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::super::fields::Fields;
    use super::super::rsigma::Rsigma;
    use super::super::{Engine as _, Source};
    use super::*;

    const VALUES: &str = "Administrators = [\"root\", \"adm-*\"]\nports = [22, 2222]\nmany = [\"a\", \"b\", \"c\"]\n";

    fn add(detection: &str) -> Result<Rsigma, Mistake> {
        let rule = format!(
            "title: T\nlogsource:\n    category: process_creation\ndetection:\n    s:\n        {detection}\n    condition: s\n"
        );
        let mut engine = Rsigma::new(Placeholders::parse(VALUES).unwrap());
        engine.add(&rule)?;
        Ok(engine)
    }

    #[track_caller]
    fn matches(detection: &str, value: &str) -> bool {
        let engine = add(detection).unwrap();
        let mut event = Fields::default();
        event.text("User", value);
        let mut found = Vec::new();
        engine.find(Source::Process, &event, &mut found);
        !found.is_empty()
    }

    #[test]
    fn placeholders_stand_for_each_of_their_values() {
        for (detection, value, expected) in [
            ("User|expand: '%Administrators%'", "root", true),
            ("User|expand: '%Administrators%'", "adm-1", true),
            ("User|expand: '%Administrators%'", "adm", false),
            ("User|expand: ['%ports%', x]", "2222", true),
            ("User|expand: ['%ports%', x]", "x", true),
            ("User|expand: 'p%ports%-%many%'", "p22-c", true),
            ("User|expand: 'p%ports%-%many%'", "p22-d", false),
            ("User|expand|startswith: '%many%'", "bcd", true),
            ("User|re|expand: '^%Administrators%$'", "adm---", true),
            ("User|expand: '100% \\%many\\% 5%'", "100% %many% 5%", true),
            ("User|expand: '\\%plain%many%'", "%plainc", true),
            ("User|expand: '5%'", "5%", true),
            ("User: '%many%'", "%many%", true),
            ("User: '%many%'", "a", false),
        ] {
            assert_eq!(matches(detection, value), expected, "{detection} {value}");
        }
    }

    #[test]
    fn placeholders_without_values_are_refused_with_their_line() {
        for (detection, reason) in [
            (
                "User|expand: '%None%'",
                "the placeholder `%None%` has no values",
            ),
            (
                "User|expand: '%Domain Admins%'",
                "is not the name of a placeholder",
            ),
            ("User|expand: 'x%%'", "is not the name of a placeholder"),
            ("User|expand|all: ['%many%', x]", "combined with `all`"),
            (
                "User|expand: '%many%%many%%many%%many%%many%%many%%many%%many%%many%'",
                "more than 10000 values",
            ),
        ] {
            let mistake = add(detection).unwrap_err();
            assert_eq!(mistake.line, 6, "{detection}");
            assert!(mistake.reason.contains(reason), "{mistake}");
        }
    }

    #[test]
    fn values_of_all_rules_are_bounded() {
        let long = "x".repeat(200 << 10);
        let mut engine =
            Rsigma::new(Placeholders::parse(&format!("long = [\"{long}\"]\n")).unwrap());
        let added = (0..1000).map(|number| {
            engine.add(&format!(
                "title: T{number}\nlogsource:\n    category: process_creation\ndetection:\n    s:\n        \
                 User|expand: '%long%'\n    condition: s\n"
            ))
        });
        let mistake = added.filter_map(Result::err).next().unwrap();
        assert!(mistake.reason.contains("too many values"), "{mistake}");
        let many = format!(
            "User|expand: ['{}']",
            vec!["%many%".repeat(8); 100].join("', '")
        );
        let mistake = add(&many).unwrap_err();
        assert!(mistake.reason.contains("too many values"), "{mistake}");
        // Before they are made: these have 1.3 GB.
        let value = format!("User|expand: '{long}{}'", "%many%".repeat(8));
        let mistake = add(&value).unwrap_err();
        assert!(mistake.reason.contains("too many values"), "{mistake}");
    }

    #[test]
    fn files_with_mistakes_are_refused_with_line() {
        for (text, line, reason) in [
            ("a = [\"x\"]\nb = 1\n", 2, "invalid type"),
            ("a = [\"x\"]\n\nb = []\n", 3, "has no value"),
            ("\"a b\" = [\"x\"]\n", 1, "is not the name"),
            ("a = [[\"x\"]]\n", 1, "expected texts and whole numbers"),
            ("a = [1.5]\n", 1, "expected texts and whole numbers"),
            ("a = [\"x\"\n", 1, ""),
        ] {
            let mistake = Placeholders::parse(text).unwrap_err();
            assert_eq!(mistake.line, line, "{text}: {mistake}");
            assert!(mistake.reason.contains(reason), "{mistake}");
        }
    }
}
