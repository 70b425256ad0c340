//! Epochs number the plans of an engine. The maps hold two plans: the active one and the previous or next.

use crate::abi;

/// Number of a plan, modulo `EPOCHS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u16);

impl Epoch {
    /// The epoch of a plan that records nothing before the first one.
    pub(crate) const BEFORE_FIRST: Self = Self(abi::EPOCHS - 1);

    /// The epoch of the plan that replaces this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self((self.0 + 1) % abi::EPOCHS)
    }

    /// Number of plan changes from `earlier` to this one.
    pub(crate) const fn plans_since(self, earlier: Self) -> u16 {
        (self.0 + abi::EPOCHS - earlier.0) % abi::EPOCHS
    }

    /// Splits `rule` of `struct wire_event` into epoch and index of the rule.
    pub(crate) fn split_rule(rule: u32) -> (Self, usize) {
        let (epoch, index) = (rule >> abi::RULE_BITS, rule & ((1 << abi::RULE_BITS) - 1));
        let epoch = u16::try_from(epoch).unwrap_or_default();
        (Self(epoch), usize::try_from(index).unwrap_or_default())
    }

    /// The half of the maps that holds this plan: 0 or 1.
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
