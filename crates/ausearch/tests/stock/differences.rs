//! The permitted differences: `tests/differential/ausearch.toml`.

use std::fs;
use std::path::{Path, PathBuf};

use bstr::ByteSlice as _;
use serde::Deserialize;

use crate::question::Question;
use crate::tools::Answer;

/// A permitted difference. What is absent permits anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// Version of the stock tools.
    version: Option<String>,
    tool: Option<String>,
    /// Each is a word of the question, or several of which one is, with `|` between them.
    words: Option<Vec<String>>,
    /// The log has one of these texts.
    log: Option<Vec<String>>,
    /// Lines with one of these texts are left out of the logs.
    lines: Option<Vec<String>>,
    /// A text in our answer.
    answer: Option<String>,
    reason: String,
}

/// The differences from one version.
#[derive(Debug, Deserialize)]
pub(crate) struct Differences {
    difference: Vec<Difference>,
}

pub(crate) fn tests_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests")
}

impl Differences {
    pub(crate) fn of_version(version: &str) -> Self {
        let path = tests_directory().join("differential/ausearch.toml");
        let mut all: Self = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        all.difference.retain(|difference| {
            assert!(!difference.reason.is_empty());
            let of = difference.version.as_deref();
            of.is_none_or(|of| of == version)
        });
        all
    }

    /// The log without the lines that this version reads differently.
    pub(crate) fn kept_lines(&self, log: &[u8]) -> Vec<u8> {
        let left_out: Vec<&String> = self
            .difference
            .iter()
            .flat_map(|difference| difference.lines.iter().flatten())
            .collect();
        let is_kept = |line: &&[u8]| !left_out.iter().any(|text| line.contains_str(text));
        let lines: Vec<&[u8]> = log.lines_with_terminator().filter(is_kept).collect();
        lines.concat()
    }

    pub(crate) fn permit(&self, question: &Question, log: &[u8], ours: &Answer) -> bool {
        self.difference
            .iter()
            .any(|difference| difference.permits(question, log, ours))
    }
}

impl Difference {
    fn permits(&self, question: &Question, log: &[u8], ours: &Answer) -> bool {
        let tool = self.tool.as_ref();
        let answer = self.answer.as_ref();
        let mut words = self.words.iter().flatten();
        let has = |word: &str| question.words.iter().any(|asked| asked == word);
        self.lines.is_none()
            && tool.is_none_or(|tool| tool == question.tool)
            && words.all(|word| word.split('|').any(has))
            && self
                .log
                .as_ref()
                .is_none_or(|texts| texts.iter().any(|text| log.contains_str(text)))
            && answer.is_none_or(|text| ours.err.contains_str(text) || ours.out.contains_str(text))
    }
}
