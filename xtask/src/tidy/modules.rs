//! Cycles between the top-level modules of a crate.
//!
//! The top-level module of a file is its first path component below `src`. `lib.rs` and `main.rs`, which depend
//! on every module, are ignored. A dependency is a path in code that starts with `crate::`, or with enough
//! `super::` to leave the top-level module, also in braces. Comments, strings, items under `#[cfg(test)]` and
//! files of tests are ignored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use super::lexer::{code_of, is_word};

/// Dependencies of one crate: from, to, and the first place that has it.
type Edges<'a> = BTreeMap<(String, String), (&'a str, usize)>;

/// Reports each cycle between the top-level modules of a crate.
pub(super) fn cycles(files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (&path, &text) in files {
        if let Some((package, file)) = path.split_once("/src/")
            && path.ends_with(".rs")
        {
            crates.entry(package).or_default().push((file, text));
        }
    }
    let paths = |package: &str, file: &str| {
        let path = format!("{package}/src/{file}");
        files
            .get_key_value(path.as_str())
            .map_or("", |(&path, _)| path)
    };
    let mut findings = Vec::new();
    for (package, sources) in &crates {
        let modules: BTreeSet<String> = sources.iter().filter_map(|(file, _)| top(file)).collect();
        let mut edges = Edges::new();
        for &(file, text) in sources {
            let Some(from) = top(file) else { continue };
            if is_test(file) {
                continue;
            }
            for (to, line) in targets(&code_of(text), depth(file)) {
                if to != from && modules.contains(&to) {
                    let place = (paths(package, file), line);
                    edges.entry((from.clone(), to)).or_insert(place);
                }
            }
        }
        findings.extend(cycles_among(package, &edges));
    }
    findings
}

/// The shortest cycle through each dependency that is part of one; each cycle once.
fn cycles_among(package: &str, edges: &Edges<'_>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (from, to) in edges.keys() {
        let Some(mut cycle) = shortest(edges, to, from) else {
            continue;
        };
        // The cycle starts at its first module in the alphabet, so that it is known again.
        let start = cycle.iter().min().cloned().unwrap_or_default();
        let at = cycle.iter().position(|name| *name == start);
        cycle.rotate_left(at.unwrap_or(0));
        if !seen.insert(cycle.clone()) {
            continue;
        }
        let next = cycle.iter().cycle().skip(1);
        let steps: Vec<(&String, &String)> = cycle.iter().zip(next).collect();
        let places: Vec<(&str, usize)> = steps
            .iter()
            .filter_map(|&(from, to)| edges.get(&(from.clone(), to.clone())).copied())
            .collect();
        let shown: Vec<String> = steps
            .iter()
            .zip(&places)
            .map(|((from, to), (path, line))| format!("{from} -> {to} ({path}:{line})"))
            .collect();
        let &(path, line) = places.first().unwrap_or(&(package, 1));
        let message = format!("modules form a cycle: {}", shown.join(", "));
        findings.push(Finding::new(path, line, message));
    }
    findings
}

/// The modules on the shortest path, with both ends.
fn shortest(edges: &Edges<'_>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([from]);
    while let Some(at) = waiting.pop_front() {
        if at == to {
            let mut path = vec![to.to_owned()];
            let mut at = to;
            while at != from {
                at = before.get(at)?;
                path.push(at.to_owned());
            }
            path.reverse();
            return Some(path);
        }
        for (source, target) in edges.keys() {
            if source == at && target != from && !before.contains_key(target.as_str()) {
                before.insert(target, at);
                waiting.push_back(target);
            }
        }
    }
    None
}

/// The top-level module of a file below `src`; `None` for a root.
fn top(file: &str) -> Option<String> {
    let first = file.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main", "bin"].contains(&name)).then(|| name.to_owned())
}

/// Number of `super::` from the module of a file to the root.
fn depth(file: &str) -> usize {
    let components = file.split('/').count();
    components - usize::from(file.ends_with("/mod.rs"))
}

/// Whether a file has tests only.
fn is_test(file: &str) -> bool {
    file.split('/')
        .any(|part| part == "tests.rs" || part == "tests")
}

/// The top-level modules that code names, each with its line. `depth` is that of the module of the file.
fn targets(code: &str, depth: usize) -> Vec<(String, usize)> {
    let words = words(code);
    let mut found = Vec::new();
    // For each open brace, whether it opens a module.
    let mut braces = Vec::new();
    let mut at = 0;
    while let Some(&(word, line)) = words.get(at) {
        let text = |offset: usize| words.get(at + offset).map_or("", |&(word, _)| word);
        match word {
            "{" => {
                let is_module = at >= 2 && words.get(at - 2).is_some_and(|&(it, _)| it == "mod");
                braces.push(is_module);
            }
            "}" => drop(braces.pop()),
            "crate" if text(1) == "::" => {
                let is_scope = at > 0 && words.get(at - 1).is_some_and(|&(it, _)| it == "in");
                if !is_scope {
                    found.extend(heads(&words, at + 2, line));
                }
            }
            "super" if text(1) == "::" => {
                let mut levels = 1;
                while text(2 * levels) == "super" && text(2 * levels + 1) == "::" {
                    levels += 1;
                }
                let inner = braces.iter().filter(|&&is_module| is_module).count();
                if levels == depth + inner {
                    found.extend(heads(&words, at + 2 * levels, line));
                }
                at += 2 * levels - 1;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The first words of a path, or of each path of a group.
fn heads(words: &[(&str, usize)], at: usize, line: usize) -> Vec<(String, usize)> {
    let Some(&(first, _)) = words.get(at) else {
        return Vec::new();
    };
    if first != "{" {
        return vec![(first.to_owned(), line)];
    }
    let mut heads = Vec::new();
    let mut open = 0;
    let mut is_start = true;
    for &(word, line) in words.iter().skip(at) {
        match word {
            "{" => open += 1,
            "}" => open -= 1,
            "," if open == 1 => is_start = true,
            _ if open == 1 && is_start => {
                heads.push((word.to_owned(), line));
                is_start = false;
            }
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    heads
}

/// Identifiers, `::`, and single other characters, each with its line.
fn words(code: &str) -> Vec<(&str, usize)> {
    let mut words = Vec::new();
    for (text, line) in code.lines().zip(1..) {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word(first) {
                rest.find(|char| !is_word(char)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (word, after) = rest.split_at(length);
            words.push((word, line));
            rest = after.trim_start();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().copied().collect();
        let findings = cycles(&files);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cycle_is_named_with_a_place_for_each_edge() {
        let found = messages(&[
            ("c/src/main.rs", "mod a; mod b; use crate::a;\n"),
            ("c/src/a.rs", "//! A.\nuse crate::b::B;\n"),
            ("c/src/b/deep.rs", "//! B.\n\nuse crate::{c, d};\n"),
            ("c/src/c.rs", "fn f() { crate::a::f() }\n"),
            ("c/src/d.rs", "//! D.\n"),
        ]);
        assert_eq!(
            found,
            [
                "c/src/a.rs:2: modules form a cycle: a -> b (c/src/a.rs:2), b -> c (c/src/b/deep.rs:3), \
              c -> a (c/src/c.rs:1)"
            ]
        );
    }

    #[test]
    fn tests_comments_strings_and_scopes_are_no_edges() {
        let a = ("c/src/a.rs", "use crate::b;\n");
        for b in [
            "// use crate::a;\n/* crate::a */ const A: &str = \"crate::a\";\n",
            "#[cfg(test)]\nmod tests { use crate::a; }\n",
            "pub(in crate::a) fn f() {}\n",
            "use other_crate::a;\nuse crate::b::a;\n",
        ] {
            assert_eq!(messages(&[a, ("c/src/b.rs", b)]), [""; 0], "{b}");
        }
        let test = ("c/src/b/tests.rs", "use crate::a;\n");
        assert_eq!(messages(&[a, ("c/src/b.rs", ""), test]), [""; 0]);
    }

    #[test]
    fn groups_and_super_are_edges() {
        let a = ("c/src/a.rs", "use crate::{x::{y, z}, b};\n");
        for b in [
            ("c/src/b.rs", "use super::a::f;\n"),
            ("c/src/b/mod.rs", "use super::a::f;\n"),
            ("c/src/b/c.rs", "use super::super::a;\n"),
            ("c/src/b.rs", "mod inner {\n    use super::super::a;\n}\n"),
        ] {
            assert_eq!(messages(&[a, b]).len(), 1, "{b:?}");
        }
        for b in [
            ("c/src/b/c.rs", "use super::a;\n"),
            ("c/src/b.rs", "mod inner { use super::a; }\n"),
        ] {
            assert_eq!(messages(&[a, b]), [""; 0], "{b:?}");
        }
    }
}
