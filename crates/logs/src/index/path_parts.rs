//! Parts of paths: what a path that contains a text has, and the index can look up.
//!
//! A component begins behind a slash. Its parts are its first bytes, of each length in [`LENGTHS`] that it has; and the
//! same with the two components before it, as written. A text with a slash and the beginning of a component behind
//! it is only in paths with a component that begins so, hence with all parts of it. What precedes the first slash of
//! a text may be the end of a longer component, and has no parts.

/// Lengths of the beginnings of components.
const LENGTHS: [usize; 10] = [4, 6, 8, 10, 12, 16, 20, 24, 28, 32];

/// Passes the parts of a path, or of a text in one, to `found`, apart from those that end in the first `known` bytes.
#[inline]
pub(super) fn each(text: &[u8], known: usize, mut found: impl FnMut(&[u8])) {
    // Starts of the component and of those before it.
    let mut starts: [Option<usize>; 3] = [None; 3];
    let bytes = text.iter().enumerate();
    let mut slashes = bytes
        .filter(|&(_, &byte)| byte == b'/')
        .map(|(at, _)| at)
        .peekable();
    while let Some(slash) = slashes.next() {
        let start = slash + 1;
        let end = slashes.peek().copied().unwrap_or(text.len());
        let [_, second, last] = starts;
        starts = [second, last, Some(start)];
        if end <= known {
            continue;
        }
        for length in LENGTHS {
            let part_end = start + length;
            if part_end > end {
                break;
            }
            if part_end <= known {
                continue;
            }
            let [before, _, _] = starts;
            for from in [Some(start), before].into_iter().flatten() {
                found(text.get(from..part_end).unwrap_or_default());
            }
        }
    }
}

/// The last path of a block: the parts that the next one shares with it need not be added again.
#[derive(Debug, Default)]
pub(super) struct LastPath {
    path: Vec<u8>,
    block: usize,
}

impl LastPath {
    /// Number of bytes that a path has in common with the last one, which it replaces.
    pub(super) fn replace(&mut self, path: &[u8], block: usize) -> usize {
        let is_same_block = self.block == block;
        let pairs = self.path.iter().zip(path);
        let known = match is_same_block {
            true => pairs.take_while(|(a, b)| a == b).count(),
            false => 0,
        };
        self.block = block;
        self.path.truncate(known);
        self.path
            .extend_from_slice(path.get(known..).unwrap_or_default());
        known
    }

    /// Forgets it.
    #[cfg(test)]
    pub(super) fn clear(&mut self) {
        self.path.clear();
    }
}

#[cfg(test)]
mod tests {
    use bstr::ByteSlice as _;

    use super::*;

    fn parts(text: &str, known: usize) -> Vec<String> {
        let mut parts = Vec::new();
        each(text.as_bytes(), known, |part| {
            parts.push(part.to_str().unwrap().to_owned());
        });
        parts
    }

    #[test]
    fn parts_are_beginnings_of_components() {
        assert_eq!(parts("usual/x", 0), [""; 0]);
        assert_eq!(parts("/a/bc/defgh/", 0), ["defg", "a/bc/defg"]);
        assert_eq!(
            parts("x/a//../abcdef", 0),
            ["abcd", "/../abcd", "abcdef", "/../abcdef"]
        );
        assert_eq!(parts("/usr/share", 0), ["shar"]);
        assert_eq!(parts("/usr/share/other", 10), ["othe", "usr/share/othe"]);
        assert_eq!(parts("/abcdefgh", 7), ["abcdefgh"]);
    }

    #[test]
    fn a_path_has_all_parts_of_each_text_in_it() {
        let path = "rel/usr//share/./a/locale-langpack/x/file37754.c";
        let known = parts(path, 0);
        for start in 0..path.len() {
            for end in start..=path.len() {
                let text = path.get(start..end).unwrap();
                for part in parts(text, 0) {
                    assert!(known.contains(&part), "{text}: {part}");
                }
            }
        }
    }

    #[test]
    fn parts_shared_with_the_last_path_are_left_out() {
        let paths = [
            "/usr/share/a",
            "/usr/share/abcd",
            "/usr/shared/abcd",
            "/usr/share",
            "",
        ];
        let mut last = LastPath::default();
        let mut found = Vec::new();
        for path in paths {
            let known = last.replace(path.as_bytes(), 0);
            found.extend(parts(path, known));
            assert!(
                parts(path, 0).iter().all(|part| found.contains(part)),
                "{path}"
            );
        }
        assert_eq!(last.replace(b"", 1), 0);
        assert_eq!(last.replace(b"/usr", 1), 0);
        assert_eq!(last.replace(b"/usr", 1), 4);
        assert_eq!(last.replace(b"/usr", 2), 0);
    }
}
