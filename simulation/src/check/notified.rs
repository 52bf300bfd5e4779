//! A caller that was notified of a loss does not hold the lock, and a caller that has lost its lock
//! is notified soon, unless the process is frozen.

use std::collections::BTreeMap;

/// How long it may take from the moment at which a guard answers that it is lost until its `lost()`
/// ends, in milliseconds: the grain of the timers, and of the looks.
const SOON: u64 = 100;

/// Since when guards have been found to be lost.
#[derive(Debug, Default)]
pub struct Notified(BTreeMap<u64, u64>);

impl Notified {
    /// Checks the state of a guard whose caller waits for its loss, and could be notified of it.
    pub fn look(&mut self, now: u64, who: u64, is_held: bool, frozen: bool) -> Result<(), String> {
        if is_held || frozen {
            self.0.remove(&who);
            return Ok(());
        }
        let since = *self.0.entry(who).or_insert(now);
        if now - since <= SOON {
            return Ok(());
        }
        self.0.remove(&who);
        Err(format!(
            "expected {who} to be notified of its loss, but it has not been for {} ms",
            now - since
        ))
    }

    /// Checks a notice to a caller.
    pub fn notified(&mut self, who: u64, is_held: bool) -> Result<(), String> {
        self.0.remove(&who);
        if is_held {
            Err(format!(
                "{who} was notified of a loss, but it holds the lock"
            ))
        } else {
            Ok(())
        }
    }

    /// Records that the caller no longer waits.
    pub fn left(&mut self, who: u64) {
        self.0.remove(&who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_missing_or_wrong_notification() {
        let mut notified = Notified::default();
        notified.look(0, 1, true, false).unwrap();
        notified.look(10, 1, false, false).unwrap();
        notified.look(10 + SOON, 1, false, false).unwrap();
        notified.look(11 + SOON, 1, false, false).unwrap_err();
        notified.notified(2, false).unwrap();
        notified.notified(2, true).unwrap_err();
    }

    #[test]
    fn frozen_process_needs_no_notification() {
        let mut notified = Notified::default();
        notified.look(0, 1, false, true).unwrap();
        notified.look(1000, 1, false, true).unwrap();
        notified.look(1000, 1, false, false).unwrap();
        notified.look(1001 + SOON, 1, false, false).unwrap_err();
    }
}
