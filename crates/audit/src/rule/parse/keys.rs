//! The keys of a rule, in order.

use std::ops::Range;

use bstr::{BString, ByteSlice as _};

use super::super::Dialect;
use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;

/// Maximum length of all keys of a rule with one separator between them: `AUDIT_MAX_KEY_LEN`.
const LIMIT_BYTES: usize = 256;

/// Separates keys in the kernel ABI: `AUDIT_KEY_SEPARATOR`.
const SEPARATOR: u8 = 1;

#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Word>);

impl Keys {
    pub(super) fn add(&mut self, word: Word, dialect: Dialect, findings: &mut Findings<'_>) {
        if word.text.is_empty() {
            findings.warning(
                "empty-key",
                &word.span,
                "the key is empty",
                "the rule gets no key: remove it",
            );
            return;
        }
        let separated = |key: &Word| key.text.len() + 1;
        let bytes = self.0.iter().map(separated).sum::<usize>() + word.text.len();
        if bytes > LIMIT_BYTES {
            findings.auditctl_fails(&[b"key option exceeds size limit"]);
            findings.error(
                "key-too-long",
                &word.span,
                format!("the keys of the rule have {bytes} bytes"),
                format!("the limit is {LIMIT_BYTES}, including one separator between keys"),
            );
        }
        let text = word.text.as_bstr();
        let is_quote =
            |char: Option<char>| matches!(char, Some('"' | '\'' | '\u{2018}'..='\u{201f}'));
        if is_quote(text.chars().next()) || is_quote(text.chars().next_back()) {
            findings.warning(
                "quoted-key",
                &word.span,
                format!("the quotes belong to the key `{}`", escape_text(&word.text)),
                "write the key without quotes: rules have none",
            );
        }
        if word.text.contains(&SEPARATOR) {
            let message: [&[u8]; 3] = [b"key ", &word.text, b" has illegal character"];
            match dialect {
                Dialect::V3 => findings.transcript.warns(&message),
                Dialect::V4 => findings.auditctl_fails(&message),
            }
            findings.error(
                "bad-key",
                &word.span,
                format!("key `{}` contains the byte 0x01", escape_text(&word.text)),
                "that byte separates keys: write several `-k`",
            );
        }
        self.0.push(word);
    }

    pub(super) fn first(&self) -> Option<&Word> {
        self.0.first()
    }

    /// All keys in the kernel's format.
    pub(super) fn joined(&self) -> Vec<u8> {
        bstr::join([SEPARATOR], self.0.iter().map(|key| key.text.as_slice()))
    }

    pub(super) fn into_texts(self) -> Vec<BString> {
        self.0.into_iter().map(|key| key.text.into()).collect()
    }
}

/// Reports a key without anything to label.
pub(super) fn report_unlabelled(span: &Range<usize>, findings: &mut Findings<'_>) {
    findings.error(
        "key-first",
        span,
        "the key has nothing before it to label",
        "put `-S`, `-w`, `perm`, `path`, `dir`, `exe` or `fstype` before it",
    );
}
