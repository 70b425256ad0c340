//! [`Engine`] by the crates `rsigma-parser` and `rsigma-eval`.
//!
//! Each log source has a bucket of rules; records have one for each record type and one for the rules that name no type,
//! so that a record meets only the rules that can match it. A rule that names no type is compared with the records that
//! have one of its fields.

mod detection;
mod event;
mod filter;
mod gates;
mod wildcards;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rsigma_eval::{CompiledRule, EvaluationResult, ResultBody, compile_rule};
use rsigma_parser::{Detection, LogSource, SigmaCollection, SigmaRule, parse_sigma_yaml};
use serde_json::Value as Json;

use detection::{check_condition, check_copies, check_detections, items_fields, split_keywords};
use filter::Filters;
use gates::{Buckets, Gates};

use super::bucket::Bucket;
use super::budget::Budget;
use super::fields::{FieldNames, Fields, Interest};
use super::gate::{Gate, SyscallGate};
use super::literals::RuleTexts;
use super::mistake::{line_of, line_of_key, one_line};
use super::need::Need;
use super::placeholder::Placeholders;
use super::requirement::{TYPE, record_types};
use super::{Context, Engine, Level, Match, Mistake, Rule, Source};

/// Attribute by which a result names its rule.
const NUMBER: &str = "tollgate";

/// Number of the next version of an engine.
static NEXT_VERSION: AtomicU64 = AtomicU64::new(1);

/// The engine.
#[derive(Default)]
pub struct Rsigma {
    /// 0 without rules.
    version: u64,
    rules: Vec<Rule>,
    /// Of each rule.
    needs: Vec<Need>,
    ids: HashSet<String>,
    /// Rules of each log source; of records, those without a type.
    by_source: BTreeMap<Source, Bucket>,
    by_type: Buckets,
    /// Fields that rules of records look at.
    record_fields: FieldNames,
    /// Gates, made when they are asked.
    gates: Gates,
    /// Of the searches for texts of all rules.
    budget: Budget,
    /// Fields of which matches of a rule have the values, and the names of those of all rules of records.
    wanted: HashMap<usize, Vec<String>>,
    wanted_names: FieldNames,
    /// About the bytes of all compiled patterns.
    bytes: usize,
    filters: Filters,
    placeholders: Placeholders,
    /// Bytes of the values that were filled in.
    filled_bytes: usize,
}

impl std::fmt::Debug for Rsigma {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rsigma")
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

impl Engine for Rsigma {
    fn add(&mut self, document: &str) -> Result<(), Mistake> {
        let mut parsed = parsed(document)?;
        self.filters.note(&parsed);
        let named = parsed.detection.named.values_mut();
        named.for_each(split_keywords);
        let source = source(&parsed.logsource, document)?;
        let before = self.filled_bytes;
        self.filled_bytes = self
            .placeholders
            .fill(&mut parsed.detection, document, before)?;
        let id = id(&parsed);
        if self.ids.contains(&id) {
            return Err(Mistake::new(
                line_of_key(document, "id"),
                format!("another rule has the id `{id}`"),
                "remove one of them, or give it an id of its own",
            ));
        }
        check_condition(&parsed.detection, document)?;
        self.filters.join(&mut parsed, document)?;
        let (items, bytes) = check_detections(&parsed.detection, document, self.bytes)?;
        let types = match source {
            Source::Record => record_types(&parsed.detection),
            _ => None,
        };
        let copies = types.as_ref().map_or(0, BTreeSet::len);
        let bytes = check_copies(copies, &parsed.detection, document, bytes)?;
        let compiled = compiled(&parsed).map_err(|reason| {
            let line = line_of_key(document, "detection");
            Mistake::new(line, reason, "correct the detection")
        });
        let mut compiled = compiled?;
        let number = Json::from(self.rules.len());
        compiled.custom_attributes = Arc::new(HashMap::from([(NUMBER.to_owned(), number)]));
        compiled.include_event = false;
        let used = items_fields(&items);
        self.store(source, types, &parsed, &used, &compiled);
        self.gates = Gates::default();
        self.version = NEXT_VERSION.fetch_add(1, Ordering::Relaxed);
        self.bytes = bytes;
        self.ids.insert(id);
        let definition = parsed.logsource.definition.as_deref();
        self.needs
            .push(Need::of(&parsed.detection, source, definition));
        self.rules.push(rule(&parsed, source, &used));
        Ok(())
    }

    fn add_filter(&mut self, document: &str) -> Result<(), Mistake> {
        let filled = &mut self.filled_bytes;
        self.filters.add(document, &self.placeholders, filled)
    }

    fn filter_mistakes(&self) -> Vec<(usize, Mistake)> {
        self.filters.mistakes()
    }

    fn want(&mut self, rule: usize, fields: Vec<String>) {
        let source = self.rules.get(rule).and_then(|rule| rule.source);
        for name in &fields {
            match source {
                Some(Source::Record) => {
                    self.wanted_names.insert(name);
                    // They may be fields of the event's syscall.
                    self.record_fields.insert(name);
                }
                Some(source) => {
                    let new = || Bucket::new(&self.budget);
                    let bucket = self.by_source.entry(source).or_insert_with(new);
                    bucket.fields.insert(name);
                }
                None => {}
            }
        }
        self.wanted.insert(rule, fields);
    }

    fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn needs(&self) -> &[Need] {
        &self.needs
    }

    fn has_rules(&self, source: Source) -> bool {
        self.by_source.contains_key(&source) || source == Source::Record && !self.by_type.is_empty()
    }

    fn record_fields(&self, kind: &[u8]) -> Option<Interest<'_>> {
        let buckets = self.record_buckets(kind);
        let has_rules = buckets.iter().any(Option::is_some);
        has_rules.then(|| Interest {
            names: [
                buckets[0].map(|bucket| &bucket.fields),
                buckets[1].map(|bucket| &bucket.fields),
                (!self.wanted.is_empty()).then_some(&self.wanted_names),
            ],
            all: buckets.iter().flatten().any(|bucket| bucket.has_keywords),
        })
    }

    fn event_fields(&self, source: Source) -> Interest<'_> {
        let bucket = self.by_source.get(&source);
        Interest {
            names: [bucket.map(|bucket| &bucket.fields), None, None],
            all: bucket.is_some_and(|bucket| bucket.has_keywords),
        }
    }

    fn shared_fields(&self) -> Interest<'_> {
        Interest {
            names: [Some(&self.record_fields), None, None],
            all: false,
        }
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn record_gate(&self, kind: &[u8]) -> Gate<'_> {
        let untyped = self.by_source.get(&Source::Record);
        self.gates
            .record(kind, &self.by_type, untyped, &self.budget)
    }

    fn event_gate(&self, source: Source) -> Gate<'_> {
        let bucket = self.by_source.get(&source);
        bucket.map_or_else(Gate::default, Bucket::gate)
    }

    fn syscall_gate(&self, kind: &[u8]) -> SyscallGate<'_> {
        let untyped = self.by_source.get(&Source::Record);
        self.gates
            .syscall(kind, &self.by_type, untyped, &self.budget)
    }

    fn find(&self, source: Source, event: &Fields<'_>, found: &mut Vec<Match>) {
        let mut add = |result: EvaluationResult| {
            let rule = result.header.custom_attributes.get(NUMBER);
            let rule = rule.and_then(Json::as_u64);
            let rule = rule.and_then(|rule| usize::try_from(rule).ok());
            if let (Some(rule), ResultBody::Detection(body)) = (rule, result.body) {
                let fields = body.matched_fields.into_iter();
                let fields = fields.map(|field| (field.field, plain(field.value)));
                found.push(Match {
                    rule,
                    fields: fields.collect(),
                    contexts: self.context(rule, event).into_iter().collect(),
                });
            }
        };
        if source == Source::Record
            && let Some(kind) = event.get_text(TYPE)
            && let Some(bucket) = self.by_type.get(kind.as_bytes())
        {
            bucket.find(event, &mut add);
        }
        if let Some(bucket) = self.by_source.get(&source)
            && (source != Source::Record || is_about(bucket, event))
        {
            bucket.find(event, &mut add);
        }
    }
}

/// Whether a record has a field of its own that rules look at which name no type.
fn is_about(bucket: &Bucket, record: &Fields<'_>) -> bool {
    bucket.has_keywords
        || record
            .iter()
            .any(|(name, _)| bucket.fields.contains(name.as_bytes()))
}

impl Rsigma {
    /// An engine that fills in placeholders.
    #[must_use]
    pub fn new(placeholders: Placeholders) -> Self {
        Self {
            placeholders,
            ..Self::default()
        }
    }

    /// The values of the fields that are wanted of a rule, if any are.
    fn context(&self, rule: usize, event: &Fields<'_>) -> Option<Context> {
        let names = self.wanted.get(&rule)?.iter();
        let fields = names.filter_map(|name| {
            let texts = event.get(name)?.as_texts();
            Some((name.clone(), texts.join(" ")))
        });
        Some(fields.collect())
    }

    /// Rules for records of a type, and for records of any.
    fn record_buckets(&self, kind: &[u8]) -> [Option<&Bucket>; 2] {
        [self.by_type.get(kind), self.by_source.get(&Source::Record)]
    }

    /// Asserts that the search for texts finds the rules that all rules find in an event.
    #[cfg(test)]
    pub(crate) fn assert_search_finds_all(&self, source: Source, event: &Fields<'_>) {
        let kind = event.get_text(TYPE).unwrap_or_default();
        let of_type = self.by_type.get(kind.as_bytes());
        let buckets = of_type.filter(|_| source == Source::Record).into_iter();
        for bucket in buckets.chain(self.by_source.get(&source)) {
            let mut found = 0;
            bucket.find(event, |_result| found += 1);
            assert_eq!(found, bucket.all_matches(event).len(), "{event:?}");
        }
    }

    fn store(
        &mut self,
        source: Source,
        types: Option<BTreeSet<String>>,
        parsed: &SigmaRule,
        used: &[&str],
        compiled: &CompiledRule,
    ) {
        let named = &parsed.detection.named;
        let has_keywords = named.values().any(has_keywords);
        let texts = RuleTexts::new(&parsed.detection);
        let new = || Bucket::new(&self.budget);
        let add = |bucket: &mut Bucket, kind: Option<&str>| {
            for name in used {
                bucket.fields.insert(name);
            }
            bucket.has_keywords |= has_keywords;
            bucket.add(compiled.clone(), texts.required(kind));
        };
        if source == Source::Record {
            for name in used {
                self.record_fields.insert(name);
            }
        }
        match types {
            None => add(self.by_source.entry(source).or_insert_with(new), None),
            Some(types) => {
                for kind in types {
                    let bucket = self.by_type.entry(kind.as_bytes().into());
                    let bucket = bucket.or_insert_with(new);
                    add(bucket, Some(&kind));
                }
            }
        }
    }
}

/// A rule as it is evaluated.
///
/// # Errors
/// Why the engine refuses it.
fn compiled(rule: &SigmaRule) -> Result<CompiledRule, String> {
    let mut exact = rule.clone();
    let named = exact.detection.named.values_mut();
    named.for_each(wildcards::to_regexes);
    compile_rule(&exact).map_err(|error| error.to_string())
}

/// Whether a detection has texts without a field.
fn has_keywords(detection: &Detection) -> bool {
    match detection {
        Detection::Keywords(_) => true,
        Detection::AllOf(items) => items.iter().any(|item| item.field.name.is_none()),
        Detection::AnyOf(parts) | Detection::And(parts) => parts.iter().any(has_keywords),
        Detection::ArrayMatch { .. } | Detection::Conditional { .. } => false,
    }
}

/// The rule of a document.
fn parsed(document: &str) -> Result<SigmaRule, Mistake> {
    let mut collection = collection(document)?;
    match (collection.rules.pop(), collection.rules.len()) {
        (Some(rule), 0) => Ok(rule),
        _ => Err(Mistake::new(
            1,
            "expected one rule in the document",
            "separate rules by a line `---`",
        )),
    }
}

/// What the parser finds in a document.
pub(super) fn collection(document: &str) -> Result<SigmaCollection, Mistake> {
    let mistaken = |message: &str| {
        let (line, advice) = located(message, document);
        Mistake::new(line, message, advice)
    };
    let collection = parse_sigma_yaml(document).map_err(|error| mistaken(&error.to_string()))?;
    match collection.errors.first() {
        Some(error) => Err(mistaken(error)),
        None => Ok(collection),
    }
}

/// Line of an error of the parser, and advice.
fn located(message: &str, document: &str) -> (usize, &'static str) {
    let number_after = |text: &str| {
        let (_, rest) = message.split_once(text)?;
        let digits = rest.split(|character: char| !character.is_ascii_digit());
        digits.into_iter().next()?.parse::<usize>().ok()
    };
    let quoted = message.split('\'').nth(1).unwrap_or_default();
    if let Some(line) = number_after(" at line ") {
        return (line, "correct the YAML");
    }
    if message.starts_with("Condition") {
        return (
            line_of_key(document, "condition"),
            "correct the condition: see the Sigma specification, \"Condition\"",
        );
    }
    if message.starts_with("Unknown modifier") {
        let modifier = format!("|{quoted}");
        return (
            line_of(document, &modifier),
            "use a modifier of the Sigma specification 2.0.0",
        );
    }
    if message.starts_with("invalid ") {
        let value = message.split('\'').nth(1).unwrap_or_default();
        return (
            line_of(document, value),
            "use a value of the Sigma specification",
        );
    }
    (
        line_of_key(document, "detection"),
        "see the Sigma specification, \"Rules\"",
    )
}

/// The log source of a rule.
fn source(log_source: &LogSource, document: &str) -> Result<Source, Mistake> {
    let [product, category, service] = [
        &log_source.product,
        &log_source.category,
        &log_source.service,
    ]
    .map(Option::as_deref);
    let is_linux = product.is_none_or(|product| product.eq_ignore_ascii_case("linux"));
    let source = match (category, service) {
        (None, Some("auditd")) => Some(Source::Record),
        (Some("process_creation"), None | Some("auditd")) => Some(Source::Process),
        (Some("file_event"), None | Some("auditd")) => Some(Source::File),
        (Some("network_connection"), None | Some("auditd")) => Some(Source::Network),
        _ => None,
    };
    source.filter(|_| is_linux).ok_or_else(|| {
        let parts = [product, category, service].into_iter().flatten();
        let name = parts.collect::<Vec<_>>().join("/");
        let line = line_of_key(document, "logsource");
        Mistake::foreign(line, if name.is_empty() { "(none)" } else { &name })
    })
}

/// Name of a rule in alerts.
fn id(parsed: &SigmaRule) -> String {
    one_line(parsed.id.as_ref().unwrap_or(&parsed.title))
}

/// What is kept of a rule.
fn rule(parsed: &SigmaRule, source: Source, used: &[&str]) -> Rule {
    let level = parsed.level.map_or(Level::Medium, |level| match level {
        rsigma_parser::Level::Informational => Level::Informational,
        rsigma_parser::Level::Low => Level::Low,
        rsigma_parser::Level::Medium => Level::Medium,
        rsigma_parser::Level::High => Level::High,
        rsigma_parser::Level::Critical => Level::Critical,
    });
    let mut absent_fields = Vec::new();
    if let Some(known) = source.fields() {
        let absent = used.iter().filter(|name| !known.contains(name));
        absent_fields = absent.map(|&name| name.to_owned()).collect();
        absent_fields.sort_unstable();
        absent_fields.dedup();
    }
    Rule {
        id: id(parsed),
        name: parsed.name.clone(),
        title: one_line(&parsed.title),
        author: parsed.author.as_deref().map(one_line),
        level,
        tags: parsed.tags.iter().map(|tag| one_line(tag)).collect(),
        source: Some(source),
        absent_fields,
    }
}

fn plain(value: Json) -> String {
    match value {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
