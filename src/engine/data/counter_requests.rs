//! Reads and changes a counter. The next step is decided in
//! [`protocol::counter`](crate::protocol::counter) (docs/protocol.md#counter-writes).
//!
//! A change is a read, and a write that names the version that was read. A write without an answer
//! may have been carried out, so the requests of a change are not repeated here: each is sent once
//! ([`Repetition::try_once`]), and its failure is an event for [`Changing`], which sends the write
//! again with the same version, reads what has become of it, or gives up with an unknown outcome.
//! [`Counter::get`] changes nothing, so its read is repeated like others.
//! The retry policy counts the failures in a row. Writes that others preceded are tried again after
//! random pauses (docs/protocol.md#counter-tries).
//!
//! The task of a change ends with its caller, and with the client. For the latter `in_doubt` is
//! shared: the caller must learn whether a write may have been carried out. The node is created
//! with the directories above it by the first change (docs/protocol.md#counter-layout).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use zookeeper_client as zk;

use crate::error::{AtomicLongError, Cause, Purpose, RequestFailure};
use crate::protocol::counter::{
    Change, Changed, Changing, CounterEvent, CounterRequest, CounterStep, NoCounter, SeenCounter,
    Unchanged, value_of,
};
use crate::protocol::failure::{Failure, FailureKind};
use crate::session::core::Core;
use crate::session::live::zk_session::{Session, SessionGone, cause};
use crate::session::request::repetition::{Repetition, Unanswered};
use crate::session::request::retry::contended_pause;
use crate::values::options::{Acl, ParentNodes};
use crate::values::path::{LockPath, above};

/// A counter, which its handles share.
pub(crate) struct Counter {
    pub(crate) path: LockPath,
    pub(crate) acl: Arc<[Acl]>,
    pub(crate) parents: ParentNodes,
    pub(crate) client: Arc<Core>,
}

impl Counter {
    fn user_path(&self) -> String {
        self.path.user().to_owned()
    }

    pub(crate) async fn get(self: &Arc<Self>) -> Result<i64, AtomicLongError> {
        let counter = Arc::clone(self);
        let read = async move {
            let counter = &counter;
            counter
                .client
                .repeat(|_, handle| async move { counter.read(&handle, false).await })
                .await
        };
        let read = self.client.tasks.start(read).await;
        let answer = match read {
            Ok(answer) => answer.map_err(|why| self.error(why))?,
            Err(why) => return Err(self.error(why)),
        };
        match answer {
            CounterEvent::Read(seen) => Ok(seen.map_or(0, |seen| seen.value)),
            CounterEvent::Unusable(unusable) => Err(self.unusable(unusable)),
            // A read has no other event.
            _ => Err(self.unexpected_answer()),
        }
    }

    /// Changes the value. A task on the session's thread sends the requests. The drop of this
    /// future aborts the task at whatever point it has reached.
    pub(crate) async fn change(
        self: &Arc<Self>,
        change: Change,
    ) -> Result<Changed, AtomicLongError> {
        let in_doubt = Arc::new(AtomicBool::new(false));
        let work = ChangeTask {
            counter: Arc::clone(self),
            in_doubt: Arc::clone(&in_doubt),
            last_failure: None,
            error: None,
        };
        match self.client.tasks.start(work.run(change)).await {
            Ok(result) => result,
            // The client has ended, and the task with it, so only the shared flag shows whether a
            // write may have been carried out.
            Err(_) if in_doubt.load(Ordering::Acquire) => {
                Err(self.unknown(cause(zk::Error::ClientClosed)))
            }
            Err(why) => Err(self.error(why)),
        }
    }

    async fn read(&self, handle: &zk::Client, sync: bool) -> Result<CounterEvent, zk::Error> {
        let path = self.path.server();
        // Both requests are sent before the first answer is awaited. The servers answer the
        // requests of a session in order, so the read shows all that the `sync` has brought to the
        // connected server.
        let sync = sync.then(|| handle.sync(path));
        let read = handle.get_data(path);
        if let Some(sync) = sync {
            sync.await?;
        }
        match read.await {
            Ok((data, stat)) => Ok(match value_of(&data, stat.ephemeral_owner, stat.cversion) {
                Ok(value) => CounterEvent::Read(Some(SeenCounter {
                    value,
                    version: stat.version,
                    czxid: stat.czxid,
                })),
                Err(unusable) => CounterEvent::Unusable(unusable),
            }),
            // A missing counter has the value 0 (docs/protocol.md#counter-layout).
            Err(zk::Error::NoNode) => Ok(CounterEvent::Read(None)),
            Err(error) => Err(error),
        }
    }

    async fn create(
        &self,
        session: &Session,
        handle: &zk::Client,
        value: i64,
    ) -> Result<CounterEvent, zk::Error> {
        let what = (zk::CreateMode::Persistent, &*self.acl);
        match session
            .create(handle, self.path.server(), &value.to_be_bytes(), what)
            .await
        {
            Ok((stat, _)) => Ok(CounterEvent::Created {
                // Servers of the 3.4 series answer a create without a Stat (ZOOKEEPER-1297). The
                // counter is read then, to learn which transaction created it.
                czxid: (!stat.is_invalid()).then_some(stat.czxid),
            }),
            Err(zk::Error::NodeExists) => Ok(CounterEvent::Exists),
            Err(zk::Error::NoNode) => Ok(CounterEvent::NoParent),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        session: &Session,
        handle: &zk::Client,
        value: i64,
        version: i32,
    ) -> Result<CounterEvent, zk::Error> {
        let data = value.to_be_bytes();
        match session
            .write(|| handle.set_data(self.path.server(), &data, Some(version)))
            .await
        {
            Ok(stat) => Ok(CounterEvent::Written { czxid: stat.czxid }),
            // The version that was read is gone: another process has written to the node, or an
            // earlier write of this change was carried out although its answer was lost.
            Err(zk::Error::BadVersion) => Ok(CounterEvent::BadVersion),
            Err(zk::Error::NoNode) => Ok(CounterEvent::NoNode),
            Err(error) => Err(error),
        }
    }

    fn unusable(&self, unusable: NoCounter) -> AtomicLongError {
        let path = self.user_path();
        match unusable {
            NoCounter::Data { bytes } => AtomicLongError::NotACounter { path, bytes },
            NoCounter::NotPersistent => AtomicLongError::NotPersistent { path },
        }
    }

    /// Returns the error of a request that failed.
    fn error(&self, why: impl Into<RequestFailure>) -> AtomicLongError {
        self.client
            .error(Purpose::Counter, self.path.user(), why)
            .into()
    }

    /// Returns the error for an event or a result of another kind than was requested. No code path
    /// leads to one; an error is still better than a panic.
    pub(crate) fn unexpected_answer(&self) -> AtomicLongError {
        self.unknown(cause(zk::Error::UnexpectedError(
            "an answer to another request".to_owned(),
        )))
    }

    fn unknown(&self, source: Cause) -> AtomicLongError {
        AtomicLongError::Unknown {
            path: self.user_path(),
            source,
        }
    }
}

/// One change of a counter, as a task.
struct ChangeTask {
    counter: Arc<Counter>,
    /// Whether the outcome is unknown if the task ends now.
    in_doubt: Arc<AtomicBool>,
    /// The last failure of a request that was not answered.
    last_failure: Option<Cause>,
    /// The error of the last request, if it is not repeated.
    error: Option<AtomicLongError>,
}

impl ChangeTask {
    async fn run(mut self, change: Change) -> Result<Changed, AtomicLongError> {
        let started = Instant::now();
        let counter = Arc::clone(&self.counter);
        let (mut changing, mut step) = Changing::new(change);
        // The count of failures spans all requests of the change, and all sessions, until a request
        // is answered.
        let mut repetition = Repetition::new(counter.client.retry);
        let outcome = loop {
            let request = match step {
                CounterStep::Do(request) => request,
                CounterStep::Finish(outcome) => break outcome,
            };
            let event = match request {
                CounterRequest::Pause { tries } => {
                    tokio::time::sleep(contended_pause(tries)).await;
                    CounterEvent::Paused
                }
                request => {
                    self.ask(&mut repetition, request, changing.changes_the_value())
                        .await
                }
            };
            if !matches!(event, CounterEvent::Lost | CounterEvent::NotDone) {
                // The request was answered, so the next failure is again the first one in a row.
                repetition = Repetition::new(counter.client.retry);
            }
            // `ask` sets the flag while a write is under way. Once there is an event, the state
            // machine knows whether any write, also an earlier one, is still in doubt.
            step = changing.on(event);
            self.in_doubt
                .store(changing.is_in_doubt(), Ordering::Release);
        };
        let path = counter.user_path();
        outcome.map_err(|why| match why {
            Unchanged::Overflow { value } => AtomicLongError::Overflow {
                path,
                value,
                delta: change.delta(),
            },
            Unchanged::Unusable(unusable) => counter.unusable(unusable),
            Unchanged::VersionsUsedUp => AtomicLongError::VersionsUsedUp { path },
            Unchanged::Contended => AtomicLongError::Contended {
                path,
                waited: started.elapsed(),
            },
            Unchanged::Unknown => counter.unknown(
                self.last_failure
                    .unwrap_or_else(|| cause(zk::Error::ConnectionLoss)),
            ),
            Unchanged::Failed => self.error.unwrap_or_else(|| counter.unexpected_answer()),
        })
    }

    /// Sends one request. [`Changing`] decides which request follows, and whether a write keeps its
    /// version.
    async fn ask(
        &mut self,
        repetition: &mut Repetition<'_>,
        request: CounterRequest,
        changes_the_value: bool,
    ) -> CounterEvent {
        let counter = Arc::clone(&self.counter);
        let session = match counter.client.session().await {
            Ok(session) => session,
            Err(none) => {
                let why = RequestFailure::from(none);
                // No request was sent this time, but an earlier write of this change may be in
                // doubt. The change then ends as unknown, and this failure is the source of that
                // error.
                if let RequestFailure::Connection(source) = &why {
                    self.last_failure = Some(Arc::clone(source));
                }
                return self.failed(counter.error(why), false);
            }
        };
        // The closure below sends the request, and is not called if the session has already ended.
        let was_sent = AtomicBool::new(false);
        let (counter, in_doubt, sent) = (&counter, &self.in_doubt, &was_sent);
        let answer = repetition.try_once(&session, |handle| {
            sent.store(true, Ordering::Relaxed);
            if changes_the_value {
                // If the client ends before the answer, it drops this task, and the caller has only
                // the flag.
                in_doubt.store(true, Ordering::Release);
            }
            let session = &session;
            async move {
                match request {
                    CounterRequest::Read { sync } => counter.read(&handle, sync).await,
                    CounterRequest::MakeParents => {
                        let Counter {
                            path,
                            acl,
                            parents,
                            client,
                        } = &**counter;
                        // Directories that exist already are no error, so this request can be sent
                        // again without a decision.
                        client
                            .make_directories(&handle, above(path.server()), acl, *parents)
                            .await?;
                        Ok(CounterEvent::ParentsMade)
                    }
                    CounterRequest::Create { value } => {
                        counter.create(session, &handle, value).await
                    }
                    CounterRequest::Write { value, version } => {
                        counter.write(session, &handle, value, version).await
                    }
                    // A pause is no request to the servers; see `run`.
                    CounterRequest::Pause { .. } => Ok(CounterEvent::Paused),
                }
            }
        });
        match answer.await {
            Ok(Ok(event)) => event,
            // `try_once` has made the pause that the retry policy asks for, so the next request may
            // follow at once.
            Ok(Err(failure)) => self.without_answer(failure),
            // The session has ended while the request was under way, so the request may have been
            // carried out. The request is sent again in the next session, with the same version.
            // `in_next_session` bounds these repetitions, because a request that ends every session
            // would otherwise cause new sessions without a limit.
            Err(Unanswered::NoSession(SessionGone)) if was_sent.into_inner() => {
                let source = cause(zk::Error::SessionExpired);
                self.last_failure = Some(Arc::clone(&source));
                if repetition.in_next_session().await {
                    CounterEvent::Lost
                } else {
                    self.failed(counter.error(RequestFailure::Connection(source)), true)
                }
            }
            // The session ended before the request was sent. The next call waits for another
            // session.
            Err(Unanswered::NoSession(SessionGone)) => CounterEvent::NotDone,
            // This request was definitely not carried out. [`Changing`] knows whether an earlier
            // one may have been.
            Err(Unanswered::Refused(failure)) => {
                self.failed(counter.error(failure.refused()), false)
            }
            Err(Unanswered::GaveUp(failure)) => {
                let error = counter.error(failure.unanswered());
                let lost = self.without_answer(failure) == CounterEvent::Lost;
                self.failed(error, lost)
            }
        }
    }

    fn without_answer(&mut self, failure: Failure) -> CounterEvent {
        self.last_failure = Some(failure.cause);
        match failure.kind {
            // Both kinds are definite: the server was too busy, or a directory was deleted again
            // while those below it were created. The other requests turn `NoNode` into an event
            // before it gets here.
            FailureKind::NotNow | FailureKind::NoNode => CounterEvent::NotDone,
            _ => CounterEvent::Lost,
        }
    }

    fn failed(&mut self, error: AtomicLongError, lost: bool) -> CounterEvent {
        self.error = Some(error);
        CounterEvent::Failed { lost }
    }
}
