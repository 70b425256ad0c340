//! `tollgate check`: what is wrong with rule files, and nothing else.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use audit::rule::{Diagnostic, Severity};
use serde::Serialize;

use super::report::{self, Exit};
use super::rules::{self, Loaded, SourceFile};

/// Arguments of `tollgate check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rule files, as `auditctl -R` reads them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Prints all findings, and then their number. The status is 1 when a line is wrong, also when the
/// file says that errors are to be ignored.
///
/// # Errors
/// A file that cannot be read, or an output that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let loaded = rules::load(&args.files)?;
    let written = if args.json {
        json(&loaded, &mut io::stdout().lock())
    } else {
        text(&loaded)
    };
    report::unless_closed(written).context("cannot write to standard output")?;
    Ok(match loaded.count(Severity::Error) {
        0 => Exit::Success.into(),
        _ => Exit::Failure.into(),
    })
}

fn text(loaded: &Loaded) -> io::Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    for file in &loaded.files {
        report::findings(file, &mut out)?;
    }
    writeln!(out, "{}", summary(loaded))?;
    out.flush()
}

fn summary(loaded: &Loaded) -> String {
    let count = |number: usize, what: &str| {
        format!("{number} {what}{}", if number == 1 { "" } else { "s" })
    };
    format!(
        "{}, {}, {}",
        count(loaded.rules(), "rule"),
        count(loaded.count(Severity::Warning), "warning"),
        count(loaded.count(Severity::Error), "error")
    )
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    files: Vec<FileReport<'a>>,
    rules: usize,
    warnings: usize,
    errors: usize,
    /// Whether the rules without error may be put into force.
    may_load: bool,
}

#[derive(Serialize)]
struct FileReport<'a> {
    path: String,
    rules: usize,
    findings: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    severity: &'static str,
    code: &'static str,
    /// From 1.
    line: u32,
    /// In bytes, from 1.
    column: u32,
    /// Bytes from the start of the file; the end is exclusive.
    start: usize,
    end: usize,
    message: &'a str,
    advice: &'a str,
}

impl<'a> From<&'a Loaded> for Report<'a> {
    fn from(loaded: &'a Loaded) -> Self {
        Self {
            files: loaded.files.iter().map(FileReport::from).collect(),
            rules: loaded.rules(),
            warnings: loaded.count(Severity::Warning),
            errors: loaded.count(Severity::Error),
            may_load: loaded.may_load(),
        }
    }
}

impl<'a> From<&'a SourceFile> for FileReport<'a> {
    fn from(file: &'a SourceFile) -> Self {
        Self {
            path: file.path.to_string_lossy().into_owned(),
            rules: file.rules(),
            findings: file.diagnostics.iter().map(Finding::from).collect(),
        }
    }
}

impl<'a> From<&'a Diagnostic> for Finding<'a> {
    fn from(finding: &'a Diagnostic) -> Self {
        Self {
            severity: match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "note",
            },
            code: finding.code,
            line: finding.line,
            column: finding.column,
            start: finding.span.start,
            end: finding.span.end,
            message: &finding.message,
            advice: &finding.advice,
        }
    }
}

fn json(loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Report::from(loaded))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Loaded {
        Loaded {
            files: vec![SourceFile::parse("a.rules".into(), text.into())],
        }
    }

    #[test]
    fn the_summary_counts_rules_and_findings() {
        assert_eq!(summary(&loaded("-D\n")), "0 rules, 0 warnings, 0 errors");
        let text = "-w /x -p w\n-w /y* -p w\n-x\n-a always,task\n";
        assert_eq!(summary(&loaded(text)), "3 rules, 1 warning, 1 error");
    }

    #[test]
    fn json_holds_every_finding_with_its_place() {
        let mut out = Vec::new();
        json(&loaded("-w /x -p w\n-a always,exit -F foo=1\n"), &mut out).unwrap();
        let found: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = serde_json::json!({
            "files": [{
                "path": "a.rules",
                "rules": 1,
                "findings": [{
                    "severity": "error",
                    "code": "unknown-field",
                    "line": 2,
                    "column": 19,
                    "start": 29,
                    "end": 32,
                    "message": "unknown field `foo`",
                    "advice": "auditctl(8) lists the fields",
                }],
            }],
            "rules": 1,
            "warnings": 0,
            "errors": 1,
            "may_load": false,
        });
        assert_eq!(found, expected);
    }
}
