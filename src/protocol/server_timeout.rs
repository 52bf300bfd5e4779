//! For how long a server may be silent before the connection to it is given up, and what is learned of that. Pure.
//!
//! A server that hangs must not use up the time of the others: a lock is believed for 2/3 of the session timeout T, of
//! which 1/6 may pass before the first beat that is not answered. With T/8 for each there is time for the server that the
//! session is on and two more that hang. `zookeeper-client` itself waits for 2/5 of T.
//!
//! Servers whose commits take longer than that, all of them, look the same as one that hangs: the connection is cut
//! before the reply to a write, and so is the next, for ever. The library fixes the patience of a session when it connects,
//! so such a session is given up, and the next has twice the patience.

use std::time::Duration;

use crate::protocol::moment::Moment;

/// A server that says nothing for less than this is no more than busy.
const BUSY: Duration = Duration::from_millis(500);

/// A session that lasted for this many session timeouts was well, whatever its patience: the next begins anew.
const WELL: u32 = 10;

/// How patient the next session will be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    doublings: u32,
}

impl Patience {
    /// For how long a server may be silent, in a session with this timeout.
    pub(crate) fn with(self, session_timeout: Duration, connect_timeout: Duration) -> Duration {
        let first = (session_timeout / 8).min(connect_timeout / 3).max(BUSY);
        let doubled = first.saturating_mul(2_u32.saturating_pow(self.doublings));
        doubled.min(most(session_timeout).max(first))
    }

    /// More of it after a session that was of no use.
    pub(crate) fn grow(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// What a session teaches that lasted so long and ended for another reason: if it was well for long, the servers may
    /// be quick again.
    pub(crate) fn lasted(&mut self, age: Duration, session_timeout: Duration) {
        if age >= session_timeout.saturating_mul(WELL) {
            self.doublings = 0;
        }
    }
}

/// The library's own patience, beyond which it does not go: it would leave no time for a second server.
fn most(session_timeout: Duration) -> Duration {
    session_timeout / 5 * 2
}

/// What the library makes of a patience, once the session timeout is known: too much of it is replaced by its own.
pub(crate) fn effective(patience: Duration, session_timeout: Duration) -> Duration {
    if patience > session_timeout / 5 * 3 { most(session_timeout) } else { patience }
}

/// The connections of one session: whether it is our own impatience that keeps the servers from answering.
#[derive(Debug)]
pub(crate) struct Connections {
    patience: Duration,
    session_timeout: Duration,
    /// Since when there is the present one.
    since: Option<Moment>,
    /// The last proof when the one before ended.
    seen: Option<Moment>,
    /// How many in a row were in vain, and when the first of them ended.
    vain: Option<(u32, Moment)>,
}

impl Connections {
    /// Those of a session that was established at `now`.
    pub(crate) fn new(patience: Duration, session_timeout: Duration, now: Moment) -> Self {
        Self { patience, session_timeout, since: Some(now), seen: None, vain: None }
    }

    /// A connection has ended. `proof` is when the last write was sent that was answered; `wanted` is whether there was
    /// anything to write.
    ///
    /// It was in vain if no write was answered on it although it lasted as long as the patience. One that lasted less
    /// was ended by something else, and says nothing.
    ///
    /// A write counts for the connection that it was answered on. It may have been sent before that was seen: queued while
    /// there was none, or by who saw it first. So what counts is that the proof is a new one, not when it was sent.
    pub(crate) fn ended(&mut self, now: Moment, proof: Option<Moment>, wanted: bool) {
        let Some(since) = self.since.take() else { return };
        let answered = std::mem::replace(&mut self.seen, proof) != proof;
        if !wanted || answered {
            self.vain = None;
        } else if now.since(since) >= self.patience {
            let (count, first) = self.vain.unwrap_or((0, now));
            self.vain = Some((count.saturating_add(1), first));
        }
    }

    /// There is a connection again. False if the session is of no use: at least two connections were in vain, for a whole
    /// session timeout, no write that was sent within that time has been answered, and more patience might help. Whatever was
    /// held in it is lost by then, and the servers may have given it away, so nothing is taken by ending it.
    pub(crate) fn established(&mut self, now: Moment, proof: Option<Moment>) -> bool {
        self.since = Some(now);
        let long_ago = |moment| now.since(moment) >= self.session_timeout;
        let in_vain = self.vain.is_some_and(|(count, first)| count >= 2 && long_ago(first));
        let useless = in_vain && proof.is_none_or(long_ago);
        !useless || self.patience >= most(self.session_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;
    const MS: fn(u64) -> Duration = Duration::from_millis;
    const T: Duration = Duration::from_secs(16);

    fn at(seconds: u64) -> Moment {
        Moment::at(S(seconds))
    }

    fn grown(times: u32) -> Patience {
        Patience { doublings: times }
    }

    /// Connections of a session from second 0, with a patience of 2 s.
    fn session() -> Connections {
        Connections::new(S(2), T, at(0))
    }

    #[test]
    fn an_eighth_of_the_session_timeout() {
        assert_eq!(Patience::default().with(T, S(60)), S(2));
        // Not more than a third of the time that there is to connect, and not less than half a second.
        assert_eq!(Patience::default().with(T, S(3)), S(1));
        assert_eq!(Patience::default().with(T, S(1)), MS(500));
        assert_eq!(Patience::default().with(S(1), S(60)), MS(500));
    }

    #[test]
    fn it_doubles_up_to_two_fifths() {
        let mut patience = Patience::default();
        patience.grow();
        assert_eq!(patience.with(T, S(60)), S(4));
        assert_eq!(grown(2).with(T, S(60)), MS(6_400));
        assert_eq!(grown(u32::MAX).with(T, S(60)), MS(6_400));
        // Where the first is more than that already, it stays.
        assert_eq!(grown(1).with(S(1), S(60)), MS(500));
        assert_eq!(grown(u32::MAX).with(Duration::MAX, Duration::MAX), Duration::MAX / 5 * 2);
    }

    #[test]
    fn the_library_replaces_too_much_of_it() {
        assert_eq!(effective(S(9), S(16)), S(9));
        assert_eq!(effective(S(10), S(16)), MS(6_400));
    }

    #[test]
    fn it_begins_anew_after_a_session_that_was_well_for_long() {
        let mut patience = grown(2);
        patience.lasted(10 * T - MS(1), T);
        assert_eq!(patience.with(T, S(60)), grown(2).with(T, S(60)));
        patience.lasted(10 * T, T);
        assert_eq!(patience.with(T, S(60)), S(2));
    }

    /// One connection after the other, the first of which ends in second `from`, each 2 s later with the proof that there is
    /// by then; answers when the session was found to be of no use, if it was within 100 s.
    fn useless_from(mut session: Connections, from: u64, proof: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        (from..100).step_by(2).find(|&second| {
            let proof = proof(second).map(at);
            session.ended(at(second), proof, true);
            !session.established(at(second), proof)
        })
    }

    fn useless(session: Connections, proof: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        useless_from(session, 2, proof)
    }

    #[test]
    fn connections_in_vain_for_a_session_timeout_are_enough() {
        assert_eq!(useless(session(), |_| None), Some(18));
        // The last write that was answered was so before; that was the first connection's.
        assert_eq!(useless(session(), |_| Some(0)), Some(20));
    }

    /// A beat is sent as soon as there is a connection, which may be before that is seen here.
    #[test]
    fn a_write_that_is_answered_counts_although_it_was_sent_before_the_connection_was_seen() {
        assert_eq!(useless(session(), |second| Some(second.saturating_sub(3))), None);
        // After second 40 none is: the first connection in vain is the one that ends in second 42.
        assert_eq!(useless(session(), |second| Some(second.min(40).saturating_sub(3))), Some(58));
    }

    #[test]
    fn an_answer_that_came_between_two_connections_counts() {
        let mut session = session();
        for second in (2..200).step_by(2) {
            session.ended(at(second), Some(at(second - 2)), second > 4);
            assert!(session.established(at(second), Some(at(second - 1))), "{second}");
        }
    }

    #[test]
    fn a_session_is_kept_for_a_session_timeout_after_the_last_write_that_was_answered() {
        let mut session = session();
        for second in (2..18).step_by(2) {
            session.ended(at(second), None, true);
            assert!(session.established(at(second), None), "{second}");
        }
        // The answer has come since the last connection was seen to end.
        session.ended(at(18), None, true);
        assert!(session.established(at(18), Some(at(5))));
        assert!(session.established(at(20), Some(at(5))));
        assert!(!session.established(at(21), Some(at(5))));
    }

    /// What was answered while nothing was wanted is not counted again later.
    #[test]
    fn an_answer_counts_once() {
        let mut session = session();
        session.ended(at(2), Some(at(1)), false);
        assert!(session.established(at(2), Some(at(1))));
        assert_eq!(useless_from(session, 4, |_| Some(1)), Some(20));
    }

    #[test]
    fn one_is_not_enough_however_long_ago() {
        let mut session = session();
        session.ended(at(2), None, true);
        assert!(session.established(at(100), None));
    }

    #[test]
    fn an_answered_write_makes_up_for_what_was_before() {
        let mut session = session();
        session.ended(at(2), None, true);
        assert!(session.established(at(2), None));
        session.ended(at(10), Some(at(3)), true);
        assert!(session.established(at(10), None));
        session.ended(at(20), Some(at(3)), true);
        assert!(session.established(at(20), None));
    }

    #[test]
    fn one_on_which_nothing_was_wanted_is_not_in_vain() {
        let mut session = session();
        for second in (2..100).step_by(2) {
            session.ended(at(second), None, false);
            assert!(session.established(at(second), None));
        }
    }

    #[test]
    fn one_that_broke_before_the_patience_was_over_says_nothing() {
        let mut session = session();
        for second in 1..100 {
            session.ended(at(second), None, true);
            assert!(session.established(at(second), None));
        }
    }

    #[test]
    fn a_patience_that_cannot_grow_gives_no_session_up() {
        let mut session = Connections::new(MS(6_400), T, at(0));
        for second in (7..100).step_by(7) {
            session.ended(at(second), None, true);
            assert!(session.established(at(second), None));
        }
    }
}
