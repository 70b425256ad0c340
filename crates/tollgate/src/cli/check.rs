//! `tollgate check`: reports errors in rule files, and valid rules that probably do not do what was meant.
//!
//! The parser checks single lines; [`audit::plan::lint`] checks rules together. Their findings have one format.

mod sarif;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use audit::plan::rule_list::RuleList;
use audit::rule::{Diagnostic, RuleHost as _, Severity, diagnostic_codes};
use serde::Serialize;

use crate::config;
use crate::host::ThisMachine;
use crate::messages::{self, Exit, count};
use crate::rule_files::{self, RuleFile, RuleFiles};

/// Examples of the help and the manual page.
pub(super) const EXAMPLES: &str = "\
Examples:
  Check the rules of this machine:
    tollgate check
  Explain a finding:
    tollgate check --explain shadowed";

/// Arguments of `tollgate check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rule files in the format of `auditctl -R` [default: those of this machine]
    ///
    /// `-` is standard input. Without FILE, the files are those that `rules` in tollgate.toml names, or those in
    /// /etc/audit/rules.d, or /etc/audit/audit.rules.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the findings as JSON
    #[arg(long, conflicts_with = "sarif")]
    json: bool,
    /// Print the findings as SARIF 2.1.0, for code review tools
    #[arg(long)]
    sarif: bool,
    /// Explain the code of a finding, or `all` codes
    #[arg(long, value_name = "CODE", conflicts_with_all = ["files", "json", "sarif"])]
    explain: Option<String>,
}

/// Prints all findings and their number. The exit status is 1 if a line has an error, also after `-i`.
///
/// # Errors
/// When a file cannot be read, or the output cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(code) = &args.explain {
        return explain(code);
    }
    let files = config::named_or_installed_rule_files(&args.files, "check")?;
    let mut loaded = rule_files::read_also_stdin(&files)?;
    lint(&mut loaded);
    let written = if args.json {
        json(&loaded, &mut io::stdout().lock())
    } else if args.sarif {
        sarif::write(&loaded, &mut io::stdout().lock())
    } else {
        text(&loaded)
    };
    messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
    Ok(match loaded.count(Severity::Error) {
        0 => Exit::Success.into(),
        _ => Exit::Failure.into(),
    })
}

/// Prints the explanation of a code.
fn explain(code: &str) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let written = if code == "all" {
        diagnostic_codes::all().try_for_each(|code| {
            writeln!(
                out,
                "{code}\n    {}",
                diagnostic_codes::explain(code).unwrap_or_default()
            )
        })
    } else {
        let text = diagnostic_codes::explain(code).with_context(|| {
            format!("unknown code `{code}`: `tollgate check --explain all` lists all codes")
        })?;
        writeln!(out, "{text}")
    };
    messages::ignore_broken_pipe(written).context("cannot write to standard output")?;
    Ok(Exit::Success.into())
}

/// Adds the findings about the rules of all files together to the findings of each file.
fn lint(loaded: &mut RuleFiles) {
    let mut list = RuleList::default();
    for (source, file) in loaded.files.iter_mut().enumerate() {
        let refused = list.load(source, file.lines.iter().cloned());
        file.source.diagnostics.extend(refused);
    }
    for finding in audit::plan::lint::lint(list.rules(), ThisMachine.native()) {
        let Some(listed) = list.rules().get(finding.rule) else {
            continue;
        };
        let Some(file) = loaded.files.get_mut(listed.source) else {
            continue;
        };
        let Some(line) = file.lines.iter().find(|line| line.number == listed.line) else {
            continue;
        };
        file.source.diagnostics.push(Diagnostic {
            severity: finding.severity,
            code: finding.code,
            line: line.number,
            column: 1,
            span: line.span.clone(),
            message: finding.message,
            advice: finding.advice,
        });
    }
    for file in &mut loaded.files {
        file.source.diagnostics.sort_by_key(|finding| finding.line);
    }
}

fn text(loaded: &RuleFiles) -> io::Result<()> {
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    for file in &loaded.files {
        messages::write_findings(&file.source, &mut out)?;
    }
    writeln!(out, "{}", summary(loaded))?;
    out.flush()
}

fn summary(loaded: &RuleFiles) -> String {
    format!(
        "{}, {}, {}",
        count(loaded.rule_count(), "rule"),
        count(loaded.count(Severity::Warning), "warning"),
        count(loaded.count(Severity::Error), "error")
    )
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    files: Vec<FileReport<'a>>,
    rules: usize,
    warnings: usize,
    errors: usize,
    /// Whether the rules can be loaded.
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

impl<'a> From<&'a RuleFiles> for Report<'a> {
    fn from(loaded: &'a RuleFiles) -> Self {
        Self {
            files: loaded.files.iter().map(FileReport::from).collect(),
            rules: loaded.rule_count(),
            warnings: loaded.count(Severity::Warning),
            errors: loaded.count(Severity::Error),
            may_load: loaded.is_loadable(),
        }
    }
}

impl<'a> From<&'a RuleFile> for FileReport<'a> {
    fn from(file: &'a RuleFile) -> Self {
        Self {
            path: file.source.path.to_string_lossy().into_owned(),
            rules: file.rule_count(),
            findings: file.source.diagnostics.iter().map(Finding::from).collect(),
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

fn json(loaded: &RuleFiles, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Report::from(loaded))?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> RuleFiles {
        RuleFiles {
            files: vec![RuleFile::parse("a.rules".into(), text.into())],
        }
    }

    #[test]
    fn rules_of_all_files_are_linted_together() {
        let files = [
            "-a never,exit -F arch=b64 -S acct\n",
            "# x\n-w /x -p w -k x\n\
                     -a always,exit -F arch=b64 -S acct -F uid=0 -k x\n\
                     -a never,exit -F arch=b64 -S acct\n",
        ]
        .map(|text| RuleFile::parse("a.rules".into(), text.into()));
        let mut loaded = RuleFiles {
            files: files.into(),
        };
        lint(&mut loaded);
        let codes: Vec<Vec<(u32, &str)>> = loaded
            .files
            .iter()
            .map(|file| {
                let found = file.source.diagnostics.iter();
                found.map(|found| (found.line, found.code)).collect()
            })
            .collect();
        assert_eq!(codes[0], []);
        assert_eq!(
            codes[1],
            [
                (2, "no-io-uring"),
                (3, "shadowed"),
                (3, "one-arch"),
                (4, "rule-exists")
            ]
        );
    }

    #[test]
    fn codes_are_explained_and_others_are_an_error() {
        assert!(explain("shadowed").is_ok() && explain("all").is_ok());
        let error = explain("frobnicate").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("`frobnicate`"), "{error}");
        // Findings of this crate are explained in `audit`.
        let file = RuleFile::parse("a.rules".into(), b"-b 8192\n".to_vec());
        assert!(diagnostic_codes::explain(file.source.diagnostics[0].code).is_some());
    }

    #[test]
    fn summary_counts_rules_and_findings() {
        assert_eq!(summary(&loaded("-D\n")), "0 rules, 0 warnings, 0 errors");
        let text = "-w /x -p w\n-w /y* -p w\n-x\n-a always,task\n";
        assert_eq!(summary(&loaded(text)), "3 rules, 1 warning, 1 error");
    }

    #[test]
    fn json_has_every_finding_with_its_position() {
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
