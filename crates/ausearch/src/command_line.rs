//! The command lines of both tools: options in any order, most of which take the next word unless it is an option.
//!
//! One table for each tool makes the parser, the help and the options in the manual page.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use bstr::ByteSlice as _;

use crate::time_range::{self, Bound};
use crate::{ctext, local_time::Clock};

/// An option.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionSpec<I> {
    pub(crate) id: I,
    /// Short and long spelling.
    pub(crate) names: &'static [&'static str],
    /// What the value is called; empty if there is none.
    pub(crate) value: &'static str,
    /// One line of help.
    pub(crate) help: &'static str,
}

/// The help of a tool.
pub(crate) fn help<I>(usage: &str, options: &[OptionSpec<I>]) -> String {
    let lines = options.iter().map(|option| {
        let names = option.names.join(",");
        let spelling = if option.value.is_empty() {
            names
        } else {
            format!("{names} <{}>", option.value)
        };
        format!("  {spelling:<36} {}\n", option.help)
    });
    std::iter::once(format!("usage: {usage}\n"))
        .chain(lines)
        .collect()
}

/// Words of a command line.
#[derive(Debug)]
pub(crate) struct Words {
    words: Vec<Vec<u8>>,
    at: usize,
}

impl Words {
    pub(crate) fn new(words: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            words: words.into_iter().map(OsStringExt::into_vec).collect(),
            at: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The next word.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let word = self.words.get(self.at)?.clone();
        self.at += 1;
        Some(word)
    }

    /// The next word, if it is no option.
    pub(crate) fn peek(&self) -> Option<&[u8]> {
        self.peek_any().filter(|word| word.first() != Some(&b'-'))
    }

    /// The next word, which may begin with a hyphen.
    pub(crate) fn peek_any(&self) -> Option<&[u8]> {
        self.words.get(self.at).map(Vec::as_slice)
    }

    /// Whether the next two words are no options.
    pub(crate) fn has_two_values(&self) -> bool {
        let next = self.words.get(self.at..self.at + 2);
        next.is_some_and(|words| words.iter().all(|word| word.first() != Some(&b'-')))
    }

    /// Takes the word that was looked at.
    pub(crate) const fn skip(&mut self) {
        self.at += 1;
    }

    /// The value of `option`.
    ///
    /// # Errors
    /// The message when there is none.
    pub(crate) fn value(&mut self, option: &[u8]) -> Result<Vec<u8>, String> {
        let value = self.peek().map(<[u8]>::to_vec);
        let value = value.ok_or_else(|| required(option))?;
        self.skip();
        Ok(value)
    }

    /// The value of `option`, which may begin with a hyphen.
    ///
    /// # Errors
    /// The message when there is none.
    pub(crate) fn signed_value(&mut self, option: &[u8]) -> Result<Vec<u8>, String> {
        let value = self.peek_any().map(<[u8]>::to_vec);
        let value = value.ok_or_else(|| required(option))?;
        self.skip();
        Ok(value)
    }

    /// Checks that `option` has no value.
    ///
    /// # Errors
    /// The message when it has.
    pub(crate) fn no_value(&self, option: &str) -> Result<(), String> {
        match self.peek() {
            Some(_) => Err(format!("Argument is NOT required for {option}\n")),
            None => Ok(()),
        }
    }

    /// The time that follows `option`: a date, a time, both, or a word.
    ///
    /// # Errors
    /// The message when it cannot be read.
    pub(crate) fn time(
        &mut self,
        option: &[u8],
        bound: Bound,
        clock: &Clock,
    ) -> Result<i64, String> {
        let Some(first) = self.peek().map(<[u8]>::to_vec) else {
            let option = option.to_str_lossy();
            return Err(format!("{option} requires either date and/or time\n"));
        };
        self.skip();
        if let Some(second) = self.peek().map(<[u8]>::to_vec) {
            self.skip();
            let (date, time) = if first.contains(&b':') {
                (second, first)
            } else {
                (first, second)
            };
            return time_range::parse(bound, Some(&date), Some(&time), clock);
        }
        let midnight = Some(&b"00:00:00"[..]);
        if time_range::word(&first).is_some() {
            time_range::parse(bound, Some(&first), midnight, clock)
        } else if first.contains(&b':') {
            time_range::parse(bound, None, Some(&first), clock)
        } else {
            let time = midnight.filter(|_| bound == Bound::Start);
            time_range::parse(bound, Some(&first), time, clock)
        }
    }
}

fn required(option: &[u8]) -> String {
    format!("Argument is required for {}\n", option.to_str_lossy())
}

/// Why a number cannot be read: the C library's words.
pub(crate) type NumberError = &'static str;

const INVALID: NumberError = "Invalid argument";
const RANGE: NumberError = "Numerical result out of range";

/// A whole word as a number of at most `limit`.
pub(crate) fn unsigned(word: &[u8], limit: u64) -> Result<u64, NumberError> {
    let number = ctext::unsigned(word, 10);
    if number.overflow {
        return Err(RANGE);
    }
    if number.length == 0 || number.length != word.len() {
        return Err(INVALID);
    }
    if number.value > limit {
        return Err(RANGE);
    }
    Ok(number.value)
}

/// A whole word as a signed number in a base that its prefix tells.
pub(crate) fn signed(word: &[u8]) -> Result<i64, NumberError> {
    let (value, number) = ctext::signed(word, 0);
    if number.overflow {
        return Err(RANGE);
    }
    if number.length == 0 || number.length != word.len() {
        return Err(INVALID);
    }
    Ok(value)
}

/// Whether a word begins as a number does.
pub(crate) fn is_numeric(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_digit)
}

/// Whether a word begins as a negative number does.
pub(crate) fn is_negative(word: &[u8]) -> bool {
    matches!(word, [b'-', digit, ..] if digit.is_ascii_digit())
}

/// The timeout that `option` has.
///
/// # Errors
/// The message when it is no number of seconds.
pub(crate) fn timeout(word: &[u8]) -> Result<u64, String> {
    let shown = word.to_str_lossy();
    if !is_numeric(word) {
        return Err(format!(
            "End of Event Timeout must be a numeric value, was {shown}\n"
        ));
    }
    match unsigned(word, i64::MAX.cast_unsigned() - 1) {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(format!(
            "Illegal value for End of Event Timeout, was {shown}\n"
        )),
    }
}
