//! The run of an attempt to get a lock, or permits of a semaphore, from its start to its end.
//!
//! An attempt is a task on the session's runtime, so that it outlives its caller
//! (docs/protocol.md#attempt-outlives-caller). The task waits for a slot, then contends in one
//! session after another until the caller has its result.
//! [`Acquiring`](crate::protocol::acquire::Acquiring), which is pure, decides what to do next; the
//! requests are in [`requests`]. To get permits, the attempt continues at the head of the queue, in
//! [`permits_attempt`].
//!
//! ```text
//!   run: wait for a slot --> contend: wait for a session --> follow: steps of `Acquiring` <--.
//!                                 ^                           |                             |
//!                                 |                           |--> grant -- look again ----'
//!                                 '----- the session ended ---|      '--> leave, with a grant
//!                                                             '---------> leave, with an error
//! ```
//! A step is one request, one pause or one wait for a node, and its result is the next event. While
//! a step is under way, the task also waits for the events that may [stop](Stop) the attempt.
//!
//! The main loop is [`InSession::follow`]. [`InSession::grant`] grants a lock. Every end of an
//! attempt's part in a session goes through [`InSession::finish`], which passes the orphans to
//! cleanup. An attempt that ends while it waits for a slot or for a session has nothing to clean up,
//! and only sends its error ([`Attempt::send_error`]).

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::acquisition;
use crate::engine::acquisition::Hold;
use crate::engine::attempts::attempt::{Attempt, End, Granted, Patience, Reply, Stop, wait};
use crate::engine::attempts::in_session::InSession;
use crate::engine::attempts::permits_attempt;
use crate::engine::granted::Grant;
use crate::engine::lock::path_lock::{Admission, Ask, PathLock};
use crate::engine::pending::{Pending, ProgressReceiver, ProgressSender, ReplySide};
use crate::engine::request::look::{
    InTheWay, Subject, in_the_way, look_before_try, refused_in, refused_orphan_error, saw_first,
};
use crate::engine::request::requests::{self, AttemptContext};
use crate::engine::shared_path::NewLock;
use crate::engine::shared_queue::{NodeSlot, Slots};
use crate::error::{AcquireError, TryLockError};
use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, IfBusy, Orphans, OwnNode,
};
use crate::protocol::hold::HoldState;
use crate::protocol::late::{Ahead, WaitsFor};
use crate::protocol::numbers::{AttemptNumber, HoldNumber};
use crate::protocol::queue::Queue;
use crate::session::contents::limits::WindowSlot;
use crate::session::leftovers::cleanup::Ticket;
use crate::session::reports::observer;
use crate::session::threads::clock;

/// The time after which a try that cannot yet create a node checks whether other contenders are in
/// its way.
const TRY_LOOKS_AFTER: Duration = Duration::from_millis(50);
/// The longest pause between two of these checks. Each pause is twice as long as the one before.
const TRY_LOOKS_EACH: Duration = Duration::from_secs(1);

/// Starts an attempt to get the requested number of grants: one lock, for [`Reply::Lock`], or
/// permits. Dropping the result cancels the attempt, which then cleans up.
///
/// The attempt is a task on the session's runtime, so the caller needs no timer, and no particular
/// runtime.
pub(crate) fn start<T>(
    path_lock: &Arc<PathLock>,
    ask: Ask,
    wanted: u32,
    reply_to: fn(oneshot::Sender<Result<T, TryLockError>>) -> Reply,
) -> (Pending<T>, ProgressReceiver) {
    let (client, path) = (&path_lock.client, &path_lock.path);
    let number = client.cleanup.number(wanted);
    let (pending, ReplySide { reply, cancelled }) = Pending::new(client, path, number);
    let (progress, seen) = ProgressSender::new();
    let attempt = Attempt {
        path_lock: Arc::clone(path_lock),
        ask,
        number,
        wanted,
        started: Instant::now(),
        progress,
        reply: Some(reply_to(reply)),
        slot: None,
    };
    // The task is detached: a caller that leaves sends a ticket instead of aborting the task, which
    // then deletes its nodes.
    client.tasks.start(attempt.run(cancelled)).detach();
    (pending, seen)
}

/// Acquires this many permits of a semaphore, by one attempt. Dropping the future cancels the
/// attempt, which then cleans up.
pub(crate) async fn acquire_permits(
    path_lock: Arc<PathLock>,
    wanted: u32,
    ask: Ask,
) -> Result<Vec<Hold>, TryLockError> {
    if let Some(closed) = path_lock.client.drained_error(&path_lock.path) {
        return Err(closed.into());
    }
    if wanted == 0 {
        return Err(AcquireError::ZeroPermits {
            path: path_lock.path.user().to_owned(),
        }
        .into());
    }
    let (mut pending, _) = start(&path_lock, ask, wanted, Reply::Permits);
    let grants: Vec<Grant> = pending.result().await?;
    let hold = |grant| Hold::new(Arc::clone(&path_lock), grant);
    Ok(grants.into_iter().map(hold).collect())
}

impl Attempt {
    #[expect(
        clippy::manual_async_fn,
        reason = "each attempt that waits would store its arguments twice"
    )]
    fn run(
        mut self,
        cancelled: oneshot::Receiver<Ticket>,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        async move {
            let mut stop = Stop::new(self.ask.budget, cancelled, Some(&self.path_lock));
            if let Err(end) = self.take_slot(&mut stop).await {
                // No create has been sent, so there is nothing to clean up.
                return drop(self.send_error(end));
            }
            // The future is boxed only here, so that the attempts that still wait for a slot, which
            // may be many, do not allocate it.
            Box::pin(self.contend(&mut stop)).await;
        }
    }

    /// Waits for a slot, in order of arrival. A newcomer to a fair lock, whose order is that of the
    /// nodes, is refused instead (docs/protocol.md#bounded-nodes).
    async fn take_slot(&mut self, stop: &mut Stop) -> Result<(), End> {
        // A call for more permits than the limit allows is refused here, before it has a slot, or
        // later, for as long as it is not yet at the head of the queue.
        if let Some(semaphore) = &self.path_lock.options.semaphore {
            self.refuse_excess(semaphore, stop).await?;
        }
        let slots = Arc::clone(&self.path_lock.slots);
        // A slot that is freed goes to the attempt that has waited longest, so this one overtakes
        // none.
        self.slot = slots.try_take();
        if self.slot.is_some() {
            return Ok(());
        }
        if self.path_lock.is_fair() && self.ask.admission == Admission::First {
            let (path, max) = (self.path_lock.path.user().to_owned(), slots.max());
            return Err(AcquireError::TooManyWaiters { path, max }.into());
        }
        self.progress
            .waits_for_slot(Some((Arc::clone(&slots), self.ask.kind)));
        observer::queued(self.ask.call, None, || {
            self.progress.ahead().map(|ahead| ahead.count)
        });
        let slot = async {
            match self.ask.budget.if_busy() {
                IfBusy::Wait => slots
                    .take()
                    .await
                    .ok_or_else(|| self.path_lock.ended().into()),
                // The future is boxed, because many attempts may be waiting for a slot.
                IfBusy::Fail => Box::pin(self.try_take_slot(&slots)).await,
            }
        };
        let slot = tokio::select! {
            biased;
            slot = slot => slot?,
            end = stop.wait() => return Err(end.into()),
        };
        self.progress.waits_for_slot(None);
        self.slot = Some(slot);
        Ok(())
    }

    /// Waits for a slot for as long as no live contender blocks the try, because a try waits only
    /// for the servers. A try for permits waits behind live contenders, too, for
    /// [`TRY_QUEUES_FOR`](permits_attempt::TRY_QUEUES_FOR).
    async fn try_take_slot(&self, slots: &Arc<Slots>) -> Result<NodeSlot, End> {
        let (path_lock, kind) = (&self.path_lock, self.ask.kind);
        let queues_for = path_lock
            .options
            .semaphore
            .as_ref()
            .map(|_| permits_attempt::TRY_QUEUES_FOR);
        let mut patience = Patience::new(queues_for.unwrap_or_default());
        // One future waits for a slot during all checks, so that the try keeps its place among the
        // attempts that wait.
        let (mut slot, mut pause) = (pin!(slots.take()), TRY_LOOKS_AFTER);
        loop {
            let session = path_lock.client.session().await;
            let session = session.map_err(|none| End::from(path_lock.failed(none)))?;
            let ahead = look_before_try(path_lock, &session, kind).await.ahead();
            let is_over = patience.is_over(ahead.as_ref()) || queues_for.is_none();
            if let Some(ahead) = ahead.filter(|_| is_over) {
                return Err(End::Denied(path_lock.would_block(kind, ahead)));
            }
            // The slots belong to orphans, or to attempts that may contend by the next check.
            if let Ok(slot) = tokio::time::timeout(pause, &mut slot).await {
                return slot.ok_or_else(|| path_lock.ended().into());
            }
            pause = (pause * 2).min(TRY_LOOKS_EACH);
        }
    }

    /// Contends in one session after another until the caller has its result or leaves. An attempt
    /// whose session ends starts again in the next one (docs/protocol.md#session-end).
    async fn contend(&mut self, stop: &mut Stop) {
        let path_lock = Arc::clone(&self.path_lock);
        let (number, kind) = (self.number, self.ask.kind);
        let _arrived = Arrived {
            path_lock: &path_lock,
            number,
        };
        if self.ask.budget.if_busy() == IfBusy::Wait {
            // The turn is ahead of all attempts that arrive later, whichever of them is notified of
            // a session first.
            path_lock.queue.with(|queue| queue.claim_turn(number));
        }
        while self.reply.is_some() {
            // The contenders that were ahead in an earlier session may be gone.
            self.saw_ahead(None);
            self.progress.set_waits_for(WaitsFor::Session);
            let session = tokio::select! {
                biased;
                // The stop comes first, so that no node is created if the caller left while the
                // attempt waited for a slot.
                end = stop.wait() => Err(End::from(end)),
                session = path_lock.client.session() => {
                    session.map_err(|none| End::from(path_lock.failed(none)))
                }
            };
            let session = match session {
                Ok(session) => session,
                Err(end) => return drop(self.send_error(end)),
            };
            // The node of the previous session was deleted with that session.
            self.progress.set_node(None);
            // The end of the client waits for the attempts that its last session counts, so that
            // their callers are notified first.
            let _counted = session.running.subscribe();
            let context = AttemptContext {
                path_lock: &path_lock,
                session: &session,
                number,
                kind,
            };
            let (mut here, step) = InSession::begin(self, context, stop);
            let result = match here.look_first().await {
                Ok(()) => here.follow(step).await,
                Err(end) => Err(end),
            };
            here.finish(result).await;
        }
    }
}

impl InSession<'_> {
    /// Carries out the steps of the state machine and returns their results to it, until the
    /// attempt is granted the lock, or ends in this session.
    async fn follow(&mut self, mut step: AcquireStep) -> Result<Granted, End> {
        let AttemptContext {
            path_lock, session, ..
        } = self.context;
        loop {
            let event = match step {
                AcquireStep::Do(request) => self.request(&request).await,
                AcquireStep::Pause { failures, why } => {
                    // If another process has deleted the node, the caller's place in the queue is
                    // unknown until the next node is created.
                    self.attempt.progress.set_node(self.acquiring.queued_as());
                    let again = self
                        .pause(failures, why, self.acquiring.times_deleted())
                        .await;
                    again.map(|again| {
                        if again {
                            AcquireEvent::Retry
                        } else {
                            AcquireEvent::GiveUp
                        }
                    })
                }
                AcquireStep::Finish(AcquireOutcome::Granted { name, czxid, also }) => {
                    // The state machine has given the node away, and no hold has it yet. A node
                    // that is in `unowned` is deleted if the attempt ends before it is granted the
                    // lock.
                    self.pass_to_cleanup(also);
                    self.unowned.names.push(name.clone());
                    match self.grant(&name, czxid).await {
                        Ok(ControlFlow::Break(granted)) => return Ok(granted),
                        Ok(ControlFlow::Continue(event)) => Ok(event),
                        Err(end) => Err(end),
                    }
                }
                AcquireStep::Finish(AcquireOutcome::NotGranted { why, orphans }) => {
                    // If a try found others ahead, the list that shows them is kept for its error.
                    if let Some(list) = self.acquiring.take_list() {
                        let own = orphans.names.last().map(String::as_str);
                        self.attempt.saw_ahead(live_ahead(self.context, &list, own));
                    }
                    self.unowned = orphans;
                    Err(self.not_granted(&path_lock.path, why))
                }
            };
            let event = event?;
            // The transaction of the hand-over has just checked that the attempt's node exists, as
            // a list would.
            if matches!(event, AcquireEvent::HandedOver) {
                self.looked_at = clock::now();
            }
            let waitable = |name: &str| {
                path_lock
                    .queue
                    .with(|queue| queue.knows(session.number, name))
            };
            self.how = acquisition::how(&event, self.queued);
            step = self.acquiring.on(event, &waitable);
            // A second node of this attempt is deleted now, because the attempt could otherwise
            // wait for it (docs/protocol.md#extra-node).
            let orphans = self.acquiring.take_orphans();
            self.pass_to_cleanup(orphans);
        }
    }

    /// Ends the attempt's part in the session: sends the caller the result, if there is one, and
    /// passes the orphans to cleanup. Every end goes through here, except a panic and the end of
    /// the runtime, after which the drop of the value cleans up.
    async fn finish(mut self, result: Result<Granted, End>) {
        let end = match result {
            Ok(granted) => {
                self.abandon_all();
                // If the session has ended, the grant is lost. Its drop cleans up, and the caller
                // continues to wait.
                if self.context.session.end_reason().is_none() {
                    // The slot is freed first, because the caller may acquire another lock at once.
                    self.attempt.slot = None;
                    self.attempt.grant(granted);
                }
                return;
            }
            Err(end) => end,
        };
        if !matches!(end, End::Again) {
            // From here on cleanup has the slot.
            self.attempt.slot = None;
        }
        let Some((id, create)) = &mut self.create else {
            // Cleanup gets the nodes before the caller gets its answer, because the caller's next
            // try must not find its own node in the way.
            self.abandon_all();
            return drop(self.attempt.send_error(end));
        };
        // The answer does not wait for the outcome of a create. But whatever the outcome, the
        // caller's next try must not treat the node as a contender.
        let unknown = self.acquiring.unknown_creates().iter().chain([&*id]);
        let creates = &self.context.session.nodes.creates;
        let abandoned: Vec<_> = unknown.map(|id| creates.abandon(id.clone())).collect();
        let ticket = self.attempt.send_error(end);
        let created = create.await;
        self.create = None;
        // The step is not carried out. If the step is a grant, its node becomes an orphan too.
        let step = self.acquiring.on(created, &|_| false);
        self.unowned.extend(step.into_orphans());
        self.abandon_all();
        // By now cleanup counts the nodes with its own tickets, so a flush continues to wait.
        drop((abandoned, ticket));
    }

    /// Checks, before a node is created, whether this client has a refused orphan in the directory,
    /// and, for a try, whether the lock is free.
    async fn look_first(&mut self) -> Result<(), End> {
        let AttemptContext {
            path_lock,
            session,
            kind,
            ..
        } = self.context;
        // The end of the session is checked after this attempt was counted. A session first ends
        // and then waits for the counted attempts, so either this check sees the end, or the
        // session waits for this attempt.
        if session.end_reason().is_some() {
            return Err(End::Again);
        }
        self.attempt.progress.set_waits_for(WaitsFor::Deletion);
        if let Some(error) = self
            .wait(refused_orphan_error(path_lock, session, kind, None))
            .await?
        {
            return Err(error.into());
        }
        if self.attempt.ask.budget.if_busy() == IfBusy::Wait {
            return Ok(());
        }
        if let Some(semaphore) = &path_lock.options.semaphore {
            Box::pin(self.look_for_permits(semaphore)).await?;
            self.patience = Some(Patience::new(permits_attempt::TRY_QUEUES_FOR));
            // Enough permits were free, so the try queues like any other call. Its patience bounds
            // the wait.
            self.acquiring.wait_if_busy();
            return Ok(());
        }
        self.attempt.progress.set_waits_for(WaitsFor::List);
        match self.wait(look_before_try(path_lock, session, kind)).await? {
            InTheWay::Nothing => Ok(()),
            InTheWay::Live(ahead) => Err(End::Denied(path_lock.would_block(kind, ahead))),
            InTheWay::Leaving { last } => {
                // Callers of this client that wait are granted the lock before the try. If they
                // released it faster than a list is answered, each look would find another node
                // that is leaving.
                if path_lock.shared.has_waiters_ahead(kind) {
                    let ahead = Ahead {
                        count: 1,
                        first: None,
                    };
                    return Err(End::Denied(path_lock.would_block(kind, ahead)));
                }
                self.attempt.progress.set_waits_for(WaitsFor::Deletion);
                // Another contender may come during this wait, so the next round looks again.
                self.wait(session.nodes.until_gone(&last)).await?;
                Err(End::Again)
            }
        }
    }

    /// Carries out one request, or one wait for another contender.
    async fn request(&mut self, request: &AcquireRequest) -> Result<AcquireEvent, End> {
        let context = self.context;
        let own = self.acquiring.queued_as().map(str::to_owned);
        let own = own.as_deref();
        // Each future is boxed, so that waiting attempts, which may be thousands, are small.
        match request {
            AcquireRequest::Create => {
                self.attempt.progress.set_waits_for(WaitsFor::Create);
                self.subject = Subject::Directory;
                let slot = self
                    .wait(until_create(context, self.attempt.ask.budget.if_busy()))
                    .await?;
                // The time is read before the request is sent: the answer shows a state that is not
                // older.
                self.looked_at = clock::now();
                let id = requests::new_id(context.path_lock.options.naming());
                if !requests::reserve_room(context, &id) {
                    return Err(context.path_lock.too_many_nodes(context.session).into());
                }
                let create = Box::pin(requests::create(context, slot, id.clone()));
                // The create is stored before its first poll, which sends it: `finish` awaits its
                // answer even if the wait below ends early.
                let (_, create) = self.create.insert((id, create));
                let created = wait(context, create, self.stop).await?;
                self.create = None;
                Ok(created)
            }
            AcquireRequest::MakeParents => {
                self.attempt.progress.set_waits_for(WaitsFor::Parents);
                self.subject = Subject::Parent;
                let made = requests::make_directories(context, &context.path_lock.path);
                Ok(AcquireEvent::ParentsMade(self.wait(made).await?))
            }
            AcquireRequest::List => {
                if let Some(list) = self.acquiring.take_list() {
                    // The contenders of the last list are recorded now, because the next list may
                    // not be answered.
                    self.attempt.saw_ahead(live_ahead(context, &list, own));
                }
                self.attempt.progress.set_waits_for(WaitsFor::List);
                self.attempt.progress.set_node(own);
                self.subject = Subject::Directory;
                self.looked_at = clock::now();
                self.wait(requests::list_own(context, own)).await
            }
            AcquireRequest::Inspect { name } => {
                self.attempt.progress.set_waits_for(WaitsFor::List);
                self.attempt.progress.set_node(own);
                self.subject = Subject::Directory;
                self.wait(requests::inspect(context, name)).await
            }
            AcquireRequest::Watch { predecessor } => {
                self.subject = Subject::Node(predecessor.as_str().into());
                // An inherited watch is not based on a new list, so the contenders that were known
                // before still count.
                let ahead = self.attempt.progress.ahead();
                let behind = Box::pin(requests::watch(context, own, predecessor));
                self.wait_behind(own, ahead, behind).await
            }
            AcquireRequest::WaitFor { before } => {
                self.subject = Subject::Directory;
                // If only the answer to the create led here, there is no list, and the local queue
                // knows how many contenders are ahead.
                let ahead = |own| {
                    context
                        .path_lock
                        .queue
                        .with(|queue| queue.ahead(context.session.number, own))
                };
                let ahead = own.map(|own| Ahead {
                    count: ahead(own),
                    first: None,
                });
                self.wait_behind(
                    own,
                    ahead,
                    Box::pin(requests::wait_for(context, own, before)),
                )
                .await
            }
        }
    }

    /// Waits for another contender, which is watched on the servers or waited for in memory.
    /// `known` are the contenders ahead; if there is a new list, the list shows them instead.
    async fn wait_behind(
        &mut self,
        own: Option<&str>,
        known: Option<Ahead>,
        behind: impl Future<Output = AcquireEvent> + Send,
    ) -> Result<AcquireEvent, End> {
        let AttemptContext {
            path_lock,
            session,
            kind,
            ..
        } = self.context;
        // A list that followed an earlier doubt no longer counts after this wait, during which
        // another process may delete the node.
        self.looked_again = false;
        self.attempt.progress.set_waits_for(WaitsFor::Deletion);
        match self.acquiring.take_list() {
            Some(list) => {
                saw_first(path_lock, session, &list);
                let ahead = live_ahead(self.context, &list, own);
                // Attempts of this client that queue behind this node without a list derive their
                // counts from this count.
                if let (Some(own), Some(ahead)) = (own, &ahead) {
                    path_lock
                        .queue
                        .with(|queue| queue.set_ahead(session.number, own, ahead.count));
                }
                let is_over = |patience: &mut Patience| patience.is_over(ahead.as_ref());
                if let (Some(ahead), true) = (&ahead, self.patience.as_mut().is_some_and(is_over)) {
                    return Err(End::Denied(path_lock.would_block(kind, ahead.clone())));
                }
                self.attempt.saw_ahead(ahead);
                // A refused orphan ahead stays until the session ends, so the attempt would wait
                // for that.
                let refused = refused_orphan_error(path_lock, session, kind, Some((&list, own)));
                if let Some(error) = self.wait(refused).await? {
                    return Err(error.into());
                }
            }
            None => self.attempt.saw_ahead(known),
        }
        self.attempt.progress.set_node(own);
        self.queues(own);
        // A refusal between the check above and this wait is not missed, because the receiver has
        // not seen it yet.
        let refused = refused_in(&path_lock.path, session, &mut self.refusals);
        let attempt = &*self.attempt;
        let event = async {
            tokio::select! {
                biased;
                event = behind => {
                    if event.is_change() {
                        // The list that follows shows which contenders are left.
                        attempt.one_is_gone();
                    }
                    event
                }
                // The deletion of a node before this one has been refused, so its end would never
                // be noticed.
                () = refused => AcquireEvent::WaitOver,
            }
        };
        let event = wait(self.context, Box::pin(event), self.stop);
        let Some(look_at) = self.patience.as_ref().and_then(Patience::look_at) else {
            return event.await;
        };
        // The list that follows shows who is ahead by then.
        tokio::time::timeout_at(look_at.into(), event)
            .await
            .unwrap_or(Ok(AcquireEvent::WaitOver))
    }

    /// Grants the lock through the node `name`, which is first in the queue; for permits, continues
    /// at the head of the queue. Continues with `Outdated` if the list that showed the node as
    /// first is too old, or from before a doubt.
    ///
    /// A list is old after three heartbeat periods. On a link that is only slow, no list gets that
    /// old before its grant. The answer takes less than two periods, because the lease would never
    /// be valid otherwise, and the wait for the lease ends with the answer to the next heartbeat,
    /// one period later at most.
    async fn grant(
        &mut self,
        name: &str,
        czxid: i64,
    ) -> Result<ControlFlow<Granted, AcquireEvent>, End> {
        let AttemptContext {
            path_lock,
            session,
            number,
            kind,
        } = self.context;
        self.attempt.saw_ahead(None);
        self.attempt.progress.set_waits_for(WaitsFor::Renewal);
        self.attempt.progress.set_node(Some(name));
        // Being first in the queue is not enough: if the lease is not valid, the servers may be
        // about to expire the session and grant the lock to another contender
        // (docs/protocol.md#suspended).
        let was_in_doubt = !session.lease.is_valid();
        self.wait(session.lease.until_valid()).await?;
        // A list from before a doubt does not count, because another process may have deleted the
        // node since. On a slow link there is a doubt at every answer, so a second list counts
        // unless it is old.
        let is_old =
            clock::now().since(self.looked_at) > session.lease.rule.heartbeat_interval() * 3;
        if is_old || was_in_doubt && !self.looked_again {
            self.looked_again = true;
            // The state machine gets the node back.
            self.unowned = Orphans::default();
            return Ok(ControlFlow::Continue(AcquireEvent::Outdated(OwnNode {
                name: name.to_owned(),
                czxid: Some(czxid),
            })));
        }
        path_lock
            .queue
            .with(|queue| queue.stop_waiting(session.number, name));
        // After three grants in a row to attempts that did not wait, the next creates may be sent
        // without a list (docs/protocol.md#succession).
        path_lock.queue.without_list.granted(
            &path_lock.client.tasks,
            session,
            (name, czxid),
            !self.queued,
        );
        if let Some(semaphore) = &path_lock.options.semaphore {
            // The future is boxed, because many attempts may be queueing.
            return Box::pin(self.take_permits(semaphore, name.to_owned(), czxid)).await;
        }
        let ask = self.attempt.ask;
        // The lease begins here, so that a grant that its caller never takes ends too.
        let lease_end = ask.lease.and_then(|lease| clock::now().end_of(lease));
        let state = HoldState::new(name.into(), kind).with_lease_end(lease_end);
        // The hold is registered before the caller is notified, so that an end of the session from
        // now on marks the hold as lost.
        let grant = path_lock.shared.grant(NewLock {
            session,
            cleanup: &path_lock.client.cleanup,
            directory: path_lock.path.clone(),
            number: HoldNumber::of_attempt(number),
            state,
            token: (czxid, 0),
            how: self.how,
            location: ask.location,
        });
        // From now on the hold owns the node.
        self.unowned = Orphans::default();
        Ok(ControlFlow::Break(Granted::Lock(grant)))
    }
}

/// An attempt's turn in the order of arrival, which lasts until this value is dropped.
struct Arrived<'a> {
    path_lock: &'a PathLock,
    number: AttemptNumber,
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        // A turn that stayed after a panic would keep all later attempts from creating their nodes.
        self.path_lock.queue.with(|queue| queue.remove(self.number));
    }
}

/// Waits until a create may be sent: until the attempts that arrived earlier have created their
/// nodes in this session (docs/protocol.md#arrival-order), and there is room among the session's
/// unanswered creates. Only the attempt whose turn it is waits for a slot, so that path locks share
/// the slots.
async fn until_create(context: AttemptContext<'_>, if_busy: IfBusy) -> WindowSlot {
    // A try waits for no other attempt's turn, and keeps none waiting.
    let may_create = |wake| {
        let queue = &context.path_lock.queue;
        if_busy == IfBusy::Fail
            || queue.with(|queue| queue.may_create(context.number, context.session.number, wake))
    };
    loop {
        let (wake, notified) = oneshot::channel();
        if !may_create(wake) {
            // The turn is checked after every notice: another attempt may be first by now.
            let _ = notified.await;
            continue;
        }
        let slot = context.session.windows.creates.slot().await;
        // During this wait an earlier attempt may have found the directory missing, and may now be
        // creating it. Then it is the turn of that attempt again. A notice to this waker is not
        // needed: the next round asks with another waker, which replaces this one.
        let (wake, _) = oneshot::channel();
        if may_create(wake) {
            return slot;
        }
    }
}

/// Returns the live contenders before this one.
fn live_ahead(context: AttemptContext<'_>, list: &Queue, own: Option<&str>) -> Option<Ahead> {
    in_the_way(context.path_lock, context.session, list, own, context.kind).ahead()
}
