//! Pages name only pages that are installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::directory;

/// Pages of tollgate that a text of roff names, as `NAME.SECTION`: `NAME(8)`, `.BR NAME (8)` and `.Xr NAME 8`.
fn references(text: &str) -> BTreeSet<String> {
    let mut plain = text.replace("\\-", "-");
    for escape in ["\\fB", "\\fI", "\\fP", "\\fR", "\\&"] {
        plain = plain.replace(escape, "");
    }
    let mut found = BTreeSet::new();
    for line in plain.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for triple in words.windows(3).filter(|words| words[0].ends_with("Xr")) {
            found.insert(format!("{}.{}", triple[1], triple[2]));
        }
        let parts: Vec<&str> = line.split('(').collect();
        for pair in parts.windows(2) {
            let Some((section, _)) = pair[1].split_once(')') else {
                continue;
            };
            let is_section =
                section.len() == 1 && section.starts_with(|it: char| it.is_ascii_digit());
            let is_named = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
            let name = pair[0].trim_end();
            let (_, name) = name.split_at(name.trim_end_matches(is_named).len());
            if is_section {
                found.insert(format!("{name}.{section}"));
            }
        }
    }
    found.retain(|page| page.starts_with("tollgate"));
    found
}

#[test]
fn references_are_found_in_all_forms() {
    let text = ".BR tollgate\\-a (8),\nsee \\fBtollgate-b\\fR(8) or tollgate-c.toml(5), (also) auditd(8)\n.Xr tollgate-d 8 ,\n.Pq Xr tollgate-e 5\n";
    let found: Vec<String> = references(text).into_iter().collect();
    let expected = ["a.8", "b.8", "c.toml.5", "d.8", "e.5"];
    assert_eq!(found, expected.map(|page| format!("tollgate-{page}")));
}

#[test]
fn pages_name_only_pages_that_are_installed() {
    let entries = fs::read_dir(directory()).unwrap();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let pages = paths.iter().filter(|path| path.is_file());
    let mut count = 0;
    let mut missing = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).unwrap();
        for name in references(&text) {
            count += 1;
            if !directory().join(&name).exists() {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(count >= 100, "{count}");
    assert_eq!(missing, Vec::<String>::new());
}
