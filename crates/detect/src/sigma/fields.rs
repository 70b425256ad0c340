//! An event as rules see it: names and values.

use std::borrow::Cow;

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
pub struct Fields<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl<'a> Fields<'a> {
    /// Adds a field.
    pub fn text(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        self.0.push((name.into(), Value::Text(value.into())));
    }

    /// Adds a field from bytes.
    pub fn bytes(&mut self, name: impl Into<Cow<'a, str>>, value: Cow<'a, [u8]>) {
        self.text(name, to_text(value));
    }

    /// Adds a field with several values.
    pub fn texts(&mut self, name: impl Into<Cow<'a, str>>, values: Vec<Cow<'a, str>>) {
        self.0.push((name.into(), Value::Texts(values)));
    }

    /// Value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        let named = self.0.iter().find(|(field, _)| field == name);
        named.map(|(_, value)| value)
    }

    /// Text of a field with one value.
    #[must_use]
    pub fn get_text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            Value::Texts(_) => None,
        }
    }

    /// All fields, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// All texts.
    pub(crate) fn all_texts(&self) -> impl Iterator<Item = &str> {
        let values = self.0.iter().map(|(_, value)| value);
        values.flat_map(Value::as_texts).map(|text| &**text)
    }
}

/// Bytes as text.
pub(crate) fn to_text(bytes: Cow<'_, [u8]>) -> Cow<'_, str> {
    match bytes {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }),
    }
}
