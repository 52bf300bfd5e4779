//! The sessions that a client has given up, or exchanged for another. Each is ended on the servers,
//! because its nodes would block other clients until it expires (docs/protocol.md#close-confirmed).
//!
//! The client library closes a session whose handle is dropped, and has 2T to do so. If no server
//! answers in that time, this module resumes the session by its id and password, and closes it. A
//! server that receives the client's requests, but whose answers are lost, renews the session with
//! each try; so the pauses between the tries are long enough for the session to expire.
//!
//! One task ends one session. `close` waits for all of these tasks, and gets no confirmation if one
//! has panicked. If the client library gave a session up by its own clock, no server can be
//! reached, so the task for that session starts only with the next session, or with `close`.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_client as zk;

use crate::protocol::moment::Moment;
use crate::protocol::numbers::AttemptNumber;
use crate::session::leftovers::cleanup::{Cleanup, Ticket};
use crate::session::live::zk_session::{Session, expired_by_servers};
use crate::session::reports::log;
use crate::session::threads::background::on_this_thread;
use crate::session::threads::waker;

/// The pause after a try to resume a session.
const PAUSE: Duration = Duration::from_secs(1);

/// The earlier sessions of a client that the servers may still have.
#[derive(Default)]
pub(crate) struct Earlier {
    /// One task for each session, which runs until the servers have confirmed the end of the
    /// session.
    ending: JoinSet<()>,
    /// Whether such a task has panicked, in which case the end of its session is never confirmed.
    has_panicked: bool,
    /// Whether a caller waits for these sessions to end. A task that is pausing then asks once
    /// more.
    is_awaited: watch::Sender<bool>,
    /// The last session, if the client library has given it up by its own clock, so that there was
    /// no server to ask.
    given_up: Option<Ending>,
}

/// The parts needed to end a session, and to report how it ended.
pub(crate) struct Ending {
    states: zk::StateWatcher,
    info: zk::SessionInfo,
    timeout: Duration,
    /// When the last write that was answered was sent.
    last_renewal: Option<Moment>,
    /// Makes a flush wait until this is dropped, if the session may have nodes.
    _ticket: Option<Ticket>,
}

impl Ending {
    pub(crate) fn new(handle: &zk::Client) -> Self {
        Self {
            states: handle.state_watcher(),
            info: handle.session().clone(),
            timeout: handle.session_timeout(),
            last_renewal: None,
            _ticket: None,
        }
    }

    /// Adds what is known of a session that was in use until now. If the session may have nodes,
    /// every flush waits for its end, because it is no longer known which callers left nodes in it,
    /// or when.
    pub(crate) fn for_session(self, session: &Session, cleanup: &Cleanup) -> Self {
        let _ticket = session
            .may_have_nodes()
            .then(|| cleanup.ticket(AttemptNumber::default()));
        Self {
            last_renewal: session.last_own_renewal(),
            _ticket,
            ..self
        }
    }

    /// Returns whether the servers have confirmed the end of the session; `None` if it has not
    /// ended.
    pub(crate) fn is_confirmed(&self) -> Option<bool> {
        match self.states.peek_state() {
            // A server has answered CloseSession.
            zk::SessionState::Closed => Some(true),
            // The client library gives this state to a session that the servers have expired, and
            // to one that it has given up by its own clock.
            zk::SessionState::Expired => Some(expired_by_servers(self.last_renewal, self.timeout)),
            // The servers refuse the requests of this client, so they keep the session until it
            // expires.
            zk::SessionState::AuthFailed => Some(false),
            // The client library has a connection or tries to get one, over which it closes the
            // session.
            _ => None,
        }
    }
}

impl Earlier {
    /// Ends a session whose handle has been dropped, so that the client library closes it.
    pub(crate) fn end(&mut self, ending: Ending, connector: zk::Connector, servers: String) {
        // Ended tasks are removed here, because a client that lives for long has many sessions.
        while let Some(ended) = self.ending.try_join_next() {
            self.has_panicked |= ended.is_err();
        }
        let awaited = self.is_awaited.subscribe();
        self.ending
            .spawn(on_this_thread(end(ending, connector, servers, awaited)));
    }

    /// Ends the former current session. If no server can be reached, its end begins with
    /// [`end_given_up`](Self::end_given_up).
    pub(crate) fn end_last(&mut self, ending: Ending, connector: zk::Connector, servers: String) {
        match ending.is_confirmed() {
            // The nodes of the session are deleted with it.
            Some(true) => {}
            // No other session waits here: the supervisor starts the end of a session that was
            // given up as soon as the next session is established, or the client is closed.
            Some(false) => self.given_up = Some(ending),
            None => self.end(ending, connector, servers),
        }
    }

    /// Ends the session that was given up, now that a server may be reachable again.
    pub(crate) fn end_given_up(&mut self, connector: zk::Connector, servers: String) {
        if let Some(ending) = self.given_up.take() {
            self.end(ending, connector, servers);
        }
    }

    /// Waits until the servers have confirmed the end of all these sessions. Returns `false` if a
    /// confirmation will never come.
    pub(crate) async fn all_ended(&mut self) -> bool {
        self.is_awaited.send_replace(true);
        while let Some(ended) = self.ending.join_next().await {
            self.has_panicked |= ended.is_err();
        }
        !self.has_panicked
    }
}

/// Ends a session, however long that takes.
async fn end(
    mut ending: Ending,
    connector: zk::Connector,
    servers: String,
    mut awaited: watch::Receiver<bool>,
) {
    let limit = ending.timeout.saturating_mul(2);
    let closing = async {
        loop {
            match ending.is_confirmed() {
                Some(confirmed) => return confirmed,
                None => ending.states.changed().await,
            };
        }
    };
    // The limit is longer than the time for which the client library tries. The client library
    // reports nothing if its task has died.
    if tokio::time::timeout(limit, closing).await == Ok(true) {
        return;
    }
    // The client library no longer tries to close the session, which may live on the servers, so
    // the session is resumed here in order to close it.
    let timeout = ending.timeout;
    let mut was_awaited = false;
    loop {
        was_awaited |= *awaited.borrow();
        match tokio::time::timeout(timeout, take_up(&ending, &connector, &servers)).await {
            Ok(true) => return,
            Ok(false) => {
                // From here on no server hears of the session, so it expires after T and at most
                // one and a half ticks: a follower reports its sessions every half tick, and the
                // leader expires them at a tick, which is at most T/2 by default.
                let session_id = ending.info.id();
                log::debug!(%session_id, "an earlier session is left to expire");
                return tokio::time::sleep(timeout.saturating_mul(2)).await;
            }
            // A server whose answers are lost renews the session with each try, and needs time to
            // expire it.
            Err(_) => {
                tokio::select! {
                    () = tokio::time::sleep(timeout.saturating_mul(2)) => {}
                    // `close` waits no longer than T. An error means that the client has ended, and
                    // this task with it.
                    _ = awaited.wait_for(|awaited| *awaited), if !was_awaited => {}
                }
            }
        }
    }
}

/// Resumes a session by its id and password, and closes it. Returns `true` when the session has
/// ended, and `false` if the servers refuse to resume it for this client.
async fn take_up(ending: &Ending, connector: &zk::Connector, servers: &str) -> bool {
    loop {
        match waker::connect(connector.clone().with_session(ending.info.clone()), servers).await {
            Ok(handle) if handle.session_id() == ending.info.id() => {
                // The drop of the handle makes the client library close the session.
                let mut states = handle.state_watcher();
                drop(handle);
                let mut state = states.peek_state();
                while !state.is_terminated() {
                    state = states.changed().await;
                }
                // Any other end may be a decision of the client library's clock, so the servers are
                // asked again.
                if state == zk::SessionState::Closed {
                    return true;
                }
            }
            // While the client library connects, only an answer of a server gives this error. The
            // client library's own clock gives `Timeout`.
            Err(zk::Error::SessionExpired) => return true,
            // `Ok` is another session, which its drop closes: this server resumes no sessions.
            Ok(_) | Err(zk::Error::AuthFailed) => return false,
            Err(error) => log::debug!(%error, "an earlier session could not be ended yet"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: close-confirmed
    #[tokio::test]
    async fn panic_confirms_no_end() {
        let mut earlier = Earlier::default();
        earlier.ending.spawn(async {});
        assert!(earlier.all_ended().await);
        earlier
            .ending
            .spawn(async { panic!("in a tracing subscriber") });
        assert!(!earlier.all_ended().await);
        assert!(!earlier.all_ended().await, "whenever it is asked");
    }
}
