//! Why a rule cannot be loaded.

/// A mistake in a rule, or something that the engine does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; {advice}")]
pub struct Mistake {
    /// Line in the document, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub advice: &'static str,
    /// The rule is sound, but for events of this log source, which audit logs do not have.
    pub foreign: Option<String>,
}

impl Mistake {
    /// A mistake on a line.
    pub(crate) fn new(line: usize, reason: impl AsRef<str>, advice: &'static str) -> Self {
        Self {
            line,
            reason: one_line(reason.as_ref()),
            advice,
            foreign: None,
        }
    }

    /// A rule for another log source.
    pub(crate) fn foreign(line: usize, source: &str) -> Self {
        let source = one_line(source);
        Self {
            line,
            reason: format!("log source `{source}` is not in audit logs"),
            advice: "give the rule to a program that reads this log source",
            foreign: Some(source),
        }
    }
}

/// Text of a rule on one line, without characters that a terminal may obey. Very long text is cut.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 300;
    let mut line = String::new();
    for (number, word) in text.split_whitespace().enumerate() {
        if number > 0 {
            line.push(' ');
        }
        for character in word.chars() {
            match character {
                '"' | '\'' | '\\' => line.push(character),
                _ => line.extend(character.escape_debug()),
            }
        }
        if let Some((end, _)) = line.char_indices().nth(MOST) {
            line.truncate(end);
            line.push_str("...");
            break;
        }
    }
    line
}

/// First line of a document with `text`, from 1; 1 if there is none.
pub(crate) fn line_of(document: &str, text: &str) -> usize {
    let found = document.lines().position(|line| line.contains(text));
    found.map_or(1, |before| before + 1)
}

/// First line of a document that begins a top-level or nested `key:`, from 1; 1 if there is none.
pub(crate) fn line_of_key(document: &str, key: &str) -> usize {
    let begins = |line: &str| {
        let line = line.trim_start_matches(|character: char| " -'\"".contains(character));
        let rest = line.strip_prefix(key);
        rest.is_some_and(|rest| rest.starts_with([':', '\'', '"', '|']))
    };
    let found = document.lines().position(begins);
    found.map_or(1, |before| before + 1)
}
