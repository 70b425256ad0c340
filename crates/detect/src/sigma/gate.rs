//! A first look at records, which most of them do not pass: whether a field can make a rule match.

use super::fields::Value;
use super::search::{Search, Wanted};

/// Rules for records of a type, or for other events of a log source, by the texts that they require.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate<'e> {
    /// Lets events through; `None` lets none through.
    pub(crate) search: Option<&'e Search>,
    /// All names of the search are names of fields that records of the type have: what follows them does not matter.
    pub(crate) ends_early: bool,
    /// Every event passes.
    pub(crate) is_open: bool,
}

impl Gate<'_> {
    /// Lets every event through.
    pub const OPEN: Self = Self {
        search: None,
        ends_early: false,
        is_open: true,
    };
}

/// Rules that look at the record of a syscall, also when they compare another record of its event.
#[derive(Clone, Copy, Debug)]
pub struct SyscallGate<'e> {
    /// Finds [`SyscallGate::OWN`] and [`SyscallGate::SHARED`].
    search: Option<&'e Search>,
    open: Passed,
}

/// What passes a [`SyscallGate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The record of the syscall.
    pub own: bool,
    /// The other records of its event.
    pub shared: bool,
}

impl Passed {
    /// Adds what else passes.
    pub const fn add(&mut self, other: Self) {
        self.own |= other.own;
        self.shared |= other.shared;
    }
}

impl<'e> SyscallGate<'e> {
    /// Lets everything through.
    pub const OPEN: Self = Self {
        search: None,
        open: Passed {
            own: true,
            shared: true,
        },
    };
    /// Number of texts of rules that are compared with the record.
    pub(super) const OWN: usize = 0;
    /// Number of texts of rules that are compared with other records.
    pub(super) const SHARED: usize = 1;

    /// Lets what has one of the texts through, and what is `open` always.
    pub(super) const fn new(search: &'e Search, open: Passed) -> Self {
        Self {
            search: Some(search),
            open,
        }
    }

    /// What passes always.
    #[must_use]
    pub const fn open(&self) -> Passed {
        self.open
    }

    /// What the value of a field is compared with; `None` if it does not matter.
    #[inline]
    pub(crate) fn wants(&self, name: &[u8]) -> Option<Wanted> {
        self.search?.wants(name)
    }

    /// Adds what passes for the value of a field.
    pub(crate) fn pass(&self, wanted: Wanted, value: &Value<'_>, passed: &mut Passed) {
        let Some(search) = self.search else {
            return;
        };
        let mut found = |number| {
            match number {
                Self::OWN => passed.own = true,
                _ => passed.shared = true,
            }
            !(passed.own && passed.shared)
        };
        if value
            .as_texts()
            .iter()
            .any(|text| search.find(wanted, text.as_bytes(), &mut found).is_err())
        {
            *passed = Self::OPEN.open;
        }
    }
}
