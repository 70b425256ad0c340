//! Which plan is in force: plans are numbered, and two of them share the maps.

use crate::abi;

/// Which plan an engine goes by: its plans are counted, from 0 again after many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u16);

impl Epoch {
    /// That of the plan which takes the place of this one's.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) % abi::EPOCHS)
    }

    /// How many plans ago another one was in force, if this one is now.
    pub(crate) const fn plans_since(self, other: Self) -> u16 {
        (self.0 + abi::EPOCHS - other.0) % abi::EPOCHS
    }

    /// The plan and the index in it that an event says.
    pub(crate) fn split_rule(rule: u32) -> (Self, usize) {
        let (epoch, index) = (rule >> abi::RULE_BITS, rule & ((1 << abi::RULE_BITS) - 1));
        let epoch = u16::try_from(epoch).unwrap_or_default();
        (Self(epoch), usize::try_from(index).unwrap_or_default())
    }

    /// The half of the maps that holds the plan: 0 or 1.
    pub(crate) const fn half(self) -> u16 {
        self.0 & 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_wrap_and_alternate_halves() {
        let last = Epoch(abi::EPOCHS - 1);
        assert_eq!(last.next(), Epoch(0));
        assert_ne!(last.half(), last.next().half());
        assert_eq!(Epoch(1).plans_since(last), 2);
        assert_eq!(Epoch(5).plans_since(Epoch(5)), 0);
        assert_eq!(Epoch(5).plans_since(Epoch(6)), last.0);
    }
}
