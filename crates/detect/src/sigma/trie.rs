//! Texts that values begin with, or end with when it is read backwards.
//!
//! A look at a value ends at the first byte that no text has there, mostly one of the first. Case is ignored in ASCII.

/// Texts, each with a number.
#[derive(Debug, Default)]
pub(super) struct Trie {
    /// The first is that of the empty text.
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// Bytes that follow, in lower case, and the nodes of the longer texts.
    bytes: Vec<u8>,
    next: Vec<usize>,
    /// Numbers of the texts that end here.
    numbers: Vec<usize>,
}

impl Trie {
    /// Adds a text.
    pub(super) fn insert(&mut self, text: impl Iterator<Item = u8>, number: usize) {
        let mut at = 0;
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        for byte in text {
            let added = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else {
                return;
            };
            at = node.after(byte).unwrap_or_else(|| {
                node.bytes.push(byte.to_ascii_lowercase());
                node.next.push(added);
                added
            });
            if at == added {
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.numbers.push(number);
        }
    }

    /// Passes the numbers of the texts that a value begins with, and their lengths, until `found` returns false.
    pub(super) fn find(
        &self,
        mut value: impl Iterator<Item = u8>,
        mut found: impl FnMut(usize, usize) -> bool,
    ) {
        let mut node = self.nodes.first();
        let mut len = 0;
        while let Some(at) = node {
            if !at.numbers.iter().all(|&number| found(number, len)) {
                return;
            }
            let next = value.next().and_then(|byte| at.after(byte));
            node = next.and_then(|next| self.nodes.get(next));
            len += 1;
        }
    }
}

impl Node {
    /// Number of the node of a longer text.
    fn after(&self, byte: u8) -> Option<usize> {
        let byte = byte.to_ascii_lowercase();
        let at = self.bytes.iter().position(|&other| other == byte)?;
        self.next.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_at_the_start() {
        let mut trie = Trie::default();
        for (number, text) in ["/etc", "/ETC/a", "", "/usr", "/etc"]
            .into_iter()
            .enumerate()
        {
            trie.insert(text.bytes(), number);
        }
        let found = |value: &str, most: usize| {
            let mut found = Vec::new();
            trie.find(value.bytes(), |number, len| {
                found.push((number, len));
                found.len() < most
            });
            found
        };
        let all = [(2, 0), (0, 4), (4, 4), (1, 6)];
        assert_eq!(found("/etc/ab", 9), all);
        assert_eq!(found("/eTc/A", 9), all);
        assert_eq!(found("/etc/a", 2), all[..2]);
        assert_eq!(found("/et", 9), all[..1]);
        assert_eq!(found("x/etc", 9), all[..1]);
        Trie::default().find("a".bytes(), |_, _| unreachable!());
    }
}
