//! No two holders that exclude each other are inside at once, by their guards' own clocks.
//!
//! A guard goes from held to lost and never back, so an overlap begins with a grant, and the check
//! is made at each grant. Guards of a machine that has crashed do not count: no process acts on
//! them.

/// A guard, or what stands for one.
pub trait Guard {
    /// Returns whether a holder that asks this guard may act on the lock.
    fn is_held(&self) -> bool;
    /// Returns a description for a report.
    fn show(&self) -> String;
}

/// How many may be inside beside one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// No other guard may be inside.
    Exclusive,
    /// Any number of others that share.
    Shared,
    /// This many permits may be inside in all.
    Permits(u32),
}

#[derive(Debug)]
struct Entry<G> {
    who: u64,
    share: Share,
    permits: u32,
    guard: G,
}

/// The guards of one path.
#[derive(Debug)]
pub struct Exclusion<G>(Vec<Entry<G>>);

impl<G> Default for Exclusion<G> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<G: Guard> Exclusion<G> {
    /// Records that a caller is granted this many permits.
    pub fn enter(&mut self, who: u64, share: Share, permits: u32, guard: G) -> Result<(), String> {
        let held = guard.is_held();
        let beside = |entry: &&Entry<G>| match (share, entry.share) {
            (Share::Shared, Share::Shared) => false,
            _ => entry.guard.is_held(),
        };
        let others: Vec<&Entry<G>> = self.0.iter().filter(|_| held).filter(beside).collect();
        let inside = permits + others.iter().map(|entry| entry.permits).sum::<u32>();
        let wrong = match share {
            Share::Permits(limit) => inside > limit,
            Share::Exclusive | Share::Shared => !others.is_empty(),
        };
        let shown: Vec<String> = others
            .iter()
            .map(|entry| format!("{} with {}", entry.who, entry.guard.show()))
            .collect();
        let text = format!(
            "{who} with {} is inside beside {}",
            guard.show(),
            shown.join(" and ")
        );
        self.0.push(Entry {
            who,
            share,
            permits,
            guard,
        });
        if wrong { Err(text) } else { Ok(()) }
    }

    /// Records that a caller has released its guard, or was notified of its loss.
    pub fn leave(&mut self, who: u64) {
        self.0.retain(|entry| entry.who != who);
    }

    /// Returns the guards that have not been given back.
    pub fn guards(&self) -> impl Iterator<Item = (u64, &G)> {
        self.0.iter().map(|entry| (entry.who, &entry.guard))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    impl Guard for Rc<Cell<bool>> {
        fn is_held(&self) -> bool {
            self.get()
        }

        fn show(&self) -> String {
            "a guard".to_owned()
        }
    }

    fn guard() -> Rc<Cell<bool>> {
        Rc::new(Cell::new(true))
    }

    #[test]
    fn flags_two_exclusive_holders() {
        for (first, second, fine) in [
            (Share::Exclusive, Share::Exclusive, false),
            (Share::Shared, Share::Exclusive, false),
            (Share::Exclusive, Share::Shared, false),
            (Share::Shared, Share::Shared, true),
        ] {
            let mut inside = Exclusion::default();
            inside.enter(1, first, 1, guard()).unwrap();
            assert_eq!(
                inside.enter(2, second, 1, guard()).is_ok(),
                fine,
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn notified_or_released_holder_is_out() {
        let mut inside = Exclusion::default();
        let lost = guard();
        inside
            .enter(1, Share::Exclusive, 1, Rc::clone(&lost))
            .unwrap();
        lost.set(false);
        inside.enter(2, Share::Exclusive, 1, guard()).unwrap();
        inside.leave(2);
        inside.enter(3, Share::Exclusive, 1, guard()).unwrap();
    }

    #[test]
    fn flags_permit_beyond_limit() {
        let mut inside = Exclusion::default();
        inside.enter(1, Share::Permits(3), 2, guard()).unwrap();
        inside.enter(2, Share::Permits(3), 1, guard()).unwrap();
        inside.enter(3, Share::Permits(3), 1, guard()).unwrap_err();
    }
}
