//! A map whose entries have an order, so that the oldest ones can be forgotten.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Entries by key, and in the order of a number that each has, such as a time; those of one number as they came.
#[derive(Clone, Debug)]
pub(super) struct Recent<K, V> {
    by_key: HashMap<K, (u64, u64)>,
    in_order: BTreeMap<(u64, u64), (K, V)>,
    next: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            in_order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn len(&self) -> usize {
        self.in_order.len()
    }

    /// Entries, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.in_order.values().map(|(key, value)| (key, value))
    }

    /// An entry, whose order stays.
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.by_key.get(key)?;
        self.in_order.get(at).map(|(_, value)| value)
    }

    /// Takes an entry away.
    pub(super) fn take<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.by_key.remove(key)?;
        self.in_order.remove(&at).map(|(_, value)| value)
    }

    /// Puts an entry behind those of its number, in place of the one of its key. Returns the one that was there.
    pub(super) fn put(&mut self, key: K, order: u64, value: V) -> Option<V> {
        let before = self.take(&key);
        let at = (order, self.next);
        self.next += 1;
        self.by_key.insert(key.clone(), at);
        self.in_order.insert(at, (key, value));
        before
    }

    /// Number of the oldest entry.
    pub(super) fn oldest(&self) -> Option<u64> {
        let (&(order, _), _) = self.in_order.first_key_value()?;
        Some(order)
    }

    /// The oldest entry.
    pub(super) fn first(&self) -> Option<&V> {
        self.in_order.first_key_value().map(|(_, (_, value))| value)
    }

    /// Takes the oldest entry away.
    pub(super) fn pop(&mut self) -> Option<(K, V)> {
        let (_, (key, value)) = self.in_order.pop_first()?;
        self.by_key.remove(&key);
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entries_go_first() {
        let mut recent: Recent<&str, u32> = Recent::default();
        assert_eq!(recent.put("a", 5, 1), None);
        assert_eq!(recent.put("b", 3, 2), None);
        assert_eq!(recent.put("c", 5, 3), None);
        assert_eq!(recent.put("a", 5, 4), Some(1));
        assert_eq!(recent.oldest(), Some(3));
        assert_eq!(recent.pop(), Some(("b", 2)));
        assert_eq!(recent.first(), Some(&3));
        assert_eq!((recent.get("a"), recent.get("b")), (Some(&4), None));
        assert_eq!(recent.take("c"), Some(3));
        assert_eq!(recent.take("c"), None);
        assert_eq!(recent.iter().collect::<Vec<_>>(), [(&"a", &4)]);
        assert_eq!((recent.len(), recent.pop()), (1, Some(("a", 4))));
        assert_eq!((recent.oldest(), recent.pop()), (None, None));
    }
}
