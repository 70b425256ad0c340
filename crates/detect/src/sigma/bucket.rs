//! Rules that are compared with the same events, and which of them an event can match.
//!
//! A search for the texts that rules require ([`super::literals`]) finds the rules to evaluate.

#[cfg(test)]
use std::collections::HashSet;
use std::sync::OnceLock;

use rsigma_eval::{CompiledRule, EvaluationResult, evaluate_rule};

use super::budget::Budget;
use super::fields::{FieldNames, Fields, Value};
use super::gate::Gate;
use super::literals::Literal;
use super::search::{Search, Unknown};

/// Some rules.
#[derive(Default)]
pub(super) struct Bucket {
    rules: Vec<CompiledRule>,
    /// Texts, and the rules that need them.
    literals: Vec<(Literal, usize)>,
    /// Rules of which no text is known.
    always: Vec<usize>,
    pub(super) fields: FieldNames,
    /// Whether a rule looks at texts of any field.
    pub(super) has_keywords: bool,
    /// Finds the texts; built when they are looked for, `None` if that fails.
    search: OnceLock<Option<Search>>,
    /// Of the engine.
    budget: Budget,
}

impl Bucket {
    /// No rules, whose search takes its memory from a budget.
    pub(super) fn new(budget: &Budget) -> Self {
        Self {
            budget: budget.clone(),
            ..Self::default()
        }
    }

    /// Adds a rule that needs one of some texts, if that is known.
    pub(super) fn add(&mut self, rule: CompiledRule, literals: Option<Vec<Literal>>) {
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

    /// The texts that rules need.
    pub(super) fn literals(&self) -> impl Iterator<Item = &Literal> {
        self.literals.iter().map(|(literal, _)| literal)
    }

    /// First look at events.
    pub(super) fn gate(&self) -> Gate<'_> {
        match self.search() {
            Some(search) if self.always.is_empty() => Gate {
                search: Some(search),
                ..Gate::default()
            },
            _ => Gate::OPEN,
        }
    }

    /// Whether every event must be evaluated.
    pub(super) const fn is_always_evaluated(&self) -> bool {
        !self.always.is_empty()
    }

    fn search(&self) -> Option<&Search> {
        let new = || {
            let numbered = self.literals.iter().map(|(literal, rule)| (literal, *rule));
            Search::new(numbered, &self.budget)
        };
        self.search.get_or_init(new).as_ref()
    }

    /// Rules of which a required text is in the event, in order; `None` if all must be evaluated.
    fn candidates(&self, event: &Fields<'_>) -> Option<Vec<usize>> {
        let search = self.search()?;
        let mut candidates = Candidates {
            numbers: Vec::new(),
            most: self.rules.len(),
        };
        candidates.add(search, event).ok()?;
        Some(candidates.sorted())
    }

    /// Numbers of the rules that match if all are evaluated; they are numbered as they were added.
    #[cfg(test)]
    pub(super) fn all_matches(&self, event: &Fields<'_>) -> HashSet<usize> {
        let rules = self.rules.iter().enumerate();
        let matching = rules.filter(|(_, rule)| evaluate_rule(rule, event).is_some());
        matching.map(|(number, _)| number).collect()
    }
}

/// Numbers of rules that are to be evaluated.
struct Candidates {
    numbers: Vec<usize>,
    /// Number of all rules.
    most: usize,
}

impl Candidates {
    fn add(&mut self, search: &Search, event: &Fields<'_>) -> Result<(), Unknown> {
        let mut found = |number| {
            self.numbers.push(number);
            // The same text may come again and again.
            if self.numbers.len() > 2 * self.most {
                sort(&mut self.numbers);
            }
            true
        };
        for field in search.fields() {
            let texts = event.get(field.name()).map_or(&[][..], Value::as_texts);
            for text in texts {
                field.find(text.as_bytes(), &mut found)?;
            }
        }
        if let Some(any) = search.any() {
            for text in event.own_texts() {
                any.find(text.as_bytes(), &mut found)?;
            }
        }
        Ok(())
    }

    fn sorted(mut self) -> Vec<usize> {
        sort(&mut self.numbers);
        self.numbers
    }
}

fn sort(numbers: &mut Vec<usize>) {
    numbers.sort_unstable();
    numbers.dedup();
}
