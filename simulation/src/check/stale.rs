//! No write under the guard of a holder is accepted after another was granted the lock exclusively.

/// The exclusive grants of one path, by number.
#[derive(Debug, Default)]
pub struct Grants(u64);

impl Grants {
    /// Records a grant. Returns the number of the last exclusive grant, which is this one if it is
    /// exclusive.
    pub fn granted(&mut self, is_exclusive: bool) -> u64 {
        self.0 += u64::from(is_exclusive);
        self.0
    }

    /// Returns whether a holder with that number is stale.
    pub fn is_stale(&self, number: u64) -> bool {
        self.0 > number
    }
}

/// Checks whether a transaction that a stale holder began was accepted.
pub fn written(who: u64, was_stale: bool, is_accepted: bool) -> Result<(), String> {
    if was_stale && is_accepted {
        return Err(format!(
            "a write of {who} was accepted although the lock had been granted to another"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_accepted_stale_write() {
        let mut grants = Grants::default();
        let writer = grants.granted(true);
        assert!(!grants.is_stale(writer));
        let reader = grants.granted(false);
        assert!(!grants.is_stale(reader) && !grants.is_stale(writer));
        grants.granted(true);
        for (number, accepted, fine) in [
            (writer, false, true),
            (writer, true, false),
            (reader, true, false),
        ] {
            assert_eq!(written(1, grants.is_stale(number), accepted).is_ok(), fine);
        }
        written(1, false, true).unwrap();
    }
}
