//! One attempt to get a lock, from its start to its end.
//!
//! An attempt is a task on the session's runtime, so that it outlives its caller
//! (docs/protocol.md#attempt-outlives-caller). It waits for a slot, then contends in one session after the
//! other until the caller has its result. [`Acquiring`], which is pure, decides what to do next; the requests
//! are in [`requests`].
//!
//! Where to look: the main loop is [`Attempt::follow`]; a lock is granted in [`Attempt::grant`]; everything
//! that ends an attempt, or its part in a session, ends in [`Attempt::leave`], which leaves the orphans to
//! cleanup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use crate::engine::held::Held;
use crate::engine::hold::Hold;
use crate::engine::look::{
    InTheWay, Subject, error_of, in_the_way, look_before_try, orphaned, refused_in, unusable_directory,
};
use crate::engine::observe;
use crate::engine::path_lock::{Admission, Ask, PathLock};
use crate::engine::pending::{Caller, Pending};
use crate::engine::progress::{ProgressReceiver, ProgressSender};
use crate::engine::requests::{self, UnderWay};
use crate::engine::seat::Seat;
use crate::engine::slots::NodeSlot;
use crate::engine::stop::{Stop, Stopped};
use crate::error::{AcquireError, Purpose, RequestFailure, TryLockError};
use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, IfBusy, NoGrant, Orphans, OwnNode,
    OwnPredecessor, PauseReason,
};
use crate::protocol::failure::{FailureKind, Refusal};
use crate::protocol::hold::HoldState;
use crate::protocol::late::{Ahead, WaitsFor};
use crate::protocol::local_queue::Notice;
use crate::protocol::moment::Moment;
use crate::protocol::node_name::Kind;
use crate::protocol::queue::Queue;
use crate::session::cleanup::{Item, Orphan};
use crate::session::clock;
use crate::session::log;
use crate::session::note::How;
use crate::session::tickets::Ticket;
use crate::session::window::Slot;

/// How long a try or an upgrade waits behind nodes that their owners may only keep: for two flights, and their
/// attention.
pub(super) const GIVEN_UP_WITHIN: Duration = Duration::from_millis(100);

/// Starts an attempt to get the lock. Dropping the result cancels the attempt, which then cleans up.
///
/// The attempt is a task on the session's runtime, so the caller needs no timer, and no particular runtime.
pub(crate) fn start(path_lock: &Arc<PathLock>, ask: Ask) -> (Pending<Hold>, ProgressReceiver) {
    start_as(path_lock, ask, path_lock.client().cleanup().number())
}

/// The same with this number.
pub(super) fn start_as(
    path_lock: &Arc<PathLock>,
    ask: Ask,
    number: u64,
) -> (Pending<Hold>, ProgressReceiver) {
    let (pending, Caller { reply, cancelled }) = Pending::new(path_lock.client(), path_lock.path(), number);
    let (progress, seen) = ProgressSender::new();
    let attempt = Attempt {
        path_lock: Arc::clone(path_lock),
        ask,
        number,
        started: Instant::now(),
        progress,
        reply: Some(reply),
        slot: None,
    };
    path_lock.client().spawn(attempt.run(cancelled));
    (pending, seen)
}

/// Returns the state machine of an attempt in one session, and its first step.
fn begin(seat: Seat<'_>, if_busy: IfBusy) -> (Acquiring, AcquireStep) {
    let waits =
        if seat.path_lock.waits_in_memory() { OwnPredecessor::InMemory } else { OwnPredecessor::Watched };
    Acquiring::new(seat.path_lock.naming(), seat.kind, if_busy, waits)
}

/// One attempt to get a lock.
struct Attempt {
    path_lock: Arc<PathLock>,
    ask: Ask,
    /// Its position in the order of arrival; also identifies what it leaves to cleanup; see
    /// [`Tickets`](crate::session::tickets::Tickets).
    number: u64,
    started: Instant,
    progress: ProgressSender,
    /// `None` once the caller has its result, or has left.
    reply: Option<oneshot::Sender<Result<Hold, TryLockError>>>,
    /// `None` until it has one, and from its end on.
    slot: Option<NodeSlot>,
}

/// An attempt's part in one session. If it is dropped before it was left, as by a panic, its nodes are left to
/// cleanup.
struct InSession<'a> {
    seat: Seat<'a>,
    /// What its orphans keep.
    permit: Option<Arc<OwnedSemaphorePermit>>,
    stop: &'a mut Stop,
    acquiring: Acquiring,
    /// A create that was sent and is not answered yet, and its id. It is awaited to its end; any other request
    /// may be dropped.
    create: Option<(String, UnderWay<'a>)>,
    /// The nodes that are left when the state machine has finished: that of a grant until it is a hold's.
    left: Orphans,
    /// Changes when the deletion of a node is refused.
    refusals: watch::Receiver<u64>,
    /// The node of the last request, for the error if it is refused.
    subject: Subject,
    /// Whether it has waited for another contender, which is told once.
    queued: bool,
    /// When the look was sent by which it may be granted.
    looked_at: Moment,
    /// Whether it has looked again after a doubt, since it has waited for another.
    looked_again: bool,
    /// By what it is granted, if the last event was the last before the grant.
    how: How,
    /// When the current series of failures began: the retry policy does not count the time in the queue.
    failing_since: Instant,
    /// `None` but for a try behind nodes that may only be kept. On the heap, for the sake of all others.
    kept: Option<Box<Kept>>,
}

/// Nodes ahead of a try that may only be kept, and until when it waits for them, counted from when it is behind
/// them: not while the servers are asked.
struct Kept {
    ahead: Ahead,
    until: Option<Instant>,
}

/// How an attempt, or its part in one session, ended. It travels as the `Err` of a step, even if it is a
/// grant, since only a step that goes on has an event.
enum End {
    Granted(Hold),
    Denied(TryLockError),
    OutOfTime,
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
    /// To be tried again: in this session, or in the next one if this has ended.
    Again,
}

impl Attempt {
    #[expect(clippy::manual_async_fn, reason = "each of many that wait would have its arguments twice")]
    fn run(
        mut self,
        cancelled: oneshot::Receiver<Ticket>,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        async move {
            let mut stop = Stop::new(self.ask.budget, cancelled);
            stop.ask_before(self.ask.budget, &self.path_lock);
            if let Err(end) = self.take_slot(&mut stop).await {
                // Nothing has been sent, so there is nothing to clean up.
                return drop(self.tell(end));
            }
            // On the heap only from here on, because many attempts may be waiting for a slot.
            Box::pin(self.contend(&mut stop)).await;
        }
    }

    /// Waits for a slot, in order of arrival. A newcomer to a fair lock, whose order is that of the nodes, is
    /// refused instead (docs/protocol.md#bounded-nodes).
    async fn take_slot(&mut self, stop: &mut Stop) -> Result<(), End> {
        let slots = Arc::clone(self.path_lock.slots());
        self.slot = slots.try_take();
        if self.slot.is_some() {
            return Ok(());
        }
        if self.path_lock.refuses_waiters() && self.ask.admission == Admission::First {
            let (path, max) = (self.path_lock.path().user().to_owned(), slots.max());
            return Err(AcquireError::TooManyWaiters { path, max }.into());
        }
        self.see_others();
        self.progress.set_waits_for(WaitsFor::Slot);
        observe::queued(self.ask.call, None, || Some(slots.live()));
        let slot = async {
            if self.if_busy() == IfBusy::Fail {
                // On the heap, because many attempts may be waiting for a slot.
                Box::pin(self.look_without_slot()).await?;
            }
            slots.take().await.ok_or_else(|| End::from(self.path_lock.ended()))
        };
        let slot = tokio::select! {
            biased;
            slot = slot => slot?,
            end = stop.wait() => {
                self.see_others();
                return Err(end.into());
            }
        };
        self.slot = Some(slot);
        Ok(())
    }

    /// Checks whether a try, which waits only for the servers, has live contenders in its way.
    async fn look_without_slot(&self) -> Result<(), End> {
        let (path_lock, kind) = (&self.path_lock, self.ask.kind);
        let session = path_lock.client().session().await;
        let session = session.map_err(|none| End::from(path_lock.failed(none)))?;
        match look_before_try(path_lock, &session, kind).await.ahead() {
            Some(ahead) => Err(End::Denied(path_lock.would_block(kind, ahead))),
            None => Ok(()),
        }
    }

    /// Notes the live attempts of this client that have slots, if there are any, as ahead.
    fn see_others(&self) {
        let count = self.path_lock.slots().live();
        // Readers are in a reader's way only while they wait themselves: for long they do not wait for servers that
        // answer.
        let session = self.path_lock.client().live();
        let in_the_way = self.ask.kind == Kind::Exclusive || session.is_some_and(|live| live.is_healthy());
        if count > 0 && in_the_way {
            self.progress.set_ahead(Some(Ahead { count, first: None }));
        }
    }

    /// Contends in one session after the other until the caller has its result or leaves: an attempt whose
    /// session ends starts again in the next one (docs/protocol.md#session-end).
    async fn contend(&mut self, stop: &mut Stop) {
        let path_lock = Arc::clone(&self.path_lock);
        let _arrived = Arrived { path_lock: &path_lock, number: self.number };
        if self.ask.admission == Admission::Again {
            // The attempt that it goes on for was ahead of those that arrived later, and stays that in the next
            // session, whichever of them hears of it first.
            path_lock.queue().with(|queue| queue.claim_turn(self.number));
        }
        while self.reply.is_some() {
            // The contenders that were ahead in an earlier session may be gone.
            self.progress.set_ahead(None);
            self.progress.set_waits_for(WaitsFor::Session);
            let session = tokio::select! {
                biased;
                // First: if the caller left while this waited for a slot, no node is to be created.
                end = stop.wait() => Err(End::from(end)),
                session = path_lock.client().session() => {
                    session.map_err(|none| End::from(path_lock.failed(none)))
                }
            };
            let session = match session {
                Ok(session) => session,
                Err(end) => return drop(self.tell(end)),
            };
            self.progress.set_node(None);
            let seat =
                Seat { path_lock: &path_lock, session: &session, number: self.number, kind: self.ask.kind };
            self.contend_in(seat, stop).await;
        }
    }

    /// Contends in one session, and leaves it.
    async fn contend_in(&mut self, seat: Seat<'_>, stop: &mut Stop) {
        let _counted = seat.session.begin_work();
        let (acquiring, mut step) = begin(seat, self.if_busy());
        let mut here = InSession {
            seat,
            permit: self.slot.as_ref().map(NodeSlot::permit),
            stop,
            acquiring,
            create: None,
            left: Orphans::default(),
            refusals: seat.session.refusals(),
            subject: Subject::Directory,
            queued: false,
            looked_at: clock::now(),
            looked_again: false,
            how: How::default(),
            failing_since: Instant::now(),
            kept: None,
        };
        let end = match self.look_first(&mut here).await {
            Ok(kept) => {
                if let Some(ahead) = kept {
                    // Its node is the sign that makes their owners give them up, which it waits for shortly
                    // (docs/protocol.md#kept-node).
                    (here.acquiring, step) = begin(here.seat, IfBusy::Wait);
                    here.kept = Some(Box::new(Kept { ahead, until: None }));
                }
                self.follow(&mut here, step).await
            }
            Err(end) => {
                here.finished(step);
                end
            }
        };
        self.leave(end, here).await;
    }

    /// Carries out the steps of the state machine and returns their results to it, until the attempt ends in
    /// this session.
    async fn follow(&self, here: &mut InSession<'_>, mut step: AcquireStep) -> End {
        loop {
            let event = match step {
                AcquireStep::Do(request) => self.request(here, &request).await,
                AcquireStep::Pause { failures, why } => self.pause(here, failures, why).await,
                AcquireStep::Finish(AcquireOutcome::Granted { name, czxid, also }) => {
                    here.leave_to_cleanup(also);
                    here.left.names.push(name.clone());
                    self.grant(here, &name, czxid).await
                }
                AcquireStep::Finish(AcquireOutcome::NotGranted { why, orphans }) => {
                    here.left = orphans;
                    Err(self.not_granted(here, &why))
                }
            };
            let event = match event {
                Ok(event) => event,
                Err(end) => return end,
            };
            if matches!(event, AcquireEvent::HandedOver) {
                here.looked_at = clock::now();
            }
            let Seat { path_lock, session, .. } = here.seat;
            let waitable = |name: &str| path_lock.queue().with(|queue| queue.knows(session.number(), name));
            here.how = observe::how(&event, here.queued);
            step = here.acquiring.on(event, &waitable);
            let orphans = here.acquiring.take_orphans();
            here.leave_to_cleanup(orphans);
        }
    }

    /// Leaves the session, which is the only way out of it: tells the caller the result, if there is one, and
    /// leaves the orphans to cleanup.
    async fn leave(&mut self, end: End, mut here: InSession<'_>) {
        if let End::Granted(mut hold) = end {
            let seat = here.seat;
            drop(here);
            // If the session has ended, the hold is lost: its drop cleans up, and the caller goes on waiting.
            if seat.session.end_reason().is_none() {
                // This comes first: the caller may ask for another lock at once.
                let slot = self.slot.take();
                if seat.path_lock.counts_holder() {
                    hold.keep(slot);
                }
                drop(self.tell(End::Granted(hold)));
            }
            return;
        }
        if !matches!(end, End::Again) {
            // From here on cleanup has the slot.
            self.slot = None;
        }
        let Some((_, create)) = &mut here.create else {
            // Before the answer: the caller's next try must not find its own node in the way.
            drop(here);
            return drop(self.tell(end));
        };
        // The answer does not wait for the outcome of a create.
        let ticket = self.tell(end);
        let created = create.await;
        here.create = None;
        let step = here.acquiring.on(created, &|_| false);
        here.finished(step);
        drop(here);
        drop(ticket);
    }

    /// Tells the caller the result, if the attempt has ended. [`Client::flush`](crate::Client::flush) waits
    /// until the returned ticket is dropped; it exists before the caller is told, so that a flush called
    /// after that counts it.
    fn tell(&mut self, end: End) -> Option<Ticket> {
        let ticket = || Some(self.path_lock.client().cleanup().ticket(self.number));
        let (ticket, answer) = match end {
            End::Again => return None,
            End::CallerGone(ticket) => {
                self.reply = None;
                return ticket;
            }
            End::Granted(hold) => (None, Ok(hold)),
            End::Denied(error) => (ticket(), Err(error)),
            End::OutOfTime => (ticket(), Err(self.out_of_time())),
        };
        if let Some(reply) = self.reply.take() {
            // If the caller has left, a hold comes back here, and its drop releases the lock.
            drop(reply.send(answer));
        }
        ticket
    }

    /// Checks, before a node is created, whether this client has a refused orphan there, and, for a try,
    /// whether the lock is free. Returns the nodes ahead that may only be kept.
    async fn look_first(&self, here: &mut InSession<'_>) -> Result<Option<Ahead>, End> {
        let Seat { path_lock, session, kind, .. } = here.seat;
        // Checked after this attempt has been counted. A session ends first and waits for the counted
        // attempts then, so either this sees the end, or the end waits for this.
        if session.end_reason().is_some() {
            return Err(End::Again);
        }
        self.progress.set_waits_for(WaitsFor::Deletion);
        if let Some(error) = here.wait(orphaned(path_lock, session, kind, None)).await? {
            return Err(error.into());
        }
        if self.if_busy() == IfBusy::Wait {
            return Ok(None);
        }
        self.progress.set_waits_for(WaitsFor::List);
        match here.wait(Box::pin(look_before_try(path_lock, session, kind))).await? {
            InTheWay::Nothing => Ok(None),
            InTheWay::Kept(ahead) => Ok(Some(ahead)),
            InTheWay::Live(ahead) => Err(End::Denied(path_lock.would_block(kind, ahead))),
            InTheWay::Leaving(path) => {
                self.progress.set_waits_for(WaitsFor::Deletion);
                here.wait(session.until_gone(&path)).await?;
                Err(End::Again)
            }
        }
    }

    /// Carries out one request, or one wait for another contender.
    async fn request(&self, here: &mut InSession<'_>, request: &AcquireRequest) -> Result<AcquireEvent, End> {
        let seat = here.seat;
        let own = here.acquiring.queued_as().map(str::to_owned);
        let own = own.as_deref();
        // Each future on the heap, so that a waiting attempt, of which there may be thousands, is small.
        match request {
            AcquireRequest::Create => {
                self.progress.set_waits_for(WaitsFor::Create);
                here.subject = Subject::Directory;
                let slot = here.wait(until_create(seat, self.if_busy())).await?;
                here.looked_at = clock::now();
                let id = requests::new_id(seat.path_lock.naming());
                let create = requests::create(seat, slot, id.clone());
                let (_, create) = here.create.insert((id, create));
                let created = wait(seat, create, here.stop).await?;
                here.create = None;
                Ok(created)
            }
            AcquireRequest::MakeParents => {
                self.progress.set_waits_for(WaitsFor::Parents);
                here.subject = Subject::Parent;
                here.wait(Box::pin(requests::make_parents(seat))).await
            }
            AcquireRequest::List => {
                if let Some(list) = here.acquiring.take_list() {
                    // Known also while this further look is not answered.
                    self.progress.set_ahead(live_ahead(seat, &list, own));
                }
                self.progress.set_waits_for(WaitsFor::List);
                self.progress.set_node(own);
                here.subject = Subject::Directory;
                here.looked_at = clock::now();
                here.wait(Box::pin(requests::list_own(seat, own))).await
            }
            AcquireRequest::Inspect { name } => {
                self.progress.set_waits_for(WaitsFor::List);
                self.progress.set_node(own);
                here.subject = Subject::Directory;
                here.wait(Box::pin(requests::inspect(seat, name))).await
            }
            AcquireRequest::Watch { predecessor } => {
                here.subject = Subject::Node(predecessor.as_str().into());
                let ahead = self.progress.ahead();
                let behind = Box::pin(requests::watch(seat, own, predecessor));
                self.wait_behind(here, own, ahead, behind).await
            }
            AcquireRequest::WaitFor { before } => {
                here.subject = Subject::Directory;
                let ahead =
                    |own| seat.path_lock.queue().with(|queue| queue.ahead(seat.session.number(), own));
                let ahead = own.map(|own| Ahead { count: ahead(own), first: None });
                self.wait_behind(here, own, ahead, Box::pin(requests::wait_for(seat, own, before))).await
            }
        }
    }

    /// Waits for another contender, which is watched at the servers or waited for in memory. `known` are the
    /// contenders ahead, unless there is a new list.
    async fn wait_behind(
        &self,
        here: &mut InSession<'_>,
        own: Option<&str>,
        known: Option<Ahead>,
        behind: impl Future<Output = AcquireEvent>,
    ) -> Result<AcquireEvent, End> {
        let Seat { path_lock, session, kind, .. } = here.seat;
        here.looked_again = false;
        self.progress.set_waits_for(WaitsFor::Deletion);
        match here.acquiring.take_list() {
            Some(list) => {
                path_lock.first_seen().saw(&list);
                let ahead = live_ahead(here.seat, &list, own);
                if let (Some(own), Some(ahead)) = (own, &ahead) {
                    path_lock.queue().with(|queue| queue.set_ahead(session.number(), own, ahead.count));
                }
                self.progress.set_ahead(ahead);
                let orphaned = orphaned(path_lock, session, kind, Some((&list, own)));
                if let Some(error) = here.wait(orphaned).await? {
                    return Err(error.into());
                }
            }
            None => self.progress.set_ahead(known),
        }
        self.progress.set_node(own);
        if !std::mem::replace(&mut here.queued, true) {
            observe::queued(self.ask.call, own, || self.progress.ahead().map(|ahead| ahead.count));
        }
        let refused = refused_in(path_lock.path(), session, &mut here.refusals);
        let event = async {
            tokio::select! {
                biased;
                event = behind => {
                    let gone = match &event {
                        AcquireEvent::Changed => true,
                        AcquireEvent::WatchFailed(failure) => failure.kind == FailureKind::NoNode,
                        _ => false,
                    };
                    if gone {
                        // The list that follows shows which contenders are left.
                        let left = self.progress.ahead().and_then(Ahead::without_one);
                        self.progress.set_ahead(left);
                    }
                    event
                }
                // The deletion of a node before this one has been refused, so its end would never be noticed.
                () = refused => AcquireEvent::Changed,
            }
        };
        let event = wait(here.seat, event, here.stop);
        let Some(Kept { ahead, until }) = here.kept.as_deref_mut() else { return event.await };
        let until = *until.get_or_insert_with(|| Instant::now() + GIVEN_UP_WITHIN);
        let waited = tokio::time::timeout_at(until.into(), event).await;
        waited.unwrap_or_else(|_| Err(End::Denied(path_lock.would_block(kind, ahead.clone()))))
    }

    /// Pauses before a repetition, as the retry policy says. The first repetition is sent at once, unless the
    /// server was busy: it goes out on the next connection, which is waited for anyway.
    async fn pause(
        &self,
        here: &mut InSession<'_>,
        failures: u32,
        why: PauseReason,
    ) -> Result<AcquireEvent, End> {
        self.progress.set_node(here.acquiring.queued_as());
        if why == PauseReason::NodeDeleted {
            // The next node queues at the end, behind other contenders.
            here.looked_again = false;
            self.progress.set_ahead(None);
        }
        if failures == 0 {
            here.failing_since = Instant::now();
        }
        let pause = self.path_lock.client().retry().pause(failures, here.failing_since.elapsed());
        let Some(pause) = pause else { return Ok(AcquireEvent::GiveUp) };
        let pause = if failures == 0 && why != PauseReason::ServerBusy { Duration::ZERO } else { pause };
        if !pause.is_zero() {
            let (seat, session) = (here.seat, here.seat.session.number());
            self.path_lock.queue().with(|queue| queue.step_aside(seat.number, session));
        }
        here.wait(tokio::time::sleep(pause)).await?;
        Ok(AcquireEvent::Retry)
    }

    /// Grants the lock by the node `name`, which is first in the queue. Returns `Outdated` if what shows
    /// that is too old.
    async fn grant(&self, here: &mut InSession<'_>, name: &str, czxid: i64) -> Result<AcquireEvent, End> {
        let Seat { path_lock, session, number, kind } = here.seat;
        self.progress.set_ahead(None);
        self.progress.set_waits_for(WaitsFor::Renewal);
        self.progress.set_node(Some(name));
        // To be first in the queue is not enough: without a valid lease, the servers may be about to expire
        // the session and grant the lock to another contender (docs/protocol.md#suspended).
        let was_in_doubt = !session.lease().is_valid();
        here.wait(session.lease().until_valid()).await?;
        // Not by a look from before a doubt: another hand may have deleted the node since. A further doubt, which on a
        // slow link each answer finds, ends this by the age of the look.
        let is_old = clock::now().since(here.looked_at) > session.lease().heartbeat_interval() * 3;
        if is_old || was_in_doubt && !here.looked_again {
            here.looked_again = true;
            here.left = Orphans::default();
            return Ok(AcquireEvent::Outdated(OwnNode { name: name.to_owned(), czxid: Some(czxid) }));
        }
        path_lock.queue().with(|queue| queue.stop_waiting(session.number(), name));
        requests::note_grant(here.seat, name, czxid, !here.queued);
        let is_head = path_lock.options().semaphore.is_some();
        // From here on, so that a grant that its caller never takes is over too.
        let lease_end = self.ask.lease.and_then(|lease| clock::now().end_of(lease));
        let state = if is_head {
            HoldState::head(name.into())
        } else {
            HoldState::new(name.into(), kind).with_lease_end(lease_end)
        };
        let held = Held::new(session, path_lock.client().cleanup(), path_lock.path().clone(), number, state);
        // Registered before the caller is told, so that the end of the session from here on marks the hold as
        // lost.
        here.left = Orphans::default();
        let (path_lock, session, token) = (Arc::clone(path_lock), Arc::clone(session), (czxid, 0));
        Err(End::Granted(if is_head {
            Hold::head(path_lock, session, held, token)
        } else {
            Hold::new(path_lock, session, held, token, self.ask.location).by(here.how)
        }))
    }

    /// Returns how the attempt ends when the state machine has finished without a grant.
    fn not_granted(&self, here: &mut InSession<'_>, why: &NoGrant) -> End {
        let path = || self.path_lock.path().user().to_owned();
        End::from(match why {
            NoGrant::SessionGone => return End::Again,
            NoGrant::WouldBlock => {
                let own = here.left.names.last().map(String::as_str);
                let list = here.acquiring.take_list();
                return match list.and_then(|list| live_ahead(here.seat, &list, own)) {
                    Some(ahead) => End::Denied(self.path_lock.would_block(self.ask.kind, ahead)),
                    // Only nodes of this client that are being deleted are in the way.
                    None => End::Again,
                };
            }
            NoGrant::Unusable(unusable) => {
                AcquireError::from(unusable_directory(&self.path_lock, unusable.clone()))
            }
            NoGrant::TooManyWatches => AcquireError::TooManyWatches { path: path() },
            NoGrant::NodeDeleted { times } => AcquireError::NodeDeleted { path: path(), times: *times },
            NoGrant::KeptFailing(failure) => self.path_lock.failed(failure.unanswered()),
            NoGrant::Refused(failure) => match failure.kind {
                // A sequential create with a fresh id: the sequence numbers are used up, since ZooKeeper does
                // not go beyond the largest.
                FailureKind::Refused(Refusal::NodeExists) => {
                    self.path_lock.failed(RequestFailure::SequenceExhausted)
                }
                _ => {
                    let subject = (self.path_lock.path(), std::mem::take(&mut here.subject));
                    error_of(&self.path_lock, Purpose::Lock, subject, failure.refused()).into()
                }
            },
        })
    }

    /// Returns the error at the deadline.
    fn out_of_time(&self) -> TryLockError {
        let (waiting, budget) = (self.progress.get().waiting, self.ask.budget);
        let waited = budget.waited(self.started);
        self.path_lock.out_of_time(self.path_lock.path(), waiting, self.ask.kind, budget, waited)
    }

    fn if_busy(&self) -> IfBusy {
        self.ask.budget.if_busy()
    }
}

impl InSession<'_> {
    async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        wait(self.seat, work, self.stop).await
    }

    /// Leaves orphans to cleanup, which keeps the slot until they are deleted.
    fn leave_to_cleanup(&self, orphans: Orphans) {
        let Seat { path_lock, session, number, kind } = self.seat;
        let nodes = orphans.names.into_iter().map(Orphan::Node);
        let unknown = orphans.ids.into_iter().map(|id| {
            let beginning = path_lock.naming().prefix(&id, kind);
            Orphan::UnknownCreate { id, beginning }
        });
        for orphan in nodes.chain(unknown) {
            path_lock.client().cleanup().submit(Item {
                session: Arc::clone(session),
                directory: path_lock.path().clone(),
                orphan,
                number,
                until_gone: self.permit.clone(),
                done: None,
            });
        }
    }

    /// Takes over the nodes of a step that is not carried out.
    fn finished(&mut self, step: AcquireStep) {
        self.left.extend(step.into_orphans());
    }
}

impl Drop for InSession<'_> {
    fn drop(&mut self) {
        let mut orphans = std::mem::take(&mut self.left);
        orphans.extend(self.acquiring.leave_all());
        // Whatever becomes of a create that is under way.
        orphans.ids.extend(self.create.take().map(|(id, _)| id));
        if orphans != Orphans::default() {
            self.leave_to_cleanup(orphans);
        }
    }
}

impl From<AcquireError> for End {
    fn from(error: AcquireError) -> Self {
        Self::Denied(error.into())
    }
}

impl From<Stopped> for End {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::CallerGone(ticket) => Self::CallerGone(ticket),
            Stopped::OutOfTime => Self::OutOfTime,
        }
    }
}

/// Waits for `work`, until the attempt has to stop or the session ends. A result that is ready has
/// precedence.
async fn wait<T>(seat: Seat<'_>, work: impl Future<Output = T>, stop: &mut Stop) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        end = stop.wait() => Err(End::from(end)),
        _ = seat.session.ended() => {
            let path = seat.path_lock.path().user();
            log::debug!(path, session = seat.session.number(), "again in the next session");
            Err(End::Again)
        }
    }
}

/// An attempt's turn in the order of arrival, until it is dropped.
struct Arrived<'a> {
    path_lock: &'a PathLock,
    number: u64,
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        self.path_lock.queue().with(|queue| queue.leave(self.number));
    }
}

/// Waits until a create may be sent, by the order of arrival and the session's limit on unanswered creates.
/// Only the attempt whose turn it is waits for a slot, so that path locks share the slots.
async fn until_create(seat: Seat<'_>, if_busy: IfBusy) -> Slot {
    loop {
        // A try waits for no other attempt's turn, and keeps none waiting.
        if if_busy == IfBusy::Wait {
            until_next(seat).await;
        }
        let slot = seat.session.windows().creates.slot().await;
        // Meanwhile an earlier one may have found the directory missing, and makes it: the turn is its again.
        let (wake, _) = oneshot::channel();
        if if_busy != IfBusy::Wait || may_create(seat, wake) {
            return slot;
        }
    }
}

fn may_create(seat: Seat<'_>, wake: oneshot::Sender<Notice>) -> bool {
    seat.path_lock.queue().with(|queue| queue.may_create(seat.number, seat.session.number(), wake))
}

/// Waits until the attempts that arrived earlier have created their nodes in this session
/// (docs/protocol.md#arrival-order).
async fn until_next(seat: Seat<'_>) {
    loop {
        let (wake, told) = oneshot::channel();
        if may_create(seat, wake) {
            return;
        }
        // Whatever the notice says, the turn is checked again.
        let _ = told.await;
    }
}

/// Returns the live contenders before this one.
fn live_ahead(seat: Seat<'_>, list: &Queue, own: Option<&str>) -> Option<Ahead> {
    in_the_way(seat.path_lock, seat.session, list, own, seat.kind).ahead()
}
