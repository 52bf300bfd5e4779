//! Heartbeats over a separate connection, while the client library has no connection.
//!
//! After each pass over its servers `zookeeper-client` pauses, for up to many seconds, and nothing
//! wakes it when a server is back; and a connection that it made during the outage may stay silent
//! after the outage. The lease may expire in that time. So while locks are held and their renewal
//! is overdue, this module tries all servers repeatedly, and the first server that resumes the
//! session gets a heartbeat (docs/protocol.md#spare-connection). Then the connection is closed, and
//! the session still belongs to the client library, whose next try moves it back to its own
//! connection.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::protocol::lease::{LeaseState, SpareTries};
use crate::session::dial::probe;
use crate::session::dial::servers::Address;
use crate::session::live::heartbeat::{HeartbeatConnection, beat};
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::threads::BoxFuture;
use crate::session::threads::background;

const NAME: &str = "zk-spare";

/// How to make spare connections for a session.
pub(crate) struct Spare {
    connector: zk::Connector,
    servers: Vec<Address>,
    info: zk::SessionInfo,
    tries: SpareTries,
    /// How long no spare connection is tried after a try that may have interrupted one of the
    /// client library's tries.
    pause_after_interruption: Duration,
}

/// The outcome of a try.
enum Tried {
    /// The server resumed the session for this handle.
    TakenUp(zk::Client),
    /// The servers answer with another session. ClickHouse Keeper does not resume sessions.
    Replaced,
    /// The server accepts no connection.
    NotConnected,
    /// The server accepts connections, but has closed this one.
    Closed,
    /// The server has not answered in time.
    Silent,
}

/// The outcome of all tries.
enum TakenUp {
    /// The server with this number resumed the session for this handle.
    By(usize, zk::Client),
    /// No lock is held any more, or no renewal can keep one.
    Unwanted,
    /// See [`Tried::Replaced`].
    Replaced,
}

/// The end of the tries.
#[derive(PartialEq, Eq)]
enum SpareOutcome {
    /// The session lease was renewed, or no longer needs to be.
    Done,
    /// The server with this number resumed the session, but did not commit the heartbeat.
    NotRenewed { server: usize },
    /// See [`Tried::Replaced`].
    Replaced,
}

/// The order in which the servers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    first: usize,
    /// The time between the tries of two consecutive servers.
    step: Duration,
}

impl Spare {
    /// Returns `None` if the session has ended.
    pub(crate) fn new(
        session: &Session,
        connector: zk::Connector,
        servers: Vec<Address>,
        server_timeout: Duration,
    ) -> Option<Self> {
        let info = session.handle()?.session().clone();
        // The connection is detached: its end must not end the session. A failure ends the try at
        // once, because `take_up_at` chooses the time of the next try.
        let connector = connector
            .with_session(info.clone())
            .with_detached()
            .with_fail_eagerly();
        let tries = session.lease.rule.spare_tries(server_timeout);
        // The client library's pause before the next try of a pass, and that try.
        let pause_after_interruption = server_timeout.saturating_mul(2);
        Some(Self {
            connector,
            servers,
            info,
            tries,
            pause_after_interruption,
        })
    }

    /// Returns the order that begins with the given server. The servers are not all tried at the
    /// same moment, because the first one that is back has usually answered before the next is
    /// tried.
    fn order(&self, first: usize) -> Order {
        let count = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        Order {
            first,
            step: self.tries.pause / count.max(1),
        }
    }

    /// Returns the order of the next tries, given the last order and the outcome of its tries;
    /// `None` if there are to be no more tries.
    fn next_order(&self, order: Order, outcome: &SpareOutcome) -> Option<Order> {
        match *outcome {
            SpareOutcome::Replaced => None,
            SpareOutcome::Done => Some(self.order(order.first.wrapping_add(1))),
            // Members that are back together take the session from each other, because the session
            // belongs to the connection that asked last. So this member is tried alone for a while.
            SpareOutcome::NotRenewed { server } => Some(Order {
                first: server,
                step: self.tries.limit,
            }),
        }
    }

    /// Sends a heartbeat by the first server that resumes the session, until no heartbeat is needed
    /// any more.
    async fn keep(&self, session: &Arc<Session>, order: Order) -> SpareOutcome {
        tokio::select! {
            biased;
            () = unneeded(session) => SpareOutcome::Done,
            outcome = self.renew(session, order) => outcome,
        }
    }

    /// Sends one heartbeat by the first server that resumes the session.
    async fn renew(&self, session: &Arc<Session>, order: Order) -> SpareOutcome {
        match self.take_up(session, order).await {
            // The drop of the handle closes the connection and, because it is detached, not the
            // session.
            TakenUp::By(server, handle) if self.beat_by(session, &handle).await => {
                log::debug!(
                    session = session.number.get(),
                    server,
                    "a heartbeat by a spare connection"
                );
                SpareOutcome::Done
            }
            TakenUp::By(server, _) => SpareOutcome::NotRenewed { server },
            TakenUp::Unwanted => SpareOutcome::Done,
            TakenUp::Replaced => SpareOutcome::Replaced,
        }
    }

    /// Sends a heartbeat over a connection for which the session was resumed. Returns whether the
    /// session lease was renewed.
    async fn beat_by(&self, session: &Arc<Session>, handle: &zk::Client) -> bool {
        let before = session.lease.last_renewal();
        // The flag is set before the heartbeat is sent, so that its renewal is not taken for one
        // over the client library's connection, whose clock knows nothing of it.
        session.set_kept_by_spare();
        // The client library ends the connection when the server is silent for too long.
        beat(&HeartbeatConnection {
            session,
            spare: Some(handle),
        })
        .await;
        // A heartbeat over a connection that has lost the session to another connection is not
        // committed, and renews nothing.
        session.lease.last_renewal() > before
    }

    /// Tries all servers, side by side, until one resumes the session. So a silent server delays no
    /// other.
    async fn take_up(&self, session: &Session, order: Order) -> TakenUp {
        let count = self.servers.len();
        let mut after = Duration::ZERO;
        let mut tries: Vec<BoxFuture<'_, TakenUp>> = Vec::with_capacity(count);
        for number in (0..count).map(|i| order.first.wrapping_add(i) % count) {
            let begins = tokio::time::sleep(after);
            after += order.step;
            tries.push(Box::pin(async move {
                begins.await;
                self.take_up_at(session, number).await
            }));
        }
        // The first try with a result decides. The other tries are dropped, which closes their
        // connections.
        poll_fn(|context| {
            tries
                .iter_mut()
                .map(|tried| tried.as_mut().poll(context))
                .find(Poll::is_ready)
                .unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Tries the server with this number until the server resumes the session.
    ///
    /// A silent try may stay silent although the server is back, or the server may only be slow. So
    /// the next try begins while the first is open. A server that is only slow then shows this,
    /// because it closes a connection of a session when another connection asks for the same
    /// session.
    async fn take_up_at(&self, session: &Session, number: usize) -> TakenUp {
        let Some(server) = self.servers.get(number) else {
            return TakenUp::Unwanted;
        };
        // At most two tries are open: the newest one and the one before it.
        let mut before: Option<BoxFuture<'_, Tried>> = None;
        while can_be_kept(session) {
            let mut newest: BoxFuture<'_, Tried> = Box::pin(self.try_once(session, server));
            let mut next = pin!(tokio::time::sleep(self.tries.next(left(session))));
            // `is_slow`: the server has closed the older try because of the newest one.
            // `is_silent`: the newest try has ended, and must not be polled again.
            let (mut is_slow, mut is_silent) = (false, false);
            let pause = loop {
                let tried = tokio::select! {
                    biased;
                    tried = &mut newest, if !is_silent => {
                        is_silent = matches!(tried, Tried::Silent);
                        tried
                    }
                    tried = open(&mut before) => {
                        before = None;
                        match tried {
                            Tried::Closed => {
                                // The server is alive, so the newest try may take all of its time:
                                // no further try begins before it ends.
                                is_slow = true;
                                continue;
                            }
                            // The newest try is still open, and its outcome counts.
                            Tried::NotConnected | Tried::Silent => continue,
                            tried => tried,
                        }
                    }
                    // A connection that was made during the outage may stay silent after it, so
                    // another one is made while this one is open.
                    () = &mut next, if !is_slow || is_silent => break None,
                };
                match tried {
                    Tried::TakenUp(handle) => return TakenUp::By(number, handle),
                    Tried::Replaced => return TakenUp::Replaced,
                    // A refused try has interrupted no other connection, so the next follows soon.
                    Tried::NotConnected => break Some(self.tries.pause),
                    // Either the server closed this try because of the client library's try, or the
                    // reverse. No spare connection is tried for a while, so that the client
                    // library's try can finish.
                    Tried::Closed => break Some(self.pause_after_interruption),
                    Tried::Silent if is_slow => break Some(self.pause_after_interruption),
                    // The next try begins at once, because its time comes before the limit of this
                    // one.
                    Tried::Silent => {}
                }
            };
            match pause {
                Some(pause) => {
                    // Both connections are closed before the pause, so that neither takes the
                    // session from the client library's connection.
                    before = None;
                    drop(newest);
                    tokio::time::sleep(pause).await;
                }
                None => before = Some(newest).filter(|_| !is_silent),
            }
        }
        TakenUp::Unwanted
    }

    async fn try_once(&self, session: &Session, server: &Address) -> Tried {
        let connected = self.connector.clone().connect(&server.given);
        let error = match tokio::time::timeout(self.tries.limit, connected).await {
            Ok(Ok(handle)) if handle.session_id() == self.info.id() => {
                return Tried::TakenUp(handle);
            }
            Ok(Ok(_)) => return Tried::Replaced,
            Ok(Err(error)) => Some(error),
            Err(_) => None,
        };
        log::debug!(
            session = session.number.get(),
            server = &server.given,
            ?error,
            "no spare connection"
        );
        if error.is_none() {
            return Tried::Silent;
        }
        // The client library does not report whether the server refused the connection or closed
        // it. A server that reports the session as expired counts as one that has closed the
        // connection: the client library gets the same report from its own try.
        if probe::accepts(server, self.tries.pause).await {
            Tried::Closed
        } else {
            Tried::NotConnected
        }
    }
}

/// Waits for the end of a try that is still open.
async fn open(before: &mut Option<BoxFuture<'_, Tried>>) -> Tried {
    match before {
        Some(tried) => tried.await,
        None => pending().await,
    }
}

/// Sends heartbeats of a session by spare connections, until it ends.
pub(crate) async fn run(session: Arc<Session>, spare: Spare) {
    let Some(mut states) = session.states() else {
        return;
    };
    let spare = Arc::new(spare);
    // The session id spreads the clients over the servers, so that not all begin with the same
    // server.
    let start = usize::try_from(session.session_id.unsigned_abs()).unwrap_or_default();
    let mut order = spare.order(start);
    loop {
        // With a connection of the client library, the task waits for the next change of the state.
        let is_away = states.peek_state() == zk::SessionState::Disconnected;
        tokio::select! {
            biased;
            _ = session.ended() => return,
            _ = states.changed() => continue,
            () = tokio::time::sleep(spare.tries.pause), if is_away => {}
        }
        if !is_due(&session, spare.tries.from) {
            continue;
        }
        let outcome = keep_on_thread(&session, &spare, order).await;
        let Some(next) = spare.next_order(order, &outcome) else {
            return;
        };
        order = next;
    }
}

/// Runs [`Spare::keep`] on a separate runtime. The end of the runtime also ends the tasks that the
/// client library has spawned in it, which would otherwise reconnect later and take the session
/// away from its other connection.
async fn keep_on_thread(session: &Arc<Session>, spare: &Arc<Spare>, order: Order) -> SpareOutcome {
    let (done, outcome) = oneshot::channel();
    let (session, spare) = (Arc::clone(session), Arc::clone(spare));
    let keeping = async move {
        // The receiver is gone if the client is.
        let _ = done.send(spare.keep(&session, order).await);
    };
    if let Err(error) = background::start(NAME, keeping) {
        log::debug!(%error, "no thread could be started for a spare connection");
    }
    // An error means that no thread could be started, or that it panicked in a log line of the
    // client library.
    outcome.await.unwrap_or(SpareOutcome::Done)
}

/// Returns whether locks are held that a renewal can still keep.
fn can_be_kept(session: &Session) -> bool {
    session.holds.any() && session.lease.state() != LeaseState::Expired
}

/// Returns whether locks are held whose lease has not been renewed for at least this time.
fn is_due(session: &Session, from: Duration) -> bool {
    let (last_renewal, now) = session.lease.last_renewal_and_now();
    can_be_kept(session) && last_renewal.is_some_and(|renewal| now.since(renewal) >= from)
}

/// Returns how much of the lease is left without a renewal.
fn left(session: &Session) -> Duration {
    let (last_renewal, now) = session.lease.last_renewal_and_now();
    let age = last_renewal.map_or(Duration::MAX, |renewal| now.since(renewal));
    session.lease.rule.duration().saturating_sub(age)
}

/// Waits until the session has a connection again, or has ended, or its lease has.
async fn unneeded(session: &Session) {
    let Some(mut states) = session.states() else {
        return;
    };
    tokio::select! {
        _ = session.ended() => {}
        () = tokio::time::sleep(left(session)) => {}
        () = async {
            while states.peek_state() == zk::SessionState::Disconnected {
                states.changed().await;
            }
        } => {}
    }
}

#[cfg(test)]
mod tests {
    use zookeeper_test_server::{Match, Op, Server};

    use super::*;
    use crate::protocol::numbers::SessionNumber;
    use crate::session::dial::servers::Servers;
    use crate::session::live::zk_session::SessionOptions;

    /// Members that are back together take the session from each other until one of them is asked
    /// alone: no other is tried before the next round of this one.
    // Shows: spare-connection
    #[tokio::test]
    async fn unrenewed_member_is_tried_alone() {
        let server = Server::start().unwrap();
        let connector = zk::Client::connector();
        let handle = connector
            .clone()
            .connect(&server.connect_string())
            .await
            .unwrap();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        let members = Servers::parse("a,b,c").unwrap().addresses;
        let spare = Spare::new(&session, connector, members, Duration::from_secs(1)).unwrap();
        let before = spare.order(0);
        assert_eq!(before.step, spare.tries.pause / 3);
        let next = |outcome| spare.next_order(before, &outcome);
        assert_eq!(next(SpareOutcome::Done), Some(spare.order(1)));
        assert_eq!(next(SpareOutcome::Replaced), None);
        let alone = next(SpareOutcome::NotRenewed { server: 2 }).unwrap();
        assert_eq!(alone.first, 2);
        assert!(alone.step > spare.tries.next(left(&session)));
    }

    /// The client library hears nothing of it, and may give the session up by its clock although
    /// the servers have just renewed it.
    // Shows: close-confirmed
    #[tokio::test]
    async fn spare_connection_prevents_assumed_expiry() {
        let server = Server::start().unwrap();
        let (connector, servers) = (zk::Client::connector(), server.connect_string());
        let handle = connector.clone().connect(&servers).await.unwrap();
        let session = Session::new(SessionNumber::FIRST, handle, SessionOptions::default());
        let addresses = Servers::parse(&servers).unwrap().addresses;
        let spare = Spare::new(&session, connector, addresses, Duration::from_secs(1)).unwrap();
        // The client library's, which would move the session back.
        let _connect = server.hold_request(Match::op(Op::Connect).nth(1));
        let Tried::TakenUp(handle) = spare.try_once(&session, &spare.servers[0]).await else {
            panic!("the session was not taken up");
        };
        assert!(spare.beat_by(&session, &handle).await);
        assert!(session.lease.is_valid() && session.last_own_renewal().is_none());
        session.expired();
        assert!(!session.is_expired_by_servers());
        session.connected();
        assert!(session.last_own_renewal().is_some());
    }
}
