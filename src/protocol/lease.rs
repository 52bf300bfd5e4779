//! For how long a lock is believed to be held after the last proof that the servers keep the session. Pure.
//!
//! # What counts as a proof
//! The reply to a *committed write* of the session, counted from the moment the write was sent. A write needs
//! the leader and a quorum. Reads, pings and even `sync` are answered for ten seconds and more by a member
//! that is cut off from the quorum, while the rest of the ensemble expires the session and gives its locks
//! away (measured: docs/protocol.md#renewal).
//!
//! # How long it lasts
//! The servers expire a session no earlier than its timeout T after they last heard from it. The leader may
//! have heard of it last somewhat before our write was sent: a follower passes contacts on every half tick
//! only. With the margin of T/3 that is covered for any single interruption, with members attached to the
//! leader directly. The strict margin of 0.7 T also covers links that come and go, and observers behind an
//! observer master (docs/protocol.md#lease).

use std::time::Duration;

use crate::protocol::moment::Moment;

/// How much earlier than the servers may act a lock is given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Margin {
    /// A third of the session timeout: sound for one interruption at a time, with members that talk to the leader
    /// directly. The default.
    #[default]
    Standard,
    /// 0.7 of the session timeout: sound also for links that come and go, and for members behind an observer
    /// master. Locks are given up after 0.3 of the session timeout without contact.
    Strict,
}

/// The rule for one session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    timeout: Duration,
    margin: Duration,
}

/// What the last proof is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// It is young.
    Valid,
    /// A beat is overdue: nothing may be granted until another proof has come.
    Suspended,
    /// The servers may have given the lock away.
    Expired,
}

impl Lease {
    pub(crate) fn new(timeout: Duration, margin: Margin) -> Self {
        let margin = match margin {
            Margin::Standard => timeout / 3,
            Margin::Strict => timeout * 7 / 10,
        };
        Self { timeout, margin }
    }

    /// How old the last proof may get before another is asked for: T/6, or a third of the patience where the margin
    /// leaves less, so that a beat can be lost, and another be answered, before anything is given up.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        (self.timeout / 6).min(self.duration() / 3)
    }

    /// How long after a proof a lock is believed.
    pub(crate) fn duration(&self) -> Duration {
        self.timeout.saturating_sub(self.margin)
    }

    /// What a proof of `proof` is worth `now`. Two periods without another mean that one that was due is missing.
    pub(crate) fn state(&self, proof: Option<Moment>, now: Moment) -> LeaseState {
        let Some(proof) = proof else { return LeaseState::Expired };
        let age = now.since(proof);
        if age >= self.duration() {
            LeaseState::Expired
        } else if age >= self.heartbeat_interval() * 2 {
            LeaseState::Suspended
        } else {
            LeaseState::Valid
        }
    }

    /// How long until the standing gets worse, if no proof comes. Where it cannot, how long to wait before another look: a
    /// lock that is granted meanwhile, by a new proof, is believed for longer than that.
    pub(crate) fn until_worse(&self, proof: Option<Moment>, now: Moment) -> Duration {
        let age = proof.map_or(Duration::MAX, |proof| now.since(proof));
        [self.heartbeat_interval() * 2, self.duration()]
            .into_iter()
            .find_map(|limit| limit.checked_sub(age).filter(|left| !left.is_zero()))
            .unwrap_or_else(|| self.heartbeat_interval())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn state(margin: Margin, age: Duration) -> LeaseState {
        let proof = Moment::at(S(100));
        Lease::new(S(30), margin).state(Some(proof), Moment::at(S(100) + age))
    }

    #[test]
    fn believed_for_two_thirds_of_the_timeout() {
        let just_before = S(20) - Duration::from_nanos(1);
        assert_eq!(state(Margin::Standard, S(9)), LeaseState::Valid);
        assert_eq!(state(Margin::Standard, S(10)), LeaseState::Suspended);
        assert_eq!(state(Margin::Standard, just_before), LeaseState::Suspended);
        assert_eq!(state(Margin::Standard, S(20)), LeaseState::Expired);
    }

    #[test]
    fn strict_is_three_tenths() {
        assert_eq!(state(Margin::Strict, S(5)), LeaseState::Valid);
        assert_eq!(state(Margin::Strict, S(6)), LeaseState::Suspended);
        assert_eq!(state(Margin::Strict, S(9)), LeaseState::Expired);
    }

    #[test]
    fn without_a_proof_nothing_is_believed() {
        assert_eq!(Lease::new(S(30), Margin::Standard).state(None, Moment::at(S(0))), LeaseState::Expired);
    }

    #[test]
    fn the_next_look_is_when_the_standing_changes() {
        for margin in [Margin::Standard, Margin::Strict] {
            let (lease, proof) = (Lease::new(S(30), margin), Moment::at(S(100)));
            let mut now = proof;
            let mut seen = vec![lease.state(Some(proof), now)];
            for _ in 0..2 {
                let left = lease.until_worse(Some(proof), now);
                let before = now.plus(left - Duration::from_nanos(1));
                assert_eq!(lease.state(Some(proof), before), seen[seen.len() - 1], "{margin:?}");
                now = now.plus(left);
                seen.push(lease.state(Some(proof), now));
            }
            assert_eq!(seen, [LeaseState::Valid, LeaseState::Suspended, LeaseState::Expired], "{margin:?}");
            for over in [Some(proof), None] {
                assert_eq!(lease.until_worse(over, now), lease.heartbeat_interval(), "{margin:?}");
            }
            // What is granted right after that look is not over before the next one.
            assert!(
                lease.duration() - lease.heartbeat_interval() * 2 >= lease.heartbeat_interval(),
                "{margin:?}"
            );
        }
    }

    #[test]
    fn a_beat_can_be_lost_with_either_margin() {
        for margin in [Margin::Standard, Margin::Strict] {
            let lease = Lease::new(S(30), margin);
            // The one after it still has a whole period to be answered in.
            assert!(lease.heartbeat_interval() * 3 <= lease.duration(), "{margin:?}");
        }
    }
}
