//! The core of a client: what all of its handles share, over all of its sessions.
//!
//! A call gets the current session from the core, or waits for the next one. The supervisor
//! publishes the current [`Phase`], which shows which of the two applies. If a whole round of
//! connecting fails while a call waits, the call ends with the last error of that round. The core
//! also reports why a call ends without a session: the client is closed, or a drain has begun,
//! after which the client grants no lock (docs/protocol.md#drain). In the names of this file,
//! *drained* means that a drain has begun; locks may still be held.
//!
//! Path locks own the core, and the core owns no path lock. When the last handle, guard or attempt
//! is dropped, the core is dropped too, which tells the supervisor to close the session
//! (docs/protocol.md#session-lifetime).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use zookeeper_client as zk;

use super::supervisor::{ClientState, CloseReason, ConnectionState, Phase};
use super::tasks::Tasks;
use crate::error::{AcquireError, ConnectError, Error, Purpose, ReleaseError, RequestFailure};
use crate::protocol::failure::FailureKind;
#[cfg(feature = "metrics")]
use crate::protocol::labels::Labels;
use crate::protocol::numbers::AttemptNumber;
use crate::session::leftovers::cleanup::{Cleanup, Tickets};
use crate::session::leftovers::deletion::retry_refused_orphans;
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::log;
use crate::session::request::repetition::{Repetition, Unanswered};
use crate::session::request::retry::RetryPolicy;
use crate::session::threads::waker;
use crate::values::contender::Process;
use crate::values::options::{Acl, Credentials};
use crate::values::path::LockPath;

/// The state that all handles of one client share. Its drop closes the client.
pub(crate) struct Core {
    pub(super) shared: Arc<ClientState>,
    pub(crate) tasks: Tasks,
    pub(crate) cleanup: Cleanup,
    pub(crate) retry: RetryPolicy,
    pub(crate) connect_timeout: Duration,
    pub(crate) namespace: String,
    pub(crate) acl: Arc<[Acl]>,
    /// The description of this process in its nodes.
    pub(crate) process: Process,
    pub(crate) credentials: Credentials,
    /// Whether the servers have shown that they do not support containers.
    pub(super) no_containers: AtomicBool,
    /// The labels of its locks in metrics.
    #[cfg(feature = "metrics")]
    pub(crate) labels: Labels,
    pub(crate) guard_changes: GuardChanges,
}

/// Notifies watchers when a hold of this client is given to a guard, or ends.
#[derive(Clone, Default)]
pub(crate) struct GuardChanges(watch::Sender<()>);

impl GuardChanges {
    pub(crate) fn notify(&self) {
        // Usually there is no watcher. A watcher that registers now reads the holders after its
        // registration, and finds this change, because one of the two fences comes first.
        fence(Ordering::SeqCst);
        if self.0.receiver_count() > 0 {
            self.0.send_replace(());
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        let changes = self.0.subscribe();
        fence(Ordering::SeqCst);
        changes
    }
}

/// Why a call gets no session.
pub(crate) enum NoSession {
    Unreachable(ConnectError),
    AuthFailed,
    Closed,
}

impl From<NoSession> for RequestFailure {
    fn from(no_session: NoSession) -> Self {
        match no_session {
            NoSession::Unreachable(error) => Self::Connection(Arc::new(error)),
            NoSession::AuthFailed => Self::AuthFailed,
            NoSession::Closed => Self::Closed,
        }
    }
}

/// Waits until cleanup has no ticket below `limit`, and the supervisor knows of the end of the
/// session, if it has ended.
async fn until_no_ticket(
    pending: &mut watch::Receiver<Tickets>,
    phase: &mut watch::Receiver<Phase>,
    limit: AttemptNumber,
) {
    // An error is impossible while there is a ticket, because each ticket has a sender.
    loop {
        let _ = pending.wait_for(|pending| pending.none_before(limit)).await;
        // When a session ends, cleanup gives up the tickets of its nodes. Before the supervisor
        // asks for the next session, it counts the ended one by another ticket.
        let _ = phase.wait_for(Phase::is_up_to_date).await;
        if pending.borrow().none_before(limit) {
            return;
        }
    }
}

impl Core {
    /// Waits until everything that was left before this call is cleaned up; see
    /// [`Client::flush`](crate::Client::flush).
    pub(crate) async fn flush(&self, timeout: Duration) -> Result<(), ReleaseError> {
        let (started, mut pending) = (Instant::now(), self.cleanup.pending());
        // Attempts that begin after this call are not waited for.
        let limit = pending.borrow().next;
        // Nodes that were left before this call belong to this session or to an earlier one. A
        // ticket of cleanup counts each earlier session with nodes until the servers have ended
        // that session (docs/protocol.md#close-confirmed).
        let session = self.live();
        let live = session.clone();
        let mut phase = self.shared.phase.subscribe();
        let closed = self.shared.session_closed.subscribe();
        let not_closed = move || ReleaseError::SessionNotClosed {
            waited: started.elapsed(),
        };
        // The task is detached, so that a caller that leaves does not stop the deletions.
        let flushed = self.tasks.start(async move {
            let clean = async {
                until_no_ticket(&mut pending, &mut phase, limit).await;
                if let Some(session) = live {
                    // A refused orphan has no ticket any more, because the work on it has ended. So
                    // its deletion is requested once more (docs/protocol.md#refused-orphan).
                    retry_refused_orphans(&session).await?;
                    // The session may have ended meanwhile, with its orphans.
                    until_no_ticket(&mut pending, &mut phase, limit).await;
                }
                // The tickets of sessions whose end was not confirmed are given up when the client
                // has been closed.
                match *closed.borrow() {
                    Some(false) => Err(not_closed()),
                    Some(true) | None => Ok(()),
                }
            };
            tokio::time::timeout(timeout, clean).await
        });
        match flushed.detach().await {
            // The client is closed, so its nodes are deleted with its sessions.
            Err(_) if self.is_closed() && self.end_is_confirmed().await => Ok(()),
            // The client is closed without a confirmation, or the task has panicked.
            Err(_) => Err(not_closed()),
            Ok(Ok(flushed)) => flushed,
            Ok(Err(_)) if *self.shared.session_closed.borrow() == Some(false) => Err(not_closed()),
            Ok(Err(_)) => {
                // An attempt that has left several nodes counts once.
                let unfinished = self.cleanup.pending().borrow().count_before(limit);
                let refused =
                    session.map_or(0, |session| session.nodes.refused_orphans(None).len());
                match unfinished + refused {
                    // The answers have come in the meantime.
                    0 if self.shared.phase.borrow().is_up_to_date() => Ok(()),
                    // A session has just ended, and is counted as one.
                    nodes => Err(ReleaseError::TimedOut {
                        nodes: nodes.max(1),
                        waited: timeout,
                    }),
                }
            }
        }
    }

    /// Closes the client and waits until the end of its session is confirmed; see
    /// [`Client::close`](crate::Client::close).
    pub(crate) async fn close(&self) -> Result<(), ReleaseError> {
        let started = Instant::now();
        self.shared.stop.send_replace(true);
        match self.end_is_confirmed().await {
            true => Ok(()),
            false => Err(ReleaseError::SessionNotClosed {
                waited: started.elapsed(),
            }),
        }
    }

    /// Waits until the client is closed. Returns whether the servers have confirmed the end of its
    /// sessions.
    pub(crate) async fn end_is_confirmed(&self) -> bool {
        // The caller's executor polls this wait. A panic of its waker must not end the supervisor,
        // which sends the value.
        let mut closed = self.shared.session_closed.subscribe();
        let confirmed = waker::contain(closed.wait_for(Option::is_some)).await;
        matches!(confirmed.as_deref(), Ok(Some(true)))
    }

    /// Returns whether the client is closed, or is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        *self.shared.stop.borrow() || matches!(*self.shared.phase.borrow(), Phase::Closed(_))
    }

    /// Returns the ids of the sessions that this client had before the one with this id, as far as
    /// they are known.
    pub(crate) fn earlier_sessions(&self, current: i64) -> Vec<i64> {
        let mut sessions = self.shared.sessions();
        sessions.retain(|id| *id != current);
        sessions
    }

    /// Ends every call that acquires a lock, now or later, as if the client were closed.
    pub(crate) fn begin_drain(&self) {
        // The value is stored before the tasks are woken. A task whose wait begins after the
        // notification reads it instead.
        self.shared.drained.store(true, Ordering::SeqCst);
        // Panics in the wakers of callers are contained; the other wakers belong to this client's
        // runtime.
        self.shared.drain_began.notify_waiters();
    }

    /// Returns whether a drain has begun, after which the client grants no lock.
    fn is_drained(&self) -> bool {
        self.shared.drained.load(Ordering::SeqCst)
    }

    /// Returns the error of a call that acquires a lock, if a drain has begun.
    pub(crate) fn drained_error(&self, path: &LockPath) -> Option<AcquireError> {
        self.is_drained().then(|| self.ended_error(path))
    }

    /// Returns the error of a call that acquires a lock whose client, or whose task, has ended.
    pub(crate) fn ended_error(&self, path: &LockPath) -> AcquireError {
        self.error(Purpose::Lock, path.user(), self.why_ended())
            .into()
    }

    /// Waits for `work`, unless a drain begins. A result that is ready has precedence.
    pub(crate) async fn unless_drained<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.drained() => None,
        }
    }

    /// Waits until a drain begins, which also ends every wait for a grant (docs/protocol.md#drain).
    pub(crate) async fn drained(&self) {
        // The wait begins before the check, so that a drain from here on ends it.
        let began = self.shared.drain_began.notified();
        if !self.is_drained() {
            began.await;
        }
    }

    pub(crate) fn watch_state(&self) -> watch::Receiver<ConnectionState> {
        self.shared.state.subscribe()
    }

    /// Returns whether missing directories are created as containers, which is the case unless the
    /// servers do not support them.
    pub(crate) fn makes_containers(&self) -> bool {
        // No other value depends on this one. An attempt that reads an old value asks the servers
        // once more, and finds out by itself.
        !self.no_containers.load(Ordering::Relaxed)
    }

    /// Creates missing directories as ordinary nodes from now on, because the servers do not
    /// support containers.
    pub(crate) fn make_no_containers(&self) {
        // Several attempts may find this out at the same time. Only the first of them logs it.
        if !self.no_containers.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the servers do not support containers: missing directories are created as ordinary nodes from now on, and stay"
            );
        }
    }

    /// Repeats a request in the current session, under the client's retry policy, until there is an
    /// answer. When a session ends, the request is sent in the next one at once.
    pub(crate) async fn repeat<T, F>(
        &self,
        request: impl Fn(Arc<Session>, zk::Client) -> F + Send + Sync,
    ) -> Result<T, Unanswered<NoSession>>
    where
        T: Send,
        F: Future<Output = Result<T, zk::Error>> + Send,
    {
        let mut repetition = Repetition::new(self.retry);
        loop {
            // The core never returns a session that is known to have ended, so the loop waits for
            // the next one.
            let session = self.session().await.map_err(Unanswered::NoSession)?;
            match repetition
                .repeat(&session, |handle| request(Arc::clone(&session), handle))
                .await
            {
                Ok(answer) => return Ok(answer),
                Err(Unanswered::NoSession(SessionGone)) => {
                    // Whether the ended session carried out the request is unknown. The effect of
                    // the repetition has to allow for both.
                    if !repetition.in_next_session().await {
                        return Err(Unanswered::GaveUp(FailureKind::SessionGone.into()));
                    }
                }
                Err(Unanswered::Refused(failure)) => return Err(Unanswered::Refused(failure)),
                Err(Unanswered::GaveUp(failure)) => return Err(Unanswered::GaveUp(failure)),
            }
        }
    }

    /// Returns the error of a request of this client that failed.
    pub(crate) fn error(
        &self,
        purpose: Purpose,
        path: &str,
        why: impl Into<RequestFailure>,
    ) -> Error {
        Error::new(purpose, path, why).with_credentials(self.credentials.exist)
    }

    /// Returns why a call's work stopped before it was done; see
    /// [`ClientState::why_ended`](ClientState::why_ended).
    pub(crate) fn why_ended(&self) -> RequestFailure {
        self.shared.why_ended()
    }

    /// Returns why the last try to get a session failed; `None` if there is a session, or there was
    /// no try since the last one.
    pub(crate) fn why_no_session(&self) -> Option<ConnectError> {
        self.shared.why_no_session.lock().clone()
    }

    /// Returns the current session; `None` if there is none, or it has ended.
    pub(crate) fn live(&self) -> Option<Arc<Session>> {
        match &*self.shared.phase.borrow() {
            // A session that has ended stays published until the supervisor replaces it, and counts
            // as none.
            Phase::Live(session) if session.end_reason().is_none() => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Returns the current session, or waits for the next one, for as long as the retry policy
    /// allows.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, NoSession> {
        let mut phases = self.shared.phase.subscribe();
        let mut first = true;
        loop {
            match &*phases.borrow_and_update() {
                Phase::Live(session) if session.end_reason().is_none() => {
                    return Ok(Arc::clone(session));
                }
                // The call waits for the supervisor, which has yet to notice the end of this
                // session, or for the round of connecting that is under way.
                Phase::Live(_) | Phase::Connecting => {}
                // A round of connecting that failed before this call does not count, so the call
                // requests another.
                Phase::Down(_) if first => self.shared.wanted.notify_one(),
                // A round has failed while this call waited. A call waits for one round only, whose
                // length the retry policy defines (docs/protocol.md#next-round).
                Phase::Down(error) => return Err(NoSession::Unreachable(error.clone())),
                Phase::Closed(CloseReason::Closed) => return Err(NoSession::Closed),
                Phase::Closed(CloseReason::AuthFailed) => return Err(NoSession::AuthFailed),
            }
            first = false;
            // An error is impossible: the core has the sender.
            if phases.changed().await.is_err() {
                return Err(NoSession::Closed);
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // The supervisor has the shared state, but no reference to the core. So the supervisor runs
        // until this value reaches it, and then closes the session.
        self.shared.stop.send_replace(true);
    }
}
