//! Texts that can be anywhere in a value. Case is ignored in ASCII.

use aho_corasick::automaton::Automaton;
use aho_corasick::dfa::DFA;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError};
use bstr::Finder;

use super::budget::{Budget, Taken};
use super::search::Unknown;

/// Most texts that are found in a value, besides four for each byte.
const MAX_HITS: usize = 4096;

/// Texts, each with a number.
#[derive(Debug, Default)]
pub(super) struct Anywhere {
    texts: Texts,
    numbers: Vec<usize>,
}

#[derive(Debug, Default)]
enum Texts {
    #[default]
    None,
    /// One without letters, which have two cases.
    One(Box<Finder<'static>>),
    /// The fastest search, and what it takes of the budget.
    Few(
        Box<DFA>,
        #[expect(dead_code, reason = "given back when it is dropped")] Taken,
    ),
    Many(Box<NFA>),
}

impl Anywhere {
    /// `None` if the texts are too many.
    pub(super) fn new(texts: &[(&str, usize)], budget: &Budget) -> Option<Self> {
        let numbers = texts.iter().map(|(_, number)| *number);
        Some(Self {
            numbers: numbers.collect(),
            texts: Texts::new(texts, budget).ok()?,
        })
    }

    /// Whether one of the texts is in a value.
    pub(super) fn is_in(&self, value: &[u8]) -> bool {
        self.find(value, |_| false) != Ok(true)
    }

    /// Passes the numbers of the texts in a value, until `found` returns false; then returns false.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn find(
        &self,
        value: &[u8],
        mut found: impl FnMut(usize) -> bool,
    ) -> Result<bool, Unknown> {
        let mut found = |text: usize| self.numbers.get(text).is_none_or(|number| found(*number));
        match &self.texts {
            Texts::None => Ok(true),
            Texts::One(finder) => Ok(finder.find(value).is_none() || found(0)),
            Texts::Few(automaton, _) => search(&**automaton, value, found),
            Texts::Many(automaton) => search(&**automaton, value, found),
        }
    }
}

impl Texts {
    fn new(texts: &[(&str, usize)], budget: &Budget) -> Result<Self, BuildError> {
        let patterns = || texts.iter().map(|(text, _)| text);
        let bytes: usize = patterns().map(|text| text.len()).sum();
        // A prefilter would not help with values, which are short.
        Ok(match texts {
            [] => Self::None,
            [(text, _)] if !text.contains(char::is_alphabetic) => {
                Self::One(Box::new(Finder::new(text).into_owned()))
            }
            _ => match budget.take_fastest(bytes) {
                Some(taken) => {
                    let mut builder = DFA::builder();
                    let builder = builder.ascii_case_insensitive(true).prefilter(false);
                    Self::Few(Box::new(builder.build(patterns())?), taken)
                }
                None => {
                    let mut builder = NFA::builder();
                    let builder = builder.ascii_case_insensitive(true).prefilter(false);
                    Self::Many(Box::new(builder.build(patterns())?))
                }
            },
        })
    }
}

/// Passes the number of each text where it ends in a value, until `found` returns false; then returns false. The searches
/// of the library begin and end in more steps than most values have bytes.
///
/// # Errors
/// [`Unknown`].
fn search(
    automaton: &impl Automaton,
    value: &[u8],
    mut found: impl FnMut(usize) -> bool,
) -> Result<bool, Unknown> {
    // Texts of texts, such as `a`, `aa` and so on, are at each byte.
    let mut left = MAX_HITS + 4 * value.len();
    let mut state = automaton
        .start_state(Anchored::No)
        .map_err(|_not_supported| Unknown)?;
    for &byte in value {
        state = automaton.next_state(Anchored::No, state, byte);
        if !automaton.is_special(state) || !automaton.is_match(state) {
            continue;
        }
        for index in 0..automaton.match_len(state) {
            left = left.checked_sub(1).ok_or(Unknown)?;
            if !found(automaton.match_pattern(state, index).as_usize()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, usize)], value: &str) -> Vec<usize> {
        let anywhere = Anywhere::new(texts, &Budget::default()).unwrap();
        let mut found = Vec::new();
        let each = |number| {
            found.push(number);
            true
        };
        anywhere.find(value.as_bytes(), each).unwrap();
        assert_eq!(
            anywhere.is_in(value.as_bytes()),
            !found.is_empty(),
            "{value}"
        );
        found
    }

    #[test]
    fn every_text_is_found_where_it_ends() {
        let texts = [("she", 7), ("he", 5), ("hers", 3), ("/", 1)];
        assert_eq!(found(&texts, "uSHErs/"), [7, 5, 3, 1]);
        assert_eq!(found(&texts, "xhx"), [0; 0]);
        assert_eq!(found(&texts[3..], "a/b/c"), [1]);
        assert_eq!(found(&texts[..1], "a she and a she"), [7, 7]);
        assert_eq!(found(&[], "a"), [0; 0]);
    }

    #[test]
    fn many_texts_are_found_as_few_are() {
        let many: Vec<String> = (0..40_000).map(|number| format!("/{number}/")).collect();
        let texts: Vec<(&str, usize)> = many.iter().map(|text| &**text).zip(0..).collect();
        assert!(matches!(
            Texts::new(&texts, &Budget::default()).unwrap(),
            Texts::Many(_)
        ));
        assert_eq!(found(&texts, "a/19999/17/x/"), [19_999, 17]);
    }
}
