//! [`Engine`] by the crates `rsigma-parser` and `rsigma-eval`.
//!
//! Each log source has an engine; records have one for each record type and one for the rules that name no type, so
//! that a record meets only the rules that can match it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use regex::RegexBuilder;
use rsigma_eval::{CompiledRule, Event, EventValue, ResultBody, compile_rule};
use rsigma_parser::{
    ConditionExpr, Detection, DetectionItem, Modifier, SelectorPattern, SigmaRule, SigmaValue,
    parse_sigma_yaml,
};
use serde_json::{Map, Value as Json};

use super::fields::{Fields, Value};
use super::mistake::{line_of, line_of_key, one_line};
use super::requirement::{TYPE, record_types, selects};
use super::{Engine, Level, Match, Mistake, Rule, Source};

/// Most bytes that a regular expression takes when it is compiled.
const MAX_REGEX_BYTES: usize = 256 << 10;
/// Most regular expressions in a rule.
const MAX_REGEXES: usize = 256;
/// Attribute by which a result names its rule.
const NUMBER: &str = "tollgate";

/// The engine.
#[derive(Default)]
pub struct Rsigma {
    rules: Vec<Rule>,
    ids: HashSet<String>,
    /// Engines of log sources with one engine; of records, that of the rules without a type.
    by_source: BTreeMap<Source, rsigma_eval::Engine>,
    /// Engines of records by their type, in upper case.
    by_type: HashMap<String, rsigma_eval::Engine>,
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
        let parsed = parsed(document)?;
        let source = source(&parsed, document)?;
        let id = id(&parsed);
        if self.ids.contains(&id) {
            return Err(Mistake::new(
                line_of_key(document, "id"),
                format!("another rule has the id `{id}`"),
                "remove one of them, or give it an id of its own",
            ));
        }
        check_condition(&parsed, document)?;
        let mut items = Vec::new();
        for detection in parsed.detection.named.values() {
            collect_items(detection, &mut items);
        }
        check_items(&items, document)?;
        let mut compiled = compile_rule(&parsed).map_err(|error| {
            Mistake::new(
                line_of_key(document, "detection"),
                error.to_string(),
                "correct the detection",
            )
        })?;
        let number = Json::from(self.rules.len());
        compiled.custom_attributes = Arc::new(HashMap::from([(NUMBER.to_owned(), number)]));
        compiled.include_event = false;
        self.store(source, &parsed, compiled);
        self.ids.insert(id);
        self.rules
            .push(rule(&parsed, source, &items_fields(&items)));
        Ok(())
    }

    fn rules(&self) -> &[Rule] {
        &self.rules
    }

    fn find(&self, source: Source, event: &Fields<'_>, found: &mut Vec<Match>) {
        let by_type = match source {
            Source::Record => event.get_text(TYPE).and_then(|kind| self.by_type.get(kind)),
            _ => None,
        };
        for engine in by_type.into_iter().chain(self.by_source.get(&source)) {
            let results = engine.evaluate(event);
            found.extend(results.into_iter().filter_map(|result| {
                let rule = result.header.custom_attributes.get(NUMBER)?.as_u64()?;
                let ResultBody::Detection(body) = result.body else {
                    return None;
                };
                let fields = body.matched_fields.into_iter();
                let fields = fields.map(|field| (field.field, plain(field.value)));
                Some(Match {
                    rule: usize::try_from(rule).ok()?,
                    fields: fields.collect(),
                })
            }));
        }
    }
}

impl Rsigma {
    fn store(&mut self, source: Source, parsed: &SigmaRule, compiled: CompiledRule) {
        let types = match source {
            Source::Record => record_types(&parsed.detection),
            _ => None,
        };
        match types {
            None => {
                let engine = self.by_source.entry(source);
                engine.or_default().add_compiled_rule(compiled);
            }
            Some(types) => {
                for kind in types {
                    let engine = self.by_type.entry(kind).or_default();
                    engine.add_compiled_rule(compiled.clone());
                }
            }
        }
    }
}

/// The rule of a document.
fn parsed(document: &str) -> Result<SigmaRule, Mistake> {
    let other_kinds = [
        ("correlation", "correlation rules are not supported"),
        ("filter", "filter rules are not supported"),
        ("action", "collections with `action` are not supported"),
    ];
    let top_level = |key: &str| {
        let begins = |line: &str| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(':'))
        };
        document.lines().any(begins)
    };
    for (key, reason) in other_kinds {
        if top_level(key) {
            let line = line_of_key(document, key);
            return Err(Mistake::new(
                line,
                reason,
                "write each rule as a document of its own",
            ));
        }
    }
    let mistaken = |message: &str| {
        let (line, advice) = located(message, document);
        Mistake::new(line, message, advice)
    };
    let mut collection =
        parse_sigma_yaml(document).map_err(|error| mistaken(&error.to_string()))?;
    if let Some(error) = collection.errors.first() {
        return Err(mistaken(error));
    }
    match (collection.rules.pop(), collection.rules.len()) {
        (Some(rule), 0) => Ok(rule),
        _ => Err(Mistake::new(
            1,
            "expected one rule in the document",
            "separate rules by a line `---`",
        )),
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
fn source(rule: &SigmaRule, document: &str) -> Result<Source, Mistake> {
    let log_source = &rule.logsource;
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

/// Checks that the names in the conditions exist, and that every condition can match.
fn check_condition(rule: &SigmaRule, document: &str) -> Result<(), Mistake> {
    let mut pending: Vec<&ConditionExpr> = rule.detection.conditions.iter().collect();
    let line = line_of_key(document, "condition");
    if pending.is_empty() {
        return Err(Mistake::new(
            line,
            "the detection has no condition",
            "add a condition",
        ));
    }
    if rule.detection.timeframe.is_some() {
        return Err(Mistake::new(
            line_of_key(document, "timeframe"),
            "`timeframe` and aggregations are not supported",
            "write a rule without them",
        ));
    }
    while let Some(condition) = pending.pop() {
        let names = || rule.detection.named.keys();
        match condition {
            ConditionExpr::And(parts) | ConditionExpr::Or(parts) => pending.extend(parts),
            ConditionExpr::Not(part) => pending.push(part),
            ConditionExpr::Identifier(name) if !rule.detection.named.contains_key(name) => {
                let reason =
                    format!("the condition names `{name}`, which the detection does not have");
                return Err(Mistake::new(line, reason, "correct the name"));
            }
            ConditionExpr::Identifier(_) => {}
            ConditionExpr::Selector { pattern, .. } => {
                if !names().any(|name| selects(pattern, name)) {
                    let pattern = match pattern {
                        SelectorPattern::Them => "them",
                        SelectorPattern::Pattern(pattern) => pattern,
                    };
                    let reason =
                        format!("no name in the detection is like `{pattern}` of the condition");
                    return Err(Mistake::new(line, reason, "correct the pattern"));
                }
            }
        }
    }
    Ok(())
}

fn collect_items<'r>(detection: &'r Detection, items: &mut Vec<&'r DetectionItem>) {
    match detection {
        Detection::AllOf(all) => items.extend(all),
        Detection::AnyOf(parts) | Detection::And(parts) => {
            parts.iter().for_each(|part| collect_items(part, items));
        }
        Detection::ArrayMatch { body, .. } => collect_items(body, items),
        Detection::Conditional { named, .. } => {
            named.values().for_each(|part| collect_items(part, items));
        }
        Detection::Keywords(_) => {}
    }
}

/// Checks what the engine would accept, but not as the author means it, or at too high a price.
fn check_items(items: &[&DetectionItem], document: &str) -> Result<(), Mistake> {
    let mut regexes = 0;
    for item in items {
        let has = |modifier| item.field.modifiers.contains(&modifier);
        let line = || line_of_key(document, item.field.name.as_deref().unwrap_or_default());
        if has(Modifier::Expand) {
            return Err(Mistake::new(
                line(),
                "the placeholders of `expand` have no values here",
                "write the values into the rule",
            ));
        }
        if !has(Modifier::Re) {
            continue;
        }
        for value in &item.values {
            let SigmaValue::String(pattern) = value else {
                continue;
            };
            let line = match line_of(document, &pattern.original) {
                1 => line(),
                line => line,
            };
            regexes += 1;
            if regexes > MAX_REGEXES {
                return Err(Mistake::new(
                    line,
                    format!("the rule has more than {MAX_REGEXES} regular expressions"),
                    "split the rule",
                ));
            }
            let compiled = RegexBuilder::new(&pattern.original)
                .size_limit(MAX_REGEX_BYTES)
                .nest_limit(64)
                .build();
            if let Err(error) = compiled {
                return Err(Mistake::new(
                    line,
                    format!(
                        "the regular expression cannot be used: {}",
                        last_line(&error.to_string())
                    ),
                    "correct or shorten it; lookaround and backreferences are not supported",
                ));
            }
        }
    }
    Ok(())
}

fn items_fields<'r>(items: &[&'r DetectionItem]) -> Vec<&'r str> {
    let names = items.iter();
    names
        .filter_map(|item| item.field.name.as_deref())
        .collect()
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
        title: one_line(&parsed.title),
        author: parsed.author.as_deref().map(one_line),
        level,
        tags: parsed.tags.iter().map(|tag| one_line(tag)).collect(),
        source,
        absent_fields,
    }
}

/// The last line of an error of a regular expression, which tells the reason.
fn last_line(text: &str) -> &str {
    let last = text.lines().next_back().unwrap_or_default();
    last.strip_prefix("error: ").unwrap_or(last)
}

fn plain(value: Json) -> String {
    match value {
        Json::String(text) => text,
        other => other.to_string(),
    }
}

impl Event for Fields<'_> {
    fn get_field(&self, path: &str) -> Option<EventValue<'_>> {
        let text = |text: &'_ Cow<'_, str>| EventValue::Str(Cow::Owned(text.to_string()));
        Some(match self.get(path)? {
            Value::Text(text) => EventValue::Str(Cow::Borrowed(text)),
            Value::Texts(texts) => EventValue::Array(texts.iter().map(text).collect()),
        })
    }

    fn any_string_value(&self, pred: &dyn Fn(&str) -> bool) -> bool {
        self.own_texts().any(pred)
    }

    fn all_string_values(&self) -> Vec<Cow<'_, str>> {
        self.own_texts().map(Cow::Borrowed).collect()
    }

    fn visit_string_values(&self, visit: &mut dyn FnMut(&str)) {
        self.own_texts().for_each(visit);
    }

    fn to_json(&self) -> Json {
        let member = |(name, value): (&str, &Value<'_>)| {
            let value = match value {
                Value::Text(text) => Json::from(&**text),
                Value::Texts(texts) => texts.iter().map(|text| Json::from(&**text)).collect(),
            };
            (name.to_owned(), value)
        };
        Json::Object(self.iter().map(member).collect::<Map<_, _>>())
    }

    fn visit_top_level_keys(&self, visit: &mut dyn FnMut(&str)) -> bool {
        self.names().for_each(visit);
        true
    }
}

#[cfg(test)]
mod tests;
