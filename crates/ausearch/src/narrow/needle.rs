//! Texts that a record of every matching event has, looked for before records are read.

use bstr::{ByteSlice as _, Finder};
use logs::stamp;

use crate::events::StampNumbers;

/// Events that are read one by one in a part. With more, all its records are read.
const MOST_EVENTS: usize = 1024;

/// A text, one form of which is in a record of every matching event, in the parts that the index tells all about.
pub(super) struct Needle {
    forms: Vec<Finder<'static>>,
    /// It stands after `=`, perhaps with zeros before it, and no digit follows.
    is_number: bool,
}

impl Needle {
    /// A word, also in hex digits.
    pub(super) fn word(word: &[u8]) -> Self {
        let capital: String = word.iter().map(|byte| format!("{byte:02X}")).collect();
        let small = capital.to_ascii_lowercase();
        let mut forms = vec![Finder::new(word).into_owned(), owned_finder(&capital)];
        if small != capital {
            forms.push(owned_finder(&small));
        }
        Self {
            forms,
            is_number: false,
        }
    }

    /// A value in decimal digits. `None` for 0, which is also the number of what is no number.
    pub(super) fn number(number: i64) -> Option<Self> {
        (number != 0).then(|| Self {
            forms: vec![owned_finder(&number.to_string())],
            is_number: true,
        })
    }

    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.forms
            .iter()
            .any(|form| self.find(form, text, 0).is_some())
    }

    /// Offset of a form of the needle in a text, from an offset on.
    fn find(&self, form: &Finder<'_>, text: &[u8], mut from: usize) -> Option<usize> {
        loop {
            let at = from + form.find(text.get(from..)?)?;
            if !self.is_number || is_number_at(text, at, form.needle().len()) {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Stamps of the records that have the needle; `None` if there are too many.
    fn stamps(&self, text: &[u8]) -> Option<Vec<StampNumbers>> {
        let mut stamps: Vec<StampNumbers> = Vec::new();
        for form in &self.forms {
            let mut from = 0;
            while let Some(at) = self.find(form, text, from) {
                let (before, after) = text.split_at(at);
                let start = before.rfind_byte(b'\n').map_or(0, |end| end + 1);
                from = after.find_byte(b'\n').map_or(text.len(), |end| at + end);
                let line = text.get(start..from).unwrap_or_default();
                let Ok(stamp) = stamp::parse(line, 0) else {
                    continue;
                };
                let numbers = (stamp.seconds, stamp.millis, stamp.serial);
                if stamps.last() == Some(&numbers) {
                    continue;
                }
                if stamps.len() == MOST_EVENTS {
                    return None;
                }
                stamps.push(numbers);
            }
        }
        Some(stamps)
    }
}

/// Stamps of the events in a text that may have all needles, in order; `None` if they are too many to be listed.
pub(super) fn stamps_with_all(needles: &[Needle], text: &[u8]) -> Option<Vec<StampNumbers>> {
    let mut all: Option<Vec<StampNumbers>> = None;
    for needle in needles {
        let Some(mut stamps) = needle.stamps(text) else {
            continue;
        };
        stamps.sort_unstable();
        stamps.dedup();
        if let Some(others) = &all {
            stamps.retain(|stamp| others.binary_search(stamp).is_ok());
        }
        all = Some(stamps);
    }
    all
}

fn owned_finder(text: &str) -> Finder<'static> {
    Finder::new(text).into_owned()
}

/// Whether the digits that begin at an offset are a whole number after `=`.
fn is_number_at(text: &[u8], at: usize, length: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    before.trim_end_with(|byte| byte == '0').ends_with(b"=")
        && text
            .get(at + length)
            .is_none_or(|byte| !byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"type=SYSCALL msg=audit(1700000000.001:1): pid=30 uid=7\n\
        type=PATH msg=audit(1700000000.001:1): name=\"/tmp/30\"\n\
        type=SYSCALL msg=audit(1700000000.002:2): pid=300 uid=7\n\
        no record, pid=30\n\
        type=USER_AUTH msg=audit(1700000000.003:3): pid=0030 uid=8\n\
        type=CWD msg=audit(1700000000.004:4): cwd=2F746D70\n\
        type=SYSCALL msg=audit(1700000000.005:5): exit=-2 pid=530\n";

    fn serials(needles: &[Needle]) -> Option<Vec<u64>> {
        let stamps = stamps_with_all(needles, TEXT)?;
        Some(stamps.iter().map(|stamp| stamp.2).collect())
    }

    fn number(number: i64) -> Needle {
        Needle::number(number).unwrap()
    }

    #[test]
    fn numbers_are_found_as_a_whole() {
        assert_eq!(serials(&[number(30)]), Some(vec![1, 3]));
        assert_eq!(serials(&[number(-2)]), Some(vec![5]));
        assert_eq!(serials(&[number(53)]), Some(vec![]));
        assert!(Needle::number(0).is_none());
        assert!(number(8).is_in(TEXT) && !number(9).is_in(TEXT));
    }

    #[test]
    fn words_are_found_in_hex_too() {
        assert_eq!(serials(&[Needle::word(b"/tmp")]), Some(vec![1, 4]));
        assert_eq!(serials(&[Needle::word(b"absent")]), Some(vec![]));
    }

    #[test]
    fn an_event_has_all_needles() {
        assert_eq!(serials(&[number(30), number(7)]), Some(vec![1]));
        assert_eq!(serials(&[]), None);
    }

    #[test]
    fn what_too_many_events_have_does_not_count() {
        let line = |serial: usize, pid: usize| {
            format!("type=SYSCALL msg=audit(1700000000.001:{serial}): uid=7 pid={pid}\n")
        };
        let text: String = (0..2 * MOST_EVENTS).map(|at| line(at, at % 1000)).collect();
        let find = |needles: &[Needle]| stamps_with_all(needles, text.as_bytes());
        assert_eq!(find(&[number(7)]), None);
        assert_eq!(find(&[number(7), number(5)]).map(|all| all.len()), Some(3));
    }
}
