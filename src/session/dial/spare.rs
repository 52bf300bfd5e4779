//! Heartbeats by a separate connection, while the session has none.
//!
//! After each pass over its servers `zookeeper-client` pauses, for up to many seconds, and nothing
//! wakes it when a server is back. The lease does not wait for that: while locks are held and their
//! renewal is overdue, each server is tried in turn, and the first that takes the session up gets a
//! heartbeat (docs/protocol.md#spare-connection). The connection is closed after that, and the
//! session stays the client library's, whose next try moves it back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::protocol::lease::{LeaseState, SpareTries};
use crate::session::dial::probe;
use crate::session::dial::servers::Address;
use crate::session::live::heartbeat::{Line, beat};
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::threads::background;
use crate::session::threads::clock;

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
    NotConnected,
    /// The server accepts connections, and has not taken the session up in time.
    NotTakenUp,
    /// A heartbeat was sent, or none is wanted any more.
    Done,
    /// The servers answer with another session. That of ClickHouse Keeper's cannot be taken up.
    Replaced,
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
        let tries = session.lease().spare_tries();
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

    /// Tries a server, unless no heartbeat is wanted any more.
    async fn try_one(&self, session: &Arc<Session>, server: &Address) -> Tried {
        tokio::select! {
            biased;
            () = unneeded(session) => Tried::Done,
            tried = self.beat_by(session, server) => tried,
        }
    }

    async fn beat_by(&self, session: &Arc<Session>, server: &Address) -> Tried {
        let connected = self.connector.clone().connect(&server.given);
        match tokio::time::timeout(self.tries.limit, connected).await {
            Ok(Ok(handle)) if handle.session_id() == self.info.id() => {
                session.set_kept_by_spare();
                // The client library ends the connection when the server is silent for too long.
                beat(&Line {
                    session,
                    spare: Some(&handle),
                })
                .await;
                log::debug!(
                    session = session.number(),
                    server = &server.given,
                    "a heartbeat by a spare connection"
                );
                Tried::Done
            }
            Ok(Ok(_)) => Tried::Replaced,
            failed => {
                let error = failed.ok().and_then(Result::err);
                log::debug!(
                    session = session.number(),
                    server = &server.given,
                    ?error,
                    "no spare connection"
                );
                // The client library does not say which it was.
                let is_reached = probe::accepts(server, self.tries.pause).await;
                if is_reached {
                    Tried::NotTakenUp
                } else {
                    Tried::NotConnected
                }
            }
        }
    }
}

/// Sends heartbeats of a session by spare connections, until it ends.
pub(crate) async fn run(session: Arc<Session>, spare: Spare) {
    let Some(mut states) = session.states() else {
        return;
    };
    let spare = Arc::new(spare);
    // This spreads clients, so that not all begin with the same server when it is back.
    let mut first = usize::try_from(session.session_id().unsigned_abs()).unwrap_or_default();
    let mut pause = spare.tries.pause;
    loop {
        let is_away = states.peek_state() == zk::SessionState::Disconnected;
        tokio::select! {
            biased;
            _ = session.ended() => return,
            _ = states.changed() => {
                // A rest is for the outage in which it begins.
                pause = spare.tries.pause;
                continue;
            }
            () = tokio::time::sleep(pause), if is_away => {}
        }
        pause = spare.tries.pause;
        if !is_due(&session, spare.tries.from) {
            continue;
        }
        first = first.wrapping_add(1);
        match round(&session, &spare, first).await {
            Tried::Replaced => return,
            // A server closes the connection by which the client library is waiting for the same.
            Tried::NotTakenUp => pause = spare.rest,
            Tried::NotConnected | Tried::Done => {}
        }
    }
}

/// Tries each server once, until a heartbeat was sent.
async fn round(session: &Arc<Session>, spare: &Arc<Spare>, first: usize) -> Tried {
    let count = spare.servers.len();
    let mut failed = Tried::NotConnected;
    for number in (0..count).map(|i| first.wrapping_add(i) % count) {
        let (done, tried) = oneshot::channel();
        let (session, spare) = (Arc::clone(session), Arc::clone(spare));
        let trying = async move {
            let Some(server) = spare.servers.get(number) else {
                return;
            };
            // The receiver is gone if the client is.
            let _ = done.send(spare.try_one(&session, server).await);
        };
        // The try has a separate runtime, whose end also ends the tasks that the client library has
        // spawned in it: they would continue, reconnect, and take the session away from its other
        // connection later.
        if let Err(error) = background::start(NAME, trying) {
            log::debug!(%error, "no thread could be started for a spare connection");
            return failed;
        }
        // An error means that it has panicked, in a log line of the client library.
        match tried.await {
            Ok(Tried::NotConnected) | Err(_) => {}
            Ok(Tried::NotTakenUp) => failed = Tried::NotTakenUp,
            Ok(tried) => return tried,
        }
    }
    failed
}

/// Returns whether locks are held whose lease was not renewed for this long.
fn is_due(session: &Session, from: Duration) -> bool {
    // The clock is read first: a renewal that comes between the two is not taken for an old one.
    let now = clock::now();
    session.holds.any()
        && session.lease().state() != LeaseState::Expired
        && session
            .lease()
            .last_renewal()
            .is_some_and(|renewal| now.since(renewal) >= from)
}

/// Waits until the session has a connection again, or has ended, or its lease has.
async fn unneeded(session: &Session) {
    let Some(mut states) = session.states() else {
        return;
    };
    let age = session
        .lease()
        .last_renewal()
        .map(|renewal| clock::now().since(renewal));
    let left = session
        .lease()
        .duration()
        .saturating_sub(age.unwrap_or(Duration::MAX));
    tokio::select! {
        _ = session.ended() => {}
        () = tokio::time::sleep(left) => {}
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
    use crate::session::dial::servers::Servers;
    use crate::session::live::zk_session::SessionOptions;

    /// The client library hears nothing of it, and may give the session up by its clock although
    /// the servers have just renewed it.
    // Shows: close-confirmed
    #[tokio::test]
    async fn a_session_kept_by_a_spare_connection_is_not_taken_for_expired() {
        let server = Server::start().unwrap();
        let (connector, servers) = (zk::Client::connector(), server.connect_string());
        let handle = connector.clone().connect(&servers).await.unwrap();
        let session = Session::new(1, handle, SessionOptions::default());
        let addresses = Servers::parse(&servers).unwrap().addresses;
        let spare = Spare::new(&session, connector, addresses, Duration::from_secs(1)).unwrap();
        // The client library's, which would move the session back.
        let _connect = server.hold_request(Match::op(Op::Connect).nth(1));
        assert!(matches!(
            spare.beat_by(&session, &spare.servers[0]).await,
            Tried::Done
        ));
        assert!(session.lease().is_valid() && session.last_own_renewal().is_none());
        session.expired();
        assert!(!session.is_expired_by_servers());
        session.connected();
        assert!(session.last_own_renewal().is_some());
    }
}
