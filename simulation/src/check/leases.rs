//! A lock with a lease of its caller ends with the lease, and not before.

use std::time::Duration;

/// The grain of the clocks, in milliseconds.
const GRAIN: u64 = 2;

/// When a lease ends, in milliseconds: between these moments, since the caller does not know when
/// the lock was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    earliest: u64,
    latest: u64,
}

impl End {
    /// Returns the end of a lease that has begun between two moments.
    pub fn of(lease: Duration, first: u64, last: u64) -> Self {
        let lease = lease.as_millis() as u64;
        Self {
            earliest: first + lease,
            latest: last + lease,
        }
    }
}

/// Checks the state that a guard reports.
pub fn look(end: Option<End>, now: u64, is_held: bool) -> Result<(), String> {
    match end {
        Some(end) if is_held && now > end.latest + GRAIN => Err(format!(
            "is held {} ms after the end of its lease",
            now - end.latest
        )),
        _ => Ok(()),
    }
}

/// Checks a notice to a holder that its lease has ended.
pub fn notified(end: Option<End>, now: u64) -> Result<(), String> {
    match end {
        None => Err("was notified of the end of a lease, but has none".to_owned()),
        Some(end) if now + GRAIN < end.earliest => Err(format!(
            "was notified of the end of its lease {} ms too early",
            end.earliest - now
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_lease_end_at_wrong_time() {
        let end = Some(End::of(Duration::from_millis(100), 1_000, 1_010));
        look(end, 1_110 + GRAIN, true).unwrap();
        look(end, 1_111 + GRAIN, false).unwrap();
        look(end, 1_111 + GRAIN, true).unwrap_err();
        look(None, 1_000_000, true).unwrap();
        notified(end, 1_100 - GRAIN).unwrap();
        notified(end, 1_099 - GRAIN).unwrap_err();
        notified(None, 1_100).unwrap_err();
    }
}
