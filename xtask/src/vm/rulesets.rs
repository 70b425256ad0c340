//! Rule files packed into a machine: the repository's own, and public rule sets if they are present.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::initramfs::Archive;
use crate::repository::Repository;

/// The repository's rule files.
const OWN: &str = "tests/rulesets";

/// Public rule sets beside the repository; they are not part of it.
const PUBLIC: &str = "../shared/rulesets";

/// Packed public rule sets.
const SETS: [&str; 3] = [
    "audit-userspace-4.2.2",
    "neo23x0-auditd",
    "complianceascode-ospp",
];

/// Name suffixes of files for other architectures.
const OTHER_ARCHES: [&str; 2] = ["_aarch64", "_ppc64le"];

/// Adds rule files below `/rulesets`. Without the public rule sets, the session `rulesets` skips their test.
///
/// # Errors
/// If a directory or file cannot be read.
pub(super) fn pack(repository: &Repository, archive: &mut Archive) -> Result<(), Box<dyn Error>> {
    add(archive, &repository.root.join(OWN), "/rulesets/own")?;
    let public = repository.root.join(PUBLIC);
    if !public.is_dir() {
        return Ok(());
    }
    for set in SETS {
        add(
            archive,
            &public.join(set),
            &format!("/rulesets/public/{set}"),
        )?;
    }
    Ok(())
}

fn add(archive: &mut Archive, from: &Path, to: &str) -> Result<(), Box<dyn Error>> {
    let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    let paths: Result<Vec<PathBuf>, _> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut paths = paths?;
    paths.sort();
    for path in paths {
        if let Some(name) = set_name(&path) {
            archive.file(&format!("{to}/{name}.rules"), 0o644, &fs::read(&path)?);
        }
    }
    Ok(())
}

/// The name, without suffix, of a rule file for this architecture.
fn set_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_suffix(".rules")?;
    let is_for_other_arch = OTHER_ARCHES.iter().any(|suffix| name.ends_with(suffix));
    (!is_for_other_arch).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_other_architectures_are_not_packed() {
        for (path, name) in [
            ("a/30-stig.rules", Some("30-stig")),
            ("a/access_aarch64.rules", None),
            ("a/access_ppc64le.rules", None),
            ("a/ORIGIN.txt", None),
        ] {
            assert_eq!(set_name(Path::new(path)), name);
        }
    }
}
