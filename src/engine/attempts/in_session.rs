//! The state of an attempt in one session: its knowledge of the servers, and its nodes there.
//!
//! Nodes, ids of creates and watches belong to one session, so all that an attempt knows of the
//! servers is in one value, which ends with the session. The next session begins with a new one.
//!
//! Each node, lease and create of the attempt is in one of these places at any moment, so that the
//! drop of the value finds it:
//! - the state machine ([`Acquiring`]), which names its node and the creates of unknown outcome;
//! - `create`: the create under way, with its id;
//! - `unowned`: the node of a grant, from the end of the state machine until a hold has the node;
//! - `leases`: the same for a semaphore's leases.
//!
//! [`InSession::abandon_all`] passes all of these to cleanup. The orphans keep the slot until they
//! are deleted (docs/protocol.md#bounded-nodes).

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::engine::attempts::attempt::{Attempt, End, Patience, Stop, wait};
use crate::engine::request::look::{Subject, error_of, unusable_directory};
use crate::engine::request::requests::AttemptContext;
use crate::error::{AcquireError, Purpose, RequestFailure};
use crate::protocol::acquire::{
    AcquireEvent, AcquireStep, Acquiring, NoGrant, Orphans, OwnPredecessor,
};
use crate::protocol::failure::{FailureKind, Refusal};
use crate::protocol::late::WaitsFor;
use crate::protocol::moment::Moment;
use crate::protocol::permits::lease_beginning;
use crate::session::leftovers::cleanup::{CleanupItem, Orphan};
use crate::session::reports::observer::{self, How};
use crate::session::threads::BoxFuture;
use crate::session::threads::clock;
use crate::values::path::LockPath;

/// An attempt's part in one session. Its drop leaves all nodes to cleanup, so a panic leaves none
/// without an owner.
pub(crate) struct InSession<'a> {
    pub(crate) context: AttemptContext<'a>,
    pub(crate) attempt: &'a mut Attempt,
    /// The reference to the slot that the orphans share.
    permit: Option<Arc<OwnedSemaphorePermit>>,
    pub(crate) stop: &'a mut Stop,
    pub(crate) acquiring: Acquiring,
    /// The create that was sent and is not answered yet, and its id. A create is always awaited, as
    /// is the transaction of a semaphore's head. Any other request may be dropped.
    pub(crate) create: Option<(String, BoxFuture<'a, AcquireEvent>)>,
    /// The nodes that neither the state machine, which has finished, nor a hold owns, such as the
    /// node of a grant until a hold has it.
    pub(crate) unowned: Orphans,
    /// The same for a semaphore's leases, and the ids of those whose creates were sent.
    pub(crate) leases: Orphans,
    /// Changes when the deletion of a node is refused.
    pub(crate) refusals: watch::Receiver<u64>,
    /// The node of the last request, for the error if it is refused.
    pub(crate) subject: Subject,
    /// Whether the attempt has waited for another contender, which the observer is notified of
    /// once.
    pub(crate) queued: bool,
    /// When the request was sent whose answer may grant the lock.
    pub(crate) looked_at: Moment,
    /// Whether the attempt has listed again after a doubt, since it last waited for another
    /// contender.
    pub(crate) looked_again: bool,
    /// The proof by which the lock is granted, if the last event leads to a grant.
    pub(crate) how: How,
    /// When the current series of failures began: the retry policy does not count the time in the
    /// queue.
    failing_since: Instant,
    /// The patience of a try for permits; `None` for all other attempts.
    pub(crate) patience: Option<Patience>,
}

impl<'a> InSession<'a> {
    /// Returns the part in the session of `context`, and its first step.
    pub(crate) fn begin(
        attempt: &'a mut Attempt,
        context: AttemptContext<'a>,
        stop: &'a mut Stop,
    ) -> (Self, AcquireStep) {
        // Each waiter of a fair lock has a node. Thousands of watches would exceed the limit of the
        // session (docs/protocol.md#watch-limit), so its waiters wait in memory for nodes of their
        // session.
        let waits = match context.path_lock.is_fair() {
            true => OwnPredecessor::InMemory,
            false => OwnPredecessor::Watched,
        };
        let (acquiring, step) = Acquiring::new(
            context.path_lock.options.naming(),
            context.kind,
            attempt.ask.budget.if_busy(),
            waits,
        );
        let here = Self {
            context,
            // Orphans of this session keep the slot even when the attempt has ended.
            permit: attempt.slot.as_ref().map(|slot| Arc::clone(&slot.permit)),
            attempt,
            stop,
            acquiring,
            create: None,
            unowned: Orphans::default(),
            leases: Orphans::default(),
            // The receiver reports the refusals from here on. `look_first` reads the earlier ones
            // after this.
            refusals: context.session.nodes.refusals(),
            subject: Subject::Directory,
            queued: false,
            looked_at: clock::now(),
            looked_again: false,
            how: How::default(),
            failing_since: Instant::now(),
            patience: None,
        };
        (here, step)
    }

    /// Waits for `work`, as [`wait`] does.
    pub(crate) fn wait<'b, F: Future + Send + 'b>(
        &'b mut self,
        work: F,
    ) -> impl Future<Output = Result<F::Output, End>> + Send + 'b {
        let work: BoxFuture<'_, F::Output> = Box::pin(work);
        wait(self.context, work, self.stop)
    }

    /// Pauses before repetition number `failures`, as the retry policy defines. Returns `false` if
    /// the policy is exhausted. If `why` is `NoNode`, another process has deleted `deleted` nodes
    /// of the attempt in a row or, if that is 0, the directory.
    pub(crate) async fn pause(
        &mut self,
        failures: u32,
        why: FailureKind,
        deleted: u32,
    ) -> Result<bool, End> {
        if why == FailureKind::NoNode {
            // The next node of the attempt will be at the end of the queue: the contenders ahead of
            // it are not known yet, and a doubt requires another list. If only the directory of a
            // semaphore's leases is missing, the lock node keeps its place, and the next look shows
            // the leases.
            self.looked_again = false;
            self.attempt.saw_ahead(None);
            self.attempt
                .progress
                .set_waits_for(WaitsFor::Retry { deleted });
        }
        if failures == 0 {
            self.failing_since = Instant::now();
        }
        let AttemptContext {
            path_lock,
            session,
            number,
            ..
        } = self.context;
        let retry = &path_lock.client.retry;
        let elapsed = self.failing_since.elapsed();
        let Some(pause) = retry.pause_before_repetition(failures, why, elapsed) else {
            return Ok(false);
        };
        // The other attempts of this client may create during the pause
        // (docs/protocol.md#arrival-order). A repetition without a pause keeps its turn.
        if !pause.is_zero() {
            path_lock
                .queue
                .with(|queue| queue.step_aside(number, session.number));
        }
        self.wait(tokio::time::sleep(pause)).await?;
        Ok(true)
    }

    /// Records that the attempt waits for another contender.
    pub(crate) fn queues(&mut self, node: Option<&str>) {
        if !std::mem::replace(&mut self.queued, true) {
            let ahead = || self.attempt.progress.ahead().map(|ahead| ahead.count);
            observer::queued(self.attempt.ask.call, node, ahead);
        }
    }

    /// Returns how the attempt ends when a state machine has finished without a grant. The last
    /// request was about a node of `directory`.
    pub(crate) fn not_granted(&mut self, directory: &LockPath, why: NoGrant) -> End {
        let path_lock = self.context.path_lock;
        let path = || path_lock.path.user().to_owned();
        End::from(match why {
            NoGrant::SessionGone => return End::Again,
            NoGrant::WouldBlock => {
                return match self.attempt.progress.ahead() {
                    Some(ahead) => End::Denied(path_lock.would_block(self.context.kind, ahead)),
                    // Only nodes of this client that are being deleted are ahead. The next round
                    // waits in `look_first` until they are gone (docs/protocol.md#live-contender).
                    None => End::Again,
                };
            }
            NoGrant::Unusable(unusable) => unusable_directory(path_lock, unusable).into(),
            NoGrant::TooManyWatches => AcquireError::TooManyWatches { path: path() },
            NoGrant::NodeDeleted { times } => AcquireError::NodeDeleted {
                path: path(),
                times,
            },
            NoGrant::KeptFailing(failure) => path_lock.failed(failure.unanswered()),
            NoGrant::Refused(failure) => match failure.kind {
                // The id in the name is fresh, so no other node has the name. ZooKeeper gives
                // this answer to each sequential create once the largest number is used
                // (docs/protocol.md#sequence-order).
                FailureKind::Refused(Refusal::NodeExists) => {
                    path_lock.failed(RequestFailure::SequenceExhausted)
                }
                _ => {
                    let subject = (directory, std::mem::take(&mut self.subject));
                    error_of(path_lock, Purpose::Lock, subject, failure.refused()).into()
                }
            },
        })
    }

    /// Leaves orphans of the queue to cleanup, which keeps the slot until they are deleted.
    pub(crate) fn pass_to_cleanup(&self, orphans: Orphans) {
        let AttemptContext {
            path_lock, kind, ..
        } = self.context;
        self.submit(&path_lock.path, orphans, |id| {
            path_lock.options.naming().prefix(id, kind)
        });
    }

    /// Leaves leases to cleanup.
    pub(crate) fn pass_leases_to_cleanup(&self, orphans: Orphans) {
        if let Some(semaphore) = &self.context.path_lock.options.semaphore {
            // Cleanup finds a node by the id in its name, whatever its slot and its limit are.
            self.submit(&semaphore.leases, orphans, |id| lease_beginning(id, 0, 0));
        }
    }

    fn submit(&self, directory: &LockPath, orphans: Orphans, beginning: impl Fn(&str) -> String) {
        let nodes = orphans.names.into_iter().map(Orphan::Node);
        let unknown = orphans.ids.into_iter().map(|id| {
            let beginning = beginning(&id);
            // From now on the node of this create, if it exists, is no live contender
            // (docs/protocol.md#live-contender).
            let create = self.context.session.nodes.creates.abandon(id);
            Orphan::UnknownCreate { create, beginning }
        });
        for orphan in nodes.chain(unknown) {
            self.context.path_lock.client.cleanup.submit(CleanupItem {
                session: Arc::clone(self.context.session),
                directory: directory.clone(),
                orphan,
                number: self.context.number,
                // The slot stays taken until the node is gone, so that cancelled calls in an outage
                // do not accumulate nodes (docs/protocol.md#bounded-nodes).
                slot: self.permit.clone(),
                done: None,
            });
        }
    }

    /// Passes every node, id and lease of the attempt to cleanup, and gives up its slot.
    pub(crate) fn abandon_all(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        self.pass_leases_to_cleanup(leases);
        let mut orphans = std::mem::take(&mut self.unowned);
        orphans.extend(self.acquiring.abandon());
        // A create that is under way may still make a node. No task awaits its answer any more, so
        // its outcome is unknown.
        orphans.ids.extend(self.create.take().map(|(id, _)| id));
        self.pass_to_cleanup(orphans);
        // Each orphan has a reference of its own to the slot.
        self.permit = None;
    }
}

impl Drop for InSession<'_> {
    fn drop(&mut self) {
        // Nothing is left after `finish`. A panic drops the value at any other point, and without
        // this cleanup its nodes would block the lock until the session ends.
        self.abandon_all();
    }
}
