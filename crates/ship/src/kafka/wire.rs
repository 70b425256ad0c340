//! Values as the protocol has them: numbers in big endian, and lengths before texts, bytes and arrays.
//!
//! # Source
//! Apache Kafka 4.3, "Protocol primitive types", for versions of messages without tagged fields; -1 is the length of what
//! is null.

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its answer is none of Kafka")]
pub(super) struct Malformed;

/// Appends values.
pub(super) trait Put {
    fn put_i8(&mut self, value: i8);
    fn put_i16(&mut self, value: i16);
    fn put_i32(&mut self, value: i32);
    fn put_i64(&mut self, value: i64);
    /// A text, without what is behind its first 32,767 bytes.
    fn put_text(&mut self, text: &str);
    /// Bytes; more than 2 GiB become null.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// A number of variable length: zigzag, seven bits in each byte, the lowest first.
    fn put_varint(&mut self, value: i64);
}

impl Put for Vec<u8> {
    fn put_i8(&mut self, value: i8) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i16(&mut self, value: i16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i32(&mut self, value: i32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_text(&mut self, text: &str) {
        let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
        self.put_i16(length);
        self.extend(text.bytes().take(length.unsigned_abs().into()));
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        let length = i32::try_from(bytes.len());
        self.put_i32(length.unwrap_or(-1));
        if length.is_ok() {
            self.extend_from_slice(bytes);
        }
    }

    fn put_varint(&mut self, value: i64) {
        let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
        loop {
            let [low, ..] = left.to_le_bytes();
            left >>= 7;
            match left {
                0 => return self.push(low & 0x7f),
                _ => self.push(low | 0x80),
            }
        }
    }
}

/// Reads values one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (value, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*value)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// # Errors
    /// The message is too short, as in all of these.
    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.array()? != [0])
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A text; a null one is empty. Bytes that are not UTF-8 are replaced.
    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    /// Bytes; null ones are empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.i32()?).unwrap_or(0);
        self.take(length)
    }

    /// The elements of an array; a null one is empty. They are read one after another, so that a length which is no true
    /// one costs no memory.
    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut found = Vec::new();
        for _ in 0..self.i32()? {
            found.push(read(self)?);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_variable_length() {
        for (value, expected) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (64, &[0x80, 1]),
            (-65, &[0x81, 1]),
            (300, &[0xd8, 4]),
            (
                i64::MIN,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            ),
        ] {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            assert_eq!(bytes, expected, "{value}");
        }
    }

    #[test]
    fn values_are_read_as_they_were_put() {
        let mut bytes = Vec::new();
        bytes.put_i8(1);
        bytes.put_i16(-2);
        bytes.put_i32(-3);
        bytes.put_i64(-4);
        bytes.put_text("a");
        bytes.put_bytes(b"bc");
        bytes.put_i32(2);
        bytes.put_i16(5);
        bytes.put_i16(6);
        let read = |bytes| {
            let mut reader = Reader(bytes);
            assert!(reader.bool()?);
            assert_eq!((reader.i16()?, reader.i32()?, reader.i64()?), (-2, -3, -4));
            assert_eq!(
                (reader.text()?, reader.bytes()?),
                ("a".to_owned(), &b"bc"[..])
            );
            reader.list(Reader::i16)
        };
        assert_eq!(read(&bytes[..]), Ok(vec![5, 6]));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Err(Malformed));
        }
        // Null, and an array that claims more than there is.
        assert_eq!(Reader(&[0xff, 0xff]).text(), Ok(String::new()));
        assert_eq!(Reader(&[0xff; 4]).bytes(), Ok(&b""[..]));
        assert_eq!(Reader(&[0x7f; 8]).list(Reader::i16), Err(Malformed));
    }

    #[test]
    fn texts_and_bytes_are_bounded() {
        let mut bytes = Vec::new();
        bytes.put_text(&"x".repeat(40_000));
        assert_eq!(bytes.len(), 2 + 32_767);
    }
}
