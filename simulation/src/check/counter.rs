//! A counter that only rises: no number is returned twice, and none is below one that was returned
//! before the call began.

use std::collections::BTreeSet;

/// The numbers of one counter.
#[derive(Debug, Default)]
pub struct Numbers {
    returned: BTreeSet<i64>,
}

impl Numbers {
    /// Records that a call begins; returns the highest number that was returned so far.
    pub fn begin(&self) -> Option<i64> {
        self.returned.last().copied()
    }

    /// Checks the number that a call has taken, which began above `floor`.
    pub fn taken(&mut self, floor: Option<i64>, number: i64) -> Result<(), String> {
        if floor.is_some_and(|floor| number <= floor) {
            return Err(format!("{number} was returned after {floor:?}"));
        }
        if !self.returned.insert(number) {
            return Err(format!("{number} was returned twice"));
        }
        Ok(())
    }

    /// Checks the number that a call has read, which began above `floor`.
    pub fn read(&self, floor: Option<i64>, number: i64) -> Result<(), String> {
        match floor {
            Some(floor) if number < floor => Err(format!("{number} was read after {floor}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_repeated_or_old_number() {
        let mut numbers = Numbers::default();
        let floor = numbers.begin();
        numbers.taken(floor, 2).unwrap();
        // The call began before the 2 was returned.
        numbers.taken(floor, 1).unwrap();
        numbers.taken(floor, 1).unwrap_err();
        let floor = numbers.begin();
        numbers.taken(floor, 2).unwrap_err();
        numbers.read(floor, 1).unwrap_err();
        numbers.read(floor, 2).unwrap();
        numbers.taken(floor, 3).unwrap();
    }
}
