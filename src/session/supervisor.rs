//! Keeps a client in a session: connects, watches the session's state, and replaces a session that has ended.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::{Notify, watch};
use zookeeper_client as zk;

use crate::error::{ConnectError, LostReason};
use crate::protocol::lease::Margin;
use crate::protocol::server_timeout::Connections;
use crate::session::cleanup::Cleanup;
use crate::session::clock;
use crate::session::connect::Dialer;
use crate::session::heartbeat::{self, Heartbeat};
use crate::session::waker::contain_panic;
use crate::session::zk_session::Session;

/// What the client as a whole is doing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// A session is being established. From here: `Live`, or `Down` when the retry policy is exhausted.
    Connecting,
    /// There is a session. From here: `Connecting` when it ends, `Closed` when the client does.
    Live(Arc<Session>),
    /// No server could be reached for as long as the policy allows. From here: `Connecting` once somebody asks
    /// for a session again.
    Down { round: u64, error: ConnectError },
    /// For good.
    Closed(Closing),
}

/// Why a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It was asked to, or its borrowed session ended.
    Asked,
    /// The servers refused the credentials.
    AuthFailed,
}

/// How a client is connected to the servers.
///
/// Changes between two looks are merged: a client that was `Suspended` and `Connected` again in between shows
/// `Connected`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// A server answers.
    Connected,
    /// The connection is interrupted; the session, and with it every lock, may still be alive at the servers, or
    /// may not.
    Suspended,
    /// The session has ended, and with it every lock. A new one is being established, or will be when somebody
    /// asks for a lock.
    Lost,
    /// The client is closed, by `close`, by the end of a borrowed session, or because the servers refused its
    /// credentials.
    Closed,
}

/// What the supervisor shares with its client.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Somebody wants a session although the last round of connecting failed.
    pub(crate) wanted: Notify,
    /// The client is going.
    pub(crate) stop: watch::Sender<bool>,
    /// Whether the servers, or a deadline, ended the last session after `stop`: the result of `close`.
    pub(crate) session_closed: watch::Sender<Option<bool>>,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: watch::Sender::new(Phase::Connecting),
            state: watch::Sender::new(ConnectionState::Suspended),
            wanted: Notify::new(),
            stop: watch::Sender::new(false),
            session_closed: watch::Sender::new(None),
        })
    }

    /// Begins a session: from here on everybody sees it.
    pub(crate) fn begin(&self, session: &Arc<Session>) {
        let (number, id) = (session.number(), session.session_id());
        let timeout = session.timeout();
        tracing::info!(number, session = format_args!("{id:#x}"), ?timeout, "session established");
        self.tell_state(ConnectionState::Connected);
        self.phase.send_replace(Phase::Live(Arc::clone(session)));
    }

    /// What waits for it may be polled by anybody, by a receiver that we do not see.
    fn tell_state(&self, state: ConnectionState) {
        contain_panic(|| {
            self.state.send_replace(state);
        });
    }

    fn close(&self, closing: Closing, confirmed: bool) {
        self.phase.send_replace(Phase::Closed(closing));
        self.tell_state(ConnectionState::Closed);
        self.session_closed.send_replace(Some(confirmed));
    }
}

/// How lease with the servers is proved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseOptions {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) margin: Margin,
}

/// Closes the client if its supervisor ends in any other way than by its last line: by a panic (of a tracing
/// subscriber, of the client library), or because the runtime of a borrowed session goes, perhaps before the
/// supervisor is polled at all.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if self.0.session_closed.borrow().is_some() {
            return;
        }
        let phase = self.0.phase.send_replace(Phase::Closed(Closing::Asked));
        if let Phase::Live(session) = phase {
            session.end(LostReason::Closed);
        }
        self.0.close(Closing::Asked, false);
    }
}

/// Runs until the client is closed, from its first session on; `dialer` gets the next sessions. Without a dialer the
/// first is the only one.
pub(crate) fn supervise(
    shared: Arc<Shared>,
    first: Arc<Session>,
    dialer: Option<Dialer>,
    cleanup: Cleanup,
    lease: LeaseOptions,
) -> impl Future<Output = ()> + Send + 'static {
    // Not by the first poll, which a task does not get whose runtime goes before.
    let close = CloseOnDrop(Arc::clone(&shared));
    async move {
        let _close = close;
        run(shared, first, dialer, cleanup, lease).await;
    }
}

async fn run(
    shared: Arc<Shared>,
    first: Arc<Session>,
    mut dialer: Option<Dialer>,
    cleanup: Cleanup,
    lease: LeaseOptions,
) {
    let mut stop = shared.stop.subscribe();
    let mut session = first;
    let mut rounds = 0;
    loop {
        let began = clock::now();
        // A borrowed session is not ours to give up.
        let patience = dialer.as_ref().map(Dialer::present_patience);
        let connections = patience.map(|patience| Connections::new(patience, session.timeout(), began));
        let mut heartbeat = tokio::spawn(heartbeat::run(Arc::clone(&session), lease.heartbeat));
        let end = tokio::select! {
            // The heartbeat ends when the session does: how that ended is asked first.
            biased;
            end = watch_session(&shared, &session, connections) => end,
            // It ends with its session, or by a panic (of a tracing subscriber): without it nothing can be believed.
            _ = &mut heartbeat => {
                session.end(LostReason::LeaseExpired);
                End::Broken
            }
            // A stop that came before this session counts as well: `wait_for` looks at the value first.
            _ = stop.wait_for(|stop| *stop) => End::Stopped,
        };
        if !matches!(end, End::Stopped) {
            // The heartbeat, which does it otherwise, may be gone, or not be polled again.
            session.log();
        }
        match (end, &mut dialer) {
            (End::Stopped, Some(_)) => {
                // It would log the losses, which is left to `close`.
                heartbeat.abort();
                let confirmed = close(&session).await;
                return shared.close(Closing::Asked, confirmed);
            }
            (End::Stopped, None) => return release(&shared, &session, &cleanup).await,
            (End::AuthFailed, _) => {
                // Releases that were under way are told so; the servers keep the nodes until the session expires.
                settle_down(&cleanup, &session).await;
                return shared.close(Closing::AuthFailed, false);
            }
            (End::Over | End::Useless, None) => return shared.close(Closing::Asked, true),
            // The session, and our nodes in it, may live on without us: its runtime is shutting down, most likely.
            (End::Broken, None) => return shared.close(Closing::Asked, false),
            (end, Some(dialer)) => {
                shared.tell_state(ConnectionState::Lost);
                match end {
                    End::Useless => dialer.patience.grow(),
                    _ => dialer.patience.lasted(clock::now().since(began), session.timeout()),
                }
                let handle = tokio::select! {
                    redialled = redial(&shared, dialer, &mut rounds) => match redialled {
                        Some(handle) => handle,
                        None => return shared.close(Closing::AuthFailed, true),
                    },
                    // There is no session to be closed.
                    _ = stop.wait_for(|stop| *stop) => return shared.close(Closing::Asked, true),
                };
                session = Session::new(session.number() + 1, handle, lease.margin, cleanup.clone());
                shared.begin(&session);
            }
        }
    }
}

enum End {
    Over,
    /// The session may live, but what looks after it does not.
    Broken,
    AuthFailed,
    /// The session may live, but no write is answered in it before we cut the connection.
    Useless,
    Stopped,
}

/// Follows a session's state until it is over, or of no use any more by its `connections`.
async fn watch_session(shared: &Shared, session: &Session, mut connections: Option<Connections>) -> End {
    let Some(mut states) = session.states() else { return End::Over };
    let mut state = states.peek_state();
    loop {
        if let Some(connections) = &mut connections {
            // The proof after the clock: one that comes between the two is not too old.
            let (now, proof) = (clock::now(), session.last_renewal());
            // Also when it comes back: states are merged, so that its end may not have been seen.
            connections.ended(now, proof, session.is_wanted());
            if state == zk::SessionState::SyncConnected && !connections.established(now, proof) {
                let id = session.session_id();
                tracing::warn!(
                    session = format_args!("{id:#x}"),
                    "no write was answered before the connection was given up, again and again: the next session is more patient"
                );
                session.end(LostReason::LeaseExpired);
                return End::Useless;
            }
        }
        match state {
            zk::SessionState::SyncConnected | zk::SessionState::ConnectedReadOnly => {
                session.set_connected(true);
                shared.tell_state(ConnectionState::Connected);
            }
            zk::SessionState::Disconnected => {
                session.set_connected(false);
                shared.tell_state(ConnectionState::Suspended);
            }
            zk::SessionState::Expired => {
                session.end(LostReason::SessionExpired);
                return End::Over;
            }
            zk::SessionState::AuthFailed => {
                session.end(LostReason::Closed);
                return End::AuthFailed;
            }
            zk::SessionState::Closed => {
                session.end(LostReason::Closed);
                return End::Over;
            }
        }
        state = tokio::select! {
            state = states.changed() => state,
            _ = session.ended() => match states.peek_state() {
                zk::SessionState::AuthFailed => return End::AuthFailed,
                _ => return End::Over,
            },
        };
    }
}

/// Gets the next session, however many rounds it takes; nothing if the credentials are refused.
async fn redial(shared: &Shared, dialer: &mut Dialer, rounds: &mut u64) -> Option<zk::Client> {
    loop {
        shared.phase.send_replace(Phase::Connecting);
        match dialer.dial_by_policy().await {
            Ok(handle) => return Some(handle),
            Err(error @ ConnectError::AuthFailed { .. }) => {
                tracing::error!(%error, "the client is closed");
                return None;
            }
            Err(error) => {
                tracing::error!(%error, "no session; the next call that needs one tries again");
                *rounds += 1;
                shared.phase.send_replace(Phase::Down { round: *rounds, error });
            }
        }
        shared.wanted.notified().await;
    }
}

/// Waits until a session has ended, or finds that it has.
async fn terminated(mut states: zk::StateWatcher) {
    let mut state = states.peek_state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
}

/// Closes the session and waits until a server has confirmed it, or it cannot matter any more.
async fn close(session: &Session) -> bool {
    let Some(states) = session.states() else { return true };
    session.expect_end();
    // The last clone but those of requests under way, which are about to drop theirs: then the library sends CloseSession.
    session.end(LostReason::Closed);
    let confirmed = tokio::time::timeout(session.timeout(), terminated(states)).await.is_ok();
    // Not before: a subscriber may block, and with this thread the library's task, whose request frees the locks.
    session.log();
    confirmed
}

/// Lets the attempts and the cleanup answer whoever waits for them: without a session they have nothing else to do.
async fn settle_down(cleanup: &Cleanup, session: &Session) {
    let settled = async {
        // Errors cannot come: the senders live in `session` and `cleanup`.
        let _ = session.attempts().wait_for(|attempts| *attempts == 0).await;
        let _ = cleanup.pending().wait_for(|pending| pending.count() == 0).await;
    };
    let _ = tokio::time::timeout(session.timeout(), settled).await;
}

/// Lets go of a session that is not ours.
struct EndOnDrop<'a>(&'a Session);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end(LostReason::Closed);
    }
}

/// Cleans up in a session that is not ours to close: lets the attempts leave and deletes every node. What could not
/// be done within the session timeout is reported, and gone on with: as long as the session lives, nobody else would do it.
async fn release(shared: &Shared, session: &Arc<Session>, cleanup: &Cleanup) {
    let Some(over) = session.states() else { return shared.close(Closing::Asked, true) };
    let ended = over.peek_state().is_terminated();
    session.expect_end();
    session.end_softly(LostReason::Closed);
    // Also if its runtime goes before it is done: a guard may be kept for long, and would keep the session.
    let end = EndOnDrop(session);
    let clean = async {
        let _ = session.attempts().wait_for(|attempts| *attempts == 0).await;
        let held = session.nodes_of_holds();
        for (_, held) in &held {
            session.release(held, None);
        }
        // Each node is deleted by one hand: what the cleanup has already, a release may wait for, and would be told that
        // somebody else had deleted it.
        let _ = cleanup.pending().wait_for(|pending| pending.count() == 0).await;
        // What was refused earlier may be allowed by now.
        for node in session.nodes() {
            if !held.iter().any(|(path, _)| *path == node) {
                cleanup.reap_path(session, &node);
            }
        }
        let _ = cleanup.pending().wait_for(|pending| pending.count() == 0).await;
    };
    let mut settled = pin!(async {
        tokio::select! {
            () = clean => session.nodes().is_empty(),
            () = terminated(over), if !ended => true,
        }
    });
    let confirmed = tokio::time::timeout(session.timeout(), settled.as_mut()).await;
    session.log();
    match confirmed {
        Ok(confirmed) => {
            drop(end);
            shared.close(Closing::Asked, confirmed);
        }
        Err(_) => {
            shared.close(Closing::Asked, false);
            settled.await;
        }
    }
}
