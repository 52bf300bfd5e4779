//! The session lease: how long the locks of a session are valid after its last renewal.
//!
//! The servers expire a session that they have not heard of for its timeout T, and then grant its
//! locks to others. A client without a connection is not told. So each client counts the time
//! itself: a [`Lease`] begins with each renewal and ends before the servers can expire the session,
//! and the locks end with the lease (docs/protocol.md#lease). All functions compare the age of
//! the last renewal with two limits:
//!
//! - after two heartbeat intervals a renewal is overdue, and the lease is *suspended*: the locks
//!   are still valid, but no further lock is granted (docs/protocol.md#suspended);
//! - after its duration, 2/3 of T by default, the lease is *expired*, and all locks are lost.
//!
//! While the session holds locks, a heartbeat is sent each T/6 by default, which renews the lease
//! and checks the nodes. While the session only has nodes that wait, a heartbeat is sent when no
//! other write has renewed the lease for that time. Without a connection, [`SpareTries`] says when
//! to send a heartbeat by a separate connection (docs/protocol.md#spare-connection).
//!
//! # What renews a lease
//! The reply to a *committed write* of the session renews it, counted from the moment the write was
//! sent. A write needs the leader and a quorum. Reads, pings and even `sync` are answered for ten
//! seconds and more by a member that is cut off from the quorum, while the rest of the ensemble
//! expires the session and grants its locks to others (measured: docs/protocol.md#renewal).
//!
//! # How long a lease lasts
//! The servers expire a session no earlier than T after they last heard of it. The leader may have
//! last heard of the session up to half a tick before the write was sent, since a follower reports
//! its sessions only that often. The margin of T/3 covers this delay for any one interruption, with
//! members attached to the leader directly. The strict margin of 0.7 T also covers links that come
//! and go, and observers behind an observer master (docs/protocol.md#lease).

use std::time::Duration;

use crate::protocol::moment::Moment;

/// The safety margin, by which the session lease is shorter than the session timeout.
///
/// The session lease is the time for which a lock is held after the last renewal.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let servers = server.connect_string();
/// use zookeeper_recipes::{Client, LeaseMargin};
///
/// // With a session timeout of 30 s a lock is lost 9 s after its last renewal, instead of 20 s.
/// let client = Client::builder().margin(LeaseMargin::Strict).connect(&servers).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseMargin {
    /// A third of the session timeout. Safe for a single interruption at a time, with servers that
    /// talk to the leader directly. The default.
    #[default]
    Standard,
    /// 0.7 of the session timeout: a lock is lost after 0.3 of it without a renewal. Safe also for
    /// links that come and go, and for servers behind an observer master.
    Strict,
}

/// How long the locks of one session are valid after a renewal.
#[derive(Clone, Copy)]
pub(crate) struct Lease {
    timeout: Duration,
    margin: Duration,
    heartbeat_interval: Duration,
}

/// When spare connections are tried while the session has none (docs/protocol.md#spare-connection).
#[derive(Clone, Copy)]
pub(crate) struct SpareTries {
    /// How old the last renewal is at the first try.
    pub(crate) from: Duration,
    /// The pause before a server that refuses is tried again: the shortest time between two tries.
    pub(crate) pause: Duration,
    /// How long one server may take to resume the session.
    pub(crate) limit: Duration,
}

impl SpareTries {
    /// Returns how long after the beginning of a silent try the next begins, if `left` of the lease
    /// is left: a third of `left`. A server that is back, behind connections that stay silent, is
    /// then found with two thirds of `left`, and by few tries. The time is always less than the
    /// limit, so that the next try begins while the silent one is open.
    pub(crate) fn next(self, left: Duration) -> Duration {
        (left / 3).max(self.pause).min(self.limit * 3 / 4)
    }
}

/// The least time that one server has to resume a session: three round trips, and more with TLS.
const MIN_SPARE_LIMIT: Duration = Duration::from_millis(100);

/// The state of a session lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// The lease has been renewed in time.
    Valid,
    /// A renewal is overdue: nothing is granted until the next one.
    Suspended,
    /// The servers may have expired the session and granted its locks to others.
    Expired,
}

impl Lease {
    pub(crate) fn new(timeout: Duration, margin: LeaseMargin) -> Self {
        let margin = match margin {
            // The margin covers the late report of a follower (docs/protocol.md#lease).
            LeaseMargin::Standard => timeout / 3,
            // The margin also covers links that fail repeatedly, and members behind an observer.
            LeaseMargin::Strict => timeout * 7 / 10,
        };
        Self {
            timeout,
            margin,
            // With the strict margin the lease lasts for 0.3 T. T/6 would be more than half of
            // that, so the interval is T/10 then.
            heartbeat_interval: (timeout / 6).min(timeout.saturating_sub(margin) / 3),
        }
    }

    /// Returns the time between two heartbeats: T/6, or a third of the lease's duration if that is
    /// less, so that one heartbeat can be lost and the next be answered before the lease expires.
    ///
    /// Other times depend on the interval. The lease is suspended after two intervals without a
    /// renewal. An attempt whose list is older than three intervals lists again before it is
    /// granted the lock. The first try of a spare connection has to come later than one interval
    /// after the last renewal. Where no watch can be set, the interval is the period of a poll.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }

    /// Returns when spare connections are tried: from a little after a heartbeat would have been
    /// sent, so that the client library's first tries come first, and often enough to find a server
    /// that is back just before the lease expires.
    ///
    /// A try ends before the client library ends a silent connection, which happens after the
    /// server timeout. Otherwise an ended connection would not show whether the server or the
    /// library has ended it.
    pub(crate) fn spare_tries(&self, server_timeout: Duration) -> SpareTries {
        let duration = self.duration();
        SpareTries {
            // When a connection is lost, the last renewal is usually at most one heartbeat interval
            // old: a quarter of the lease's duration, or a third with the strict margin.
            from: duration * 3 / 8,
            pause: duration / 40,
            limit: (duration / 6)
                .max(MIN_SPARE_LIMIT)
                .min(server_timeout * 3 / 4),
        }
    }

    /// Returns how long the lease is valid after a renewal.
    pub(crate) fn duration(&self) -> Duration {
        self.timeout.saturating_sub(self.margin)
    }

    /// Returns after how long without a renewal one is overdue.
    fn suspended_after(&self) -> Duration {
        self.heartbeat_interval() * 2
    }

    /// Returns the state of the lease at `now`.
    pub(crate) fn state(&self, last_renewal: Option<Moment>, now: Moment) -> LeaseState {
        let Some(last_renewal) = last_renewal else {
            // No write of this session has been answered yet, so nothing proves how long the
            // servers will keep the session.
            return LeaseState::Expired;
        };
        // A lease ends at its last moment, not after it: the servers may expire the session then.
        let age = now.since(last_renewal);
        if age >= self.duration() {
            LeaseState::Expired
        } else if age >= self.suspended_after() {
            LeaseState::Suspended
        } else {
            LeaseState::Valid
        }
    }

    /// Returns how long until the state gets worse without a renewal. If the lease has expired,
    /// returns a heartbeat interval: a lock that is granted after a renewal in the meantime is
    /// valid for longer than that.
    pub(crate) fn until_next_state(&self, last_renewal: Option<Moment>, now: Moment) -> Duration {
        // The lease thread sleeps for the returned time. A zero would make it spin, so a limit that
        // has just been reached is skipped.
        let age = last_renewal.map_or(Duration::MAX, |renewal| now.since(renewal));
        [self.suspended_after(), self.duration()]
            .into_iter()
            .find_map(|limit| limit.checked_sub(age).filter(|left| !left.is_zero()))
            .unwrap_or_else(|| self.heartbeat_interval())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::server_timeout::ServerTimeout;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn state(margin: LeaseMargin, age: Duration) -> LeaseState {
        let renewal = Moment::at(S(100));
        Lease::new(S(30), margin).state(Some(renewal), Moment::at(S(100) + age))
    }

    // Shows: lease
    #[test]
    fn lease_lasts_two_thirds_of_timeout() {
        let just_before = S(20) - Duration::from_nanos(1);
        assert_eq!(state(LeaseMargin::Standard, S(9)), LeaseState::Valid);
        assert_eq!(state(LeaseMargin::Standard, S(10)), LeaseState::Suspended);
        assert_eq!(
            state(LeaseMargin::Standard, just_before),
            LeaseState::Suspended
        );
        assert_eq!(state(LeaseMargin::Standard, S(20)), LeaseState::Expired);
    }

    // Shows: lease
    #[test]
    fn strict_margin_is_three_tenths() {
        assert_eq!(state(LeaseMargin::Strict, S(5)), LeaseState::Valid);
        assert_eq!(state(LeaseMargin::Strict, S(6)), LeaseState::Suspended);
        assert_eq!(state(LeaseMargin::Strict, S(9)), LeaseState::Expired);
    }

    #[test]
    fn unrenewed_lease_has_expired() {
        assert_eq!(
            Lease::new(S(30), LeaseMargin::Standard).state(None, Moment::at(S(0))),
            LeaseState::Expired
        );
    }

    #[test]
    fn next_check_is_at_state_change() {
        for margin in [LeaseMargin::Standard, LeaseMargin::Strict] {
            let (lease, renewal) = (Lease::new(S(30), margin), Moment::at(S(100)));
            let mut now = renewal;
            let mut seen = vec![lease.state(Some(renewal), now)];
            for _ in 0..2 {
                let left = lease.until_next_state(Some(renewal), now);
                let before = now.plus(left - Duration::from_nanos(1));
                assert_eq!(
                    lease.state(Some(renewal), before),
                    seen[seen.len() - 1],
                    "{margin:?}"
                );
                now = now.plus(left);
                seen.push(lease.state(Some(renewal), now));
            }
            assert_eq!(
                seen,
                [
                    LeaseState::Valid,
                    LeaseState::Suspended,
                    LeaseState::Expired
                ],
                "{margin:?}"
            );
            for over in [Some(renewal), None] {
                assert_eq!(
                    lease.until_next_state(over, now),
                    lease.heartbeat_interval(),
                    "{margin:?}"
                );
            }
            // A lock that is granted right after that check is still valid at the next one.
            assert!(
                lease.duration() - lease.heartbeat_interval() * 2 >= lease.heartbeat_interval(),
                "{margin:?}"
            );
        }
    }

    // Shows: lease
    #[test]
    fn lost_heartbeat_fits_either_margin() {
        for margin in [LeaseMargin::Standard, LeaseMargin::Strict] {
            let lease = Lease::new(S(30), margin);
            // The one after it still has a whole interval to be answered in.
            assert!(
                lease.heartbeat_interval() * 3 <= lease.duration(),
                "{margin:?}"
            );
        }
    }

    /// Returns the spare tries of a client with the default connect timeout.
    fn spare_tries(lease: Lease) -> SpareTries {
        let connect_timeout = Duration::from_secs(5);
        lease.spare_tries(ServerTimeout::default().duration(lease.timeout, connect_timeout))
    }

    /// Servers that are back 0.45 T after they went away are found before the lease expires,
    /// wherever between two heartbeats they went, for any reconnects of the client library.
    // Shows: spare-connection
    #[test]
    fn spare_tries_find_returning_servers() {
        // Times are in ms. With the strict margin the lease is shorter, and so is the outage.
        for (margin, outage) in [(LeaseMargin::Standard, 450), (LeaseMargin::Strict, 190)] {
            for timeout in [500, 2_000, 6_000, 15_000, 30_000, 120_000] {
                let lease = Lease::new(Duration::from_millis(timeout), margin);
                let tries = spare_tries(lease);
                let SpareTries { from, pause, limit } = tries;
                assert!(
                    from > lease.heartbeat_interval(),
                    "its answer is awaited first"
                );
                let server_timeout =
                    ServerTimeout::default().duration(lease.timeout, Duration::from_secs(5));
                assert!(limit < server_timeout, "the client library ends it first");
                assert!(
                    tries.next(lease.duration()) < limit && tries.next(Duration::ZERO) < limit,
                    "the next begins while a silent one is open"
                );
                assert!(
                    limit < lease.duration(),
                    "one server does not take all the time"
                );
                let tries: Vec<Duration> = (0..)
                    .map(|round| from + pause * round)
                    .take_while(|&since_renewal| since_renewal < lease.duration())
                    .collect();
                assert!(
                    tries.len() <= 26,
                    "of a server, in one outage: {}",
                    tries.len()
                );
                for phase in 0..=20 {
                    let back = lease.heartbeat_interval() * phase / 20
                        + Duration::from_millis(timeout * outage / 1_000);
                    let found = tries.iter().find(|&&since_renewal| since_renewal >= back);
                    let left = found.map(|&found| lease.duration() - found);
                    assert!(
                        left > Some(lease.duration() / 200),
                        "{margin:?} {timeout} {phase}: {left:?}"
                    );
                }
            }
        }
    }

    /// When the tries of a server that stays silent begin, since the last renewal, if the first
    /// begins at `from`.
    fn silent_tries(lease: Lease, from: Duration) -> Vec<Duration> {
        let left = |at: Duration| lease.duration().saturating_sub(at);
        let next = |at: &Duration| Some(*at + spare_tries(lease).next(left(*at)));
        std::iter::successors(Some(from), next)
            .take_while(|&at| at < lease.duration())
            .collect()
    }

    /// Connections that were made before and during an outage stay silent behind it. Another is
    /// made before the lease expires, whenever the client notices the outage, with a thirtieth of
    /// the session timeout to take the session up, and by few tries.
    // Shows: spare-connection
    #[test]
    fn silent_servers_are_found_in_time() {
        for timeout in [2_000, 3_000, 6_000, 15_000, 30_000, 120_000] {
            let timeout = Duration::from_millis(timeout);
            let lease = Lease::new(timeout, LeaseMargin::Standard);
            let from = spare_tries(lease).from;
            let longest = lease.heartbeat_interval() + timeout * 45 / 100;
            for part in 0..=20 {
                let noticed = from + (longest - from) * part / 20;
                let tries = silent_tries(lease, noticed);
                // From 75 s on, a try of one server begins every 0.94 s at most.
                let most = if timeout.as_secs() <= 6 { 10 } else { 60 };
                assert!(tries.len() <= most, "{timeout:?}: {}", tries.len());
                for part in 0..=100 {
                    let back = longest * part / 100;
                    let found = tries.iter().find(|&&at| at >= back).copied();
                    let left = found.map_or(Duration::ZERO, |found| lease.duration() - found);
                    assert!(
                        left + Duration::from_micros(1) >= timeout / 30,
                        "{timeout:?}, noticed at {noticed:?}, back at {back:?}: {left:?}"
                    );
                }
            }
        }
    }
}
