//! Findings in SARIF 2.1.0, which code review tools read.
//!
//! # Source
//! OASIS, Static Analysis Results Interchange Format 2.1.0, sections 3.13 to 3.30.

use std::collections::BTreeSet;
use std::io::{self, Write};

use audit::rule::{Diagnostic, Severity, diagnostic_codes};
use serde_json::{Value, json};

use crate::rule_files::{RuleFile, RuleFiles};

/// Writes all findings of all files as one run.
pub(super) fn write(loaded: &RuleFiles, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &log(loaded))?;
    writeln!(out)
}

fn log(loaded: &RuleFiles) -> Value {
    let used: BTreeSet<&str> = loaded
        .files
        .iter()
        .flat_map(|file| file.source.diagnostics.iter().map(|finding| finding.code))
        .collect();
    let rules: Vec<Value> = used.into_iter().map(rule).collect();
    let results: Vec<Value> = loaded
        .files
        .iter()
        .flat_map(|file| {
            file.source
                .diagnostics
                .iter()
                .map(|finding| result(file, finding))
        })
        .collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "tollgate check",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules,
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(code: &str) -> Value {
    json!({
        "id": code,
        "fullDescription": { "text": diagnostic_codes::explain(code).unwrap_or_default() },
    })
}

fn result(file: &RuleFile, finding: &Diagnostic) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    json!({
        "ruleId": finding.code,
        "level": level,
        "message": { "text": format!("{}: {}", finding.message, finding.advice) },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(file) },
                "region": {
                    "startLine": finding.line,
                    "startColumn": column(file, finding),
                    "byteOffset": finding.span.start,
                    "byteLength": finding.span.len(),
                },
            },
        }],
    })
}

/// The path as a URI reference, relative if the path is. Characters other than unreserved ones and `/` are escaped.
fn uri(file: &RuleFile) -> String {
    use std::os::unix::ffi::OsStrExt as _;

    let mut out = String::new();
    for &byte in file.source.path.as_os_str().as_bytes() {
        let is_plain = byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
        if is_plain {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend(hex(byte));
        }
    }
    out
}

/// Two hexadecimal digits.
fn hex(byte: u8) -> impl Iterator<Item = char> {
    [byte >> 4, byte & 15]
        .into_iter()
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .map(|digit| digit.to_ascii_uppercase())
}

/// Column in characters, from 1; a byte that is not UTF-8 counts as one.
fn column(file: &RuleFile, finding: &Diagnostic) -> usize {
    let before = usize::try_from(finding.column.saturating_sub(1)).unwrap_or_default();
    let start = finding.span.start.saturating_sub(before);
    let prefix = file.source.bytes.get(start..finding.span.start);
    String::from_utf8_lossy(prefix.unwrap_or_default())
        .chars()
        .count()
        + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_results_with_rule_and_location() {
        let text = "-w /x -p w\n-a always,exit -F foo=1\n";
        let loaded = RuleFiles {
            files: vec![RuleFile::parse("a b.rules".into(), text.into())],
        };
        let log = log(&loaded);
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"][0]["id"], "unknown-field");
        let expected = json!({
            "ruleId": "unknown-field",
            "level": "error",
            "message": { "text": "unknown field `foo`: auditctl(8) lists the fields" },
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": { "uri": "a%20b.rules" },
                    "region": {
                        "startLine": 2,
                        "startColumn": 19,
                        "byteOffset": 29,
                        "byteLength": 3,
                    },
                },
            }],
        });
        assert_eq!(run["results"], json!([expected]));
    }
}
