//! No two holders of a path are told at the same moment that they hold it. The answers are those of
//! the locks themselves, of any library.

use std::collections::BTreeSet;

/// The pairs of grants that were found to be held at once.
#[derive(Debug, Default)]
pub struct Overlaps(BTreeSet<(u64, u64)>);

impl Overlaps {
    /// Looks at those who hold a path by their own answers. Returns the pairs that were not seen
    /// before.
    pub fn look(&mut self, held: &[u64]) -> Vec<(u64, u64)> {
        let pairs = held
            .iter()
            .enumerate()
            .flat_map(|(n, one)| held[n + 1..].iter().map(move |two| (*one, *two)));
        pairs.filter(|pair| self.0.insert(*pair)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_overlap_once() {
        let mut both = Overlaps::default();
        assert!(both.look(&[]).is_empty() && both.look(&[1]).is_empty());
        assert_eq!(both.look(&[1, 2]), [(1, 2)]);
        assert_eq!(both.look(&[1, 2, 3]), [(1, 3), (2, 3)]);
    }
}
