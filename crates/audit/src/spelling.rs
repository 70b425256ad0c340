//! Which known name a mistyped word means, for the advice of error messages.

/// Longest word for which a name is suggested.
const LIMIT_BYTES: usize = 32;

/// Returns the known name that is most like `word`: at most one edit for each three bytes of the word, and one for
/// a shorter word. Upper case is the same as lower case; two neighbouring bytes that are swapped are one edit.
pub fn nearest<'k>(word: &[u8], known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > LIMIT_BYTES {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let edits = |name: &str| edit_distance(&word, name.to_ascii_lowercase().as_bytes());
    known
        .map(|name| (edits(name), name))
        .min_by_key(|&(edits, _)| edits)
        .filter(|&(edits, _)| edits <= (word.len() / 3).max(1) && edits < word.len())
        .map(|(_, name)| name)
}

/// The number of edits that turn one word into another: bytes inserted, removed, replaced, or neighbours swapped (the
/// optimal string alignment distance).
fn edit_distance(from: &[u8], to: &[u8]) -> usize {
    // `row[j]` is the distance between the bytes of `from` so far and the first j of `to`; `above` is that of one byte
    // of `from` less, and `above_that` of two less.
    let mut above_that: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = Vec::with_capacity(above.len());
        row.push(i + 1);
        for (j, b) in to.iter().enumerate() {
            let at =
                |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best = (at(&above, j) + usize::from(a != b))
                .min(at(&row, j) + 1)
                .min(at(&above, j + 1) + 1);
            let is_swap = i > 0 && j > 0 && from.get(i - 1) == Some(b) && to.get(j - 1) == Some(a);
            if is_swap {
                best = best.min(at(&above_that, j - 1) + 1);
            }
            row.push(best);
        }
        above_that = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("opne", "open", 1),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
        ] {
            assert_eq!(
                edit_distance(from.as_bytes(), to.as_bytes()),
                edits,
                "{from} {to}"
            );
        }
    }

    #[test]
    fn distant_names_are_not_suggested() {
        let known = || ["auid", "uid", "success", "oses", "a1"].into_iter();
        assert_eq!(nearest(b"audi", known()), Some("auid"));
        assert_eq!(nearest(b"SUCESS", known()), Some("success"));
        for word in ["frobnicate", "user", "adm1", "x", "", &"u".repeat(100)] {
            assert_eq!(nearest(word.as_bytes(), known()), None, "{word}");
        }
    }
}
