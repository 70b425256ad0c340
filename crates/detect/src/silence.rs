//! Silences: alerts that nobody wants until a time, and why.
//!
//! ```toml
//! [[silence]]
//! rule = "id or title"
//! user = "backup"               # effective user, by name or number
//! program = "/opt/backup/*"     # a `*` at the end: texts that begin so
//! until = 2026-12-31T00:00:00Z
//! reason = "restore test, ticket 4711"
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use logs::escaped::Escaped;
use serde::Deserialize;
use toml::Spanned;

use crate::alert::Alert;
use crate::bounded_file;
use crate::sigma::{Rule, one_line};

/// Most silences in a file.
const MAX_SILENCES: usize = 1000;

/// A mistake in a file of silences.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {reason}", Escaped(.path.as_os_str().as_encoded_bytes()))]
pub(crate) struct SilenceError {
    path: PathBuf,
    line: usize,
    /// Counted in characters, from 1.
    column: usize,
    /// What is wrong, and what to do.
    reason: String,
}

/// The silences of a file.
#[derive(Clone, Debug)]
pub(crate) struct Silences {
    path: PathBuf,
    silences: Vec<Silence>,
    /// What the file was when it was read.
    read: Option<Identity>,
}

/// What tells two states of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// A silence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Silence {
    line: usize,
    rule: String,
    user: Option<Pattern>,
    login: Option<Pattern>,
    program: Option<Pattern>,
    command: Option<Pattern>,
    directory: Option<Pattern>,
    node: Option<Pattern>,
    until: Timestamp,
    reason: String,
    /// Whether it was told that it has expired.
    is_expired: bool,
}

/// A text, or what it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(String),
    Prefix(String),
}

/// A file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    silence: Vec<Spanned<Entry>>,
}

/// A silence as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    rule: Spanned<String>,
    user: Option<Spanned<String>>,
    login: Option<Spanned<String>>,
    program: Option<Spanned<String>>,
    command: Option<Spanned<String>>,
    directory: Option<Spanned<String>>,
    node: Option<Spanned<String>>,
    until: Spanned<toml::Value>,
    reason: Spanned<String>,
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => text.starts_with(prefix),
        }
    }
}

impl Silences {
    /// Reads a file. One that does not exist has no silences, and is read when it appears.
    ///
    /// # Errors
    /// It cannot be read, or has a mistake.
    pub(crate) fn read(path: &Path) -> Result<Self, SilenceError> {
        // The identity is that of before: a change while it is read is seen later.
        let read = identity(path);
        if fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(Self {
                path: path.to_owned(),
                silences: Vec::new(),
                read: None,
            });
        }
        let failed = |(line, column), reason: String| SilenceError {
            path: path.to_owned(),
            line,
            column,
            reason: one_line(&reason),
        };
        let text = bounded_file::read(path)
            .map_err(|mistake| failed((mistake.line, 1), mistake.to_string()))?;
        let document: Document = toml::from_str(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let reason = format!("{}; see SILENCES in tollgate-detect(8)", error.message());
            failed(position(&text, start), reason)
        })?;
        if document.silence.len() > MAX_SILENCES {
            let reason = format!(
                "there are more than {MAX_SILENCES} silences; write wider ones, or correct the rules"
            );
            return Err(failed((1, 1), reason));
        }
        let mut silences = Vec::new();
        for entry in document.silence {
            let (line, _) = position(&text, entry.span().start);
            let silence = entry.into_inner().checked(line);
            silences.push(silence.map_err(|(at, reason)| failed(position(&text, at), reason))?);
        }
        Ok(Self {
            path: path.to_owned(),
            silences,
            read,
        })
    }

    /// Reads the file again, if it is another one than before, or in any case. `None` if it is the same.
    ///
    /// # Errors
    /// The new file has a mistake; the old silences stay, and the same file is not read again unless asked.
    pub(crate) fn reread(&mut self, asked: Asked) -> Option<Result<usize, SilenceError>> {
        let now = identity(&self.path);
        if asked == Asked::No && now == self.read {
            return None;
        }
        Some(match Self::read(&self.path) {
            Ok(new) => {
                *self = new;
                Ok(self.silences.len())
            }
            Err(error) => {
                self.read = now;
                Err(error)
            }
        })
    }

    /// What to tell of a file that does not exist.
    pub(crate) fn absent(&self) -> Option<String> {
        let place = Escaped(self.path.as_os_str().as_encoded_bytes());
        self.read
            .is_none()
            .then(|| format!("{place} does not exist: nothing is silenced until it does"))
    }

    /// Number of silences that apply.
    pub(crate) fn active(&self) -> usize {
        let silences = self.silences.iter();
        silences.filter(|silence| !silence.is_expired).count()
    }

    /// Whether an alert is silenced.
    pub(crate) fn apply_to(&self, alert: &Alert) -> bool {
        self.silences
            .iter()
            .any(|silence| silence.applies_to(alert))
    }

    /// Silences that have expired, once for each.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<String> {
        let place = Escaped(self.path.as_os_str().as_encoded_bytes()).to_string();
        let expired = self
            .silences
            .iter_mut()
            .filter(|silence| !silence.is_expired && silence.until <= now);
        let told = expired.map(|silence| {
            silence.is_expired = true;
            format!(
                "{place}:{}: the silence of {silence} has expired and does not apply",
                silence.line
            )
        });
        told.collect()
    }

    /// Silences of rules that are not loaded.
    pub(crate) fn without_rule<'r>(
        &self,
        rules: &(impl Iterator<Item = &'r Rule> + Clone),
    ) -> Vec<String> {
        let place = Escaped(self.path.as_os_str().as_encoded_bytes()).to_string();
        let is_loaded = |silence: &&Silence| rules.clone().any(|rule| silence.names(rule));
        let unknown = self.silences.iter().filter(|silence| !is_loaded(silence));
        let told = unknown.map(|silence| {
            let rule = one_line(&silence.rule);
            format!(
                "{place}:{}: no loaded rule has the id or title `{rule}`",
                silence.line
            )
        });
        told.collect()
    }
}

/// Whether an administrator asks to read the file, with SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGHUP came.
    Yes,
    /// It did not.
    No,
}

impl Silence {
    fn names(&self, rule: &Rule) -> bool {
        rule.id == self.rule || rule.title == self.rule
    }

    fn applies_to(&self, alert: &Alert) -> bool {
        let subject = &alert.subject;
        let is_before = alert.time_ms() < self.until.as_millisecond();
        let is_account = |pattern: &Pattern, account: &Option<(u32, String)>| {
            account
                .as_ref()
                .is_some_and(|(id, name)| pattern.matches(name) || pattern.matches(&id.to_string()))
        };
        let is = |pattern: &Option<Pattern>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
        };
        !self.is_expired
            && is_before
            && self.names(&alert.rule)
            && self
                .user
                .as_ref()
                .is_none_or(|user| is_account(user, &subject.user))
            && self
                .login
                .as_ref()
                .is_none_or(|login| is_account(login, &subject.login))
            && is(&self.program, &subject.image)
            && is(&self.command, &subject.command_line)
            && is(&self.directory, &subject.directory)
            && is(&self.node, alert.node.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, reason) = (one_line(&self.rule), one_line(&self.reason));
        write!(f, "`{rule}` until {} ({reason})", self.until)
    }
}

impl Entry {
    /// Checks what is written; the mistake has its position.
    fn checked(self, line: usize) -> Result<Silence, (usize, String)> {
        let until = self.until.span().start;
        let text = match self.until.into_inner() {
            toml::Value::Datetime(time) => time.to_string(),
            toml::Value::String(text) => text,
            other => {
                return Err((
                    until,
                    format!("`until` is of type {}; {UNTIL}", other.type_str()),
                ));
            }
        };
        let until = text.parse().map_err(|_unparsed| {
            (
                until,
                format!("`{text}` is not a time with an offset; {UNTIL}"),
            )
        })?;
        for (name, value) in [("rule", &self.rule), ("reason", &self.reason)] {
            if value.get_ref().trim().is_empty() {
                let reason = format!("`{name}` is empty; write which rule is silenced, and why");
                return Err((value.span().start, reason));
            }
        }
        let pattern = |value: Option<Spanned<String>>| -> Result<Option<Pattern>, (usize, String)> {
            let Some(value) = value else {
                return Ok(None);
            };
            let start = value.span().start;
            let text = value.into_inner();
            match text.strip_suffix('*') {
                Some(prefix) if prefix.contains('*') => Err((
                    start,
                    "a `*` is in the middle; only one at the end is allowed".to_owned(),
                )),
                Some(prefix) => Ok(Some(Pattern::Prefix(prefix.to_owned()))),
                None if text.contains('*') => Err((
                    start,
                    "a `*` is in the middle; only one at the end is allowed".to_owned(),
                )),
                None => Ok(Some(Pattern::Exact(text))),
            }
        };
        Ok(Silence {
            line,
            rule: self.rule.into_inner(),
            user: pattern(self.user)?,
            login: pattern(self.login)?,
            program: pattern(self.program)?,
            command: pattern(self.command)?,
            directory: pattern(self.directory)?,
            node: pattern(self.node)?,
            until,
            reason: self.reason.into_inner(),
            is_expired: false,
        })
    }
}

const UNTIL: &str = "write it as 2026-12-31T00:00:00Z";

/// Line and column of a byte in a text, from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// What the file at a path is; `None` if there is none.
fn identity(path: &Path) -> Option<Identity> {
    let about = fs::metadata(path).ok()?;
    Some(Identity {
        device: about.dev(),
        inode: about.ino(),
        size: about.size(),
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

#[cfg(test)]
mod tests;
