//! Compares events with expressions.

use audit::ids::{Arch, Syscall};
use audit::record::assemble::EventRecords;
use audit::record::decode::{Field as RecordField, FieldFinder, Record};
use audit::table;
use bstr::ByteSlice as _;

use super::field::{Field, Kind, Source};
use super::{Expression, Operator, Test, Value};
use crate::event_values::{self, ENRICHED};

impl Expression {
    /// Whether an event matches.
    pub fn matches(&self, event: &EventRecords) -> bool {
        match self {
            Self::Everything => true,
            Self::Test(test) => test.matches(event),
            Self::Not(inner) => !inner.matches(event),
            Self::And(parts) => parts.iter().all(|part| part.matches(event)),
            Self::Or(parts) => parts.iter().any(|part| part.matches(event)),
        }
    }

    /// Names of users and groups that this machine does not know: only records that name them match.
    pub fn unknown_accounts(&self) -> Vec<&str> {
        match self {
            Self::Everything => Vec::new(),
            Self::Test(test) => match &test.value {
                Value::Account {
                    name: Some(name),
                    ids,
                } if ids.is_empty() => vec![name],
                _ => Vec::new(),
            },
            Self::Not(inner) => inner.unknown_accounts(),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().flat_map(Self::unknown_accounts).collect()
            }
        }
    }
}

impl Test {
    fn matches(&self, event: &EventRecords) -> bool {
        let (mut exists, mut passes) = (false, false);
        for_each_value(&self.field, event, |value| {
            exists = true;
            passes |= self.accepts(&value);
        });
        match self.operator {
            Operator::NotEqual | Operator::ContainsNot => exists && !passes,
            _ => passes,
        }
    }

    /// Whether a value is equal, contains the text, or compares as asked. `!=` and `!~` compare as `=` and `~`.
    fn accepts(&self, value: &Found<'_>) -> bool {
        let text = value.text;
        match (&self.value, self.operator) {
            (Value::Text(wanted), Operator::Contains | Operator::ContainsNot) => {
                text.contains_str(wanted)
            }
            (Value::Text(wanted), _) => text == wanted.as_slice(),
            (Value::Number(wanted), _) => number(self.field.kind, text)
                .is_some_and(|number| self.operator.compares(number, *wanted)),
            (Value::Account { name, ids }, Operator::Equal | Operator::NotEqual) => {
                match text.strip_prefix(&[ENRICHED]) {
                    Some(enriched) => name
                        .as_ref()
                        .is_some_and(|name| enriched == name.as_bytes()),
                    None if name.is_some() && value.is_enriched => false,
                    None => id(text).is_some_and(|id| ids.contains(&id)),
                }
            }
            (Value::Account { ids, .. }, _) => ids.first().is_some_and(|wanted| {
                id(text).is_some_and(|id| self.operator.compares(id.into(), (*wanted).into()))
            }),
            (Value::Syscall(name), _) => value.arch.zip(id(text)).is_some_and(|(arch, number)| {
                table::syscall_number(Arch(arch), name.as_bytes()) == Some(Syscall(number))
            }),
        }
    }
}

impl Operator {
    /// Whether a number compares with another one; for `!=` as for `=`.
    pub(super) const fn compares(self, number: i64, wanted: i64) -> bool {
        match self {
            Self::Less => number < wanted,
            Self::AtMost => number <= wanted,
            Self::Greater => number > wanted,
            Self::AtLeast => number >= wanted,
            _ => number == wanted,
        }
    }
}

/// Passes the values of a field in an event to `found`.
pub fn values(field: &Field, event: &EventRecords, mut found: impl FnMut(&[u8])) {
    for_each_value(field, event, |value| found(value.text));
}

/// A value of an event.
struct Found<'a> {
    text: &'a [u8],
    /// Arch of the record, for syscalls.
    arch: Option<u32>,
    /// The record names its users itself.
    is_enriched: bool,
}

/// Passes the values of a field to `found`.
fn for_each_value(field: &Field, event: &EventRecords, mut found: impl FnMut(Found<'_>)) {
    let plain = |text| Found {
        text,
        arch: None,
        is_enriched: false,
    };
    match field.source {
        Source::Serial => found(plain(event.serial().0.to_string().as_bytes())),
        Source::Node => event.node().into_iter().for_each(|node| found(plain(node))),
        Source::Text => found(plain(event.text())),
        Source::Column(column) => {
            let arch = match field.kind {
                Kind::Syscall => arch(event),
                _ => None,
            };
            let is_enriched = field.kind == Kind::User && is_enriched(event);
            event_values::values_of(column, event, |text| {
                found(Found {
                    text,
                    arch,
                    is_enriched,
                });
            });
        }
        Source::Record => {
            let finder = FieldFinder::new(std::array::from_ref(&field.name));
            for record in event.records() {
                record_values(field, &finder, &record, &mut found);
            }
        }
    }
}

fn record_values(
    field: &Field,
    finder: &FieldFinder<'_>,
    record: &Record<'_>,
    found: &mut impl FnMut(Found<'_>),
) {
    // Arguments of a syscall are numbers, those of a program are text.
    if field.kind == Kind::Hex && record.kind == "EXECVE" {
        return;
    }
    let is_account = matches!(field.kind, Kind::User | Kind::Group);
    let enriched = || {
        let mut names = record.enrichment().map_while(Result::ok);
        names.find(|name| name.name.eq_ignore_ascii_case(field.name.as_bytes()))
    };
    let enriched = is_account.then(enriched).flatten();
    let mut pass = |of: &RecordField<'_>| {
        let Some(mut text) = event_values::decoded(record, of) else {
            return;
        };
        // A byte of 0 is between arguments: people write a blank.
        if field.name == "proctitle" && text.contains(&0) {
            text = text.replace([0], " ").into();
        }
        found(Found {
            text: &text,
            arch: None,
            is_enriched: enriched.is_some(),
        });
    };
    for of in finder.fields(record) {
        if of.name == field.name {
            pass(&of);
        } else if of.name == "msg" {
            let nested = record.nested_fields(&of).map_while(Result::ok);
            nested
                .filter(|of| of.name == field.name)
                .for_each(|of| pass(&of));
        }
    }
    if let Some(name) = enriched {
        let name = name.value.trim_with(|letter| letter == '"');
        let text = [&[ENRICHED], name].concat();
        found(Found {
            text: &text,
            arch: None,
            is_enriched: true,
        });
    }
}

/// The arch of an event.
pub fn arch(event: &EventRecords) -> Option<u32> {
    let arch = event.records().find_map(|record| record.field("arch"))?;
    u32::from_str_radix(arch.value.to_str().ok()?, 16).ok()
}

fn is_enriched(event: &EventRecords) -> bool {
    event.text().find_byte(ENRICHED).is_some()
}

/// A number in the base of its field. It has no sign but that of a negative one, as the kernel writes it: the index knows
/// no other.
fn number(kind: Kind, text: &[u8]) -> Option<i64> {
    if text.starts_with(b"+") || text.starts_with(b"-0") {
        return None;
    }
    let text = text.to_str().ok()?;
    match kind {
        Kind::Hex => u64::from_str_radix(text, 16).ok().map(u64::cast_signed),
        _ => text.parse().ok(),
    }
}

/// A user or group id. Some records write the unset one as -1.
fn id(text: &[u8]) -> Option<u32> {
    match text {
        b"-1" => Some(u32::MAX),
        [b'+', ..] => None,
        _ => text.to_str().ok()?.parse().ok(),
    }
}
