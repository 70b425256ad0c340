//! Finds the texts that rules require in the fields of an event.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use bstr::Finder;

use super::fields::FieldNames;
use super::literals::{Literal, Place};
use super::trie::Trie;

/// Most bytes of texts of which the fastest search is built: it takes some 250 bytes for each.
const MAX_DFA_BYTES: usize = 64 << 10;

/// Most texts that are found in a value, besides four for each byte.
const MAX_HITS: usize = 4096;

/// Required texts, each with a number: that of the rule that needs it.
#[derive(Debug, Default)]
pub struct Search {
    names: FieldNames,
    /// By the position of the name.
    fields: Vec<FieldSearch>,
    /// Texts of any field.
    any: Option<FieldSearch>,
}

/// The texts of one field, or of any.
#[derive(Debug, Default)]
pub struct FieldSearch {
    /// Name of the field; empty for any.
    pub(super) name: String,
    /// Where in a value each text is, and its number in the search.
    texts: Vec<(Place, usize)>,
    /// Texts at the start, by their position in `texts`.
    starts: Trie,
    /// Texts at the end only, backwards.
    ends: Trie,
    /// The other texts.
    anywhere: Anywhere,
}

/// Texts that can be anywhere in a value, with their positions among the texts of the field.
#[derive(Debug, Default)]
enum Anywhere {
    #[default]
    None,
    /// One without letters, which have two cases.
    One(Box<Finder<'static>>, usize),
    Many(AhoCorasick, Vec<usize>),
}

impl Anywhere {
    /// `None` if the texts are too many.
    fn new(texts: &[(&str, usize)]) -> Option<Self> {
        match texts {
            [] => return Some(Self::None),
            [(text, number)] if !text.contains(char::is_alphabetic) => {
                let finder = Finder::new(text).into_owned();
                return Some(Self::One(Box::new(finder), *number));
            }
            _ => {}
        }
        let bytes: usize = texts.iter().map(|(text, _)| text.len()).sum();
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind((bytes <= MAX_DFA_BYTES).then_some(AhoCorasickKind::DFA))
            // It would not help with values, which are short.
            .prefilter(false)
            .build(texts.iter().map(|(text, _)| text))
            .ok()?;
        let numbers = texts.iter().map(|(_, number)| *number);
        Some(Self::Many(automaton, numbers.collect()))
    }

    /// Passes the positions of the texts in a value, until `found` returns false.
    fn find(&self, value: &str, mut found: impl FnMut(usize) -> bool) -> Result<(), Unknown> {
        match self {
            Self::None => {}
            Self::One(finder, number) => {
                if finder.find(value).is_some() {
                    found(*number);
                }
            }
            Self::Many(automaton, numbers) => {
                // Texts of texts, such as `a`, `aa` and so on, are at each byte.
                let most = MAX_HITS + 4 * value.len();
                for (count, hit) in automaton.find_overlapping_iter(value).enumerate() {
                    if count == most {
                        return Err(Unknown);
                    }
                    let number = numbers.get(hit.pattern().as_usize());
                    if number.is_some_and(|&number| !found(number)) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Nothing is known of a value, so that any rule may match: it is not ASCII, where the engine folds the case of all
/// Unicode, or it has so many texts that to pass them would cost more than the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

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
        Some(search)
    }

    /// The searches of fields with required texts.
    pub(super) fn fields(&self) -> impl Iterator<Item = &FieldSearch> {
        self.fields.iter()
    }

    /// The bits of its fields, if they are few.
    pub(crate) fn bits(&self) -> u32 {
        self.fields.iter().fold(0, |bits, _| bits << 1 | 1)
    }

    /// The search for texts that any field may have.
    pub(crate) const fn any(&self) -> Option<&FieldSearch> {
        self.any.as_ref()
    }

    /// What the value of a field is compared with: number of its search, if there is one. `None` if it does not matter.
    #[inline]
    pub(crate) fn wants(&self, name: &[u8]) -> Option<Wanted> {
        match self.names.position(name) {
            None if self.any.is_none() => None,
            number => Some(Wanted(number)),
        }
    }

    /// As [`FieldSearch::find`], for the value of a field.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn find(
        &self,
        wanted: Wanted,
        value: &str,
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unknown> {
        let field = wanted.0.and_then(|number| self.fields.get(number));
        let mut searches = field.into_iter().chain(&self.any);
        searches.try_for_each(|search| search.find(value, found))
    }
}

/// A field whose value matters to a [`Search`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted(Option<usize>);

impl Wanted {
    /// A bit that no other field of the search has, if it has few fields.
    pub(crate) fn bit(self) -> u32 {
        let number = self.0.and_then(|number| u32::try_from(number).ok());
        number
            .and_then(|number| 1_u32.checked_shl(number))
            .unwrap_or(0)
    }
}

impl FieldSearch {
    fn new(name: &str, literals: &[(&Literal, usize)]) -> Option<Self> {
        let mut search = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        let mut anywhere = Vec::new();
        for (number, (Literal { text, place, .. }, rule)) in literals.iter().enumerate() {
            search.texts.push((*place, *rule));
            match place {
                Place { at_start: true, .. } => search.starts.insert(text.bytes(), number),
                Place { at_end: true, .. } => search.ends.insert(text.bytes().rev(), number),
                _ => anywhere.push((&**text, number)),
            }
        }
        search.anywhere = Anywhere::new(&anywhere)?;
        Some(search)
    }

    /// Passes the numbers of the texts in a value, some of them several times, until `found` returns false.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn find(
        &self,
        value: &str,
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unknown> {
        if !value.is_ascii() {
            return Err(Unknown);
        }
        let mut goes_on = true;
        let mut hit = |number: usize, len: usize| {
            if let Some((place, rule)) = self.texts.get(number)
                && (!place.at_start || !place.at_end || len == value.len())
            {
                goes_on = goes_on && found(*rule);
            }
            goes_on
        };
        self.starts.find(value.bytes(), &mut hit);
        self.ends.find(value.bytes().rev(), &mut hit);
        self.anywhere.find(value, |number| hit(number, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(texts: &[(String, Place)]) -> Vec<Literal> {
        let literal = |(text, place): &(String, Place)| Literal {
            field: Some("a".to_owned()),
            text: text.clone(),
            place: *place,
        };
        texts.iter().map(literal).collect()
    }

    fn find(literals: &[Literal], value: &str) -> Result<Vec<usize>, Unknown> {
        let numbered = literals.iter().zip(0..);
        let search = Search::new(numbered).unwrap();
        let mut found = Vec::new();
        let wanted = search.wants(b"a").unwrap();
        search.find(wanted, value, &mut |number| {
            found.push(number);
            true
        })?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    #[test]
    fn texts_are_found_at_their_place_in_any_case() {
        let place = |at_start, at_end| Place { at_start, at_end };
        let texts = [
            ("/bin/sh", place(true, true)),
            ("/bin", place(true, false)),
            ("sh", place(false, true)),
            ("in/", place(false, false)),
        ];
        let texts = texts.map(|(text, place)| (text.to_owned(), place));
        let mut literals = literals(&texts);
        for (value, expected) in [
            ("/bin/SH", &[0, 1, 2, 3][..]),
            ("/bin/sh ", &[1, 3]),
            ("a/bin/sh", &[2, 3]),
            ("/BIN", &[1]),
            ("", &[]),
        ] {
            assert_eq!(find(&literals, value).as_deref(), Ok(expected), "{value}");
        }
        assert_eq!(find(&literals, "/bin/\u{fc}"), Err(Unknown));
        // Without letters, one text has a search of its own.
        literals.drain(..3);
        literals[0].text = "/.".to_owned();
        assert_eq!(find(&literals, "a/.b/.c"), Ok(vec![0]));
        assert_eq!(find(&literals, "a/b"), Ok(vec![]));
    }

    #[test]
    fn texts_of_texts_cost_no_more_than_the_value() {
        let texts = (1..600).map(|len| ("a".repeat(len), Place::default()));
        let literals = literals(&texts.collect::<Vec<_>>());
        assert_eq!(find(&literals, "aa"), Ok(vec![0, 1]));
        assert_eq!(find(&literals, &"a".repeat(100_000)), Err(Unknown));
    }
}
