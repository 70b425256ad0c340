//! What the configuration files of both programs have in common: TOML whose mistakes are told with line and column.

use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use logs::expression::parse::Mistake;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::output::info;

/// Most bytes of a file.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file.
///
/// # Errors
/// It cannot be read, or is too large.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let about = fs::metadata(path).with_context(|| {
        format!("cannot read configuration `{shown}`: write it, or name another with --config")
    })?;
    if !about.is_file() || about.len() > MAX_BYTES {
        bail!("configuration `{shown}` is no file of at most {MAX_BYTES} bytes");
    }
    fs::read_to_string(path).with_context(|| format!("cannot read configuration `{shown}`"))
}

/// Parses a text; `manual` lists its settings.
///
/// # Errors
/// The first mistake.
pub(crate) fn parse<T: DeserializeOwned>(text: &str, manual: &str) -> Result<T, Vec<Mistake>> {
    toml::from_str(text).map_err(|error| {
        vec![Mistake {
            message: error.message().trim_end().to_owned(),
            span: error.span().unwrap_or_default(),
            advice: format!("{manual} lists the settings"),
        }]
    })
}

/// Tells mistakes of a file, and returns an error that counts them.
pub(crate) fn report(path: &Path, text: &str, mistakes: &[Mistake]) -> anyhow::Error {
    let shown = path.display();
    for mistake in mistakes {
        info(format_args!("{shown}:{}", describe(text, mistake)));
    }
    anyhow::anyhow!("configuration `{shown}` has {} mistakes", mistakes.len())
}

/// `LINE:COLUMN: MESSAGE; ADVICE`, with the column in characters.
pub(crate) fn describe(text: &str, mistake: &Mistake) -> String {
    let before = text.get(..mistake.span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .chars()
        .rev()
        .take_while(|&letter| letter != '\n')
        .count()
        + 1;
    format!("{line}:{column}: {}; {}", mistake.message, mistake.advice)
}

/// Whether a text is a host name of RFC 5424, which is also the name of a directory.
pub(crate) fn is_host_name(name: &str) -> bool {
    let is_dots = name.chars().all(|letter| letter == '.');
    name.len() <= 255 && !is_dots && name.chars().all(is_plain)
}

/// Whether a host name may have the letter.
pub(crate) fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._:".contains(letter)
}

/// Mistakes of a text.
#[derive(Debug, Default)]
pub(crate) struct Mistakes(pub(crate) Vec<Mistake>);

impl Mistakes {
    pub(crate) fn add(&mut self, span: Range<usize>, message: impl Into<String>, advice: &str) {
        self.0.push(Mistake {
            message: message.into(),
            span,
            advice: advice.to_owned(),
        });
    }

    /// A time in seconds.
    pub(crate) fn seconds(
        &mut self,
        seconds: Option<&Spanned<i64>>,
        name: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Duration {
        Duration::from_secs(self.number(seconds, name, "seconds", range, default))
    }

    /// A number in a range.
    pub(crate) fn number(
        &mut self,
        number: Option<&Spanned<i64>>,
        name: &str,
        unit: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let Some(number) = number else {
            return default;
        };
        let given = u64::try_from(*number.get_ref()).ok();
        let given = given.filter(|given| range.contains(given));
        if given.is_none() {
            let message = format!("`{name}` is out of range");
            let (least, most) = range.into_inner();
            let advice = format!("write a number of {unit} from {least} to {most}");
            self.add(number.span(), message, &advice);
        }
        given.unwrap_or(default)
    }

    pub(crate) fn absolute(&mut self, file: &Path, span: Range<usize>) {
        if !file.is_absolute() {
            let message = format!("`{}` is no absolute path", file.display());
            self.add(span, message, "begin it with `/`");
        }
    }

    pub(crate) fn host_name(&mut self, name: &str, span: Range<usize>) {
        if !is_host_name(name) {
            let message = format!("`{}` is no host name", name.escape_debug());
            self.add(span, message, "use letters, digits, `-`, `.`, `_` and `:`");
        }
    }
}
