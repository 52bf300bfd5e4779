//! How long a server may be silent before its connection is given up.
//!
//! A hung server must not use up the time of the others. A lease lasts 2/3 of the session timeout
//! T, of which 1/6 may pass before the first heartbeat that is not answered. With T/8 for each
//! server there is time for the server that the session is connected to and for two more that hang.
//! `zookeeper-client` itself waits for 2/5 of T.
//!
//! If every server takes longer than T/8 to commit, all of them look hung: each connection is cut
//! before the reply to a write arrives. Such a session is *stalled*. The client library fixes the
//! server timeout of a session when it connects, so a stalled session is ended, and the next one
//! has twice the server timeout, up to 2/5 of T (docs/protocol.md#server-timeout).
//!
//! [`ConnectionHistory`] recognizes a stalled session by its connections:
//!
//! 1. A connection is *fruitless* if it lasted for the server timeout, there was something to
//!    write, and no write was answered on it. A connection with an answer ends the series.
//! 2. The session is stalled at the first new connection after two fruitless ones, if the first of
//!    them ended T ago and no write of the last T has been answered. Its locks are lost already.
//!
//! [`ServerTimeout`] remembers the doublings, and forgets them after a session that lived for ten
//! T: the servers may be quick again.

use std::time::Duration;

use crate::protocol::moment::Moment;

/// The least server timeout: a server that is silent for less than this is merely busy.
const MIN_SERVER_TIMEOUT: Duration = Duration::from_millis(500);

/// A session that lived for this many session timeouts was healthy: the next one starts with the
/// initial server timeout again.
const HEALTHY_SESSION_TIMEOUTS: u32 = 10;

/// How long a server may be silent in the next session: grows while sessions stall.
#[derive(Clone, Copy, Default)]
pub(crate) struct ServerTimeout {
    doublings: u32,
}

impl ServerTimeout {
    /// Returns how long a server may be silent in a session with this timeout.
    pub(crate) fn duration(self, session_timeout: Duration, connect_timeout: Duration) -> Duration {
        let initial = (session_timeout / 8)
            .min(connect_timeout / 3)
            .max(MIN_SERVER_TIMEOUT);
        // A short session timeout can make the least server timeout longer than 2/5 of T, which
        // must not shorten the initial server timeout.
        let doubled = initial.saturating_mul(2_u32.saturating_pow(self.doublings));
        doubled.min(max_server_timeout(session_timeout).max(initial))
    }

    /// Doubles the server timeout, after a session that stalled.
    pub(crate) fn double(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }

    /// Goes back to the initial server timeout if a session lived for long: the servers may be
    /// quick again.
    pub(crate) fn reset_after(&mut self, session_age: Duration, session_timeout: Duration) {
        if session_age >= session_timeout.saturating_mul(HEALTHY_SESSION_TIMEOUTS) {
            self.doublings = 0;
        }
    }
}

/// The client library's own server timeout. A longer one would leave no time for a second server.
fn max_server_timeout(session_timeout: Duration) -> Duration {
    session_timeout / 5 * 2
}

/// Returns the server timeout that the client library uses once it knows the session timeout: it
/// replaces a timeout that is too long by its own.
pub(crate) fn effective(server_timeout: Duration, session_timeout: Duration) -> Duration {
    if server_timeout > session_timeout / 5 * 3 {
        max_server_timeout(session_timeout)
    } else {
        server_timeout
    }
}

/// The connections of one session, to tell a session that stalls: one in which the server timeout
/// cuts every connection before a write is answered.
pub(crate) struct ConnectionHistory {
    server_timeout: Duration,
    session_timeout: Duration,
    /// When the current connection was established; `None` while disconnected.
    connected_at: Option<Moment>,
    /// The last renewal when the previous connection ended.
    seen_renewal: Option<Moment>,
    /// How many connections in a row were fruitless, and when the first of them ended.
    fruitless: Option<(u32, Moment)>,
}

impl ConnectionHistory {
    /// The history of a session that was established at `now`.
    pub(crate) fn new(server_timeout: Duration, session_timeout: Duration, now: Moment) -> Self {
        Self {
            server_timeout,
            session_timeout,
            connected_at: Some(now),
            seen_renewal: None,
            fruitless: None,
        }
    }

    /// Records that the connection has ended. `last_renewal` is when the last write was sent that
    /// was answered; `in_use` is whether there was anything to write.
    ///
    /// The connection was fruitless if no write was answered on it although it lasted for the
    /// server timeout. A connection that lasted for less was ended by something else, which says
    /// nothing about the server timeout.
    ///
    /// A write counts for the connection on which it was answered. The write may have been sent
    /// before this history knew of the connection (queued while there was none, or by a task that
    /// saw the connection first). So the time of sending does not count, only that the renewal is
    /// new.
    pub(crate) fn disconnected(&mut self, now: Moment, last_renewal: Option<Moment>, in_use: bool) {
        let Some(connected_at) = self.connected_at.take() else {
            return;
        };
        // Renewals are compared, not counted: any write that was answered moves the last renewal.
        let answered = std::mem::replace(&mut self.seen_renewal, last_renewal) != last_renewal;
        // A session without a lock has nothing to write, so its silence does not count.
        if !in_use || answered {
            self.fruitless = None;
        } else if now.since(connected_at) >= self.server_timeout {
            let (count, first) = self.fruitless.unwrap_or((0, now));
            self.fruitless = Some((count.saturating_add(1), first));
        }
    }

    /// Records a new connection. Returns `false` if the session has stalled: at least two
    /// connections were fruitless, the first of them ended a session timeout ago, no write of the
    /// last session timeout has been answered, and a longer server timeout might help. Every lock
    /// of such a session is lost already, and the servers may have granted it to another process,
    /// so ending the session costs nothing.
    pub(crate) fn connected(&mut self, now: Moment, last_renewal: Option<Moment>) -> bool {
        self.connected_at = Some(now);
        let long_ago = |moment| now.since(moment) >= self.session_timeout;
        let fruitless = self
            .fruitless
            .is_some_and(|(count, first)| count >= 2 && long_ago(first));
        // The last renewal may have been answered on a connection that ended early, which is not
        // counted as fruitless.
        let stalled = fruitless && last_renewal.is_none_or(long_ago);
        // A session that already has the greatest server timeout would not be helped by another.
        !stalled || self.server_timeout >= max_server_timeout(self.session_timeout)
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

    fn grown(times: u32) -> ServerTimeout {
        ServerTimeout { doublings: times }
    }

    /// The history of a session that is established in second 0, with a server timeout of 2 s.
    fn session() -> ConnectionHistory {
        ConnectionHistory::new(S(2), T, at(0))
    }

    #[test]
    fn starts_at_eighth_of_session_timeout() {
        assert_eq!(ServerTimeout::default().duration(T, S(60)), S(2));
        // At most a third of the connect timeout, and at least half a second.
        assert_eq!(ServerTimeout::default().duration(T, S(3)), S(1));
        assert_eq!(ServerTimeout::default().duration(T, S(1)), MS(500));
        assert_eq!(ServerTimeout::default().duration(S(1), S(60)), MS(500));
    }

    #[test]
    fn doubles_up_to_two_fifths() {
        let mut timeout = ServerTimeout::default();
        timeout.double();
        assert_eq!(timeout.duration(T, S(60)), S(4));
        assert_eq!(grown(2).duration(T, S(60)), MS(6_400));
        assert_eq!(grown(u32::MAX).duration(T, S(60)), MS(6_400));
        // An initial one above that stays.
        assert_eq!(grown(1).duration(S(1), S(60)), MS(500));
        assert_eq!(
            grown(u32::MAX).duration(Duration::MAX, Duration::MAX),
            Duration::MAX / 5 * 2
        );
    }

    #[test]
    fn library_replaces_too_long_timeout() {
        assert_eq!(effective(S(9), S(15)), S(9), "three fifths are not");
        assert_eq!(effective(S(9) + MS(1), S(15)), S(6));
    }

    // Shows: server-timeout
    #[test]
    fn long_session_resets_the_timeout() {
        let mut timeout = grown(2);
        timeout.reset_after(10 * T - MS(1), T);
        assert_eq!(timeout.duration(T, S(60)), grown(2).duration(T, S(60)));
        timeout.reset_after(10 * T, T);
        assert_eq!(timeout.duration(T, S(60)), S(2));
    }

    /// Returns the second in which the session stalls; `None` if it does not within 100 s. The
    /// first connection ends in second `from`, each further one 2 s later; `renewal` is the last
    /// renewal before that.
    fn stalls_from(
        mut session: ConnectionHistory,
        from: u64,
        renewal: impl Fn(u64) -> Option<u64>,
    ) -> Option<u64> {
        (from..100).step_by(2).find(|&second| {
            let renewal = renewal(second).map(at);
            session.disconnected(at(second), renewal, true);
            !session.connected(at(second), renewal)
        })
    }

    fn stalls(session: ConnectionHistory, renewal: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        stalls_from(session, 2, renewal)
    }

    // Shows: server-timeout
    #[test]
    fn fruitless_connections_stall_a_session() {
        assert_eq!(stalls(session(), |_| None), Some(18));
        // The one answered write was answered on the first connection.
        assert_eq!(stalls(session(), |_| Some(0)), Some(20));
    }

    /// A heartbeat is sent as soon as there is a connection, which may be before the history knows
    /// of it.
    #[test]
    fn write_before_seen_connection_counts() {
        assert_eq!(
            stalls(session(), |second| Some(second.saturating_sub(3))),
            None
        );
        // None is after second 40: the first fruitless connection is the one that ends in
        // second 42.
        assert_eq!(
            stalls(session(), |second| Some(second.min(40).saturating_sub(3))),
            Some(58)
        );
    }

    #[test]
    fn answer_between_two_connections_counts() {
        let mut session = session();
        for second in (2..200).step_by(2) {
            session.disconnected(at(second), Some(at(second - 2)), second > 4);
            assert!(
                session.connected(at(second), Some(at(second - 1))),
                "{second}"
            );
        }
    }

    #[test]
    fn answered_write_keeps_session_one_timeout() {
        let mut session = session();
        for second in (2..18).step_by(2) {
            session.disconnected(at(second), None, true);
            assert!(session.connected(at(second), None), "{second}");
        }
        // The answer has come since the last connection ended.
        session.disconnected(at(18), None, true);
        assert!(session.connected(at(18), Some(at(5))));
        assert!(session.connected(at(20), Some(at(5))));
        assert!(!session.connected(at(21), Some(at(5))));
    }

    /// An answer that came while the session was not in use is not counted again later.
    #[test]
    fn answer_counts_once() {
        let mut session = session();
        session.disconnected(at(2), Some(at(1)), false);
        assert!(session.connected(at(2), Some(at(1))));
        assert_eq!(stalls_from(session, 4, |_| Some(1)), Some(20));
    }

    #[test]
    fn single_fruitless_connection_stalls_nothing() {
        let mut session = session();
        session.disconnected(at(2), None, true);
        assert!(session.connected(at(100), None));
    }

    #[test]
    fn answered_write_clears_fruitless_connections() {
        let mut session = session();
        session.disconnected(at(2), None, true);
        assert!(session.connected(at(2), None));
        session.disconnected(at(10), Some(at(3)), true);
        assert!(session.connected(at(10), None));
        session.disconnected(at(20), Some(at(3)), true);
        assert!(session.connected(at(20), None));
    }

    #[test]
    fn connection_without_write_is_not_fruitless() {
        let mut session = session();
        for second in (2..100).step_by(2) {
            session.disconnected(at(second), None, false);
            assert!(session.connected(at(second), None));
        }
    }

    #[test]
    fn early_disconnect_is_not_fruitless() {
        let mut session = session();
        for second in 1..100 {
            session.disconnected(at(second), None, true);
            assert!(session.connected(at(second), None));
        }
    }

    #[test]
    fn fixed_server_timeout_stalls_no_session() {
        let mut session = ConnectionHistory::new(MS(6_400), T, at(0));
        for second in (7..100).step_by(7) {
            session.disconnected(at(second), None, true);
            assert!(session.connected(at(second), None));
        }
    }
}
