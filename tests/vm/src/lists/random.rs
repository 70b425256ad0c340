//! Reproducible random choices: a seed and a number determine them.

/// A random number generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of one list.
    pub(crate) fn of(seed: u64, number: u32) -> Self {
        let mut mixed = Self(seed);
        let seed = mixed.next();
        Self(seed ^ u64::from(number))
    }

    /// splitmix64.
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Chooses one.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Chooses some in their order; at least one.
    pub(crate) fn some<T: Copy>(&mut self, from: &[T], most: usize) -> Vec<T> {
        let count = 1 + self.below(most);
        let mut at: Vec<usize> = (0..count).map(|_| self.below(from.len())).collect();
        at.sort_unstable();
        at.dedup();
        at.into_iter().map(|at| from[at]).collect()
    }
}
