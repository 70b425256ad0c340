//! The settings of `tollgate.toml`: their names, what each takes, and the findings about a text.
//!
//! serde stops at the first mistake and reports it in the words of Rust. So each setting is checked alone first.

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
pub(super) const SETTINGS: [Setting; 16] = [
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
    setting("", "allow_loss", "true or false"),
    setting("", "delay_ms", "a number of milliseconds from 2 to 1000"),
    setting("", "partial", "true or false"),
    setting("", "io_uring", "true or false"),
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

/// Settings without which a section is an error.
const REQUIRED: [(&str, &str); 1] = [("json", "file")];

/// Returns every mistake in a text.
pub(super) fn mistakes(text: &str) -> Vec<Diagnostic> {
    let report = |span: Range<usize>, message: String, advice: &str| {
        diagnostic(text.as_bytes(), span, message, advice)
    };
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let error = |error: toml::de::Error| {
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            report(
                error.span().unwrap_or(0..0),
                format!("this is not TOML: {message}"),
                "a line is `NAME = VALUE`, with text in quotes; tollgate.toml(5) has examples",
            )
        };
        return errors.into_iter().map(error).collect();
    }
    let mut found = Vec::new();
    for (name, value) in document.get_ref() {
        if !is_section(name.get_ref()) {
            found.extend(mistake(text, "", name, value).map(|at| report(at.0, at.1, &at.2)));
            continue;
        }
        let section = name.get_ref();
        let Some(entries) = value.get_ref().as_table() else {
            let advice =
                format!("write `[{section}]` on a line of its own, and its settings below it");
            found.push(report(
                value.span(),
                format!("`{section}` is a section"),
                &advice,
            ));
            continue;
        };
        for (name, value) in entries {
            found.extend(mistake(text, section, name, value).map(|at| report(at.0, at.1, &at.2)));
        }
        for (_, missing) in REQUIRED
            .iter()
            .filter(|(of, name)| of == section && !entries.contains_key(*name))
        {
            let message = format!("the section `[{section}]` lacks the setting `{missing}`");
            found.push(report(
                name.span(),
                message,
                &format!("add `{missing} = ...` below `[{section}]`"),
            ));
        }
    }
    found.sort_by_key(|finding| finding.span.start);
    found
}

fn is_section(name: &str) -> bool {
    !name.is_empty() && SETTINGS.iter().any(|setting| setting.section == name)
}

/// Place, message and advice of a mistake in one setting.
fn mistake(
    text: &str,
    section: &str,
    name: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Option<(Range<usize>, String, String)> {
    let known = SETTINGS
        .iter()
        .find(|setting| setting.section == section && setting.name == name.get_ref());
    let Some(Setting { name, takes, .. }) = known else {
        let place = match section {
            "" => String::new(),
            _ => format!(" in `[{section}]`"),
        };
        let message = format!("unknown setting `{}`{place}", name.get_ref());
        return Some((
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
    let alone = header + &others.collect::<String>() + &format!("{name} = {written}\n");
    toml::from_str::<TollgateToml>(&alone).err().map(|_| {
        let message = format!("`{name}` takes {takes}, not {written}");
        let advice = "see tollgate.toml(5)".to_owned();
        (value.span(), message, advice)
    })
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
    let names: Vec<String> = SETTINGS
        .iter()
        .filter(|setting| setting.section == section)
        .map(|setting| format!("`{}`", setting.name))
        .collect();
    format!(
        "the settings here are {}; those of auditd.conf belong in that file",
        names.join(", ")
    )
}
