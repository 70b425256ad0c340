//! Files with cases: a log, rules, and which of them must match.
//!
//! ```toml
//! rules = ["../rules"]          # files and directories, relative to this file
//! log = "netcat.log"            # or the records themselves: events = '''...'''
//!
//! [expect]
//! at_least = ["id or title"]    # each of them matches
//! exactly = ["id or title"]     # these match, and no others; [] is none
//! none = ["id or title"]        # none of them matches
//! level = "high"                # matches of lower levels do not count
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use crate::bounded_file::read;
use crate::sigma::{Level, Mistake};

/// Most directories that are in each other, and most cases.
const MAX_DEPTH: usize = 16;
const MAX_CASES: usize = 10_000;

/// A case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Rules, relative to the file.
    #[serde(default)]
    pub(crate) rules: Vec<PathBuf>,
    /// Log, relative to the file.
    pub(crate) log: Option<PathBuf>,
    /// Records.
    pub(crate) events: Option<String>,
    /// What must match.
    pub(crate) expect: Expectation,
    /// Text of the file, for lines in messages.
    #[serde(skip)]
    text: String,
}

/// What must match.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expectation {
    /// Rules that must match.
    #[serde(default)]
    pub(crate) at_least: Vec<Spanned<String>>,
    /// Rules that must match; no others may.
    pub(crate) exactly: Option<Vec<Spanned<String>>>,
    /// Rules that must not match.
    #[serde(default)]
    pub(crate) none: Vec<Spanned<String>>,
    /// Least level that counts.
    level: Option<Spanned<String>>,
}

impl Expectation {
    /// All names of rules.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Spanned<String>> {
        let exactly = self.exactly.iter().flatten();
        self.at_least.iter().chain(exactly).chain(&self.none)
    }

    /// Least level that counts.
    pub(crate) fn least_level(&self) -> Level {
        let name = self.level.as_ref().map(|level| level.get_ref().as_str());
        let level = Level::ALL
            .into_iter()
            .find(|level| Some(level.name()) == name);
        level.unwrap_or(Level::Informational)
    }
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// The file cannot be read, or is no case.
    pub(crate) fn read(path: &Path) -> Result<Self, Mistake> {
        let text = read(path)?;
        let mut case: Self = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_at(&text, span.start));
            let advice = "see CASES in tollgate-detect(8)";
            Mistake::new(line, error.message(), advice)
        })?;
        case.text = text;
        case.check()?;
        Ok(case)
    }

    /// A mistake at a place in the file.
    pub(crate) fn mistake(
        &self,
        at: &Spanned<String>,
        reason: impl AsRef<str>,
        advice: &'static str,
    ) -> Mistake {
        Mistake::new(line_at(&self.text, at.span().start), reason, advice)
    }

    fn check(&self) -> Result<(), Mistake> {
        if self.log.is_some() == self.events.is_some() {
            return Err(Mistake::new(
                1,
                "a case needs a log or events, and not both",
                "write `log = \"FILE\"`, or `events = '''` with records",
            ));
        }
        let expect = &self.expect;
        if expect.exactly.is_none() && expect.at_least.is_empty() && expect.none.is_empty() {
            return Err(Mistake::new(
                1,
                "nothing is expected",
                "write `at_least`, `exactly` or `none` in `[expect]`; `exactly = []` if nothing may match",
            ));
        }
        if let Some(level) = &expect.level
            && !Level::ALL
                .iter()
                .any(|known| known.name() == level.get_ref())
        {
            let reason = format!("`{}` is not a level", level.get_ref());
            return Err(self.mistake(
                level,
                reason,
                "write informational, low, medium, high or critical",
            ));
        }
        Ok(())
    }
}

/// Line of a byte in a text, from 1.
fn line_at(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or_default();
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Files with cases: a file itself, or the files `*.toml` in a directory and in those below it, in order.
///
/// # Errors
/// A directory cannot be read, or has too many.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>, Mistake> {
    let mut found = Vec::new();
    match path.is_dir() {
        true => add_files(path, 0, &mut found)?,
        false => found.push(path.to_owned()),
    }
    Ok(found)
}

fn add_files(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Mistake> {
    let refuse = |reason: String| {
        let reason = format!("directory `{}`: {reason}", directory.display());
        Mistake::new(1, reason, "name the files or fewer directories")
    };
    if depth >= MAX_DEPTH {
        return Err(refuse(format!("it is below {MAX_DEPTH} others")));
    }
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| refuse(error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort_unstable();
    for path in paths {
        match fs::symlink_metadata(&path) {
            Ok(about) if about.is_dir() => add_files(&path, depth + 1, found)?,
            _ if path.extension().is_some_and(|end| end == "toml") => found.push(path),
            _ => {}
        }
        if found.len() > MAX_CASES {
            return Err(refuse(format!("there are more than {MAX_CASES} cases")));
        }
    }
    Ok(())
}
