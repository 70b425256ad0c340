//! The option that makes a line a rule: add, insert or delete, on which list, with which action.

use super::super::diagnostic::{Findings, escape_text};
use super::super::{Action, Insertion, List};
use super::option::ParsedOption;

/// What the option asks for.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Add(Insertion),
    Delete,
}

impl Operation {
    pub(super) const fn name(self) -> &'static [u8] {
        match self {
            Self::Add(Insertion::Append) => b"Append",
            Self::Add(Insertion::Prepend) => b"Add",
            Self::Delete => b"Delete",
        }
    }
}

/// The operation, the list and the action that `-a`, `-A`, `-d`, `-w` or `-W` gave.
#[derive(Clone, Copy)]
pub(super) struct RuleTarget {
    pub(super) operation: Operation,
    pub(super) list: List,
    pub(super) action: Action,
}

/// Reports a second `-a`, `-A`, `-d`, `-w` or `-W` on one line.
pub(super) fn report_second_rule(given: &ParsedOption, findings: &mut Findings<'_>) {
    findings.error(
        "two-rules",
        &given.name.span,
        format!(
            "second rule `{}` on one line",
            escape_text(&given.name.text)
        ),
        "put it on a line of its own; a watch is written `-F path=` after `-a`",
    );
}
