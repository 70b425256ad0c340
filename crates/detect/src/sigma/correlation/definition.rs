//! A correlation rule as it is written, checked.
//!
//! The document is read here and not by `rsigma-parser`, which skips what it does not know: a condition without one of
//! its bounds would match other events than its author means.

mod written;

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::window::max_bytes;
use crate::sigma::mistake::line_of_key;
use crate::sigma::{Level, Mistake, Rule, one_line};
use written::{Bounds, Document, Section};

/// Most rules that one correlation refers to, and most fields by which it groups or whose values it counts.
const MAX_REFERENCES: usize = 64;
const MAX_FIELDS: usize = 8;
/// Most events or values that a condition counts.
const MAX_COUNT: f64 = 10_000.0;
/// Longest time.
const MAX_DAYS: u64 = 366;
/// Most bytes of a value by which events are grouped, or that is counted.
pub(super) const MAX_VALUE_BYTES: usize = 256;

/// What a correlation looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    EventCount,
    ValueCount,
    Temporal,
    TemporalOrdered,
    ValueSum,
    ValueAvg,
}

impl Kind {
    const ALL: [(&'static str, Self); 6] = [
        ("event_count", Self::EventCount),
        ("value_count", Self::ValueCount),
        ("temporal", Self::Temporal),
        ("temporal_ordered", Self::TemporalOrdered),
        ("value_sum", Self::ValueSum),
        ("value_avg", Self::ValueAvg),
    ];

    /// Name in rules.
    pub(super) fn name(self) -> &'static str {
        let named = Self::ALL.into_iter().find(|(_, kind)| *kind == self);
        named.map_or("", |(name, _)| name)
    }

    fn looks_at_values(self) -> bool {
        matches!(self, Self::ValueCount | Self::ValueSum | Self::ValueAvg)
    }

    fn counts(self) -> bool {
        !matches!(self, Self::ValueSum | Self::ValueAvg)
    }
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    name: &'static str,
    number: f64,
}

impl Bound {
    #[expect(
        clippy::float_cmp,
        reason = "counts are exact, and sums of the same numbers are the same"
    )]
    fn holds(self, measure: f64) -> bool {
        match self.name {
            "gt" => measure > self.number,
            "gte" => measure >= self.number,
            "lt" => measure < self.number,
            "lte" => measure <= self.number,
            "eq" => measure == self.number,
            _ => measure != self.number,
        }
    }
}

/// When a correlation matches.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) kind: Kind,
    /// All of them must hold.
    bounds: Vec<Bound>,
}

impl Condition {
    /// Whether the condition holds for a measure.
    pub(super) fn holds(&self, measure: f64) -> bool {
        self.bounds.iter().all(|bound| bound.holds(measure))
    }

    /// Whether the condition holds for no measure, or for no count up to a number.
    fn never_holds(&self, most: usize) -> bool {
        if self.kind.counts() {
            let counts = (0..=most).filter_map(|count| u32::try_from(count).ok());
            return !counts.map(f64::from).any(|count| self.holds(count));
        }
        // Numbers that hold begin or end at a bound.
        let numbers = self.bounds.iter().map(|bound| bound.number);
        let mut numbers = numbers.flat_map(|number| [number.next_down(), number, number.next_up()]);
        !numbers.any(|number| self.holds(number))
    }

    /// Number of events or values that decide: one more than the greatest that is compared.
    pub(super) fn most(&self) -> usize {
        let numbers = self.bounds.iter().map(|bound| bound.number);
        let greatest = numbers.fold(0.0, f64::max).min(MAX_COUNT);
        // It is at most 10,000.
        let mut most = 1;
        while f64::from(most) <= greatest {
            most += 1;
        }
        usize::try_from(most).unwrap_or(1)
    }
}

/// A field by which events are grouped, or whose values are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Field {
    /// The name in the rule: an alias, or that of the field.
    pub(super) name: String,
    /// Name in events of each rule, by its number in the correlation.
    pub(super) of_rule: Vec<String>,
}

/// A correlation rule. The rules that it refers to are names yet.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) rule: Rule,
    pub(super) references: Vec<Reference>,
    pub(super) group_by: Vec<Field>,
    /// Fields whose values are counted together, or whose numbers are summed.
    pub(super) fields: Vec<Field>,
    pub(super) timespan_ms: u64,
    pub(super) condition: Condition,
    /// Whether the rules make alerts of their own too.
    pub(super) generates: bool,
}

/// A rule that a correlation refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Id, name or title.
    pub(super) name: String,
    /// Line in the document.
    pub(super) line: usize,
}

impl Definition {
    /// The correlation rule of a document.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) fn parse(document: &str) -> Result<Self, Mistake> {
        let line = line_of_key(document, "correlation");
        let read: Result<Document, _> = yaml_serde::from_str(document);
        let read = read.map_err(|error| {
            let line = error.location().map_or(line, |location| location.line());
            Mistake::new(
                line,
                error.to_string(),
                "see the Sigma specification, \"Correlation Rules\"",
            )
        })?;
        let kind = kind(&read.correlation, document)?;
        let references = references(&read.correlation, document)?;
        let names = Names {
            references: &references,
            aliases: &read.correlation.aliases,
            document,
        };
        names.check()?;
        let group_by = names.fields(read.correlation.group_by.as_slice(), "group-by")?;
        let bounds = read.correlation.condition.as_ref();
        let fields = bounds.map_or(&[][..], |bounds| bounds.field.as_slice());
        let fields = names.fields(fields, "field")?;
        let condition = condition(kind, bounds, &fields, references.len(), document)?;
        let definition = Self {
            timespan_ms: timespan_ms(&read.correlation, document)?,
            generates: read.generate || read.correlation.generate,
            rule: rule(read, document)?,
            references,
            group_by,
            fields,
            condition,
        };
        Ok(definition)
    }

    /// Most bytes of a group, about.
    pub(super) fn max_group_bytes(&self) -> usize {
        let key = (self.group_by.len() + 1) * 2 * (MAX_VALUE_BYTES + 64);
        let values = self.fields.len() * MAX_VALUE_BYTES;
        let (rules, most) = (self.references.len(), self.condition.most());
        key.saturating_add(max_bytes(self.condition.kind, rules, most, values))
    }

    /// A number that another definition does not have, for what is kept between runs.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let names = self.references.iter().map(|reference| &reference.name);
        names.collect::<Vec<_>>().hash(&mut hasher);
        (&self.group_by, &self.fields, self.timespan_ms).hash(&mut hasher);
        self.condition.kind.hash(&mut hasher);
        for bound in &self.condition.bounds {
            (bound.name, bound.number.to_bits()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn kind(section: &Section, document: &str) -> Result<Kind, Mistake> {
    let line = line_of_key(document, "type");
    let known = Kind::ALL.into_iter();
    let kind = known
        .filter(|(name, _)| *name == section.r#type)
        .map(|(_, kind)| kind)
        .next();
    kind.ok_or_else(|| match &*section.r#type {
        "value_percentile" | "value_median" => Mistake::new(
            line,
            format!(
                "correlations of type `{}` are not supported",
                section.r#type
            ),
            "compare with value_count, value_sum or value_avg",
        ),
        other => Mistake::new(
            line,
            format!("`{other}` is not a type of correlations"),
            "write event_count, value_count, temporal, temporal_ordered, value_sum or value_avg",
        ),
    })
}

fn references(section: &Section, document: &str) -> Result<Vec<Reference>, Mistake> {
    let names = section.rules.as_slice();
    let line = line_of_key(document, "rules");
    if names.is_empty() || names.len() > MAX_REFERENCES {
        let reason = format!("the correlation refers to {} rules", names.len());
        return Err(Mistake::new(
            line,
            reason,
            "list 1 to 64 ids or names of rules",
        ));
    }
    let references = names.iter().map(|name| Reference {
        name: name.clone(),
        line: line_from(document, line, name),
    });
    Ok(references.collect())
}

/// First line with a text, from a line on, or that line.
fn line_from(document: &str, line: usize, text: &str) -> usize {
    let lines = document.lines().zip(1..).skip(line - 1);
    let mut found = lines.filter(|(content, _)| content.contains(text));
    found.next().map_or(line, |(_, number)| number)
}

/// Names of fields.
#[derive(Clone, Copy, Debug)]
struct Names<'d> {
    references: &'d [Reference],
    aliases: &'d BTreeMap<String, BTreeMap<String, String>>,
    document: &'d str,
}

impl Names<'_> {
    /// Checks that each alias is about rules of the correlation.
    fn check(self) -> Result<(), Mistake> {
        for (alias, fields) in self.aliases {
            let known = |name: &String| self.references.iter().any(|rule| rule.name == *name);
            if let Some(name) = fields.keys().find(|name| !known(name)) {
                return Err(Mistake::new(
                    line_of_key(self.document, alias),
                    format!("the alias `{alias}` names `{name}`, which is not in `rules`"),
                    "name the rules as `rules` does",
                ));
            }
        }
        Ok(())
    }

    fn fields(self, names: &[String], key: &str) -> Result<Vec<Field>, Mistake> {
        if names.len() > MAX_FIELDS {
            return Err(Mistake::new(
                line_of_key(self.document, key),
                format!("`{key}` has {} fields", names.len()),
                "name at most 8 fields",
            ));
        }
        let field = |name: &String| {
            let alias = self.aliases.get(name);
            let of_rule = self.references.iter().map(|rule| {
                let field = alias.and_then(|fields| fields.get(&rule.name));
                field.unwrap_or(name).clone()
            });
            Field {
                name: name.clone(),
                of_rule: of_rule.collect(),
            }
        };
        Ok(names.iter().map(field).collect())
    }
}

fn condition(
    kind: Kind,
    written: Option<&Bounds>,
    fields: &[Field],
    rules: usize,
    document: &str,
) -> Result<Condition, Mistake> {
    let line = match written {
        Some(_) => line_of_key(document, "condition"),
        None => line_of_key(document, "correlation"),
    };
    let refuse = |reason: &str, advice| Err(Mistake::new(line, reason, advice));
    let bounds = written.map(|bounds| {
        [
            ("gt", bounds.gt),
            ("gte", bounds.gte),
            ("lt", bounds.lt),
            ("lte", bounds.lte),
            ("eq", bounds.eq),
            ("neq", bounds.neq),
        ]
    });
    let bounds = bounds.into_iter().flatten();
    let mut bounds: Vec<Bound> = bounds
        .filter_map(|(name, number)| number.map(|number| Bound { name, number }))
        .collect();
    let is_temporal = matches!(kind, Kind::Temporal | Kind::TemporalOrdered);
    if bounds.is_empty() && written.is_none() && is_temporal {
        let number = u32::try_from(rules).map_or(f64::MAX, f64::from);
        bounds.push(Bound {
            name: "gte",
            number,
        });
    }
    if bounds.is_empty() {
        return refuse(
            "the correlation has no condition",
            "write `condition:` with gt, gte, lt, lte, eq or neq and a number",
        );
    }
    match (kind.looks_at_values(), fields.len()) {
        (true, 0) => {
            return refuse(
                "the condition has no field",
                "write `field:` below `condition:`",
            );
        }
        (false, 1..) => {
            return refuse(
                "only conditions about values have a field",
                "remove it, or write a correlation of type value_count",
            );
        }
        (true, 2..) if kind != Kind::ValueCount => {
            return refuse("the condition has several fields", "name one");
        }
        _ => {}
    }
    if bounds.iter().any(|bound| !bound.number.is_finite()) {
        return refuse("the number is not finite", "write a number");
    }
    let condition = Condition { kind, bounds };
    if kind.counts() {
        if condition.holds(0.0) || condition.bounds.iter().all(|bound| bound.name == "neq") {
            return refuse(
                "the condition holds without any event: events are evaluated as they come",
                "write `gt`, `gte` or `eq` with a number above zero",
            );
        }
        if condition
            .bounds
            .iter()
            .any(|bound| bound.number > MAX_COUNT)
        {
            return refuse(
                "the condition counts more than 10000",
                "count at most 10000 events or values",
            );
        }
    }
    let most = match is_temporal {
        true => rules,
        false => condition.most(),
    };
    if condition.never_holds(most) {
        return refuse(
            "the condition never holds",
            "write numbers that an event can reach; those of temporal correlations count the listed rules",
        );
    }
    Ok(condition)
}

/// # Source
/// Sigma specification 2.1.0, "Time Selection".
fn timespan_ms(section: &Section, document: &str) -> Result<u64, Mistake> {
    let text = section.timespan.trim();
    let units = [
        ("s", 1),
        ("m", 60),
        ("h", 3600),
        ("d", 86_400),
        ("w", 604_800),
    ];
    let seconds = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    let line = match line_of_key(document, "timespan") {
        1 => line_of_key(document, "timeframe"),
        line => line,
    };
    match seconds {
        Some(seconds) if (1..=MAX_DAYS * 86_400).contains(&seconds) => Ok(seconds * 1000),
        Some(_) => Err(Mistake::new(
            line,
            format!("the timespan `{text}` is not between 1s and {MAX_DAYS}d"),
            "write another timespan",
        )),
        None => Err(Mistake::new(
            line,
            format!("`{text}` is not a timespan"),
            "write a number and s, m, h, d or w, as 90m",
        )),
    }
}

fn rule(read: Document, document: &str) -> Result<Rule, Mistake> {
    let level = match read.level {
        None => Level::Medium,
        Some(name) => {
            let known = Level::ALL.into_iter().find(|level| level.name() == name);
            known.ok_or_else(|| {
                Mistake::new(
                    line_of_key(document, "level"),
                    format!("`{name}` is not a level"),
                    "write informational, low, medium, high or critical",
                )
            })?
        }
    };
    if read.title.trim().is_empty() {
        let reason = "the rule has no title";
        return Err(Mistake::new(
            line_of_key(document, "title"),
            reason,
            "write one",
        ));
    }
    let mut seen = HashSet::new();
    Ok(Rule {
        id: one_line(read.id.as_ref().unwrap_or(&read.title)),
        name: read.name,
        title: one_line(&read.title),
        author: read.author.as_deref().map(one_line),
        level,
        tags: read
            .tags
            .iter()
            .map(|tag| one_line(tag))
            .filter(|tag| seen.insert(tag.clone()))
            .collect(),
        source: None,
        absent_fields: Vec::new(),
    })
}
