//! Random numbers that can be reproduced.

use std::time::Duration;

/// Numbers that look random and follow from the seed (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the numbers of a seed for one of several uses, which are independent of each other.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        let mix = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed, mix))
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Returns a random element; `None` if there are none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let last = u64::try_from(all.len()).ok()?.checked_sub(1)?;
        all.get(usize::try_from(self.below(last + 1)).ok()?)
            .copied()
    }

    /// Returns a random duration less than `end`.
    pub fn duration(&mut self, end: Duration) -> Duration {
        Duration::from_micros(self.below(u64::try_from(end.as_micros()).unwrap_or(u64::MAX).max(1)))
    }
}
