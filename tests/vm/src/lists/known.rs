//! The differences of choice that are permitted, from `tests/differential/lists.toml`; what its words
//! mean stands there.

use anyhow::Context as _;
use serde::Deserialize;

use super::choice::{Difference, Side};

const TABLE: &str = include_str!("../../../differential/lists.toml");

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    difference: Vec<Entry>,
}

/// One permitted difference.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    engine: Option<String>,
    calls: Option<Vec<String>>,
    exits: Option<Vec<String>>,
    sides: Option<Vec<Side>>,
    key: Option<String>,
    rules: Vec<String>,
    reason: String,
    #[serde(skip)]
    uses: u32,
}

/// The entries about one engine.
#[derive(Debug)]
pub(super) struct Known(Vec<Entry>);

impl Known {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(super) fn read(engine: &str) -> anyhow::Result<Self> {
        let file: File = toml::from_str(TABLE).context("tests/differential/lists.toml")?;
        let mut entries = file.difference;
        entries.retain(|entry| entry.engine.as_deref().is_none_or(|named| named == engine));
        Ok(Self(entries))
    }

    /// Whether a difference of a list with these lines is permitted; remembers by what.
    pub(super) fn permits(&mut self, lines: &[String], difference: &Difference) -> bool {
        let entry = self
            .0
            .iter_mut()
            .find(|entry| entry.permits(lines, difference));
        entry.is_some_and(|entry| {
            entry.uses += 1;
            true
        })
    }

    /// Says what was permitted. Not every run has lists that show every way.
    pub(super) fn account(&self) {
        for entry in &self.0 {
            println!("vm: note permitted {} times: {}", entry.uses, entry.reason);
        }
    }
}

impl Entry {
    fn permits(&self, lines: &[String], difference: &Difference) -> bool {
        let choice = &difference.choice;
        self.calls
            .as_ref()
            .is_none_or(|calls| calls.contains(&choice.call))
            && self.key.as_ref().is_none_or(|key| *key == difference.key)
            && self
                .sides
                .as_ref()
                .is_none_or(|sides| sides.contains(&difference.side))
            && self
                .exits
                .as_ref()
                .is_none_or(|exits| exits.iter().any(|exit| Some(exit) == choice.exit.as_ref()))
            && self
                .rules
                .iter()
                .any(|part| lines.iter().any(|line| line.contains(part)))
    }
}
