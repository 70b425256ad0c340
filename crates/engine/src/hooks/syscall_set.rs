//! A set of syscalls of both ABIs, as the programs read it.

use audit::ids::Syscall;
use audit::plan::SyscallId;

use crate::abi;

/// One bit for each syscall, in this many words for each ABI. With 16 words: `tlg_raw_enter` and `tlg_raw_exit` of
/// `bpf/lib/plan.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyscallSet<const WORDS: usize = 16>(pub(crate) [[u64; WORDS]; abi::ABIS]);

impl<const WORDS: usize> Default for SyscallSet<WORDS> {
    fn default() -> Self {
        Self([[0; WORDS]; abi::ABIS])
    }
}

impl<const WORDS: usize> SyscallSet<WORDS> {
    /// Adds a syscall. Numbers beyond the last word, which no kernel has, are left out.
    pub(crate) fn insert(&mut self, syscall: SyscallId) {
        let (abi, word, bit) = position(syscall);
        if let Some(bits) = self.0.get_mut(abi).and_then(|words| words.get_mut(word)) {
            *bits |= bit;
        }
    }

    /// Whether the set has a syscall.
    #[must_use]
    pub(crate) fn contains(&self, syscall: SyscallId) -> bool {
        let (abi, word, bit) = position(syscall);
        let bits = self.0.get(abi).and_then(|words| words.get(word));
        bits.is_some_and(|bits| bits & bit != 0)
    }

    /// The syscalls of both sets.
    #[must_use]
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let words = both.0.as_flattened_mut().iter_mut();
        let parts = self.0.as_flattened().iter().zip(other.0.as_flattened());
        for (word, (left, right)) in words.zip(parts) {
            *word = left | right;
        }
        both
    }
}

/// ABI, word and bit of a syscall.
fn position(syscall: SyscallId) -> (usize, usize, u64) {
    let abi = if syscall.arch.is_64_bit() {
        abi::B64
    } else {
        abi::B32
    };
    let Syscall(number) = syscall.syscall;
    let index = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    (index(abi), index(number / 64), 1 << (number % 64))
}
