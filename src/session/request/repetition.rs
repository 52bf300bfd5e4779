//! Repeats a request until the request is answered, or until a retry would be of no use. This
//! module also interprets the errors of the client library, which decide between the two.
//!
//! ```text
//!   Session::request --> an answer
//!        |               |
//!        | an error      +--> the caller
//!        v
//!   Session::judge --> FailureKind --> after, by the retry policy and the failures so far
//!                                        |
//!                                        +--> again after a pause, in the same session
//!                                        +--> SessionGone: `Core::repeat` asks the next session
//!                                        +--> refused, or given up: the caller's error
//! ```
//!
//! A failure does not show the outcome: the request may have been carried out, or may still be
//! carried out later (docs/protocol.md#unknown-outcome). So a repeated request must have the same
//! effect if it is carried out twice, or must find out whether it was carried out. The counter's
//! writes do neither, so the counter takes one step at a time ([`Repetition::try_once`]) and
//! decides the next step itself.
//!
//! The end of the session ends a request and the pause after it. A [`Repetition`] counts failures
//! over several sessions, because a request that ends every session in which it is sent would
//! otherwise be repeated without a limit.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::error::{LostReason, RequestFailure};
use crate::protocol::failure::{Failure, FailureKind, Refusal};
use crate::session::contents::limits::Window;
use crate::session::live::zk_session::{Session, SessionGone, cause};
use crate::session::reports::log;
use crate::session::request::retry::RetryPolicy;

/// Why a request has no answer.
pub(crate) enum Unanswered<N> {
    NoSession(N),
    /// The servers refused the request, and a retry would not change that.
    Refused(Failure),
    /// The retry policy is exhausted. Contains the last failure.
    GaveUp(Failure),
}

impl<N: Into<Self>> From<Unanswered<N>> for RequestFailure {
    fn from(unanswered: Unanswered<N>) -> Self {
        match unanswered {
            Unanswered::NoSession(no_session) => no_session.into(),
            Unanswered::Refused(failure) => failure.refused(),
            Unanswered::GaveUp(failure) => failure.unanswered(),
        }
    }
}

/// How a request is repeated, and how often it has been, possibly in several sessions.
pub(crate) struct Repetition<'a> {
    policy: RetryPolicy,
    /// The window of cleanup. `None` for other requests.
    window: Option<&'a Window>,
    since: Instant,
    failures: u32,
    /// The number of sessions that ended while a request of this repetition was under way.
    sessions: u32,
}

impl<'a> Repetition<'a> {
    /// Returns a repetition by this policy, before its first request.
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            window: None,
            since: Instant::now(),
            failures: 0,
            sessions: 0,
        }
    }

    /// Returns the repetition of a request of cleanup, which only a definite answer or the end of
    /// the session ends. Each request takes a slot of this window.
    pub(crate) fn for_cleanup(window: &'a Window) -> Self {
        Self {
            window: Some(window),
            ..Self::new(RetryPolicy::CLEAN_UP)
        }
    }

    /// Sends a request in one session, and repeats it there until it is answered.
    pub(crate) async fn repeat<T: Send, F>(
        &mut self,
        session: &Session,
        mut request: impl FnMut(zk::Client) -> F,
    ) -> Result<T, Unanswered<SessionGone>>
    where
        F: Future<Output = Result<T, zk::Error>> + Send,
    {
        loop {
            if let Ok(answer) = self.try_once(session, &mut request).await? {
                return Ok(answer);
            }
        }
    }

    /// Waits until a request whose session has ended may be sent in the next one: the first time at
    /// once, later as the policy defines. Returns `false` if the request may not be sent again,
    /// because a request that ends every session would otherwise cause new sessions without a
    /// limit.
    pub(crate) async fn in_next_session(&mut self) -> bool {
        // Any session may end while a request is under way, so the first end costs no pause. From
        // the second end on, the request itself may be the reason.
        if let Some(failures) = self.sessions.checked_sub(1) {
            let Some(pause) = self.policy.pause(failures, self.since.elapsed()) else {
                return false;
            };
            tokio::time::sleep(pause).await;
        }
        self.sessions = self.sessions.saturating_add(1);
        true
    }

    /// Sends a request in one session, once. After a failure that allows a repetition, waits until
    /// the request may be repeated, and returns the failure. The caller then repeats the request,
    /// or sends another one.
    pub(crate) async fn try_once<T: Send, F>(
        &mut self,
        session: &Session,
        request: impl FnOnce(zk::Client) -> F,
    ) -> Result<Result<T, Failure>, Unanswered<SessionGone>>
    where
        F: Future<Output = Result<T, zk::Error>> + Send,
    {
        // The wait for a slot is outside the request, which has the handle of the session: a handle
        // that is kept during a wait delays the end of the session.
        let slot = match self.window {
            Some(window) => Some(window.slot().await),
            None => None,
        };
        let answer = session.request(request).await;
        // The slot is free during the pause, because nothing is unanswered then.
        drop(slot);
        let failure = match answer.map_err(Unanswered::NoSession)? {
            Ok(answer) => return Ok(Ok(answer)),
            Err(error) => session.failure(error),
        };
        // The clock of a repetition starts before its first request, and runs through all of its
        // sessions.
        let pause = match after(
            failure.kind,
            &self.policy,
            self.failures,
            self.since.elapsed(),
        ) {
            Reaction::Again(pause) => pause,
            Reaction::GiveUp => return Err(Unanswered::GaveUp(failure)),
            Reaction::Refused => return Err(Unanswered::Refused(failure)),
            Reaction::SessionGone => return Err(Unanswered::NoSession(SessionGone)),
        };
        self.failures = self.failures.saturating_add(1);
        // The end of the session ends the pause too.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = session.ended() => return Err(Unanswered::NoSession(SessionGone)),
        }
        Ok(Err(failure))
    }
}

/// The reaction to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Again(Duration),
    GiveUp,
    Refused,
    SessionGone,
}

fn after(failure: FailureKind, policy: &RetryPolicy, failures: u32, elapsed: Duration) -> Reaction {
    match failure {
        // `TooManyWatches` is not an answer of a server, and no error is judged as such. The engine
        // uses the kind for a watch that it does not request.
        FailureKind::Refused(_) | FailureKind::TooManyWatches => Reaction::Refused,
        FailureKind::SessionGone => Reaction::SessionGone,
        // A request that `NoNode` answers returns it as a result. Otherwise another process has
        // deleted the directory in the meantime, and a repetition may create it again.
        FailureKind::NoNode | FailureKind::NotNow | FailureKind::Unknown => policy
            .pause_before_repetition(failures, failure, elapsed)
            .map_or(Reaction::GiveUp, Reaction::Again),
    }
}

impl Session {
    /// Returns the meaning that an error of the client library has for the failed request, with the
    /// error.
    pub(crate) fn failure(&self, error: zk::Error) -> Failure {
        let kind = self.judge(&error);
        log::debug!(%error, ?kind, "request failed");
        Failure {
            kind,
            cause: cause(error),
        }
    }

    /// Returns the meaning that an error of the client library has for the failed request
    /// (docs/protocol.md#unknown-outcome). If the error says that the session has ended, this
    /// method ends the session here too.
    pub(crate) fn judge(&self, error: &zk::Error) -> FailureKind {
        match error {
            // The servers have decided not to carry out the request.
            zk::Error::NoNode => FailureKind::NoNode,
            zk::Error::NoAuth => FailureKind::Refused(Refusal::NoAuth),
            // For a sequential create this error means that the numbers are used up
            // (docs/protocol.md#sequence-order).
            zk::Error::NodeExists => FailureKind::Refused(Refusal::NodeExists),
            zk::Error::BadVersion
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::NotEmpty
            | zk::Error::InvalidAcl
            | zk::Error::QuotaExceeded
            | zk::Error::Unimplemented
            | zk::Error::BadArguments(_) => FailureKind::Refused(Refusal::Other),
            // The request was not carried out, because the server is overloaded, or is cut off from
            // the others and serves reads only.
            zk::Error::Throttled | zk::Error::NotReadOnly => FailureKind::NotNow,
            // The client library may answer with one of these three errors before the supervisor
            // has seen the new state. The end is recorded here, so that no request is sent again in
            // this session.
            zk::Error::SessionExpired => {
                self.expired();
                FailureKind::SessionGone
            }
            zk::Error::AuthFailed | zk::Error::ClientClosed => {
                self.end(LostReason::Closed);
                FailureKind::SessionGone
            }
            // Usually the client library cannot read an answer. The client library returns the same
            // error after the death of its task.
            zk::Error::UnexpectedError(_) => {
                self.end_if_dead();
                if self.end_reason().is_some() {
                    FailureKind::SessionGone
                } else {
                    FailureKind::Unknown
                }
            }
            // No other error shows whether the request was carried out. Most of them report a lost
            // or silent connection (ConnectionLoss, Custom) or a code that the client library does
            // not know. MarshallingError belongs here too: ZooKeeper returns it when an exception
            // ends its work on a request, either before the request is carried out, or afterwards,
            // while the server builds the answer.
            _ => FailureKind::Unknown,
        }
    }

    /// Ends the session if the task that serves it has died. The client library does not report
    /// this death: the state does not change (docs/protocol.md#session-end). But if a request fails
    /// before it was sent, the task is dead, because a live session never answers such a request.
    fn end_if_dead(&self) {
        let Some(handle) = self.handle() else { return };
        // A live task takes the request into its queue, so the first poll is pending. The answer to
        // that `sync` is dropped.
        let mut probe = pin!(handle.sync("/"));
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Err(zk::Error::UnexpectedError(_))) = probe.as_mut().poll(&mut context) {
            let (session, session_id) = (self.number.get(), format!("{:#x}", self.session_id));
            log::error!(
                session,
                session_id,
                "the task that serves the session has died"
            );
            self.end(LostReason::SessionExpired);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::failure::Refusal;

    #[test]
    fn unknown_outcome_repeats_within_policy() {
        let second = Duration::from_secs(1);
        let twice = RetryPolicy::n_times(2, second);
        let next = |kind, failures| after(kind, &twice, failures, Duration::ZERO);
        for kind in [
            FailureKind::NoNode,
            FailureKind::NotNow,
            FailureKind::Unknown,
        ] {
            let first = match kind {
                FailureKind::NotNow => second,
                _ => Duration::ZERO,
            };
            assert_eq!(next(kind, 0), Reaction::Again(first));
            assert_eq!(next(kind, 1), Reaction::Again(second));
            assert_eq!(next(kind, 2), Reaction::GiveUp);
        }
        assert_eq!(
            next(FailureKind::Refused(Refusal::NoAuth), 0),
            Reaction::Refused
        );
        assert_eq!(next(FailureKind::SessionGone, 2), Reaction::SessionGone);
    }

    #[test]
    fn clean_up_never_gives_up() {
        let next = |failures| {
            after(
                FailureKind::Unknown,
                &RetryPolicy::CLEAN_UP,
                failures,
                Duration::MAX,
            )
        };
        let again = |millis| Reaction::Again(Duration::from_millis(millis));
        assert_eq!(
            [0, 1, 6, 7, u32::MAX].map(next),
            [10, 20, 640, 1000, 1000].map(again)
        );
    }
}
