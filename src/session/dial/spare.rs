//! Heartbeats by a separate connection, while the session has none.
//!
//! After each pass over its servers `zookeeper-client` pauses, for up to many seconds, and nothing
//! wakes it when a server is back; and a connection that it has made during the outage may stay
//! silent behind it. The lease does not wait for that: while locks are held and their renewal is
//! overdue, all servers are tried, again and again, and the first that takes the session up gets a
//! heartbeat (docs/protocol.md#spare-connection). The connection is closed after that, and the
//! session stays the client library's, whose next try moves it back.

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

/// The name of the threads. Linux shows at most fifteen characters.
const NAME: &str = "zk-spare";

/// How spare connections of a session are made.
pub(crate) struct Spare {
    connector: zk::Connector,
    servers: Vec<Address>,
    info: zk::SessionInfo,
    tries: SpareTries,
    /// How long the client library is left alone after a try that may have interrupted one of the
    /// library's tries.
    rest: Duration,
}

/// The outcome of a try.
enum Tried {
    /// The session was taken up by this handle.
    TakenUp(zk::Client),
    /// The servers answer with another session. That of ClickHouse Keeper's cannot be taken up.
    Replaced,
    /// The server accepts no connection.
    NotConnected,
    /// The server accepts connections, and has ended this one.
    Closed,
    /// The server has not answered in time.
    Silent,
}

/// The outcome of all tries.
enum TakenUp {
    /// The server with this number has let this handle take the session up.
    By(usize, zk::Client),
    /// No lock is held any more, or none can be kept.
    Unwanted,
    /// See [`Tried::Replaced`].
    Replaced,
}

/// The end of the tries.
#[derive(PartialEq, Eq)]
enum SpareOutcome {
    /// The session lease was renewed, or that is not wanted any more.
    Done,
    /// The server with this number took the session up, and did not commit the heartbeat.
    NotRenewed { server: usize },
    /// See [`Tried::Replaced`].
    Replaced,
}

/// In which order the servers are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    first: usize,
    /// How long after one the next is tried.
    step: Duration,
}

impl Spare {
    /// `None` if the session is gone.
    pub(crate) fn new(
        session: &Session,
        connector: zk::Connector,
        servers: Vec<Address>,
        server_timeout: Duration,
    ) -> Option<Self> {
        let info = session.handle()?.session().clone();
        // The connection is detached: its end must not end the session.
        let connector = connector
            .with_session(info.clone())
            .with_detached()
            .with_fail_eagerly();
        let tries = session.lease.rule.spare_tries(server_timeout);
        // Its pause before the next try of a pass, and that try.
        let rest = server_timeout.saturating_mul(2);
        Some(Self {
            connector,
            servers,
            info,
            tries,
            rest,
        })
    }

    /// Returns the order that begins with a server. Not all are tried at the same moment: mostly
    /// the first that is back has answered before the next is tried.
    fn order(&self, first: usize) -> Order {
        let count = u32::try_from(self.servers.len()).unwrap_or(u32::MAX);
        Order {
            first,
            step: self.tries.pause / count.max(1),
        }
    }

    /// Returns the order of the next tries, after tries in an order that ended like this. `None` if
    /// there are to be no more.
    fn next_order(&self, order: Order, outcome: &SpareOutcome) -> Option<Order> {
        match *outcome {
            SpareOutcome::Replaced => None,
            SpareOutcome::Done => Some(self.order(order.first.wrapping_add(1))),
            // Members that are back together take the session from each other: it is that of the
            // connection which asked last. So this one is tried alone for a while.
            SpareOutcome::NotRenewed { server } => Some(Order {
                first: server,
                step: self.tries.limit,
            }),
        }
    }

    /// Sends a heartbeat by the first server that takes the session up, unless none is wanted any
    /// more.
    async fn keep(&self, session: &Arc<Session>, order: Order) -> SpareOutcome {
        tokio::select! {
            biased;
            () = unneeded(session) => SpareOutcome::Done,
            outcome = self.renew(session, order) => outcome,
        }
    }

    /// Sends a heartbeat by the first server that takes the session up.
    async fn renew(&self, session: &Arc<Session>, order: Order) -> SpareOutcome {
        match self.take_up(session, order).await {
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

    /// Sends a heartbeat by a connection that has taken the session up. Returns whether the session
    /// lease was renewed.
    async fn beat_by(&self, session: &Arc<Session>, handle: &zk::Client) -> bool {
        let before = session.lease.last_renewal();
        session.set_kept_by_spare();
        // The client library ends the connection when the server is silent for too long.
        beat(&HeartbeatConnection {
            session,
            spare: Some(handle),
        })
        .await;
        session.lease.last_renewal() > before
    }

    /// Tries all servers until one takes the session up: side by side, so that one that is silent
    /// delays no other.
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
        poll_fn(|context| {
            tries
                .iter_mut()
                .map(|tried| tried.as_mut().poll(context))
                .find(Poll::is_ready)
                .unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Tries the server with this number until it takes the session up.
    ///
    /// A try that is silent may stay so for good, although the server is back, or the server may
    /// be slow. So the next begins while it is open, and a server that is only slow shows that: it
    /// closes a connection of a session when another asks for the same session.
    async fn take_up_at(&self, session: &Session, number: usize) -> TakenUp {
        let Some(server) = self.servers.get(number) else {
            return TakenUp::Unwanted;
        };
        // The try before the newest, if it is open: there are two at most.
        let mut before: Option<BoxFuture<'_, Tried>> = None;
        while can_be_kept(session) {
            let mut newest: BoxFuture<'_, Tried> = Box::pin(self.try_once(session, server));
            let mut next = pin!(tokio::time::sleep(self.tries.next(left(session))));
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
                                is_slow = true;
                                continue;
                            }
                            Tried::NotConnected | Tried::Silent => continue,
                            tried => tried,
                        }
                    }
                    () = &mut next, if !is_slow || is_silent => break None,
                };
                match tried {
                    Tried::TakenUp(handle) => return TakenUp::By(number, handle),
                    Tried::Replaced => return TakenUp::Replaced,
                    Tried::NotConnected => break Some(self.tries.pause),
                    // The client library's try, by which the server has ended this one, or which
                    // it has ended for this one, is left alone.
                    Tried::Closed => break Some(self.rest),
                    Tried::Silent if is_slow => break Some(self.rest),
                    Tried::Silent => {}
                }
            };
            match pause {
                Some(pause) => {
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
        // The client library does not say which it was.
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
    // The number spreads clients, so that not all begin with the same server when it is back.
    let start = usize::try_from(session.session_id.unsigned_abs()).unwrap_or_default();
    let mut order = spare.order(start);
    loop {
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

/// Does [`Spare::keep`] on a separate runtime, whose end also ends the tasks that the client library
/// has spawned in it: they would continue, reconnect, and take the session away from its other
/// connection later.
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
    // An error means that there is no thread, or that it has panicked, in a log line of the client
    // library.
    outcome.await.unwrap_or(SpareOutcome::Done)
}

/// Returns whether locks are held that a renewal can still keep.
fn can_be_kept(session: &Session) -> bool {
    session.holds.any() && session.lease.state() != LeaseState::Expired
}

/// Returns whether locks are held whose lease was not renewed for this long.
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
