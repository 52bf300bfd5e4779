//! A number that is written with a new value each time is linearizable: there is an order of all
//! operations, each at a moment between its beginning and its end, in which each read returns the
//! last write before it.
//!
//! All operations with one value are a cluster: its write, and what has read it. A cluster whose
//! operations are all over before one of them began (a read after the end of the write, say) owns
//! the time between: no other may own a moment of it, and no other whose operations all share a
//! moment may have all of these there (Gibbons and Korach, Testing Shared Memories).

use std::collections::BTreeMap;

/// The operations with one value.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    /// The beginning of the write; `None` if none is known.
    written: Option<u64>,
    /// The first end, and the last beginning.
    ended: u64,
    began: u64,
    /// Whether the value was read or its write was answered: it was there.
    was_there: bool,
    /// The value that a compare-and-set replaced it by.
    replaced_by: Option<i64>,
}

/// The operations of one number.
#[derive(Debug)]
pub struct Register {
    clusters: BTreeMap<i64, Cluster>,
    wrong: Vec<String>,
}

impl Default for Register {
    fn default() -> Self {
        let mut register = Self {
            clusters: BTreeMap::new(),
            wrong: Vec::new(),
        };
        // The register has this value before the first write.
        register.begin(0, 0);
        register.ended(0, 0, 0);
        register
    }
}

impl Register {
    /// Records that a write of a new value begins.
    pub fn begin(&mut self, value: i64, now: u64) {
        let cluster = Cluster {
            written: Some(now),
            ended: u64::MAX,
            began: now,
            was_there: false,
            replaced_by: None,
        };
        self.clusters.insert(value, cluster);
    }

    /// Records that an operation was answered, or that the value was read by an operation from
    /// `began` to `ended`.
    pub fn ended(&mut self, value: i64, began: u64, ended: u64) {
        let unknown = Cluster {
            written: None,
            ended: u64::MAX,
            began: 0,
            was_there: false,
            replaced_by: None,
        };
        let cluster = self.clusters.entry(value).or_insert(unknown);
        cluster.was_there = true;
        cluster.ended = cluster.ended.min(ended);
        cluster.began = cluster.began.max(began);
    }

    /// Records that a compare-and-set has replaced a value.
    pub fn replaced(&mut self, value: i64, by: i64, began: u64, ended: u64) {
        self.ended(value, began, ended);
        self.ended(by, began, ended);
        let Some(cluster) = self.clusters.get_mut(&value) else {
            return;
        };
        if let Some(other) = cluster.replaced_by.replace(by) {
            self.wrong
                .push(format!("{value} was replaced by {other} and by {by}"));
        }
    }

    /// Checks all operations.
    pub fn check(&self) -> Result<(), String> {
        if let Some(wrong) = self.wrong.first() {
            return Err(wrong.clone());
        }
        let there = || {
            self.clusters
                .iter()
                .filter(|(_, cluster)| cluster.was_there)
        };
        for (value, cluster) in there() {
            match cluster.written {
                Some(written) if written <= cluster.ended => {}
                _ => {
                    return Err(format!(
                        "{value} was there before it was written: {cluster:?}"
                    ));
                }
            }
        }
        // The times that clusters own, in order.
        let mut owned: Vec<(u64, u64, i64)> = there()
            .filter(|(_, cluster)| cluster.ended < cluster.began)
            .map(|(value, cluster)| (cluster.ended, cluster.began, *value))
            .collect();
        owned.sort_unstable();
        for pair in owned.windows(2) {
            if let [(_, end, one), (begin, _, other)] = pair
                && begin < end
            {
                return Err(format!(
                    "{one} was there until {end}, and {other} from {begin} on"
                ));
            }
        }
        for (value, cluster) in there().filter(|(_, cluster)| cluster.began <= cluster.ended) {
            let before = owned.partition_point(|(from, _, _)| *from < cluster.began);
            let around = before.checked_sub(1).and_then(|index| owned.get(index));
            if let Some((from, to, other)) = around.filter(|(_, to, _)| cluster.ended < *to) {
                let (began, ended) = (cluster.began, cluster.ended);
                return Err(format!(
                    "{value} was there between {began} and {ended}, while {other} was from {from} to {to}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes and reads: a value, and from when to when.
    fn check(writes: &[(i64, u64, u64)], reads: &[(i64, u64, u64)]) -> Result<(), String> {
        let mut register = Register::default();
        for (value, began, ended) in writes {
            register.begin(*value, *began);
            register.ended(*value, *began, *ended);
        }
        for (value, began, ended) in reads {
            register.ended(*value, *began, *ended);
        }
        register.check()
    }

    #[test]
    fn accepts_operations_in_an_order() {
        check(
            &[(1, 10, 20), (2, 30, 40)],
            &[(0, 5, 12), (1, 15, 25), (1, 21, 29), (2, 35, 50)],
        )
        .unwrap();
        // The two operations overlap, so either order is possible.
        check(&[(1, 10, 40), (2, 10, 40)], &[(1, 50, 60)]).unwrap();
        check(&[(1, 10, 40), (2, 10, 40)], &[(2, 50, 60)]).unwrap();
    }

    #[test]
    fn flags_return_of_old_value() {
        check(&[(1, 10, 20), (2, 30, 40)], &[(1, 50, 60)]).unwrap_err();
        check(&[(1, 10, 40), (2, 10, 40)], &[(1, 50, 60), (2, 70, 80)]).unwrap_err();
        check(&[(1, 10, 20)], &[(0, 30, 40)]).unwrap_err();
    }

    #[test]
    fn flags_value_without_earlier_write() {
        check(&[(1, 10, 20)], &[(1, 5, 9)]).unwrap_err();
        check(&[], &[(7, 5, 9)]).unwrap_err();
    }

    #[test]
    fn unanswered_write_may_have_happened() {
        let mut register = Register::default();
        register.begin(1, 10);
        register.check().unwrap();
        register.ended(1, 50, 60);
        register.check().unwrap();
        register.ended(0, 70, 80);
        register.check().unwrap_err();
    }

    #[test]
    fn flags_value_replaced_twice() {
        let mut register = Register::default();
        for (by, at) in [(1, 10), (2, 12)] {
            register.begin(by, at);
            register.replaced(0, by, at, 20);
        }
        register.check().unwrap_err();
    }
}
