//! Paths in documents: in backticks, as `crates/audit/src/plan.rs`, and as targets of links.

use std::collections::BTreeMap;

use super::Finding;

/// Directories of the repository. A word in backticks that begins with one of them is a path.
const ROOTS: [&str; 9] = [
    "crates/",
    "docs/",
    "examples/",
    "man/",
    "packaging/",
    "scripts/",
    "tests/",
    "xtask/",
    ".ci/",
];

/// Each path in the Markdown file `path` is a file or directory of the tree.
///
/// The change log may name removed files.
pub(super) fn exist(path: &str, text: &str, files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    if !path.ends_with(".md") || path == "CHANGELOG.md" {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_example = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_example = !is_example;
        }
        if is_example {
            continue;
        }
        let quoted = line.split('`').skip(1).step_by(2).filter_map(quoted_path);
        let linked = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter_map(|target| linked_path(path, target));
        for mentioned in quoted.map(str::to_owned).chain(linked) {
            if !is_in_tree(&mentioned, files) {
                let message = format!("there is no file or directory `{mentioned}`");
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

/// The path in a quoted word, without `::test_name`; `None` for patterns and other text.
fn quoted_path(quoted: &str) -> Option<&str> {
    let path = quoted.split("::").next()?;
    let is_path = ROOTS.iter().any(|root| path.starts_with(root))
        && !path.contains(|c: char| c.is_whitespace() || "*<>{}$".contains(c));
    is_path.then_some(path)
}

/// The target of a link, relative to the root of the repository; `None` for external links.
fn linked_path(document: &str, target: &str) -> Option<String> {
    let target = target.split('#').next()?;
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn is_in_tree(path: &str, files: &BTreeMap<&str, &str>) -> bool {
    let directory = format!("{}/", path.trim_end_matches('/'));
    files.contains_key(path) || files.keys().any(|file| file.starts_with(&directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let files = BTreeMap::from([
            ("crates/audit/src/plan.rs", ""),
            ("docs/limits.md", ""),
            ("README.md", ""),
        ]);
        exist(path, text, &files)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn paths_that_exist_are_accepted() {
        let text = "`crates/audit/src/plan.rs::a_test`, `crates/audit/`, [limits](limits.md#top), [up](../README.md),\n\
            [web](https://example.org/x), `crates/*/src`, `docs and more`\n```sh\ncat docs/gone.md `docs/gone.md`\n```\n";
        assert_eq!(messages("docs/page.md", text), [""; 0]);
    }

    #[test]
    fn paths_that_do_not_exist_are_reported() {
        assert_eq!(
            messages(
                "docs/page.md",
                "\n`crates/audit/src/gone.rs` and [x](gone.md)\n"
            ),
            [
                "docs/page.md:2: there is no file or directory `crates/audit/src/gone.rs`",
                "docs/page.md:2: there is no file or directory `docs/gone.md`",
            ]
        );
        assert_eq!(messages("CHANGELOG.md", "`crates/gone.rs`"), [""; 0]);
    }
}
