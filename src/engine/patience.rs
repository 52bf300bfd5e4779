//! The patience of a try that finds others ahead which may be gone in a moment.

use std::time::{Duration, Instant};

use crate::path::NodePath;
use crate::protocol::late::Ahead;

/// How long a try waits behind live contenders. Counted from when it is behind them: not while the servers are
/// asked.
#[derive(Debug)]
pub(super) struct Patience {
    time: Duration,
    /// Whether it begins again when another contender is the first.
    for_each: bool,
    first: Option<NodePath>,
    until: Option<Instant>,
}

impl Patience {
    pub(super) fn new(time: Duration, for_each: bool) -> Self {
        Self { time, for_each, first: None, until: None }
    }

    /// Notes the live contenders ahead, as they were seen now. Returns whether the try has waited behind them for
    /// long enough. Without a live one it waits only for the servers.
    pub(super) fn is_over(&mut self, ahead: Option<&Ahead>) -> bool {
        let (first, now) = (ahead.and_then(|ahead| ahead.first.clone()), Instant::now());
        let goes_on = first.is_some() && (first == self.first || !self.for_each);
        let until = self.until.filter(|_| goes_on);
        self.until = until.or_else(|| first.as_ref().and_then(|_| now.checked_add(self.time)));
        self.first = first;
        until.is_some_and(|until| until <= now)
    }

    /// Returns when it is time to look who is ahead.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::LockPath;

    // Shows: try-permits, kept-node
    #[test]
    fn it_ends_behind_the_same_contender_or_behind_any() {
        let directory = LockPath::parse("", "/lock").unwrap();
        let behind = |name| Some(Ahead { count: 1, first: Some(directory.user_child(name)) });
        for for_each in [true, false] {
            let mut patience = Patience::new(Duration::ZERO, for_each);
            assert!(!patience.is_over(behind("a").as_ref()), "it begins");
            assert_eq!(patience.is_over(behind("b").as_ref()), !for_each);
            assert!(patience.is_over(behind("b").as_ref()));
            assert!(!patience.is_over(None), "they are gone");
            assert_eq!(patience.look_at(), None);
            assert!(!patience.is_over(behind("b").as_ref()), "it begins again");
        }
    }
}
