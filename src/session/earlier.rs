//! The sessions that a client has given up, or exchanged for another: each is closed, so that its nodes keep no one out
//! (docs/protocol.md#close-confirmed).

use std::time::Duration;

use tokio::task::JoinSet;
use zookeeper_client as zk;

use crate::session::zk_session::Session;

/// The sessions of a client that are not its current one, as far as the servers may still have them.
#[derive(Default)]
pub(super) struct Earlier {
    /// Tasks that end with their sessions, or twice the session timeout later; they return whether the servers have
    /// confirmed the end.
    closing: JoinSet<bool>,
    /// The last session, if the client library has given it up by its own clock.
    given_up: Option<zk::SessionInfo>,
}

/// What is needed to tell how a session has ended.
pub(super) struct Ending {
    states: zk::StateWatcher,
    info: zk::SessionInfo,
}

impl Ending {
    pub(super) fn new(handle: &zk::Client) -> Self {
        Self { states: handle.state_watcher(), info: handle.session().clone() }
    }
}

impl Earlier {
    /// Notes a session whose handle is dropped, so that the client library closes it.
    pub(super) fn dropped(&mut self, ending: Ending, timeout: Duration) {
        self.add(terminated(ending.states), timeout);
    }

    /// Notes the session that was the current one, and has ended.
    pub(super) fn ended(&mut self, session: &Session, ending: Ending) {
        match ending.states.peek_state() {
            state if is_confirmed(session, state) => {}
            zk::SessionState::Expired => self.given_up = Some(ending.info),
            _ => self.dropped(ending, session.timeout()),
        }
    }

    /// Closes the session that was given up, by a connection of its own, now that there may be servers again. They keep
    /// it for a session timeout after their start.
    pub(super) fn close_given_up(&mut self, connector: zk::Connector, servers: &str, timeout: Duration) {
        let Some(info) = self.given_up.take() else { return };
        let (connector, servers) = (connector.with_session(info), servers.to_owned());
        let close = async move {
            match connector.connect(&servers).await {
                Ok(handle) => {
                    let states = handle.state_watcher();
                    drop(handle);
                    terminated(states).await
                }
                Err(zk::Error::SessionExpired) => true,
                Err(error) => {
                    tracing::debug!(%error, "an earlier session could not be closed");
                    false
                }
            }
        };
        self.add(close, timeout);
    }

    /// Waits until all these sessions have ended. Returns whether the servers have confirmed it.
    pub(super) async fn all_ended(&mut self) -> bool {
        let mut confirmed = self.given_up.is_none();
        while let Some(ended) = self.closing.join_next().await {
            confirmed &= ended.unwrap_or(false);
        }
        confirmed
    }

    fn add(&mut self, end: impl Future<Output = bool> + Send + 'static, timeout: Duration) {
        // Those that have ended.
        while self.closing.try_join_next().is_some() {}
        // Longer than the client library tries, unless its task has died, of which nothing is heard.
        let limit = timeout.saturating_mul(2);
        self.closing.spawn(async move { tokio::time::timeout(limit, end).await.unwrap_or(false) });
    }
}

/// Waits until the client library is done with a session. Returns whether it was closed, or has expired.
async fn terminated(mut states: zk::StateWatcher) -> bool {
    let mut state = states.peek_state();
    while !state.is_terminated() {
        state = states.changed().await;
    }
    state != zk::SessionState::AuthFailed
}

/// Waits until the current session, which is being closed, has ended. Returns whether the servers have confirmed it.
pub(super) async fn closed(session: &Session, mut ending: Ending) -> bool {
    let mut state = ending.states.peek_state();
    while !state.is_terminated() {
        session.lease().set_connected(state != zk::SessionState::Disconnected);
        state = ending.states.changed().await;
    }
    is_confirmed(session, state)
}

/// Returns whether the servers have confirmed the end of a session in this state.
fn is_confirmed(session: &Session, state: zk::SessionState) -> bool {
    match state {
        zk::SessionState::Closed => true,
        zk::SessionState::Expired => session.lease().disconnected_for() < told_before(session.timeout()),
        _ => false,
    }
}

/// How long after a disconnect the end of a session comes from the servers for sure: the client library ends it by
/// itself 7/5 of the session timeout after it has last heard from a server, whose silence it noticed within 3/5.
fn told_before(session_timeout: Duration) -> Duration {
    session_timeout / 5 * 4
}
