//! Parses `-w`.

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;
use super::super::{Field, FieldTest, Op, RuleHost, Value, perm};
use super::value::PATH_LIMIT_BYTES;

/// `NAME_MAX` of `include/uapi/linux/limits.h`.
const NAME_LIMIT_BYTES: usize = 255;

/// Returns the fields of `-w PATH`; `None` after an error.
pub(super) fn read(
    word: &Word,
    host: &dyn RuleHost,
    findings: &mut Findings<'_>,
) -> Option<[FieldTest; 2]> {
    let shown = escape_text(&word.text);
    let mut error = |code, refusal: &[u8], message: String, advice: &str| {
        findings.auditctl_fails(&[refusal]);
        findings.error(code, &word.span, message, advice);
        None
    };
    if word.text.len() >= PATH_LIMIT_BYTES {
        return error(
            "value-too-long",
            b"The path passed for the watch is too big",
            format!("watch path has {} bytes", word.text.len()),
            "the kernel accepts paths of at most 4095 bytes",
        );
    }
    if !word.text.starts_with(b"/") {
        return error(
            "relative-path",
            b"The path must start with '/'",
            format!("watch path `{shown}` does not begin with `/`"),
            "write an absolute path; rules have no quotes and no `~`",
        );
    }
    let end = match word.text.as_slice() {
        // `auditctl` does not trim it.
        b"//" => 2,
        text => text
            .iter()
            .rposition(|&byte| byte != b'/')
            .map_or(1, |last| last + 1),
    };
    let path = word.text.get(..end).unwrap_or_default();
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    if name.len() > NAME_LIMIT_BYTES {
        return error(
            "value-too-long",
            b"The base name of the path is too big",
            format!("file name in watch path has {} bytes", name.len()),
            "file names have at most 255 bytes",
        );
    }
    if path.windows(2).any(|pair| pair == b"..") {
        findings
            .transcript
            .warns(&[b"Warning - relative path notation is not supported"]);
        findings.warning(
            "dot-dot",
            &word.span,
            format!("`..` in watch path `{shown}` is not resolved"),
            "write the path without `..`",
        );
    }
    if path.iter().any(|byte| matches!(byte, b'*' | b'?')) {
        findings
            .transcript
            .warns(&[b"Warning - wildcard notation is not supported"]);
        findings.warning(
            "wildcard",
            &word.span,
            format!("wildcards in watch path `{shown}` are taken literally"),
            "watch the directory, or list the files",
        );
    }
    let field = if host.is_directory(path) {
        Field::Dir
    } else {
        Field::Path
    };
    let equal = |field, value| FieldTest {
        field,
        op: Op::Equal,
        value,
    };
    Some([
        equal(field, Value::Text(path.into())),
        equal(
            Field::Perm,
            Value::Number(perm::READ | perm::WRITE | perm::EXEC | perm::ATTR),
        ),
    ])
}
