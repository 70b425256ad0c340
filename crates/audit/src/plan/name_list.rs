//! Lists of names in messages.

/// The first three names of a list, and how many more there are.
#[must_use]
pub fn shortened(names: &[impl AsRef<str>]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} +{more}", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(shortened(&["open"; 0]), "");
        assert_eq!(
            shortened(&["open", "openat", "creat"]),
            "open, openat, creat"
        );
        assert_eq!(shortened(&["open"; 15]), "open, open, open +12");
    }
}
