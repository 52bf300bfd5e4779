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

use super::clock::Moment;

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
    /// How many in a row were in vain, and when the first of them ended.
    vain: Option<(u32, Moment)>,
}

impl Connections {
    /// Those of a session that was established at `now`.
    pub(crate) fn new(patience: Duration, session_timeout: Duration, now: Moment) -> Self {
        Self { patience, session_timeout, since: Some(now), vain: None }
    }

    /// A connection has ended. `proof` is when the last write was sent that was answered; `wanted` is whether there was
    /// anything to write.
    ///
    /// It was in vain if no write was answered on it although it lasted as long as the patience. One that lasted less
    /// was ended by something else, and says nothing.
    pub(crate) fn ended(&mut self, now: Moment, proof: Option<Moment>, wanted: bool) {
        let Some(since) = self.since.take() else { return };
        if !wanted || proof.is_some_and(|proof| proof >= since) {
            self.vain = None;
        } else if now.since(since) >= self.patience {
            let (count, first) = self.vain.unwrap_or((0, now));
            self.vain = Some((count.saturating_add(1), first));
        }
    }

    /// There is a connection again. False if the session is of no use: at least two connections were in vain, for a whole
    /// session timeout, and more patience might help. Whatever was held in it is lost by then.
    pub(crate) fn established(&mut self, now: Moment) -> bool {
        self.since = Some(now);
        let useless =
            self.vain.is_some_and(|(count, first)| count >= 2 && now.since(first) >= self.session_timeout);
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

    #[test]
    fn connections_in_vain_for_a_session_timeout_are_enough() {
        let mut session = session();
        session.ended(at(2), None, true);
        for second in (2..18).step_by(2) {
            assert!(session.established(at(second)), "{second}");
            session.ended(at(second + 2), None, true);
        }
        assert!(!session.established(at(18)));
    }

    #[test]
    fn one_is_not_enough_however_long_ago() {
        let mut session = session();
        session.ended(at(2), None, true);
        assert!(session.established(at(100)));
    }

    #[test]
    fn an_answered_write_makes_up_for_what_was_before() {
        let mut session = session();
        session.ended(at(2), None, true);
        assert!(session.established(at(2)));
        session.ended(at(10), Some(at(3)), true);
        assert!(session.established(at(10)));
        session.ended(at(20), Some(at(3)), true);
        assert!(session.established(at(20)));
    }

    #[test]
    fn one_on_which_nothing_was_wanted_is_not_in_vain() {
        let mut session = session();
        for second in (2..100).step_by(2) {
            session.ended(at(second), None, false);
            assert!(session.established(at(second)));
        }
    }

    #[test]
    fn one_that_broke_before_the_patience_was_over_says_nothing() {
        let mut session = session();
        for second in 1..100 {
            session.ended(at(second), None, true);
            assert!(session.established(at(second)));
        }
    }

    #[test]
    fn a_patience_that_cannot_grow_gives_no_session_up() {
        let mut session = Connections::new(MS(6_400), T, at(0));
        for second in (7..100).step_by(7) {
            session.ended(at(second), None, true);
            assert!(session.established(at(second)));
        }
    }
}
