//! One attempt to get a lock, from its start to its end.
//!
//! It is a task where the session runs, so that it outlives its caller
//! (docs/protocol.md#attempt-outlives-caller): it waits for a place, then contends in one session after the
//! other until the caller has its answer. What to do next is decided by [`Acquiring`], which is pure; the
//! requests are in [`requests`].
//!
//! Where to look: the main loop is [`Attempt::follow`], a lock is granted in [`Attempt::grant`], and whatever
//! ends an attempt, or its part in a session, ends in [`Attempt::leave`], which hands what is left to
//! clean-up.

use std::any::Any;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::Sleep;

use crate::engine::admission::enter;
use crate::engine::held::Held;
use crate::engine::hold::Hold;
use crate::engine::look::{
    InTheWay, Subject, in_the_way, look_before_try, no_auth, orphaned, unusable_directory,
};
use crate::engine::path_lock::{Admission, Budget, PathLock};
use crate::engine::pending::Pending;
use crate::engine::progress::{Ahead, NoAnswer, Progress, ProgressSender, WaitsFor};
use crate::engine::requests::{self, UnderWay};
use crate::engine::seat::Seat;
use crate::engine::shared_queue::Place;
use crate::error::{AcquireError, TryLockError};
use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, IfBusy, NoGrant, Orphans,
    OwnPredecessor, PauseReason,
};
use crate::protocol::failure::{FailureKind, Refusal};
use crate::protocol::hold::HoldState;
use crate::protocol::node_name::Kind;
use crate::protocol::queue::Queue;
use crate::session::cleanup::{Item, Orphan};
use crate::session::tickets::Ticket;
use crate::session::window::Slot;
use crate::session::zk_session::Session;

/// Starts an attempt to get the lock within the budget. Dropping what is returned tells the attempt, which
/// cleans up by itself.
///
/// It is a task where the session runs, so the caller needs no timer, and no runtime of any particular kind.
pub(crate) fn start(
    path_lock: &Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    admission: Admission,
    location: &'static Location<'static>,
) -> Pending {
    let (reply, granted) = oneshot::channel();
    let (cancel, cancelled) = oneshot::channel();
    let (progress, seen) = ProgressSender::new();
    let number = path_lock.client().cleanup().number();
    let attempt = Attempt {
        path_lock: Arc::clone(path_lock),
        kind,
        budget,
        admission,
        number,
        location,
        started: Instant::now(),
        progress,
        reply: Some(reply),
    };
    path_lock.client().spawn(async move { attempt.run(Stop::new(budget, cancelled)).await });
    Pending::new(Arc::clone(path_lock), granted, seen, cancel, number)
}

/// Gets the lock within the budget. Nothing is done before the first poll.
pub(crate) async fn acquire(
    path_lock: Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    admission: Admission,
    location: &'static Location<'static>,
) -> Result<Hold, TryLockError> {
    start(&path_lock, kind, budget, admission, location).result().await
}

/// One attempt to get a lock.
struct Attempt {
    path_lock: Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    admission: Admission,
    /// By which its node is created in the order of arrival, and clean-up knows what it left; see
    /// [`Tickets`](crate::session::tickets::Tickets).
    number: u64,
    /// Where the caller asked for the lock.
    location: &'static Location<'static>,
    started: Instant,
    progress: ProgressSender,
    /// `None` once the caller has its answer, or has gone.
    reply: Option<oneshot::Sender<Result<Hold, TryLockError>>>,
}

/// An attempt's part in one session.
struct InSession<'a> {
    seat: Seat<'a>,
    place: &'a Arc<Place>,
    stop: &'a mut Stop,
    acquiring: Acquiring,
    /// A create that was sent and has no answer yet. Its outcome has to be known; every other request may be
    /// dropped.
    create: Option<UnderWay<'a>>,
    /// Changes when the deletion of a node was refused.
    refusals: watch::Receiver<u64>,
    /// What the last request was about, for the error if it is refused.
    subject: Subject,
    /// When the present row of failures began: the retry policy does not count the time in the queue.
    failing_since: Instant,
}

/// How an attempt, or its part in one session, ended.
enum End {
    Granted(Hold),
    Denied(TryLockError),
    OutOfTime,
    /// The ticket keeps [`Client::flush`](crate::Client::flush) waiting for what is left.
    CallerGone(Option<Ticket>),
    /// In the present session, or in the next if this one is over.
    Again,
}

impl Attempt {
    async fn run(mut self, mut stop: Stop) {
        let place = match self.place(&mut stop).await {
            Ok(place) => place,
            // Nothing has been sent, so nothing is left.
            Err(end) => return drop(self.tell(end)),
        };
        // On the heap only from here on: those that wait for a place are many.
        Box::pin(self.contend(&place, &mut stop)).await;
    }

    /// Waits for the right to a node.
    async fn place(&self, stop: &mut Stop) -> Result<Arc<Place>, End> {
        let before = self.path_lock.census();
        let place = enter(&self.path_lock, self.number, self.kind, self.budget, self.admission);
        tokio::select! {
            biased;
            place = place => place.map_err(End::Denied),
            end = stop.wait() => {
                let now = self.path_lock.census();
                self.progress.set_waits_for(match now.live() {
                    0 => WaitsFor::Place(now.in_cleanup()),
                    _ => WaitsFor::Others,
                });
                // Live contenders of this client had the places, whatever the connection was like.
                let (before, now) = (before.in_the_way(self.kind), now.in_the_way(self.kind));
                if before.now > 0 || now.now > 0 || now.ever != before.ever {
                    self.progress.set_ahead(Some(Ahead { count: now.now.max(1), first: None }));
                }
                Err(end)
            }
        }
    }

    /// Contends in one session after the other, for as long as there is a caller: a waiter whose session ends
    /// starts again in the next (docs/protocol.md#session-end).
    async fn contend(&mut self, place: &Arc<Place>, stop: &mut Stop) {
        let path_lock = Arc::clone(&self.path_lock);
        let _arrived = Arrived { path_lock: &path_lock, number: self.number };
        while self.reply.is_some() {
            // The contenders ahead in an earlier session may have gone since.
            self.saw_ahead(place, None);
            self.progress.set_waits_for(WaitsFor::Session);
            let session = tokio::select! {
                biased;
                // First: a caller that went while we waited for a place must not cost a create.
                end = stop.wait() => Err(end),
                session = path_lock.client().session() => {
                    session.map_err(|none| End::Denied(none.into_error(path_lock.path()).into()))
                }
            };
            let session = match session {
                Ok(session) => session,
                Err(end) => return drop(self.tell(end)),
            };
            self.progress.set_node(None);
            // A hold that was lost before its caller had it has given its place up.
            place.set_live(true);
            let seat =
                Seat { path_lock: &path_lock, session: &session, number: self.number, kind: self.kind };
            self.contend_in(seat, place, stop).await;
        }
    }

    /// Contends in one session, and leaves it.
    async fn contend_in(&mut self, seat: Seat<'_>, place: &Arc<Place>, stop: &mut Stop) {
        let _counted = seat.session.begin_work();
        let waits =
            if seat.path_lock.waits_in_memory() { OwnPredecessor::InMemory } else { OwnPredecessor::Watched };
        let (acquiring, mut step) = Acquiring::new(seat.path_lock.naming(), seat.kind, self.if_busy(), waits);
        let mut here = InSession {
            seat,
            place,
            stop,
            acquiring,
            create: None,
            refusals: seat.session.refusals(),
            subject: Subject::Directory,
            failing_since: Instant::now(),
        };
        let end = match self.look_first(&mut here).await {
            Ok(()) => self.follow(&mut here, &mut step).await,
            Err(end) => end,
        };
        self.leave(end, here, step).await;
    }

    /// Does what the state machine says and hands back what came of it, until it is over in this session.
    async fn follow(&self, here: &mut InSession<'_>, step: &mut AcquireStep) -> End {
        loop {
            let event = match step {
                AcquireStep::Do(request) => self.request(here, request).await,
                AcquireStep::Pause { failures, why } => self.pause(here, *failures, *why).await,
                AcquireStep::Finish(AcquireOutcome::Granted { name, czxid, also }) => {
                    clean_up(here.seat, here.place, std::mem::take(also));
                    Err(self.grant(here, name, *czxid).await)
                }
                AcquireStep::Finish(AcquireOutcome::NotGranted { why, orphans }) => {
                    Err(self.not_granted(here, why, orphans))
                }
            };
            let event = match event {
                Ok(event) => event,
                Err(end) => return end,
            };
            let Seat { path_lock, session, .. } = here.seat;
            let ours = |name: &str| path_lock.queue().with(|queue| queue.knows(session.number(), name));
            *step = here.acquiring.on(event, &ours);
            let orphans = here.acquiring.take_orphans();
            clean_up(here.seat, here.place, orphans);
        }
    }

    /// The one way out of a session: tells the caller what there is to tell, and hands what may be left to
    /// clean-up.
    async fn leave(&mut self, end: End, mut here: InSession<'_>, mut step: AcquireStep) {
        let InSession { seat, place, .. } = here;
        if let End::Granted(hold) = end {
            // A writer's hold has the place now. The places bound the queue, not the number of readers inside
            // (docs/protocol.md#places).
            if seat.kind == Kind::Shared {
                place.set_live(false);
            }
            // Otherwise the hold is lost already: its drop cleans up, and the caller waits on.
            if seat.session.end_reason().is_none() {
                drop(self.tell(End::Granted(hold)));
            }
            return;
        }
        // From here on it is clean-up that has the place.
        place.set_live(false);
        let ticket = self.tell(end);
        if let Some(create) = here.create.take() {
            step = here.acquiring.on(create.await, &|_| false);
        }
        clean_up(seat, place, here.acquiring.leave(step));
        drop(ticket);
    }

    /// Tells the caller how it ended, if it did. What is returned keeps
    /// [`Client::flush`](crate::Client::flush) waiting, from before the caller can ask, until it is dropped.
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
            End::OutOfTime => (ticket(), Err(self.out_of_time().into())),
        };
        if let Some(reply) = self.reply.take() {
            // If the caller is gone, a hold comes back here and its drop releases the lock.
            drop(reply.send(answer));
        }
        ticket
    }

    /// Looks before a node is created: whether one could not be deleted before, and, for a try, whether the
    /// lock is free.
    async fn look_first(&self, here: &mut InSession<'_>) -> Result<(), End> {
        let Seat { path_lock, session, kind, .. } = here.seat;
        // Looked at after having been counted: a session is ended the other way round, so that either we see
        // the end or it sees us.
        if session.end_reason().is_some() {
            return Err(End::Again);
        }
        self.progress.set_waits_for(WaitsFor::Deletion);
        if let Some(error) = here.wait(orphaned(path_lock, session, kind, None)).await? {
            return Err(error.into());
        }
        if self.if_busy() == IfBusy::Wait {
            return Ok(());
        }
        self.progress.set_waits_for(WaitsFor::List);
        match here.wait(Box::pin(look_before_try(path_lock, session, kind))).await? {
            InTheWay::Nothing => Ok(()),
            InTheWay::Live(ahead) => Err(End::Denied(path_lock.would_block(kind, ahead))),
            InTheWay::Leaving(path) => {
                self.progress.set_waits_for(WaitsFor::Deletion);
                here.wait(session.until_gone(&path)).await?;
                Err(End::Again)
            }
        }
    }

    /// Does one request, or one wait for another contender.
    async fn request(&self, here: &mut InSession<'_>, request: &AcquireRequest) -> Result<AcquireEvent, End> {
        let seat = here.seat;
        let own = here.acquiring.queued_as().map(str::to_owned);
        let own = own.as_deref();
        // Each on the heap: those that wait, perhaps by the thousand, are the smallest.
        match request {
            AcquireRequest::Create => {
                self.progress.set_waits_for(WaitsFor::Create);
                here.subject = Subject::Directory;
                let slot = here.wait(until_create(seat, self.if_busy())).await?;
                let create = here.create.insert(requests::create(seat, slot));
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
                self.progress.set_waits_for(WaitsFor::List);
                self.progress.set_node(own);
                here.subject = Subject::Directory;
                here.wait(Box::pin(requests::look(seat, own))).await
            }
            AcquireRequest::Inspect { name } => {
                self.progress.set_waits_for(WaitsFor::List);
                self.progress.set_node(own);
                here.subject = Subject::Directory;
                here.wait(Box::pin(requests::inspect(seat, name))).await
            }
            AcquireRequest::Watch { predecessor } => {
                here.subject = Subject::Node(predecessor.as_str().into());
                let ahead = self.progress.get().ahead;
                self.wait_behind(here, own, ahead, Box::pin(requests::watch(seat, own, predecessor))).await
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

    /// Waits behind another contender, which is watched at the servers or waited for in memory. Those ahead
    /// are `known`, unless there is a new list.
    async fn wait_behind(
        &self,
        here: &mut InSession<'_>,
        own: Option<&str>,
        known: Option<Ahead>,
        behind: impl Future<Output = AcquireEvent>,
    ) -> Result<AcquireEvent, End> {
        let Seat { path_lock, session, kind, .. } = here.seat;
        self.progress.set_waits_for(WaitsFor::Deletion);
        match here.acquiring.take_list() {
            Some(list) => {
                let ahead = live_ahead(here.seat, &list, own);
                if let (Some(own), Some(ahead)) = (own, &ahead) {
                    path_lock.queue().with(|queue| queue.looked(session.number(), own, ahead.count));
                }
                self.saw_ahead(here.place, ahead);
                let orphaned = orphaned(path_lock, session, kind, Some((&list, own)));
                if let Some(error) = here.wait(orphaned).await? {
                    return Err(error.into());
                }
            }
            None => self.saw_ahead(here.place, known),
        }
        self.progress.set_node(own);
        let refused = refused_in(path_lock, session, &mut here.refusals);
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
                        // The list that follows says who is left.
                        let left = self.progress.get().ahead.and_then(Ahead::without_one);
                        self.saw_ahead(here.place, left);
                    }
                    event
                }
                // One before ours may be a node that the servers refuse to delete now, of whose end nothing
                // is heard.
                () = refused => AcquireEvent::Changed,
            }
        };
        wait(here.seat, event, here.stop).await
    }

    /// Pauses before a repetition, for as long as the retry policy says. The first goes out at once, unless
    /// the server asked for patience: a request is repeated on the next connection, and that is waited for
    /// anyway.
    async fn pause(
        &self,
        here: &mut InSession<'_>,
        failures: u32,
        why: PauseReason,
    ) -> Result<AcquireEvent, End> {
        self.progress.set_node(here.acquiring.queued_as());
        if why == PauseReason::NodeDeleted {
            // The next node queues behind those that are there then.
            self.saw_ahead(here.place, None);
        }
        if failures == 0 {
            here.failing_since = Instant::now();
        }
        let pause = self.path_lock.client().retry().pause(failures, here.failing_since.elapsed());
        let Some(pause) = pause else { return Ok(AcquireEvent::GiveUp) };
        let pause = if failures == 0 && why != PauseReason::ServerBusy { Duration::ZERO } else { pause };
        if !pause.is_zero() {
            self.path_lock.queue().with(|queue| queue.step_aside(self.number));
        }
        here.wait(tokio::time::sleep(pause)).await?;
        Ok(AcquireEvent::Retry)
    }

    /// Grants the lock by the node `name`, which is first in the queue.
    async fn grant(&self, here: &mut InSession<'_>, name: &str, czxid: i64) -> End {
        let Seat { path_lock, session, number, kind } = here.seat;
        self.saw_ahead(here.place, None);
        self.progress.set_waits_for(WaitsFor::Proof);
        self.progress.set_node(Some(name));
        // First in the queue is not enough: the servers must be known to keep the session, or this would be a
        // grant in the moment that it is taken away (docs/protocol.md#suspended).
        if let Err(end) = here.wait(session.lease().until_valid()).await {
            return end;
        }
        let place = match kind {
            Kind::Shared => None,
            Kind::Exclusive => Some(Arc::clone(here.place)),
        };
        path_lock.queue().with(|queue| queue.settled(session.number(), name));
        let state = HoldState::new(name.into(), kind, place);
        let held = Held::new(session, path_lock.client().cleanup(), path_lock.path().clone(), number, state);
        // Registered before the caller is told: if the session ends from here on, this is a hold that is
        // lost, not one that is forgotten.
        End::Granted(Hold::new(Arc::clone(path_lock), Arc::clone(session), held, (czxid, 0), self.location))
    }

    /// What it means that the state machine has come to an end without a grant.
    fn not_granted(&self, here: &mut InSession<'_>, why: &NoGrant, orphans: &Orphans) -> End {
        let path = || self.path_lock.path().user().to_owned();
        End::from(match why {
            NoGrant::SessionOver => return End::Again,
            NoGrant::WouldBlock => {
                let own = orphans.names.last().map(String::as_str);
                let list = here.acquiring.take_list();
                return match list.and_then(|list| live_ahead(here.seat, &list, own)) {
                    Some(ahead) => End::Denied(self.path_lock.would_block(self.kind, ahead)),
                    // Only nodes of our own that are being deleted are in the way.
                    None => End::Again,
                };
            }
            NoGrant::Unusable(unusable) => unusable_directory(&self.path_lock, unusable.clone()),
            NoGrant::TooManyWatches => AcquireError::TooManyWatches { path: path() },
            NoGrant::NodeDeleted { times } => AcquireError::NodeDeleted { path: path(), times: *times },
            NoGrant::KeptFailing(failure) => {
                AcquireError::Connection { path: path(), source: Arc::clone(&failure.cause) }
            }
            NoGrant::Refused(failure) => match failure.kind {
                FailureKind::Refused(Refusal::NoAuth) => {
                    no_auth(&self.path_lock, std::mem::take(&mut here.subject))
                }
                // Of a node that asked for a number, by a name that no node has: the numbers are used up
                // (ZooKeeper does not go on beyond the largest).
                FailureKind::Refused(Refusal::NodeExists) => AcquireError::SequenceExhausted { path: path() },
                _ => AcquireError::Rejected { path: path(), source: Arc::clone(&failure.cause) },
            },
        })
    }

    /// The error where the time is over: `TimedOut` if a live contender was seen ahead, or what there was no
    /// answer to.
    fn out_of_time(&self) -> AcquireError {
        let waited = self.started.elapsed();
        let Progress { ahead, waits_for, .. } = self.progress.get();
        match (self.budget, ahead.or_else(|| self.path_lock.own_ahead(self.kind))) {
            (Budget::Until { asked, .. }, Some(ahead)) => {
                self.path_lock.timed_out(self.kind, asked, waited, ahead)
            }
            // A question is answered by the servers, or not.
            _ => {
                let path = self.path_lock.path().user().to_owned();
                AcquireError::Connection { path, source: Arc::new(NoAnswer { waits_for, waited }) }
            }
        }
    }

    /// The contenders ahead, by the last list, or `None` where that may have changed since: for the caller,
    /// and for those that wait for a place.
    fn saw_ahead(&self, place: &Place, ahead: Option<Ahead>) {
        place.set_waits(ahead.is_some());
        self.progress.set_ahead(ahead);
    }

    fn if_busy(&self) -> IfBusy {
        match self.budget {
            Budget::Try { .. } => IfBusy::Fail,
            Budget::Until { .. } | Budget::Forever => IfBusy::Wait,
        }
    }
}

impl InSession<'_> {
    async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        wait(self.seat, work, self.stop).await
    }
}

impl From<AcquireError> for End {
    fn from(error: AcquireError) -> Self {
        Self::Denied(error.into())
    }
}

/// What stops an attempt from outside.
struct Stop {
    deadline: Option<Pin<Box<Sleep>>>,
    /// The caller has gone. The ticket is kept until everything is cleaned up, or handed to clean-up.
    cancelled: oneshot::Receiver<Ticket>,
}

impl Stop {
    fn new(budget: Budget, cancelled: oneshot::Receiver<Ticket>) -> Self {
        let deadline = match budget {
            Budget::Until { deadline, .. } => Some(tokio::time::sleep_until(deadline.into())),
            // Asking has no deadline of the caller's, but it does not wait for a server for ever either.
            Budget::Try { patience } => Some(tokio::time::sleep(patience)),
            Budget::Forever => None,
        };
        Self { deadline: deadline.map(Box::pin), cancelled }
    }

    /// Waits until the attempt is to stop. Not to be called again after that.
    async fn wait(&mut self) -> End {
        let deadline = async {
            match &mut self.deadline {
                Some(deadline) => deadline.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ticket = &mut self.cancelled => End::CallerGone(ticket.ok()),
            () = deadline => End::OutOfTime,
        }
    }
}

/// Waits for `work`, unless the attempt is stopped, or the session ends, before; a result that is there
/// already comes first.
async fn wait<T>(seat: Seat<'_>, work: impl Future<Output = T>, stop: &mut Stop) -> Result<T, End> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        end = stop.wait() => Err(end),
        _ = seat.session.ended() => {
            let path = seat.path_lock.path().user();
            tracing::debug!(path, session = seat.session.number(), "again in the next session");
            Err(End::Again)
        }
    }
}

/// Hands what may be left to clean-up, with the place, which is kept until it is gone.
fn clean_up(seat: Seat<'_>, place: &Arc<Place>, orphans: Orphans) {
    let Seat { path_lock, session, number, kind } = seat;
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
            until_gone: Some(Arc::clone(place) as Arc<dyn Any + Send + Sync>),
            done: None,
        });
    }
}

/// An attempt's part in the order in which those of a path lock create, until its end.
struct Arrived<'a> {
    path_lock: &'a PathLock,
    number: u64,
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        self.path_lock.queue().with(|queue| queue.leave(self.number));
    }
}

/// Waits until a create may be sent: by the order of arrival, and by how many are under way in the session.
/// The one whose turn it is waits for a slot, so that path locks share them.
async fn until_create(seat: Seat<'_>, if_busy: IfBusy) -> Slot {
    // One that only asks waits for no other contender's turn, and keeps none waiting.
    if if_busy == IfBusy::Wait {
        until_next(seat).await;
    }
    seat.session.windows().creates.slot().await
}

/// Waits until those of the path lock that arrived before have created their nodes in this session.
async fn until_next(seat: Seat<'_>) {
    loop {
        let (wake, told) = oneshot::channel();
        let session = seat.session.number();
        if seat.path_lock.queue().with(|queue| queue.may_create(seat.number, session, wake)) {
            return;
        }
        // Whatever it is told, it asks again.
        let _ = told.await;
    }
}

/// Waits until the deletion of a node of ours in the path lock's directory has been refused.
async fn refused_in(path_lock: &PathLock, session: &Session, refusals: &mut watch::Receiver<u64>) {
    // An error cannot come: the session has the sender.
    while refusals.changed().await.is_ok() {
        if !session.orphans(Some(path_lock.path())).is_empty() {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// The live contenders before ours.
fn live_ahead(seat: Seat<'_>, list: &Queue, own: Option<&str>) -> Option<Ahead> {
    match in_the_way(seat.path_lock, seat.session, list, own, seat.kind) {
        InTheWay::Live(ahead) => Some(ahead),
        InTheWay::Nothing | InTheWay::Leaving(_) => None,
    }
}
