//! Splits rule text into lines and words, with their positions.
//!
//! The language has no quotes. Only spaces separate words. A backslash escapes a space or a backslash. A line
//! whose first word begins with `#` is a comment.

use std::ops::Range;

use super::diagnostic::Findings;

/// Maximum length of a line that `auditctl` does not split.
pub(super) const LINE_LIMIT_BYTES: usize = 6144;

/// A line without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawLine<'a> {
    /// Line number, from 1.
    pub(super) number: u32,
    /// Offset in the file.
    pub(super) start: usize,
    pub(super) bytes: &'a [u8],
}

impl RawLine<'_> {
    pub(super) fn span(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// Whether the line is blank or a comment.
    pub(super) fn is_blank_or_comment(&self) -> bool {
        self.bytes
            .iter()
            .find(|&&byte| byte != b' ')
            .is_none_or(|&byte| byte == b'#')
    }
}

/// A word with its escapes resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: Vec<u8>,
    /// Byte range in the file, escapes included.
    pub(super) span: Range<usize>,
}

impl Word {
    /// The part of the word at `range` of its text.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        let text = self.text.get(range.clone()).unwrap_or_default().to_vec();
        // If escapes make text and span differ, the span is that of the whole word.
        let span = if self.text.len() == self.span.len() {
            self.span.start + range.start..self.span.start + range.end
        } else {
            self.span.clone()
        };
        Self { text, span }
    }

    /// The part of the word from `start` on.
    pub(super) fn tail(&self, start: usize) -> Self {
        self.part(start.min(self.text.len())..self.text.len())
    }
}

/// The lines of a file. The last one needs no newline.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = RawLine<'_>> {
    let mut start = 0;
    bytes
        .split(|&byte| byte == b'\n')
        .zip(1u32..)
        .map(move |(bytes, number)| {
            let line = RawLine {
                number,
                start,
                bytes,
            };
            start += bytes.len() + 1;
            line
        })
}

/// Returns the words of a line; none after an error that affects the whole line.
pub(super) fn words(line: &RawLine<'_>, findings: &mut Findings<'_>) -> Vec<Word> {
    if line.is_blank_or_comment() {
        return Vec::new();
    }
    if line.bytes.len() > LINE_LIMIT_BYTES {
        findings.error(
            "line-too-long",
            &line.span(),
            format!("line of {} bytes is too long", line.bytes.len()),
            format!("a line holds at most {LINE_LIMIT_BYTES} bytes: split the rule"),
        );
        return Vec::new();
    }
    for (byte, code, message, advice) in [
        (
            b'\0',
            "nul-byte",
            "NUL byte in a rule",
            "rule files are plain text: this file is damaged or not a rule file",
        ),
        (
            b'\t',
            "tab",
            "tab in a rule",
            "auditctl splits words at spaces only: replace the tab with a space",
        ),
    ] {
        if let Some(at) = line.bytes.iter().position(|&other| other == byte) {
            let at = line.start + at;
            findings.error(code, &(at..at + 1), message, advice);
        }
    }
    let text = if let [text @ .., b'\r'] = line.bytes {
        let at = line.start + text.len();
        findings.warning(
            "carriage-return",
            &(at..at + 1),
            "carriage return at the end of the line",
            "tollgate and augenrules ignore it; auditctl would add it to the last word: save the file \
             with Unix line ends",
        );
        text
    } else {
        line.bytes
    };
    if findings.failed() {
        Vec::new()
    } else {
        split(text, line.start)
    }
}

/// Splits a line of any bytes into words. `start` is its offset in the file.
pub(super) fn split(text: &[u8], start: usize) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut bytes = text.iter().copied().zip(start..).peekable();
    while let Some((byte, at)) = bytes.next() {
        if byte == b' ' {
            words.extend(word.take());
            continue;
        }
        let escaped = match byte {
            b'\\' => bytes.next_if(|&(next, _)| matches!(next, b' ' | b'\\')),
            _ => None,
        };
        let (byte, last) = escaped.unwrap_or((byte, at));
        let word = word.get_or_insert_with(|| Word {
            text: Vec::new(),
            span: at..at,
        });
        word.text.push(byte);
        word.span.end = last + 1;
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &[u8]) -> Vec<Vec<u8>> {
        split(line, 0).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn lines_have_number_and_offset() {
        let found: Vec<_> = lines(b"a\n\nbc")
            .map(|line| (line.number, line.start, line.bytes))
            .collect();
        assert_eq!(found, [(1, 0, &b"a"[..]), (2, 2, b""), (3, 3, b"bc")]);
    }

    #[test]
    fn words_are_split_at_spaces_only() {
        assert_eq!(texts(b"  -w  /etc "), [b"-w".to_vec(), b"/etc".to_vec()]);
        assert_eq!(texts(b"a\tb"), [b"a\tb".to_vec()]);
        assert_eq!(texts(b"\"a b\""), [b"\"a".to_vec(), b"b\"".to_vec()]);
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(texts(br"a\ b\\c\d\"), [br"a b\c\d\".to_vec()]);
        assert_eq!(texts(br"\\ x"), [br"\".to_vec(), b"x".to_vec()]);
    }

    #[test]
    fn spans_cover_the_words_as_written() {
        let words = split(br" a\ b cd", 10);
        assert_eq!(words[0].span, 11..15);
        assert_eq!(words[1].span, 16..18);
        assert_eq!(
            words[0].part(1..2),
            Word {
                text: b" ".to_vec(),
                span: 11..15
            }
        );
        assert_eq!(
            words[1].part(1..2),
            Word {
                text: b"d".to_vec(),
                span: 17..18
            }
        );
        assert_eq!(
            words[1].tail(9),
            Word {
                text: Vec::new(),
                span: 18..18
            }
        );
    }

    #[test]
    fn blank_lines_and_comments_are_recognised() {
        for (text, idle) in [
            (&b""[..], true),
            (b"   ", true),
            (b"  # x\0", true),
            (b"#", true),
            (b" -D #", false),
            (b"\t", false),
        ] {
            assert_eq!(
                RawLine {
                    number: 1,
                    start: 0,
                    bytes: text
                }
                .is_blank_or_comment(),
                idle
            );
        }
    }
}
