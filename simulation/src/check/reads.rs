//! A read under a lock is not older than the writes under it before, nor newer than its grant: each
//! exclusive holder writes the number of its grant.

/// The writes of one path that were accepted.
#[derive(Debug, Default)]
pub struct Reads(u64);

impl Reads {
    /// Records that a holder's write was accepted.
    pub fn written(&mut self, number: u64) {
        self.0 = self.0.max(number);
    }

    /// Records that a read begins; returns the newest number that was written.
    pub fn begin(&self) -> u64 {
        self.0
    }
}

/// Checks the number that a read returned to a holder. The read began after `floor` was written,
/// and the last grant is the holder's own, with the number `own`.
pub fn read(who: u64, floor: u64, own: u64, number: u64) -> Result<(), String> {
    if number < floor {
        return Err(format!(
            "{who} has read {number} under its lock, after {floor} was written"
        ));
    }
    if number > own {
        return Err(format!(
            "{who} has read {number} under its lock, which is the grant {own}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_read_outside_the_hold() {
        let mut reads = Reads::default();
        reads.written(3);
        reads.written(2);
        let floor = reads.begin();
        read(1, floor, 4, 2).unwrap_err();
        read(1, floor, 4, 5).unwrap_err();
        read(1, floor, 4, 3).unwrap();
        read(1, floor, 4, 4).unwrap();
    }
}
