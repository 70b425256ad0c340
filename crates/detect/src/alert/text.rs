//! Alerts for people.

use std::fmt::Write as _;

use logs::escaped::Escaped;

use super::{Alert, Kind};

/// An alert on one line. What tasks choose is escaped.
pub(crate) fn one_line(alert: &Alert) -> String {
    let mut text = alert.message();
    for line in lines(alert).lines().skip(1) {
        if let Some((name, value)) = line.trim_start().split_once(' ') {
            text.extend(["; ", name, ": ", value.trim_start()]);
        }
    }
    text
}

/// An alert in some lines. What tasks choose is escaped.
pub(crate) fn lines(alert: &Alert) -> String {
    let mut text = format!(
        "{} {:8} {}",
        alert.time_text(),
        alert.rule.level.name(),
        alert.message()
    );
    let mut line = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ok = write!(text, "\n  {name:8} {value}");
    };
    line("id", &Escaped(alert.id.as_bytes()).to_string());
    let subject = &alert.subject;
    let user = |(uid, name): &(u32, String)| match *name == uid.to_string() {
        true => name.clone(),
        false => format!("{}({uid})", Escaped(name.as_bytes())),
    };
    if !matches!(alert.kind, Kind::LeftOut(_)) {
        let login = subject
            .login
            .as_ref()
            .map_or_else(|| "unset".to_owned(), user);
        let effective = subject
            .user
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), user);
        line("who", &format!("login {login}, user {effective}"));
    }
    if !subject.image.is_empty() {
        let pid = subject
            .pid
            .map_or_else(String::new, |pid| format!("[{pid}]"));
        let image = Escaped(subject.image.as_bytes());
        line("program", &format!("{image}{pid}"));
    }
    for (name, value) in [
        ("command", &subject.command_line),
        ("in", &subject.directory),
    ] {
        if !value.is_empty() {
            line(name, &Escaped(value.as_bytes()).to_string());
        }
    }
    if !alert.ancestors.is_empty() {
        let programs = alert.ancestors.iter();
        let programs = programs
            .map(|ancestor| format!("{}[{}]", Escaped(ancestor.image.as_bytes()), ancestor.pid));
        line("from", &programs.collect::<Vec<_>>().join(" < "));
    }
    let fields = alert.fields.iter();
    let fields = fields
        .map(|(name, value)| format!("{}={}", Escaped(name.as_bytes()), Escaped(value.as_bytes())));
    line("because", &fields.collect::<Vec<_>>().join(" "));
    if let Some(correlated) = &alert.correlated {
        let group = correlated.group.iter();
        let group = group.map(|(name, value)| {
            format!("{}={}", Escaped(name.as_bytes()), Escaped(value.as_bytes()))
        });
        let group: Vec<String> = group.collect();
        if !group.is_empty() {
            line("group", &group.join(" "));
        }
        let events = correlated.events.iter();
        let events: Vec<String> = events
            .map(|event| Escaped(event.as_bytes()).to_string())
            .collect();
        let more = correlated.event_count - correlated.events.len();
        let before = match more {
            0 => String::new(),
            more => format!("{more} before, "),
        };
        line("events", &format!("{before}{}", events.join(" ")));
    }
    if !alert.rule.tags.is_empty() {
        line("tags", &alert.rule.tags.join(" "));
    }
    if let Some(node) = &alert.node {
        line("node", &Escaped(node.as_bytes()).to_string());
    }
    line("records", &format!("ausearch -a {}", alert.serial));
    text
}
