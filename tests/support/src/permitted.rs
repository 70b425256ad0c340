//! Lists of permitted differences: TOML files of `[[difference]]` entries, each with a reason.
//!
//! The first matching entry permits a difference. The caller decides whether an unused entry is an error.

use std::rc::Rc;

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::compare::Difference;

/// The differences between records that are permitted.
const RECORDS: &str = include_str!("../../differential/known.toml");

/// The value pattern that also matches an absent value.
const ANYTHING: &str = "any";

/// Stands for the fields of a PATH record that come from the object.
const OBJECT: &str = "object";

/// Fields of a PATH record that come from the object. If one differs, most of them do.
pub const OBJECT_FIELDS: [&str; 6] = ["inode", "dev", "mode", "ouid", "ogid", "rdev"];

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

/// Why records differ, and in what; `tests/differential/known.toml` explains the fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cause {
    tests: Vec<String>,
    calls: Option<Vec<String>>,
    on: Option<Vec<String>>,
    since: Option<String>,
    engine: Option<String>,
    differs: Vec<String>,
    reason: String,
}

/// A permitted difference between records: a line of a cause.
#[derive(Clone, Debug)]
pub struct RecordEntry {
    cause: Rc<Cause>,
    record: String,
    field: String,
    kernel: String,
    tollgate: String,
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

impl<E> Permitted<E> {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Names the file and the invalid line.
    pub fn parse(file: &str, text: &str) -> anyhow::Result<Self>
    where
        E: DeserializeOwned,
    {
        Ok(Self::from_entries(entries(file, text)?))
    }

    fn from_entries(entries: impl IntoIterator<Item = E>) -> Self {
        let entries = entries.into_iter().map(|entry| (entry, 0));
        Self {
            entries: entries.collect(),
        }
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
        let mut permitted = Self::of_causes("tests/differential/known.toml", RECORDS)?;
        permitted.retain(|entry| entry.cause.applies(setting));
        Ok(permitted)
    }

    /// Lines that have permitted nothing, with no line of their cause about the same field that has.
    pub fn idle(&self) -> Vec<&RecordEntry> {
        let used: Vec<&RecordEntry> = self
            .uses()
            .filter(|(uses, _)| *uses > 0)
            .map(|(_, line)| line)
            .collect();
        let is_idle = |line: &&RecordEntry| {
            let same = |used: &&RecordEntry| {
                Rc::ptr_eq(&used.cause, &line.cause) && used.field == line.field
            };
            !used.iter().any(same)
        };
        self.uses().map(|(_, line)| line).filter(is_idle).collect()
    }

    fn of_causes(file: &str, text: &str) -> anyhow::Result<Self> {
        let mut lines = Vec::new();
        for cause in entries::<Cause>(file, text)?.into_iter().map(Rc::new) {
            for line in &cause.differs {
                let line = RecordEntry::read(&cause, line)
                    .with_context(|| format!("{file}: `{line}` has neither 2 nor 4 words"))?;
                lines.push(line);
            }
        }
        Ok(Self::from_entries(lines))
    }

    /// Whether the difference is permitted.
    pub fn permits_difference(&mut self, difference: &Difference) -> bool {
        self.permits(|entry| entry.permits(difference))
    }
}

/// The entries of a file.
fn entries<E: DeserializeOwned>(file: &str, text: &str) -> anyhow::Result<Vec<E>> {
    let parsed: File<E> = toml::from_str(text).with_context(|| file.to_owned())?;
    Ok(parsed.difference)
}

impl Cause {
    fn applies(&self, setting: Setting<'_>) -> bool {
        let engine = self.engine.as_deref();
        fits_any(&self.tests, setting.test)
            && self
                .on
                .as_deref()
                .is_none_or(|on| fits_any(on, setting.line))
            && self
                .since
                .as_deref()
                .is_none_or(|since| numbers(setting.line) >= numbers(since))
            && engine.is_none_or(|engine| engine == setting.engine)
    }
}

impl RecordEntry {
    /// Reads a line of `differs`.
    fn read(cause: &Rc<Cause>, line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (record, field) = (words.next()?, words.next()?);
        let (kernel, tollgate) = match words.next() {
            None => (ANYTHING.to_owned(), ANYTHING.to_owned()),
            Some(kernel) => (kernel, words.next()?),
        };
        words.next().is_none().then(|| Self {
            cause: Rc::clone(cause),
            record,
            field,
            kernel,
            tollgate,
        })
    }

    fn permits(&self, difference: &Difference) -> bool {
        names(self.cause.calls.as_deref(), &difference.call)
            && fits(&self.record, Some(&difference.record))
            && self.has_field(&difference.field)
            && fits(&self.kernel, difference.kernel.as_deref())
            && fits(&self.tollgate, difference.tollgate.as_deref())
    }

    fn has_field(&self, field: &str) -> bool {
        fits(&self.field, Some(field)) || self.field == OBJECT && OBJECT_FIELDS.contains(&field)
    }

    /// The difference and its reason on one line.
    pub fn summary(&self) -> String {
        let Self { record, field, .. } = self;
        let (kernel, tollgate) = (&self.kernel, &self.tollgate);
        format!(
            "{record} {field} {kernel} {tollgate}: {}",
            self.cause.reason
        )
    }
}

/// Whether the patterns match a syscall, of either table or, with `32:`, of the 32-bit one, or an operation; absent
/// ones match all.
pub fn names(calls: Option<&[String]>, call: &str) -> bool {
    let of_either = call.strip_prefix("32:").unwrap_or(call);
    calls.is_none_or(|calls| fits_any(calls, of_either) || fits_any(calls, call))
}

fn fits_any(patterns: &[String], value: &str) -> bool {
    patterns.iter().any(|pattern| fits(pattern, Some(value)))
}

/// The numbers of a version line, such as `6.12`.
fn numbers(line: &str) -> Vec<u32> {
    let numbers = line.split('.').map(|number| number.parse().ok());
    numbers.map_while(|number| number).collect()
}

/// Whether a value matches a pattern: `-` matches no value, `*` a value, `any` both, and a `*` at the end of a word
/// any suffix.
pub fn fits(pattern: &str, value: Option<&str>) -> bool {
    match (pattern, value) {
        (ANYTHING, _) => true,
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
        let permitted = Permitted::of_causes(file, RECORDS).unwrap();
        assert!(
            permitted
                .uses()
                .all(|(uses, entry)| uses == 0 && !entry.cause.reason.is_empty())
        );
    }

    #[test]
    fn values_are_permitted_in_pairs() {
        let text = "[[difference]]\ntests = [\"t\"]\ncalls = [\"execve\"]\n\
                    differs = [\"* items 2 1\", \"* items 3 2\"]\nreason = \"r\"\n";
        let mut permitted = Permitted::of_causes("t", text).unwrap();
        let mut permits = |kernel: &str, tollgate: &str| {
            permitted.permits_difference(&Difference {
                call: "32:execve".into(),
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
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("6.12") > numbers("6.2") && numbers("7.0") > numbers("6.18"));
        assert!(numbers("7.1") >= numbers("7.1"));
    }

    #[test]
    fn calls_are_of_both_tables_or_of_one() {
        let names = |pattern: &str, call: &str| names(Some(&[pattern.to_owned()]), call);
        assert!(names("read", "read") && names("read", "32:read"));
        assert!(names("32:*", "32:read") && !names("32:*", "read"));
        assert!(super::names(None, "32:read") && !names("read", "readv"));
    }

    #[test]
    fn patterns_fit_words_starts_and_absent_values() {
        assert!(fits("-", None) && !fits("-", Some("x")));
        assert!(fits("any", None) && fits("any", Some("x")));
        assert!(fits("?", Some("?")) && !fits("?", Some("x")) && !fits("?", None));
        assert!(fits("*", Some("")) && !fits("*", None));
        assert!(fits("exec*", Some("execve")) && !fits("exec", Some("execve")));
    }
}
