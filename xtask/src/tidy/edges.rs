//! Which crate of the workspace may depend on which.
//!
//! Manifests are read line by line, which covers how this repository writes them: a dependency is
//! one line `name.workspace = true` or `name = ...` below a heading that ends in `dependencies]`,
//! or a heading `[...dependencies.name]`; a renamed one has `package = "name"` on its line.
//! Inline tables over several lines and quoted keys are not understood.

use std::collections::BTreeMap;

use super::Finding;

/// Every crate with those it may use, tests and build scripts included.
const ALLOWED: [(&str, &[&str]); 8] = [
    ("audit", &[]),
    ("bench", &["audit", "netlink"]),
    ("engine", &["audit"]),
    ("netlink", &["audit"]),
    ("tollgate", &["audit", "engine", "netlink", "trace"]),
    ("trace", &["audit"]),
    ("vm", &["audit", "netlink"]),
    ("xtask", &[]),
];

/// Checks that dependencies between crates are those of [`ALLOWED`]: tollgate uses engine, netlink and trace, and
/// each of those uses audit.
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
        for (line, dependency) in &manifest.dependencies {
            if members.contains(dependency) && !allowed.contains(dependency) {
                let message = format!("`{}` may not depend on `{dependency}`", manifest.name);
                findings.push(Finding::new(manifest.path, *line, message));
            }
        }
    }
    findings
}

/// What the rule needs to know of a package.
#[derive(Debug, PartialEq, Eq)]
struct Manifest<'a> {
    path: &'a str,
    name: &'a str,
    /// Line and package name of each dependency of any kind.
    dependencies: Vec<(usize, &'a str)>,
}

impl<'a> Manifest<'a> {
    /// Nothing for a manifest without a package, such as a workspace's.
    fn read(path: &'a str, text: &'a str) -> Option<Self> {
        let mut name = None;
        let mut dependencies = Vec::new();
        let mut heading = "";
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if let Some(inner) = line.strip_prefix('[') {
                heading = inner.split(']').next().unwrap_or_default();
                if let Some((_, dependency)) = heading.rsplit_once("dependencies.") {
                    dependencies.push((number, dependency));
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
                dependencies.push((number, renamed(value).unwrap_or(key)));
            } else if heading.contains("dependencies.") && key.trim() == "package" {
                dependencies.extend(quoted(value).map(|package| (number, package)));
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
