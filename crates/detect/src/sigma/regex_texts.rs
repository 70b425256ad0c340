//! Texts that all values have which a regular expression matches, so that it is compared with few of them.
//!
//! Texts are ASCII, in lower case, and may be anywhere in the value: case is ignored, and values that are not ASCII may
//! match anything, as everywhere in the search for texts.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

/// Most texts of an expression.
const MAX_TEXTS: usize = 32;
/// Bytes of a text, at least: most values have each shorter one.
const MIN_TEXT_BYTES: usize = 2;
/// Bytes of texts that are joined, at most.
const MAX_TEXT_BYTES: usize = 64;
/// Bytes of all texts of an expression, at most: each takes memory in several searches.
const MAX_BYTES: usize = 256;
/// Bytes of a value, at least, that are worth a look: most values have as many as less.
const MIN_VALUE_BYTES: usize = 32;

/// Flags with which the engine compiles an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Flags {
    /// Also in Unicode: U+017F is an `s`.
    pub(super) ignores_case: bool,
    pub(super) is_multiline: bool,
    pub(super) dot_is_all: bool,
}

/// What every value has that an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Required {
    /// One of some texts.
    Texts(Vec<String>),
    /// This many bytes.
    Bytes(usize),
}

/// What an expression requires; `None` if nothing is known.
pub(super) fn required(pattern: &str, flags: Flags) -> Option<Required> {
    let mut parser = ParserBuilder::new();
    parser
        .case_insensitive(flags.ignores_case)
        .multi_line(flags.is_multiline)
        .dot_matches_new_line(flags.dot_is_all);
    let hir = parser.build().parse(pattern).ok()?;
    if let Some(texts) = texts(&hir) {
        return Some(Required::Texts(texts));
    }
    let bytes = hir.properties().minimum_len();
    let bytes = bytes.filter(|bytes| *bytes >= MIN_VALUE_BYTES);
    bytes.map(Required::Bytes)
}

/// Texts one of which is in whatever matches.
fn texts(hir: &Hir) -> Option<Vec<String>> {
    let own = exact(hir).and_then(usable);
    let of_parts = match hir.kind() {
        HirKind::Concat(parts) => of_sequence(parts),
        HirKind::Alternation(parts) => {
            let all = parts.iter().map(texts).collect::<Option<Vec<_>>>();
            all.and_then(|all| usable(all.concat()))
        }
        HirKind::Capture(capture) => texts(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => texts(&repetition.sub),
        _ => None,
    };
    own.into_iter()
        .chain(of_parts)
        .max_by_key(|texts| least(texts))
}

/// Texts one of which is in whatever matches some parts, one after the other.
fn of_sequence(parts: &[Hir]) -> Option<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut joined = vec![String::new()];
    for part in parts {
        match exact(part).and_then(|exact| product(&joined, &exact)) {
            Some(longer) => joined = longer,
            None => {
                let next = exact(part).unwrap_or_else(|| vec![String::new()]);
                found.extend(usable(std::mem::replace(&mut joined, next)));
                found.extend(texts(part));
            }
        }
    }
    found.extend(usable(joined));
    found.into_iter().max_by_key(|texts| least(texts))
}

/// All texts that match, if they are few: those of ASCII, in lower case.
fn exact(hir: &Hir) -> Option<Vec<String>> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(vec![String::new()]),
        HirKind::Literal(literal) => {
            let text = std::str::from_utf8(&literal.0).ok()?;
            text.is_ascii().then(|| vec![text.to_ascii_lowercase()])
        }
        HirKind::Class(class) => of_class(class),
        HirKind::Capture(capture) => exact(&capture.sub),
        HirKind::Concat(parts) => parts.iter().try_fold(vec![String::new()], |joined, part| {
            product(&joined, &exact(part)?)
        }),
        HirKind::Alternation(parts) => {
            let all = parts.iter().map(exact).collect::<Option<Vec<_>>>();
            all.map(|all| all.concat())
                .filter(|all| all.len() <= MAX_TEXTS)
        }
        HirKind::Repetition(_) => None,
    }
}

/// The characters of a class, if they are few.
fn of_class(class: &Class) -> Option<Vec<String>> {
    let Class::Unicode(class) = class else {
        return None;
    };
    let mut texts: Vec<String> = Vec::new();
    for range in class.ranges() {
        for character in (range.start()..=range.end()).take_while(char::is_ascii) {
            let text = character.to_ascii_lowercase().to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
            if texts.len() > MAX_TEXTS {
                return None;
            }
        }
    }
    Some(texts)
}

/// Each text of one list before each of another, if they are few and short.
fn product(first: &[String], second: &[String]) -> Option<Vec<String>> {
    let most = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let is_short = most(first) + most(second) <= MAX_TEXT_BYTES;
    let bytes = |texts: &[String]| texts.iter().map(String::len).sum::<usize>();
    let all_bytes = bytes(first) * second.len() + bytes(second) * first.len();
    let is_few = first.len() * second.len() <= MAX_TEXTS && all_bytes <= MAX_BYTES;
    (is_short && is_few).then(|| {
        let all = first
            .iter()
            .flat_map(|first| second.iter().map(move |second| format!("{first}{second}")));
        all.collect()
    })
}

/// Texts that tell something of a value.
fn usable(texts: Vec<String>) -> Option<Vec<String>> {
    let bytes: usize = texts.iter().map(String::len).sum();
    let is_few = texts.len() <= MAX_TEXTS && bytes <= MAX_BYTES;
    (least(&texts) >= MIN_TEXT_BYTES && is_few).then_some(texts)
}

/// Length of the shortest text.
fn least(texts: &[String]) -> usize {
    texts.iter().map(String::len).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use regex::RegexBuilder;

    use super::*;

    fn texts_of(pattern: &str) -> Vec<String> {
        match required(pattern, Flags::default()) {
            Some(Required::Texts(texts)) => texts,
            other => panic!("{pattern}: {other:?}"),
        }
    }

    #[test]
    fn longest_text_that_must_be_there_is_required() {
        for (pattern, texts) in [
            (r"/mail/tmp/[a-z]{3}\.tar\.gz", &["/mail/tmp/"][..]),
            (r"-(W|R)\s?([0-9a-f]{2}\s?){2,20}", &["-r", "-w"]),
            (r"^a+bC.*longer$", &["longer"]),
            (r"(mkfifo|mknod)\b.*\b(nc|ncat)\b", &["mkfifo", "mknod"]),
            (r"(?i)Kill", &["kill"]),
            (r"(ab){2}", &["ab"]),
            (r"(x|yz)?abc(de|fg)", &["abcde", "abcfg"]),
            (r"ü?abc", &["abc"]),
            (&format!(r"x{}", "(y)".repeat(200)), &[&"y".repeat(64)]),
            (r"[ab]x|cd", &["ax", "bx", "cd"]),
        ] {
            assert_eq!(texts_of(pattern), texts, "{pattern}");
        }
    }

    #[test]
    fn case_that_is_ignored_is_that_of_unicode() {
        let flags = Flags {
            ignores_case: true,
            ..Flags::default()
        };
        let texts = ["kyz", "syz", "xyz"].map(str::to_owned);
        let required = |pattern| required(pattern, flags);
        assert_eq!(
            required(r"[x\x{17F}\x{212A}]YZ"),
            Some(Required::Texts(texts.into()))
        );
        assert_eq!(required(r"\x{212A}{31}"), None);
        assert_eq!(required(r"\x{212A}{32}"), Some(Required::Bytes(32)));
    }

    #[test]
    fn texts_of_an_expression_are_bounded() {
        let pairs = "(?:a|b)(?:c|d)(?:e|f)(?:g|h)(?:i|j)";
        assert_eq!(
            texts_of(&format!("{pairs}{}", "x".repeat(56))),
            ["x".repeat(56)]
        );
    }

    #[test]
    fn length_is_required_where_no_text_is_known() {
        let required = |pattern| required(pattern, Flags::default());
        assert_eq!(required("[^/]{100,}$"), Some(Required::Bytes(100)));
        assert_eq!(required(r"(a|\d{2}){16}"), None);
        assert_eq!(required(r"(a|\d{2}){32}"), Some(Required::Bytes(32)));
        for pattern in ["", "a*", "^$", "(ab|)", "x?", "(", "[ab]|c"] {
            assert_eq!(required(pattern), None, "{pattern}");
        }
    }

    /// What matches has what is required.
    #[test]
    fn values_without_what_is_required_do_not_match() {
        const PARTS: [&str; 19] = [
            "[^/]{33,}",
            "a",
            "B",
            "-",
            "[ab]",
            "[^/]",
            "(a|bc)",
            "(-|x)?",
            "b{2,3}",
            ".*",
            r"\b",
            "^",
            "$",
            "(?i:k)",
            r"\s",
            "(aB|c-)+",
            "[a-c]",
            r"[x\x{17F}]",
            r"\x{212A}{1,2}",
        ];
        const BYTES: [&str; 9] = ["a", "b", "B", "-", "x", "k", " ", "c", "s"];
        let mut state = 7_u64;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 40).unwrap() % limit
        };
        let (mut matching, mut refused) = (0, 0);
        for _ in 0..3000 {
            let mut some = |most: usize, from: &[&str]| -> String {
                (0..=below(most)).map(|_| from[below(from.len())]).collect()
            };
            let pattern = some(5, &PARTS);
            let flags = Flags {
                ignores_case: pattern.len() % 2 == 0,
                ..Flags::default()
            };
            let mut regex = RegexBuilder::new(&pattern);
            let Ok(regex) = regex.case_insensitive(flags.ignores_case).build() else {
                continue;
            };
            for _ in 0..20 {
                let value = some(8, &BYTES);
                let value = value.repeat(if value.len() > 7 { 6 } else { 1 });
                let folded = value.to_ascii_lowercase();
                let may_match = match required(&pattern, flags) {
                    Some(Required::Texts(texts)) => texts.iter().any(|text| folded.contains(text)),
                    Some(Required::Bytes(bytes)) => value.len() >= bytes,
                    None => true,
                };
                assert!(may_match || !regex.is_match(&value), "{pattern} {value}");
                matching += usize::from(regex.is_match(&value));
                refused += usize::from(!may_match);
            }
        }
        assert!(matching > 5000 && refused > 5000, "{matching} {refused}");
    }
}
