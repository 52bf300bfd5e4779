//! When nothing is broken any more, every caller that can be granted its lock is granted it within
//! twice the session timeout and five seconds: by then the sessions of dead processes have expired,
//! and clients have reconnected. Long links continue to lose connections with all requests on them,
//! so there the pauses of the retry policy come on top: of one call eight seconds at most (seed
//! 2019), and of two where one waits for the part that a multi-lock has (seed 7000515).

use std::collections::BTreeMap;

/// The waiters at a path, and whether any caller holds it. Times are in milliseconds.
#[derive(Debug)]
pub struct Waits<W> {
    holders: u64,
    /// When the last holder left.
    free: u64,
    /// By their tickets: since when they wait, and who they are.
    waits: BTreeMap<u64, (u64, W)>,
    /// How many have come so far, to wait or to hold.
    arrivals: u64,
    /// When the last of them left.
    left: u64,
}

/// A waiter, and the state of the path when it came.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    number: u64,
    /// Whether others were there.
    beside: bool,
    /// When the last of the others had left.
    left: u64,
}

impl<W> Default for Waits<W> {
    fn default() -> Self {
        Self {
            holders: 0,
            free: 0,
            waits: BTreeMap::new(),
            arrivals: 0,
            left: 0,
        }
    }
}

impl<W> Waits<W> {
    pub fn begins(&mut self, now: u64, who: W) -> Ticket {
        let beside = self.holders > 0 || !self.waits.is_empty();
        self.arrivals += 1;
        self.waits.insert(self.arrivals, (now, who));
        Ticket {
            number: self.arrivals,
            beside,
            left: self.left,
        }
    }

    pub fn ends(&mut self, ticket: Ticket, now: u64) {
        self.waits.remove(&ticket.number);
        self.left = now;
    }

    pub fn enters(&mut self) {
        self.arrivals += 1;
        self.holders += 1;
    }

    pub fn leaves(&mut self, now: u64) {
        self.holders = self.holders.saturating_sub(1);
        (self.free, self.left) = (now, now);
    }

    /// Returns when the last of the others left before the call of a ticket, or `None` if others
    /// were there during it.
    pub fn alone_since(&self, ticket: Ticket) -> Option<u64> {
        (!ticket.beside && self.arrivals == ticket.number).then_some(ticket.left)
    }

    /// Returns when the last of them left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns when the last of the others left, if this many of the holders do not count as
    /// others.
    pub fn free_but_for(&self, own: u64) -> Option<u64> {
        (self.holders <= own).then_some(self.free)
    }

    /// Returns how long a caller has waited at most since its lock became free.
    pub fn longest(&self, now: u64, healed: u64, counts: impl Fn(&W) -> bool) -> u64 {
        if self.holders > 0 {
            return 0;
        }
        let waits = self.waits.values().filter(|(_, who)| counts(who));
        let since = waits.map(|(since, _)| healed.max(self.free).max(*since));
        since
            .map(|since| now.saturating_sub(since))
            .max()
            .unwrap_or(0)
    }

    /// Returns how long a caller that is granted now has waited since the lock became free.
    pub fn waited(&self, ticket: Ticket, now: u64, healed: u64) -> Option<u64> {
        let (since, _) = self.waits.get(&ticket.number)?;
        (self.holders == 0).then(|| now.saturating_sub(healed.max(self.free).max(*since)))
    }
}

/// Returns the limit: twice the session timeout, and five seconds.
pub fn limit(timeout_ms: u64) -> u64 {
    2 * timeout_ms + 5_000
}

/// How much more time is given where links are long.
pub const FAR_MS: u64 = 10_000;

pub fn in_time(waited: u64, limit: u64) -> Result<(), String> {
    if waited <= limit {
        return Ok(());
    }
    Err(format!(
        "is free, and was not granted for {waited} ms to one who waits: {limit} ms are the most"
    ))
}

/// Returns how long a caller has waited for several paths, each of which is free since some moment,
/// or is not free.
pub fn waited_for_all(now: u64, since: u64, free: impl IntoIterator<Item = Option<u64>>) -> u64 {
    let mut since = since;
    for free in free {
        let Some(free) = free else { return 0 };
        since = since.max(free);
    }
    now.saturating_sub(since)
}

/// Checks the time to create a node whose name no other wants, when nothing was broken; with the
/// error, if it was not created.
pub fn made<E: std::fmt::Display>(
    what: &str,
    waited: u64,
    limit: u64,
    outcome: Result<(), E>,
) -> Result<(), String> {
    match outcome {
        Err(error) => Err(format!("{what} is not made for {waited} ms: {error}")),
        Ok(()) if waited > limit => Err(format!("{what} was made after {waited} ms")),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 13_000;

    #[test]
    fn recovery_bound_is_two_timeouts() {
        assert_eq!(limit(4_000), LIMIT);
    }

    #[test]
    fn flags_waiter_for_free_lock() {
        let mut waits = Waits::default();
        waits.enters();
        waits.begins(1_000, "slow");
        assert_eq!(waits.longest(9_000, 0, |_| true), 0);
        waits.leaves(10_000);
        in_time(waits.longest(10_000 + LIMIT, 0, |_| true), LIMIT).unwrap();
        in_time(waits.longest(10_001 + LIMIT, 0, |_| true), LIMIT).unwrap_err();
        // Faults count from their end, and the dead not at all.
        in_time(waits.longest(10_001 + LIMIT, 10_001, |_| true), LIMIT).unwrap();
        in_time(
            waits.longest(10_001 + LIMIT, 0, |who| *who != "slow"),
            LIMIT,
        )
        .unwrap();
    }

    #[test]
    fn multi_lock_wait_starts_when_free() {
        let mut waits = Waits::<()>::default();
        waits.enters();
        assert_eq!(
            (waits.free_but_for(0), waits.free_but_for(1)),
            (None, Some(0))
        );
        waits.enters();
        waits.leaves(5_000);
        assert_eq!(
            (waits.free_but_for(0), waits.free_but_for(1)),
            (None, Some(5_000))
        );
        assert_eq!(
            waited_for_all(9_000, 1_000, [Some(5_000), Some(3_000)]),
            4_000
        );
        assert_eq!(waited_for_all(9_000, 1_000, [Some(5_000), None]), 0);
        in_time(waited_for_all(5_001 + LIMIT, 0, [Some(5_000)]), LIMIT).unwrap_err();
    }

    #[test]
    fn flags_late_node_creation() {
        made::<&str>("a", LIMIT, LIMIT, Ok(())).unwrap();
        made::<&str>("a", LIMIT + 1, LIMIT, Ok(())).unwrap_err();
        made("a", 1, LIMIT, Err("no")).unwrap_err();
    }

    #[test]
    fn granted_wait_counts_from_release() {
        let mut waits = Waits::default();
        waits.enters();
        let ticket = waits.begins(1_000, ());
        waits.leaves(4_000);
        assert_eq!(waits.waited(ticket, 4_500, 0), Some(500));
        assert_eq!(waits.waited(ticket, 4_500, 4_400), Some(100));
        waits.ends(ticket, 4_500);
        assert_eq!(waits.waited(ticket, 4_500, 0), None);
    }

    #[test]
    fn call_is_alone_without_contenders() {
        let mut waits = Waits::default();
        let first = waits.begins(10, ());
        assert_eq!(waits.alone_since(first), Some(0));
        let second = waits.begins(11, ());
        assert_eq!(
            (waits.alone_since(first), waits.alone_since(second)),
            (None, None)
        );
        waits.ends(first, 20);
        waits.ends(second, 30);
        let third = waits.begins(40, ());
        assert_eq!(waits.alone_since(third), Some(30));
        waits.enters();
        assert_eq!(waits.alone_since(third), None);
    }
}
