//! Finds the texts that rules require in the fields of an event.

use std::collections::BTreeMap;

use super::anywhere::Anywhere;
use super::budget::{Budget, Taken};
use super::fields::{FieldNames, Value};
use super::literals::{Literal, Place};
use super::trie::Trie;

/// Most bytes of texts of any field that are looked for together with those of each field, in all fields.
const MAX_JOINED_BYTES: usize = 16 << 10;

/// Required texts, each with a number: that of the rule that needs it.
#[derive(Debug, Default)]
pub struct Search {
    names: FieldNames,
    /// By the position of the name.
    fields: Vec<FieldSearch>,
    /// Texts of any field.
    any: Option<FieldSearch>,
    /// Whether the searches of fields find the texts of any field too.
    is_joined: bool,
}

/// The texts of one field, or of any.
#[derive(Debug, Default)]
pub struct FieldSearch {
    /// Name of the field; empty for any.
    name: String,
    /// Where in a value each text is, and its number in the search.
    texts: Vec<(Place, usize)>,
    /// Texts at the start, by their position in `texts`.
    starts: Trie,
    /// Texts at the end only, backwards.
    ends: Trie,
    /// The other texts.
    anywhere: Anywhere,
    /// Least lengths of values, where no text is known, and their numbers in the search.
    lengths: Vec<(usize, usize)>,
    /// What its texts take of the budget.
    _taken: Option<Taken>,
}

/// Nothing is known of a value, so that any rule may match: it is not ASCII, where the engine folds the case of all
/// Unicode, or it has so many texts that to pass them would cost more than the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

impl Search {
    /// A search for texts; `None` if they are too many.
    pub(crate) fn new<'l>(
        literals: impl Iterator<Item = (&'l Literal, usize)>,
        budget: &Budget,
    ) -> Option<Self> {
        let mut by_field: BTreeMap<Option<&str>, Vec<(&Literal, usize)>> = BTreeMap::new();
        for (literal, rule) in literals {
            let of_field = by_field.entry(literal.field.as_deref()).or_default();
            of_field.push((literal, rule));
        }
        let any = by_field.remove(&None).unwrap_or_default();
        let any_bytes: usize = any.iter().map(|(literal, _)| literal.text.len()).sum();
        let mut search = Self {
            is_joined: any_bytes * by_field.len() <= MAX_JOINED_BYTES,
            ..Self::default()
        };
        for (name, mut literals) in by_field {
            let name = name.unwrap_or_default();
            search.names.insert(name);
            if search.is_joined {
                literals.extend(&any);
            }
            search
                .fields
                .push(FieldSearch::new(name, literals, budget)?);
        }
        if !any.is_empty() {
            search.any = Some(FieldSearch::new("", any, budget)?);
        }
        Some(search)
    }

    /// The searches of fields with required texts.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &FieldSearch> {
        self.fields.iter()
    }

    /// The bits of its fields, if they are few.
    pub(crate) fn bits(&self) -> u32 {
        self.fields.iter().fold(0, |bits, _| bits << 1 | 1)
    }

    /// The search for texts of a field, if no other field has texts.
    pub(crate) fn only(&self, name: &str) -> Option<&FieldSearch> {
        match (&*self.fields, &self.any) {
            ([field], None) if field.name == name => Some(field),
            _ => None,
        }
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

    /// Whether the value of a field has a text, or may have one.
    pub(crate) fn is_in(&self, wanted: Wanted, value: &Value<'_>) -> bool {
        let mut texts = value.as_texts().iter();
        texts.any(|text| self.is_in_text(wanted, text.as_bytes()))
    }

    /// As [`Search::is_in`], for a value that is one text.
    pub(crate) fn is_in_text(&self, wanted: Wanted, value: &[u8]) -> bool {
        self.of_field(wanted).any(|search| search.is_in(value))
    }

    /// Whether a field of an event has a text, or may have one.
    pub(crate) fn has(&self, name: &str, value: &[u8]) -> bool {
        let wanted = self.wants(name.as_bytes());
        wanted.is_some_and(|wanted| self.is_in_text(wanted, value))
    }

    /// The searches for the texts that a field may have.
    fn of_field(&self, wanted: Wanted) -> impl Iterator<Item = &FieldSearch> {
        let field = wanted.0.and_then(|number| self.fields.get(number));
        let any = self.any.as_ref();
        let any = any.filter(|_| field.is_none() || !self.is_joined);
        field.into_iter().chain(any)
    }

    /// As [`FieldSearch::find`], for the value of a field.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn find(
        &self,
        wanted: Wanted,
        value: &[u8],
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unknown> {
        let mut searches = self.of_field(wanted);
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
    fn new(name: &str, mut literals: Vec<(&Literal, usize)>, budget: &Budget) -> Option<Self> {
        drop_longer(&mut literals);
        let bytes = literals.iter().map(|(literal, _)| literal.text.len()).sum();
        let mut search = Self {
            name: name.to_owned(),
            _taken: Some(budget.take(bytes)?),
            ..Self::default()
        };
        let mut anywhere = Vec::new();
        for (number, (literal, rule)) in literals.iter().enumerate() {
            let Literal {
                text,
                place,
                least_bytes,
                ..
            } = literal;
            search.texts.push((*place, *rule));
            match place {
                _ if text.is_empty() => search.lengths.push((*least_bytes, *rule)),
                Place { at_start: true, .. } => search.starts.insert(text.bytes(), number),
                Place { at_end: true, .. } => search.ends.insert(text.bytes().rev(), number),
                _ => anywhere.push((&**text, number)),
            }
        }
        search.anywhere = Anywhere::new(&anywhere, budget)?;
        Some(search)
    }

    /// Name of the field; empty for any.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Passes the numbers of the texts in a value, some of them several times, until `found` returns false.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn find(
        &self,
        value: &[u8],
        found: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Unknown> {
        if !value.is_ascii() {
            return Err(Unknown);
        }
        let mut goes_on = self.find_at_ends(value, found);
        for (least, rule) in &self.lengths {
            goes_on = goes_on && (value.len() < *least || found(*rule));
        }
        if goes_on {
            self.anywhere.find(value, |number| {
                self.texts.get(number).is_some_and(|(_, rule)| found(*rule))
            })?;
        }
        Ok(())
    }

    /// Whether a value has one of the texts, or may have one.
    pub(crate) fn is_in(&self, value: &[u8]) -> bool {
        !value.is_ascii()
            || !self.find_at_ends(value, &mut |_| false)
            || self.lengths.iter().any(|(least, _)| value.len() >= *least)
            || self.anywhere.is_in(value)
    }

    /// Passes the numbers of the texts at the start and at the end of a value, until `found` returns false; then returns
    /// false.
    fn find_at_ends(&self, value: &[u8], found: &mut impl FnMut(usize) -> bool) -> bool {
        let mut goes_on = true;
        let mut hit = |number: usize, len: usize| {
            if let Some((place, rule)) = self.texts.get(number)
                && (!place.at_start || !place.at_end || len == value.len())
            {
                goes_on = goes_on && found(*rule);
            }
            goes_on
        };
        self.starts.find(value.iter().copied(), &mut hit);
        self.ends.find(value.iter().rev().copied(), &mut hit);
        goes_on
    }
}

/// Drops texts with one of the same number in them that is found wherever it is.
fn drop_longer(literals: &mut Vec<(&Literal, usize)>) {
    // All are compared with all.
    const MOST: usize = 256;
    if literals.len() > MOST {
        return;
    }
    let shorter: Vec<_> = literals
        .iter()
        .filter(|(literal, _)| literal.place == Place::default() && !literal.text.is_empty())
        .copied()
        .collect();
    literals.retain(|(literal, number)| {
        let has = |(other, of): &(&Literal, usize)| {
            let is_other = literal.text != other.text || literal.place != other.place;
            of == number && is_other && literal.text.contains(&other.text)
        };
        !shorter.iter().any(has)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literals(texts: &[(String, Place)]) -> Vec<Literal> {
        let literal = |(text, place): &(String, Place)| Literal {
            field: Some("a".to_owned()),
            text: text.clone(),
            place: *place,
            least_bytes: 0,
        };
        texts.iter().map(literal).collect()
    }

    fn find(literals: &[Literal], value: &str) -> Result<Vec<usize>, Unknown> {
        let numbered = literals.iter().zip(0..);
        let search = Search::new(numbered, &Budget::default()).unwrap();
        let mut found = Vec::new();
        let wanted = search.wants(b"a").unwrap();
        search.find(wanted, value.as_bytes(), &mut |number| {
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
    fn memory_of_searches_is_bounded() {
        let of = |field: Option<String>, text: String| Literal {
            field,
            text,
            place: Place::default(),
            least_bytes: 0,
        };
        let long: Vec<Literal> = (0..17).map(|_| of(None, "x".repeat(64 << 10))).collect();
        let numbered = || long.iter().zip(0..);
        assert!(Search::new(numbered(), &Budget::default()).is_none());
        // Texts of any field are in the search of each one only if that takes little.
        for (fields, is_joined) in [(20, true), (40, false)] {
            let any = (0..64).map(|number| of(None, format!("keyword-{number}")));
            let own = (0..fields).map(|number| of(Some(format!("f{number}")), "own".to_owned()));
            let all: Vec<Literal> = any.chain(own).collect();
            let search = Search::new(all.iter().map(|literal| (literal, 0)), &Budget::default());
            let search = search.unwrap();
            assert_eq!(search.is_joined, is_joined);
            for (field, text) in [("f3", "a keyword-7"), ("f3", "own"), ("other", "KEYWORD-7")] {
                assert!(search.has(field, text.as_bytes()), "{field} {text}");
            }
            assert!(!search.has("other", b"own"));
        }
    }

    #[test]
    fn texts_of_one_number_are_found_by_the_shortest() {
        let contains = Place::default();
        let starts = Place {
            at_start: true,
            at_end: false,
        };
        let texts = [
            ("/.", contains),
            ("/.c/", contains),
            ("/.", starts),
            ("/x", starts),
        ];
        let literals = literals(&texts.map(|(text, place)| (text.to_owned(), place)));
        let kept = |numbers: [usize; 4]| {
            let mut numbered = literals.iter().zip(numbers).collect();
            drop_longer(&mut numbered);
            numbered
                .iter()
                .map(|(literal, _)| (&*literal.text, literal.place))
                .collect::<Vec<_>>()
        };
        assert_eq!(kept([0; 4]), [texts[0], texts[3]]);
        assert_eq!(kept([0, 1, 2, 3]), texts);
        assert_eq!(kept([1, 1, 0, 1]), [texts[0], texts[2], texts[3]]);
    }

    #[test]
    fn texts_of_texts_cost_no_more_than_the_value() {
        let texts = (1..600).map(|len| ("a".repeat(len), Place::default()));
        let literals = literals(&texts.collect::<Vec<_>>());
        assert_eq!(find(&literals, "aa"), Ok(vec![0, 1]));
        assert_eq!(find(&literals, &"a".repeat(100_000)), Err(Unknown));
    }
}
