//! Where all handles of one client for one path meet: a fair gate, and the local holder.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::driver::{self, Attempt, SharedLists};
use super::name::{Kind, Naming};
use super::pending::{Ahead, Pending, Progress};
use super::places::{Census, Place, Places};
use super::queue::Queue;
use super::turns::Turns;
use crate::client::Inner;
use crate::client::epoch::Epoch;
use crate::client::held::Held;
use crate::client::waker;
use crate::error::{AcquireError, LocalHolder, Lost, LostReason, ReleaseError, TryLockError};
use crate::options::{LockOptions, Recipe};
use crate::path::LockPath;

/// How long to try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// Only ask; wait for the servers' answers no longer than `patience`.
    Try {
        patience: Duration,
    },
    /// As long as the caller asked for, from its call on.
    Until {
        deadline: Instant,
        asked: Duration,
    },
    Forever,
}

/// How a contender comes to the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    New,
    /// It had a place, and lost its lock before it could use it: it waits until the place is free again where a newcomer
    /// would be refused.
    Again,
}

/// No grant.
#[derive(Debug)]
pub(crate) enum Denied {
    /// A live contender is in the way.
    Busy(Ahead),
    Error(AcquireError),
}

/// The handles of one client for one path and recipe.
///
/// Contenders of one room queue by znodes of their own, at most `max_nodes` at a time. Whoever finds no place waits in
/// memory, in order of arrival ([`Places`]): so a thousand tasks cost the servers no more than `max_nodes`
/// nodes, and none of them is overtaken by another of them: when the session ends, those that had nodes queue again in the
/// next in the order in which they came ([`Turns`]). A fair lock's contenders do not wait like that: its order is that of
/// the nodes, so whoever finds no place is refused.
pub(crate) struct Room {
    client: Arc<Inner>,
    path: LockPath,
    options: LockOptions,
    places: Places,
    lists: SharedLists,
    turns: Mutex<Turns<oneshot::Sender<()>>>,
    /// The holds of this room, by the number of the attempt that got them: the oldest is the first.
    holders: Mutex<BTreeMap<u64, Holder>>,
    strays_reported: AtomicBool,
}

/// This process's own hold, for error messages and `is_acquired_in_this_process`.
#[derive(Clone, Debug)]
struct Holder {
    held: Arc<Held>,
    /// Not kept: its session would be, for as long as the room.
    epoch: Weak<Epoch>,
    since: Instant,
    location: &'static Location<'static>,
}

impl Holder {
    /// Whether it still holds, by the clock.
    fn holds(&self) -> bool {
        self.epoch.upgrade().is_some_and(|epoch| epoch.check(&self.held).is_none())
    }

    fn as_local(&self) -> LocalHolder {
        LocalHolder { held_for: self.since.elapsed(), location: self.location }
    }
}

impl Room {
    pub(crate) fn new(client: Arc<Inner>, path: LockPath, options: LockOptions) -> Self {
        let places = Places::new(options.max_nodes);
        Self {
            client,
            path,
            options,
            places,
            lists: SharedLists::default(),
            turns: Mutex::default(),
            holders: Mutex::default(),
            strays_reported: AtomicBool::new(false),
        }
    }

    pub(crate) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn naming(&self) -> Naming {
        self.options.naming()
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Where contenders that arrive together get one list for all; nothing if each has its own, sent together with its
    /// create, as the mutex promises.
    pub(crate) fn lists(&self) -> Option<&SharedLists> {
        (self.options.recipe != Recipe::Mutex).then_some(&self.lists)
    }

    /// Who of the room's contenders creates first.
    pub(crate) fn turns(&self) -> MutexGuard<'_, Turns<oneshot::Sender<()>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a contender waits in memory for a predecessor of its own session. The others' queue looks from outside
    /// as the recipe says (design rule 4); the fair lock has waiters by the thousand, and their watches no place.
    pub(crate) fn waits_in_memory(&self) -> bool {
        self.options.recipe == Recipe::FairLock
    }

    /// Starts an attempt to get the lock within the budget, as a task where the session runs, so that the caller needs
    /// no timer, and no runtime of any particular kind. Dropping the answer tells the attempt, which cleans up by itself.
    pub(crate) fn attempt(
        self: &Arc<Self>,
        kind: Kind,
        budget: Budget,
        gate: Gate,
        location: &'static Location<'static>,
    ) -> Pending {
        let (reply, granted) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel();
        let number = self.client.reaper().number();
        let (progress, seen) = watch::channel(Progress::default());
        let room = Arc::clone(self);
        let attempt = Attempt { room, kind, budget, gate, number, progress, location, reply, cancelled };
        self.client.spawn(driver::run(attempt));
        Pending::new(Arc::clone(self), granted, seen, cancel, number)
    }

    /// Gets the lock, or not, within the budget. Nothing is done before the first poll.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        kind: Kind,
        budget: Budget,
        gate: Gate,
        location: &'static Location<'static>,
    ) -> Result<Hold, Denied> {
        self.attempt(kind, budget, gate, location).result().await
    }

    /// A place in the queue of this client, in order of arrival.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        kind: Kind,
        budget: Budget,
        how: Gate,
    ) -> Result<Arc<Place>, Denied> {
        if let Some(place) = self.places.try_take(kind) {
            return Ok(place);
        }
        if self.options.recipe == Recipe::FairLock && how == Gate::New {
            let (path, max) = (self.path.user().to_owned(), self.options.max_nodes);
            return Err(Denied::Error(AcquireError::TooManyWaiters { path, max }));
        }
        let place = async {
            match self.places.take(kind).await {
                Some(place) => Ok(place),
                None => Err(Denied::Error(self.client.why_ended(&self.path))),
            }
        };
        let Budget::Try { .. } = budget else { return place.await };
        tokio::select! {
            biased;
            place = place => place,
            denied = self.denied(kind) => Err(denied),
        }
    }

    /// Resolves when one that only asks cannot have the lock, as far as can be told without a place.
    async fn denied(self: &Arc<Self>, kind: Kind) -> Denied {
        let mut census = self.places.census();
        let mut asked = None;
        loop {
            // While all places are being cleaned up, it may be that no process has the lock; the deadline is the caller's.
            let new = |census: &Census| {
                let those = census.in_the_way(kind);
                those.now > 0 && asked != Some(those.ever)
            };
            let Ok(those) = census.wait_for(new).await.map(|census| census.in_the_way(kind)) else {
                // Not the census, which lives as long as the room, ends the wait.
                return std::future::pending().await;
            };
            if kind == Kind::Exclusive {
                return Denied::Busy(Ahead { count: those.now, first: None });
            }
            // The writer that a reader saw may have gone since. On the heap: those that wait for a place are many.
            match Box::pin(self.asked(kind)).await {
                Ok(Some(ahead)) => return Denied::Busy(ahead),
                Ok(None) => asked = Some(those.ever),
                Err(denied) => return denied,
            }
        }
    }

    /// Whom a newcomer of this kind would have to wait for, by the servers.
    async fn asked(self: &Arc<Self>, kind: Kind) -> Result<Option<Ahead>, Denied> {
        let epoch = match self.client.epoch().await {
            Ok(epoch) => epoch,
            Err(no_epoch) => return Err(Denied::Error(no_epoch.into_error(&self.path))),
        };
        Ok(match driver::busy(self, &epoch, kind).await {
            driver::Sight::Live(ahead) => Some(ahead),
            driver::Sight::Clear | driver::Sight::Leaving(_) => None,
        })
    }

    /// How the places are used now.
    pub(crate) fn census(&self) -> Census {
        *self.places.census().borrow()
    }

    /// How many places belong to nodes that are still to be deleted.
    pub(crate) fn places_in_clean_up(&self) -> usize {
        self.places.in_clean_up()
    }

    /// The hold of this process's own that a contender of this kind would have to wait for, if there is one.
    fn holder_for(&self, kind: Kind) -> Option<Holder> {
        let in_the_way = |holder: &Holder| kind == Kind::Exclusive || holder.held.kind() == Kind::Exclusive;
        self.holders().into_iter().find(|holder| in_the_way(holder) && holder.holds())
    }

    /// The same, as a contender that was seen.
    pub(crate) fn own_ahead(&self, kind: Kind) -> Option<Ahead> {
        self.holder_for(kind).map(|holder| Ahead { count: 1, first: Some(holder.held.name()) })
    }

    /// The error of a wait for others that was too long.
    pub(crate) fn timed_out(
        &self,
        kind: Kind,
        asked: Duration,
        waited: Duration,
        ahead: Ahead,
    ) -> AcquireError {
        AcquireError::TimedOut {
            path: self.path.user().to_owned(),
            timeout: asked,
            waited,
            ahead: ahead.count,
            first: ahead.first.map(|name| self.path.user_child(&name)),
            holder: self.holder_for(kind).map(|holder| holder.as_local()),
        }
    }

    /// The error of a question that was answered: others are there.
    pub(crate) fn would_block(&self, kind: Kind, ahead: Ahead) -> TryLockError {
        TryLockError::WouldBlock {
            path: self.path.user().to_owned(),
            first: ahead.first.map(|name| self.path.user_child(&name)),
            holder: self.holder_for(kind).map(|holder| holder.as_local()),
        }
    }

    /// The error of a lock that was granted, and lost before its caller could have it, with no time left.
    pub(crate) fn lost_at_once(&self, reason: LostReason) -> AcquireError {
        let path = self.path.user();
        match reason {
            LostReason::NodeDeleted => AcquireError::NodeDeleted { path: path.to_owned(), times: 1 },
            reason => {
                let lost = Lost { path: path.into(), reason };
                AcquireError::Connection { path: path.to_owned(), source: Arc::new(lost) }
            }
        }
    }

    /// Whether a guard of this room holds the lock, as this kind.
    pub(crate) fn is_held(&self, kind: Kind) -> bool {
        self.holders().iter().any(|holder| holder.held.kind() == kind && holder.holds())
    }

    /// Copies: asking the clock may end in a tracing subscriber, which must find the mutex free.
    fn holders(&self) -> Vec<Holder> {
        self.lock_holders().values().cloned().collect()
    }

    fn lock_holders(&self) -> MutexGuard<'_, BTreeMap<u64, Holder>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once that there are nodes here that no lock recipe made.
    pub(crate) fn report_strays(&self, queue: &Queue) {
        let [stray, ..] = queue.strays() else { return };
        if !self.strays_reported.swap(true, Ordering::Relaxed) {
            let (path, count) = (self.path.user(), queue.strays().len());
            tracing::warn!(
                path,
                stray,
                count,
                "a lock's directory has children that are not contenders; they are ignored, but Curator peers would wait for them"
            );
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the data, which may be large, nor the client, which knows the rooms.
        f.debug_struct("Room")
            .field("path", &self.path)
            .field("recipe", &self.options.recipe)
            .field("max_nodes", &self.options.max_nodes)
            .finish_non_exhaustive()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.client.forget_room(&self.path, self.options.recipe);
    }
}

/// The lock, held by one node of one epoch. Dropping it hands the node to the reaper.
#[derive(Debug)]
pub(crate) struct Hold {
    room: Arc<Room>,
    epoch: Arc<Epoch>,
    held: Arc<Held>,
    /// The two numbers of its fencing token; what they are is the guard's business.
    token: (i64, u64),
    released: bool,
}

impl Hold {
    pub(crate) fn new(
        room: Arc<Room>,
        epoch: Arc<Epoch>,
        held: Arc<Held>,
        token: (i64, u64),
        location: &'static Location<'static>,
    ) -> Self {
        epoch.hold(&held);
        // Known in the process from here on, also while the caller has not looked at its future yet.
        let holder = Holder {
            held: Arc::clone(&held),
            epoch: Arc::downgrade(&epoch),
            since: Instant::now(),
            location,
        };
        room.lock_holders().insert(held.number(), holder);
        Self { room, epoch, held, token, released: false }
    }

    /// The same hold once more, for one that gives nothing back.
    pub(crate) fn shadow(&self) -> Self {
        Self {
            room: Arc::clone(&self.room),
            epoch: Arc::clone(&self.epoch),
            held: Arc::clone(&self.held),
            token: self.token,
            released: true,
        }
    }

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    pub(crate) fn epoch(&self) -> &Arc<Epoch> {
        &self.epoch
    }

    /// How it was lost, if it was: by the clock, so that a task that was starved cannot hide it.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.epoch.check(&self.held)
    }

    /// It has turned out that it was lost.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.epoch.lose(&self.held, reason);
    }

    /// Resolves when it is lost. Keeps neither the session nor the client.
    pub(crate) fn when_lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let mut lost = self.held.watch_lost();
        let ended = self.epoch.ended();
        let epoch = Arc::downgrade(&self.epoch);
        let held = Arc::clone(&self.held);
        waker::contain(async move {
            // By the clock first, which may know before anybody else has looked.
            if let Some(reason) = epoch.upgrade().and_then(|epoch| epoch.check(&held)) {
                return reason;
            }
            tokio::select! {
                biased;
                // `held` keeps the sender alive, so this is never an error.
                Ok(reason) = lost.wait_for(Option::is_some) => reason.unwrap_or(LostReason::Closed),
                // A hold that has been released is not told any more, but is over at the end of its session.
                reason = ended => reason,
            }
        })
    }

    pub(crate) fn token(&self) -> (i64, u64) {
        self.token
    }

    /// It has become the writer's by a conversion: a grant of its own, with this zxid ([`conversion`](super::conversion)).
    pub(crate) fn upgraded(&mut self, zxid: i64) {
        self.token = (zxid, self.token.1.saturating_add(1));
    }

    /// The node's name.
    pub(crate) fn node(&self) -> Arc<str> {
        self.held.name()
    }

    /// What it is held as.
    pub(crate) fn kind(&self) -> Kind {
        self.held.kind()
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Gives the lock back and answers when the node is gone. The work is the reaper's, so dropping the future does
    /// not stop it.
    pub(crate) fn release(mut self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static {
        let (done, result) = oneshot::channel();
        self.give_back(Some(done));
        // Kept until the answer: with the last handle the client would be closed, and the session ended before it.
        let room = Arc::clone(&self.room);
        async move {
            result.await.unwrap_or_else(|_| {
                // The reaper answers every item; it has gone with the client.
                Err(Lost { path: room.path.user().into(), reason: LostReason::Closed }.into())
            })
        }
    }

    fn give_back(&mut self, done: Option<oneshot::Sender<Result<(), ReleaseError>>>) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let holder = self.room.lock_holders().remove(&self.held.number());
        // Not while the holders are locked: it may be the last to know its epoch.
        drop(holder);
        self.epoch.give_back(&self.held, done);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back(None);
    }
}
