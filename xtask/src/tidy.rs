//! `cargo xtask tidy`: checks the rules of the repository that no compiler, formatter or lint checks.
//!
//! Each rule is a function from text to findings, which tests call with a few lines. Only this file reads the
//! tree.

mod docs;
mod edges;
mod lexer;
mod modules;
mod paths;
mod source;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use crate::Outcome;
use crate::repository::{File, Repository, is_c_source};

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; line 1 if the whole file breaks the rule.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks the whole tree and prints the findings.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn run(repository: &Repository, _: &[String]) -> Outcome {
    Ok(if holds(repository)? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Checks the whole tree, prints the findings, and returns whether there are none.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn holds(repository: &Repository) -> Result<bool, Box<dyn Error>> {
    let findings = findings(&repository.files()?);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn findings(files: &[File]) -> Vec<Finding> {
    let by_path: BTreeMap<&str, &str> = files
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let mut findings = Vec::new();
    for (&path, &text) in &by_path {
        findings.extend(source::name(path));
        findings.extend(source::trailing_blanks(path, text));
        if source::is_rust(path) {
            findings.extend(source::header(path, text));
            findings.extend(source::length(path, text));
            findings.extend(source::forbids_unsafe(path, text));
            findings.extend(source::purity(path, text));
        }
        if path.starts_with("crates/engine/bpf/") && is_c_source(path) {
            findings.extend(source::licence(path, text));
        }
        findings.extend(paths::exist(path, text, &by_path));
    }
    findings.extend(edges::edges(&by_path));
    findings.extend(modules::cycles(&by_path));
    findings.extend(docs::changelog(
        "CHANGELOG.md",
        by_path.get("CHANGELOG.md").copied(),
    ));
    findings.extend(docs::invariants("docs/invariants.md", &by_path));
    findings.extend(docs::kernels(
        "docs/kernels.md",
        "docs/kernels.json",
        &by_path,
    ));
    findings.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_printed_in_the_format_of_compilers() {
        let finding = Finding::new("crates/audit/src/lib.rs", 7, "no header");
        assert_eq!(finding.to_string(), "crates/audit/src/lib.rs:7: no header");
    }

    #[test]
    fn every_rule_is_applied() {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let long = "//! Long.\n".repeat(501);
        let files = [
            file(
                "crates/audit/Cargo.toml",
                "[package]\nname = \"audit\"\n[dependencies]\nengine = 1\n",
            ),
            file("crates/engine/Cargo.toml", "[package]\nname = \"engine\"\n"),
            file("crates/audit/src/lib.rs", "//! No attribute.\n"),
            file("crates/audit/src/util.rs", "//! Header.\n"),
            file("crates/audit/src/blank.rs", "//! Header. \n"),
            file("crates/audit/src/bare.rs", "fn f() {}\n"),
            file("crates/audit/src/clock.rs", "//! Header.\nuse std::time;\n"),
            file("crates/audit/src/long.rs", &long),
            file("crates/engine/bpf/exec.bpf.c", "int x;\n"),
        ];
        let found: Vec<_> = findings(&files)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(
            found,
            [
                "CHANGELOG.md",
                "crates/audit/Cargo.toml",
                "crates/audit/src/bare.rs",
                "crates/audit/src/blank.rs",
                "crates/audit/src/clock.rs",
                "crates/audit/src/lib.rs",
                "crates/audit/src/long.rs",
                "crates/audit/src/util.rs",
                "crates/engine/bpf/exec.bpf.c",
                "docs/invariants.md",
                "docs/kernels.md",
            ]
        );
    }
}
