//! The text `audit(SEC.MMM:SERIAL): ` of an event's stamp.

use crate::event::Timestamp;
use crate::ids::Serial;

/// Longest text: 20 digits of seconds, 5 of milliseconds, 10 of the serial, and what is around them.
const MAX_BYTES: usize = "audit(.:): ".len() + 20 + 5 + 10;

/// The text of the current stamp. Events of the same millisecond share all but the serial.
#[derive(Clone, Copy, Debug)]
pub struct StampText {
    bytes: [u8; MAX_BYTES],
    len: usize,
    /// Length of the text before the serial.
    prefix: usize,
    time: Option<Timestamp>,
}

impl Default for StampText {
    fn default() -> Self {
        Self {
            bytes: [0; MAX_BYTES],
            len: 0,
            prefix: 0,
            time: None,
        }
    }
}

impl StampText {
    /// Sets the stamp, and returns its text.
    pub fn set(&mut self, time: Timestamp, serial: Serial) -> &[u8] {
        if self.time != Some(time) {
            self.len = 0;
            self.push(b"audit(");
            self.push(itoa::Buffer::new().format(time.sec).as_bytes());
            self.push(b".");
            let mut buffer = itoa::Buffer::new();
            let milli = buffer.format(time.milli).as_bytes();
            self.push(b"000".get(milli.len()..).unwrap_or_default());
            self.push(milli);
            self.push(b":");
            (self.prefix, self.time) = (self.len, Some(time));
        }
        self.len = self.prefix;
        self.push(itoa::Buffer::new().format(serial.0).as_bytes());
        self.push(b"): ");
        self.text()
    }

    /// The text that was set last.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, part: &[u8]) {
        let end = self.len + part.len();
        if let Some(to) = self.bytes.get_mut(self.len..end) {
            to.copy_from_slice(part);
            self.len = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_that_of_fmt(
            stamps in proptest::collection::vec((any::<u64>(), any::<u16>(), any::<u32>(), any::<bool>()), 1..8),
        ) {
            let mut text = StampText::default();
            let mut time = Timestamp { sec: 0, milli: 0 };
            for (sec, milli, serial, same) in stamps {
                if !same {
                    time = Timestamp { sec, milli };
                }
                let expected = format!("audit({}.{:03}:{serial}): ", time.sec, time.milli);
                prop_assert_eq!(text.set(time, Serial(serial)), expected.as_bytes());
            }
        }
    }
}
