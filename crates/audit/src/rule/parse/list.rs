//! Parses the value of `-a`, `-A` and `-d`: a list and an action, in either order.

use super::super::diagnostic::{Findings, escape_text};
use super::super::lexer::Word;
use super::super::{Action, Dialect, List};

const ADVICE: &str = "write a list and an action with a comma between them, such as `always,exit`";

/// Result of parsing.
pub(super) enum ParsedList {
    /// The list and the action.
    Valid(List, Action),
    /// An error was reported.
    Invalid,
    /// The action is deprecated, and `auditctl` skips the rule.
    Deprecated,
}

/// Parses `list,action` or `action,list`. Version 4 ignores the case of lists. Actions are case-sensitive.
pub(super) fn read(word: &Word, dialect: Dialect, findings: &mut Findings<'_>) -> ParsedList {
    let comma = word.text.iter().position(|&byte| byte == b',');
    let Some(comma) = comma.filter(|&at| !word.tail(at + 1).text.contains(&b',')) else {
        return invalid(word, findings);
    };
    let (mut list, mut action) = (None, None);
    for part in [word.part(0..comma), word.tail(comma + 1)] {
        match part.text.as_slice() {
            b"always" => action = Some(Action::Always),
            b"never" => action = Some(Action::Never),
            b"possible" if list.is_some() => {
                findings.warning(
                    "deprecated-action",
                    &part.span,
                    "action `possible` is deprecated",
                    "the rule is skipped, as by auditctl: write `always`",
                );
                return ParsedList::Deprecated;
            }
            b"entry" => {
                findings.error(
                    "bad-list",
                    &part.span,
                    "the entry list no longer exists",
                    "use the exit list",
                );
                return ParsedList::Invalid;
            }
            name => match by_name(name, dialect) {
                Some(found) => list = Some(found),
                None => {
                    unknown(&part, dialect, findings);
                    return ParsedList::Invalid;
                }
            },
        }
    }
    match (list, action) {
        (Some(list), Some(action)) => ParsedList::Valid(list, action),
        _ => invalid(word, findings),
    }
}

fn by_name(name: &[u8], dialect: Dialect) -> Option<List> {
    lists(dialect).find(|&list| {
        let known = list.name().as_bytes();
        match dialect {
            Dialect::V3 => known == name,
            Dialect::V4 => known.eq_ignore_ascii_case(name),
        }
    })
}

/// Lists of a version. Version 3 does not have `io_uring`.
fn lists(dialect: Dialect) -> impl Iterator<Item = List> {
    List::ALL
        .into_iter()
        .filter(move |&list| dialect == Dialect::V4 || list != List::IoUring)
}

fn unknown(part: &Word, dialect: Dialect, findings: &mut Findings<'_>) {
    let known = lists(dialect).map(List::name).chain(["always", "never"]);
    findings.unknown("bad-list", "list or action", part, known, ADVICE);
}

fn invalid(word: &Word, findings: &mut Findings<'_>) -> ParsedList {
    let message = format!("`{}` is not a list and an action", escape_text(&word.text));
    findings.error("bad-list", &word.span, message, ADVICE);
    ParsedList::Invalid
}
