//! Where all handles of one client for one path meet: a fair gate, and the local holder.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::driver;
use super::name::Family;
use super::queue::Queue;
use crate::client::Inner;
use crate::client::epoch::{Epoch, Held};
use crate::client::reaper::{Reaper, Ticket};
use crate::error::{AcquireError, LocalHolder, Lost, LostReason, ReleaseError};
use crate::options::LockOptions;
use crate::path::LockPath;
use crate::token::FencingToken;

/// How long to try.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// Only ask; wait for the servers' answers no longer than `patience`.
    Try {
        patience: Duration,
    },
    Until(Instant),
    Forever,
}

/// No grant.
#[derive(Debug)]
pub(crate) enum Denied {
    WouldBlock,
    Error(AcquireError),
}

/// The handles of one client for one path.
///
/// Contenders of one room queue by znodes of their own, at most `max_znodes` at a time; whoever finds no place
/// waits in memory, in order of arrival ([`Semaphore`] is fair). So a thousand tasks cost the servers no more than
/// `max_znodes` nodes, and none of them is overtaken within a session. (When the session ends, those that had nodes
/// queue again in the next, all at once and in no particular order.)
pub(crate) struct Room {
    client: Arc<Inner>,
    path: LockPath,
    family: Family,
    options: LockOptions,
    gate: Arc<Semaphore>,
    holder: Mutex<Option<Holder>>,
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
}

impl Room {
    pub(crate) fn new(client: Arc<Inner>, path: LockPath, family: Family, options: LockOptions) -> Self {
        let gate = Arc::new(Semaphore::new(options.max_znodes));
        Self {
            client,
            path,
            family,
            options,
            gate,
            holder: Mutex::default(),
            strays_reported: AtomicBool::new(false),
        }
    }

    pub(crate) fn client(&self) -> &Arc<Inner> {
        &self.client
    }

    pub(crate) fn path(&self) -> &LockPath {
        &self.path
    }

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    pub(crate) fn options(&self) -> &LockOptions {
        &self.options
    }

    /// Gets the lock, or not, within the budget.
    ///
    /// Everything happens in an attempt where the session runs, so the caller needs no timer, and no runtime of any
    /// particular kind. Dropping the future tells the attempt, which cleans up by itself.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        budget: Budget,
        location: &'static Location<'static>,
    ) -> Result<Hold, Denied> {
        let (reply, granted) = oneshot::channel();
        let (cancel, cancelled) = oneshot::channel();
        let reaper = self.client.reaper().clone();
        let number = reaper.number();
        let cancel = CancelOnDrop { cancel: Some(cancel), reaper, number };
        let attempt = driver::Attempt { room: Arc::clone(&self), budget, number, location, reply, cancelled };
        self.client.spawn(driver::run(attempt));
        // A grant that arrives here and is not taken is a `Hold` in a channel: its drop gives the lock back.
        let result = granted.await;
        cancel.disarm();
        match result {
            Ok(result) => result,
            // What the attempt ran on is gone.
            Err(_) => Err(Denied::Error(self.client.why_ended(&self.path))),
        }
    }

    /// A place in the queue of this client, in order of arrival; nothing if it was only asked for and there is none:
    /// this client alone has `max_znodes` contenders then.
    pub(crate) async fn enter(&self, budget: Budget) -> Option<OwnedSemaphorePermit> {
        let gate = Arc::clone(&self.gate);
        match budget {
            Budget::Try { .. } => gate.try_acquire_owned().ok(),
            // The gate is never closed.
            Budget::Until(_) | Budget::Forever => gate.acquire_owned().await.ok(),
        }
    }

    /// The error of a wait that was too long, with this process's own hold in it if there is one.
    pub(crate) fn timed_out(&self, waited: Duration) -> AcquireError {
        // A copy: asking the clock may end in a tracing subscriber, which must find the mutex free.
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let holder = holder
            .as_ref()
            .filter(|holder| holder.holds())
            .map(|holder| LocalHolder { held_for: holder.since.elapsed(), location: holder.location });
        AcquireError::TimedOut { path: self.path.user().to_owned(), waited, holder }
    }

    /// Whether a guard of this room holds the lock.
    pub(crate) fn is_held(&self) -> bool {
        // A copy: asking the clock may end in a tracing subscriber, which must find the mutex free.
        let holder = self.holder.lock().unwrap_or_else(PoisonError::into_inner).clone();
        holder.as_ref().is_some_and(|holder| holder.holds())
    }

    /// Says once that there are nodes here that no lock recipe made.
    pub(crate) fn report_strays(&self, children: &[String]) {
        if self.strays_reported.load(Ordering::Relaxed) {
            return;
        }
        let Ok(queue) = Queue::read(children, self.family) else {
            return;
        };
        if let [stray, ..] = queue.strays() {
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
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the data, which may be large, nor the client, which knows the rooms.
        f.debug_struct("Room")
            .field("path", &self.path)
            .field("max_znodes", &self.options.max_znodes)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.client.forget_room(&self.path);
    }
}

/// Tells the attempt that its caller has gone.
struct CancelOnDrop {
    cancel: Option<oneshot::Sender<Ticket>>,
    reaper: Reaper,
    number: u64,
}

impl CancelOnDrop {
    fn disarm(mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take() {
            // The ticket makes a flush that is called right after this wait for the clean-up. If the attempt has
            // ended already, it comes back and is dropped.
            drop(cancel.send(self.reaper.ticket(self.number)));
        }
    }
}

/// The lock, held by one node of one epoch. Dropping it hands the node to the reaper.
#[derive(Debug)]
pub(crate) struct Hold {
    room: Arc<Room>,
    epoch: Arc<Epoch>,
    held: Arc<Held>,
    token: FencingToken,
    released: bool,
}

impl Hold {
    pub(crate) fn new(
        room: Arc<Room>,
        epoch: Arc<Epoch>,
        held: Arc<Held>,
        token: FencingToken,
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
        *room.holder.lock().unwrap_or_else(PoisonError::into_inner) = Some(holder);
        Self { room, epoch, held, token, released: false }
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
        async move {
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
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    /// The node's name.
    pub(crate) fn node(&self) -> &str {
        self.held.name()
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
        let mut holder = self.room.holder.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else of this process may hold it by now, if this hold was lost.
        if holder.as_ref().is_some_and(|holder| Arc::ptr_eq(&holder.held, &self.held)) {
            *holder = None;
        }
        drop(holder);
        self.epoch.give_back(&self.held, done);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back(None);
    }
}
