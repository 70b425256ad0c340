//! The Sigma rules of the package, with a case for each: what it is for, and what it is not for.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use serde_json::Value;

    fn source(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(name)
    }

    /// Names of the files in a directory without the ending.
    fn names(directory: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(source(directory)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    #[track_caller]
    fn json(words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        let output = command
            .current_dir(source(""))
            .args(words)
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn each_rule_matches_what_it_is_for_and_not_the_usual() {
        let found = json(&["test", "crates/detect/tests/own_rules", "--json"]);
        let mut cases = names("crates/detect/tests/own_rules");
        assert_eq!(found["cases"].as_array().unwrap().len(), cases.len());
        assert!(cases.remove("usual"));
        assert_eq!(cases, names("packaging/sigma"));
    }

    #[test]
    fn each_rule_is_fed_by_cheap_audit_rules() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("own.rules");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-detect"));
        command
            .current_dir(source(""))
            .args(["explain", "packaging/sigma", "--audit-rules"]);
        fs::write(&file, command.output().unwrap().stdout).unwrap();
        let file = file.to_str().unwrap();
        let found = json(&["explain", "packaging/sigma", "--json", "--rules-file", file]);
        for rule in found["rules"].as_array().unwrap() {
            let status = rule["status"].as_str().unwrap();
            assert!(matches!(status, "given" | "sent"), "{rule}");
            assert!(
                matches!(rule["cost"].as_str(), None | Some("low" | "medium")),
                "{rule}"
            );
        }
    }
}
