//! Sigma rules packed into a machine: those of the package, and the rules of `SigmaHQ` if a directory of them is given.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::initramfs::Archive;
use crate::repository::Repository;

/// The rules of the package.
const OWN: &str = "packaging/sigma";

/// Names the directory with the rules of `SigmaHQ`.
const VARIABLE: &str = "TOLLGATE_SIGMAHQ";

/// Commands for rules of `SigmaHQ`, which has the names of the rules.
const COMMANDS: &str = "tests/vm/src/detections/sigmahq.txt";

/// Adds the rules of the package, and below `/sigmahq` those rules of `SigmaHQ` for which there are commands. Without the latter,
/// the session `sigmahq` skips its test.
///
/// # Errors
/// If a rule is missing or cannot be read.
pub(super) fn pack(repository: &Repository, archive: &mut Archive) -> Result<(), Box<dyn Error>> {
    archive.directory(&repository.root.join(OWN), "/usr/share/tollgate/sigma")?;
    let Some(directory) = env::var_os(VARIABLE) else {
        return Ok(());
    };
    let mut files = HashMap::new();
    find(Path::new(&directory), &mut files)?;
    let commands = fs::read_to_string(repository.root.join(COMMANDS))?;
    for name in names(&commands) {
        let path = files.get(name);
        let path = path.ok_or_else(|| format!("{VARIABLE} has no file `{name}.yml`"))?;
        archive.file(&format!("/sigmahq/{name}.yml"), 0o644, &fs::read(path)?);
    }
    Ok(())
}

/// Names of the rules in the table of commands.
fn names(commands: &str) -> impl Iterator<Item = &str> {
    let lines = commands.lines().filter(|line| !line.starts_with('#'));
    let heads = lines.filter_map(|line| Some(line.split_once(": ")?.0));
    heads.map(|head| head.strip_prefix("- ").unwrap_or(head))
}

/// Adds the rules below a directory by their names.
fn find(directory: &Path, files: &mut HashMap<String, PathBuf>) -> Result<(), Box<dyn Error>> {
    let entries = fs::read_dir(directory)
        .map_err(|error| format!("cannot read `{}`: {error}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|ending| ending == "yml")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            files.insert(name.to_owned(), path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rules_are_read_off_the_commands() {
        let text = "# a: b\nrule_a: id: x\n- rule_b: why\n";
        assert_eq!(names(text).collect::<Vec<_>>(), ["rule_a", "rule_b"]);
    }
}
