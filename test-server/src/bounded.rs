//! Lists that keep their last entries.

use std::collections::VecDeque;

/// The number of entries that are kept.
const ENTRIES: usize = 100_000;
/// The bytes that the entries may have together.
const BYTES: usize = 16 << 20;

/// A list of numbered entries, which drops the oldest ones if there are too many.
#[derive(Debug)]
pub(crate) struct Bounded<T> {
    next: u64,
    bytes: usize,
    /// The entries, with the bytes of each.
    entries: VecDeque<(usize, T)>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            next: 0,
            bytes: 0,
            entries: VecDeque::new(),
        }
    }
}

impl<T> Bounded<T> {
    /// Adds the entry that a closure makes from its number. `bytes` is the size of its paths and
    /// data.
    pub(crate) fn push(&mut self, bytes: usize, entry: impl FnOnce(u64) -> T) {
        self.entries.push_back((bytes, entry(self.next)));
        self.next += 1;
        self.bytes += bytes;
        while self.entries.len() > ENTRIES || self.bytes > BYTES {
            let oldest = self.entries.pop_front();
            self.bytes -= oldest.map_or(0, |(bytes, _)| bytes);
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Returns the entries from a number on, as far as they are kept.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = &T> {
        let first = self.next - self.entries.len() as u64;
        self.iter()
            .skip(usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicts_oldest_entries() {
        let mut list = Bounded::default();
        for _ in 0..ENTRIES + 3 {
            list.push(1, |n| n);
        }
        assert_eq!(
            list.iter().copied().collect::<Vec<_>>(),
            (3..ENTRIES as u64 + 3).collect::<Vec<_>>()
        );
        assert_eq!(
            list.since(ENTRIES as u64 + 1).collect::<Vec<_>>(),
            [&100_001, &100_002]
        );
        assert_eq!(list.since(0).next(), Some(&3));
        assert_eq!(list.since(u64::MAX).next(), None);
        list.push(BYTES, |n| n);
        assert_eq!(list.iter().count(), 1);
        list.push(BYTES + 1, |n| n);
        assert_eq!(list.iter().count(), 0);
    }
}
