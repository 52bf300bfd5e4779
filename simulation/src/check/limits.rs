//! Which limits of a semaphore may have been in force, when it is set by several, with or without
//! an answer.

/// A limit that was set, with the beginning and the end of the call in milliseconds. Without an
/// end, the limit may still take effect.
#[derive(Debug)]
struct Set {
    limit: u32,
    began: u64,
    ended: Option<u64>,
}

/// The limits of one semaphore.
#[derive(Debug)]
pub struct Limits(Vec<Set>);

impl Limits {
    pub fn new(limit: u32) -> Self {
        Self(vec![Set {
            limit,
            began: 0,
            ended: Some(0),
        }])
    }

    /// Records that a limit is being set. Returns its number.
    pub fn begin(&mut self, limit: u32, now: u64) -> usize {
        self.0.push(Set {
            limit,
            began: now,
            ended: None,
        });
        self.0.len() - 1
    }

    /// Records that the limit has been set.
    pub fn done(&mut self, number: usize, now: u64) {
        if let Some(set) = self.0.get_mut(number) {
            set.ended = Some(now);
        }
    }

    /// Returns the highest limit that may have been in force at `since` or later: all limits but
    /// those that were replaced by a call that began after their own had ended.
    pub fn most(&self, since: u64) -> u32 {
        let is_replaced = |one: &Set| {
            let by = |other: &Set| {
                let (Some(end), Some(other_end)) = (one.ended, other.ended) else {
                    return false;
                };
                other.began > end && other_end <= since
            };
            self.0.iter().any(by)
        };
        self.0
            .iter()
            .filter(|set| !is_replaced(set))
            .map(|set| set.limit)
            .max()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_counts_until_the_next() {
        let mut limits = Limits::new(5);
        assert_eq!(limits.most(0), 5);
        let set = limits.begin(2, 10);
        assert_eq!(limits.most(11), 5);
        limits.done(set, 20);
        assert_eq!((limits.most(19), limits.most(20)), (5, 2));
    }

    #[test]
    fn unanswered_limit_may_apply_later() {
        let mut limits = Limits::new(2);
        limits.begin(4, 10);
        let set = limits.begin(1, 20);
        limits.done(set, 30);
        assert_eq!(limits.most(40), 4);
    }
}
