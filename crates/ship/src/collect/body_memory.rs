//! Memory for bodies of requests, which all connections share.

use std::cell::Cell;
use std::rc::Rc;

/// Most bytes of requests that are not complete, of all connections.
const MAX_BYTES: usize = 64 << 20;

/// What is left of it.
#[derive(Clone, Debug)]
pub(super) struct BodyMemory(Rc<Cell<usize>>);

/// A part of it, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: BodyMemory,
    bytes: usize,
}

impl BodyMemory {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(MAX_BYTES)))
    }

    /// Reserves bytes; `None` if so many are not left.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        let memory = self.clone();
        Some(Reservation { memory, bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = &self.memory.0;
        left.set(left.get() + self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_and_given_back() {
        let memory = BodyMemory::new();
        let first = memory.reserve(MAX_BYTES - 1).unwrap();
        let other = memory.clone();
        assert!(other.reserve(2).is_none());
        let _second = other.reserve(1).unwrap();
        assert!(memory.reserve(1).is_none());
        drop(first);
        assert!(memory.reserve(MAX_BYTES).is_none());
        assert!(memory.reserve(MAX_BYTES - 1).is_some());
    }
}
