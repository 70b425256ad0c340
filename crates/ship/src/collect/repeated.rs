//! Records that come again at the beginning of a connection: those that a peer has sent on the last one, and of which it
//! does not know that they were written.
//!
//! Nothing that a peer claims makes a record a repeated one, only the log: its first line must be there, and each further
//! one behind it. So nobody can have records left out that are not in the log.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;

use bstr::ByteSlice as _;

/// What is known of the records of a connection.
#[derive(Debug)]
pub(super) enum Repeated {
    /// None came.
    Unknown,
    /// All were in the log; the next lines of it.
    Lines(LogLines),
    /// One was new: so are those that follow.
    Over,
}

/// Lines of a log, up to the end that it had when they were found.
#[derive(Debug)]
pub(super) struct LogLines(VecDeque<LogPart>);

/// Where the first line of a connection is searched.
#[derive(Debug, Default)]
pub(super) struct LogEnd {
    /// The last files of the log, the oldest first.
    pub(super) parts: Vec<LogPart>,
    /// How much of the end of each is searched.
    pub(super) window: u64,
}

/// A part of a file.
#[derive(Debug)]
pub(super) struct LogPart {
    pub(super) file: File,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Repeated {
    /// Whether a line was in the log before; `find` gives the end of the log.
    pub(super) fn is_in_log(&mut self, line: &[u8], find: impl FnOnce() -> LogEnd) -> bool {
        let lines = match mem::replace(self, Self::Over) {
            Self::Over => return false,
            Self::Unknown => LogLines::behind(find(), line),
            Self::Lines(mut lines) => lines.is_next(line).map(|is_next| is_next.then_some(lines)),
        };
        // What cannot be read may be new.
        let Ok(Some(lines)) = lines else {
            return false;
        };
        *self = Self::Lines(lines);
        true
    }
}

impl LogLines {
    /// The lines behind the last one that is `line`; `None` if there is none.
    fn behind(log: LogEnd, line: &[u8]) -> io::Result<Option<Self>> {
        let whole = [b"\n", line, b"\n"].concat();
        let mut found = VecDeque::new();
        for mut part in log.parts.into_iter().rev() {
            part.start = part.start.max(part.end.saturating_sub(log.window));
            // A file begins with a line; the window may not.
            let mut bytes = vec![if part.start == 0 { b'\n' } else { 0 }];
            bytes.resize(usize::try_from(part.end - part.start).unwrap_or(0) + 1, 0);
            let start = part.start;
            if let Some(rest) = bytes.get_mut(1..) {
                part.file.read_exact_at(rest, start)?;
            }
            if let Some(at) = bytes.rfind(&whole) {
                let behind = at + whole.len() - 1;
                part.start = start + u64::try_from(behind).unwrap_or(0);
                found.push_front(part);
                return Ok(Some(Self(found)));
            }
            part.start = 0;
            found.push_front(part);
        }
        Ok(None)
    }

    /// Whether the next line is this one.
    fn is_next(&mut self, line: &[u8]) -> io::Result<bool> {
        while self.0.front().is_some_and(|part| part.start == part.end) {
            self.0.pop_front();
        }
        let Some(part) = self.0.front_mut() else {
            return Ok(false);
        };
        let length = line.len() + 1;
        let end = part.start + u64::try_from(length).unwrap_or(u64::MAX);
        if end > part.end {
            return Ok(false);
        }
        let mut found = vec![0; length];
        part.file.read_exact_at(&mut found, part.start)?;
        part.start = end;
        Ok(found.strip_suffix(b"\n") == Some(line))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::search_budget::WINDOW_BYTES;
    use super::*;

    fn parts(texts: &[&str]) -> Vec<LogPart> {
        let part = |text: &&str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let end = u64::try_from(text.len()).unwrap();
            LogPart {
                file,
                start: 0,
                end,
            }
        };
        texts.iter().map(part).collect()
    }

    /// Which of these lines, in order, were in the log.
    fn repeated(log: &[&str], lines: &[&str]) -> Vec<bool> {
        repeated_within(log, WINDOW_BYTES, lines)
    }

    fn repeated_within(log: &[&str], window: u64, lines: &[&str]) -> Vec<bool> {
        let mut repeated = Repeated::Unknown;
        let lines = lines.iter();
        let find = || LogEnd {
            parts: parts(log),
            window,
        };
        lines
            .map(|line| repeated.is_in_log(line.as_bytes(), find))
            .collect()
    }

    #[test]
    fn lines_that_follow_each_other_in_the_log_are_repeated() {
        let log = ["a\nbb\nc\n", "d\n", "", "e\nf\n"];
        assert_eq!(
            repeated(&log, &["bb", "c", "d", "e", "f", "g", "a"]),
            [true, true, true, true, true, false, false]
        );
        assert_eq!(repeated(&log, &["a", "bb"]), [true, true]);
        assert_eq!(repeated(&log, &["f", "f"]), [true, false]);
        // The last one of the same text.
        assert_eq!(repeated(&["a\nb\na\nc\n"], &["a", "c"]), [true, true]);
    }

    #[test]
    fn other_lines_are_new() {
        let log = ["one\ntwo\nthree\n"];
        for lines in [
            &["ne", "two"][..],
            &["on"],
            &[""],
            &["one\ntwo2"],
            &["four", "one"],
        ] {
            assert!(!repeated(&log, lines).contains(&true), "{lines:?}");
        }
        assert_eq!(
            repeated(&log, &["one", "three", "two"]),
            [true, false, false]
        );
        assert_eq!(repeated(&[], &["one"]), [false]);
        // A part of a line at the end.
        assert_eq!(
            repeated(&["one\ntw"], &["one", "two", "tw"]),
            [true, false, false]
        );
    }

    #[test]
    fn only_the_end_of_a_large_log_is_searched() {
        let large = "first\n".to_owned() + &"x\n".repeat(5 << 20) + "last\n";
        assert_eq!(repeated(&[&large], &["first"]), [false]);
        assert_eq!(repeated(&[&large, "y\n"], &["last", "y"]), [true, true]);
        let log = ["a\nbb\n", "c\nd\n"];
        for (window, first, is_found) in [
            (0, "d", false),
            (3, "d", true),
            (3, "c", false),
            // Lines behind the first one are outside of it, too.
            (4, "bb", true),
        ] {
            let found = repeated_within(&log, window, &[first, "c"]);
            assert_eq!(found[0], is_found, "{window} {first}");
            assert_eq!(found[1], first == "bb", "{window} {first}");
        }
    }
}
