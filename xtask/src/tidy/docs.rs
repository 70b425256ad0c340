//! Rules for `CHANGELOG.md`, `docs/invariants.md` and `docs/kernels.md`.

use std::collections::BTreeMap;

use super::Finding;
use crate::vm;

const CHANGE_KINDS: [&str; 6] = [
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

/// The change log has the form of Keep a Changelog, with a section for unreleased changes.
pub(super) fn changelog(path: &str, text: Option<&str>) -> Vec<Finding> {
    let Some(text) = text else {
        return vec![Finding::new(path, 1, "there is no change log")];
    };
    let mut findings = Vec::new();
    let mut versions = 0;
    for (line, number) in text.lines().zip(1..) {
        if let Some(kind) = line.strip_prefix("### ") {
            if !CHANGE_KINDS.contains(&kind) {
                let message = format!("`{kind}` is not one of {}", CHANGE_KINDS.join(", "));
                findings.push(Finding::new(path, number, message));
            }
        } else if let Some(version) = line.strip_prefix("## ") {
            if versions == 0 && version != "[Unreleased]" {
                findings.push(Finding::new(
                    path,
                    number,
                    "the first section is not `## [Unreleased]`",
                ));
            } else if versions > 0 && !is_release(version) {
                findings.push(Finding::new(
                    path,
                    number,
                    "not of the form `## [1.2.3] - 2026-01-31`",
                ));
            }
            versions += 1;
        }
    }
    if text.lines().next() != Some("# Changelog") {
        findings.push(Finding::new(path, 1, "the first line is not `# Changelog`"));
    }
    if versions == 0 {
        findings.push(Finding::new(
            path,
            1,
            "there is no section `## [Unreleased]`",
        ));
    }
    findings
}

/// `[1.2.3] - 2026-01-31`
fn is_release(heading: &str) -> bool {
    let parts = heading
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] - "));
    let numbers = |text: &str, separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        let digits =
            |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        parts.len() == 3 && parts.iter().all(digits)
    };
    parts.is_some_and(|(version, date)| {
        numbers(version, '.') && numbers(date, '-') && date.len() == 10
    })
}

/// Each row of the table in `docs/invariants.md` has a number, the invariant, and existing tests in the form
/// `` `path/of/file.rs::function` ``.
pub(super) fn invariants(path: &str, files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let rows = files
        .get(path)
        .map(|text| invariant_rows(text))
        .unwrap_or_default();
    if rows.is_empty() {
        let message = "there is no table with rows `| NUMBER | INVARIANT | HELD BY |`";
        return vec![Finding::new(path, 1, message)];
    }
    let mut findings = Vec::new();
    for (expected, (line, number, held_by)) in (1..).zip(rows) {
        if number != expected.to_string() {
            let message = format!("the row has number {number}, expected {expected}");
            findings.push(Finding::new(path, line, message));
        }
        let tests: Vec<(&str, &str)> = held_by
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|quoted| quoted.split_once(".rs::"))
            .collect();
        if tests.is_empty() {
            let message = "the invariant names no test `path/of/file.rs::function`";
            findings.push(Finding::new(path, line, message));
        }
        for (stem, function) in tests {
            let file = format!("{stem}.rs");
            let declaration = format!("fn {function}(");
            match files.get(file.as_str()) {
                None => findings.push(Finding::new(
                    path,
                    line,
                    format!("there is no file `{file}`"),
                )),
                Some(text) if !text.contains(&declaration) => {
                    let message = format!("`{file}` has no function `{function}`");
                    findings.push(Finding::new(path, line, message));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// A page is what its record gives: neither can change alone.
pub(super) fn kernels(path: &str, record: &str, files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let Some(json) = files.get(record) else {
        let message = format!("there is no `{record}`; `cargo xtask kernels` writes it");
        return vec![Finding::new(path, 1, message)];
    };
    let written = files.get(path).copied().unwrap_or_default();
    match vm::page_of_record(json) {
        Ok(page) if page == written => Vec::new(),
        Ok(page) => {
            let same = page
                .lines()
                .zip(written.lines())
                .take_while(|(a, b)| a == b);
            let message = format!(
                "this is not what `{record}` gives; `cargo xtask kernels --page` writes it"
            );
            vec![Finding::new(path, same.count() + 1, message)]
        }
        Err(error) => vec![Finding::new(record, 1, error)],
    }
}

/// The rows of the table whose first cell is a number: line, number, last cell.
fn invariant_rows(text: &str) -> Vec<(usize, &str, &str)> {
    text.lines()
        .zip(1..)
        .filter_map(|(line, position)| {
            let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
            let number = *cells.first()?;
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| (position, number, cells.get(2).copied().unwrap_or_default()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changelog_lines(text: &str) -> Vec<usize> {
        changelog("CHANGELOG.md", Some(text))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn changelog_has_the_usual_form() {
        let good =
            "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- x\n\n## [0.1.0] - 2026-11-20\n";
        assert_eq!(changelog_lines(good), [0_usize; 0]);
        assert_eq!(changelog_lines("# Changes\n## [Unreleased]\n"), [1]);
        assert_eq!(changelog_lines("# Changelog\n"), [1]);
        assert_eq!(
            changelog_lines("# Changelog\n## [0.1.0] - 2026-11-20\n"),
            [2]
        );
        assert_eq!(
            changelog_lines("# Changelog\n## [Unreleased]\n### News\n## 0.1\n"),
            [3, 4]
        );
        assert_eq!(changelog("CHANGELOG.md", None).len(), 1);
    }

    #[test]
    fn releases_have_a_version_and_a_day() {
        assert!(is_release("[10.2.3] - 2026-11-20"));
        for heading in [
            "[1.2] - 2026-11-20",
            "[1.2.3]",
            "[1.2.x] - 2026-11-20",
            "[1.2.3] - 2026-1-2",
        ] {
            assert!(!is_release(heading), "{heading}");
        }
    }

    fn invariant_messages(rows: &str) -> Vec<String> {
        let text =
            format!("# Invariants\n\n| no. | invariant | held by |\n| --- | --- | --- |\n{rows}\n");
        let files = BTreeMap::from([
            ("docs/invariants.md", text.as_str()),
            (
                "crates/audit/src/plan.rs",
                "    fn plan_agrees(rule in any()) {\n",
            ),
        ]);
        invariants("docs/invariants.md", &files)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn invariants_name_tests_that_exist() {
        let held = "| 1 | It holds. | `#![forbid(unsafe_code)]` and `crates/audit/src/plan.rs::plan_agrees` |";
        assert_eq!(invariant_messages(held), [""; 0]);
        assert_eq!(
            invariant_messages(
                "| 1 | It holds. | |\n| 3 | So does this. | `crates/audit/src/plan.rs::plan` |"
            ),
            [
                "docs/invariants.md:5: the invariant names no test `path/of/file.rs::function`",
                "docs/invariants.md:6: the row has number 3, expected 2",
                "docs/invariants.md:6: `crates/audit/src/plan.rs` has no function `plan`",
            ]
        );
        assert_eq!(
            invariant_messages("| 1 | It holds. | `a.rs::b` |"),
            ["docs/invariants.md:5: there is no file `a.rs`"]
        );
        assert_eq!(invariant_messages("None yet.").len(), 1);
    }

    #[test]
    fn page_of_kernels_agrees_with_its_record() {
        let json = "[]";
        let page = vm::page_of_record(json).unwrap();
        let found = |json, page: &str| {
            let files = BTreeMap::from([("k.json", json), ("k.md", page)]);
            let findings = kernels("k.md", "k.json", &files).into_iter();
            findings
                .map(|finding| finding.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(found(json, &page), [""; 0]);
        let other = page.replacen("QEMU", "a machine", 1);
        assert_eq!(
            found(json, &other),
            ["k.md:3: this is not what `k.json` gives; `cargo xtask kernels --page` writes it"]
        );
        assert!(found("{", &page)[0].starts_with("k.json:1: "));
        assert_eq!(kernels("k.md", "k.json", &BTreeMap::new()).len(), 1);
    }
}
