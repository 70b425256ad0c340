//! Keys of `[on_loss] deny` that no rule has.
//!
//! Such a key denies nothing: a typing error would turn off denial in silence.

use std::path::PathBuf;

use audit::plan::rule_list::RuleList;
use bstr::BString;

/// The keys that no rule has.
pub(super) fn unused<'k>(deny: &'k [BString], rules: &RuleList) -> Vec<&'k BString> {
    let has = |key: &BString| {
        let mut rules = rules.rules().iter();
        rules.any(|listed| listed.rule.keys.contains(key))
    };
    deny.iter().filter(|key| !has(key)).collect()
}

/// The message about such a key.
pub(crate) fn unused_key(key: &BString) -> String {
    let key = key.to_string();
    format!(
        "no rule has the key `{}` of `[on_loss] deny`, so it denies nothing",
        key.escape_debug()
    )
}

/// The keys that no rule of these files has. None if there are no files: then rules arrive over the control socket.
///
/// # Errors
/// As [`super::read`].
pub(crate) fn unused_in<'k>(
    deny: &'k [BString],
    files: &[PathBuf],
) -> anyhow::Result<Vec<&'k BString>> {
    let mut rules = RuleList::default();
    for (source, file) in super::read(files)?.files.into_iter().enumerate() {
        // Findings are those of `tollgate check`.
        let _findings = rules.load(source, file.lines);
    }
    Ok(if files.is_empty() {
        Vec::new()
    } else {
        unused(deny, &rules)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_rule_has_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.rules");
        std::fs::write(&path, "-w /a -p w -k one\n-w /b -p w -k two -k three\n").unwrap();
        let deny = ["one", "thre", "three"].map(BString::from);
        assert_eq!(unused_in(&deny, &[path]).unwrap(), [&deny[1]]);
        assert_eq!(unused_in(&deny, &[]).unwrap(), [] as [&BString; 0]);
    }
}
