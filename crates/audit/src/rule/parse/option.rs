//! Words to options, by the rules of `getopt_long(3)`: arguments may be joined to their letter,
//! letters without argument may be joined to each other, long names may be cut short.

use super::super::diag::{Findings, shown};
use super::super::lex::Word;

/// An option with its argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) flag: Flag,
    /// The option as written, for pointing at.
    pub(super) name: Word,
    /// Empty when the option takes none.
    pub(super) value: Word,
}

/// What an option is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// `-a`
    Append,
    /// `-A`
    Insert,
    /// `-d`
    Delete,
    /// `-D`
    DeleteAll,
    /// `-w`
    Watch,
    /// `-W`
    Unwatch,
    /// `-p`
    Perm,
    /// `-k`
    Key,
    /// `-S`
    Syscall,
    /// `-F`
    Field,
    /// `-C`
    Compare,
    /// `-b`
    Backlog,
    /// `-e`
    Enabled,
    /// `-f`
    Failure,
    /// `-r`
    Rate,
    /// `--backlog_wait_time`
    BacklogWait,
    /// `-i`
    IgnoreErrors,
    /// `-c`
    ContinueOnErrors,
    /// `--loginuid-immutable`
    LoginuidImmutable,
    /// `-R`
    ReadFile,
    /// Means something on the command line of `auditctl`, and nothing among rules.
    CommandLine,
    /// Means something among rules that tollgate cannot do.
    Unsupported,
}

/// # Source
/// `getopt_long()` string of `src/auditctl.c`, audit-userspace 4.2.
const LETTERS: &[(u8, Flag, Takes)] = &[
    (b'a', Flag::Append, Takes::Value),
    (b'A', Flag::Insert, Takes::Value),
    (b'd', Flag::Delete, Takes::Value),
    (b'D', Flag::DeleteAll, Takes::Nothing),
    (b'w', Flag::Watch, Takes::Value),
    (b'W', Flag::Unwatch, Takes::Value),
    (b'p', Flag::Perm, Takes::Value),
    (b'k', Flag::Key, Takes::Value),
    (b'S', Flag::Syscall, Takes::Value),
    (b'F', Flag::Field, Takes::Value),
    (b'C', Flag::Compare, Takes::Value),
    (b'b', Flag::Backlog, Takes::Value),
    (b'e', Flag::Enabled, Takes::Value),
    (b'f', Flag::Failure, Takes::Value),
    (b'r', Flag::Rate, Takes::Value),
    (b'i', Flag::IgnoreErrors, Takes::Nothing),
    (b'c', Flag::ContinueOnErrors, Takes::Nothing),
    (b'R', Flag::ReadFile, Takes::Value),
    (b'm', Flag::CommandLine, Takes::Value),
    (b'h', Flag::CommandLine, Takes::Nothing),
    (b's', Flag::CommandLine, Takes::Nothing),
    (b'l', Flag::CommandLine, Takes::Nothing),
    (b'v', Flag::CommandLine, Takes::Nothing),
    (b'q', Flag::Unsupported, Takes::Value),
    (b't', Flag::Unsupported, Takes::Nothing),
];

const LONG: &[(&str, Flag, Takes)] = &[
    ("backlog_wait_time", Flag::BacklogWait, Takes::Value),
    ("help", Flag::CommandLine, Takes::Nothing),
    (
        "loginuid-immutable",
        Flag::LoginuidImmutable,
        Takes::Nothing,
    ),
    ("reset-lost", Flag::CommandLine, Takes::Nothing),
    (
        "reset_backlog_wait_time_actual",
        Flag::CommandLine,
        Takes::Nothing,
    ),
    ("signal", Flag::CommandLine, Takes::Value),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
}

/// The options of a line, in order.
///
/// Of the words that belong to no option only the first is reported: the others are mostly the
/// rest of the same value.
pub(super) fn options(words: Vec<Word>, findings: &mut Findings<'_>) -> Vec<Given> {
    let mut given = Vec::new();
    let mut strays = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.text.as_slice() {
            b"--" => strays.extend(words.by_ref()),
            [b'-', b'-', ..] => long(&word, &mut words, &mut given, findings),
            [b'-', _, ..] => short(&word, &mut words, &mut given, findings),
            _ => strays.push(word),
        }
    }
    if let Some(word) = strays.first() {
        stray(word, findings);
    }
    given
}

/// A word of letters, the last of which may take the rest of the word or the next word.
fn short(
    word: &Word,
    words: &mut impl Iterator<Item = Word>,
    given: &mut Vec<Given>,
    findings: &mut Findings<'_>,
) {
    for (at, &letter) in word.text.iter().enumerate().skip(1) {
        let name = Word {
            text: vec![b'-', letter],
            span: if at == 1 {
                word.part(0..2).span
            } else {
                word.part(at..at + 1).span
            },
        };
        let Some(&(_, flag, takes)) = LETTERS.iter().find(|&&(other, ..)| other == letter) else {
            findings.error(
                "unknown-option",
                &name.span,
                format!("unknown option `-{}`", shown(&[letter])),
                "see auditctl(8) for the options of a rule",
            );
            return;
        };
        if takes == Takes::Nothing {
            let value = word.part(at..at);
            given.push(Given { flag, name, value });
            continue;
        }
        let joined = (at + 1 < word.text.len()).then(|| word.tail(at + 1));
        push_with_value(flag, name, joined.or_else(|| words.next()), given, findings);
        return;
    }
}

fn long(
    word: &Word,
    words: &mut impl Iterator<Item = Word>,
    given: &mut Vec<Given>,
    findings: &mut Findings<'_>,
) {
    let equals = word.text.iter().position(|&byte| byte == b'=');
    let name = word.part(0..equals.unwrap_or(word.text.len()));
    let joined = equals.map(|at| word.tail(at + 1));
    let typed = name.text.get(2..).unwrap_or_default();

    let exact = LONG.iter().find(|&&(known, ..)| known.as_bytes() == typed);
    let mut begun = LONG
        .iter()
        .filter(|&&(known, ..)| known.as_bytes().starts_with(typed));
    let found = match (exact, begun.next(), begun.next()) {
        (Some(exact), ..) => exact,
        (None, Some(only), None) => only,
        (None, Some((one, ..)), Some((other, ..))) => {
            findings.error(
                "unknown-option",
                &name.span,
                format!("option `{}` is ambiguous", shown(&name.text)),
                format!("write `--{one}` or `--{other}`"),
            );
            return;
        }
        (None, None, _) => {
            let bare = name.tail(2);
            findings.unknown(
                "unknown-option",
                "option",
                &Word {
                    text: bare.text,
                    span: name.span,
                },
                LONG.iter().map(|&(known, ..)| known),
                "see auditctl(8) for the options of a rule",
            );
            return;
        }
    };
    match *found {
        (known, _, Takes::Nothing) if joined.is_some() => findings.error(
            "unwanted-value",
            &word.span,
            format!("option `--{known}` takes no value"),
            "leave the `=` and what follows it out",
        ),
        (_, flag, Takes::Nothing) => {
            let value = name.tail(name.text.len());
            given.push(Given { flag, name, value });
        }
        (_, flag, Takes::Value) => {
            push_with_value(flag, name, joined.or_else(|| words.next()), given, findings);
        }
    }
}

fn push_with_value(
    flag: Flag,
    name: Word,
    value: Option<Word>,
    given: &mut Vec<Given>,
    findings: &mut Findings<'_>,
) {
    match value {
        Some(value) => given.push(Given { flag, name, value }),
        None => findings.error(
            "missing-value",
            &name.span,
            format!("option `{}` has no value", shown(&name.text)),
            "put the value after it on the same line",
        ),
    }
}

fn stray(word: &Word, findings: &mut Findings<'_>) {
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
        format!("`{}` belongs to no option", shown(&word.text)),
        advice,
    );
}

#[cfg(test)]
mod tests {
    use super::super::super::diag::Diagnostic;
    use super::super::super::lex;
    use super::*;

    fn run(line: &str) -> (Vec<(Flag, String)>, Vec<Diagnostic>) {
        let mut all = Vec::new();
        let raw = lex::RawLine {
            number: 1,
            start: 0,
            bytes: line.as_bytes(),
        };
        let mut findings = Findings::new(1, 0, &mut all);
        let words = lex::words(&raw, &mut findings);
        let given = options(words, &mut findings)
            .into_iter()
            .map(|one| (one.flag, String::from_utf8(one.value.text).unwrap()))
            .collect();
        (given, all)
    }

    #[test]
    fn values_may_be_joined() {
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
    fn letters_may_be_clustered() {
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
    fn a_value_may_look_like_an_option() {
        let (given, findings) = run("-k -F x");
        assert_eq!(given, [(Flag::Key, "-F".to_owned())]);
        assert_eq!(findings[0].code, "stray-word");
        assert_eq!(findings[0].span, 6..7);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, code, column) in [
            ("-x", "unknown-option", 1),
            ("-Dx", "unknown-option", 3),
            ("-D -a", "missing-value", 4),
            ("--frob", "unknown-option", 1),
            ("--reset", "unknown-option", 1),
            ("--loginuid-immutable=1", "unwanted-value", 1),
            ("--backlog_wait_time", "missing-value", 1),
            ("-D -- -D", "stray-word", 7),
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
