//! Splits a record into fields. It does not interpret values.

use bstr::{BStr, ByteSlice as _, Finder};

use super::DecodeError;

/// A field of a record, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name before the `=`.
    pub name: &'a BStr,
    /// Value after the `=`, quotes included.
    pub value: &'a BStr,
    /// Column of the value in the line, from 1.
    pub column: usize,
}

/// Whether a field is encoded by [`crate::record::quote`] in all records.
///
/// # Source
/// Fields of type `AUPARSE_TYPE_ESCAPED` in `auparse/typetab.h`, audit-userspace 4.2.
pub(super) const fn is_untrusted(name: &[u8]) -> bool {
    matches!(
        name,
        b"name"
            | b"comm"
            | b"exe"
            | b"cwd"
            | b"key"
            | b"proctitle"
            | b"path"
            | b"ocomm"
            | b"file"
            | b"watch"
            | b"cmd"
            | b"acct"
            | b"dir"
            | b"vm"
            | b"device"
            | b"cgroup"
            | b"data"
            | b"old-disk"
            | b"new-disk"
            | b"old-fs"
            | b"new-fs"
    )
}

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineSlice<'a> {
    pub(super) text: &'a [u8],
    /// Column of the first byte in the line, from 1.
    pub(super) column: usize,
}

/// Finds the fields of some names, without a look at those after the last of them.
#[derive(Clone, Debug)]
pub struct FieldFinder<'n>(Vec<Finder<'n>>);

impl<'n> FieldFinder<'n> {
    /// A finder of fields with one of these names, each with its `=` or without.
    #[must_use]
    pub fn new(names: &'n [impl AsRef<[u8]>]) -> Self {
        Self(names.iter().map(Finder::new).collect())
    }

    /// Fields of the kernel's text before the first malformed one, in order: at least those with one of the names, or
    /// with such a field in the value.
    pub fn fields<'a>(
        &self,
        record: &super::Record<'a>,
    ) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let ends = self.0.iter().filter_map(|name| {
            let mut rest = record.untrimmed();
            let mut last = None;
            while let Some(at) = name.find(rest) {
                rest = rest.get(at + name.needle().len()..).unwrap_or_default();
                last = Some(record.untrimmed().len() - rest.len());
            }
            last
        });
        record.fields_up_to(ends.max())
    }
}

/// Iterates over `name=value` pairs; ends after an error.
pub(super) struct Fields<'a> {
    slice: LineSlice<'a>,
    at: usize,
}

/// Iterates over the pairs before the first malformed one.
pub(super) struct ValidFields<'a>(pub(super) Fields<'a>);

impl<'a> Iterator for ValidFields<'a> {
    type Item = Field<'a>;

    // Inlined, because a field that is returned through memory costs as much as finding it.
    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        let (name, from_value) = self.0.name()?;
        let (value, after) = value_len(from_value)
            .and_then(|end| from_value.split_at_checked(end))
            .filter(|(_, after)| matches!(after.first(), None | Some(b' ')))?;
        let column = self.0.slice.column + self.0.at;
        self.0.at = self.0.slice.text.len() - after.len();
        Some(Field {
            name: name.as_bstr(),
            value: value.as_bstr(),
            column,
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (name, from_value) = self.name()?;
        Some(self.value(name, from_value))
    }
}

impl<'a> Fields<'a> {
    pub(super) const fn of(slice: LineSlice<'a>) -> Self {
        Self { slice, at: 0 }
    }

    /// The fields from an offset on.
    pub(super) const fn skip_to(self, at: usize) -> Self {
        Self { at, ..self }
    }

    /// The next name, and the text after its `=`, which is then the current position.
    #[inline]
    fn name(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        loop {
            let rest = self.slice.text.get(self.at..)?;
            let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
            let word = rest.get(blanks..)?;
            let end = find_soon(word, |word| find_byte(word, b' ') | find_byte(word, b'='))
                .or_else(|| find_near(word, |byte| matches!(byte, b' ' | b'=')))?;
            let (name, after) = word.split_at_checked(end)?;
            self.at += blanks + end + 1;
            if let Some(from_value) = after.strip_prefix(b"=") {
                return Some((name, from_value));
            }
        }
    }

    /// Parses the value at the start of `from_value`, the current position of the iterator.
    fn value(&mut self, name: &'a [u8], from_value: &'a [u8]) -> Result<Field<'a>, DecodeError> {
        let column = self.slice.column + self.at;
        let end = value_len(from_value);
        let Some((value, after)) = end.and_then(|end| from_value.split_at_checked(end)) else {
            self.at = self.slice.text.len();
            return Err(DecodeError::Unclosed { column });
        };
        self.at += value.len();
        if !matches!(after.first(), None | Some(b' ')) {
            let column = self.slice.column + self.at;
            self.at = self.slice.text.len();
            return Err(DecodeError::Expected {
                what: "a blank after the value",
                column,
            });
        }
        Ok(Field {
            name: name.as_bstr(),
            value: value.as_bstr(),
            column,
        })
    }
}

/// Length of the value at the start of a text; `None` if it is not closed.
#[inline]
fn value_len(text: &[u8]) -> Option<usize> {
    match text.first() {
        Some(b'"') => text
            .get(1..)
            .and_then(|text| text.find_byte(b'"'))
            .map(|at| at + 2),
        // Text of programs may contain apostrophes. Only one before a space or at the end
        // closes the value.
        Some(b'\'') => closing_apostrophe(text),
        Some(b'{') => text.find_byte(b'}').map(|at| at + 1),
        _ => Some(short_word(text)),
    }
}

/// Position of the first byte that `is_end` accepts. It is expected to be near: a call of memchr would cost more.
#[inline]
pub(super) fn find_near(text: &[u8], is_end: impl Fn(u8) -> bool) -> Option<usize> {
    text.iter().position(|&byte| is_end(byte))
}

/// Length of the text before the first blank. It is mostly short, and now and then very long.
#[inline]
fn short_word(text: &[u8]) -> usize {
    find_soon(text, |word| find_byte(word, b' '))
        .unwrap_or_else(|| text.find_byte(b' ').unwrap_or(text.len()))
}

/// Position of the first byte that `find` finds in the next sixteen; `None` if there is none, or the text ends before.
/// It has few branches that depend on the length, unlike a loop.
#[inline]
fn find_soon(text: &[u8], find: impl Fn(u64) -> u64) -> Option<usize> {
    const LEN: usize = size_of::<u64>();
    let at = |text: &[u8]| {
        let found = find(u64::from_le_bytes(*text.first_chunk()?));
        (found != 0).then_some((found.trailing_zeros() / u8::BITS) as usize)
    };
    at(text).or_else(|| Some(LEN + at(text.get(LEN..)?)?))
}

/// Sets the highest bit of the bytes with a value, and sometimes of such behind the first of them.
///
/// # Source
/// "Determine if a word has a zero byte" in "Bit Twiddling Hacks" by Sean Eron Anderson.
#[inline]
const fn find_byte(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHEST: u64 = u64::from_le_bytes([0x80; 8]);
    let zero = word ^ u64::from_le_bytes([byte; 8]);
    zero.wrapping_sub(ONES) & !zero & HIGHEST
}

fn closing_apostrophe(value: &[u8]) -> Option<usize> {
    let closes = |at: usize| matches!(value.get(at + 1), None | Some(b' '));
    (1..value.len())
        .find(|&at| value.get(at) == Some(&b'\'') && closes(at))
        .map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::super::line;

    fn fields(text: &str) -> Vec<(String, String, usize)> {
        line(text.as_bytes())
            .unwrap()
            .fields()
            .map(Result::unwrap)
            .map(|field| {
                (
                    field.name.to_string(),
                    field.value.to_string(),
                    field.column,
                )
            })
            .collect()
    }

    #[test]
    fn empty_body_has_no_fields() {
        assert_eq!(fields("type=EOE msg=audit(1.000:1): "), []);
        assert_eq!(fields("type=EOE msg=audit(1.000:1):"), []);
    }

    #[test]
    fn free_text_and_quotes_are_not_fields() {
        let text = "type=X msg=audit(1.000:1): avc:  denied  { read } for  pid=1 \
                    msg='op=a acct=\"it's\" res=ok' SADDR={ fam=inet } e=";
        let expected = [
            ("pid", "1", 60),
            ("msg", "'op=a acct=\"it's\" res=ok'", 66),
            ("SADDR", "{ fam=inet }", 98),
            ("e", "", 113),
        ];
        let expected = expected.map(|(name, value, at)| (name.to_owned(), value.to_owned(), at));
        assert_eq!(fields(text), expected);
    }
}
