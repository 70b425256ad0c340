//! JSON values of an event: texts are borrowed from its records where they can be.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write as _;

use bstr::ByteSlice as _;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Value, json};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Number(i64),
    /// Text; bytes that are none become an object with their digits, `hex`.
    Text(Cow<'a, [u8]>),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(JsonObject<'a>),
}

/// An object. Its members are in the order of their names, as in [`serde_json::Map`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JsonObject<'a> {
    members: Vec<Member<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member<'a> {
    /// Of the name.
    prefix: u64,
    name: Cow<'a, str>,
    value: JsonValue<'a>,
}

/// The first bytes of a name, in the order of names: comparing them is faster, and mostly enough.
fn prefix(name: &str) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    for (to, byte) in bytes.iter_mut().zip(name.bytes()) {
        *to = byte;
    }
    u64::from_be_bytes(bytes)
}

impl<'a> JsonObject<'a> {
    /// Whether it has no members.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sets a member.
    pub fn put(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<JsonValue<'a>>) {
        let (name, value) = (name.into(), value.into());
        match self.find(&name) {
            Ok(at) => {
                if let Some(member) = self.members.get_mut(at) {
                    member.value = value;
                }
            }
            Err(at) => {
                let prefix = prefix(&name);
                let member = Member {
                    prefix,
                    name,
                    value,
                };
                self.members.insert(at, member);
            }
        }
    }

    /// The value of a member.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&JsonValue<'a>> {
        let found = self.members.get(self.find(name).ok()?);
        found.map(|member| &member.value)
    }

    /// Removes a member, if it is there.
    pub fn remove(&mut self, name: &str) {
        if let Ok(at) = self.find(name) {
            self.members.remove(at);
        }
    }

    /// Sets the members of another one.
    pub fn append(&mut self, other: Self) {
        self.members.extend(other.members);
        self.sort();
    }

    /// Sorts the members. Of those with one name the last stays.
    fn sort(&mut self) {
        self.members.sort_by(Member::compare);
        self.members.dedup_by(|next, kept| {
            let is_same = next.compare(kept).is_eq();
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
    }

    /// Its members.
    pub fn into_members(self) -> impl Iterator<Item = (Cow<'a, str>, JsonValue<'a>)> {
        let members = self.members.into_iter();
        members.map(|member| (member.name, member.value))
    }

    /// Where a member is, or belongs.
    fn find(&self, name: &str) -> Result<usize, usize> {
        let prefix = prefix(name);
        self.members.binary_search_by(|known| {
            let order = known.prefix.cmp(&prefix);
            order.then_with(|| (*known.name).cmp(name))
        })
    }
}

impl Member<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        let order = self.prefix.cmp(&other.prefix);
        order.then_with(|| self.name.cmp(&other.name))
    }
}

/// An object of any number of members, in any order, which a sender may have chosen: [`JsonObject::put`] is for a few.
impl<'a> FromIterator<(Cow<'a, str>, JsonValue<'a>)> for JsonObject<'a> {
    fn from_iter<I: IntoIterator<Item = (Cow<'a, str>, JsonValue<'a>)>>(members: I) -> Self {
        let members = members.into_iter().map(|(name, value)| Member {
            prefix: prefix(&name),
            name,
            value,
        });
        let mut object = Self {
            members: members.collect(),
        };
        object.sort();
        object
    }
}

impl JsonValue<'_> {
    /// A text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => bytes.to_str().ok(),
            _ => None,
        }
    }

    /// Whether it is this text.
    #[must_use]
    pub fn is_text(&self, text: &str) -> bool {
        matches!(self, Self::Text(bytes) if **bytes == *text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for JsonValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Text(Cow::Borrowed(bytes))
    }
}

impl From<String> for JsonValue<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text.into_bytes()))
    }
}

impl From<i64> for JsonValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl Serialize for JsonObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.members.len()))?;
        for member in &self.members {
            map.serialize_entry(&*member.name, &member.value)?;
        }
        map.end()
    }
}

impl Serialize for JsonValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Text(bytes) => match bytes.to_str() {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => {
                    let mut map = serializer.serialize_map(Some(1))?;
                    map.serialize_entry("hex", &hex(bytes))?;
                    map.end()
                }
            },
            Self::List(list) => serializer.collect_seq(list),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl From<JsonObject<'_>> for serde_json::Map<String, Value> {
    fn from(object: JsonObject<'_>) -> Self {
        let members = object.into_members();
        members
            .map(|(name, value)| (name.into_owned(), value.into()))
            .collect()
    }
}

impl From<JsonValue<'_>> for Value {
    fn from(value: JsonValue<'_>) -> Self {
        match value {
            JsonValue::Null => Self::Null,
            JsonValue::Bool(value) => value.into(),
            JsonValue::Number(number) => number.into(),
            JsonValue::Text(bytes) => match bytes.to_str() {
                Ok(text) => text.into(),
                Err(_) => json!({ "hex": hex(&bytes) }),
            },
            JsonValue::List(list) => Self::Array(list.into_iter().map(Self::from).collect()),
            JsonValue::Object(object) => Self::Object(object.into()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ok = write!(text, "{byte:02X}");
    }
    text
}
