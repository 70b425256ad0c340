//! Configuration of a plugin: one file in `plugins.d`.
//!
//! # Source
//! `auditd-plugins(5)`, and `audisp/audispd-pconfig.c` of audit-userspace 3.0.9 and 4.2.1.

use bstr::{BStr, BString, ByteSlice as _};

use super::assignment::{Assignment, parse_assignments};
use crate::rule::{Diagnostic, Severity};

/// Configuration of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Whether the plugin is started.
    pub active: bool,
    /// Program of the plugin.
    pub program: PluginProgram,
    /// Command line arguments.
    pub args: Vec<BString>,
    /// Format of events.
    pub format: PluginFormat,
}

/// Program of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginProgram {
    /// A program that reads events from its standard input.
    File(BString),
    /// A socket that sends events to clients, served by the daemon.
    Socket,
}

/// Format of events for a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginFormat {
    /// Lines as in the log.
    String,
    /// A header before each record.
    Binary,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            active: false,
            program: PluginProgram::File(BString::default()),
            args: Vec::new(),
            format: PluginFormat::String,
        }
    }
}

/// Whether `auditd` reads this file name in `plugins.d`: `.conf` after a non-empty name without dots.
#[must_use]
pub fn is_plugin(file: &[u8]) -> bool {
    file.strip_suffix(b".conf")
        .is_some_and(|name| !name.is_empty() && !name.contains(&b'.'))
}

/// Parses a file of `plugins.d`. The plugin is valid only if no finding is an error.
#[must_use]
pub fn parse(bytes: &[u8]) -> (Plugin, Vec<Diagnostic>) {
    let (lines, mut findings) = parse_assignments(bytes);
    let mut plugin = Plugin::default();
    for line in &lines {
        findings.extend(take(&mut plugin, line).err());
    }
    if plugin.program == PluginProgram::File(BString::default()) && plugin.active {
        let position = super::assignment::LinePosition { line: 1, start: 0 };
        findings.push(position.finding(
            Severity::Error,
            "conflict",
            0..0,
            "an active plugin needs a `path`",
            "set `path` to its program",
        ));
    }
    (plugin, findings)
}

fn take(plugin: &mut Plugin, line: &Assignment<'_>) -> Result<(), Diagnostic> {
    let wrong = |code, span, message: String, advice: &str| {
        line.position
            .finding(Severity::Error, code, span, message, advice)
    };
    let value = line.value;
    let one_of = |known: &[&str]| {
        let found = known.iter().position(|word| value.is(word));
        found.ok_or_else(|| {
            wrong(
                "bad-value",
                value.span(),
                format!(
                    "`{}` is not a valid value for `{}`",
                    value.text, line.key.text
                ),
                &format!("write one of {}", known.join(", ")),
            )
        })
    };
    let key = &line.key;
    if let (Some(extra), false) = (line.extra.first(), key.is("args")) {
        return Err(wrong(
            "extra-word",
            extra.span(),
            format!("`{}` does not take a second value", key.text),
            "write one value",
        ));
    }
    if key.is("active") {
        plugin.active = one_of(&["yes", "no"])? == 0;
    } else if key.is("direction") {
        // `out` was the only direction; `auditd` no longer checks it.
    } else if key.is("type") {
        one_of(&["always", "builtin"])?;
    } else if key.is("format") {
        plugin.format = match one_of(&["string", "binary"])? {
            0 => PluginFormat::String,
            _ => PluginFormat::Binary,
        };
    } else if key.is("args") {
        plugin.args = core::iter::once(&value)
            .chain(&line.extra)
            .map(|word| word.text.into())
            .collect();
    } else if key.is("path") {
        plugin.program = program(value.text).ok_or_else(|| {
            wrong(
                "bad-value",
                value.span(),
                format!(
                    "`{}` is not a program: its directory's path must have at least 4 characters",
                    value.text
                ),
                "write an absolute path, such as /usr/sbin/audisp-syslog, or builtin_af_unix",
            )
        })?;
    } else {
        return Err(wrong(
            "unknown-key",
            key.span(),
            format!("unknown key `{}`", key.text),
            "see auditd-plugins(5) for all keys",
        ));
    }
    Ok(())
}

fn program(value: &BStr) -> Option<PluginProgram> {
    /// Length of `/var`, the shortest directory that `auditd` accepts.
    const SHORTEST_DIRECTORY: usize = 4;
    if value.eq_ignore_ascii_case(b"builtin_af_unix") {
        return Some(PluginProgram::Socket);
    }
    if value.eq_ignore_ascii_case(b"builtin_syslog") {
        return Some(PluginProgram::File("/sbin/audisp-syslog".into()));
    }
    let directory = value.rfind_byte(b'/')?;
    (value.starts_with(b"/") && directory >= SHORTEST_DIRECTORY)
        .then(|| PluginProgram::File(value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<(&'static str, u32)> {
        let (_, findings) = parse(text.as_bytes());
        findings
            .iter()
            .map(|finding| (finding.code, finding.column))
            .collect()
    }

    #[test]
    fn debian_plugin_files_parse() {
        let text = "active = no\ndirection = out\npath = /sbin/audisp-syslog\ntype = always \n\
                    args = LOG_INFO LOG_LOCAL0\nformat = string\n";
        let expected = Plugin {
            program: PluginProgram::File("/sbin/audisp-syslog".into()),
            args: vec!["LOG_INFO".into(), "LOG_LOCAL0".into()],
            ..Plugin::default()
        };
        assert_eq!(parse(text.as_bytes()), (expected, vec![]));
        let text = "active = YES\ndirection = out\npath = builtin_af_unix\ntype = builtin\n\
                    args = 0640 /var/run/audispd_events\nformat = binary\n";
        let expected = Plugin {
            active: true,
            program: PluginProgram::Socket,
            args: vec!["0640".into(), "/var/run/audispd_events".into()],
            format: PluginFormat::Binary,
        };
        assert_eq!(parse(text.as_bytes()), (expected, vec![]));
    }

    #[test]
    fn plugin_errors_have_a_column() {
        assert_eq!(codes("active = maybe\n"), [("bad-value", 10)]);
        assert_eq!(codes("active = no x\n"), [("extra-word", 13)]);
        assert_eq!(codes("path = audisp\n"), [("bad-value", 8)]);
        assert_eq!(codes("path = /a/b\n"), [("bad-value", 8)]);
        assert_eq!(codes("format = json\n"), [("bad-value", 10)]);
        assert_eq!(codes("q_depth = 3\n"), [("unknown-key", 1)]);
        assert_eq!(codes("active = yes\n"), [("conflict", 1)]);
    }

    #[test]
    fn plugin_file_names_have_one_dot() {
        for (name, is) in [
            (&b"af_unix.conf"[..], true),
            (b".conf", false),
            (b".x.conf", false),
            (b"x.conf.dpkg-old", false),
            (b"x.y.conf", false),
            (b"x", false),
        ] {
            assert_eq!(is_plugin(name), is, "{}", name.as_bstr());
        }
    }
}
