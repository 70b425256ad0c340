//! The differences between the kernel's records and tollgate's that are permitted, from
//! `tests/differential/known.toml`; what its words mean stands there.

use anyhow::Context as _;
use serde::Deserialize;

use super::compare::Difference;

const TABLE: &str = include_str!("../../../differential/known.toml");

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    difference: Vec<Entry>,
}

/// One permitted difference.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    tests: Vec<String>,
    calls: Option<Vec<String>>,
    on: Option<String>,
    engine: Option<String>,
    records: Vec<String>,
    fields: Vec<String>,
    kernel: Option<String>,
    tollgate: Option<String>,
    reason: String,
    #[serde(skip)]
    uses: usize,
}

/// Where a comparison takes place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) test: &'a str,
    /// Line of the kernel, as 6.12.
    pub(crate) line: &'a str,
    pub(crate) engine: &'a str,
}

/// The entries that are about one comparison.
#[derive(Debug)]
pub(crate) struct Known {
    entries: Vec<Entry>,
}

impl Known {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn read(setting: Setting<'_>) -> anyhow::Result<Self> {
        let file: File = toml::from_str(TABLE).context("tests/differential/known.toml")?;
        let mut entries = file.difference;
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        entries.retain(|entry| {
            entry
                .tests
                .iter()
                .any(|test| fits(test, Some(setting.test)))
                && is(&entry.on, setting.line)
                && is(&entry.engine, setting.engine)
        });
        Ok(Self { entries })
    }

    /// Whether the difference is permitted; remembers by what.
    pub(crate) fn permits(&mut self, difference: &Difference) -> bool {
        let entry = self
            .entries
            .iter_mut()
            .find(|entry| entry.permits(difference));
        entry.is_some_and(|entry| {
            entry.uses += 1;
            true
        })
    }

    /// Each entry as a line for people, with how often it was needed.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (usize, String)> {
        self.entries.iter().map(|entry| {
            let (records, fields) = (entry.records.join(","), entry.fields.join(","));
            (entry.uses, format!("{records} {fields}: {}", entry.reason))
        })
    }
}

impl Entry {
    fn permits(&self, difference: &Difference) -> bool {
        let fits = |patterns: &[String], value: &str| {
            patterns.iter().any(|pattern| fits(pattern, Some(value)))
        };
        let value = |pattern: &Option<String>, value: &Option<String>| {
            pattern
                .as_ref()
                .is_none_or(|pattern| self::fits(pattern, value.as_deref()))
        };
        self.calls
            .as_ref()
            .is_none_or(|calls| fits(calls, &difference.call))
            && fits(&self.records, &difference.record)
            && fits(&self.fields, &difference.field)
            && value(&self.kernel, &difference.kernel)
            && value(&self.tollgate, &difference.tollgate)
    }
}

/// `-` stands for nothing, `*` for whatever there is, and at the end of a word for any rest.
fn fits(pattern: &str, value: Option<&str>) -> bool {
    match (pattern, value) {
        ("-", value) => value.is_none(),
        (pattern, Some(value)) => match pattern.strip_suffix('*') {
            Some(start) => value.starts_with(start),
            None => value == pattern,
        },
        (_, None) => false,
    }
}
