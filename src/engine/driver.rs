//! Does the I/O of one attempt to get a lock: runs a [`Contender`] on one epoch after the other.
//!
//! The attempt is a task of its own, so that it outlives the caller (design rule 7): a caller that goes away sends
//! it a message, and what it created it has deleted. All decisions are the contender's; here are the requests, the
//! deadline, and what errors mean.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;
use zookeeper_client as zk;

use super::contender::{
    Answer, Contender, Ending, Event, Failure, Leave, Node, Outcome, Patience, Step, Trouble,
};
use super::name::prefix;
use super::queue::{Queue, Unusable};
use super::room::{Budget, Denied, Hold, Room};
use crate::client::epoch::{Epoch, cause};
use crate::client::reaper::{Debt, Item, Ticket};
use crate::error::{AcquireError, Cause, LostReason};
use crate::options::{Acl, Parents, Permissions};
use crate::token::FencingToken;

/// What an attempt is given, and how it talks to its caller.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) room: Arc<Room>,
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
    pub(crate) budget: Budget,
    pub(crate) reply: oneshot::Sender<Result<Hold, Denied>>,
    /// The caller has gone. The ticket is kept until everything is cleaned up or handed to the reaper.
    pub(crate) cancelled: oneshot::Receiver<Ticket>,
}

/// Runs an attempt to its end.
pub(crate) async fn run(attempt: Attempt) {
    let Attempt {
        room,
        permit,
        budget,
        reply,
        cancelled,
    } = attempt;
    let mut caller = Caller {
        room: &room,
        budget,
        started: Instant::now(),
        reply: Some(reply),
    };
    let mut interrupted = pin!(interrupted(budget, cancelled));
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
        let contest = Contest {
            room: &room,
            epoch: &epoch,
            permit: &permit,
            last_error: None,
        };
        match contest.run(&mut caller, interrupted.as_mut()).await {
            // A waiter whose session ended starts again in the next (rule 8).
            Verdict::EpochOver => tracing::debug!(
                path = room.path().user(),
                epoch = epoch.number(),
                "again in the next session"
            ),
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
                    Budget::Try { patience } => AcquireError::Connection {
                        path: self.path(),
                        source: Arc::new(NoAnswer(patience)),
                    },
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
            let busy = self.is_busy(&session);
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
                self.clean_up(Leave {
                    nodes: contender.take_surplus(),
                    unsettled: Vec::new(),
                });
                if let Step::Finish(Outcome::Ended {
                    why: Ending::Left,
                    leave,
                }) = step
                {
                    self.clean_up(leave);
                    drop(ticket);
                    return self.epoch_over(caller);
                }
                continue;
            }
            let event = match step {
                Step::Finish(outcome) => return self.finish(outcome, caller),
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
                    self.clean_up(Leave {
                        nodes: contender.take_surplus(),
                        unsettled: Vec::new(),
                    });
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
        if answered {
            Verdict::Done
        } else {
            Verdict::EpochOver
        }
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
            Trouble::Request => AcquireError::Connection {
                path,
                source: self.source(),
            },
        }
    }

    fn source(&self) -> Cause {
        self.last_error
            .clone()
            .map_or_else(|| Arc::new(KeptFailing) as Cause, cause)
    }

    fn finish(self, outcome: Outcome, caller: &mut Caller<'_>) -> Verdict {
        let path = || self.room.path().user().to_owned();
        match outcome {
            Outcome::Granted { name, czxid, also } => {
                self.clean_up(also);
                let token = FencingToken::from_parts(czxid, 0);
                // Made first: if the epoch ends from here on, this is a hold that is lost, not one that is forgotten.
                let hold = Hold::new(
                    Arc::clone(self.room),
                    Arc::clone(self.epoch),
                    name,
                    token,
                    Arc::clone(self.permit),
                );
                if self.epoch.end_reason().is_some() {
                    return Verdict::EpochOver;
                }
                caller.answer(Ok(hold));
                Verdict::Done
            }
            Outcome::Ended { why, leave } => {
                self.clean_up(leave);
                match why {
                    Ending::EpochOver => return Verdict::EpochOver,
                    Ending::Left => {}
                    Ending::WouldBlock => caller.answer(Err(Denied::WouldBlock)),
                    Ending::OtherOrder(node) => {
                        let node = self
                            .room
                            .path()
                            .to_user(&self.room.path().child(&node))
                            .to_owned();
                        caller.deny(AcquireError::MixedRecipes { path: path(), node });
                    }
                    Ending::Exhausted => caller.deny(AcquireError::SequenceExhausted { path: path() }),
                    Ending::Refused => caller.deny(match self.last_error {
                        Some(zk::Error::NoAuth) => AcquireError::NoAuth { path: path() },
                        _ => AcquireError::Rejected {
                            path: path(),
                            source: self.source(),
                        },
                    }),
                }
                Verdict::Done
            }
        }
    }

    /// Hands what may be left to the reaper; the place in the gate is kept until it is gone.
    fn clean_up(&self, leave: Leave) {
        let family = self.room.family();
        let debts = leave.nodes.into_iter().map(Debt::Node);
        let debts = debts.chain(
            leave
                .unsettled
                .into_iter()
                .map(|id| Debt::Unsettled { id, family }),
        );
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

    /// Whether somebody is in the queue already: asked before a try creates anything. A member may lag behind, so
    /// "yes" is said only by a list that was sent right behind a `sync` (rule 19). Errors are left to the create.
    async fn is_busy(&self, session: &zk::Client) -> bool {
        let directory = self.room.path().server();
        let queued = |children: &[String]| {
            Queue::read(children, self.room.family()).is_ok_and(|queue| !queue.is_empty())
        };
        match session.list_children(directory).await {
            Ok(children) if queued(&children) => {}
            _ => return false,
        }
        let synced = session.sync(directory);
        let listed = session.list_children(directory);
        match tokio::join!(synced, listed) {
            (Ok(()), Ok(children)) => queued(&children),
            _ => false,
        }
    }
}

/// An event, and the error that it came from.
type Came = (Event, Option<zk::Error>);

/// Sends the create and the list together: the client library sends when the method is called, and a session's
/// requests are answered in order (rule 1).
async fn create_and_list(room: &Room, epoch: &Arc<Epoch>, session: &zk::Client, id: &str) -> Came {
    let beginning = prefix(id, room.family());
    let path = room.path().child(&beginning);
    let acls = to_library(&room.options().acl);
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&acls));
    let create = session.create(&path, &room.options().data, &options);
    let list = session.list_children(room.path().server());
    let (create, list) = tokio::join!(create, list);
    let mut error = None;
    let create = match create {
        Ok((stat, sequence)) => {
            let name = format!("{beginning}{sequence}");
            epoch.adopt(room.path().child(&name));
            owned(epoch, name, &stat)
        }
        Err(failed) => Answer::No(failure(epoch, failed, &mut error)),
    };
    let list = listed(room, epoch, list, &mut error);
    (
        Event::Created {
            id: id.to_owned(),
            create,
            list,
        },
        error,
    )
}

/// Does any other step.
async fn perform(room: &Room, epoch: &Arc<Epoch>, session: &zk::Client, step: Step) -> Came {
    let mut error = None;
    let event = match step {
        Step::MakeParents => Event::ParentsMade(match make_parents(room, session).await {
            Ok(()) => Answer::Is(()),
            Err(failed) => Answer::No(failure(epoch, failed, &mut error)),
        }),
        Step::List => {
            let list = session.list_children(room.path().server()).await;
            Event::Listed(listed(room, epoch, list, &mut error))
        }
        Step::Inspect { name } => {
            let path = room.path().child(&name);
            Event::Inspected(match session.check_stat(&path).await {
                Ok(Some(stat)) => {
                    epoch.adopt(path);
                    owned(epoch, name, &stat)
                }
                Ok(None) => Answer::No(Failure::NoNode),
                Err(failed) => Answer::No(failure(epoch, failed, &mut error)),
            })
        }
        Step::Watch { predecessor } => match watch(session, &room.path().child(&predecessor)).await {
            Ok(event) => event,
            Err(failed) => Event::WatchFailed(failure(epoch, failed, &mut error)),
        },
        // The caller's: never reached, and harmless if it were.
        Step::CreateAndList | Step::Pause { .. } | Step::Finish(_) => Event::Retry,
    };
    (event, error)
}

/// A node that the server says exists, if it is this session's.
fn owned(epoch: &Arc<Epoch>, name: String, stat: &zk::Stat) -> Answer<Node> {
    if stat.is_invalid() {
        return Answer::Is(Node { name, czxid: None });
    }
    if stat.ephemeral_owner != epoch.session_id() {
        // The server gave us another session and did not say so (ClickHouse Keeper does). What we made belongs to
        // that one and goes when the connection is closed, which the end of the epoch does.
        epoch.end(LostReason::SessionReplaced);
        return Answer::No(Failure::EpochOver);
    }
    Answer::Is(Node {
        name,
        czxid: Some(stat.czxid),
    })
}

fn failure(epoch: &Epoch, error: zk::Error, last: &mut Option<zk::Error>) -> Failure {
    let failure = epoch.judge(&error);
    tracing::debug!(%error, ?failure, "request failed");
    *last = Some(error);
    failure
}

/// Judges a list, and has late creates that nobody waits for any more deleted.
fn listed(
    room: &Room,
    epoch: &Arc<Epoch>,
    list: Result<Vec<String>, zk::Error>,
    last: &mut Option<zk::Error>,
) -> Answer<Vec<String>> {
    match list {
        Ok(children) => {
            for late in epoch.collect_debts(&children) {
                tracing::debug!(
                    path = room.path().user(),
                    node = late,
                    "a create came through after it was given up"
                );
                room.client().reaper().reap(Item {
                    epoch: Arc::clone(epoch),
                    directory: room.path().clone(),
                    debt: Debt::Node(late.to_owned()),
                    permit: None,
                    done: None,
                });
            }
            room.report_strays(&children);
            Answer::Is(children)
        }
        // The create's error says more, if there is one.
        Err(error) => {
            let mut own = None;
            let failure = failure(epoch, error, &mut own);
            *last = last.take().or(own);
            Answer::No(failure)
        }
    }
}

/// Watches a node and waits until something happens to it.
async fn watch(session: &zk::Client, path: &str) -> Result<Event, zk::Error> {
    let watcher = match session.get_and_watch_data(path).await {
        Ok((_, _, watcher)) => watcher,
        Err(zk::Error::NoNode) => return Ok(Event::Changed),
        // We may not read the predecessor, but anybody may ask whether it exists. If it does not, the watch that
        // was set on its creation is removed again by the drop of the watcher.
        Err(zk::Error::NoAuth) => match session.check_and_watch_stat(path).await? {
            (Some(_), watcher) => watcher,
            (None, _) => return Ok(Event::Changed),
        },
        Err(error) => return Err(error),
    };
    // `changed` panics if the task that serves the session dies (review finding 18).
    let mut changed = pin!(watcher.changed());
    let event = poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| changed.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(event)) => Poll::Ready(Some(event)),
            Err(_) => Poll::Ready(None),
        },
    );
    match event.await {
        Some(event) => match (event.event_type, event.session_state) {
            (zk::EventType::NodeDeleted, _) => Ok(Event::Deleted),
            (zk::EventType::Session, zk::SessionState::Expired) => Err(zk::Error::SessionExpired),
            (zk::EventType::Session, state) if state.is_terminated() => Err(zk::Error::ClientClosed),
            _ => Ok(Event::Changed),
        },
        None => Err(zk::Error::UnexpectedError(
            "the session's task has died".to_owned(),
        )),
    }
}

/// Creates the lock's directory and those above it that are missing, from the leaf upwards as long as there is
/// none, then down again.
async fn make_parents(room: &Room, session: &zk::Client) -> Result<(), zk::Error> {
    let mode = match room.options().parents {
        Parents::Container => zk::CreateMode::Container,
        Parents::Persistent => zk::CreateMode::Persistent,
    };
    let acls = to_library(&room.options().acl);
    let options = mode.with_acls(zk::Acls::new(&acls));
    session.mkdir(room.path().server(), &options).await
}

fn to_library(acl: &[Acl]) -> Vec<zk::Acl> {
    let permission = |set: Permissions| {
        [
            (Permissions::READ, zk::Permission::READ),
            (Permissions::WRITE, zk::Permission::WRITE),
            (Permissions::CREATE, zk::Permission::CREATE),
            (Permissions::DELETE, zk::Permission::DELETE),
            (Permissions::ADMIN, zk::Permission::ADMIN),
        ]
        .into_iter()
        .filter(|(ours, _)| set.contains(*ours))
        .fold(zk::Permission::NONE, |all, (_, theirs)| all | theirs)
    };
    acl.iter()
        .map(|acl| zk::Acl::new(permission(acl.permissions), zk::AuthId::new(&acl.scheme, &acl.id)))
        .collect()
}

/// The nodes that queue for a lock, in order, as the user would write their paths.
pub(crate) async fn participants(room: &Room) -> Result<Vec<String>, AcquireError> {
    let path = room.path();
    let started = Instant::now();
    let mut failures = 0;
    loop {
        let epoch = room
            .client()
            .epoch()
            .await
            .map_err(|no_epoch| no_epoch.into_error(path))?;
        let Ok(session) = epoch.session() else { continue };
        let error = match session.list_children(path.server()).await {
            Ok(children) => {
                return match Queue::read(&children, room.family()) {
                    Ok(queue) => {
                        let nodes = queue.in_order().into_iter();
                        Ok(nodes
                            .map(|name| path.to_user(&path.child(name)).to_owned())
                            .collect())
                    }
                    Err(Unusable::OtherOrder(name)) => Err(AcquireError::MixedRecipes {
                        path: path.user().to_owned(),
                        node: path.to_user(&path.child(name)).to_owned(),
                    }),
                    Err(Unusable::Exhausted) => Err(AcquireError::SequenceExhausted {
                        path: path.user().to_owned(),
                    }),
                };
            }
            Err(zk::Error::NoNode) => return Ok(Vec::new()),
            Err(error) => error,
        };
        let path = path.user().to_owned();
        match epoch.judge(&error) {
            Failure::Refused if error == zk::Error::NoAuth => return Err(AcquireError::NoAuth { path }),
            Failure::Refused => {
                return Err(AcquireError::Rejected {
                    path,
                    source: cause(error),
                });
            }
            Failure::EpochOver => {}
            Failure::NoNode | Failure::NotNow | Failure::Unknown => {
                let Some(pause) = room.client().retry().pause(failures, started.elapsed()) else {
                    return Err(AcquireError::Connection {
                        path,
                        source: cause(error),
                    });
                };
                failures += 1;
                tokio::time::sleep(pause).await;
            }
        }
    }
}
