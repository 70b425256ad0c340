//! Lists of permitted differences: TOML files of `[[difference]]` entries, each with a reason.
//!
//! The first matching entry permits a difference. The caller decides whether an unused entry is an error.

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::compare::Difference;

/// The differences between records that are permitted.
const RECORDS: &str = include_str!("../../differential/known.toml");

/// The entries of a file, each with the number of differences that it has permitted.
#[derive(Debug)]
pub struct Permitted<E> {
    entries: Vec<(E, usize)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<E> {
    difference: Vec<E>,
}

/// A permitted difference between records; `tests/differential/known.toml` explains the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordEntry {
    tests: Vec<String>,
    calls: Option<Vec<String>>,
    on: Option<String>,
    engine: Option<String>,
    records: Vec<String>,
    fields: Vec<String>,
    kernel: Option<String>,
    tollgate: Option<String>,
    /// Pairs of the kernel's and tollgate's value.
    values: Option<Vec<[String; 2]>>,
    reason: String,
}

/// Conditions of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Name of the test.
    pub test: &'a str,
    /// Kernel series: `6.12`.
    pub line: &'a str,
    /// Engine of the daemon.
    pub engine: &'a str,
}

impl<E: DeserializeOwned> Permitted<E> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Names the file and the invalid line.
    pub fn parse(file: &str, text: &str) -> anyhow::Result<Self> {
        let parsed: File<E> = toml::from_str(text).with_context(|| file.to_owned())?;
        let entries = parsed.difference.into_iter().map(|entry| (entry, 0));
        Ok(Self {
            entries: entries.collect(),
        })
    }

    /// Keeps the entries that apply.
    pub fn retain(&mut self, mut applies: impl FnMut(&E) -> bool) {
        self.entries.retain(|(entry, _)| applies(entry));
    }

    /// Whether an entry matches; counts the first match.
    pub fn permits(&mut self, mut fits: impl FnMut(&E) -> bool) -> bool {
        let entry = self.entries.iter_mut().find(|(entry, _)| fits(entry));
        entry.is_some_and(|(_, uses)| {
            *uses += 1;
            true
        })
    }

    /// Each entry with the number of its uses.
    pub fn uses(&self) -> impl Iterator<Item = (usize, &E)> {
        self.entries.iter().map(|(entry, uses)| (*uses, entry))
    }
}

impl Permitted<RecordEntry> {
    /// The entries for one comparison.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn records(setting: Setting<'_>) -> anyhow::Result<Self> {
        let mut permitted = Self::parse("tests/differential/known.toml", RECORDS)?;
        permitted.retain(|entry| entry.applies(setting));
        Ok(permitted)
    }

    /// Whether the difference is permitted.
    pub fn permits_difference(&mut self, difference: &Difference) -> bool {
        self.permits(|entry| entry.permits(difference))
    }
}

impl RecordEntry {
    fn applies(&self, setting: Setting<'_>) -> bool {
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        fits_any(&self.tests, setting.test)
            && is(&self.on, setting.line)
            && is(&self.engine, setting.engine)
    }

    fn permits(&self, difference: &Difference) -> bool {
        let value = |pattern: &Option<String>, value: &Option<String>| {
            pattern
                .as_ref()
                .is_none_or(|pattern| fits(pattern, value.as_deref()))
        };
        self.calls
            .as_ref()
            .is_none_or(|calls| fits_any(calls, &difference.call))
            && fits_any(&self.records, &difference.record)
            && fits_any(&self.fields, &difference.field)
            && value(&self.kernel, &difference.kernel)
            && value(&self.tollgate, &difference.tollgate)
            && self.values.as_ref().is_none_or(|pairs| {
                pairs.iter().any(|[kernel, tollgate]| {
                    fits(kernel, difference.kernel.as_deref())
                        && fits(tollgate, difference.tollgate.as_deref())
                })
            })
    }

    /// The difference and its reason on one line.
    pub fn summary(&self) -> String {
        let (records, fields) = (self.records.join(","), self.fields.join(","));
        format!("{records} {fields}: {}", self.reason)
    }
}

fn fits_any(patterns: &[String], value: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, Some(value)))
}

/// Whether a value matches a pattern: `-` matches no value, `*` any value, and a `*` at the end of a word any
/// suffix.
pub fn fits(pattern: &str, value: Option<&str>) -> bool {
    match (pattern, value) {
        ("-", value) => value.is_none(),
        (pattern, Some(value)) => match pattern.strip_suffix('*') {
            Some(start) => value.starts_with(start),
            None => value == pattern,
        },
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_toml_parses_and_every_entry_has_a_reason() {
        let file = "tests/differential/known.toml";
        let permitted: Permitted<RecordEntry> = Permitted::parse(file, RECORDS).unwrap();
        assert!(
            permitted
                .uses()
                .all(|(uses, entry)| uses == 0 && !entry.reason.is_empty())
        );
    }

    #[test]
    fn values_are_permitted_in_pairs() {
        let text = "[[difference]]\ntests = [\"t\"]\nrecords = [\"*\"]\nfields = [\"items\"]\n\
                    values = [[\"2\", \"1\"], [\"3\", \"2\"]]\nreason = \"r\"\n";
        let mut permitted: Permitted<RecordEntry> = Permitted::parse("t", text).unwrap();
        let mut permits = |kernel: &str, tollgate: &str| {
            permitted.permits_difference(&Difference {
                call: "execve".into(),
                record: "SYSCALL".into(),
                field: "items".into(),
                kernel: Some(kernel.into()),
                tollgate: Some(tollgate.into()),
            })
        };
        assert!(permits("2", "1") && permits("3", "2"));
        assert!(!permits("3", "1") && !permits("2", "2"));
    }

    #[test]
    fn patterns_fit_words_starts_and_absent_values() {
        assert!(fits("-", None) && !fits("-", Some("x")));
        assert!(fits("*", Some("")) && !fits("*", None));
        assert!(fits("exec*", Some("execve")) && !fits("exec", Some("execve")));
    }
}
