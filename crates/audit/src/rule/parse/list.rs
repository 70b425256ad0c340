//! The value of `-a`, `-A` and `-d`: a list and an action, in either order.

use super::super::diag::{Findings, shown};
use super::super::lex::Word;
use super::super::{Action, List, field};

const ADVICE: &str = "write a list and an action with a comma between them, such as `always,exit`";

const LISTS: [List; 6] = [
    List::User,
    List::Task,
    List::Exit,
    List::Exclude,
    List::Filesystem,
    List::IoUring,
];

/// What came of it.
pub(super) enum Reading {
    /// The list and the action.
    Both(List, Action),
    /// An error was reported.
    Neither,
    /// The action is one that `auditctl` passes over, with the rule.
    Deprecated,
}

/// Reads `list,action` or `action,list`.
pub(super) fn read(word: &Word, findings: &mut Findings<'_>) -> Reading {
    let comma = word.text.iter().position(|&byte| byte == b',');
    let Some(comma) = comma.filter(|&at| !word.tail(at + 1).text.contains(&b',')) else {
        return neither(word, findings);
    };
    let (mut list, mut action) = (None, None);
    for part in [word.part(0..comma), word.tail(comma + 1)] {
        let lower = part.text.to_ascii_lowercase();
        if let Some(found) = LISTS
            .into_iter()
            .find(|&list| field::list_name(list).as_bytes() == lower)
        {
            list = Some(found);
            continue;
        }
        match lower.as_slice() {
            b"always" => action = Some(Action::Always),
            b"never" => action = Some(Action::Never),
            b"possible" => {
                findings.warning(
                    "deprecated-action",
                    &part.span,
                    "action `possible` is deprecated",
                    "the rule is left out, as auditctl does: write `always`",
                );
                return Reading::Deprecated;
            }
            b"entry" => {
                findings.error(
                    "bad-list",
                    &part.span,
                    "the entry list is gone",
                    "use the exit list: no other is for syscalls",
                );
                return Reading::Neither;
            }
            _ => {
                let known = LISTS
                    .map(field::list_name)
                    .into_iter()
                    .chain(["always", "never"]);
                findings.unknown("bad-list", "list or action", &part, known, ADVICE);
                return Reading::Neither;
            }
        }
    }
    match (list, action) {
        (Some(list), Some(action)) => Reading::Both(list, action),
        _ => neither(word, findings),
    }
}

fn neither(word: &Word, findings: &mut Findings<'_>) -> Reading {
    let message = format!("`{}` is not a list and an action", shown(&word.text));
    findings.error("bad-list", &word.span, message, ADVICE);
    Reading::Neither
}
