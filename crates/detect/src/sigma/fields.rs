//! An event as rules see it: names and values.

use std::borrow::Cow;
use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Field with the name of the syscall, which enriched records have, and all others get.
pub(crate) const SYSCALL_NAME: &str = "SYSCALL";

/// Value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// One text.
    Text(Cow<'a, str>),
    /// Several texts, each of which may match: the keys of an event.
    Texts(Vec<Cow<'a, str>>),
}

impl<'a> Value<'a> {
    /// The texts.
    #[must_use]
    pub const fn as_texts(&self) -> &[Cow<'a, str>] {
        match self {
            Self::Text(text) => std::slice::from_ref(text),
            Self::Texts(texts) => texts.as_slice(),
        }
    }
}

/// Fields of an event. The first one of a name counts.
///
/// Bytes that are not UTF-8 are U+FFFD: Sigma compares characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    own: Vec<(Cow<'a, str>, Value<'a>)>,
    context: Option<&'a Self>,
}

impl<'a> Fields<'a> {
    /// Fields of a record; what it does not have is looked up in those of the event's syscall. Texts without a field
    /// name are compared with the record only.
    #[must_use]
    pub const fn within(context: Option<&'a Self>) -> Self {
        Self {
            own: Vec::new(),
            context,
        }
    }

    /// Adds a field.
    pub fn text(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.add(name, Value::Text(value.into()));
    }

    /// Adds a field from bytes.
    pub fn bytes(&mut self, name: impl Into<Cow<'a, str>>, value: Cow<'a, [u8]>) {
        self.text(name, to_text(value));
    }

    /// Adds a field with its value.
    pub fn add(&mut self, name: impl Into<Cow<'a, str>>, value: Value<'a>) {
        self.own.push((name.into(), value));
    }

    /// Value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let own = self.own.iter().find(|(field, _)| field == name);
        let value = own.map(|(_, value)| value);
        value.or_else(|| self.context.filter(|_| is_shared(name))?.get(name))
    }

    /// Text of a field with one value.
    #[must_use]
    pub fn get_text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            Value::Texts(_) => None,
        }
    }

    /// Fields with their values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.own.iter().map(|(name, value)| (&**name, value))
    }

    /// All texts of the fields without those of the context.
    pub(crate) fn own_texts(&self) -> impl Iterator<Item = &str> {
        let values = self.own.iter().map(|(_, value)| value);
        values.flat_map(Value::as_texts).map(|text| &**text)
    }
}

/// Whether a field of a syscall tells about the whole event. Its arguments are not those of a program.
pub(super) fn is_shared(name: &str) -> bool {
    !matches!(name, "type" | "items" | "a0" | "a1" | "a2" | "a3")
}

/// Names of fields.
#[derive(Debug, Default)]
pub struct FieldNames {
    /// With their positions in the order of additions.
    names: HashMap<Box<[u8]>, usize, RandomState>,
    /// A bit for each name, which most other names do not have.
    letters: [u64; 4],
}

impl FieldNames {
    /// Adds a name, if it is new, and returns its position in the order of additions.
    pub fn insert(&mut self, name: &str) -> usize {
        let next = self.names.len();
        let (word, bit) = letters(name.as_bytes());
        if let Some(letters) = self.letters.get_mut(word) {
            *letters |= bit;
        }
        *self.names.entry(name.as_bytes().into()).or_insert(next)
    }

    /// Whether a name was added.
    #[inline]
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.position(name).is_some()
    }

    /// Position of a name in the order of additions.
    #[inline]
    #[must_use]
    pub fn position(&self, name: &[u8]) -> Option<usize> {
        let (word, bit) = letters(name);
        match self.letters.get(word)? & bit {
            0 => None,
            _ => self.names.get(name).copied(),
        }
    }
}

/// Word and bit of a name, by its length and two letters.
#[inline]
fn letters(name: &[u8]) -> (usize, u64) {
    let first = name.first().copied().map_or(0, usize::from);
    let last = name.last().copied().map_or(0, usize::from);
    let mixed = name.len() + 3 * first + 29 * last;
    (mixed / 64 % 4, 1 << (mixed % 64))
}

/// Fields of a record that rules look at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest<'e> {
    /// Fields of some rules.
    pub names: [Option<&'e FieldNames>; 3],
    /// A rule looks at all fields.
    pub all: bool,
}

impl Interest<'_> {
    /// Whether a rule looks at a field.
    #[must_use]
    pub fn contains(&self, name: &[u8]) -> bool {
        self.all
            || self
                .names
                .iter()
                .flatten()
                .any(|names| names.contains(name))
    }
}

/// Bytes as text.
pub(crate) fn to_text(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        // Most are ASCII, which this finds faster.
        Cow::Borrowed(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        },
        Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }),
    }
}
