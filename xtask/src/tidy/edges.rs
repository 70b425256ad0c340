//! The dependencies between crates of the workspace.
//!
//! Manifests are parsed line by line: a dependency is a line `name.workspace = true` or `name = ...` below a
//! heading that ends in `dependencies]`, or a heading `[...dependencies.name]`. A renamed dependency has
//! `package = "name"` on its line. Inline tables over several lines and quoted keys are not parsed.

use std::collections::BTreeMap;

use super::Finding;

/// The crates that each crate may depend on, tests and build scripts included.
const ALLOWED: [(&str, &[&str]); 18] = [
    ("audit", &[]),
    ("engine", &["audit"]),
    ("logs", &["audit"]),
    ("metrics", &[]),
    ("netlink", &["audit"]),
    ("search", &["audit", "logs"]),
    ("trace", &["audit"]),
    (
        "tollgate",
        &["audit", "engine", "logs", "metrics", "netlink", "trace"],
    ),
    ("ausearch", &["audit", "logs"]),
    ("bench", &["netlink"]),
    ("detect", &["audit", "logs"]),
    ("ship", &["audit", "logs", "metrics"]),
    ("top", &["audit"]),
    ("inputs", &["audit"]),
    ("manual", &[]),
    ("support", &["audit", "logs"]),
    ("vm", &["audit", "netlink", "support"]),
    ("xtask", &[]),
];

/// The crates that the tests of each crate may also depend on.
const FOR_TESTS: [(&str, &[&str]); 11] = [
    ("audit", &["inputs"]),
    ("ausearch", &["support"]),
    ("bench", &["audit", "inputs", "manual"]),
    ("detect", &["manual"]),
    ("engine", &["inputs"]),
    ("logs", &["inputs"]),
    ("search", &["inputs", "manual", "support"]),
    ("ship", &["inputs", "manual"]),
    ("tollgate", &["inputs", "manual", "support"]),
    ("top", &["manual"]),
    ("trace", &["inputs"]),
];

/// Reports each dependency that is in neither list.
pub(super) fn edges(files: &BTreeMap<&str, &str>) -> Vec<Finding> {
    let manifests: Vec<Manifest<'_>> = files
        .iter()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .filter_map(|(path, text)| Manifest::read(path, text))
        .collect();
    let members: Vec<&str> = manifests.iter().map(|manifest| manifest.name).collect();
    let mut findings = Vec::new();
    for manifest in &manifests {
        let allowed = ALLOWED.iter().find(|(name, _)| *name == manifest.name);
        let Some((_, allowed)) = allowed else {
            let message = format!(
                "crate `{}` has no line in xtask/src/tidy/edges.rs",
                manifest.name
            );
            findings.push(Finding::new(manifest.path, 1, message));
            continue;
        };
        for dependency in &manifest.dependencies {
            let Dependency { line, name, kind } = *dependency;
            let is_for_tests = kind == Kind::Tests
                && FOR_TESTS
                    .iter()
                    .any(|(user, used)| *user == manifest.name && used.contains(&name));
            if members.contains(&name) && !allowed.contains(&name) && !is_for_tests {
                let message = format!("`{}` may not depend on `{name}`", manifest.name);
                findings.push(Finding::new(manifest.path, line, message));
            }
        }
    }
    findings
}

/// A package and its dependencies.
#[derive(Debug, PartialEq, Eq)]
struct Manifest<'a> {
    path: &'a str,
    name: &'a str,
    dependencies: Vec<Dependency<'a>>,
}

/// A dependency of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tests,
    Other,
}

impl<'a> Manifest<'a> {
    /// Parses a manifest; `None` without a package, as in a workspace's manifest.
    fn read(path: &'a str, text: &'a str) -> Option<Self> {
        let mut name = None;
        let mut dependencies = Vec::new();
        let mut heading = "";
        let mut kind = Kind::Other;
        let mut add = |line, name, kind| dependencies.push(Dependency { line, name, kind });
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if let Some(inner) = line.strip_prefix('[') {
                heading = inner.split(']').next().unwrap_or_default();
                kind = match heading.contains("dev-dependencies") {
                    true => Kind::Tests,
                    false => Kind::Other,
                };
                if let Some((_, dependency)) = heading.rsplit_once("dependencies.") {
                    add(number, dependency, kind);
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            if heading == "package" && key.trim() == "name" {
                name = quoted(value);
            } else if heading.ends_with("dependencies") && !line.starts_with('#') {
                let key = key.split('.').next().unwrap_or_default().trim();
                add(number, renamed(value).unwrap_or(key), kind);
            } else if heading.contains("dependencies.")
                && key.trim() == "package"
                && let Some(package) = quoted(value)
            {
                add(number, package, kind);
            }
        }
        Some(Self {
            path,
            name: name?,
            dependencies,
        })
    }
}

fn quoted(value: &str) -> Option<&str> {
    value.split('"').nth(1)
}

/// The package behind `{ package = "name", ... }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, rest) = value.split_once("package")?;
    quoted(rest.trim_start().strip_prefix('=')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIT: (&str, &str) = ("crates/audit/Cargo.toml", "[package]\nname = \"audit\"\n");

    fn breaches(engine: &str) -> Vec<(usize, String)> {
        let text = format!("[package]\nname = \"engine\"\n{engine}");
        let tollgate = "[package]\nname = \"tollgate\"\n";
        let path = "crates/engine/Cargo.toml";
        let files = BTreeMap::from([
            AUDIT,
            (path, text.as_str()),
            ("crates/tollgate/Cargo.toml", tollgate),
            (
                "Cargo.toml",
                "[workspace]\n[workspace.dependencies]\naudit = { path = \"crates/audit\" }\n",
            ),
        ]);
        edges(&files)
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    #[test]
    fn crate_edges_go_one_way() {
        assert_eq!(
            breaches("[dependencies]\naudit.workspace = true\nlibc = \"0.2\"\n"),
            []
        );
        let message = "`engine` may not depend on `tollgate`".to_owned();
        for text in [
            "[dependencies]\ntollgate.workspace = true\n",
            "[dev-dependencies]\ntollgate = { path = \"../tollgate\" }\n",
            "[dependencies]\nx = { path = \"../tollgate\", package = \"tollgate\" }\n",
            "[target.'cfg(unix)'.dependencies]\ntollgate = \"1\"\n",
        ] {
            assert_eq!(breaches(text), [(4, message.clone())], "{text}");
        }
        let table = "[build-dependencies.tollgate]\npath = \"../tollgate\"\n";
        assert_eq!(breaches(table), [(3, message.clone())]);
        let table = "[dependencies.x]\npackage = \"tollgate\"\n";
        assert_eq!(breaches(table), [(4, message)]);
    }

    #[test]
    fn tests_may_use_the_support_crate_and_the_program_may_not() {
        let support = "[package]\nname = \"support\"\n";
        let found = |kind: &str| {
            let text = format!("[package]\nname = \"tollgate\"\n[{kind}]\nsupport = 1\n");
            let files = BTreeMap::from([
                ("crates/tollgate/Cargo.toml", text.as_str()),
                ("tests/support/Cargo.toml", support),
            ]);
            edges(&files).len()
        };
        assert_eq!((found("dev-dependencies"), found("dependencies")), (0, 1));
    }

    #[test]
    fn comments_and_other_tables_are_no_edges() {
        assert_eq!(
            breaches("[dependencies]\n# tollgate = \"1\"\n[features]\ntollgate = []\n"),
            []
        );
    }

    #[test]
    fn unknown_crate_is_refused() {
        let files = BTreeMap::from([("crates/new/Cargo.toml", "[package]\nname = \"new\"\n")]);
        assert_eq!(edges(&files).len(), 1);
    }
}
