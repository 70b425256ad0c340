//! Writes an event again that differs from an earlier one in stamp, result and arguments only.
//!
//! Tasks make the same call again and again: the text of its event is copied, and only what differs is formatted.
//! The caller knows that nothing else differs. Layout of the text:
//!
//! ```text
//! type=SYSCALL msg=STAMParch=A syscall=N[ per=P]RESULT items=I ...\n
//! type=TYPE msg=STAMP...\n            any number of lines
//! ```
//!
//! RESULT is the text of a [`CallResult`].

use std::ops::Range;

use bstr::ByteSlice as _;

use super::call_result::CallResult;

/// The text of an event.
#[derive(Debug, Default)]
pub struct EventTemplate {
    /// The whole text; empty if there is none.
    text: Vec<u8>,
    /// Where the stamps behind the first one begin.
    stamps: Vec<usize>,
    stamp_len: usize,
    /// Where the text of `call` is.
    result: Range<usize>,
    call: Option<CallResult>,
}

impl EventTemplate {
    /// Where the first stamp begins.
    const FIRST_STAMP: usize = b"type=SYSCALL msg=".len();

    /// Learns the text of an event. Learns nothing if it is not laid out as above.
    pub fn learn(&mut self, text: &[u8], stamp: &[u8], call: &CallResult) {
        self.forget();
        if self.find_parts(text, stamp, call).is_some() {
            self.text.extend_from_slice(text);
            self.stamp_len = stamp.len();
            self.call = Some(*call);
        } else {
            self.forget();
        }
    }

    /// Forgets the text, and keeps its buffers.
    pub fn forget(&mut self) {
        self.text.clear();
        self.stamps.clear();
        self.call = None;
    }

    fn find_parts(&mut self, text: &[u8], stamp: &[u8], call: &CallResult) -> Option<()> {
        let behind_stamp = text
            .strip_prefix(b"type=SYSCALL msg=")?
            .strip_prefix(stamp)?;
        // Only numbers are between the stamp and these, so no name is mistaken for them.
        let end = text.len() - behind_stamp.len() + behind_stamp.find(b" items=")?;
        call.append(&mut self.text);
        let begin = end.checked_sub(self.text.len())?;
        self.result = begin..end;
        let is_there = text.get(begin..end)? == self.text;
        self.text.clear();
        if !is_there {
            return None;
        }
        let mut start = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            // No name of a type has a space.
            let at = line.find_byte(b' ')? + b" msg=".len();
            if !line.ends_with(b"\n") || !line.get(at..)?.starts_with(stamp) {
                return None;
            }
            if start > 0 {
                self.stamps.push(start + at);
            }
            start += line.len();
        }
        Some(())
    }

    /// Appends the text with another stamp and call. Returns false, and appends nothing, if there is no text, or stamps
    /// have another length now.
    #[must_use]
    pub fn append(&self, stamp: &[u8], call: &CallResult, out: &mut Vec<u8>) -> bool {
        if self.text.is_empty() || stamp.len() != self.stamp_len {
            return false;
        }
        let start = out.len();
        let end = if self.call.as_ref() == Some(call) {
            out.extend_from_slice(&self.text);
            start + self.result.end
        } else {
            let (before, rest) = self.text.split_at(self.result.start);
            out.extend_from_slice(before);
            call.append(out);
            let end = out.len();
            out.extend_from_slice(rest.get(self.result.len()..).unwrap_or_default());
            end
        };
        replace(stamp, start + Self::FIRST_STAMP, out);
        for at in &self.stamps {
            replace(stamp, end + at - self.result.end, out);
        }
        true
    }
}

/// Replaces a stamp by one of the same length.
#[inline]
fn replace(stamp: &[u8], at: usize, out: &mut [u8]) {
    if let Some(old) = out.get_mut(at..at + stamp.len()) {
        old.copy_from_slice(stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: &str = "audit(1.002:99): ";
    const CALL: CallResult = CallResult {
        exit: Some(3),
        args: [0xffff_ff9c, 16, 2, 0],
    };

    /// An event whose names look like other parts of it.
    fn text(stamp: &str, call: &str) -> String {
        format!(
            "type=SYSCALL msg={stamp}arch=c000003e syscall=257{call} items=1 ppid=1 comm=\"items=1\" key=(null)\n\
             type=CWD msg={stamp}cwd=\"/audit(1.002:99):\"\n\
             type=PATH msg={stamp}item=0 name=\"msg={STAMP}\"\n"
        )
    }

    const RESULT: &str = " success=yes exit=3 a0=ffffff9c a1=10 a2=2 a3=0";

    #[track_caller]
    fn appended(template: &EventTemplate, stamp: &str, call: &CallResult) -> Option<String> {
        let mut out = b"before\n".to_vec();
        let is_known = template.append(stamp.as_bytes(), call, &mut out);
        let text = String::from_utf8(out.split_off(7)).unwrap();
        assert_eq!(out, b"before\n");
        assert!(is_known || text.is_empty());
        is_known.then_some(text)
    }

    #[test]
    fn stamp_result_and_arguments_are_replaced() {
        let mut template = EventTemplate::default();
        assert_eq!(appended(&template, STAMP, &CALL), None);
        template.learn(text(STAMP, RESULT).as_bytes(), STAMP.as_bytes(), &CALL);
        let stamp = "audit(7.123:10): ";
        assert_eq!(appended(&template, stamp, &CALL), Some(text(stamp, RESULT)));
        let other = CallResult {
            exit: Some(12_345),
            args: [1, u64::MAX, 3, 4],
        };
        let result = " success=yes exit=12345 a0=1 a1=ffffffffffffffff a2=3 a3=4";
        assert_eq!(
            appended(&template, stamp, &other),
            Some(text(stamp, result))
        );
        assert_eq!(appended(&template, "audit(7.123:100): ", &CALL), None);
        template.forget();
        assert_eq!(appended(&template, stamp, &CALL), None);
    }

    #[test]
    fn other_texts_are_not_learned() {
        let mut template = EventTemplate::default();
        let whole = text(STAMP, RESULT);
        for other in [
            whole.trim_end(),
            &whole.replace("CWD msg=", "CWD  msg="),
            &whole.replace("a1=10", "a1=11"),
            &whole.replace(" items=1 ppid", " ppid"),
            &whole.replace("type=SYSCALL", "type=URINGOP"),
            &format!("{whole}\n"),
            &format!("{whole}type=EOE msg=audit(1.002:98): \n"),
        ] {
            template.learn(other.as_bytes(), STAMP.as_bytes(), &CALL);
            assert_eq!(appended(&template, STAMP, &CALL), None, "{other}");
        }
    }
}
