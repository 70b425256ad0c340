//! Rules about `CHANGELOG.md` and `ARCHITECTURE.md`.

use std::collections::BTreeMap;

use super::Finding;

const CHANGE_KINDS: [&str; 6] = [
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

/// The change log has the form of Keep a Changelog, with a section for what is not released.
pub(super) fn changelog(path: &str, text: Option<&str>) -> Vec<Finding> {
    let Some(text) = text else {
        return vec![Finding::new(path, 1, "there is no change log")];
    };
    let mut findings = Vec::new();
    let mut versions = 0;
    for (line, number) in text.lines().zip(1..) {
        if let Some(kind) = line.strip_prefix("### ") {
            if !CHANGE_KINDS.contains(&kind) {
                let message = format!("`{kind}` is none of {}", CHANGE_KINDS.join(", "));
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

/// Each numbered item below `## Invariants` ends in "Held by" and tests that exist, as
/// `` `path/of/file.rs::function` ``.
pub(super) fn invariants(path: &str, files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let items = files
        .get(path)
        .map(|text| numbered_items(text))
        .unwrap_or_default();
    if items.is_empty() {
        return vec![Finding::new(
            path,
            1,
            "there is no numbered list below `## Invariants`",
        )];
    }
    let mut findings = Vec::new();
    for (line, item) in items {
        let held_by = item.split_once("Held by ").map_or("", |(_, tests)| tests);
        let tests: Vec<(&str, &str)> = held_by
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|quoted| quoted.split_once(".rs::"))
            .collect();
        if tests.is_empty() {
            let message = "the invariant names no test: Held by `path/of/file.rs::function`";
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

/// The numbered items below `## Invariants`, each with its first line's number.
fn numbered_items(text: &str) -> Vec<(usize, String)> {
    let section = text
        .lines()
        .zip(1..)
        .skip_while(|(line, _)| *line != "## Invariants")
        .skip(1)
        .take_while(|(line, _)| !line.starts_with("## "));
    let mut items: Vec<(usize, String)> = Vec::new();
    for (line, number) in section {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        if digits.len() < line.len() && digits.starts_with(". ") {
            items.push((number, line.to_owned()));
        } else if let Some((_, item)) = items.last_mut() {
            item.push('\n');
            item.push_str(line);
        }
    }
    items
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
        assert_eq!(changelog_lines(good), []);
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

    fn invariant_messages(list: &str) -> Vec<String> {
        let text = format!(
            "# Architecture\n\n1. Not one.\n\n## Invariants\n\nText.\n\n{list}\n\n## Next\n\n2. Nor this.\n"
        );
        let files = BTreeMap::from([
            ("ARCHITECTURE.md", text.as_str()),
            (
                "crates/audit/src/plan.rs",
                "    fn plan_agrees(rule in any()) {\n",
            ),
        ]);
        invariants("ARCHITECTURE.md", &files)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn invariants_name_tests_that_exist() {
        let held = "1. It holds.\n   Held by `#![forbid(unsafe_code)]` and `crates/audit/src/plan.rs::plan_agrees`.";
        assert_eq!(invariant_messages(held), [""; 0]);
        assert_eq!(
            invariant_messages(
                "1. It holds.\n2. So does this.\n   Held by `crates/audit/src/plan.rs::plan`."
            ),
            [
                "ARCHITECTURE.md:9: the invariant names no test: Held by `path/of/file.rs::function`",
                "ARCHITECTURE.md:10: `crates/audit/src/plan.rs` has no function `plan`",
            ]
        );
        assert_eq!(
            invariant_messages("1. It holds. Held by `a.rs::b`."),
            ["ARCHITECTURE.md:9: there is no file `a.rs`"]
        );
        assert_eq!(invariant_messages("None yet.").len(), 1);
    }
}
