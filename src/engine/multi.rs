//! Several locks as one: all of them, or none (docs/protocol.md#multi-lock).
//!
//! The work is a task on the session's runtime, as an attempt is: a caller that leaves, or is not polled,
//! keeps nothing. Its members are acquired in the order of their paths, each by an ordinary attempt, so that
//! locks that are acquired in that order by others cannot deadlock with them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::attempt::{self, Begun};
use crate::engine::cancel::CancelOnDrop;
use crate::engine::hold::Hold;
use crate::engine::look::InTheWay;
use crate::engine::multi_requests::{Reserved, create_together, fit_together, look};
use crate::engine::path_lock::{Admission, Ask, Budget, Member, PathLock};
use crate::engine::self_wait;
use crate::engine::stop::{Stop, Stopped};
use crate::error::{AcquireError, LostReason, Purpose, TryLockError};
use crate::protocol::acquire::IfBusy;
use crate::protocol::late::{Ahead, Waiting, WaitsFor};
use crate::protocol::multi::{kept, of_use};
use crate::session::core::Core;
use crate::session::log;
use crate::session::tickets::Ticket;
use crate::session::zk_session::Session;

/// Several locks of one client, at different paths, in the order of these paths at the servers.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    client: Arc<Core>,
    in_order: Arc<[Member]>,
    /// Whether a member was busy when they were acquired last: then the next call looks before it creates
    /// nodes, which would be in the way of others for nothing.
    was_busy: Arc<AtomicBool>,
}

impl Members {
    /// Returns the members of a multi-lock, which the caller has checked and sorted.
    pub(crate) fn new(client: Arc<Core>, in_order: Arc<[Member]>) -> Self {
        Self { client, in_order, was_busy: Arc::default() }
    }

    /// Returns the members, in the order in which they are acquired.
    pub(crate) fn in_order(&self) -> &[Member] {
        &self.in_order
    }

    fn was_busy(&self) -> bool {
        self.was_busy.load(Ordering::Relaxed)
    }

    fn found_busy(&self, busy: bool) {
        self.was_busy.store(busy, Ordering::Relaxed);
    }

    /// Returns the error of a call whose client has ended.
    fn closed(&self) -> TryLockError {
        // Not expected to be empty: there is at least one member.
        let path = self.in_order.first().map_or("", |member| member.path_lock.path().user());
        self.client.error(Purpose::Lock, path, self.client.why_ended()).into()
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

    pub(crate) fn as_slice(&self) -> &[Hold] {
        &self.0
    }

    /// Returns the first that is lost, and how, by the clock.
    pub(crate) fn lost(&self) -> Option<(&Arc<PathLock>, LostReason)> {
        self.0.iter().find_map(|hold| Some((hold.path_lock(), hold.lost()?)))
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        while let Some(hold) = self.0.pop() {
            drop(hold);
        }
    }
}

/// A future of one of several guards.
pub(crate) type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The losses of the members that are held: each resolves with the path lock, and how it was lost.
type Losses = Vec<BoxedFuture<(Arc<PathLock>, LostReason)>>;

/// Waits for the first of these futures.
pub(crate) async fn first<'a, T: 'a>(futures: impl Iterator<Item = &'a mut BoxedFuture<T>>) -> T {
    let mut futures: Vec<_> = futures.collect();
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
    let first = members.in_order.first().map(|member| member.path_lock.path());
    if let Some(closed) = first.and_then(|path| members.client.refuses(path)) {
        return Err(closed.into());
    }
    let number = members.client.cleanup().number();
    let mut on_drop = CancelOnDrop::new(cancel, members.client.cleanup(), number);
    let started = Instant::now();
    let acquisition = Acquisition {
        members: members.clone(),
        ask,
        number,
        started,
        ends: match ask.budget {
            Budget::Try { timeout } => started.checked_add(timeout),
            Budget::Until { deadline, .. } => Some(deadline),
            Budget::Forever => None,
        },
        tried: match ask.admission {
            Admission::First => 0,
            Admission::Again => members.in_order.len(),
        },
        one_by_one: false,
        busy: None,
        deletions: Deletions::default(),
    };
    members.client.spawn(async move {
        // Its timer is the runtime's, of which the caller may have none.
        let stop = Stop::new(ask.budget, cancelled);
        Box::pin(acquisition.run(stop, reply)).await;
    });
    let result = tokio::select! {
        biased;
        // An error means that the runtime of the client has shut down.
        result = granted => result.ok(),
        () = members.client.drained() => {
            on_drop.now();
            None
        }
    };
    on_drop.disarm();
    result.unwrap_or_else(|| Err(members.closed()))
}

/// Has the log say it if the call waits for a member that its own client holds, as that of a single lock does. The
/// call keeps what this returns for as long as it waits.
pub(crate) fn watch_self_wait(members: &Members, ask: &Ask) -> Vec<Arc<()>> {
    let watch = |member: &Member| self_wait::watch(&member.path_lock, &Ask { kind: member.kind, ..*ask });
    members.in_order.iter().filter_map(watch).collect()
}

/// The acquisition of all members, from its start to its end.
struct Acquisition {
    members: Members,
    ask: Ask,
    /// Identifies what it leaves; see [`Tickets`](crate::session::tickets::Tickets).
    number: u64,
    started: Instant,
    /// The deadline; of a try, when it stops waiting for the servers.
    ends: Option<Instant>,
    /// How many members have been tried before: those may have places that are in cleanup.
    tried: usize,
    /// Whether each member is acquired by itself until all are tried again: the servers have refused to create the
    /// nodes of several together, and its own error says why, or one of them may only be kept
    /// (docs/protocol.md#kept-node).
    one_by_one: bool,
    /// The member that was busy by the last look at several, and who was ahead there.
    busy: Option<(usize, Ahead)>,
    deletions: Deletions,
}

type Reply = oneshot::Sender<Result<Holds, TryLockError>>;

/// The nodes of several members that are being created. What is not taken of it is left to cleanup.
type Flight = oneshot::Receiver<Vec<Begun>>;

/// All members are given up.
struct GivenUp {
    why: Why,
    /// What is still under way.
    flight: Option<Flight>,
}

enum Why {
    /// A member was lost, by its path lock.
    Lost(Arc<PathLock>, LostReason),
    Denied(TryLockError),
    /// The caller has left. [`Client::flush`](crate::Client::flush) waits until the ticket is dropped.
    CallerGone(Option<Ticket>),
}

impl From<Why> for GivenUp {
    fn from(why: Why) -> Self {
        Self { why, flight: None }
    }
}

/// How often in a row another process has deleted the node of a member that was held while others were waited
/// for.
#[derive(Debug, Default)]
struct Deletions {
    times: u32,
    since: Option<Instant>,
}

impl Acquisition {
    async fn run(mut self, mut stop: Stop, reply: Reply) {
        let GivenUp { why, flight } = loop {
            match self.acquire_all(&mut stop).await {
                // If the caller has left, the holds come back here, and their drop releases them.
                Ok(holds) => return drop(reply.send(Ok(holds))),
                Err(GivenUp { why: Why::Lost(path_lock, reason), flight }) => {
                    if let Err(given_up) = self.again(&path_lock, reason, flight, &mut stop).await {
                        break given_up;
                    }
                }
                Err(given_up) => break given_up,
            }
        };
        // A flush that is called as soon as the caller has its answer waits for what is under way.
        let ticket = match why {
            Why::CallerGone(ticket) => ticket,
            Why::Denied(error) => {
                let ticket = flight.as_ref().map(|_| self.members.client.cleanup().ticket(self.number));
                drop(reply.send(Err(error)));
                ticket
            }
            // Not expected: it was tried again.
            Why::Lost(path_lock, reason) => {
                return drop(reply.send(Err(path_lock.lost_at_once(reason).into())));
            }
        };
        if let Some(flight) = flight {
            drop(flight.await);
        }
        drop(ticket);
    }

    /// Acquires all members, in the order of their paths. If one is not granted, or lost while others are
    /// waited for, all are released: a contender that kept those that it has, and queued for one of them
    /// again, would wait in another order than that of the paths (docs/protocol.md#multi-lock-loss).
    async fn acquire_all(&mut self, stop: &mut Stop) -> Result<Holds, GivenUp> {
        let members = Arc::clone(&self.members.in_order);
        // A node that is only kept makes way for that of an attempt, which waits for that shortly.
        self.one_by_one = self.ask.budget.if_busy() == IfBusy::Fail && self.look_before_try(stop).await?;
        let mut holds = Holds::default();
        let mut losses = Losses::new();
        let mut begun = VecDeque::new();
        let mut has_waited = false;
        while let Some(member) = members.get(holds.0.len()) {
            let index = holds.0.len();
            if begun.is_empty() {
                begun = self.begin(index, &mut losses, stop).await?;
            }
            // One that is first is granted as soon as the lease is valid: what else is lost shows at the end, and
            // the end of the session loses all.
            let watched = if begun.front().is_some_and(Begun::is_first) { 1 } else { losses.len() };
            let ask = self.ask_for(index, member);
            self.tried = self.tried.max(index + 1);
            let mut pending = match begun.pop_front() {
                Some(begun) if !begun.is_over() => attempt::resume(begun, ask),
                // All nodes are gone with the session.
                Some(_) | None => {
                    begun.clear();
                    attempt::start(&member.path_lock, ask)
                }
            };
            let granted = loop {
                tokio::select! {
                    biased;
                    ticket = stop.caller_gone() => return Err(Why::CallerGone(ticket).into()),
                    (path_lock, reason) = first(losses.iter_mut().take(watched)) => {
                        return Err(Why::Lost(path_lock, reason).into());
                    }
                    // At the deadline it ends by itself, and says what was in the way.
                    granted = pending.result() => break granted,
                    // The next session is waited for, and maybe other contenders there: no places and turns
                    // of later members are kept meanwhile.
                    () = when_over(begun.front()) => begun.clear(),
                }
            };
            let hold = granted.map_err(Why::Denied)?;
            let (path_lock, loss) = (Arc::clone(&member.path_lock), hold.when_lost());
            losses.push(Box::pin(async move { (path_lock, loss.await) }));
            holds.0.push(hold);
            if pending.has_waited() {
                has_waited = true;
                if index > 0 && holds.lost().is_none() {
                    self.deletions = Deletions::default();
                }
            }
        }
        self.members.found_busy(has_waited);
        if let Some((path_lock, reason)) = holds.lost() {
            return Err(Why::Lost(Arc::clone(path_lock), reason).into());
        }
        // Not of each member from its own grant: the wait for the next ones is no work under the lock.
        if let Some(lease) = self.ask.lease {
            for hold in &holds.0 {
                // An error means that it is lost, which the caller finds out.
                let _ = hold.set_lease(lease);
            }
        }
        Ok(holds)
    }

    /// Creates the nodes of the members from `from` on together, as far as that is of use: up to the first
    /// that is busy. Returns what their attempts have begun with; none if the next member is to be acquired
    /// by itself.
    ///
    /// Only the last of them may have to wait: whatever waits behind a node of this client must find that
    /// this client waits for nothing that is before it in the order of the paths
    /// (docs/protocol.md#multi-lock-at-once).
    async fn begin(
        &mut self,
        from: usize,
        losses: &mut Losses,
        stop: &mut Stop,
    ) -> Result<VecDeque<Begun>, GivenUp> {
        self.busy = None;
        let members = Arc::clone(&self.members.in_order);
        let rest = members.get(from..).unwrap_or_default();
        let rest = rest.get(..fit_together(rest)).unwrap_or_default();
        // If there is no session, an ordinary attempt waits for the next one.
        let Some(session) = self.members.client.live().filter(|_| rest.len() > 1 && !self.one_by_one) else {
            return Ok(VecDeque::new());
        };
        let running = Arc::new(session.begin_work());
        // Checked after it has been counted, as by an attempt.
        if session.end_reason().is_some() {
            return Ok(VecDeque::new());
        }
        let look_first = self.members.was_busy();
        let looks = async { if look_first { look(&session, rest, false).await } else { Vec::new() } };
        let ways = tokio::select! {
            biased;
            end = stop.wait() => return Err(self.stopped(end, from, WaitsFor::List).into()),
            (path_lock, reason) = first(losses.iter_mut()) => return Err(Why::Lost(path_lock, reason).into()),
            ways = looks => ways,
        };
        let count = of_use(ways.iter().map(|way| matches!(way, InTheWay::Nothing)), rest.len());
        self.busy = (from..).zip(ways).find_map(|(index, way)| Some((index, way.ahead()?)));
        let slot = tokio::select! {
            biased;
            end = stop.wait() => return Err(self.stopped(end, from, WaitsFor::List).into()),
            (path_lock, reason) = first(losses.iter_mut()) => return Err(Why::Lost(path_lock, reason).into()),
            slot = session.windows().creates.slot() => slot,
        };
        let Some(reserved) = self.reserve(from, rest.get(..count).unwrap_or_default(), &session) else {
            return Ok(VecDeque::new());
        };
        // Their numbers are greater than that of this call. If the caller left before they had them, a flush
        // since then waits for none of them, so nothing may be sent.
        if let Some(ticket) = stop.caller_gone_now() {
            return Err(Why::CallerGone(Some(ticket)).into());
        }
        // Those that are given up have places in cleanup.
        self.tried = self.tried.max(from + reserved.len());
        let (tell, mut flight) = oneshot::channel();
        let create = create_together(session, reserved, self.ask.budget.if_busy(), slot, running);
        // A task of its own, because what is under way is waited for, whatever becomes of this.
        self.members.client.spawn(async move { drop(tell.send(create.await)) });
        let begun = tokio::select! {
            biased;
            end = stop.wait() => {
                let why = self.stopped(end, from, WaitsFor::Create);
                return Err(GivenUp { why, flight: Some(flight) });
            }
            (path_lock, reason) = first(losses.iter_mut()) => {
                return Err(GivenUp { why: Why::Lost(path_lock, reason), flight: Some(flight) });
            }
            // An error means that the client has ended.
            begun = &mut flight => begun.unwrap_or_default(),
        };
        // From here on each attempt knows who is ahead of it.
        self.busy = None;
        self.one_by_one = begun.is_empty();
        let mut begun = VecDeque::from(begun);
        let kept = kept(begun.iter().map(Begun::is_first));
        if kept < begun.len() {
            self.members.found_busy(true);
        }
        // Those behind it are left to cleanup.
        begun.truncate(kept);
        Ok(begun)
    }

    /// Takes a place and a turn for each of these members. `None` if one cannot have them at once, or if this
    /// client has refused orphans there: then they are acquired one by one.
    fn reserve(&self, from: usize, members: &[Member], session: &Session) -> Option<Vec<Reserved>> {
        if members.len() < 2 {
            return None;
        }
        let reserve = |(index, member): (usize, &Member)| {
            let orphans = session.refused_orphans(Some(member.path_lock.path()));
            let admission = self.ask_for(from + index, member).admission;
            orphans.is_empty().then(|| Reserved::new(member, session, admission)).flatten()
        };
        members.iter().enumerate().map(reserve).collect()
    }

    /// Looks for live contenders in the way of any member, so that a try that fails creates no node
    /// (docs/protocol.md#multi-lock-try). Returns whether any member may only be kept.
    async fn look_before_try(&self, stop: &mut Stop) -> Result<bool, GivenUp> {
        let members = &self.members.in_order;
        let Some(session) = self.members.client.live().filter(|_| members.len() > 1) else {
            return Ok(false);
        };
        let looked = async {
            let (mut rest, mut kept) = (&**members, false);
            while !rest.is_empty() {
                let some;
                (some, rest) = rest.split_at(fit_together(rest).clamp(1, rest.len()));
                let mut ways = look(&session, some, false).await;
                if ways.iter().any(|way| matches!(way, InTheWay::Live(_))) {
                    ways = look(&session, some, true).await;
                }
                kept |= ways.iter().any(|way| matches!(way, InTheWay::Kept(_)));
                for (member, way) in some.iter().zip(ways) {
                    if let InTheWay::Live(ahead) = way {
                        return Err(member.path_lock.would_block(member.kind, ahead));
                    }
                }
            }
            Ok(kept)
        };
        tokio::select! {
            biased;
            end = stop.wait() => Err(self.stopped(end, 0, WaitsFor::List).into()),
            looked = looked => looked.map_err(|error| Why::Denied(error).into()),
        }
    }

    /// Returns why a wait for the servers has ended: the caller has left, or the deadline has passed.
    fn stopped(&self, end: Stopped, index: usize, waits_for: WaitsFor) -> Why {
        let (budget, members) = (self.ask.budget, &self.members.in_order);
        let (index, ahead) = match self.busy.clone() {
            Some((busy, ahead)) => (busy, Some(ahead)),
            None => (index, None),
        };
        match (end, members.get(index)) {
            (Stopped::CallerGone(ticket), _) => Why::CallerGone(ticket),
            (_, Some(Member { path_lock, kind })) => {
                let mut waiting = Waiting::default();
                waiting.waits_for(waits_for);
                waiting.saw(ahead);
                let waited = budget.waited(self.started);
                Why::Denied(path_lock.out_of_time(path_lock.path(), waiting, *kind, budget, waited))
            }
            // Not expected: there is such a member.
            (_, None) => Why::Denied(self.members.closed()),
        }
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

    /// Waits before all members are tried again, because one was lost. Returns an error if they are not to be
    /// tried again. The ends of sessions are not counted: the next session is waited for by the retry policy.
    async fn again(
        &mut self,
        path_lock: &PathLock,
        reason: LostReason,
        flight: Option<Flight>,
        stop: &mut Stop,
    ) -> Result<(), GivenUp> {
        self.busy = None;
        let path = path_lock.path().user();
        log::debug!(path, %reason, "a member of a multi-lock was lost while others were waited for");
        if let Some(mut flight) = flight {
            // What comes of it is to be left to cleanup first: it is no live contender.
            let stopped = tokio::select! {
                biased;
                end = stop.wait() => Some(self.stopped(end, 0, WaitsFor::Create)),
                _ = &mut flight => None,
            };
            if let Some(why) = stopped {
                return Err(GivenUp { why, flight: Some(flight) });
            }
        }
        if reason != LostReason::NodeDeleted {
            return match self.is_over() {
                true => Err(Why::Denied(path_lock.lost_at_once(reason).into()).into()),
                false => Ok(()),
            };
        }
        let Deletions { times, since } = &mut self.deletions;
        let failures = *times;
        *times = times.saturating_add(1);
        let since = *since.get_or_insert_with(Instant::now);
        let error = AcquireError::NodeDeleted { path: path.to_owned(), times: *times };
        let denied = Why::Denied(error.into());
        let Some(pause) = self.members.client.retry().pause(failures, since.elapsed()) else {
            return Err(denied.into());
        };
        let pause = if failures == 0 { Duration::ZERO } else { pause };
        tokio::select! {
            biased;
            end = stop.wait() => Err(GivenUp::from(match end {
                Stopped::CallerGone(ticket) => Why::CallerGone(ticket),
                Stopped::OutOfTime => denied,
            })),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}

/// Waits until the session of these nodes ends; for ever if there are none.
async fn when_over(begun: Option<&Begun>) {
    match begun {
        Some(begun) => begun.when_over().await,
        None => std::future::pending().await,
    }
}
