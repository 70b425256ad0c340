//! Parses rule text into commands and findings.
//!
//! Each line is parsed to its end, so one run reports all errors. A line with an error gives no command.
//! A line is accepted if `auditctl` of audit-userspace 4.2 accepts it and the kernel (6.12) would not answer
//! EINVAL. tollgate is stricter where both would silently do something else than written:
//!
//! - a number of more than 32 bits (they use its low bits: `uid=4294967296` is root);
//! - a syscall number that is a class in the kernel ABI;
//! - a tab anywhere in a rule;
//! - two control settings on one line.

mod condition;
mod field_tests;
mod keys;
mod list;
pub(super) mod number;
pub(super) mod option;
mod perm_syscalls;
pub(super) mod rule_builder;
mod rule_target;
mod syscalls;
mod value;
mod watch;

use super::diagnostic::{Diagnostic, Findings, escape_text};
use super::lexer::{self, RawLine};
use super::{Command, Dialect, RuleHost, RuleLine};
use keys::Keys;
use number::OversizeNumber;
use option::{Flag, ParsedOption};
use rule_builder::RuleBuilder;

/// Parses a rule file.
///
/// Returns the commands of lines without errors, and all findings, both in file order.
pub fn parse_file(bytes: &[u8], host: &dyn RuleHost) -> (Vec<RuleLine>, Vec<Diagnostic>) {
    let mut lines = Vec::new();
    let mut diagnostics = Vec::new();
    for raw in lexer::lines(bytes) {
        if let Some(command) = read(&raw, host, &mut diagnostics) {
            lines.push(RuleLine {
                number: raw.number,
                span: raw.span(),
                command,
            });
        }
    }
    (lines, diagnostics)
}

/// Parses one command as the first line of a file.
///
/// A newline other than at the end is an error.
pub fn parse_line(bytes: &[u8], host: &dyn RuleHost) -> (Option<Command>, Vec<Diagnostic>) {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut diagnostics = Vec::new();
    let command = match bytes.iter().position(|&byte| byte == b'\n') {
        None => read(
            &RawLine {
                number: 1,
                start: 0,
                bytes,
            },
            host,
            &mut diagnostics,
        ),
        Some(at) => {
            Findings::new(1, 0, &mut diagnostics).error(
                "newline",
                &(at..at + 1),
                "newline in a rule",
                "one line holds one command",
            );
            None
        }
    };
    (command, diagnostics)
}

/// Parses a line and sorts its findings by position.
fn read(
    raw: &RawLine<'_>,
    host: &dyn RuleHost,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<Command> {
    let before = diagnostics.len();
    let command = line(
        raw,
        host,
        &mut Findings::new(raw.number, raw.start, diagnostics),
    );
    if let Some(found) = diagnostics.get_mut(before..) {
        found.sort_by_key(|finding| finding.span.start);
    }
    command
}

fn line(raw: &RawLine<'_>, host: &dyn RuleHost, findings: &mut Findings<'_>) -> Option<Command> {
    let words = lexer::words(raw, findings);
    let count = words.len();
    let given = option::options(words, findings);
    let first = given.first()?;
    let nested = given.iter().find(|given| given.flag == Flag::ReadFile);
    let outside = given.iter().find(|given| given.flag.is_for_command_line());
    let mounts = given
        .iter()
        .find(|given| matches!(given.flag, Flag::Equivalent | Flag::Trim));
    let command = if let Some(given) = outside {
        warn_skipped(
            given,
            "not-in-file",
            "it belongs on the command line of auditctl",
            findings,
        );
        None
    } else if let Some(given) = mounts {
        let advice = "mounts below a watched directory always belong to the watch";
        warn_skipped(given, "unsupported", advice, findings);
        None
    } else if let Some(given) = nested {
        findings.error(
            "not-in-file",
            &given.name.span,
            "rule files cannot read other rule files",
            "pass each file to tollgate",
        );
        None
    } else if let Some(at) = given.iter().position(|given| given.flag == Flag::DeleteAll) {
        delete_all(given, at, count, findings)
    } else if let Some(command) = setting(first, findings) {
        if let Some(second) = given.get(1) {
            findings.error(
                "two-commands",
                &second.name.span,
                format!(
                    "second command `{}` on one line",
                    escape_text(&second.name.text)
                ),
                "put it on a line of its own",
            );
        }
        command
    } else {
        let mut builder = RuleBuilder::new(host, Dialect::V4).without_perm_syscalls();
        for given in &given {
            builder.take(given, findings);
        }
        builder.finish(&raw.span(), findings)
    };
    command.filter(|_| !findings.failed())
}

fn warn_skipped(
    given: &ParsedOption,
    code: &'static str,
    advice: &str,
    findings: &mut Findings<'_>,
) {
    findings.warning(
        code,
        &given.name.span,
        format!(
            "`{}` has no effect here and is ignored",
            escape_text(&given.name.text)
        ),
        advice,
    );
}

/// Parses `-D`, alone or with a key. `auditctl` counts words, so the key must be a word of its own.
fn delete_all(
    mut given: Vec<ParsedOption>,
    at: usize,
    words: usize,
    findings: &mut Findings<'_>,
) -> Option<Command> {
    let delete = given.remove(at);
    let mut others = given.into_iter();
    match (others.next(), others.next(), words) {
        (None, _, 1) => Some(Command::DeleteAll(None)),
        (Some(key), None, 3) if at == 0 && key.flag == Flag::Key && !key.is_joined() => {
            let text = key.value.text.clone();
            Keys::default().add(key.value, Dialect::V4, findings);
            Some(Command::DeleteAll(Some(text.into())))
        }
        (other, ..) => {
            let other = other.map_or_else(|| delete.name.clone(), |other| other.name);
            findings.error(
                "two-commands",
                &other.span,
                format!(
                    "`{}` beside `{}`",
                    escape_text(&other.text),
                    escape_text(&delete.name.text)
                ),
                "write `-D` alone, or `-D -k KEY` with spaces between the words",
            );
            None
        }
    }
}

/// Parses a control setting; `None` if the option is not one, `Some(None)` after an error.
fn setting(given: &ParsedOption, findings: &mut Findings<'_>) -> Option<Option<Command>> {
    let number = |what, findings: &mut Findings<'_>| {
        number::unsigned(what, &given.value, OversizeNumber::Refuse, findings)
    };
    Some(match given.flag {
        Flag::Backlog => number("-b", findings).map(Command::Backlog),
        Flag::BacklogWait => number("--backlog_wait_time", findings).map(Command::BacklogWait),
        Flag::Rate => number("-r", findings).map(Command::Rate),
        Flag::Enabled => {
            let advice = "write 0 for disabled, 1 for enabled, 2 for enabled and immutable";
            level(given, advice, findings).map(Command::Enabled)
        }
        Flag::Failure => {
            let advice = "write 0 for silent, 1 for printk, 2 for panic";
            level(given, advice, findings).map(Command::Failure)
        }
        Flag::IgnoreErrors => Some(Command::IgnoreErrors),
        Flag::ContinueOnErrors => Some(Command::ContinueOnErrors),
        Flag::LoginuidImmutable => Some(Command::LoginuidImmutable),
        _ => return None,
    })
}

/// Parses 0, 1 or 2.
fn level(given: &ParsedOption, advice: &str, findings: &mut Findings<'_>) -> Option<u8> {
    match given.value.text.as_slice() {
        [digit @ b'0'..=b'2'] => Some(digit - b'0'),
        text => {
            findings.error(
                "bad-setting",
                &given.value.span,
                format!(
                    "`{}` is not a value for `{}`",
                    escape_text(text),
                    escape_text(&given.name.text)
                ),
                advice,
            );
            None
        }
    }
}

#[cfg(test)]
mod tests;
