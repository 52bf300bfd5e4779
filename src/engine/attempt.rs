//! Does the I/O of one attempt to get a lock: runs a [`Acquiring`] on one session after the other.
//!
//! The attempt is a task of its own, so that it outlives the caller
//! (docs/protocol.md#attempt-outlives-caller): a caller that goes away sends it a message, and what it
//! created it has deleted. All decisions are the contender's; here are the requests, the deadline, and what
//! errors mean.

use crate::engine::admission::enter;
use crate::engine::pending::Pending;
use std::any::Any;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use zookeeper_client as zk;

use crate::engine::hold::Hold;
use crate::engine::look::{About, Sight, busy, no_auth, orphaned, sight, unusable_directory};
use crate::engine::path_lock::{Budget, Denied, Gate, PathLock};
use crate::engine::places::Place;
use crate::engine::progress::{Ahead, NoAnswer, Progress, WaitsFor};
use crate::engine::requests::perform;
use crate::error::{AcquireError, Cause};
use crate::protocol::acquire::{
    AcquireEvent, AcquireOutcome, AcquireRequest, AcquireStep, Acquiring, Blocking, Ending, Leave, Trouble,
    Waits,
};
use crate::protocol::failure::Failure;
use crate::protocol::node_name::Kind;
use crate::protocol::queue::Queue;
use crate::session::cleanup::{Item, Orphan};
use crate::session::held::Held;
use crate::session::tickets::Ticket;
use crate::session::window::Slot;
use crate::session::zk_session::{Session, cause};

/// What an attempt is given, and how it talks to its caller.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) path_lock: Arc<PathLock>,
    pub(crate) kind: Kind,
    pub(crate) budget: Budget,
    pub(crate) gate: Gate,
    /// What the clean-up goes by; see [`Tickets`](crate::session::cleanup::Tickets).
    pub(crate) number: u64,
    /// Told how it stands, and woken when the node that queues is another one.
    pub(crate) progress: watch::Sender<Progress>,
    /// Where the caller asked for the lock.
    pub(crate) location: &'static Location<'static>,
    pub(crate) reply: oneshot::Sender<Result<Hold, Denied>>,
    /// The caller has gone. The ticket is kept until everything is cleaned up or handed to the cleanup.
    pub(crate) cancelled: oneshot::Receiver<Ticket>,
}

/// Starts an attempt to get the lock within the budget, as a task where the session runs, so that the caller needs
/// no timer, and no runtime of any particular kind. Dropping the answer tells the attempt, which cleans up by itself.
pub(crate) fn start(
    path_lock: &Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    gate: Gate,
    location: &'static Location<'static>,
) -> Pending {
    let (reply, granted) = oneshot::channel();
    let (cancel, cancelled) = oneshot::channel();
    let number = path_lock.client().cleanup().number();
    let (progress, seen) = watch::channel(Progress::default());
    let shared = Arc::clone(path_lock);
    let attempt =
        Attempt { path_lock: shared, kind, budget, gate, number, progress, location, reply, cancelled };
    path_lock.client().spawn(run(attempt));
    Pending::new(Arc::clone(path_lock), granted, seen, cancel, number)
}

/// Gets the lock, or not, within the budget. Nothing is done before the first poll.
pub(crate) async fn acquire(
    path_lock: Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    gate: Gate,
    location: &'static Location<'static>,
) -> Result<Hold, Denied> {
    start(&path_lock, kind, budget, gate, location).result().await
}

/// Runs an attempt to its end.
pub(crate) async fn run(attempt: Attempt) {
    let Attempt { path_lock, kind, budget, gate, number, progress, location, reply, cancelled } = attempt;
    let started = Instant::now();
    let reply = Some(reply);
    let mut caller = Caller {
        path_lock: &path_lock,
        kind,
        budget,
        number,
        progress,
        location,
        started,
        keeps_place: false,
        reply,
    };
    let mut interrupted = pin!(interrupted(budget, cancelled));
    let before = path_lock.census();
    // Without a place nothing has been sent and nothing is to be cleaned up.
    let place = tokio::select! {
        biased;
        place = enter(&path_lock, kind, budget, gate) => place,
        interruption = &mut interrupted => {
            let now = path_lock.census();
            caller.set_waits_for(match now.live() {
                0 => WaitsFor::Place(path_lock.places_in_clean_up()),
                _ => WaitsFor::Others,
            });
            // Live contenders of this client had the places, whatever the connection was like.
            let (before, now) = (before.in_the_way(kind), now.in_the_way(kind));
            if before.now > 0 || now.now > 0 || now.ever != before.ever {
                caller.set_ahead(Some(Ahead { count: now.now.max(1), first: None }));
            }
            caller.interrupted(interruption);
            return;
        }
    };
    let place = match place {
        Ok(place) => place,
        Err(denied) => return caller.answer(Err(denied)),
    };
    // On the heap only from here on: those that wait for a place are many.
    Box::pin(contend(&path_lock, place, &mut caller, interrupted)).await;
}

/// Contends on one session after the other, for as long as there is a caller.
async fn contend(
    path_lock: &Arc<PathLock>,
    place: Arc<Place>,
    caller: &mut Caller<'_>,
    mut interrupted: Pin<&mut impl Future<Output = Interruption>>,
) {
    let _turn = Turn { path_lock, number: caller.number };
    // A caller that is answered or gone has completed `interrupted`, which must not be polled again.
    while caller.reply.is_some() {
        // Who was ahead in an earlier session may have gone since.
        saw(caller, &place, None);
        caller.set_waits_for(WaitsFor::Session);
        let session = tokio::select! {
            biased;
            // First: a caller that went while we waited for a place must not cost a create.
            interruption = &mut interrupted => {
                caller.interrupted(interruption);
                return;
            }
            session = path_lock.client().session() => session,
        };
        let session = match session {
            Ok(session) => session,
            Err(no_session) => return caller.deny(no_session.into_error(path_lock.path())),
        };
        caller.queued_as(None);
        // A hold that was lost before anybody had it has given its place up.
        place.set_live(true);
        caller.keeps_place = false;
        let contest = Contest::new(path_lock, &session, &place, caller.number);
        contest.run(caller, interrupted.as_mut()).await;
        if !caller.keeps_place {
            place.set_live(false);
        }
        // A waiter whose session ended starts again in the next (docs/protocol.md#session-end).
    }
}

/// Who is ahead, by the last list, or nothing where that may have changed since: for the caller, and for those that wait for
/// a place.
fn saw(caller: &Caller<'_>, place: &Place, ahead: Option<Ahead>) {
    place.set_waits(ahead.is_some());
    caller.set_ahead(ahead);
}

/// An attempt's part in the order of creates, until its end.
struct Turn<'a> {
    path_lock: &'a PathLock,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.path_lock.arrivals().leave(self.number);
    }
}

/// Waits until those of the path lock that came before have created their nodes in this session.
async fn turn(path_lock: &PathLock, session: &Session, number: u64) {
    loop {
        let (wake, woken) = oneshot::channel();
        if path_lock.arrivals().is_next(number, session.number(), wake) {
            return;
        }
        // Woken by the drop of the other end.
        let _ = woken.await;
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

/// Why an attempt is to stop.
enum Interruption {
    Deadline,
    Cancelled(Option<Ticket>),
}

async fn interrupted(budget: Budget, cancelled: oneshot::Receiver<Ticket>) -> Interruption {
    let deadline = async {
        match budget {
            Budget::Until { deadline, .. } => tokio::time::sleep_until(deadline.into()).await,
            // Asking has no deadline of the caller's, but it does not wait for a server for ever either.
            Budget::Try { patience } => tokio::time::sleep(patience).await,
            Budget::Forever => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ticket = cancelled => Interruption::Cancelled(ticket.ok()),
        () = deadline => Interruption::Deadline,
    }
}

/// The other side of an attempt.
struct Caller<'a> {
    path_lock: &'a Arc<PathLock>,
    kind: Kind,
    budget: Budget,
    number: u64,
    progress: watch::Sender<Progress>,
    location: &'static Location<'static>,
    started: Instant,
    /// A hold has the place in the gate now.
    keeps_place: bool,
    /// Nothing once the caller has its answer, or is gone.
    reply: Option<oneshot::Sender<Result<Hold, Denied>>>,
}

impl Caller<'_> {
    fn answer(&mut self, result: Result<Hold, Denied>) {
        if let Some(reply) = self.reply.take() {
            // If the caller is gone, the grant comes back here and its drop gives the lock back.
            drop(reply.send(result));
        }
    }

    fn deny(&mut self, error: AcquireError) {
        self.answer(Err(Denied::Error(error)));
    }

    /// Our node is in the queue, by this name, or is not any more.
    fn queued_as(&self, node: Option<&str>) {
        self.progress.send_if_modified(|progress| {
            let changed = progress.node.as_deref() != node;
            if changed {
                progress.node = node.map(Into::into);
            }
            changed
        });
    }

    fn ahead(&self) -> Option<Ahead> {
        self.progress.borrow().ahead.clone()
    }

    /// Who is ahead, by the last list; nothing where that may have changed since.
    fn set_ahead(&self, ahead: Option<Ahead>) {
        self.progress.send_if_modified(|progress| {
            progress.ahead = ahead;
            // No one waits for that.
            false
        });
    }

    /// What is waited for from now on where there is nobody ahead.
    fn set_waits_for(&self, waits_for: WaitsFor) {
        self.progress.send_if_modified(|progress| {
            progress.waits_for = waits_for;
            false
        });
    }

    /// The caller is gone, or is told that its time is over. The answer keeps
    /// [`Client::flush`](crate::Client::flush) waiting.
    fn interrupted(&mut self, interruption: Interruption) -> Option<Ticket> {
        match interruption {
            Interruption::Cancelled(ticket) => {
                self.reply = None;
                ticket
            }
            Interruption::Deadline => {
                // Before the answer, so that a flush after it waits for us.
                let ticket = self.path_lock.client().cleanup().ticket(self.number);
                let waited = self.started.elapsed();
                let Progress { ahead, waits_for, .. } = self.progress.borrow().clone();
                let ahead = ahead.or_else(|| self.path_lock.own_ahead(self.kind));
                self.deny(match (self.budget, ahead) {
                    (Budget::Until { asked, .. }, Some(ahead)) => {
                        self.path_lock.timed_out(self.kind, asked, waited, ahead)
                    }
                    // A question is answered by the servers, or not.
                    _ => {
                        let path = self.path_lock.path().user().to_owned();
                        AcquireError::Connection { path, source: Arc::new(NoAnswer { waits_for, waited }) }
                    }
                });
                Some(ticket)
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection kept failing")]
struct KeptFailing;

/// Why a request is not waited for any more.
enum Stop {
    Interrupted(Interruption),
    SessionOver,
}

/// One attempt on one session. When it has run, either the caller is answered or gone, or the session is over.
pub(super) struct Contest<'a> {
    pub(super) path_lock: &'a Arc<PathLock>,
    pub(super) session: &'a Arc<Session>,
    place: &'a Arc<Place>,
    pub(super) number: u64,
    /// What the client library said last, for the error if this is given up.
    last_error: Option<zk::Error>,
    /// What the last request was about.
    about: About,
    /// When the present row of failures began: the retry policy does not count the time in the queue.
    trouble_since: Instant,
}

impl<'a> Contest<'a> {
    fn new(
        path_lock: &'a Arc<PathLock>,
        session: &'a Arc<Session>,
        place: &'a Arc<Place>,
        number: u64,
    ) -> Self {
        Self {
            path_lock,
            session,
            place,
            number,
            last_error: None,
            about: About::Directory,
            trouble_since: Instant::now(),
        }
    }

    async fn run(
        mut self,
        caller: &mut Caller<'_>,
        mut interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) {
        let _counted = self.session.attempt();
        // Looked at after having been counted: whoever ends a session does it the other way round, so that either
        // we see the end or it sees us.
        if self.session.end_reason().is_some() {
            return;
        }
        let patience = match caller.budget {
            Budget::Try { .. } => Blocking::Try,
            Budget::Until { .. } | Budget::Forever => Blocking::Wait,
        };
        let mut refusals = self.session.refusals();
        // Before another node is made that cannot be deleted.
        caller.set_waits_for(WaitsFor::Deletion);
        let orphan = orphaned(self.path_lock, self.session, caller.kind, None);
        match self.wait(orphan, interrupted.as_mut()).await {
            Ok(None) => {}
            Ok(Some(error)) => return caller.deny(error),
            Err(stop) => return drop(self.stopped(stop, caller)),
        }
        if patience == Blocking::Try {
            caller.set_waits_for(WaitsFor::List);
            let busy = Box::pin(busy(self.path_lock, self.session, caller.kind));
            match self.wait(busy, interrupted.as_mut()).await {
                Ok(Sight::Clear) => {}
                Ok(Sight::Live(ahead)) => return caller.answer(Err(Denied::Busy(ahead))),
                Ok(Sight::Leaving(path)) => {
                    caller.set_waits_for(WaitsFor::Deletion);
                    // Then it is asked again.
                    return match self.wait(self.session.until_gone(&path), interrupted).await {
                        Ok(()) => {}
                        Err(stop) => drop(self.stopped(stop, caller)),
                    };
                }
                Err(stop) => return drop(self.stopped(stop, caller)),
            }
        }
        let waits = match self.path_lock.waits_in_memory() {
            true => Waits::InMemory,
            false => Waits::AtTheServers,
        };
        let (mut contender, mut step) = Acquiring::new(self.path_lock.naming(), caller.kind, patience, waits);
        loop {
            let came = match step {
                AcquireStep::Do(request) => {
                    caller.set_waits_for(match &request {
                        AcquireRequest::MakeParents => WaitsFor::Parents,
                        AcquireRequest::Create => WaitsFor::Create,
                        AcquireRequest::List | AcquireRequest::Inspect { .. } => WaitsFor::List,
                        AcquireRequest::Watch { .. } | AcquireRequest::WaitFor { .. } => WaitsFor::Deletion,
                    });
                    // Only the outcome of a create has to be known; every other request may be dropped.
                    let creating = request == AcquireRequest::Create;
                    let mut slot = None;
                    if creating {
                        match self.wait(self.slot(patience), interrupted.as_mut()).await {
                            Ok(free) => slot = Some(free),
                            Err(stop) => {
                                let ticket = self.stopped(stop, caller);
                                self.clean_up(contender.leave(AcquireStep::Do(request)), caller);
                                return drop(ticket);
                            }
                        }
                    }
                    let list = contender.take_list();
                    if let Some(list) = &list {
                        let own = contender.queued_as();
                        let ahead = self.live_ahead(list, own, caller.kind);
                        if let (Some(own), Some(ahead)) = (own, &ahead) {
                            self.session.line().looked(own, ahead.count);
                        }
                        saw(caller, self.place, ahead);
                        let orphan = orphaned(self.path_lock, self.session, caller.kind, Some((list, own)));
                        let stopped = match self.wait(orphan, interrupted.as_mut()).await {
                            Ok(None) => None,
                            Ok(Some(error)) => {
                                caller.deny(error);
                                Some(None)
                            }
                            Err(stop) => Some(self.stopped(stop, caller)),
                        };
                        if let Some(ticket) = stopped {
                            self.clean_up(contender.leave(AcquireStep::Do(request)), caller);
                            return drop(ticket);
                        }
                    } else if let (AcquireRequest::WaitFor { .. }, Some(own)) =
                        (&request, contender.queued_as())
                    {
                        // Known without a list.
                        let count = self.session.line().ahead(own);
                        saw(caller, self.place, Some(Ahead { count, first: None }));
                    }
                    drop(list);
                    caller.queued_as(contender.queued_as());
                    let own = contender.queued_as().map(str::to_owned);
                    let watching =
                        matches!(request, AcquireRequest::Watch { .. } | AcquireRequest::WaitFor { .. });
                    self.about = match &request {
                        AcquireRequest::MakeParents => About::Parent,
                        AcquireRequest::Watch { predecessor } => About::Node(predecessor.as_str().into()),
                        _ => About::Directory,
                    };
                    let mut work = perform(&self, caller.kind, request, own, slot);
                    let came = async {
                        tokio::select! {
                            biased;
                            came = work.as_mut() => {
                                if let (AcquireEvent::Changed | AcquireEvent::WatchFailed(Failure::NoNode), _) = came {
                                    // Whom we watched may have gone; the list that follows says who is left.
                                    let left = caller.ahead().and_then(Ahead::without_one);
                                    saw(caller, self.place, left);
                                }
                                came
                            }
                            // A node before ours may have become an orphan, which is never told.
                            () = refused_in(self.path_lock, self.session, &mut refusals), if watching => {
                                (AcquireEvent::Changed, None)
                            }
                        }
                    };
                    match self.wait(came, interrupted.as_mut()).await {
                        Ok(came) => came,
                        Err(stop) => {
                            let ticket = self.stopped(stop, caller);
                            let mut last = AcquireStep::Pause { failures: 0, why: Trouble::Request };
                            if creating {
                                let (event, _) = work.await;
                                last = contender.on(event, &|_| false);
                            }
                            self.clean_up(contender.leave(last), caller);
                            return drop(ticket);
                        }
                    }
                }
                AcquireStep::Pause { failures, why } => {
                    if why == Trouble::NodeDeleted {
                        // The next node queues behind those that are there then.
                        saw(caller, self.place, None);
                    }
                    let Some(pause) = self.pause(failures, why) else {
                        let error = self.exhausted(why, contender.times_deleted());
                        self.clean_up(contender.leave(step), caller);
                        return caller.deny(error);
                    };
                    if !pause.is_zero() {
                        self.path_lock.arrivals().step_aside(self.number);
                    }
                    match self.wait(tokio::time::sleep(pause), interrupted.as_mut()).await {
                        Ok(()) => (AcquireEvent::Retry, None),
                        Err(stop) => {
                            let ticket = self.stopped(stop, caller);
                            self.clean_up(contender.leave(step), caller);
                            return drop(ticket);
                        }
                    }
                }
                AcquireStep::Finish(AcquireOutcome::Granted { name, czxid, also }) => {
                    saw(caller, self.place, None);
                    caller.set_waits_for(WaitsFor::Proof);
                    self.clean_up(also, caller);
                    caller.queued_as(Some(&name));
                    // First in the queue is not enough: the servers must be known to keep the session, or
                    // this would be a grant in the moment that it is taken away (docs/protocol.md#suspended).
                    let ticket = match self.wait(self.session.sound(), interrupted.as_mut()).await {
                        Ok(()) => return self.grant(&name, czxid, caller),
                        Err(stop) => self.stopped(stop, caller),
                    };
                    self.clean_up(Leave { nodes: vec![name], unsettled: Vec::new() }, caller);
                    return drop(ticket);
                }
                AcquireStep::Finish(AcquireOutcome::Ended { why: Ending::WouldBlock, leave }) => {
                    let own = leave.nodes.last().cloned();
                    self.clean_up(leave, caller);
                    let ahead = contender.take_list();
                    let ahead = ahead.and_then(|list| self.live_ahead(&list, own.as_deref(), caller.kind));
                    // Without one it is asked again: only nodes of our own that are being deleted are in the way.
                    if let Some(ahead) = ahead {
                        caller.answer(Err(Denied::Busy(ahead)));
                    }
                    return;
                }
                AcquireStep::Finish(AcquireOutcome::Ended { why, leave }) => {
                    return self.end(why, leave, caller);
                }
            };
            let (event, error) = came;
            self.last_error = error.or(self.last_error);
            step = contender.on(event, &|name| self.session.line().knows(name));
            self.clean_up(Leave { nodes: contender.take_surplus(), unsettled: Vec::new() }, caller);
            if matches!(step, AcquireStep::Pause { .. }) {
                caller.queued_as(contender.queued_as());
            }
        }
    }

    /// Waits until a create may be sent: by the order in the path lock, and by how many are under way in the session. The one
    /// that has the turn waits for a slot, so that path locks share them.
    async fn slot(&self, patience: Blocking) -> Slot {
        // One that only asks waits for no other contender's turn, and keeps none waiting.
        if patience == Blocking::Wait {
            turn(self.path_lock, self.session, self.number).await;
        }
        self.session.windows().creates.slot().await
    }

    /// The live contenders before ours.
    fn live_ahead(&self, list: &Queue, own: Option<&str>, kind: Kind) -> Option<Ahead> {
        match sight(self.path_lock, self.session, list, own, kind) {
            Sight::Live(ahead) => Some(ahead),
            Sight::Clear | Sight::Leaving(_) => None,
        }
    }

    /// Waits for `work`, the end of the session, or an interruption; a result that is there already comes first.
    async fn wait<T>(
        &self,
        work: impl Future<Output = T>,
        interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            result = work => Ok(result),
            interruption = interrupted => Err(Stop::Interrupted(interruption)),
            _ = self.session.ended() => Err(Stop::SessionOver),
        }
    }

    fn stopped(&self, stop: Stop, caller: &mut Caller<'_>) -> Option<Ticket> {
        match stop {
            Stop::Interrupted(interruption) => {
                // From here on this is clean-up.
                self.place.set_live(false);
                caller.interrupted(interruption)
            }
            Stop::SessionOver => {
                let path = self.path_lock.path().user();
                tracing::debug!(path, session = self.session.number(), "again in the next session");
                None
            }
        }
    }

    /// How long to wait before a repetition. The first goes out at once, unless the server asked for patience: a
    /// request is repeated on the next connection, and that is waited for anyway.
    fn pause(&mut self, failures: u32, why: Trouble) -> Option<Duration> {
        if failures == 0 {
            self.trouble_since = Instant::now();
        }
        let pause = self.path_lock.client().retry().pause(failures, self.trouble_since.elapsed())?;
        Some(if failures == 0 && why != Trouble::NotNow { Duration::ZERO } else { pause })
    }

    fn exhausted(&self, why: Trouble, times: u32) -> AcquireError {
        let path = self.path_lock.path().user().to_owned();
        match why {
            Trouble::NodeDeleted => AcquireError::NodeDeleted { path, times },
            Trouble::Request | Trouble::NotNow => AcquireError::Connection { path, source: self.source() },
        }
    }

    fn source(&self) -> Cause {
        self.last_error.clone().map_or_else(|| Arc::new(KeptFailing) as Cause, cause)
    }

    fn grant(&self, name: &str, czxid: i64, caller: &mut Caller<'_>) {
        let token = (czxid, 0);
        // Made first: if the session ends from here on, this is a hold that is lost, not one that is
        // forgotten. The gate bounds the queue, not the number of readers inside (docs/protocol.md#places).
        let permit = match caller.kind {
            Kind::Shared => None,
            Kind::Exclusive => Some(Arc::clone(self.place)),
        };
        self.session.line().settled(name);
        let held = Held::new(self.path_lock.path().clone(), name, caller.kind, permit, self.number);
        let hold =
            Hold::new(Arc::clone(self.path_lock), Arc::clone(self.session), held, token, caller.location);
        caller.keeps_place = caller.kind == Kind::Exclusive;
        if self.session.end_reason().is_none() {
            caller.answer(Ok(hold));
        }
    }

    fn end(self, why: Ending, leave: Leave, caller: &mut Caller<'_>) {
        self.clean_up(leave, caller);
        let path = || self.path_lock.path().user().to_owned();
        match why {
            Ending::SessionOver | Ending::WouldBlock => {}
            Ending::Unusable(unusable) => caller.deny(unusable_directory(self.path_lock, unusable)),
            Ending::TooManyWatches => caller.deny(AcquireError::TooManyWatches { path: path() }),
            Ending::Refused => caller.deny(match self.last_error {
                Some(zk::Error::NoAuth) => no_auth(self.path_lock, self.about),
                // Of a node that asked for a number, by a name that nobody has: the numbers are used up (ZooKeeper does
                // not go on beyond the largest).
                Some(zk::Error::NodeExists) => AcquireError::SequenceExhausted { path: path() },
                _ => AcquireError::Rejected { path: path(), source: self.source() },
            }),
        }
    }

    /// Hands what may be left to the cleanup; the place in the gate is kept until it is gone.
    fn clean_up(&self, leave: Leave, caller: &Caller<'_>) {
        let unknown_creates = leave.nodes.into_iter().map(Orphan::Node);
        let unknown_creates = unknown_creates.chain(leave.unsettled.into_iter().map(|id| {
            let beginning = self.path_lock.naming().prefix(&id, caller.kind);
            Orphan::Unsettled { id, beginning }
        }));
        for orphan in unknown_creates {
            self.path_lock.client().cleanup().reap(Item {
                session: Arc::clone(self.session),
                directory: self.path_lock.path().clone(),
                orphan,
                number: self.number,
                until_gone: Some(Arc::clone(self.place) as Arc<dyn Any + Send + Sync>),
                done: None,
            });
        }
    }
}
