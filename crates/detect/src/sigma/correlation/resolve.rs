//! Finds the rules to which correlation rules refer.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::Correlations;
use super::definition::{Definition, Kind};
use super::group::{Correlation, NODE};
use crate::sigma::mistake::line_of_key;
use crate::sigma::{Engine, Mistake, Rule, Source};

/// Most correlation rules.
const MAX_CORRELATIONS: usize = 1000;
/// Most bytes of the groups of all rules, about, and what is kept for each.
const MAX_BYTES: usize = 16 << 20;
const MIN_RULE_BYTES: usize = 16 << 10;

/// A rule to which others may refer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    /// One of the engine.
    Rule(usize),
    /// A correlation, by the number of its document.
    Correlation(usize),
}

/// Loads correlation rules for the rules of an engine, each from a document, and tells the engine which fields of
/// events they look at. Returns them, and for each document why it cannot be used.
pub fn resolve(
    engine: &mut dyn Engine,
    documents: &[&str],
) -> (Correlations, Vec<Option<Mistake>>) {
    let mut mistakes: Vec<Option<Mistake>> = vec![None; documents.len()];
    let mut definitions: Vec<Option<Definition>> = Vec::new();
    let mut reserved = 0;
    for (document, mistake) in documents.iter().zip(&mut mistakes) {
        let definition = check(document, &definitions, engine.rules(), &mut reserved);
        definitions.push(definition.map_err(|error| *mistake = Some(error)).ok());
    }
    let names = Names::new(engine.rules(), &definitions);
    let mut targets: Vec<Vec<Target>> = Vec::new();
    for (definition, mistake) in definitions.iter().zip(&mut mistakes) {
        let found = definition.as_ref().map(|own| names.targets(own));
        let found = found.unwrap_or(Ok(Vec::new()));
        targets.push(found.unwrap_or_else(|error| {
            *mistake = Some(error);
            Vec::new()
        }));
    }
    let order = usable(&targets, &definitions, &mut mistakes);
    // Those that others refer to come first in the order; the numbers are in the order of the documents.
    let mut numbers: Vec<usize> = order.clone();
    numbers.sort_unstable();
    let first = engine.rules().len();
    let number_of = |target: &Target| match target {
        Target::Rule(number) => *number,
        Target::Correlation(document) => {
            first + numbers.binary_search(document).unwrap_or_default()
        }
    };
    let mut all = Correlations {
        first,
        ..Correlations::default()
    };
    let rank = |document: &usize| order.iter().position(|other| other == document);
    all.ranks = numbers.iter().filter_map(rank).collect();
    let share = MAX_BYTES.saturating_sub(reserved) / numbers.len().max(1);
    for document in &numbers {
        let own = definitions.get(*document).and_then(Option::as_ref);
        let (Some(definition), Some(targets)) = (own, targets.get(*document)) else {
            continue;
        };
        let number = all.rules.len();
        for (in_it, target) in targets.iter().enumerate() {
            let rule = number_of(target);
            let known = all.references.entry(rule).or_default();
            known.push((number, in_it));
        }
        all.rules.push(Rule {
            absent_fields: absent_fields(definition, targets, engine.rules()),
            ..definition.rule.clone()
        });
        let max_bytes = reserve(definition) + share;
        all.correlations
            .push(Correlation::new(definition.clone(), max_bytes));
    }
    let mut needs: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); documents.len()];
    for document in &order {
        let of_targets = targets.get(*document).into_iter().flatten();
        let mut own = BTreeSet::new();
        for target in of_targets {
            match target {
                Target::Rule(rule) => drop(own.insert(*rule)),
                Target::Correlation(inner) => own.extend(needs.get(*inner).into_iter().flatten()),
            }
        }
        if let Some(known) = needs.get_mut(*document) {
            *known = own;
        }
    }
    let of_rules = numbers.iter().map(|document| needs.get(*document));
    all.needs = of_rules
        .map(|needs| needs.into_iter().flatten().copied().collect())
        .collect();
    want(engine, &order, &definitions, &targets);
    let generates = |number: usize| {
        let own = all.correlations.get(number);
        own.is_some_and(|own| own.definition.generates)
    };
    let referred = all.references.iter();
    let silent = referred.filter(|(_, by)| !by.iter().any(|(number, _)| generates(*number)));
    all.silent = silent.map(|(rule, _)| *rule).collect();
    (all, mistakes)
}

/// Parses a document, and reserves the bytes of its groups.
fn check(
    document: &str,
    before: &[Option<Definition>],
    rules: &[Rule],
    reserved: &mut usize,
) -> Result<Definition, Mistake> {
    if before.iter().flatten().count() >= MAX_CORRELATIONS {
        let reason = format!("only the first {MAX_CORRELATIONS} correlation rules are loaded");
        return Err(Mistake::new(1, reason, "name fewer directories"));
    }
    let definition = Definition::parse(document)?;
    let id = &definition.rule.id;
    let correlations = before.iter().flatten().map(|before| &before.rule);
    if rules.iter().chain(correlations).any(|rule| rule.id == *id) {
        return Err(Mistake::new(
            line_of_key(document, "id"),
            format!("another rule has the id `{id}`"),
            "remove one of them, or give it an id of its own",
        ));
    }
    let bytes = reserve(&definition);
    if *reserved + bytes > MAX_BYTES {
        return Err(Mistake::new(
            line_of_key(document, "condition"),
            "the windows of this correlation rule and those before are too large",
            "count less, refer to fewer rules, or load fewer correlation rules",
        ));
    }
    *reserved += bytes;
    Ok(definition)
}

/// Fields of a correlation that no event of one of its rules has.
fn absent_fields(definition: &Definition, targets: &[Target], rules: &[Rule]) -> Vec<String> {
    let is_absent = |name: &String, target: &Target| {
        let Target::Rule(number) = target else {
            return false;
        };
        let source = rules.get(*number).and_then(|rule| rule.source);
        let known = source.and_then(Source::fields);
        name != NODE && known.is_some_and(|known| !known.contains(&name.as_str()))
    };
    let fields = definition.group_by.iter().chain(&definition.fields);
    let named = fields.flat_map(|field| field.of_rule.iter().zip(targets));
    let absent = named.filter(|(name, target)| is_absent(name, target));
    let absent: BTreeSet<String> = absent.map(|(name, _)| name.clone()).collect();
    absent.into_iter().collect()
}

/// Bytes that a rule has for its groups at least.
fn reserve(definition: &Definition) -> usize {
    definition
        .max_group_bytes()
        .saturating_mul(2)
        .max(MIN_RULE_BYTES)
}

/// Rules by what a correlation can call them.
#[derive(Debug)]
struct Names {
    ids: HashMap<String, Vec<Target>>,
    names: HashMap<String, Vec<Target>>,
    titles: HashMap<String, Vec<Target>>,
}

impl Names {
    fn new(rules: &[Rule], definitions: &[Option<Definition>]) -> Self {
        let mut all = Self {
            ids: HashMap::new(),
            names: HashMap::new(),
            titles: HashMap::new(),
        };
        let of_engine = rules
            .iter()
            .enumerate()
            .map(|(number, rule)| (Target::Rule(number), rule));
        let correlations = definitions.iter().enumerate();
        let correlations = correlations.filter_map(|(number, definition)| {
            Some((Target::Correlation(number), &definition.as_ref()?.rule))
        });
        for (target, rule) in of_engine.chain(correlations) {
            let add = |map: &mut HashMap<String, Vec<Target>>, name: &String| {
                map.entry(name.clone()).or_default().push(target);
            };
            add(&mut all.ids, &rule.id);
            add(&mut all.titles, &rule.title);
            if let Some(name) = &rule.name {
                add(&mut all.names, name);
            }
        }
        all
    }

    /// The rules to which a correlation refers.
    fn targets(&self, definition: &Definition) -> Result<Vec<Target>, Mistake> {
        let references = definition.references.iter();
        let target = references.map(|reference| {
            let maps = [&self.ids, &self.names, &self.titles].into_iter();
            let mut found = maps.filter_map(|map| map.get(&reference.name));
            let name = &reference.name;
            match found.next().map(Vec::as_slice) {
                Some([target]) => Ok(*target),
                Some(_) => Err(Mistake::new(
                    reference.line,
                    format!("several rules have the name `{name}`"),
                    "refer to the id of one",
                )),
                None => Err(Mistake::new(
                    reference.line,
                    format!("no loaded rule has the id or name `{name}`"),
                    "correct the name, or load the rule",
                )),
            }
        });
        let targets: Vec<Target> = target.collect::<Result<_, _>>()?;
        if definition.condition.kind == Kind::Temporal {
            let mut seen = HashSet::new();
            let mut named = definition.references.iter().zip(&targets);
            if let Some((reference, _)) = named.find(|(_, target)| !seen.insert(**target)) {
                return Err(Mistake::new(
                    reference.line,
                    format!(
                        "the rule `{}` is listed twice, and one event of it counts as two rules",
                        reference.name
                    ),
                    "list it once, or write a correlation of type event_count or temporal_ordered",
                ));
            }
        }
        Ok(targets)
    }
}

/// Numbers of the documents that can be used, those to which others refer first. The others get a mistake.
fn usable(
    targets: &[Vec<Target>],
    definitions: &[Option<Definition>],
    mistakes: &mut [Option<Mistake>],
) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    let mut is_usable = vec![false; targets.len()];
    loop {
        let before = order.len();
        for (number, targets) in targets.iter().enumerate() {
            let is_open = mistakes.get(number).is_some_and(Option::is_none);
            let known = |target: &Target| match target {
                Target::Rule(_) => true,
                Target::Correlation(inner) => is_usable.get(*inner) == Some(&true),
            };
            if is_open && is_usable.get(number) == Some(&false) && targets.iter().all(known) {
                order.push(number);
                if let Some(usable) = is_usable.get_mut(number) {
                    *usable = true;
                }
            }
        }
        if order.len() == before {
            break;
        }
    }
    // What remains refers to a rule that cannot be used, or to itself.
    for (number, definition) in definitions.iter().enumerate() {
        let (Some(definition), Some(targets)) = (definition, targets.get(number)) else {
            continue;
        };
        let mut named = definition.references.iter().zip(targets);
        let unusable = named.find(|(_, target)| match target {
            Target::Rule(_) => false,
            Target::Correlation(inner) => is_usable.get(*inner) != Some(&true),
        });
        if let (Some((reference, _)), Some(mistake)) = (unusable, mistakes.get_mut(number)) {
            mistake.get_or_insert_with(|| {
                let name = &reference.name;
                Mistake::new(
                    reference.line,
                    format!("the correlation rule `{name}` cannot be used, or refers to this one"),
                    "correct it, or refer to another rule",
                )
            });
        }
    }
    order
}

/// Tells the engine the fields that correlations look at. A correlation that refers to another one looks at the events
/// of the rules of that one.
fn want(
    engine: &mut dyn Engine,
    order: &[usize],
    definitions: &[Option<Definition>],
    targets: &[Vec<Target>],
) {
    let mut of_rules: HashMap<usize, BTreeSet<String>> = HashMap::new();
    let mut of_correlations: HashMap<usize, BTreeSet<String>> = HashMap::new();
    for document in order.iter().rev() {
        let own = definitions.get(*document).and_then(Option::as_ref);
        let (Some(definition), Some(targets)) = (own, targets.get(*document)) else {
            continue;
        };
        let outer = of_correlations.remove(document).unwrap_or_default();
        for (in_it, target) in targets.iter().enumerate() {
            let fields = definition.group_by.iter().chain(&definition.fields);
            let names = fields.filter_map(|field| field.of_rule.get(in_it)).cloned();
            let wanted = match target {
                Target::Rule(rule) => of_rules.entry(*rule).or_default(),
                Target::Correlation(inner) => of_correlations.entry(*inner).or_default(),
            };
            wanted.extend(names.chain(outer.iter().cloned()));
        }
    }
    for (rule, names) in of_rules {
        engine.want(rule, names.into_iter().collect());
    }
}
