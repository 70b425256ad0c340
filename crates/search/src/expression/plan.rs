//! What every event that matches an expression contains: for the index, and for a filter on text.

use audit::ids::{Arch, Syscall};
use audit::table;
use bstr::{ByteSlice as _, Finder};
use logs::event_values::{Column, ENRICHED};
use logs::index::Condition;

use super::field::{Kind, Source};
use super::{Expression, Operator, Test, Value};

/// Archs whose syscalls have names.
const ARCHS: [Arch; 9] = [
    Arch::X86_64,
    Arch::I386,
    Arch::AARCH64,
    Arch::ARM,
    Arch::PPC64,
    Arch::PPC64LE,
    Arch::S390X,
    Arch::RISCV64,
    Arch::RISCV32,
];

/// Numbers of a syscall on all archs.
pub(crate) fn syscall_numbers(name: &str) -> impl Iterator<Item = Syscall> + '_ {
    ARCHS
        .into_iter()
        .filter_map(|arch| table::syscall_number(arch, name.as_bytes()))
}

/// What text must contain.
#[derive(Clone, Debug)]
pub(crate) enum TextPattern {
    /// Anything.
    Anything,
    /// One of these strings.
    OneOf(Vec<Finder<'static>>),
    /// One of these strings, followed by a digit.
    BeforeDigit(Vec<Finder<'static>>),
    /// All of these.
    All(Vec<Self>),
    /// At least one of these.
    AnyOf(Vec<Self>),
}

impl TextPattern {
    /// Whether a text may contain a match.
    pub(crate) fn may_match(&self, text: &[u8]) -> bool {
        match self {
            Self::Anything => true,
            Self::OneOf(words) => words.iter().any(|word| word.find(text).is_some()),
            Self::BeforeDigit(words) => words.iter().any(|word| is_before_digit(word, text)),
            Self::All(parts) => parts.iter().all(|part| part.may_match(text)),
            Self::AnyOf(parts) => parts.iter().any(|part| part.may_match(text)),
        }
    }
}

fn is_before_digit(word: &Finder<'_>, text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = word.find(rest) {
        rest = rest.get(at + word.needle().len()..).unwrap_or_default();
        if rest.first().is_some_and(u8::is_ascii_digit) {
            return true;
        }
    }
    false
}

impl Expression {
    /// Condition that every matching event meets.
    pub(crate) fn condition(&self) -> Condition<'_> {
        match self {
            // A value that is absent cannot be looked up.
            Self::Everything | Self::Not(_) => Condition::Any,
            Self::Test(test) => test.condition(),
            Self::And(parts) => Condition::All(parts.iter().map(Self::condition).collect()),
            Self::Or(parts) => Condition::AnyOf(parts.iter().map(Self::condition).collect()),
        }
    }

    /// Pattern that the text of every matching event meets.
    pub(crate) fn text_pattern(&self) -> TextPattern {
        match self {
            Self::Everything | Self::Not(_) => TextPattern::Anything,
            Self::Test(test) => test.text_pattern(),
            Self::And(parts) => TextPattern::All(parts.iter().map(Self::text_pattern).collect()),
            Self::Or(parts) => TextPattern::AnyOf(parts.iter().map(Self::text_pattern).collect()),
        }
    }
}

impl Test {
    fn condition(&self) -> Condition<'_> {
        let column = match self.field.source {
            Source::Column(column) => column,
            Source::Serial => return self.serial(),
            _ => return Condition::Any,
        };
        match (&self.value, self.operator) {
            (Value::Text(text), Operator::Equal) => Condition::Value(column, text.clone()),
            (Value::Text(text), Operator::Contains) => Condition::contains(column, text),
            (Value::Number(number), Operator::Equal) if *number >= 0 || column == Column::Exit => {
                Condition::Value(column, number.to_string().into())
            }
            (Value::Account { name, ids }, Operator::Equal) => {
                let mut values: Vec<Vec<u8>> = ids.iter().map(|id| id.to_string().into()).collect();
                if let Some(name) = name {
                    values.push([&[ENRICHED], name.as_bytes()].concat());
                }
                any_value(column, values)
            }
            (Value::Syscall(name), Operator::Equal) => {
                let numbers = syscall_numbers(name);
                any_value(column, numbers.map(|number| number.0.to_string().into()))
            }
            _ => Condition::Any,
        }
    }

    fn serial(&self) -> Condition<'_> {
        match (&self.value, self.operator) {
            (Value::Number(serial), Operator::Equal) => {
                u32::try_from(*serial).map_or(Condition::Any, Condition::Serial)
            }
            _ => Condition::Any,
        }
    }

    fn text_pattern(&self) -> TextPattern {
        let Value::Text(wanted) = &self.value else {
            return self.number_pattern();
        };
        if !matches!(self.operator, Operator::Equal | Operator::Contains) {
            return TextPattern::Anything;
        }
        let text = match (self.field.kind, self.field.source) {
            (Kind::Success, _) => return success_pattern(wanted),
            // Addresses are recorded as bytes.
            (_, Source::Column(Column::Address)) => return TextPattern::Anything,
            (_, Source::Text | Source::Node) => return one_of([wanted.as_slice()]),
            (Kind::Type, _) if self.operator == Operator::Equal => {
                return one_of([[b"type=".as_slice(), wanted, b" "].concat()]);
            }
            // A name may be relative to the working directory, with `.` and `..`: only the last component is certain.
            (Kind::Path, _) => match (self.operator, wanted.rfind_byte(b'/')) {
                (Operator::Equal, Some(slash)) => wanted.get(slash + 1..).unwrap_or_default(),
                (_, None) => wanted,
                _ => return TextPattern::Anything,
            },
            _ => wanted,
        };
        // Socket paths are hex in any case, and unquoted values stay as they are.
        let hex: String = text.iter().map(|byte| format!("{byte:02X}")).collect();
        let lower = hex.to_ascii_lowercase();
        one_of([text, hex.as_bytes(), lower.as_bytes()])
    }

    fn number_pattern(&self) -> TextPattern {
        let name = self.field.name;
        if matches!(self.field.source, Source::Serial) || self.field.kind == Kind::Hex {
            return TextPattern::Anything;
        }
        match (&self.value, self.operator) {
            (Value::Number(number), Operator::Equal) => number_patterns(name, [*number]),
            // A negative number has a sign.
            (Value::Number(number), Operator::Less) if *number <= 0 => {
                one_of([format!("{name}=-")])
            }
            (Value::Number(number), Operator::AtMost) if *number < 0 => {
                one_of([format!("{name}=-")])
            }
            (Value::Account { name: account, ids }, Operator::Equal) => {
                let numbers = number_patterns(name, ids.iter().map(|&id| id.into()));
                match account {
                    None => numbers,
                    // The enriched part has the name, in quotes or without.
                    Some(account) => TextPattern::AnyOf(vec![numbers, one_of([account])]),
                }
            }
            (Value::Syscall(syscall), Operator::Equal) => {
                number_patterns(name, syscall_numbers(syscall).map(|number| number.0.into()))
            }
            _ => TextPattern::Anything,
        }
    }
}

/// Text of a result: it has several spellings.
fn success_pattern(wanted: &[u8]) -> TextPattern {
    let spellings = match wanted {
        b"yes" => ["yes", "success", "1"],
        b"no" => ["no", "failed", "0"],
        _ => return TextPattern::Anything,
    };
    let fields = ["success=", "res="].iter();
    one_of(fields.flat_map(|name| spellings.map(|spelling| format!("{name}{spelling}"))))
}

/// Text of a field that is one of these numbers: as the kernel writes it, or with leading zeros, which are also read.
fn number_patterns(name: &str, numbers: impl IntoIterator<Item = i64>) -> TextPattern {
    let mut words = Vec::new();
    for number in numbers {
        words.push(format!("{name}={number}"));
        if number == i64::from(u32::MAX) {
            words.push(format!("{name}=-1"));
        }
    }
    if words.is_empty() {
        return TextPattern::OneOf(Vec::new());
    }
    TextPattern::AnyOf(vec![
        one_of(words),
        TextPattern::BeforeDigit(vec![finder(format!("{name}=0"))]),
    ])
}

fn any_value<'a>(column: Column, values: impl IntoIterator<Item = Vec<u8>>) -> Condition<'a> {
    let values = values.into_iter();
    Condition::AnyOf(
        values
            .map(|value| Condition::Value(column, value))
            .collect(),
    )
}

fn one_of<T: AsRef<[u8]>>(words: impl IntoIterator<Item = T>) -> TextPattern {
    let mut words: Vec<Vec<u8>> = words.into_iter().map(|word| word.as_ref().into()).collect();
    words.sort();
    words.dedup();
    match words.iter().any(Vec::is_empty) {
        true => TextPattern::Anything,
        false => TextPattern::OneOf(words.iter().map(finder).collect()),
    }
}

fn finder(word: impl AsRef<[u8]>) -> Finder<'static> {
    Finder::new(word.as_ref()).into_owned()
}
