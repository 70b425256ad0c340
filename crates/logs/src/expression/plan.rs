//! What every event that matches an expression contains: for the index, and for a filter on text.

use audit::ids::{Arch, Syscall};
use audit::table;
use bstr::Finder;

use super::field::{Kind, Source};
use super::{Expression, Operator, Test, Value};
use crate::event_values::{Column, ENRICHED};
use crate::index::Condition;

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
pub fn syscall_numbers(name: &str) -> impl Iterator<Item = Syscall> + '_ {
    ARCHS
        .into_iter()
        .filter_map(|arch| table::syscall_number(arch, name.as_bytes()))
}

/// What text must contain.
#[derive(Clone, Debug)]
pub enum TextPattern {
    /// Anything.
    Anything,
    /// One of these strings.
    OneOf(Vec<Finder<'static>>),
    /// One of these strings, followed by a digit.
    BeforeDigit(Vec<Finder<'static>>),
    /// These bytes in hex.
    Hex(Box<HexPattern>),
    /// A field with a number that compares as asked, or with another value.
    Number(Box<NumberPattern>),
    /// All of these.
    All(Vec<Self>),
    /// At least one of these.
    AnyOf(Vec<Self>),
}

impl TextPattern {
    /// Whether a text may contain a match.
    pub fn may_match(&self, text: &[u8]) -> bool {
        match self {
            Self::Anything => true,
            Self::OneOf(words) => words.iter().any(|word| word.find(text).is_some()),
            Self::BeforeDigit(words) => words.iter().any(|word| is_before_digit(word, text)),
            Self::Hex(pattern) => pattern.is_in(text),
            Self::Number(pattern) => pattern.may_match(text),
            Self::All(parts) => parts.iter().all(|part| part.may_match(text)),
            Self::AnyOf(parts) => parts.iter().any(|part| part.may_match(text)),
        }
    }
}

/// Hex digits, in upper or lower case, or both.
#[derive(Clone, Debug)]
pub struct HexPattern {
    hex: Vec<u8>,
    /// The longest part without letters, and where it begins.
    digits: Finder<'static>,
    start: usize,
}

impl HexPattern {
    fn new(bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let (mut longest, mut start) = ("", 0);
        let mut at = 0;
        for part in hex.split(|digit: char| digit.is_ascii_alphabetic()) {
            if part.len() > longest.len() {
                (longest, start) = (part, at);
            }
            at += part.len() + 1;
        }
        Self {
            digits: finder(longest),
            start,
            hex: hex.into_bytes(),
        }
    }

    fn is_in(&self, text: &[u8]) -> bool {
        if self.digits.needle().is_empty() {
            let mut windows = text.windows(self.hex.len());
            return windows.any(|window| window.eq_ignore_ascii_case(&self.hex));
        }
        let mut from = 0;
        while let Some(at) = text.get(from..).and_then(|rest| self.digits.find(rest)) {
            let at = from + at;
            let found = at.checked_sub(self.start);
            let found = found.and_then(|start| text.get(start..start + self.hex.len()));
            if found.is_some_and(|found| found.eq_ignore_ascii_case(&self.hex)) {
                return true;
            }
            from = at + 1;
        }
        false
    }
}

/// A comparison of the numbers of a field.
#[derive(Clone, Debug)]
pub struct NumberPattern {
    /// The name with its `=`.
    name: Finder<'static>,
    radix: u32,
    operator: Operator,
    /// One number, unless the operator is `!=`.
    wanted: Vec<i64>,
}

impl NumberPattern {
    fn may_match(&self, text: &[u8]) -> bool {
        let mut start = 0;
        while let Some(at) = text.get(start..).and_then(|rest| self.name.find(rest)) {
            let at = start + at;
            start = at + self.name.needle().len();
            let before = at.checked_sub(1).and_then(|at| text.get(at));
            // The end of another name.
            let is_other = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
            let value = text.get(start..).unwrap_or_default();
            if !is_other && self.accepts(value) {
                return true;
            }
        }
        false
    }

    fn accepts(&self, value: &[u8]) -> bool {
        let Some(number) = self.number(value) else {
            return true;
        };
        // Some records write an unset id as -1.
        self.compares(number) || number == -1 && self.compares(u32::MAX.into())
    }

    /// The number that the value at the start of a text is; `None` if it may be something else.
    fn number(&self, value: &[u8]) -> Option<i64> {
        let (digits, is_negative) = match value.strip_prefix(b"-") {
            Some(digits) => (digits, true),
            None => (value, false),
        };
        let mut number = 0_u64;
        let mut len = 0;
        for byte in digits {
            let Some(digit) = char::from(*byte).to_digit(self.radix) else {
                break;
            };
            number = number
                .checked_mul(self.radix.into())?
                .checked_add(digit.into())?;
            len += 1;
        }
        let is_plain = matches!(digits.get(len), Some(b' ' | b'\n') | None)
            && !(is_negative && (self.radix != 10 || digits.starts_with(b"0")));
        if len == 0 || !is_plain {
            return None;
        }
        match (self.radix, is_negative) {
            (10, false) => number.try_into().ok(),
            (10, true) => 0_i64.checked_sub_unsigned(number),
            _ => Some(number.cast_signed()),
        }
    }

    fn compares(&self, number: i64) -> bool {
        if self.operator == Operator::NotEqual {
            return self.wanted.iter().all(|wanted| number != *wanted);
        }
        let mut wanted = self.wanted.iter();
        wanted.any(|wanted| self.operator.compares(number, *wanted))
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
    pub fn condition(&self) -> Condition<'_> {
        match self {
            // A value that is absent cannot be looked up.
            Self::Everything | Self::Not(_) => Condition::Any,
            Self::Test(test) => test.condition(),
            Self::And(parts) => Condition::All(parts.iter().map(Self::condition).collect()),
            Self::Or(parts) => Condition::AnyOf(parts.iter().map(Self::condition).collect()),
        }
    }

    /// Pattern that the text of every matching event meets.
    pub fn text_pattern(&self) -> TextPattern {
        match self {
            Self::Everything | Self::Not(_) => TextPattern::Anything,
            Self::Test(test) => test.text_pattern(),
            Self::And(parts) => TextPattern::All(parts.iter().map(Self::text_pattern).collect()),
            Self::Or(parts) => TextPattern::AnyOf(parts.iter().map(Self::text_pattern).collect()),
        }
    }
}

/// The longest of the parts between separators.
fn longest_part(text: &[u8], separator: u8) -> &[u8] {
    let parts = text.split(|&byte| byte == separator);
    parts.max_by_key(|part| part.len()).unwrap_or_default()
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
            // A name may be relative to the working directory, with `.` and `..`: parts of one component are certain.
            (Kind::Path, _) => longest_part(wanted, b'/'),
            // The record has no blanks between arguments.
            _ if self.field.name == "proctitle" => longest_part(wanted, b' '),
            _ => wanted,
        };
        if text.is_empty() {
            return TextPattern::Anything;
        }
        // In hex, or as it is, also where hex is expected.
        TextPattern::AnyOf(vec![
            one_of([text]),
            TextPattern::Hex(Box::new(HexPattern::new(text))),
        ])
    }

    fn number_pattern(&self) -> TextPattern {
        let name = self.field.name;
        if matches!(self.field.source, Source::Serial) {
            return TextPattern::Anything;
        }
        let compared = |wanted: Vec<i64>| {
            TextPattern::Number(Box::new(NumberPattern {
                name: finder(format!("{name}=")),
                radix: if self.field.kind == Kind::Hex { 16 } else { 10 },
                operator: self.operator,
                wanted,
            }))
        };
        match (&self.value, self.operator) {
            (Value::Number(number), Operator::Equal) if self.field.kind != Kind::Hex => {
                number_patterns(name, [*number])
            }
            (Value::Number(number), _) => compared(vec![*number]),
            (Value::Account { ids, .. }, Operator::NotEqual) => TextPattern::AnyOf(vec![
                compared(ids.iter().map(|&id| id.into()).collect()),
                // Names count where a record has them.
                one_of([[ENRICHED]]),
            ]),
            (
                Value::Account { ids, .. },
                Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast,
            ) => compared(ids.iter().map(|&id| id.into()).collect()),
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
