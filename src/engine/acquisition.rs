//! The caller's side of a call that acquires a lock: its report to the
//! [observer](crate::session::reports::observer), the warning of a call that waits for its own
//! client, and the lock that the call gets. Faces, recipes, attempts and work under a lock use this
//! file. No function here waits for a lock or sends a request, but a release waits for its result.
//!
//! ```text
//!   ObservedCall::begin --> the attempts of the call --> ObservedCall::ended
//!        |                                                  | refused if the client was drained
//!   report: begun                                        report: granted, or not granted and why
//!                                                           |
//!                          the last guard is dropped, or the lock is lost --> report: ended
//! ```
//!
//! A [`Hold`] owns the lock, by its [`Grant`]; the guards of one hold share it, and the last of
//! them releases the lock. Work under the lock, such as a transaction, must not keep the lock
//! beyond the guards: such work has a [`LockRef`], which knows the lock and owns nothing.
//!
//! A program often deadlocks because it acquires a lock while it keeps a guard of the same lock
//! elsewhere. [`watch_self_wait`] logs that.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::granted::{Grant, GrantedLock};
use crate::engine::held::Held;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::error::{AcquireError, ErrorKind, Lost, LostReason, ReleaseError, TryLockError};
use crate::protocol::acquire::{AcquireEvent, Standing};
use crate::protocol::node_name::Kind;
use crate::session::reports::log;
use crate::session::reports::observer::{CallEnd, CallReport, CallSubject, GrantReport, How};

/// How long a call waits for a hold of the same client before that is logged.
const SELF_WAIT: Duration = Duration::from_secs(1);

/// One call that acquires a lock, as its caller has it; empty if the call is not observed. If the
/// value is dropped before the call has ended, the call is reported as cancelled.
#[derive(Default)]
pub(crate) struct ObservedCall(Option<Arc<CallReport>>);

impl ObservedCall {
    /// Notes a call, whose attempts carry its number.
    pub(crate) fn begin(path_lock: &PathLock, ask: &mut Ask) -> Self {
        Self::begin_as(recipe(path_lock, ask.kind), path_lock, ask)
    }

    /// Notes a call for several locks as one, of which this is the first.
    pub(crate) fn begin_multi(first: &PathLock, ask: &mut Ask) -> Self {
        Self::begin_as("multi_lock", first, ask)
    }

    fn begin_as(recipe: &'static str, path_lock: &PathLock, ask: &mut Ask) -> Self {
        let report = CallReport::begin(|| CallSubject {
            path: path_lock.path.clone(),
            recipe,
            #[cfg(feature = "metrics")]
            prefix: path_lock.client.labels.of(path_lock.path.user()),
        });
        // The attempts run in other tasks, and report to the call by its number.
        ask.call = report.as_deref().map(CallReport::number);
        Self(report)
    }

    /// Notes the result of the call, and returns it. `path_lock` is that of the call, or of the
    /// first of several, and `holds` are the granted ones. Each call that acquires a lock ends
    /// here. A grant that its caller has not seen when the client is drained is given back, because
    /// the drain may have looked for holds before the grant was made (docs/protocol.md#drain).
    pub(crate) fn ended<T, E: Reason + From<AcquireError>>(
        self,
        path_lock: &PathLock,
        result: Result<T, E>,
        holds: impl FnOnce(&T) -> &[Hold],
    ) -> Result<T, E> {
        let drained = || path_lock.client.drained_error(&path_lock.path);
        // If the client is drained, the drop of the granted locks releases them.
        let result =
            result.and_then(|granted| drained().map_or(Ok(granted), |closed| Err(closed.into())));
        if let Some(report) = &self.0 {
            match &result {
                Ok(granted) => begin_holds(report, holds(granted)),
                Err(error) => report.end(CallEnd::NotGranted(error.reason())),
            }
        }
        result
    }
}

/// Reports that these holds were granted.
fn begin_holds(report: &Arc<CallReport>, holds: &[Hold]) {
    let Some(first) = holds.first() else { return };
    let (how, node, session) = (first.how(), first.node(), first.session.number.get());
    // The grant is reported first: the end of the report, by a loss that has already happened, is
    // final.
    report.granted(GrantReport {
        how,
        node,
        session,
        holds: holds.len(),
    });
    holds.iter().for_each(|hold| hold.held.begin_report(report));
}

/// Why a call was not granted, as a label.
pub(crate) trait Reason {
    fn reason(&self) -> &'static str;
}

impl Reason for AcquireError {
    fn reason(&self) -> &'static str {
        match self {
            Self::TimedOut { .. } => "timed_out",
            Self::Request(error) => match error.kind() {
                ErrorKind::Connection => "connection",
                ErrorKind::Closed => "closed",
                _ => "refused",
            },
            _ => "refused",
        }
    }
}

impl Reason for TryLockError {
    fn reason(&self) -> &'static str {
        match self {
            Self::WouldBlock { .. } => "busy",
            Self::Acquire(error) => error.reason(),
        }
    }
}

/// Reports that a hold was converted to that of a reader.
pub(crate) fn converted(held: &Held) {
    held.report.converted(read_write(held.kind()));
}

/// Returns by what a lock is granted if this event is the last before the grant.
pub(crate) fn how(event: &AcquireEvent, has_waited: bool) -> How {
    match event {
        AcquireEvent::HandedOver => How::HandedOver,
        // A waiter lists again after the event that ended its wait. The event counts, not the list.
        _ if has_waited => How::Event,
        // The create was sent without a list, and the number of the node was the proof
        // (docs/protocol.md#succession).
        AcquireEvent::Created {
            list: None,
            standing: Standing::First,
            ..
        } => How::Succession,
        _ => How::List,
    }
}

fn recipe(path_lock: &PathLock, kind: Kind) -> &'static str {
    match path_lock.options.recipe {
        Recipe::Mutex => "mutex",
        Recipe::FairLock => "fair_lock",
        Recipe::ReadWriteLock => read_write(kind),
        Recipe::Semaphore => "semaphore",
        // An election begins no call.
        Recipe::LeaderLatch => "leader_latch",
    }
}

const fn read_write(kind: Kind) -> &'static str {
    match kind {
        Kind::Shared => "read_lock",
        Kind::Exclusive => "write_lock",
    }
}

/// Watches a call that waits, without a deadline, for a hold of the same client. If the call still
/// waits after [`SELF_WAIT`], the log names both source locations, once for each path lock. The
/// call keeps the returned value for as long as it waits.
pub(crate) fn watch_self_wait(path_lock: &Arc<PathLock>, ask: &Ask) -> Option<Arc<()>> {
    // The holder of a permit does not block other callers of its client for certain. A call with a
    // deadline names the local holder in its error.
    if !matches!(ask.budget, Budget::Forever) || path_lock.options.semaphore.is_some() {
        return None;
    }
    // The flag is read before the holders are copied, because thousands of calls may wait, and only
    // one of them is checked.
    if path_lock.is_self_wait_known() {
        return None;
    }
    let holder = path_lock.holder_for(ask.kind)?;
    // Another call may have begun its check since the flag was read.
    if !path_lock.begin_self_wait() {
        return None;
    }
    let waiting = Arc::new(());
    // The task keeps neither the call nor the lock: a lock without handles needs no warning.
    let client = &path_lock.client;
    let (still_waits, path_lock) = (Arc::downgrade(&waiting), Arc::downgrade(path_lock));
    let (kind, asked_at, number) = (ask.kind, ask.location, holder.held.number);
    let watch = async move {
        tokio::time::sleep(SELF_WAIT).await;
        let Some(path_lock) = path_lock.upgrade() else {
            return;
        };
        // If another hold has the lock by now, the lock changes hands, and there is no deadlock.
        let holder = path_lock
            .holder_for(kind)
            .filter(|holder| holder.held.number == number);
        match holder.filter(|_| still_waits.strong_count() > 0) {
            Some(holder) => {
                let (path, held_at) = (path_lock.path.user(), holder.location);
                log::warn!(
                    path,
                    %held_at,
                    %asked_at,
                    "a call waits for a lock that this client itself holds"
                );
            }
            // A later call may be checked. After a warning the flag stays, so that the log has one
            // warning for each path lock.
            None => path_lock.end_self_wait(),
        }
    };
    client.tasks.start(watch).detach();
    Some(waiting)
}

/// A granted lock that its caller has, as the guards share it. Dropping it releases the lock, and
/// leaves the node to cleanup.
pub(crate) struct Hold {
    /// The first field is dropped first. The last handle of a client closes the client, and the
    /// release must come before that.
    grant: Grant,
    pub(crate) path_lock: Arc<PathLock>,
}

/// A lock that is held, for work under it. The [`Hold`] releases the lock.
#[derive(Clone)]
pub(crate) struct LockRef {
    pub(crate) path_lock: Arc<PathLock>,
    lock: GrantedLock,
}

impl Deref for Hold {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.grant
    }
}

impl Deref for LockRef {
    type Target = GrantedLock;

    fn deref(&self) -> &GrantedLock {
        &self.lock
    }
}

impl Hold {
    /// Returns the hold of a caller that has received this grant.
    pub(crate) fn new(path_lock: Arc<PathLock>, grant: Grant) -> Self {
        Self { grant, path_lock }
    }

    /// Returns the lock for work under it, which may outlive the borrow of the hold.
    pub(crate) fn lock_ref(&self) -> LockRef {
        LockRef {
            path_lock: Arc::clone(&self.path_lock),
            lock: GrantedLock::clone(self),
        }
    }

    /// Returns by what the lock was granted.
    pub(crate) fn how(&self) -> How {
        self.grant.how
    }

    /// Lets other callers of this client share the node, or get it next, unless they have an open
    /// node, or are about to have one.
    pub(crate) fn open(&self) {
        self.path_lock.shared.open(&self.grant);
    }

    /// Records that the caller has the lock. From now on a guard reports a loss, and the call is
    /// not repeated because of it.
    pub(crate) fn note_received(&self) {
        // The flag is set before the notification, because `holdings::held` counts only holds with
        // the flag.
        self.held.set_received();
        self.path_lock.client.guard_changes.notify();
    }

    /// Releases the lock, and waits until the node is deleted. Cleanup does the work, so dropping
    /// the future does not stop it.
    pub(crate) fn release(
        self,
    ) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static + use<> {
        let Self { grant, path_lock } = self;
        let (done, result) = oneshot::channel();
        // The release begins before the future is polled.
        grant.release(done);
        // The handle is kept until the result: if the last handle were dropped earlier, the client
        // would be closed before the deletion is confirmed.
        async move {
            result.await.unwrap_or_else(|_| {
                // Cleanup sends a result for every item. There is none only if the client has
                // ended, or the session was dropped.
                Err(Lost {
                    path: path_lock.path.user().into(),
                    reason: LostReason::Closed,
                }
                .into())
            })
        }
    }
}

impl LockRef {
    /// Returns a lock whose hold is kept elsewhere.
    pub(crate) fn new(path_lock: Arc<PathLock>, lock: GrantedLock) -> Self {
        Self { path_lock, lock }
    }
}

/// Reads the clock, and returns the path lock and the reason of the first of these holds that is
/// lost.
pub(crate) fn first_lost(holds: &[Hold]) -> Option<(&Arc<PathLock>, LostReason)> {
    holds
        .iter()
        .find_map(|hold| Some((&hold.path_lock, hold.held.check_lost()?)))
}

/// Waits for the first of these futures. Without futures, the wait does not end.
pub(crate) async fn first<F: Future + Unpin>(futures: &mut [F]) -> F::Output {
    poll_fn(|context| {
        let ready = futures
            .iter_mut()
            .find_map(|future| match Pin::new(future).poll(context) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
