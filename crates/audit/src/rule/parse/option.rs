//! Parses words into options by the rules of `getopt_long(3)`: arguments may be joined to their letter, letters
//! without argument may be joined, and long names may be abbreviated.

mod table;

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;
use table::{LETTERS, LONG, Takes};

pub(in crate::rule) use table::{Flag, spellings};

/// An option with its argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::rule) struct ParsedOption {
    pub(in crate::rule) flag: Flag,
    /// The option as written.
    pub(in crate::rule) name: Word,
    /// The argument; empty if the option takes none.
    pub(in crate::rule) value: Word,
}

impl ParsedOption {
    /// Whether the argument follows the option without a space.
    pub(super) fn is_joined(&self) -> bool {
        self.value.span.start == self.name.span.end
    }
}

/// Iterates over the options of a line.
///
/// Words that belong to no option are collected as strays; `getopt_long(3)` moves them to the end.
pub(in crate::rule) struct Options {
    words: Vec<Word>,
    /// Index of the next word.
    next: usize,
    /// Index of the next letter in a word of joined letters.
    letter: Option<usize>,
    strays: Vec<Word>,
    /// The `--` after which words belong to no option.
    separator: Option<Word>,
    /// Whether the end was reached.
    ended: bool,
}

/// Result of [`Options::next_option`].
#[derive(Debug, PartialEq, Eq)]
pub(in crate::rule) enum NextOption {
    /// A valid option.
    Valid(ParsedOption),
    /// An invalid option, already reported. `auditctl` uses this name for it.
    Invalid(Vec<u8>),
}

impl Options {
    pub(in crate::rule) fn new(words: Vec<Word>) -> Self {
        Self {
            words,
            next: 0,
            letter: None,
            strays: Vec::new(),
            separator: None,
            ended: false,
        }
    }

    /// Returns the next option; `None` at the end.
    pub(in crate::rule) fn next_option(
        &mut self,
        findings: &mut Findings<'_>,
    ) -> Option<NextOption> {
        loop {
            let Some(word) = self.words.get(self.next).cloned() else {
                self.ended = true;
                return None;
            };
            if let Some(at) = self.letter {
                return Some(self.short(&word, at, findings));
            }
            match word.text.as_slice() {
                b"--" => {
                    self.next += 1;
                    self.separator = Some(word);
                    let remaining = self.words.iter().skip(self.next).cloned();
                    self.strays.extend(remaining);
                    self.next = self.words.len();
                }
                [b'-', b'-', ..] => return Some(self.long(&word, findings)),
                [b'-', _, ..] => return Some(self.short(&word, 1, findings)),
                _ => {
                    self.strays.push(word);
                    self.next += 1;
                }
            }
        }
    }

    /// The words after the last option.
    pub(in crate::rule) fn unread(&self) -> impl Iterator<Item = &[u8]> {
        let behind = usize::from(self.letter.is_some());
        self.words
            .iter()
            .skip(self.next + behind)
            .map(|word| word.text.as_slice())
    }

    /// The next word.
    pub(in crate::rule) fn peek(&self) -> Option<&[u8]> {
        self.unread().next()
    }

    /// Number of remaining words; at the end, number of stray words.
    pub(in crate::rule) fn remaining(&self) -> usize {
        match self.words.len() - self.next {
            0 if self.ended => self.strays.len(),
            unread => unread,
        }
    }

    /// Whether no word belongs to an option.
    pub(in crate::rule) fn consumed_none(&self) -> bool {
        self.next == self.strays.len()
    }

    /// The first stray word.
    pub(super) fn stray(&self) -> Option<&Word> {
        self.strays.first()
    }

    /// Parses a letter of a word. Its argument is the rest of the word or the next word.
    fn short(&mut self, word: &Word, at: usize, findings: &mut Findings<'_>) -> NextOption {
        let letter = word.text.get(at).copied().unwrap_or_default();
        let name = Word {
            text: vec![b'-', letter],
            span: if at == 1 {
                word.part(0..2).span
            } else {
                word.part(at..at + 1).span
            },
        };
        let is_last = at + 1 >= word.text.len();
        let Some(&(_, flag, takes)) = LETTERS.iter().find(|&&(other, ..)| other == letter) else {
            findings.error(
                "unknown-option",
                &name.span,
                format!("unknown option `-{}`", escape_text(&[letter])),
                "see auditctl(8) for the options of a rule",
            );
            // `getopt` names the previous word for an unknown letter that is not the last of its word.
            let name_at = if is_last { self.next + 1 } else { self.next };
            self.end_word();
            return NextOption::Invalid(self.name_at(name_at));
        };
        if takes == Takes::Nothing {
            if is_last {
                self.end_word();
            } else {
                self.letter = Some(at + 1);
            }
            let value = word.part(at..at);
            return NextOption::Valid(ParsedOption { flag, name, value });
        }
        self.end_word();
        let joined = (!is_last).then(|| word.tail(at + 1));
        self.with_value(flag, name, joined, findings)
    }

    fn long(&mut self, word: &Word, findings: &mut Findings<'_>) -> NextOption {
        self.end_word();
        let equals = word.text.iter().position(|&byte| byte == b'=');
        let name = word.part(0..equals.unwrap_or(word.text.len()));
        let joined = equals.map(|at| word.tail(at + 1));
        let Some((known, flag, takes)) = long_option(&name, findings) else {
            return NextOption::Invalid(self.name_at(self.next));
        };
        match takes {
            Takes::Nothing if joined.is_some() => {
                findings.error(
                    "unwanted-value",
                    &word.span,
                    format!("option `--{known}` takes no value"),
                    "remove the `=` and the text after it",
                );
                NextOption::Invalid(self.name_at(self.next))
            }
            Takes::Nothing => {
                let value = name.tail(name.text.len());
                NextOption::Valid(ParsedOption { flag, name, value })
            }
            Takes::Value => self.with_value(flag, name, joined, findings),
        }
    }

    fn with_value(
        &mut self,
        flag: Flag,
        name: Word,
        joined: Option<Word>,
        findings: &mut Findings<'_>,
    ) -> NextOption {
        let value = joined.or_else(|| {
            let next = self.words.get(self.next).cloned();
            self.next += usize::from(next.is_some());
            next
        });
        match value {
            Some(value) => NextOption::Valid(ParsedOption { flag, name, value }),
            None => {
                findings.error(
                    "missing-value",
                    &name.span,
                    format!("option `{}` has no value", escape_text(&name.text)),
                    "put the value after it on the same line",
                );
                NextOption::Invalid(self.name_at(self.next))
            }
        }
    }

    fn end_word(&mut self) {
        self.next += 1;
        self.letter = None;
    }

    /// Returns the word before `end`; a space if there is none.
    fn name_at(&self, end: usize) -> Vec<u8> {
        let word = end.checked_sub(1).and_then(|index| self.words.get(index));
        word.map_or_else(|| b" ".to_vec(), |word| word.text.clone())
    }
}

/// Parses the options of a line.
///
/// Only the first stray word is reported: the others are usually parts of the same value.
pub(super) fn options(words: Vec<Word>, findings: &mut Findings<'_>) -> Vec<ParsedOption> {
    let mut options = Options::new(words);
    let mut given = Vec::new();
    while let Some(option) = options.next_option(findings) {
        if let NextOption::Valid(one) = option {
            given.push(one);
        }
    }
    if let Some(word) = options.separator.as_ref().or_else(|| options.stray()) {
        stray(word, findings);
    }
    given
}

/// Returns the long option that `name` names or abbreviates.
fn long_option(name: &Word, findings: &mut Findings<'_>) -> Option<(&'static str, Flag, Takes)> {
    let typed = name.text.get(2..).unwrap_or_default();
    let exact = LONG.iter().find(|&&(known, ..)| known.as_bytes() == typed);
    let mut begun = LONG
        .iter()
        .filter(|&&(known, ..)| known.as_bytes().starts_with(typed));
    match (exact, begun.next(), begun.next()) {
        (Some(exact), ..) => Some(*exact),
        (None, Some(only), None) => Some(*only),
        (None, Some((one, ..)), Some((other, ..))) => {
            findings.error(
                "unknown-option",
                &name.span,
                format!("option `{}` is ambiguous", escape_text(&name.text)),
                format!("write `--{one}` or `--{other}`"),
            );
            None
        }
        (None, None, _) => {
            let bare = name.tail(2);
            findings.unknown(
                "unknown-option",
                "option",
                &Word {
                    text: bare.text,
                    span: name.span.clone(),
                },
                LONG.iter().map(|&(known, ..)| known),
                "see auditctl(8) for the options of a rule",
            );
            None
        }
    }
}

/// Characters that look like a hyphen, with their names. Editors and web pages replace hyphens by them.
const DASHES: [(char, &str); 6] = [
    ('\u{2010}', "hyphen U+2010"),
    ('\u{2011}', "non-breaking hyphen U+2011"),
    ('\u{2012}', "figure dash U+2012"),
    ('\u{2013}', "en dash U+2013"),
    ('\u{2014}', "em dash U+2014"),
    ('\u{2212}', "minus sign U+2212"),
];

fn stray(word: &Word, findings: &mut Findings<'_>) {
    let first = word.text.utf8_chunks().next();
    let first = first.and_then(|chunk| chunk.valid().chars().next());
    if let Some((dash, name)) = DASHES.iter().find(|(dash, _)| Some(*dash) == first) {
        let rest = word.text.get(dash.len_utf8()..).unwrap_or_default();
        findings.error(
            "pasted-dash",
            &word.span,
            format!("the option begins with another character than `-`: {name}"),
            format!(
                "type `-{}`; editors and web pages replace hyphens",
                escape_text(rest)
            ),
        );
        return;
    }
    if first == Some('\u{feff}') {
        findings.error(
            "byte-order-mark",
            &word.span,
            "the line begins with a byte order mark (U+FEFF)",
            "save the file as UTF-8 without byte order mark",
        );
        return;
    }
    let advice = if word.text.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        "rules have no quotes: write a space in a value as `\\ `"
    } else if word.text.starts_with(b"#") {
        "a comment needs a line of its own"
    } else {
        "put an option before it; write a space in a value as `\\ `"
    };
    findings.error(
        "stray-word",
        &word.span,
        format!("`{}` belongs to no option", escape_text(&word.text)),
        advice,
    );
}

#[cfg(test)]
mod tests {
    use super::super::super::diagnostic::Diagnostic;
    use super::super::super::lexer;
    use super::*;

    fn run(line: &str) -> (Vec<(Flag, String)>, Vec<Diagnostic>) {
        let mut all = Vec::new();
        let raw = lexer::RawLine {
            number: 1,
            start: 0,
            bytes: line.as_bytes(),
        };
        let mut findings = Findings::new(1, 0, &mut all);
        let words = lexer::words(&raw, &mut findings);
        let given = options(words, &mut findings)
            .into_iter()
            .map(|one| (one.flag, String::from_utf8(one.value.text).unwrap()))
            .collect();
        (given, all)
    }

    #[test]
    fn option_values_may_be_joined() {
        for line in ["-k foo", "-kfoo"] {
            assert_eq!(run(line), (vec![(Flag::Key, "foo".to_owned())], vec![]));
        }
        for line in ["--backlog_wait_time 9", "--backlog_wait_time=9", "--back 9"] {
            assert_eq!(
                run(line),
                (vec![(Flag::BacklogWait, "9".to_owned())], vec![])
            );
        }
    }

    #[test]
    fn option_letters_may_be_clustered() {
        let (given, findings) = run("-Dkx");
        assert_eq!(
            given,
            [
                (Flag::DeleteAll, String::new()),
                (Flag::Key, "x".to_owned())
            ]
        );
        assert_eq!(findings, []);
    }

    #[test]
    fn option_value_may_begin_with_dash() {
        let (given, findings) = run("-k -F x");
        assert_eq!(given, [(Flag::Key, "-F".to_owned())]);
        assert_eq!(findings[0].code, "stray-word");
        assert_eq!(findings[0].span, 6..7);
    }

    #[test]
    fn mistakes_are_reported_with_position() {
        for (line, code, column) in [
            ("-x", "unknown-option", 1),
            ("-Dx", "unknown-option", 3),
            ("-D -a", "missing-value", 4),
            ("--frob", "unknown-option", 1),
            ("--reset", "unknown-option", 1),
            ("--loginuid-immutable=1", "unwanted-value", 1),
            ("--backlog_wait_time", "missing-value", 1),
            ("-D -- -D", "stray-word", 4),
            ("-", "stray-word", 1),
        ] {
            let (_, findings) = run(line);
            assert_eq!(findings.len(), 1, "{line}");
            assert_eq!(
                (findings[0].code, findings[0].column),
                (code, column),
                "{line}"
            );
        }
    }
}
