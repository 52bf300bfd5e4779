//! The supervisor of a client's sessions: watches the state of the current one, and replaces it
//! when it ends. One task per client, from its first session until it is closed.
//!
//! ```text
//!   next: dial until a server gives a session <--------------------------------+
//!     |                                                                        |
//!     v                                                                        |
//!   ClientState::begin: publish it --> watch_session, beside its heartbeat     |
//!                                        | ended, or stalled ------------------+
//!                                        | credentials refused, or stopped
//!                                        v
//!                                      close: ends the session, waits for the confirmation
//! ```
//!
//! A session ends because the servers report it, because the client library's clock says so,
//! because an answer shows another owner of a node (docs/protocol.md#replaced-session), because the
//! client library's task has ended, or because the session is of no use: every connection was given
//! up before a write was answered, so the next session gets more time
//! (docs/protocol.md#server-timeout). Meanwhile, earlier sessions are ended on the servers too
//! (docs/protocol.md#close-confirmed).
//!
//! Each step is published before the tasks that wait for it are woken: the phase shows the session
//! before the state says that the client is connected. When a client is closed, calls are refused
//! before the end of the last session is waited for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Notify, oneshot, watch};
use zookeeper_client as zk;

use crate::error::{ConnectError, LostReason, RequestFailure};
use crate::protocol::numbers::SessionNumber;
use crate::protocol::server_timeout::ConnectionHistory;
use crate::session::dial::connect::Dialer;
use crate::session::dial::earlier::Ending;
use crate::session::dial::spare;
use crate::session::leftovers::cleanup::Cleanup;
use crate::session::live::heartbeat;
use crate::session::live::zk_session::{Session, SessionOptions};
use crate::session::reports::log;
use crate::session::threads::background;
use crate::session::threads::clock;
use crate::session::threads::mutex::Mutex;
use crate::session::threads::waker::contain_panic;

/// The phase of a client between its first session and its end.
#[derive(Clone)]
pub(crate) enum Phase {
    /// A session is being established, the first one or the next. Next: `Live`, or `Down` when the
    /// retry policy is exhausted.
    Connecting,
    /// There is a session. Next: `Connecting` when it ends, `Closed` when the client is closed.
    Live(Arc<Session>),
    /// No session could be established within the retry policy. Next: `Connecting` once a call
    /// needs a session or, if the error is retryable, after a pause.
    Down(ConnectError),
    /// The client is closed. Final.
    Closed(CloseReason),
}

impl Phase {
    /// Returns whether the supervisor knows of the end of the session, if the session has ended.
    pub(crate) fn is_up_to_date(&self) -> bool {
        match self {
            Self::Live(session) => session.end_reason().is_none(),
            Self::Connecting | Self::Down(_) | Self::Closed(_) => true,
        }
    }
}

/// Why a client is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client was closed by `close`, the client was dropped, or its supervisor panicked.
    Closed,
    /// The servers refused the credentials.
    AuthFailed,
}

/// The state of a client's connection to the servers.
///
/// [`Client::state`](crate::Client::state) returns it.
/// [`Client::watch_state`](crate::Client::watch_state) waits for changes. Use the state for health
/// checks, not to stop work: [`LockGuard::lost`](crate::LockGuard::lost) and
/// [`LockGuard::while_held`](crate::LockGuard::while_held) report a loss before another process is
/// granted the lock, and [`Lost`](Self::Lost) may come after that.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::ConnectionState;
///
/// // For the health check of a service.
/// let ready = match client.state() {
///     ConnectionState::Connected => true,
///     // Guards hold their locks as long as their leases last.
///     ConnectionState::Suspended => true,
///     // All guards have lost their locks.
///     ConnectionState::Lost | ConnectionState::Closed => false,
///     // Only after `connect_lazy`: the first session is still to come.
///     ConnectionState::Connecting => false,
///     _ => false,
/// };
/// assert!(ready);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The client, which was created by [`connect_lazy`](crate::ClientBuilder::connect_lazy), has
    /// had no session yet, and keeps requesting one.
    Connecting,
    /// The client has a session and is connected to a server.
    Connected,
    /// The connection is interrupted. The session, and with it every lock, may or may not still
    /// exist on the servers.
    Suspended,
    /// The session has ended, and every lock with it. The client requests sessions until it gets
    /// another one.
    ///
    /// During an outage no server reports the end, so this state may come after other processes
    /// were granted the locks. The guards are lost by the clock, before these grants.
    Lost,
    /// The client is closed: by [`close`](crate::Client::close), or because the servers refused its
    /// credentials.
    Closed,
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Connected => f.write_str("connected"),
            Self::Suspended => f.write_str("suspended"),
            Self::Lost => f.write_str("lost"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// The state that the supervisor shares with its client.
pub(crate) struct ClientState {
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) state: watch::Sender<ConnectionState>,
    /// Notified when a call needs a session after a failed round of connecting.
    pub(crate) wanted: Notify,
    /// Whether the client is to be closed.
    pub(crate) stop: watch::Sender<bool>,
    /// The result of `close`: whether the end of the last session was confirmed. `None` until the
    /// client is closed.
    pub(crate) session_closed: watch::Sender<Option<bool>>,
    /// The ids of the last sessions, the current one included.
    sessions: Mutex<Vec<i64>>,
    /// Why the last try to get a session failed, for calls that reach their deadline without a
    /// session; `None` while there is a session.
    pub(crate) why_no_session: Mutex<Option<ConnectError>>,
    /// Whether a drain has begun: the client grants no lock any more, because it is about to be
    /// closed. Locks may still be held (docs/protocol.md#drain).
    pub(super) drained: AtomicBool,
    pub(super) drain_began: Notify,
}

/// Why a call has no answer although its client has not ended: the call's task panicked.
#[derive(Debug, Error)]
#[error("a task of the client ended before it had an answer")]
struct TaskEnded;

/// The number of a client's last sessions whose ids are kept.
const KNOWN_SESSIONS: usize = 16;

impl ClientState {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            phase: watch::Sender::new(Phase::Connecting),
            state: watch::Sender::new(ConnectionState::Connecting),
            wanted: Notify::new(),
            stop: watch::Sender::new(false),
            session_closed: watch::Sender::new(None),
            sessions: Mutex::default(),
            why_no_session: Mutex::default(),
            drained: AtomicBool::new(false),
            drain_began: Notify::new(),
        })
    }

    /// Returns why a call's work stopped before it was done: because the client has ended, or else
    /// because the task has (docs/protocol.md#contained-lines).
    pub(super) fn why_ended(&self) -> RequestFailure {
        match *self.phase.borrow() {
            Phase::Closed(CloseReason::AuthFailed) => RequestFailure::AuthFailed,
            Phase::Closed(CloseReason::Closed) => RequestFailure::Closed,
            _ if self.drained.load(Ordering::SeqCst) => RequestFailure::Closed,
            _ => RequestFailure::Connection(Arc::new(TaskEnded)),
        }
    }

    /// Returns the ids of the last sessions, the current one included.
    pub(crate) fn sessions(&self) -> Vec<i64> {
        self.sessions.lock().clone()
    }

    fn remember_session(&self, session: i64) {
        let mut sessions = self.sessions.lock();
        if sessions.len() == KNOWN_SESSIONS {
            sessions.remove(0);
        }
        sessions.push(session);
    }

    /// Begins a session, and publishes it to the client's calls.
    fn begin(
        &self,
        number: SessionNumber,
        handle: zk::Client,
        options: SessionOptions,
    ) -> Arc<Session> {
        let session = Session::new(number, handle, options);
        let (id, timeout) = (session.session_id, session.timeout());
        log::count!(session_began);
        log::info!(
            [name: "session.began"]
            session = number.get(),
            session_id = format!("{id:#x}"),
            ?timeout,
            "session established"
        );
        self.remember_session(id);
        // A call that reaches its deadline from now on was not delayed by the last failure to
        // connect.
        *self.why_no_session.lock() = None;
        // The phase is published before the state, so that a task that is notified of the
        // connection finds the session.
        self.phase.send_replace(Phase::Live(Arc::clone(&session)));
        self.publish_state(ConnectionState::Connected);
        session
    }

    /// Publishes the state of the connection, if it has changed. Its receivers are polled by the
    /// caller's executor, whose wakers may panic.
    fn publish_state(&self, state: ConnectionState) {
        contain_panic(|| {
            self.state
                .send_if_modified(|current| std::mem::replace(current, state) != state);
        });
    }

    /// Ends all calls that need a session: those that wait for one, and later ones.
    fn refuse(&self, closing: CloseReason) {
        self.phase.send_replace(Phase::Closed(closing));
    }

    fn close(&self, closing: CloseReason, confirmed: bool) {
        self.refuse(closing);
        self.publish_state(ConnectionState::Closed);
        self.session_closed.send_replace(Some(confirmed));
    }
}

/// Closes the client if its supervisor ends without returning. The supervisor may panic in the
/// client library, or in a tracing subscriber that the client library calls.
struct CloseOnDrop(Arc<ClientState>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if self.0.session_closed.borrow().is_some() {
            return;
        }
        let phase = self
            .0
            .phase
            .send_replace(Phase::Closed(CloseReason::Closed));
        if let Phase::Live(session) = phase {
            session.end(LostReason::Closed);
        }
        self.0.close(CloseReason::Closed, false);
    }
}

/// Receives the result of the first try to connect.
pub(super) type Connected = oneshot::Sender<Result<(), ConnectError>>;

/// Supervises a client from its first session until it is closed. With `connected`, the first try
/// decides whether the client is created; without it, the client exists at once, and tries until it
/// is closed.
pub(super) async fn supervise(
    shared: Arc<ClientState>,
    connected: Option<Connected>,
    mut dialer: Dialer,
    cleanup: Cleanup,
    options: SessionOptions,
) {
    let _close = CloseOnDrop(Arc::clone(&shared));
    log::count!(client_began);
    let mut stop = shared.stop.subscribe();
    let mut session = match connected {
        Some(connected) => {
            let dialled = tokio::select! {
                dialled = dialer.dial() => dialled,
                // The caller has left, and dropped the core. No task waits for a confirmation.
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match dialled {
                Ok(handle) => {
                    // The session is published before the caller is notified, because the caller
                    // may need it at once.
                    let first = shared.begin(SessionNumber::FIRST, handle, options);
                    // If the caller has left, the core has been dropped, and the session is closed
                    // below.
                    contain_panic(|| drop(connected.send(Ok(()))));
                    first
                }
                // If the caller has left, no other task needs the error.
                Err(error) => return drop(connected.send(Err(error))),
            }
        }
        None => match next(&shared, &mut dialer).await {
            Ok(handle) => shared.begin(SessionNumber::FIRST, handle, options),
            // There was no session, so there is no node.
            Err(closed) => return shared.close(closed, true),
        },
    };
    loop {
        let began = clock::now();
        // The session drops its handle when it ends. The id and the password, by which the client
        // can still end the session on the servers, are copied before.
        let ending = session.handle().as_ref().map(Ending::new);
        let connections = ConnectionHistory::new(dialer.server_timeout, session.timeout(), began);
        if let Some(spare) = dialer.spare(&session) {
            // The task ends with the session. Without the task, a long outage may lose locks.
            background::spawn(spare::run(Arc::clone(&session), spare));
        }
        let mut heartbeat = background::spawn(heartbeat::run(Arc::clone(&session)));
        let end = tokio::select! {
            // The heartbeat ends with the session, so the end of the session is checked first.
            biased;
            end = watch_session(&shared, &session, connections) => end,
            // If the heartbeat task ends before its session, it has panicked (in a log line of the
            // client library). Without heartbeats the lease would expire, and the servers may still
            // have the session. So the reason is not `SessionExpired`.
            _ = &mut heartbeat => {
                session.end(LostReason::LeaseExpired);
                SessionEnd::Ended
            }
            // A stop that was requested before this session is noticed too, because `wait_for`
            // checks the current value first.
            _ = stop.wait_for(|stop| *stop) => SessionEnd::Stopped,
        };
        match end {
            SessionEnd::Stopped => {
                heartbeat.abort();
                let confirmed = close(&shared, &session, ending, &mut dialer, &cleanup).await;
                return shared.close(CloseReason::Closed, confirmed);
            }
            SessionEnd::AuthFailed => {
                // The wait lets calls to `release` that are under way return; the servers keep the
                // nodes until the session expires.
                settle_down(&cleanup, &session).await;
                return shared.close(CloseReason::AuthFailed, false);
            }
            SessionEnd::Ended | SessionEnd::Stalled => {}
        }
        // The guards were notified when the session ended, before this state is published.
        shared.publish_state(ConnectionState::Lost);
        if let Some(ending) = ending {
            // The nodes of the ended session would block other clients until it expires.
            dialer.end_last(ending.for_session(&session, &cleanup));
        }
        match end {
            // The servers may be slow, but not hung, so the next session gives each of them more
            // time.
            SessionEnd::Stalled => dialer.next_server_timeout.double(),
            _ => {
                let age = clock::now().since(began);
                dialer
                    .next_server_timeout
                    .reset_after(age, session.timeout());
            }
        }
        let handle = match next(&shared, &mut dialer).await {
            Ok(handle) => handle,
            Err(closed) => {
                shared.refuse(closed);
                dialer.end_given_up();
                // Servers that refuse the credentials end no session either.
                let patience = match closed {
                    CloseReason::Closed => session.timeout(),
                    CloseReason::AuthFailed => Duration::ZERO,
                };
                let confirmed = dialer.all_ended(patience).await;
                return shared.close(closed, confirmed);
            }
        };
        dialer.end_given_up();
        // Attempts that wait for a session continue from here, each with a new node.
        session = shared.begin(session.number.next(), handle, options);
    }
}

/// Why the supervisor stops watching a session.
enum SessionEnd {
    /// The session has ended, or its heartbeat has panicked.
    Ended,
    /// The servers refused the credentials.
    AuthFailed,
    /// The client gave up each connection after the server timeout, before a write was answered;
    /// the session may still be alive.
    Stalled,
    /// The client is to be closed.
    Stopped,
}

/// Publishes a session's state until the session ends, or until the history of its connections
/// shows that it has stalled.
async fn watch_session(
    shared: &ClientState,
    session: &Session,
    mut connections: ConnectionHistory,
) -> SessionEnd {
    let Some(mut states) = session.states() else {
        return SessionEnd::Ended;
    };
    let mut state = states.peek_state();
    loop {
        let (last_renewal, now) = session.lease.last_renewal_and_now();
        // A connect counts as a disconnect too, because states are merged, and the disconnect
        // before the connect may have been skipped.
        connections.disconnected(now, last_renewal, session.is_wanted());
        if state == zk::SessionState::SyncConnected && !connections.connected(now, last_renewal) {
            let id = session.session_id;
            log::warn!(
                session = session.number.get(),
                session_id = format!("{id:#x}"),
                "connection after connection was given up before a write was answered: the next session waits longer for its servers"
            );
            // No write is answered in such a session, so its lease would expire. The servers may
            // still have the session, so the reason is not `SessionExpired`.
            session.end(LostReason::LeaseExpired);
            return SessionEnd::Stalled;
        }
        match state {
            // A server in read-only mode, which a connector of the user may allow, refuses writes.
            // So the lease is not renewed there, and expires.
            zk::SessionState::SyncConnected | zk::SessionState::ConnectedReadOnly => {
                session.connected();
                shared.publish_state(ConnectionState::Connected);
            }
            zk::SessionState::Disconnected => {
                // The locks are suspended at once: nothing is granted before the next renewal
                // (docs/protocol.md#suspended).
                session.lease.set_connected(false);
                shared.publish_state(ConnectionState::Suspended);
            }
            // The servers have reported the end, or the client library has given the session up by
            // its clock. `expired` records which of the two.
            zk::SessionState::Expired => {
                session.expired();
                return SessionEnd::Ended;
            }
            zk::SessionState::AuthFailed => {
                session.end(LostReason::Closed);
                return SessionEnd::AuthFailed;
            }
            // The client library closes a session after its last handle is dropped, and only the
            // end of the session drops it. So the session has ended before this state.
            zk::SessionState::Closed => {
                session.end(LostReason::Closed);
                return SessionEnd::Ended;
            }
        }
        state = tokio::select! {
            state = states.changed() => state,
            // The answer to a request may have ended the session before its state has changed here.
            // Only the state shows whether the servers refused the credentials.
            _ = session.ended() => match states.peek_state() {
                zk::SessionState::AuthFailed => return SessionEnd::AuthFailed,
                _ => return SessionEnd::Ended,
            },
        };
    }
}

/// The pause of a client without a session between two rounds of tries, unless a call needs a
/// session (docs/protocol.md#next-round).
const ROUND_PAUSE: Duration = Duration::from_secs(1);

/// Establishes a session, unless the client is closed first; then there is no session to close.
async fn next(shared: &ClientState, dialer: &mut Dialer) -> Result<zk::Client, CloseReason> {
    let mut stop = shared.stop.subscribe();
    tokio::select! {
        dialled = dial_on(shared, dialer) => dialled.ok_or(CloseReason::AuthFailed),
        _ = stop.wait_for(|stop| *stop) => Err(CloseReason::Closed),
    }
}

/// Establishes a session, however many rounds that takes. Returns `None` if the credentials are
/// refused.
async fn dial_on(shared: &ClientState, dialer: &mut Dialer) -> Option<zk::Client> {
    loop {
        // Calls wait in this phase. In the phase `Down` they would end with the error of the round
        // before.
        shared.phase.send_replace(Phase::Connecting);
        let failed = |error: &ConnectError| {
            *shared.why_no_session.lock() = Some(error.clone());
        };
        let error = match dialer.dial_by_policy(failed).await {
            Ok(handle) => return Some(handle),
            Err(error @ ConnectError::AuthFailed { .. }) => {
                log::error!(%error, "the client is closed");
                return None;
            }
            Err(error) => error,
        };
        // An error in the client's own options is permanent.
        let is_retryable = error.is_retryable();
        if is_retryable {
            log::warn!(%error, "no session yet; the client tries again");
        } else {
            log::error!(%error, "no session; the next call that needs one tries again");
        }
        shared.phase.send_replace(Phase::Down(error));
        tokio::select! {
            () = shared.wanted.notified() => {}
            () = tokio::time::sleep(ROUND_PAUSE), if is_retryable => {}
        }
    }
}

/// Closes the current session. Returns `true` once the servers have confirmed its end and the ends
/// of all earlier sessions, and `false` if they do not within the session timeout.
async fn close(
    shared: &ClientState,
    session: &Session,
    ending: Option<Ending>,
    dialer: &mut Dialer,
    cleanup: &Cleanup,
) -> bool {
    session.expect_end();
    // The end of the session drops the last clone of the handle, except for those of requests under
    // way, which are about to be dropped. Then the client library sends CloseSession.
    session.end(LostReason::Closed);
    shared.refuse(CloseReason::Closed);
    // `None` means that a server's answer had ended the session before the supervisor checked.
    if let Some(ending) = ending {
        dialer.end_last(ending.for_session(session, cleanup));
    }
    dialer.end_given_up();
    dialer.all_ended(session.timeout()).await
}

/// Waits until the attempts and the cleanup of a session that has ended have notified their
/// callers.
async fn settle_down(cleanup: &Cleanup, session: &Session) {
    let settled = async {
        session.running.closed().await;
        // An error is impossible: the sender lives in `cleanup`.
        let _ = cleanup
            .pending()
            .wait_for(|pending| pending.count() == 0)
            .await;
    };
    let _ = tokio::time::timeout(session.timeout(), settled).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a session and its first event both report that it is connected.
    #[test]
    fn state_is_reported_once() {
        let shared = ClientState::new();
        shared.publish_state(ConnectionState::Connected);
        let mut states = shared.state.subscribe();
        shared.publish_state(ConnectionState::Connected);
        assert!(!states.borrow_and_update().has_changed());
        shared.publish_state(ConnectionState::Lost);
        shared.publish_state(ConnectionState::Connected);
        assert!(
            states.borrow_and_update().has_changed(),
            "it has changed back"
        );
    }
}
