//! Several locks as one: all of them, or none (docs/protocol.md#multi-lock).
//!
//! The work is a task on the session's runtime, as an attempt is: a caller that leaves, or is not polled, keeps
//! nothing. Its members are acquired in the order of their paths, each by an ordinary attempt, so that locks
//! that are acquired in that order by others cannot deadlock with them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::attempt;
use crate::engine::hold::Hold;
use crate::engine::path_lock::{Admission, Ask, Budget, PathLock};
use crate::engine::pending::CancelOnDrop;
use crate::engine::stop::{Stop, Stopped};
use crate::error::{AcquireError, LostReason, TryLockError};
use crate::protocol::node_name::Kind;
use crate::session::core::Core;
use crate::session::tickets::Ticket;

/// One lock of several.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) path_lock: Arc<PathLock>,
    pub(crate) kind: Kind,
}

/// Several locks of one client, at different paths, in the order of these paths at the servers.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    client: Arc<Core>,
    in_order: Arc<[Member]>,
}

impl Members {
    /// Returns the members of a multi-lock, which the caller has checked and sorted.
    pub(crate) fn new(client: Arc<Core>, in_order: Arc<[Member]>) -> Self {
        Self { client, in_order }
    }

    /// Returns the members, in the order in which they are acquired.
    pub(crate) fn in_order(&self) -> &[Member] {
        &self.in_order
    }

    /// Returns the error of a call whose client has ended.
    fn closed(&self) -> TryLockError {
        let error = |member: &Member| self.client.why_ended(member.path_lock.path());
        // Not expected: there is at least one member.
        self.in_order.first().map_or_else(|| AcquireError::Closed { path: String::new() }, error).into()
    }
}

/// The members that are held, in the order in which they were acquired. Released in reverse when it is
/// dropped: a contender that wants several of them, and waits for the first, finds the others free.
#[derive(Debug, Default)]
pub(crate) struct Holds(Vec<Hold>);

impl Holds {
    pub(crate) fn into_vec(mut self) -> Vec<Hold> {
        std::mem::take(&mut self.0)
    }

    /// Returns the first that is lost, and how, by the clock.
    pub(crate) fn lost(&self) -> Option<(&Arc<PathLock>, LostReason)> {
        self.0.iter().find_map(|hold| Some((hold.path_lock(), hold.lost()?)))
    }

    /// Waits until one of them is lost.
    async fn when_lost(&self) -> (&Arc<PathLock>, LostReason) {
        let losses = self.0.iter().map(|hold| -> BoxedFuture<'_, _> {
            Box::pin(async move { (hold.path_lock(), hold.when_lost().await) })
        });
        first(losses.collect()).await
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        while let Some(hold) = self.0.pop() {
            drop(hold);
        }
    }
}

type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for the first of these futures.
pub(crate) async fn first<T>(mut futures: Vec<BoxedFuture<'_, T>>) -> T {
    poll_fn(|context| {
        let ready = futures.iter_mut().find_map(|future| match future.as_mut().poll(context) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Acquires all members. Dropping the future stops that, and releases those that it has. The kind of `ask` is
/// that of each member.
pub(crate) async fn acquire(members: Members, ask: Ask) -> Result<Holds, TryLockError> {
    let (reply, granted) = oneshot::channel();
    let (cancel, cancelled) = oneshot::channel();
    let number = members.client.cleanup().number();
    let mut on_drop = CancelOnDrop::new(cancel, members.client.cleanup(), number);
    let started = Instant::now();
    let acquisition = Acquisition {
        members: members.clone(),
        ask,
        ends: match ask.budget {
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
    members.client.spawn(async move {
        let mut stop = Stop::new(ask.budget, cancelled);
        // An error means that the caller has left: what it does not take is released by its drop.
        match Box::pin(acquisition.run(&mut stop)).await {
            Ok(answer) => drop(reply.send(answer)),
            Err(CallerGone(ticket)) => drop(ticket),
        }
    });
    // An error means that the runtime of the client has shut down.
    let result = granted.await;
    on_drop.disarm();
    let result = result.unwrap_or_else(|_| Err(members.closed()));
    result.map_err(|error| in_all(error, started.elapsed()))
}

/// Returns the error with the time that the whole call has waited, not only that for the last member.
fn in_all(error: TryLockError, waited: Duration) -> TryLockError {
    match error {
        TryLockError::Acquire(AcquireError::TimedOut { path, timeout, ahead, first, holder, .. }) => {
            AcquireError::TimedOut { path, timeout, waited, ahead, first, holder }.into()
        }
        other => other,
    }
}

/// The acquisition of all members, from its start to its end.
struct Acquisition {
    members: Members,
    ask: Ask,
    /// The deadline; of a try, when it stops waiting for the servers.
    ends: Option<Instant>,
    /// How many members have been tried before: those may have places that are in cleanup.
    tried: usize,
    deletions: Deletions,
}

/// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
struct CallerGone(Option<Ticket>);

/// Why all members are given up.
enum GivenUp {
    /// One was lost: by its path lock.
    Lost(Arc<PathLock>, LostReason),
    Denied(TryLockError),
    CallerGone(CallerGone),
}

/// How often in a row another process has deleted the node of a member that was held while others were waited
/// for.
#[derive(Debug, Default)]
struct Deletions {
    times: u32,
    since: Option<Instant>,
}

impl Acquisition {
    async fn run(mut self, stop: &mut Stop) -> Result<Result<Holds, TryLockError>, CallerGone> {
        loop {
            match self.one_by_one(stop).await {
                Ok(holds) => return Ok(Ok(holds)),
                Err(GivenUp::Denied(error)) => return Ok(Err(error)),
                Err(GivenUp::CallerGone(gone)) => return Err(gone),
                Err(GivenUp::Lost(path_lock, reason)) => {
                    if let Some(error) = self.pause(&path_lock, reason, stop).await? {
                        return Ok(Err(error.into()));
                    }
                }
            }
        }
    }

    /// Acquires one member after the other. If one is not granted, or lost while others are waited for, all
    /// are released: a contender that kept those that it has, and queued for one of them again, would wait in
    /// another order than that of the paths.
    async fn one_by_one(&mut self, stop: &mut Stop) -> Result<Holds, GivenUp> {
        let mut holds = Holds::default();
        for (index, member) in self.members.in_order.iter().enumerate() {
            let mut pending = attempt::start(&member.path_lock, self.ask_for(index, member));
            self.tried = self.tried.max(index + 1);
            let granted = tokio::select! {
                biased;
                ticket = stop.caller_gone() => return Err(GivenUp::CallerGone(CallerGone(ticket))),
                (path_lock, reason) = holds.when_lost() => {
                    return Err(GivenUp::Lost(Arc::clone(path_lock), reason));
                }
                // At the deadline it ends by itself, and says what was in the way.
                granted = pending.result() => granted,
            };
            holds.0.push(granted.map_err(GivenUp::Denied)?);
            if index > 0 && pending.has_waited() && holds.lost().is_none() {
                self.deletions = Deletions::default();
            }
        }
        if let Some((path_lock, reason)) = holds.lost() {
            return Err(GivenUp::Lost(Arc::clone(path_lock), reason));
        }
        // Not of each member from its own grant: the wait for the next ones is no work under the lock.
        if let Some(lease) = self.ask.lease {
            for hold in &holds.0 {
                // An error means that it is lost, which the caller finds out.
                let _ = hold.extend(lease);
            }
        }
        Ok(holds)
    }

    /// Returns what to ask of a member: within the deadline of the whole call.
    fn ask_for(&self, index: usize, member: &Member) -> Ask {
        let budget = match (self.ask.budget, self.ends) {
            (Budget::Try { .. }, Some(ends)) => {
                Budget::Try { timeout: ends.saturating_duration_since(Instant::now()) }
            }
            (budget, _) => budget,
        };
        let admission = if index < self.tried { Admission::Again } else { Admission::First };
        Ask { kind: member.kind, budget, admission, lease: None, ..self.ask }
    }

    fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now())
    }

    /// Pauses before all members are tried again, because one was lost. Returns the error if they are not to
    /// be tried again. The ends of sessions are not counted: the next session is waited for by the retry policy.
    async fn pause(
        &mut self,
        path_lock: &PathLock,
        reason: LostReason,
        stop: &mut Stop,
    ) -> Result<Option<AcquireError>, CallerGone> {
        let path = path_lock.path().user();
        tracing::debug!(path, %reason, "a member of a multi-lock was lost while others were waited for");
        if reason != LostReason::NodeDeleted {
            return Ok(self.is_over().then(|| path_lock.lost_at_once(reason)));
        }
        let Deletions { times, since } = &mut self.deletions;
        let failures = *times;
        *times = times.saturating_add(1);
        let since = *since.get_or_insert_with(Instant::now);
        let error = AcquireError::NodeDeleted { path: path.to_owned(), times: *times };
        let Some(pause) = self.members.client.retry().pause(failures, since.elapsed()) else {
            return Ok(Some(error));
        };
        let pause = if failures == 0 { Duration::ZERO } else { pause };
        tokio::select! {
            biased;
            end = stop.wait() => match end {
                Stopped::CallerGone(ticket) => Err(CallerGone(ticket)),
                Stopped::OutOfTime => Ok(Some(error)),
            },
            () = tokio::time::sleep(pause) => Ok(None),
        }
    }
}
