//! Finds the texts that rules require in the fields of an event.

use std::collections::BTreeMap;

use aho_corasick::packed::{self, Searcher};
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

use super::fields::{FieldNames, SYSCALL_NAME};
use super::literals::{Literal, Place};

/// Most bytes of texts of which the fastest search is built: it takes some 250 bytes for each.
const MAX_DFA_BYTES: usize = 64 << 10;

/// Required texts, each with a number: that of the rule that needs it.
#[derive(Debug, Default)]
pub struct Search {
    names: FieldNames,
    /// Finds the names in a record, each with its `=`; `None` if they are too many.
    name_finder: Option<Searcher>,
    /// By the position of the name.
    fields: Vec<FieldSearch>,
    /// Texts of any field.
    any: Option<FieldSearch>,
}

/// The texts of one field, or of any.
#[derive(Debug)]
pub struct FieldSearch {
    /// Name of the field; empty for any.
    pub(super) name: String,
    automaton: AhoCorasick,
    patterns: Vec<(Place, usize)>,
}

/// A value that is not ASCII: the engine folds the case of all Unicode, so that any rule may match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotAscii;

impl Search {
    /// A search for texts; `None` if they are too many.
    pub(super) fn new<'l>(literals: impl Iterator<Item = (&'l Literal, usize)>) -> Option<Self> {
        let mut by_field: BTreeMap<Option<&str>, Vec<(&Literal, usize)>> = BTreeMap::new();
        for (literal, rule) in literals {
            let of_field = by_field.entry(literal.field.as_deref()).or_default();
            of_field.push((literal, rule));
        }
        let mut search = Self::default();
        for (name, literals) in by_field {
            let field = FieldSearch::new(name.unwrap_or_default(), &literals)?;
            match name {
                Some(name) => {
                    search.names.insert(name);
                    search.fields.push(field);
                }
                None => search.any = Some(field),
            }
        }
        search.name_finder = search.name_finder();
        Some(search)
    }

    fn name_finder(&self) -> Option<Searcher> {
        let names = self.fields().map(|field| match field.name.as_str() {
            // It is made of the number.
            SYSCALL_NAME => "syscall=".to_owned(),
            name => format!("{name}="),
        });
        let mut builder = packed::Config::new().builder();
        builder.extend(names).build()
    }

    /// End of the last name of a field with required texts in the text of a record; the end of the text if texts of any
    /// field are required, and `None` if no name is there.
    pub(crate) fn last_name(&self, text: &[u8]) -> Option<usize> {
        match (&self.any, &self.name_finder) {
            (None, _) if self.fields.is_empty() => None,
            (None, Some(finder)) => Some(finder.find_iter(text).last()?.end()),
            _ => Some(text.len()),
        }
    }

    /// The searches of fields with required texts.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldSearch> {
        self.fields.iter()
    }

    /// The search for texts that any field may have.
    pub(crate) const fn any(&self) -> Option<&FieldSearch> {
        self.any.as_ref()
    }

    /// Whether texts of a field are required.
    pub(crate) fn wants(&self, name: &[u8]) -> bool {
        self.any.is_some() || self.names.contains(name)
    }

    /// As [`FieldSearch::find`], for the value of a field.
    ///
    /// # Errors
    /// [`NotAscii`]: nothing is known of the value.
    pub(super) fn find(
        &self,
        name: &str,
        value: &str,
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), NotAscii> {
        let position = self.names.position(name.as_bytes());
        let field = position.and_then(|position| self.fields.get(position));
        let mut searches = field.into_iter().chain(&self.any);
        searches.try_for_each(|search| search.find(value, found))
    }
}

impl FieldSearch {
    fn new(name: &str, literals: &[(&Literal, usize)]) -> Option<Self> {
        let texts = literals.iter().map(|(literal, _)| &literal.text);
        let bytes: usize = texts.clone().map(String::len).sum();
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind((bytes <= MAX_DFA_BYTES).then_some(AhoCorasickKind::DFA))
            .build(texts)
            .ok()?;
        let patterns = literals
            .iter()
            .map(|(literal, rule)| (literal.place, *rule));
        Some(Self {
            name: name.to_owned(),
            automaton,
            patterns: patterns.collect(),
        })
    }

    /// Passes the numbers of the texts in a value, some of them several times, until `found` returns false.
    ///
    /// # Errors
    /// [`NotAscii`]: nothing is known of the value.
    pub(super) fn find(
        &self,
        value: &str,
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), NotAscii> {
        if !value.is_ascii() {
            return Err(NotAscii);
        }
        for hit in self.automaton.find_overlapping_iter(value) {
            let Some(&(place, rule)) = self.patterns.get(hit.pattern().as_usize()) else {
                continue;
            };
            let is_placed = (!place.at_start || hit.start() == 0)
                && (!place.at_end || hit.end() == value.len());
            if is_placed && !found(rule) {
                break;
            }
        }
        Ok(())
    }
}
