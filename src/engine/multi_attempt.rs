//! Several locks as one: all of them, or none (docs/protocol.md#multi-lock). Only the face of the
//! multi-lock uses this file, which never keeps a part of the locks.
//!
//! The members are acquired one after the other, in the order of their paths on the servers, each
//! by an ordinary attempt. So calls that wait for each other always wait in that order, which has
//! no circle: neither among multi-locks nor with plain locks that are acquired in the same order.
//!
//! Each attempt of a member waits while the earlier members are held, and one of these may be lost
//! in that time. Then the call releases all members and begins again. A call that kept the others,
//! and queued for the lost one alone, would wait for an earlier path while it holds later ones
//! (docs/protocol.md#multi-lock-loss).
//!
//! A try first reads the queues of all members, by one request if possible. If any is busy, the try
//! fails without a node (docs/protocol.md#multi-lock-try).
//!
//! The call is a task on the session's thread, as an attempt is. So a caller that leaves, or that
//! does not poll its future, does not keep members that are held: the task releases them, at once
//! or at the deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::acquisition::{self, Hold, first, first_lost};
use crate::engine::attempts::attempt::{Reply, Stop, Stopped};
use crate::engine::attempts::run;
use crate::engine::lock::path_lock::{Admission, Ask, Budget, Member, PathLock};
use crate::engine::pending::{Pending, ReplySide};
use crate::engine::request::look::{InTheWay, in_the_way};
use crate::engine::request::requests::{list_alone, read_list};
use crate::error::{AcquireError, LostReason, TryLockError};
use crate::protocol::acquire::IfBusy;
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::late::{Waiting, WaitsFor};
use crate::protocol::queue::Listing;
use crate::session::core::Core;
use crate::session::leftovers::cleanup::Ticket;
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::threads::BoxFuture;

/// Several locks of one client, at different paths, in the order of these paths on the servers.
#[derive(Clone)]
pub(crate) struct MultiMembers {
    /// The first in this order.
    first: Member,
    in_order: Arc<[Member]>,
}

impl MultiMembers {
    /// Returns the members of a multi-lock, which the caller has checked and sorted; `None` if
    /// there are none.
    pub(crate) fn new(in_order: Arc<[Member]>) -> Option<Self> {
        Some(Self {
            first: in_order.first()?.clone(),
            in_order,
        })
    }

    pub(crate) fn client(&self) -> &Arc<Core> {
        &self.first.path_lock.client
    }

    /// Returns the path lock of the first member, whose path is that of errors about no other.
    pub(crate) fn first(&self) -> &Arc<PathLock> {
        &self.first.path_lock
    }

    /// Returns the members, in the order in which they are acquired.
    pub(crate) fn in_order(&self) -> &[Member] {
        &self.in_order
    }
}

/// The members that are held, in the order in which they were acquired. Released in reverse when it
/// is dropped: a contender that wants several of them, and waits for the first, finds the others
/// free.
#[derive(Default)]
pub(crate) struct Acquired(Vec<Hold>);

impl Acquired {
    pub(crate) fn into_vec(mut self) -> Vec<Hold> {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn as_slice(&self) -> &[Hold] {
        &self.0
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        while let Some(hold) = self.0.pop() {
            drop(hold);
        }
    }
}

/// Acquires all members. Dropping the future stops that, and releases the locks that it has. The
/// kind of `ask` is that of each member.
pub(crate) async fn acquire(members: MultiMembers, ask: Ask) -> Result<Acquired, TryLockError> {
    let (client, path) = (members.client(), &members.first().path);
    if let Some(closed) = client.drained_error(path) {
        return Err(closed.into());
    }
    let (mut pending, ReplySide { reply, cancelled }) =
        Pending::new(client, path, client.cleanup.number(1));
    let started = Instant::now();
    let acquisition = MultiAttempt {
        members: members.clone(),
        ask,
        started,
        ends: match ask.budget {
            // A time that overflows sets no deadline (docs/protocol.md#deadline).
            Budget::Try { timeout } => started.checked_add(timeout),
            Budget::Until { deadline, .. } => Some(deadline),
            Budget::Forever => None,
        },
        tried: match ask.admission {
            Admission::First => 0,
            Admission::Again => members.in_order.len(),
        },
        deletions: Deletions::default(),
    };
    let acquired = async move {
        // The timer belongs to the runtime of the session, because the caller may have none.
        let stop = Stop::new(ask.budget, cancelled, None);
        Box::pin(acquisition.run(stop, reply)).await;
    };
    client.tasks.start(acquired).detach();
    pending.result().await
}

/// Logs a warning if the call waits for a member that its own client holds, as a call for a single
/// lock does. The call keeps the returned value for as long as it waits.
pub(crate) fn watch_self_wait(members: &MultiMembers, ask: &Ask) -> Vec<Arc<()>> {
    let watch = |member: &Member| {
        acquisition::watch_self_wait(
            &member.path_lock,
            &Ask {
                kind: member.kind,
                ..*ask
            },
        )
    };
    members.in_order.iter().filter_map(watch).collect()
}

/// The acquisition of all members, from its start to its end.
struct MultiAttempt {
    members: MultiMembers,
    ask: Ask,
    started: Instant,
    /// The deadline; of a try, when it stops waiting for the servers.
    ends: Option<Instant>,
    /// How many members have been tried before: those may have slots until their nodes are deleted.
    tried: usize,
    deletions: Deletions,
}

/// Why all members are given up.
enum GivenUp {
    /// A member was lost, by its path lock.
    Lost(Arc<PathLock>, LostReason),
    Denied(TryLockError),
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is
    /// dropped.
    CallerGone(Option<Ticket>),
}

/// How often in a row another process has deleted the node of a member that was held while others
/// were waited for.
#[derive(Default)]
struct Deletions {
    times: u32,
    since: Option<Instant>,
}

impl MultiAttempt {
    async fn run(mut self, mut stop: Stop, reply: oneshot::Sender<Result<Acquired, TryLockError>>) {
        let why = loop {
            match self.acquire_all(&mut stop).await {
                // If the caller has left, the holds come back here, and their drop releases them.
                Ok(holds) => return drop(reply.send(Ok(holds))),
                Err(GivenUp::Lost(path_lock, reason)) => {
                    if let Err(why) = self.again(&path_lock, reason, &mut stop).await {
                        break why;
                    }
                }
                Err(why) => break why,
            }
        };
        drop(match why {
            GivenUp::CallerGone(ticket) => return drop(ticket),
            GivenUp::Denied(error) => reply.send(Err(error)),
            // A loss is not expected here, because the attempt was repeated.
            GivenUp::Lost(path_lock, reason) => {
                reply.send(Err(path_lock.lost_at_once(reason).into()))
            }
        });
    }

    /// Acquires all members, in the order of their paths. If one is not granted, or lost while
    /// others are waited for, all are released: a contender that kept the others, and queued for
    /// the lost lock again, would not wait in the order of the paths
    /// (docs/protocol.md#multi-lock-loss).
    async fn acquire_all(&mut self, stop: &mut Stop) -> Result<Acquired, GivenUp> {
        if self.ask.budget.if_busy() == IfBusy::Fail {
            self.look_before_try(stop).await?;
        }
        let mut holds = Acquired::default();
        // The losses of the members that are held. Each future resolves with the path lock and the
        // reason.
        let mut losses: Vec<BoxFuture<'static, (Arc<PathLock>, LostReason)>> = Vec::new();
        // Two heartbeat periods after a wait for a member began, a heartbeat that was sent in the
        // wait should have shown the nodes of the members that were held before. So another process
        // does not delete each of these nodes, and the count of consecutive deletions begins again
        // (docs/protocol.md#waiter-without-node).
        let mut checked_after = Duration::MAX;
        for (index, member) in Arc::clone(&self.members.in_order).iter().enumerate() {
            let ask = self.ask_for(index, member);
            // If another round asks for this member again, the node of this round may still have
            // its slot.
            self.tried = self.tried.max(index + 1);
            let began = Instant::now();
            let (mut pending, progress) = run::start(&member.path_lock, ask, 1, Reply::Lock);
            let granted = tokio::select! {
                biased;
                ticket = stop.caller_gone() => return Err(GivenUp::CallerGone(ticket)),
                // A loss counts before a grant that is ready too, because all members have to be
                // acquired again anyway.
                (path_lock, reason) = first(&mut losses) => {
                    if began.elapsed() >= checked_after {
                        self.deletions = Deletions::default();
                    }
                    return Err(GivenUp::Lost(path_lock, reason));
                }
                // At the deadline it ends by itself, and reports which contenders were ahead.
                granted = pending.result() => granted,
            };
            let grant = granted.map_err(GivenUp::Denied)?;
            checked_after = grant.session.lease.rule.heartbeat_interval() * 2;
            let hold = Hold::new(Arc::clone(&member.path_lock), grant);
            let (path_lock, loss) = (Arc::clone(&member.path_lock), hold.when_lost());
            losses.push(Box::pin(async move { (path_lock, loss.await) }));
            holds.0.push(hold);
            let is_checked = began.elapsed() >= checked_after;
            if progress.has_waited() && is_checked && index > 0 && first_lost(&holds.0).is_none() {
                self.deletions = Deletions::default();
            }
        }
        // The losses were awaited only while a grant was. A lock may have been lost since, so all
        // holds are checked once more, by the clock.
        if let Some((path_lock, reason)) = first_lost(&holds.0) {
            return Err(GivenUp::Lost(Arc::clone(path_lock), reason));
        }
        // The leases of all members begin here, and not with their grants: while the call waits for
        // the next member, no work is done under the lock.
        for hold in &holds.0 {
            hold.held.begin_lease(self.ask.lease);
        }
        Ok(holds)
    }

    /// Looks for live contenders ahead of any member, so that a try that fails creates no node
    /// (docs/protocol.md#multi-lock-try).
    async fn look_before_try(&self, stop: &mut Stop) -> Result<(), GivenUp> {
        let members = &self.members.in_order;
        // The attempt of a single member looks by itself. So does each attempt if there is no
        // session yet.
        let Some(session) = self.members.client().live().filter(|_| members.len() > 1) else {
            return Ok(());
        };
        let looked = async {
            let mut rest = &**members;
            while !rest.is_empty() {
                let some;
                (some, rest) = rest.split_at(read_together(rest));
                let mut ways = look(&session, some, false).await;
                // The connected server may lag behind. Only a list behind a `sync` shows that a
                // member is busy (docs/protocol.md#try-lock).
                if ways.iter().any(|way| matches!(way, InTheWay::Live(_))) {
                    ways = look(&session, some, true).await;
                }
                for (member, way) in some.iter().zip(ways) {
                    if let InTheWay::Live(ahead) = way {
                        return Err(GivenUp::Denied(
                            member.path_lock.would_block(member.kind, ahead),
                        ));
                    }
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            end = stop.wait() => Err(self.stopped(end)),
            looked = looked => looked,
        }
    }

    /// Returns why a look has ended without an answer: the caller has left, or the deadline has
    /// passed.
    fn stopped(&self, end: Stopped) -> GivenUp {
        match end {
            Stopped::CallerGone(ticket) => GivenUp::CallerGone(ticket),
            Stopped::Refused(error) => GivenUp::Denied(error.into()),
            // The look asks about all members together, so its error names the first.
            Stopped::OutOfTime => {
                let mut waiting = Waiting::default();
                waiting.waits_for(WaitsFor::List);
                let (budget, waited) = (self.ask.budget, self.ask.budget.waited(self.started));
                let Member { path_lock, kind } = &self.members.first;
                GivenUp::Denied(path_lock.out_of_time(waiting, *kind, budget, waited))
            }
        }
    }

    /// Returns the request for a member: within the deadline of the whole call.
    fn ask_for(&self, index: usize, member: &Member) -> Ask {
        let budget = match (self.ask.budget, self.ends) {
            // Each member gets the time that is left after the earlier members.
            (Budget::Try { .. }, Some(ends)) => Budget::Try {
                timeout: ends.saturating_duration_since(Instant::now()),
            },
            (budget, _) => budget,
        };
        let admission = if index < self.tried {
            Admission::Again
        } else {
            Admission::First
        };
        Ask {
            kind: member.kind,
            budget,
            admission,
            // The leases begin together, once all members are held.
            lease: None,
            ..self.ask
        }
    }

    fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    /// Waits before all members are tried again, because one was lost. Returns an error if they are
    /// not to be tried again. The ends of sessions are not counted: the next session is waited for
    /// by the retry policy.
    async fn again(
        &mut self,
        path_lock: &PathLock,
        reason: LostReason,
        stop: &mut Stop,
    ) -> Result<(), GivenUp> {
        let path = path_lock.path.user();
        log::debug!(path, %reason, "a member of a multi-lock was lost while others were waited for");
        // The session or its lease has ended. The attempts of the next round wait for a session, or
        // for a renewal, so the rounds do not follow each other without a pause.
        if reason != LostReason::NodeDeleted {
            return match self.is_over() {
                true => Err(GivenUp::Denied(path_lock.lost_at_once(reason).into())),
                false => Ok(()),
            };
        }
        let Deletions { times, since } = &mut self.deletions;
        let failures = *times;
        *times = times.saturating_add(1);
        let since = *since.get_or_insert_with(Instant::now);
        let error = AcquireError::NodeDeleted {
            path: path.to_owned(),
            times: *times,
        };
        let denied = GivenUp::Denied(error.into());
        let Some(pause) = self.members.client().retry.pause(failures, since.elapsed()) else {
            return Err(denied);
        };
        // The first repetition begins at once (docs/protocol.md#bounded-retries).
        let pause = if failures == 0 { Duration::ZERO } else { pause };
        tokio::select! {
            biased;
            end = stop.wait() => Err(match end {
                Stopped::CallerGone(ticket) => GivenUp::CallerGone(ticket),
                // The call pauses because of a deletion, so the deletion is the reason, and not a
                // busy lock.
                Stopped::OutOfTime | Stopped::Refused(_) => denied,
            }),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

/// How many queues are read by one request at most.
const MOST_QUEUES: usize = 100;

/// How many bytes such a request has at most: half of the server's limit.
const MOST_BYTES: usize = 500_000;

/// Returns how many of these members, from the first on, are read by one request: one at least.
fn read_together(members: &[Member]) -> usize {
    let mut bytes = 0_usize;
    let fits = |member: &&Member| {
        // The header of the operation has less than 20 bytes.
        bytes = bytes.saturating_add(member.path_lock.path.server().len() + 20);
        bytes <= MOST_BYTES
    };
    members
        .iter()
        .take(MOST_QUEUES)
        .take_while(fits)
        .count()
        .clamp(1, members.len().max(1))
}

/// Reads all queues by one request; by one request for each, sent together, where the servers do
/// not know that one. The requests are sent when this is called.
fn read_queues<'a>(
    session: &'a Arc<Session>,
    path_locks: &'a [&'a Arc<PathLock>],
    handle: &'a zk::Client,
) -> impl Future<Output = Vec<Answer<Listing>>> + 'a {
    let paths = path_locks.iter().map(|path_lock| path_lock.path.server());
    let sent = session
        .read_together(handle, paths)
        .ok_or_else(|| one_by_one(session, path_locks, handle));
    async move {
        let answer = match sent {
            Ok(together) => together.await,
            Err(alone) => return alone.await,
        };
        let results = match answer {
            Ok(results) => results,
            Err(error) => {
                let failure = session.failure(error);
                // Servers before ZooKeeper 3.6, and other products, may not know this request. Any
                // other failure leaves the members unknown, and the create of the first reports it.
                if matches!(failure.kind, FailureKind::Refused(_)) {
                    return one_by_one(session, path_locks, handle).await;
                }
                return path_locks
                    .iter()
                    .map(|_| Answer::No(failure.clone()))
                    .collect();
            }
        };
        let read = |(path_lock, result): (&&Arc<PathLock>, _)| match result {
            zk::MultiReadResult::Children { children } => {
                Answer::Is(read_list(path_lock, session, children))
            }
            zk::MultiReadResult::Error { err } => Answer::No(session.failure(err)),
            _ => Answer::no(FailureKind::Unknown),
        };
        path_locks.iter().zip(results).map(read).collect()
    }
}

/// Lists all directories by one request for each. They are sent when this is called.
fn one_by_one<'a>(
    session: &'a Arc<Session>,
    path_locks: &'a [&'a Arc<PathLock>],
    handle: &'a zk::Client,
) -> impl Future<Output = Vec<Answer<Listing>>> + 'a {
    let asked: Vec<_> = path_locks
        .iter()
        .map(|path_lock| list_alone(path_lock, session, handle))
        .collect();
    async move {
        let mut lists = Vec::with_capacity(asked.len());
        for list in asked {
            lists.push(match list.await {
                Ok(listing) => Answer::Is(listing),
                Err(error) => Answer::No(session.failure(error)),
            });
        }
        lists
    }
}

/// Returns, for each member, the contenders that a newcomer would have to wait for. `certain` is
/// whether the lists are sent right behind a `sync`: the connected server may lag behind
/// (docs/protocol.md#try-lock). After an error this finds no contender, and the create that follows
/// reports the error.
async fn look(session: &Arc<Session>, members: &[Member], certain: bool) -> Vec<InTheWay> {
    let path_locks: Vec<&Arc<PathLock>> = members.iter().map(|member| &member.path_lock).collect();
    let path_locks = &path_locks;
    let lists = session.request(|handle| async move {
        // One `sync` is sufficient for all queues, because it covers all paths. The lists are sent
        // right after it, and are not older.
        let sync = match path_locks.first() {
            Some(path_lock) if certain => Some(handle.sync(path_lock.path.server())),
            _ => None,
        };
        let lists = read_queues(session, path_locks, &handle);
        let synced = async move {
            match sync {
                Some(sync) => sync.await.is_ok(),
                None => true,
            }
        };
        let (synced, lists) = tokio::join!(synced, lists);
        synced.then_some(lists)
    });
    let lists = lists.await.ok().flatten().unwrap_or_default();
    let judge = |(member, list): (&Member, Answer<Listing>)| match list {
        Answer::Is(Ok(queue)) if queue.usable().is_ok() => {
            in_the_way(&member.path_lock, session, &queue, None, member.kind)
        }
        _ => InTheWay::Nothing,
    };
    members.iter().zip(lists).map(judge).collect()
}
