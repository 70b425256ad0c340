//! The YAML documents of a file, and the bounds of what the parser of YAML gets.
//!
//! The bounds are on what a document can contain, not on what a parser finds in it, so that no document can hide
//! anything from them. With them, parsing takes at most milliseconds: parsers of YAML need time of the square of the
//! depth, and memory of the product of aliases.

use std::collections::HashSet;

use super::Mistake;

/// Most bytes of a file of rules. The largest one of `SigmaHQ` has 49,828.
pub const MAX_FILE_BYTES: usize = 256 << 10;
/// Most documents in a file.
const MAX_DOCUMENTS: usize = 1000;
/// Most `[` and `{` in a document, also in texts: they bound the depth of flow collections.
const MAX_BRACKETS: usize = 512;
/// Most spaces and dashes before the first other character of a line: they bound the depth of block collections.
const MAX_INDENT: usize = 96;
/// Most `and`, `or`, `not` and backslashes in a document, also in texts: they bound the operators of a condition, and its
/// depth.
const MAX_OPERATORS: usize = 2000;
/// Most aliases of anchors in a document, and most bytes of a document that has any.
const MAX_ALIASES: usize = 8;
const MAX_BYTES_WITH_ALIASES: usize = 8 << 10;

/// Begins a document, at the start of a line.
const SEPARATOR: &str = "---";

/// A document of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// Its text, after the separator.
    pub text: &'a str,
    /// Lines of the file before its first one.
    pub lines_before: usize,
}

/// Splits the text of a file at lines that begin with `---`. Documents without any content are left out.
///
/// # Errors
/// There are too many.
pub fn documents(text: &str) -> Result<Vec<Document<'_>>, Mistake> {
    let mut found = Vec::new();
    let (mut start, mut at, mut lines_before) = (0, 0, 0);
    let mut add = |start: usize, end: usize, lines_before| {
        let text = text.get(start..end).unwrap_or_default();
        let has_content =
            |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        if text.lines().any(has_content) {
            found.push(Document { text, lines_before });
        }
    };
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line
            .strip_prefix(SEPARATOR)
            .is_some_and(|rest| rest.trim().is_empty() || rest.starts_with(' '))
        {
            add(start, at, lines_before);
            (start, lines_before) = (at + SEPARATOR.len(), number);
        }
        at += line.len();
    }
    add(start, at, lines_before);
    match found.len() > MAX_DOCUMENTS {
        true => Err(Mistake::new(
            1,
            format!(
                "the file has {} documents, and at most {MAX_DOCUMENTS} are read",
                found.len()
            ),
            "split it",
        )),
        false => Ok(found),
    }
}

/// What a document has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// A rule.
    Rule,
    /// A filter of rules.
    Filter,
    /// A correlation of the matches of rules.
    Correlation,
}

impl Document<'_> {
    /// What the document has, by its top-level keys.
    ///
    /// # Errors
    /// The document is part of a collection with `action`, or has several of these.
    pub fn kind(&self) -> Result<DocumentKind, Mistake> {
        let line_of = |key: &str| {
            let begins = |line: &str| {
                line.strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with(':'))
            };
            let before = self.text.lines().position(begins)?;
            Some(before + 1)
        };
        if let Some(line) = line_of("action") {
            return Err(Mistake::new(
                line,
                "collections with `action` are not in Sigma 2, and are not supported",
                "write each rule whole, as a document of its own",
            ));
        }
        let kinds = [
            ("filter", DocumentKind::Filter),
            ("correlation", DocumentKind::Correlation),
            ("detection", DocumentKind::Rule),
        ];
        let found = kinds.map(|(key, kind)| Some((line_of(key)?, key, kind)));
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some((_, first, _)), Some((line, second, _))) => Err(Mistake::new(
                line,
                format!(
                    "the document has `{first}` and `{second}`, and one of them would be left out"
                ),
                "separate them by a line `---`",
            )),
            (Some((_, _, kind)), None) => Ok(kind),
            (None, _) => Ok(DocumentKind::Rule),
        }
    }

    /// Checks that a parser of YAML can read the document in bounded time and memory.
    ///
    /// # Errors
    /// The first line that exceeds a bound.
    pub fn check(&self) -> Result<(), Mistake> {
        let (mut brackets, mut operators, mut aliases) = (0, 0, 0);
        let mut anchors = HashSet::new();
        for (line, number) in self.text.lines().zip(1..) {
            if line.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{feff}']) {
                return Err(Mistake::new(
                    number,
                    "the line has a line break that is not `\\n` or `\\r\\n`, or a byte order mark",
                    "convert the file to plain lines of UTF-8",
                ));
            }
            let content = line.trim_start_matches([' ', '-', '?', '\t']);
            if line.len() - content.len() > MAX_INDENT && !content.is_empty() {
                return Err(Mistake::new(
                    number,
                    format!("the line is indented by more than {MAX_INDENT} characters"),
                    "rules have less than ten levels",
                ));
            }
            brackets += line.bytes().filter(|byte| b"[{".contains(byte)).count();
            if brackets > MAX_BRACKETS {
                return Err(Mistake::new(
                    number,
                    format!("the document has more than {MAX_BRACKETS} `[` and `{{`"),
                    "write lists with one value on a line",
                ));
            }
            operators += operator_count(line);
            if operators > MAX_OPERATORS {
                return Err(Mistake::new(
                    number,
                    format!(
                        "the document has more than {MAX_OPERATORS} words `and`, `or` and `not`, and backslashes"
                    ),
                    "split the rule",
                ));
            }
            // An alias follows its anchor.
            anchors.extend(references(line, b'&'));
            let found = references(line, b'*').filter(|name| anchors.contains(name));
            aliases += found.count();
            if aliases > MAX_ALIASES || aliases > 0 && self.text.len() > MAX_BYTES_WITH_ALIASES {
                let reason = format!(
                    "the document has more than {MAX_ALIASES} aliases (`*`), or aliases and more than {MAX_BYTES_WITH_ALIASES} bytes"
                );
                return Err(Mistake::new(number, reason, "write the values out"));
            }
        }
        Ok(())
    }
}

/// Counts what can be an operator of a condition in a line; an escape can hide one.
fn operator_count(line: &str) -> usize {
    let words = line.split(|character: char| !character.is_ascii_alphanumeric());
    let operators = ["and", "or", "not"].into_iter();
    let is_operator = |word: &&str| {
        let mut operators = operators.clone();
        operators.any(|operator| word.eq_ignore_ascii_case(operator))
    };
    words.filter(is_operator).count() + line.bytes().filter(|byte| *byte == b'\\').count()
}

/// Names of what can be anchors or aliases in a line: the mark with a name after it, behind what can end another token.
fn references(line: &str, mark: u8) -> impl Iterator<Item = &str> {
    let bytes = line.as_bytes();
    let marks = bytes.iter().enumerate().filter(move |(at, byte)| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        **byte == mark && before.is_none_or(|before| b" \t[{,:-?".contains(before))
    });
    marks.filter_map(move |(at, _)| {
        let name = line.get(at + 1..)?;
        let is_part =
            |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        let end = name.find(|character: char| !is_part(character));
        name.get(..end.unwrap_or(name.len()))
            .filter(|name| !name.is_empty())
    })
}
