//! The findings of holders' journals: whether two holders believed at the same time that they held
//! a lock, and how long before the next grant the last holder was notified of its loss.

use crate::step::Poll;

/// When a holder was granted the lock, and what it was answered from then on.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObservedHold {
    pub(crate) granted: i64,
    pub(crate) polls: Vec<Poll>,
}

impl ObservedHold {
    /// Returns until when the lock answered that it was held.
    fn until(&self) -> Option<i64> {
        self.polls
            .iter()
            .filter(|poll| poll.held)
            .map(|poll| poll.answered)
            .next_back()
    }
}

/// Returns for how long, in nanoseconds, `former` was answered that it holds the lock while `next`
/// held it and was answered so, too; `None` if it never was. A question counts that was asked after
/// the grant: an answer from before a pause of the process is none.
pub(crate) fn overlap(former: &ObservedHold, next: &ObservedHold) -> Option<i64> {
    let until = next.until()?;
    let beside = |poll: &&Poll| poll.held && poll.asked > next.granted && poll.answered < until;
    let mut polls = former.polls.iter().filter(beside);
    let first = polls.next()?;
    let last = polls.next_back().unwrap_or(first);
    Some(last.answered - first.asked)
}

/// Returns when `former` was first answered that it does not hold the lock, after `since`.
pub(crate) fn loss_noticed_at(former: &ObservedHold, since: i64) -> Option<i64> {
    former
        .polls
        .iter()
        .find(|poll| !poll.held && poll.answered > since)
        .map(|poll| poll.answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed_hold(granted: i64, polls: &[(i64, bool)]) -> ObservedHold {
        let poll = |&(at, held)| Poll {
            asked: at,
            answered: at + 1,
            held,
        };
        ObservedHold {
            granted,
            polls: polls.iter().map(poll).collect(),
        }
    }

    #[test]
    fn two_confirmed_holders_overlap() {
        let next = observed_hold(100, &[(105, true), (150, true), (160, false)]);
        let former = observed_hold(
            0,
            &[(5, true), (99, true), (110, true), (130, true), (170, true)],
        );
        assert_eq!(overlap(&former, &next), Some(131 - 110));
        assert_eq!(loss_noticed_at(&former, 0), None);
    }

    #[test]
    fn notified_holder_does_not_overlap() {
        let next = observed_hold(100, &[(105, true), (150, true)]);
        let former = observed_hold(0, &[(5, true), (90, false), (120, false)]);
        assert_eq!(overlap(&former, &next), None);
        assert_eq!(loss_noticed_at(&former, 0), Some(91));
    }

    #[test]
    fn answer_from_before_grant_never_overlaps() {
        let next = observed_hold(100, &[(105, true), (150, true)]);
        let asked_before = Poll {
            asked: 99,
            answered: 120,
            held: true,
        };
        assert_eq!(
            overlap(
                &ObservedHold {
                    granted: 0,
                    polls: vec![asked_before]
                },
                &next
            ),
            None
        );
        // An answer after the next holder was notified of its own loss does not count either.
        assert_eq!(overlap(&observed_hold(0, &[(160, true)]), &next), None);
    }
}
