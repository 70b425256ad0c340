//! Rules that are compared with the same events, and which of them an event can match.
//!
//! A search for the texts that rules require ([`super::literals`]) finds the rules to evaluate. Events with text that
//! is not ASCII are evaluated by all rules, because the engine folds the case of all Unicode.

#[cfg(test)]
use std::collections::HashSet;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use rsigma_eval::{CompiledRule, EvaluationResult, evaluate_rule};

use super::fields::{FieldNames, Fields};

/// Most bytes of texts of which the fastest search is built: it takes some 250 bytes for each.
const MAX_DFA_BYTES: usize = 64 << 10;

/// Some rules.
#[derive(Default)]
pub(super) struct Bucket {
    rules: Vec<CompiledRule>,
    /// Texts, and the rules that need them.
    literals: Vec<(String, usize)>,
    /// Rules of which no text is known.
    always: Vec<usize>,
    pub(super) fields: FieldNames,
    /// Whether a rule looks at texts of any field.
    pub(super) has_keywords: bool,
    /// Finds the texts; built when they are looked for, `None` if that fails.
    search: OnceLock<Option<AhoCorasick>>,
}

impl Bucket {
    /// Adds a rule that needs one of some texts, if that is known.
    pub(super) fn add(&mut self, rule: CompiledRule, literals: Option<Vec<String>>) {
        let number = self.rules.len();
        match literals {
            Some(literals) => {
                let literals = literals.into_iter().map(|literal| (literal, number));
                self.literals.extend(literals);
            }
            None => self.always.push(number),
        }
        self.rules.push(rule);
        self.search = OnceLock::new();
    }

    /// Passes what matches an event.
    pub(super) fn find(&self, event: &Fields<'_>, mut found: impl FnMut(EvaluationResult)) {
        let mut evaluate = |number: usize| {
            let rule = self.rules.get(number);
            if let Some(result) = rule.and_then(|rule| evaluate_rule(rule, event)) {
                found(result);
            }
        };
        match self.candidates(event) {
            None => (0..self.rules.len()).for_each(evaluate),
            Some(candidates) => {
                self.always.iter().copied().for_each(&mut evaluate);
                candidates.into_iter().for_each(evaluate);
            }
        }
    }

    /// Rules of which a required text is in the event, in order; `None` if all must be evaluated.
    fn candidates(&self, event: &Fields<'_>) -> Option<Vec<usize>> {
        let mut numbers = Vec::new();
        if self.literals.is_empty() {
            return Some(numbers);
        }
        let search = self.search.get_or_init(|| self.search()).as_ref()?;
        let shared = event
            .shared()
            .filter(|(name, _)| self.fields.contains(name));
        for (_, value) in event.iter().chain(shared) {
            for text in value.as_texts() {
                if !text.is_ascii() {
                    return None;
                }
                for found in search.find_overlapping_iter(text.as_bytes()) {
                    let literal = self.literals.get(found.pattern().as_usize());
                    numbers.extend(literal.map(|(_, number)| *number));
                }
            }
            // The same text may come again and again.
            if numbers.len() > self.rules.len() {
                numbers.sort_unstable();
                numbers.dedup();
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Some(numbers)
    }

    /// Numbers of the rules that match if all are evaluated; they are numbered as they were added.
    #[cfg(test)]
    pub(super) fn all_matches(&self, event: &Fields<'_>) -> HashSet<usize> {
        let rules = self.rules.iter().enumerate();
        let matching = rules.filter(|(_, rule)| evaluate_rule(rule, event).is_some());
        matching.map(|(number, _)| number).collect()
    }

    fn search(&self) -> Option<AhoCorasick> {
        let bytes: usize = self.literals.iter().map(|(text, _)| text.len()).sum();
        let texts = self.literals.iter().map(|(text, _)| text);
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind((bytes <= MAX_DFA_BYTES).then_some(AhoCorasickKind::DFA))
            .build(texts)
            .ok()
    }
}
