//! Rule files in a machine: those of this repository, and public sets where they are at hand.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::initramfs::Archive;
use crate::repository::Repository;

/// Rule files of this repository.
const OWN: &str = "tests/rulesets";

/// Where public sets are, beside the repository; they are no part of it.
const PUBLIC: &str = "../shared/rulesets";

/// Public sets that are packed.
const SETS: [&str; 3] = [
    "audit-userspace-4.2.2",
    "neo23x0-auditd",
    "complianceascode-ospp",
];

/// Ends of names of files for other processors.
const OTHERS: [&str; 2] = ["_aarch64", "_ppc64le"];

/// Adds rule files, below `/rulesets`.
///
/// # Errors
/// When a directory or file cannot be read.
pub(super) fn pack(repository: &Repository, archive: &mut Archive) -> Result<(), Box<dyn Error>> {
    add(archive, &repository.root.join(OWN), "/rulesets/own")?;
    let public = repository.root.join(PUBLIC);
    if !public.is_dir() {
        println!("    SKIPPED: no public rule sets in `{PUBLIC}`: only rules of our own are tried");
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
        if let Some(name) = wanted(&path) {
            archive.file(&format!("{to}/{name}.rules"), 0o644, &fs::read(&path)?);
        }
    }
    Ok(())
}

/// The name of a file of rules for this processor, without its end.
fn wanted(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_suffix(".rules")?;
    let is_for_another = OTHERS.iter().any(|other| name.ends_with(other));
    (!is_for_another).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_other_processors_stay_out() {
        for (path, name) in [
            ("a/30-stig.rules", Some("30-stig")),
            ("a/access_aarch64.rules", None),
            ("a/access_ppc64le.rules", None),
            ("a/ORIGIN.txt", None),
        ] {
            assert_eq!(wanted(Path::new(path)), name);
        }
    }
}
