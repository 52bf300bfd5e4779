//! The time from the notice of a holder's loss to the next grant.

use std::collections::BTreeMap;

/// The losses of each path that no grant has followed, and the least margin so far, in
/// milliseconds.
#[derive(Debug, Default)]
pub struct Margins {
    notified: BTreeMap<usize, u64>,
    pub least: Option<u64>,
}

impl Margins {
    /// Records that a holder of a path is notified of the end of its lease.
    pub fn lost(&mut self, place: usize, now: u64) {
        self.notified.insert(place, now);
    }

    /// Records that the next caller is granted the lock.
    pub fn granted(&mut self, place: usize, now: u64) {
        if let Some(notified) = self.notified.remove(&place) {
            let margin = now.saturating_sub(notified);
            self.least = Some(self.least.map_or(margin, |least| least.min(margin)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_smallest_margin() {
        let mut margins = Margins::default();
        margins.granted(0, 5);
        assert_eq!(margins.least, None);
        for (lost, granted) in [(10, 40), (50, 70), (80, 180)] {
            margins.lost(0, lost);
            margins.granted(1, lost);
            margins.granted(0, granted);
        }
        assert_eq!(margins.least, Some(20));
    }
}
