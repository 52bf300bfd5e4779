//! Keeps a client in a session: connects, watches the session's state, and replaces a session that has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use zookeeper_client as zk;

use super::belief::Margin;
use super::epoch::{Epoch, cause};
use super::heartbeat::{self, Heartbeat};
use super::reaper::Reaper;
use super::retry::RetryPolicy;
use super::servers::Servers;
use crate::error::{ConnectError, LostReason};

/// What the client as a whole is doing.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// A session is being established. From here: `Live`, or `Down` when the retry policy is exhausted.
    Connecting,
    /// There is a session. From here: `Connecting` when it ends, `Closed` when the client does.
    Live(Arc<Epoch>),
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

    /// Begins a session's epoch: from here on everybody sees it.
    pub(crate) fn begin(&self, epoch: &Arc<Epoch>) {
        let session = epoch.session_id();
        tracing::info!(epoch = epoch.number(), session = format_args!("{session:#x}"), timeout = ?epoch.timeout(), "session established");
        self.state.send_replace(ConnectionState::Connected);
        self.phase.send_replace(Phase::Live(Arc::clone(epoch)));
    }

    fn close(&self, closing: Closing, confirmed: bool) {
        self.phase.send_replace(Phase::Closed(closing));
        self.state.send_replace(ConnectionState::Closed);
        self.session_closed.send_replace(Some(confirmed));
    }
}

/// How contact with the servers is proved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contact {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) margin: Margin,
}

/// How to get sessions.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) servers: Servers,
    pub(crate) connector: zk::Connector,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry: RetryPolicy,
}

impl Dialer {
    /// One try to establish a session, within the connect timeout.
    pub(crate) async fn dial(&self) -> Result<zk::Client, ConnectError> {
        let connector = self.connector.clone().with_session_timeout(self.session_timeout);
        let servers = || self.servers.given().to_owned();
        let timed_out =
            |source| ConnectError::TimedOut { servers: servers(), timeout: self.connect_timeout, source };
        let dialled = connector.connect(self.servers.repeated());
        match tokio::time::timeout(self.connect_timeout, dialled).await {
            Err(_) => Err(timed_out(None)),
            Ok(Ok(session)) => Ok(session),
            Ok(Err(zk::Error::AuthFailed)) => Err(ConnectError::AuthFailed { servers: servers() }),
            Ok(Err(error @ zk::Error::BadArguments(_))) => {
                Err(ConnectError::InvalidConnectString { servers: servers(), reason: error.to_string() })
            }
            // TLS or SASL options that do not fit come as errors of their own, before any connection is tried.
            Ok(Err(error @ (zk::Error::Custom(_) | zk::Error::UnexpectedError(_)))) => {
                Err(ConnectError::Setup { servers: servers(), source: cause(error) })
            }
            Ok(Err(error)) => Err(timed_out(Some(cause(error)))),
        }
    }

    /// Tries until there is a session, the policy is exhausted, or retrying is no use.
    async fn dial_by_policy(&self) -> Result<zk::Client, ConnectError> {
        let start = Instant::now();
        let mut retry = 0;
        loop {
            let error = match self.dial().await {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            let pause = match error {
                ConnectError::AuthFailed { .. } => None,
                _ => self.retry.pause(retry, start.elapsed()),
            };
            let Some(pause) = pause else { return Err(error) };
            tracing::warn!(%error, ?pause, "no session yet");
            tokio::time::sleep(pause).await;
            retry += 1;
        }
    }
}

/// Runs until the client is closed: `epoch` is the first one, which has begun already, `dialer` gets the sessions of
/// the next ones. Without a dialer the first is the only one.
pub(crate) async fn supervise(
    shared: Arc<Shared>,
    mut epoch: Arc<Epoch>,
    dialer: Option<Dialer>,
    reaper: Reaper,
    contact: Contact,
) {
    let mut stop = shared.stop.subscribe();
    loop {
        tokio::spawn(heartbeat::run(Arc::clone(&epoch), contact.heartbeat));
        let end = tokio::select! {
            end = watch_session(&shared, &epoch) => end,
            // A stop that came before this epoch counts as well: `wait_for` looks at the value first.
            _ = stop.wait_for(|stop| *stop) => End::Stopped,
        };
        match end {
            End::Stopped => {
                let confirmed = match dialer {
                    Some(_) => close(&epoch).await,
                    None => give_back(&epoch, &reaper).await,
                };
                return shared.close(Closing::Asked, confirmed);
            }
            End::AuthFailed => return shared.close(Closing::AuthFailed, true),
            End::Over => {}
        }
        let Some(dialer) = &dialer else {
            return shared.close(Closing::Asked, true);
        };
        shared.state.send_replace(ConnectionState::Lost);
        let session = tokio::select! {
            redialled = redial(&shared, dialer) => match redialled {
                Some(session) => session,
                None => return shared.close(Closing::AuthFailed, true),
            },
            _ = stop.wait_for(|stop| *stop) => return shared.close(Closing::Asked, true),
        };
        epoch = Epoch::new(epoch.number() + 1, session, contact.margin, reaper.clone());
        shared.begin(&epoch);
    }
}

enum End {
    Over,
    AuthFailed,
    Stopped,
}

/// Follows a session's state until it is over.
async fn watch_session(shared: &Shared, epoch: &Epoch) -> End {
    let Ok(session) = epoch.session() else {
        return End::Over;
    };
    let mut states = session.state_watcher();
    let mut state = states.peek_state();
    loop {
        match state {
            zk::SessionState::SyncConnected | zk::SessionState::ConnectedReadOnly => {
                epoch.set_connected(true);
                shared.state.send_replace(ConnectionState::Connected);
            }
            zk::SessionState::Disconnected => {
                epoch.set_connected(false);
                shared.state.send_replace(ConnectionState::Suspended);
            }
            zk::SessionState::Expired => {
                epoch.end(LostReason::SessionExpired);
                return End::Over;
            }
            zk::SessionState::AuthFailed => {
                epoch.end(LostReason::Closed);
                return End::AuthFailed;
            }
            zk::SessionState::Closed => {
                epoch.end(LostReason::Closed);
                return End::Over;
            }
        }
        // A reconnect may have brought another session: a server that does not know ours should say so, but
        // ClickHouse Keeper hands out a new one, and the client library takes it without a word.
        let reconnected = state != zk::SessionState::Disconnected;
        let check = async {
            if reconnected {
                check_identity(epoch, &session).await;
            }
            std::future::pending::<()>().await;
        };
        state = tokio::select! {
            state = states.changed() => state,
            _ = epoch.ended() => match states.peek_state() {
                zk::SessionState::AuthFailed => return End::AuthFailed,
                _ => return End::Over,
            },
            () = check => return End::Over,
        };
    }
}

/// Ends the epoch if the session is not the one that it was: it then does not own our nodes, which still exist and
/// belong to the session that we had. Costs nothing while we have no nodes.
async fn check_identity(epoch: &Epoch, session: &zk::Client) {
    let nodes = epoch.nodes();
    if nodes.is_empty() {
        return;
    }
    // Older servers than 3.6 cannot answer this; they do not replace sessions either.
    let Ok(owned) = session.list_ephemerals("/").await else {
        return;
    };
    if nodes.iter().any(|node| owned.contains(node)) {
        return;
    }
    for node in nodes {
        if let Ok(Some(stat)) = session.check_stat(&node).await {
            if stat.ephemeral_owner == epoch.session_id() {
                epoch.end(LostReason::SessionReplaced);
                return;
            }
        }
    }
}

/// Gets the next session, however many rounds it takes; nothing if the credentials are refused.
async fn redial(shared: &Shared, dialer: &Dialer) -> Option<zk::Client> {
    for round in 1.. {
        shared.phase.send_replace(Phase::Connecting);
        match dialer.dial_by_policy().await {
            Ok(session) => return Some(session),
            Err(error @ ConnectError::AuthFailed { .. }) => {
                tracing::error!(%error, "the client is closed");
                return None;
            }
            Err(error) => {
                tracing::error!(%error, "no session; the next call that needs one tries again");
                shared.phase.send_replace(Phase::Down { round, error });
            }
        }
        shared.wanted.notified().await;
    }
    None
}

/// Closes the session and waits until a server has confirmed it, or it cannot matter any more.
async fn close(epoch: &Epoch) -> bool {
    let Some(session) = epoch.end(LostReason::Closed) else {
        return true;
    };
    let mut states = session.state_watcher();
    // The last clone but those that attempts are about to drop: then the library sends CloseSession.
    drop(session);
    let closed = async { while !states.changed().await.is_terminated() {} };
    tokio::time::timeout(epoch.timeout(), closed).await.is_ok()
}

/// Cleans up in a session that is not ours to close: lets the attempts leave and deletes every node.
async fn give_back(epoch: &Arc<Epoch>, reaper: &Reaper) -> bool {
    epoch.end_softly(LostReason::Closed);
    let clean = async {
        // Errors cannot come: the senders live in `epoch` and `reaper`.
        let _ = epoch.attempts().wait_for(|attempts| *attempts == 0).await;
        for node in epoch.nodes() {
            reaper.reap_path(epoch, &node);
        }
        let _ = reaper.pending().wait_for(|pending| *pending == 0).await;
        epoch.nodes().is_empty()
    };
    let confirmed = tokio::time::timeout(epoch.timeout(), clean).await.unwrap_or(false);
    epoch.end(LostReason::Closed);
    confirmed
}
