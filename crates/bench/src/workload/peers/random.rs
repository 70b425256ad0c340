//! Random numbers that are the same on each machine.

/// A generator of random numbers.
///
/// # Source
/// splitmix64: G. L. Steele, D. Lea and C. H. Flood, Fast splittable pseudorandom number generators, 2014.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u32) -> Self {
        Self(seed.into())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit; 0 if the limit is 0.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        let scaled = (self.next() >> 32) * u64::from(limit);
        u32::try_from(scaled >> 32).unwrap_or(0)
    }

    /// A place in a list; `None` if it is empty.
    pub(super) fn place<T>(&mut self, list: &[T]) -> Option<usize> {
        let place = self.below(u32::try_from(list.len()).unwrap_or(u32::MAX));
        usize::try_from(place)
            .ok()
            .filter(|&place| place < list.len())
    }

    /// An element of a list; `None` if it is empty.
    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        self.place(list).and_then(|place| list.get(place))
    }

    pub(super) fn bytes(&mut self, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count.div_ceil(8) {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        bytes
    }
}
