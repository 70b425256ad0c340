//! The settings of `tollgate.toml`: their names, what each takes, and the findings about a text.
//!
//! serde stops at the first mistake and reports it in the words of Rust. So each setting is checked alone first.

use std::collections::BTreeSet;
use std::ops::Range;

use audit::rule::Diagnostic;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{TollgateToml, diagnostic};

/// A setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// The section; empty for the top level.
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    /// What the setting takes, as a noun phrase.
    takes: &'static str,
}

const fn setting(section: &'static str, name: &'static str, takes: &'static str) -> Setting {
    Setting {
        section,
        name,
        takes,
    }
}

/// All settings.
pub(super) const SETTINGS: [Setting; 18] = [
    setting(
        "",
        "rules",
        "an array of paths, such as [\"/etc/audit/audit.rules\"]",
    ),
    setting(
        "",
        "engine",
        "\"auto\", \"fentry\", \"lsm\" or \"tracepoint\"",
    ),
    setting("", "allow_loss", SWITCH),
    setting("", "delay_ms", "a number of milliseconds from 2 to 1000"),
    setting("", "partial", SWITCH),
    setting("", "io_uring", SWITCH),
    setting("", "auditd_conf", "a path in quotes"),
    setting(
        "",
        "kernel_messages",
        "\"auto\", \"unicast\", \"multicast\" or \"off\"",
    ),
    setting("", "pins", "a path in quotes, or false"),
    setting(
        "",
        "metrics",
        "a loopback address with a port, such as \"127.0.0.1:9465\", or the path of a Unix socket",
    ),
    setting("", "watch_group", "the name of a group in quotes"),
    setting("", "index", SWITCH),
    setting("", "compress", SWITCH),
    setting(
        "on_loss",
        "deny",
        "an array of rule keys, such as [\"shadow\"]",
    ),
    setting("json", "file", "a path in quotes"),
    setting("json", "schema", "\"records\", \"ecs\" or \"ocsf\""),
    setting(
        "json",
        "max_mib",
        "a number of MiB, 0 for no rotation by size",
    ),
    setting("json", "keep", "a number of old logs from 0 to 255"),
];

/// What a switch takes.
const SWITCH: &str = "true or false";
const WRITE_SWITCH: &str = "write true or false, without quotes";

/// Settings without which a section is an error.
const REQUIRED: [(&str, &str); 1] = [("json", "file")];

/// Checks each setting of a text alone. Returns the text of the valid ones, and every mistake.
pub(super) fn check(text: &str) -> (String, Vec<Diagnostic>) {
    let report =
        |(span, message, advice): Mistake| diagnostic(text.as_bytes(), span, message, &advice);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mistakes = syntax_mistakes(text, &errors);
        return (String::new(), mistakes.into_iter().map(report).collect());
    }
    // Settings of the top level are valid only before the first section.
    let (mut top, mut sections) = (String::new(), String::new());
    let mut found = Vec::new();
    for (name, value) in document.get_ref() {
        let section = name.get_ref();
        if !is_section(section) {
            match checked(text, "", name, value) {
                Ok(line) => top.push_str(&line),
                Err(mistake) => found.push(report(mistake)),
            }
            continue;
        }
        let Some(entries) = value.get_ref().as_table() else {
            let advice =
                format!("write `[{section}]` on a line of its own, and its settings below it");
            found.push(report((
                value.span(),
                format!("`{section}` is a section"),
                advice,
            )));
            continue;
        };
        let mut lines = format!("[{section}]\n");
        for (name, value) in entries {
            match checked(text, section, name, value) {
                Ok(line) => lines.push_str(&line),
                Err(mistake) => found.push(report(mistake)),
            }
        }
        let mut missing = REQUIRED
            .iter()
            .filter(|(of, name)| of == section && !entries.contains_key(*name))
            .peekable();
        if missing.peek().is_none() {
            sections.push_str(&lines);
        }
        for (_, missing) in missing {
            found.push(report((
                name.span(),
                format!("the section `[{section}]` lacks the setting `{missing}`"),
                format!("add `{missing} = ...` below `[{section}]`"),
            )));
        }
    }
    found.sort_by_key(|finding| finding.span.start);
    (top + &sections, found)
}

/// Where a section, empty for the top level, has a setting with a value; of an array the element that is the value.
pub(super) fn span_of(
    text: &str,
    (section, name, value): (&str, &str, &str),
) -> Option<Range<usize>> {
    let (document, _errors) = DeTable::parse_recoverable(text);
    let table = match section {
        "" => document.get_ref(),
        _ => document.get_ref().get(section)?.get_ref().as_table()?,
    };
    let written = table.get(name)?;
    let elements = written.get_ref().as_array().into_iter().flatten();
    let element = elements
        .filter(|element| element.get_ref().as_str() == Some(value))
        .map(Spanned::span)
        .next();
    Some(element.unwrap_or_else(|| written.span()))
}

/// Place, message and advice of a mistake.
type Mistake = (Range<usize>, String, String);

/// Mistakes in the syntax. An array that is not closed makes all after it wrong: it is the last mistake then.
fn syntax_mistakes(text: &str, errors: &[toml::de::Error]) -> Vec<Mistake> {
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (error.span().unwrap_or(0..0), error.message()))
        .collect();
    errors.sort_by_key(|(place, _)| place.start);
    let is_unclosed = |message: &str| message.starts_with("unclosed array");
    let unclosed = if errors.len() > 1 && errors.iter().any(|(_, message)| is_unclosed(message)) {
        let in_array = errors.iter().find(|(_, message)| message.contains("array"));
        // The line of the first error in the array, which may have another one before it.
        in_array.map(|(place, _)| {
            let before = text.get(..place.start).unwrap_or_default();
            before.rfind('\n').map_or(0, |end| end + 1)
        })
    } else {
        None
    };
    let mut mistakes = Vec::new();
    for (place, message) in errors {
        if let Some(mistake) = switch_mistake(text, place.start) {
            mistakes.push(mistake);
            continue;
        }
        if unclosed.is_some_and(|start| place.start >= start) && !message.starts_with("invalid") {
            let message = "this is not TOML: the array before this place lacks `]` or a comma";
            let advice = "close the array with `]`, or separate its elements by commas";
            mistakes.push((place, message.to_owned(), advice.to_owned()));
            break;
        }
        let message = if message.starts_with("invalid boolean") {
            "a value is text in quotes, a number, true or false".to_owned()
        } else {
            message.lines().collect::<Vec<_>>().join(", ")
        };
        mistakes.push((
            place,
            format!("this is not TOML: {message}"),
            "a line is `NAME = VALUE`, with text in quotes; tollgate.toml(5) has examples"
                .to_owned(),
        ));
    }
    mistakes
}

/// The mistake of a switch whose value, at this place, is a word without quotes that is neither `true` nor `false`.
fn switch_mistake(text: &str, place: usize) -> Option<Mistake> {
    let before = text.get(..place)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let (name, rest) = line.split_once('=')?;
    let name = name.trim();
    let mut known = SETTINGS.iter().filter(|setting| setting.takes == SWITCH);
    known.find(|setting| setting.name == name)?;
    let written = rest.trim_start();
    let first = start + line.len() - written.len();
    let is_of_word = |character: char| character.is_alphanumeric() || "_-".contains(character);
    let len = written.find(|character| !is_of_word(character));
    let word = written.get(..len.unwrap_or(written.len()))?;
    if word.is_empty() || ["true", "false"].contains(&word) {
        return None;
    }
    Some((
        first..first + word.len(),
        format!("`{name}` takes {SWITCH}, not {word}"),
        WRITE_SWITCH.to_owned(),
    ))
}

fn is_section(name: &str) -> bool {
    !name.is_empty() && SETTINGS.iter().any(|setting| setting.section == name)
}

/// Returns the line of a setting that is valid alone.
fn checked(
    text: &str,
    section: &str,
    name: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<String, Mistake> {
    let known = SETTINGS
        .iter()
        .find(|setting| setting.section == section && setting.name == name.get_ref());
    let Some(Setting { name, takes, .. }) = known else {
        let place = match section {
            "" => String::new(),
            _ => format!(" in `[{section}]`"),
        };
        if section.is_empty() && value.get_ref().is_table() {
            let message = format!("unknown section `[{}]`", name.get_ref());
            return Err((
                name.span(),
                message,
                advice_for_unknown_section(name.get_ref()),
            ));
        }
        let message = format!("unknown setting `{}`{place}", name.get_ref());
        return Err((
            name.span(),
            message,
            advice_for_unknown(section, name.get_ref()),
        ));
    };
    let written = text.get(value.span()).unwrap_or_default();
    // A section is valid only with the settings that it requires.
    let others = REQUIRED
        .iter()
        .filter(|(of, required)| *of == section && required != name)
        .map(|(_, required)| format!("{required} = \"/\"\n"));
    let header = match section {
        "" => String::new(),
        _ => format!("[{section}]\n"),
    };
    let line = format!("{name} = {written}\n");
    let alone = header + &others.collect::<String>() + &line;
    if toml::from_str::<TollgateToml>(&alone).is_ok() {
        return Ok(line);
    }
    let message = format!("`{name}` takes {takes}, not {written}");
    let advice = if *takes == SWITCH {
        WRITE_SWITCH
    } else {
        "see tollgate.toml(5)"
    };
    Err((value.span(), message, advice.to_owned()))
}

/// Which section may be meant.
fn advice_for_unknown_section(name: &str) -> String {
    let sections = SETTINGS.iter().map(|setting| setting.section);
    let sections = sections.filter(|section| !section.is_empty());
    match audit::spelling::nearest(name.as_bytes(), sections.clone()) {
        Some(nearest) => format!("did you mean `[{nearest}]`?"),
        None => {
            let names: BTreeSet<String> = sections.map(|name| format!("`[{name}]`")).collect();
            let names: Vec<String> = names.into_iter().collect();
            format!("the sections are {}", names.join(" and "))
        }
    }
}

/// Where an unknown setting may belong.
fn advice_for_unknown(section: &str, name: &str) -> String {
    let elsewhere = SETTINGS
        .iter()
        .find(|setting| setting.name == name && setting.section != section);
    if let Some(Setting { section, .. }) = elsewhere {
        return match *section {
            "" => format!("write `{name}` above the first section"),
            _ => format!("write `{name}` below `[{section}]`"),
        };
    }
    let here = SETTINGS.iter().filter(|setting| setting.section == section);
    let names = here.map(|setting| setting.name);
    if let Some(nearest) = audit::spelling::nearest(name.as_bytes(), names.clone()) {
        return format!("did you mean `{nearest}`?");
    }
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    format!(
        "the settings here are {}; those of auditd.conf belong in that file",
        names.join(", ")
    )
}
