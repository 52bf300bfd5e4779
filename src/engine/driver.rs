//! Does the I/O of one attempt to get a lock: runs a [`Contender`] on one epoch after the other.
//!
//! The attempt is a task of its own, so that it outlives the caller (design rule 7): a caller that goes away sends
//! it a message, and what it created it has deleted. All decisions are the contender's; here are the requests, the
//! deadline, and what errors mean.

mod requests;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;
use zookeeper_client as zk;

use self::requests::{create_and_list, is_busy, perform};
pub(crate) use self::requests::{participants, transact};
use super::contender::{Contender, Ending, Event, Leave, Outcome, Patience, Step, Trouble};
use super::room::{Budget, Denied, Hold, Room};
use crate::client::epoch::{Epoch, cause};
use crate::client::reaper::{Debt, Item, Ticket};
use crate::error::{AcquireError, Cause};
use crate::token::FencingToken;

/// What an attempt is given, and how it talks to its caller.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) room: Arc<Room>,
    pub(crate) budget: Budget,
    pub(crate) reply: oneshot::Sender<Result<Hold, Denied>>,
    /// The caller has gone. The ticket is kept until everything is cleaned up or handed to the reaper.
    pub(crate) cancelled: oneshot::Receiver<Ticket>,
}

/// Runs an attempt to its end.
pub(crate) async fn run(attempt: Attempt) {
    let Attempt { room, budget, reply, cancelled } = attempt;
    let mut caller = Caller { room: &room, budget, started: Instant::now(), reply: Some(reply) };
    let mut interrupted = pin!(interrupted(budget, cancelled));
    // Without a place nothing has been sent and nothing is to be cleaned up.
    let permit = tokio::select! {
        biased;
        permit = room.enter(budget) => permit,
        interruption = &mut interrupted => {
            caller.interrupted(interruption);
            return;
        }
    };
    let Some(permit) = permit else { return caller.answer(Err(Denied::WouldBlock)) };
    // On the heap only from here on: those that wait for a place are many.
    Box::pin(contend(&room, Arc::new(permit), &mut caller, interrupted)).await;
}

/// Contends on one epoch after the other.
async fn contend(
    room: &Arc<Room>,
    permit: Arc<OwnedSemaphorePermit>,
    caller: &mut Caller<'_>,
    mut interrupted: Pin<&mut impl Future<Output = Interruption>>,
) {
    loop {
        let epoch = tokio::select! {
            biased;
            epoch = room.client().epoch() => epoch,
            interruption = &mut interrupted => {
                caller.interrupted(interruption);
                return;
            }
        };
        let epoch = match epoch {
            Ok(epoch) => epoch,
            Err(no_epoch) => return caller.deny(no_epoch.into_error(room.path())),
        };
        let contest = Contest { room, epoch: &epoch, permit: &permit, last_error: None };
        match contest.run(caller, interrupted.as_mut()).await {
            // A waiter whose session ended starts again in the next (rule 8).
            Verdict::EpochOver => {
                let path = room.path().user();
                tracing::debug!(path, epoch = epoch.number(), "again in the next session");
            }
            Verdict::Done => return,
        }
    }
}

/// Why an attempt is to stop.
enum Interruption {
    Deadline,
    Cancelled(Option<Ticket>),
}

async fn interrupted(budget: Budget, cancelled: oneshot::Receiver<Ticket>) -> Interruption {
    let deadline = async {
        match budget {
            Budget::Until(deadline) => tokio::time::sleep_until(deadline.into()).await,
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

/// The other side of an attempt, answered exactly once.
struct Caller<'a> {
    room: &'a Arc<Room>,
    budget: Budget,
    started: Instant,
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

    /// Tells the caller that its time is over; the answer keeps [`Client::flush`](crate::Client::flush) waiting.
    fn interrupted(&mut self, interruption: Interruption) -> Option<Ticket> {
        match interruption {
            Interruption::Cancelled(ticket) => ticket,
            Interruption::Deadline => {
                // Before the answer, so that a flush after it waits for us.
                let ticket = self.room.client().reaper().ticket();
                let error = match self.budget {
                    Budget::Try { patience } => {
                        AcquireError::Connection { path: self.path(), source: Arc::new(NoAnswer(patience)) }
                    }
                    _ => self.room.timed_out(self.started.elapsed()),
                };
                self.deny(error);
                Some(ticket)
            }
        }
    }

    fn path(&self) -> String {
        self.room.path().user().to_owned()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
struct NoAnswer(Duration);

#[derive(Debug, thiserror::Error)]
#[error("the connection kept failing")]
struct KeptFailing;

enum Verdict {
    Done,
    EpochOver,
}

/// What became of a step that could be interrupted.
enum Waited<T> {
    Came(T),
    Interrupted(Interruption),
    EpochOver,
}

/// One attempt on one epoch.
struct Contest<'a> {
    room: &'a Arc<Room>,
    epoch: &'a Arc<Epoch>,
    permit: &'a Arc<OwnedSemaphorePermit>,
    /// What the client library said last, for the error if this is given up.
    last_error: Option<zk::Error>,
}

impl Contest<'_> {
    async fn run(
        mut self,
        caller: &mut Caller<'_>,
        mut interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) -> Verdict {
        let _counted = self.epoch.attempt();
        let Ok(session) = self.epoch.session() else {
            return Verdict::EpochOver;
        };
        let patience = match caller.budget {
            Budget::Try { .. } => Patience::Try,
            Budget::Until(_) | Budget::Forever => Patience::Wait,
        };
        if patience == Patience::Try {
            let busy = is_busy(self.room, &session);
            match self.wait(busy, interrupted.as_mut()).await {
                Waited::Came(true) => {
                    caller.answer(Err(Denied::WouldBlock));
                    return Verdict::Done;
                }
                Waited::Came(false) => {}
                Waited::Interrupted(interruption) => {
                    caller.interrupted(interruption);
                    return Verdict::Done;
                }
                Waited::EpochOver => return Verdict::EpochOver,
            }
        }
        let (mut contender, mut step) = Contender::new(self.room.family(), patience);
        loop {
            // Only the outcome of a create has to be known, so only that step is never dropped.
            if step == Step::CreateAndList {
                let mut ticket = None;
                let id = Uuid::new_v4().to_string();
                let event = {
                    let created = create_and_list(self.room, self.epoch, &session, &id);
                    let mut created = pin!(created);
                    match self.wait(created.as_mut(), interrupted.as_mut()).await {
                        Waited::Came(event) => Some(event),
                        Waited::Interrupted(interruption) => {
                            ticket = caller.interrupted(interruption);
                            contender.leave_after_create();
                            self.unless_gone(created).await
                        }
                        Waited::EpochOver => {
                            contender.leave_after_create();
                            self.unless_gone(created).await
                        }
                    }
                };
                let Some((event, error)) = event else {
                    return self.epoch_over(caller);
                };
                self.last_error = error.or(self.last_error);
                step = contender.on(event);
                self.clean_up(Leave { nodes: contender.take_surplus(), unsettled: Vec::new() });
                if let Step::Finish(Outcome::Ended { why: Ending::Left, leave }) = step {
                    self.clean_up(leave);
                    drop(ticket);
                    return self.epoch_over(caller);
                }
                continue;
            }
            let event = match step {
                Step::Finish(Outcome::Granted { name, czxid, also }) => {
                    self.clean_up(also);
                    // First in the queue is not enough: the servers must be known to keep the session, or this
                    // would be a grant in the moment that it is taken away (rule 10).
                    let sound = self.wait(self.epoch.sound(), interrupted.as_mut()).await;
                    let (verdict, ticket) = match sound {
                        Waited::Came(()) => return self.grant(&name, czxid, caller),
                        Waited::Interrupted(interruption) => {
                            (Verdict::Done, caller.interrupted(interruption))
                        }
                        Waited::EpochOver => (Verdict::EpochOver, None),
                    };
                    self.clean_up(Leave { nodes: vec![name], unsettled: Vec::new() });
                    drop(ticket);
                    return verdict;
                }
                Step::Finish(Outcome::Ended { why, leave }) => return self.end(why, leave, caller),
                Step::Pause { failures, why } => match self.pause(failures, caller.started) {
                    Some(pause) => {
                        self.wait(
                            async {
                                tokio::time::sleep(pause).await;
                                (Event::Retry, None)
                            },
                            interrupted.as_mut(),
                        )
                        .await
                    }
                    None => {
                        self.clean_up(contender.leave_now());
                        caller.deny(self.exhausted(why, contender.times_deleted()));
                        return Verdict::Done;
                    }
                },
                step => {
                    let work = perform(self.room, self.epoch, &session, step);
                    self.wait(work, interrupted.as_mut()).await
                }
            };
            step = match event {
                Waited::Came((event, error)) => {
                    self.last_error = error.or(self.last_error);
                    let step = contender.on(event);
                    self.clean_up(Leave { nodes: contender.take_surplus(), unsettled: Vec::new() });
                    step
                }
                Waited::Interrupted(interruption) => {
                    let ticket = caller.interrupted(interruption);
                    self.clean_up(contender.leave_now());
                    drop(ticket);
                    return Verdict::Done;
                }
                Waited::EpochOver => {
                    self.clean_up(contender.leave_now());
                    return Verdict::EpochOver;
                }
            };
        }
    }

    /// Whether the attempt goes on in the next epoch: not if its caller has had its answer.
    fn epoch_over(&self, caller: &Caller<'_>) -> Verdict {
        let answered = caller.reply.is_none() || self.epoch.end_reason().is_none();
        if answered { Verdict::Done } else { Verdict::EpochOver }
    }

    /// Waits for `work`, the end of the epoch, or an interruption; a result that is there already comes first.
    async fn wait<T>(
        &self,
        work: impl Future<Output = T>,
        interrupted: Pin<&mut impl Future<Output = Interruption>>,
    ) -> Waited<T> {
        tokio::select! {
            biased;
            result = work => Waited::Came(result),
            interruption = interrupted => Waited::Interrupted(interruption),
            _ = self.epoch.ended() => Waited::EpochOver,
        }
    }

    /// Waits for `work` as long as there is a session that it could still happen in.
    async fn unless_gone<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = work => Some(result),
            () = self.epoch.gone() => None,
        }
    }

    /// How long to wait before a repetition; the first one goes out at once.
    fn pause(&self, failures: u32, started: Instant) -> Option<Duration> {
        let pause = self.room.client().retry().pause(failures, started.elapsed())?;
        Some(if failures == 0 { Duration::ZERO } else { pause })
    }

    fn exhausted(&self, why: Trouble, times: u32) -> AcquireError {
        let path = self.room.path().user().to_owned();
        match why {
            Trouble::NodeDeleted => AcquireError::NodeDeleted { path, times },
            Trouble::Request => AcquireError::Connection { path, source: self.source() },
        }
    }

    fn source(&self) -> Cause {
        self.last_error.clone().map_or_else(|| Arc::new(KeptFailing) as Cause, cause)
    }

    fn grant(&self, name: &str, czxid: i64, caller: &mut Caller<'_>) -> Verdict {
        let token = FencingToken::from_parts(czxid, 0);
        // Made first: if the epoch ends from here on, this is a hold that is lost, not one that is forgotten.
        let permit = Arc::clone(self.permit);
        let hold = Hold::new(Arc::clone(self.room), Arc::clone(self.epoch), name, token, permit);
        if self.epoch.end_reason().is_some() {
            return Verdict::EpochOver;
        }
        caller.answer(Ok(hold));
        Verdict::Done
    }

    fn end(self, why: Ending, leave: Leave, caller: &mut Caller<'_>) -> Verdict {
        self.clean_up(leave);
        let path = || self.room.path().user().to_owned();
        match why {
            Ending::EpochOver => return Verdict::EpochOver,
            Ending::Left => {}
            Ending::WouldBlock => caller.answer(Err(Denied::WouldBlock)),
            Ending::OtherOrder(node) => {
                let node = self.room.path().to_user(&self.room.path().child(&node)).to_owned();
                caller.deny(AcquireError::MixedRecipes { path: path(), node });
            }
            Ending::Exhausted => caller.deny(AcquireError::SequenceExhausted { path: path() }),
            Ending::Refused => caller.deny(match self.last_error {
                Some(zk::Error::NoAuth) => AcquireError::NoAuth { path: path() },
                _ => AcquireError::Rejected { path: path(), source: self.source() },
            }),
        }
        Verdict::Done
    }

    /// Hands what may be left to the reaper; the place in the gate is kept until it is gone.
    fn clean_up(&self, leave: Leave) {
        let family = self.room.family();
        let debts = leave.nodes.into_iter().map(Debt::Node);
        let debts = debts.chain(leave.unsettled.into_iter().map(|id| Debt::Unsettled { id, family }));
        for debt in debts {
            self.room.client().reaper().reap(Item {
                epoch: Arc::clone(self.epoch),
                directory: self.room.path().clone(),
                debt,
                permit: Some(Arc::clone(self.permit)),
                done: None,
            });
        }
    }
}
