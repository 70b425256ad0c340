//! The fields of an event's records, and a place among them.
//!
//! The stock tools find what an event says by moving through its fields, and what they find depends on where the last
//! search ended: a search goes on in the records behind, and one that fails may leave no place at all.

use bstr::ByteSlice as _;

use crate::accounts::Translations;
use crate::ctext::{self, low_32, low_i32, until_nul};
use crate::event::Record;
use crate::interpret::{Field, FieldType, Interpreter, KEY_SEPARATOR, Machine, of_field, unescape};
use crate::record_type as ty;

/// A field of a record.
#[derive(Clone, Debug)]
struct Entry {
    name: Vec<u8>,
    value: Vec<u8>,
    /// Its meaning, once it was asked for.
    text: Option<Vec<u8>>,
}

/// A record's fields.
#[derive(Clone, Debug, Default)]
struct Fields {
    kind: i32,
    entries: Vec<Entry>,
    /// The current field.
    at: usize,
    machine: Machine,
    syscall: i32,
    arguments: [u64; 2],
    names: Translations,
}

/// Where a field is: record and field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldPosition {
    record: usize,
    field: usize,
}

/// Fields of an event, and a place among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    records: Vec<Fields>,
    /// The current record.
    at: Option<usize>,
    cwd: Option<Vec<u8>>,
}

/// Splits the records of an event where the library sees the end of one.
pub(crate) fn events<'e>(records: impl Iterator<Item = Record<'e>>) -> Vec<Walk> {
    let mut events = Vec::new();
    let mut open = Walk::default();
    for record in records {
        let Some(fields) = Fields::new(&record, &mut open.cwd) else {
            if !open.records.is_empty() {
                open.records.push(Fields::default());
            }
            continue;
        };
        if open.records.is_empty() && fields.kind == ty::EOE {
            // The event was complete before its end.
            continue;
        }
        let ends = ty::ends_event(fields.kind);
        open.records.push(fields);
        if ends {
            events.push(std::mem::take(&mut open));
        }
    }
    if !open.records.is_empty() {
        events.push(open);
    }
    events
}

impl Fields {
    /// Reads a record; `None` if it has no field.
    fn new(record: &Record<'_>, cwd: &mut Option<Vec<u8>>) -> Option<Self> {
        let mut fields = Self {
            syscall: -1,
            // Names behind a line that was cut are not read.
            names: Translations::new(record.names.filter(|_| record.has_newline)),
            ..Self::default()
        };
        let mut offset = 0;
        let mut words = record
            .text
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let Some(equals) = word.find_byte(b'=') else {
                if matches!(fields.kind, ty::AVC | ty::USER_AVC)
                    && !fields.unnamed(word, offset, &mut words)
                {
                    break;
                }
                continue;
            };
            let (word, equals) = match word.strip_prefix(b"msg=") {
                Some([b'a', ..]) => continue,
                Some([b'\'', message @ ..]) => match message.find_byte(b'=') {
                    Some(equals) => (message, equals),
                    None => continue,
                },
                _ => (word, equals),
            };
            let name = word.get(..equals).unwrap_or_default();
            let name = name.strip_prefix(b"(").unwrap_or(name);
            let value = word.get(equals + 1..).unwrap_or_default();
            if value.is_empty() {
                continue;
            }
            let value = trimmed(value);
            if name == b"key" && value.first() != Some(&b'(') {
                fields.keys(value);
                continue;
            }
            fields.push(name, value);
            if fields.entries.len() == 1 && name == b"node" {
                offset = 1;
                continue;
            }
            fields.note(name, value, offset, cwd);
        }
        (!fields.entries.is_empty()).then_some(fields)
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.entries.push(Entry {
            name: name.to_vec(),
            value: value.to_vec(),
            text: None,
        });
    }

    /// Adds a field for each key.
    fn keys(&mut self, value: &[u8]) {
        if value.first() == Some(&b'"') {
            return self.push(b"key", value);
        }
        let Some(decoded) = unescape(value) else {
            return;
        };
        let keys = until_nul(&decoded).split(|&byte| byte == KEY_SEPARATOR);
        for key in keys.filter(|key| !key.is_empty()) {
            let mut encoded = Vec::new();
            audit::record::quote::untrusted(key, &mut encoded);
            self.push(b"key", &encoded);
        }
    }

    /// Takes from a field what others depend on. Only the usual positions count.
    fn note(&mut self, name: &[u8], value: &[u8], offset: usize, cwd: &mut Option<Vec<u8>>) {
        let position = self.entries.len() - offset;
        let number = |base| {
            let number = ctext::unsigned(value, base);
            (!number.overflow).then_some(number.value)
        };
        match (position, name) {
            (1, b"type") => {
                self.kind = ty::by_name(value);
                if self.kind == ty::URINGOP {
                    self.machine = Machine::Uring;
                }
            }
            (2 | 11, b"arch") => {
                self.machine =
                    number(16).map_or(Machine::Unknown, |arch| Machine::of_arch(low_32(arch)));
            }
            (3 | 12, b"syscall") | (2, b"uring_op") => {
                self.syscall = number(10).map_or(-1, low_i32);
            }
            (6, b"a0") => self.arguments[0] = number(16).unwrap_or(u64::MAX),
            (7, b"a1") => self.arguments[1] = number(16).unwrap_or(u64::MAX),
            (_, b"cwd") if self.kind == ty::CWD => *cwd = Some(value.to_vec()),
            _ => {}
        }
    }

    /// Takes a word without a name in an access vector check. Whether the record can be read on.
    fn unnamed<'w>(
        &mut self,
        word: &[u8],
        offset: usize,
        words: &mut impl Iterator<Item = &'w [u8]>,
    ) -> bool {
        const LIMIT: usize = 256;
        let position = self.entries.len() - offset.min(self.entries.len());
        if position == 1 && !word.starts_with(b"avc") {
            self.push(b"seresult", word);
        } else if position == 2 && word.first() == Some(&b'{') {
            let permissions: Vec<&[u8]> = words
                .take_while(|word| word.first() != Some(&b'}'))
                .collect();
            let joined = permissions.join(&b","[..]);
            if joined.len() + 1 >= LIMIT {
                return false;
            }
            self.push(b"seperms", &joined);
        }
        true
    }

    fn current(&self) -> Option<&Entry> {
        self.entries.get(self.at)
    }

    /// Finds a field from the current one on.
    fn find(&mut self, name: &[u8]) -> bool {
        let from = self.at;
        let found = self
            .entries
            .iter()
            .skip(from)
            .position(|entry| entry.name == name);
        self.at = found.map_or(self.at, |index| from + index);
        found.is_some()
    }
}

/// Removes punctuation after a value.
fn trimmed(value: &[u8]) -> &[u8] {
    let mut value = value.strip_suffix(b":").unwrap_or(value);
    value = value.strip_suffix(b",").unwrap_or(value);
    value = value.strip_suffix(b"'").unwrap_or(value);
    match value {
        b"(none)" | b"(null)" => value,
        _ => value.strip_suffix(b")").unwrap_or(value),
    }
}

impl Walk {
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    fn record(&self) -> Option<&Fields> {
        self.records.get(self.at?)
    }

    fn record_mut(&mut self) -> Option<&mut Fields> {
        self.records.get_mut(self.at?)
    }

    pub(crate) fn first_record(&mut self) {
        self.at = Some(0);
        self.first_field();
    }

    pub(crate) fn next_record(&mut self) -> bool {
        self.at = self
            .at
            .map(|at| at + 1)
            .filter(|&at| at < self.records.len());
        self.at.is_some()
    }

    pub(crate) fn go_to_record(&mut self, number: usize) -> bool {
        if number >= self.records.len() {
            return false;
        }
        self.at = Some(number);
        self.first_field();
        true
    }

    pub(crate) fn first_field(&mut self) {
        if let Some(record) = self.record_mut() {
            record.at = 0;
        }
    }

    pub(crate) fn next_field(&mut self) -> bool {
        let Some(record) = self.record_mut() else {
            return false;
        };
        if record.at + 1 >= record.entries.len() {
            return false;
        }
        record.at += 1;
        true
    }

    pub(crate) fn go_to_field(&mut self, number: usize) -> bool {
        let Some(record) = self.record_mut() else {
            return false;
        };
        if number >= record.entries.len() {
            return false;
        }
        record.at = number;
        true
    }

    /// Number of the current record.
    pub(crate) fn record_number(&self) -> usize {
        self.at.unwrap_or_default()
    }

    /// Number of the current field.
    pub(crate) fn field_number(&self) -> usize {
        self.record().map_or(0, |record| record.at)
    }

    /// Type of the current record; 0 if there is none.
    pub(crate) fn kind(&self) -> i32 {
        self.record().map_or(0, |record| record.kind)
    }

    /// Finds a field: the current one, or one behind it, also in later records.
    pub(crate) fn find(&mut self, name: &str) -> bool {
        let name = name.as_bytes();
        let Some(record) = self.record_mut() else {
            return false;
        };
        if record.current().is_some_and(|entry| entry.name == name) {
            return true;
        }
        if !self.next_field() {
            return false;
        }
        while let Some(record) = self.record_mut() {
            if record.find(name) {
                return true;
            }
            self.next_record();
            self.first_field();
        }
        false
    }

    /// Value of the current field.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.record()?.current().map(|entry| entry.value.as_slice())
    }

    /// Name of the current field.
    pub(crate) fn name(&self) -> Option<&[u8]> {
        self.record()?.current().map(|entry| entry.name.as_slice())
    }

    /// Value of the current field as a number; -1 if it is none.
    pub(crate) fn number(&self) -> i32 {
        let Some(value) = self.value() else {
            return -1;
        };
        let (number, read) = ctext::signed(value, 10);
        if read.overflow {
            -1
        } else {
            low_i32(number.cast_unsigned())
        }
    }

    pub(crate) fn field_type(&self) -> FieldType {
        let entry = self
            .record()
            .and_then(|record| Some((record.kind, record.current()?)));
        entry.map_or(FieldType::Unclassified, |(kind, entry)| {
            of_field(kind, &entry.name, &entry.value)
        })
    }

    /// The current place, said to be in a record: a search may have gone on behind it.
    pub(crate) fn place_in(&self, record: usize) -> FieldPosition {
        FieldPosition {
            record,
            field: self.field_number(),
        }
    }

    /// The current place.
    pub(crate) fn place(&self) -> FieldPosition {
        self.place_in(self.record_number())
    }

    /// Moves to a place; whether it exists.
    pub(crate) fn go_to(&mut self, place: Option<FieldPosition>) -> bool {
        place.is_some_and(|place| self.go_to_record(place.record) && self.go_to_field(place.field))
    }

    /// The meaning of the current field.
    pub(crate) fn text(&mut self, interpreter: &mut Interpreter) -> Vec<u8> {
        self.meaning(interpreter, None)
    }

    /// The meaning of the current field, with a file name joined to the working directory.
    pub(crate) fn path(&mut self, interpreter: &mut Interpreter) -> Vec<u8> {
        let cwd = self.cwd.clone();
        self.meaning(interpreter, cwd.as_deref())
    }

    fn meaning(&mut self, interpreter: &mut Interpreter, cwd: Option<&[u8]>) -> Vec<u8> {
        let field_type = self.field_type();
        let Some(record) = self.record_mut() else {
            return b"(null)".to_vec();
        };
        let Some(entry) = record.entries.get_mut(record.at) else {
            return b"(null)".to_vec();
        };
        let field = Field {
            name: &entry.name,
            value: &entry.value,
            machine: record.machine,
            syscall: record.syscall,
            arguments: record.arguments,
            cwd,
            family: None,
        };
        let names = &record.names;
        entry
            .text
            .get_or_insert_with(|| interpreter.value(field_type, &field, names))
            .clone()
    }
}
