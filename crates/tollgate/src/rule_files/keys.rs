//! Keys of `[on_loss] deny` that no rule has.
//!
//! Such a key denies nothing: a typing error would turn off denial in silence.

use audit::plan::rule_list::RuleList;
use bstr::BString;

/// The keys that no rule has.
pub(crate) fn unused<'k>(deny: &'k [BString], rules: &RuleList) -> Vec<&'k BString> {
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

#[cfg(test)]
mod tests {
    use audit::rule::parse_file;

    use super::*;
    use crate::host::ThisMachine;

    #[test]
    fn keys_that_no_rule_has_are_found() {
        let text = b"-w /a -p w -k one\n-w /b -p w -k two -k three\n";
        let mut rules = RuleList::default();
        let findings = rules.load(0, parse_file(text, &ThisMachine).0);
        assert_eq!(findings, []);
        let deny = ["one", "thre", "three"].map(BString::from);
        assert_eq!(unused(&deny, &rules), [&deny[1]]);
    }
}
