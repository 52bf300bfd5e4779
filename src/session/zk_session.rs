//! One session's incarnation.
//!
//! A ZooKeeper session cannot be revived: when it ends, its nodes go, and whoever held a lock by one of them has
//! lost it. Everything that belongs to a session therefore hangs on its [`Session`], and nothing of an older session is
//! ever used in a newer one (CURATOR-498 and -604 are what happens otherwise).

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use zookeeper_client as zk;

use crate::error::{Cause, Lost, LostReason};
use crate::path::LockPath;
use crate::protocol::failure::{Failure, FailureKind, Refusal};
use crate::protocol::lease::{Lease, LeaseState, Margin};
use crate::protocol::line::{Gone, Line, ReleaseNotice};
use crate::protocol::moment::Moment;
use crate::protocol::node_name::{Kind, id};
use crate::session::cleanup::{Cleanup, Done, Item, Orphan};
use crate::session::clock::{self, Latest};
use crate::session::held::{Hand, Held};
use crate::session::lease_timer;
use crate::session::nodes::{NodeOwner, Nodes, RefusedOrphan, node_name};
use crate::session::waker::contain_panic;
use crate::session::watches::{WatchLimit, WatchUse, Watching};
use crate::session::window::Windows;

/// How many unsettled creates a session remembers for later lists. They are rare (a create whose reply was lost and
/// whose attempt was given up), so the bound only keeps a broken server from filling the memory.
const MAX_UNKNOWN_CREATES: usize = 16_384;

/// One session, from its establishment to its end, which comes in two steps: it is *ended* when nothing may be
/// held or waited for in it any more, and *gone* when no request can be sent in it. For a session of our own the
/// two are one moment, since its nodes go with it. A borrowed session lives on after our client is closed, so
/// between the two our nodes are deleted.
pub(crate) struct Session {
    number: u64,
    /// Taken out when the session is gone, so that a guard that is kept for long does not keep a dead session's
    /// connection.
    handle: Mutex<Option<zk::Client>>,
    session_id: i64,
    timeout: Duration,
    lease: Lease,
    cleanup: Cleanup,
    ended: watch::Sender<Option<LostReason>>,
    gone: watch::Sender<bool>,
    /// When the last write was sent whose reply proved that the servers keep the session.
    proof: Latest,
    /// Whether a server is there.
    connected: AtomicBool,
    /// Whether a server is there and no proof is overdue, as it was told last: only when that changes, and not with each
    /// proof, those are woken that wait for it.
    sound: watch::Sender<bool>,
    /// Attempts that may have requests under way.
    attempts: watch::Sender<usize>,
    nodes: Nodes,
    holds: Mutex<Holds>,
    unknown_creates: Mutex<UnknownCreates>,
    /// Who waits for whom in memory.
    line: Mutex<Line<oneshot::Sender<ReleaseNotice>>>,
    watches: Arc<WatchLimit>,
    windows: Windows,
    /// What has happened that is not logged yet; see [`log`](Self::log).
    unlogged: Mutex<Unlogged>,
    /// There is something to be logged, or a node that is kept.
    news: Notify,
}

/// What has happened in a session and is not logged yet.
#[derive(Debug, Default)]
struct Unlogged {
    lost: VecDeque<(Arc<Held>, LostReason)>,
    /// The client is being closed, as it was asked to.
    expected: bool,
    task_died: bool,
    ended: Option<LostReason>,
}

/// One entry of the log.
enum Entry {
    Lost(Arc<Held>, LostReason),
    /// Given back by the close of the client.
    Closed(Arc<Held>),
    TaskDied,
    Ended(LostReason),
}

impl Unlogged {
    /// What is to be logged next, the end last.
    fn next(&mut self) -> Option<Entry> {
        if let Some((held, reason)) = self.lost.pop_front() {
            let closed = self.expected && reason == LostReason::Closed;
            return Some(if closed { Entry::Closed(held) } else { Entry::Lost(held, reason) });
        }
        if std::mem::take(&mut self.task_died) {
            return Some(Entry::TaskDied);
        }
        self.ended.take().map(Entry::Ended)
    }
}

/// The locks that are held, and those that are lost and whose nodes are kept, by the server paths of their nodes.
#[derive(Debug, Default)]
struct Holds {
    held: HashMap<String, Arc<Held>>,
    /// The nodes of locks that are lost while their session may live, until the last guard is gone, but no longer than to
    /// this moment: the margin between the loss and what the servers may do is the holder's, to stop in.
    kept: HashMap<String, (Arc<Held>, Moment)>,
}

/// Creates that were given up without anybody knowing their outcome, by the server path of their directory.
#[derive(Debug, Default)]
struct UnknownCreates {
    by_directory: HashMap<String, HashSet<String>>,
    /// Oldest first, for the bound.
    order: VecDeque<(String, String)>,
}

/// The session has ended, so nothing can be asked of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOver;

/// A session, lent for one piece of I/O; see [`Session::request`].
pub(crate) struct Handle(zk::Client);

impl Deref for Handle {
    type Target = zk::Client;

    fn deref(&self) -> &zk::Client {
        &self.0
    }
}

impl Session {
    pub(crate) fn new(number: u64, handle: zk::Client, margin: Margin, cleanup: Cleanup) -> Arc<Self> {
        let timeout = handle.session_timeout();
        Arc::new(Self {
            number,
            session_id: handle.session_id().0,
            timeout,
            lease: Lease::new(timeout, margin),
            cleanup,
            proof: Latest::default(),
            connected: AtomicBool::new(true),
            // Until the first proof.
            sound: watch::Sender::new(false),
            handle: Mutex::new(Some(handle)),
            ended: watch::Sender::new(None),
            gone: watch::Sender::new(false),
            attempts: watch::Sender::new(0),
            nodes: Nodes::new(number),
            holds: Mutex::default(),
            unknown_creates: Mutex::default(),
            line: Mutex::default(),
            watches: Arc::default(),
            windows: Windows::default(),
            unlogged: Mutex::default(),
            news: Notify::new(),
        })
    }

    /// Which session of its client this is, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn session_id(&self) -> i64 {
        self.session_id
    }

    /// The negotiated session timeout.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Does one piece of I/O: `work` sends requests in the session and waits for their answers. It is dropped when the
    /// session is gone.
    ///
    /// There is no other way to the session, and it is lent for no longer than that: it is closed when its last clone is
    /// dropped, so one that was kept over a pause, or while a watch is waited for, would hold up `close`, and keep the
    /// nodes. Pauses and the waiting for watches are therefore outside, and requests that belong into one flight inside.
    pub(crate) async fn request<F: Future>(
        &self,
        work: impl FnOnce(Handle) -> F,
    ) -> Result<F::Output, SessionOver> {
        let handle = self.handle().ok_or(SessionOver)?;
        tokio::select! {
            biased;
            answer = work(Handle(handle)) => Ok(answer),
            () = self.gone() => Err(SessionOver),
        }
    }

    /// What the client library says of the session from now on; nothing when the session is gone. The present state
    /// counts as seen.
    pub(crate) fn states(&self) -> Option<zk::StateWatcher> {
        self.handle().map(|handle| handle.state_watcher())
    }

    fn handle(&self) -> Option<zk::Client> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the session ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<LostReason> {
        *self.ended.borrow()
    }

    /// Resolves when the session ends; owns what it needs.
    pub(crate) fn ended(&self) -> impl Future<Output = LostReason> + Send + 'static {
        let mut ended = self.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => (*reason).unwrap_or(LostReason::Closed),
                // The session is dropped by everybody: nobody can hold anything in it.
                Err(_) => LostReason::Closed,
            }
        }
    }

    /// Resolves when nothing can be sent in the session any more; owns what it needs.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut gone = self.gone.subscribe();
        async move {
            // An error means that everybody has dropped the session: it is gone as well.
            let _ = gone.wait_for(|gone| *gone).await;
        }
    }

    /// Ends the session, and lets go of the session, which is closed unless it is borrowed: what is under way is
    /// abandoned. The first reason stays.
    pub(crate) fn end(&self, reason: LostReason) {
        // The guards are told before the session can be closed by the drop of its last clone.
        self.end_softly(reason);
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.gone.send_replace(true);
        drop(handle);
    }

    /// Ends the session for guards and waiters, but keeps the session for cleaning up.
    pub(crate) fn end_softly(&self, reason: LostReason) {
        if self.end_reason().is_none() {
            // First, so that nobody who hears of the end finds a guard that still believes itself held.
            for held in self.holds() {
                self.tell_lost(&held, reason);
            }
        }
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
                // Before it is heard of: those that log end with the session.
                self.unlogged().ended = Some(reason);
            }
            first
        });
        if first {
            // A hold that is registered, or kept, from here on sees the end itself.
            for (_, held) in self.nodes_of_holds() {
                self.tell_lost(&held, reason);
                // The node goes with the session, so its place is free although the guard may be kept for long.
                drop(held.take_permit());
            }
            self.news.notify_one();
        }
    }

    /// The end that comes is asked for: that it costs the locks is no news.
    pub(crate) fn expect_end(&self) {
        self.unlogged().expected = true;
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// A write that was sent at `sent` has been answered.
    pub(crate) fn renewed(&self, sent: Moment) {
        self.proof.raise(sent);
        self.tell_lease();
    }

    /// The same for a write that was refused, if the refusal was decided by the leader and committed like any other
    /// transaction, and not by a member, or by the client library, on its own.
    pub(crate) fn renewed_by_refusal(&self, sent: Moment, error: &zk::Error) {
        // Not NoAuth: a member may decide that by itself (`enableEagerACLCheck`).
        if matches!(
            error,
            zk::Error::NoNode
                | zk::Error::NodeExists
                | zk::Error::NotEmpty
                | zk::Error::BadVersion
                | zk::Error::NoChildrenForEphemerals
        ) {
            self.renewed(sent);
        }
    }

    /// The same for a check inside a transaction, which only the leader decides. An expired session shows as a failed
    /// check too; that is no proof that it lives.
    pub(crate) fn renewed_by_check(&self, sent: Moment, error: &zk::Error) {
        if matches!(error, zk::Error::NoNode | zk::Error::NoAuth | zk::Error::BadVersion) {
            self.renewed(sent);
        }
    }

    /// When the last write was sent that was answered.
    pub(crate) fn last_renewal(&self) -> Option<Moment> {
        self.proof.get()
    }

    /// What the last proof is worth now.
    pub(crate) fn lease_state(&self) -> LeaseState {
        // The clock first: a thread that is paused between the two must not find a new proof old.
        let now = clock::now();
        self.lease.state(self.last_renewal(), now)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
        self.tell_lease();
    }

    /// Whether locks are neither granted nor known to be lost at the moment.
    pub(crate) fn is_suspended(&self) -> bool {
        !self.connected.load(Ordering::Acquire) || self.lease_state() != LeaseState::Valid
    }

    /// Tells those that wait for it if [`is_suspended`](Self::is_suspended) has changed, and answers the opposite. That
    /// time has passed is a change like any other, so it is called from time to time, and by those that begin to wait:
    /// what they have seen is what was told last, and whatever comes after it wakes them.
    pub(crate) fn tell_lease(&self) -> bool {
        let mut sound = false;
        self.sound.send_if_modified(|told| {
            // Looked at in here: of two threads, the one that looked last is the one that is believed.
            sound = !self.is_suspended();
            std::mem::replace(told, sound) != sound
        });
        sound
    }

    /// Changes whenever [`tell_lease`](Self::tell_standing) has something to tell, from now on.
    pub(crate) fn watch_lease(&self) -> watch::Receiver<bool> {
        self.sound.subscribe()
    }

    /// Waits until the servers are known to keep the session, and a server is there: nothing is granted before.
    pub(crate) async fn sound(&self) {
        let mut standing = self.watch_lease();
        while !self.tell_lease() {
            // The sender does not go before the session does.
            if standing.changed().await.is_err() {
                return;
            }
        }
    }

    /// Registers a held lock: from here on the session says when it is lost.
    pub(crate) fn hold(self: &Arc<Self>, held: &Arc<Held>) {
        let path = held.directory().child(&held.name());
        let mut first = false;
        {
            let mut holds = self.lock_holds();
            // Another thread may have lost it by the clock since.
            if !held.is_released() {
                first = holds.held.is_empty();
                holds.held.insert(path, Arc::clone(held));
            }
        }
        if first {
            lease_timer::arm(self);
        }
        // Looked at after the registration, as the end looks at the register after it has happened.
        if let Some(reason) = self.end_reason() {
            if held.mark_lost(reason) {
                held.tell_lost();
            }
        }
    }

    /// How a hold was lost, if it was, by the clock and not only by what has been noticed. As it is asked on the holder's
    /// side, it does not log.
    pub(crate) fn check(self: &Arc<Self>, held: &Arc<Held>) -> Option<LostReason> {
        let lost = held.lost();
        // One that has been given back is not beaten for any more, so the clock says nothing about it.
        if lost.is_some() || self.lease_state() != LeaseState::Expired || held.is_released() {
            return lost;
        }
        self.lose(held, LostReason::LeaseExpired);
        held.lost()
    }

    /// Tells the holders, and those that wait for a change, what time has done; answers how long until it will have done
    /// more, if no proof comes.
    pub(crate) fn tell_time(self: &Arc<Self>) -> Duration {
        self.tell_lease();
        if self.lease_state() == LeaseState::Expired {
            for held in self.holds() {
                // Once more, each after it was registered: a lock granted by a proof of this very moment is not over.
                self.check(&held);
            }
        }
        // The clock first: a proof that comes in between must not look old.
        let now = clock::now();
        self.lease.until_next_state(self.last_renewal(), now)
    }

    /// A hold is over although its session may not be. It is never granted again.
    pub(crate) fn lose(self: &Arc<Self>, held: &Arc<Held>, reason: LostReason) {
        match reason {
            // The servers still have the node, and with it the lock.
            LostReason::LeaseExpired => {
                // Told last: that runs wakers, which may do anything.
                if self.keep(held) {
                    held.tell_lost();
                }
            }
            LostReason::NodeDeleted => {
                if self.tell_lost(held, reason) {
                    self.forget(held);
                }
            }
            _ => {
                if self.tell_lost(held, reason) {
                    self.release(held, None);
                }
            }
        }
    }

    /// Marks a hold lost, and wakes those that wait for that; false if it was lost already.
    fn tell_lost(&self, held: &Arc<Held>, reason: LostReason) -> bool {
        let first = self.mark_lost(held, reason);
        if first {
            held.tell_lost();
        }
        first
    }

    /// Marks a hold lost, to be logged; false if it was lost already.
    fn mark_lost(&self, held: &Arc<Held>, reason: LostReason) -> bool {
        let first = held.mark_lost(reason);
        if first {
            self.unlogged().lost.push_back((Arc::clone(held), reason));
            self.news.notify_one();
        }
        first
    }

    /// Marks a hold lost by the clock, and keeps its node until its guards are gone, as long as the servers keep the session
    /// for certain; false if it was lost already.
    fn keep(&self, held: &Arc<Held>) -> bool {
        // Marked first. The clock does not look after what is kept, or was taken from a conversion, so that another thread
        // would find such a hold valid, for as long as this one is paused in between.
        let first = self.mark_lost(held, LostReason::LeaseExpired);
        // The servers cannot end the session before its timeout has passed since then.
        let until = self.last_renewal().map_or_else(clock::now, |proof| proof.plus(self.timeout));
        {
            let mut holds = self.lock_holds();
            if let Some(name) = held.keep() {
                let path = held.directory().child(&name);
                holds.held.remove(&path);
                holds.kept.insert(path, (Arc::clone(held), until));
            }
        }
        // Looked at after that, as the end looks at what is kept after it has happened.
        if self.end_reason().is_some() {
            drop(held.take_permit());
        }
        self.news.notify_one();
        first
    }

    /// Gives the nodes of lost holds back whose time is over; answers how long the next one has.
    pub(crate) fn release_kept(self: &Arc<Self>) -> Option<Duration> {
        let now = clock::now();
        let (mut over, mut next) = (Vec::new(), None::<Duration>);
        for (held, until) in self.lock_holds().kept.values() {
            match until.since(now) {
                Duration::ZERO => over.push(Arc::clone(held)),
                left => next = Some(next.map_or(left, |next| next.min(left))),
            }
        }
        for held in over {
            self.release(&held, None);
        }
        next
    }

    /// The node of a lost hold is known to be gone.
    fn forget(&self, held: &Held) {
        let (before, name) = held.mark_released();
        if matches!(before, Hand::Held | Hand::Kept) {
            let path = held.directory().child(&name);
            self.disown(&path);
            drop(held.take_permit());
        }
    }

    fn unlogged(&self) -> MutexGuard<'_, Unlogged> {
        self.unlogged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs what has been lost, and the end, once. Called on the session's thread, and nowhere else: a tracing subscriber
    /// may block, which must not happen to a holder that asks its guard, nor while a loss is still to be told. One that
    /// panics loses the entry that it panics at: the tasks that log here keep the session, and all its locks.
    pub(crate) fn log(&self) {
        loop {
            // A statement of its own: the lock is not held while it is logged.
            let next = self.unlogged().next();
            let Some(entry) = next else { return };
            contain_panic(|| self.log_entry(&entry));
        }
    }

    fn log_entry(&self, entry: &Entry) {
        let (session, handle) = (self.number, format_args!("{:#x}", self.session_id));
        match entry {
            Entry::Lost(held, reason) => {
                let path = held.directory().user();
                tracing::warn!(path, node = &*held.name(), session, %reason, "lock lost");
            }
            Entry::Closed(held) => {
                let path = held.directory().user();
                tracing::debug!(
                    path,
                    node = &*held.name(),
                    session,
                    "lock lost: the client was closed while it was held"
                );
            }
            Entry::TaskDied => {
                tracing::error!(session, handle, "the task that serves the session has died");
            }
            Entry::Ended(reason) => tracing::info!(session, handle, %reason, "session over"),
        }
    }

    /// Resolves when there is something to log, or a node is kept: now or since the last time.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Hands the node of a hold to the cleanup, once.
    pub(crate) fn release(self: &Arc<Self>, held: &Arc<Held>, done: Option<Done>) {
        // First, so that whoever finds it given back finds it pending as well, until it is done.
        let _pending = self.cleanup.ticket(held.number());
        let (before, name) = held.mark_released();
        let mut done = done;
        match before {
            Hand::Held => {}
            // What there is to report is known: it is lost, whatever becomes of its node.
            Hand::Kept => lost_already(held, done.take()),
            // The guard is the conversion's, so this is a loss, and it will see it.
            Hand::Converting => return,
            Hand::Released => {
                lost_already(held, done);
                return;
            }
        }
        // A lock that was lost is not handed over, and neither is one under which a write is under way whose outcome is not
        // known: the next in line looks.
        let hand_over = before == Hand::Held
            && held.lost().is_none()
            && self.lease_state() != LeaseState::Expired
            && !held.is_writing();
        // No beat that is sent after the deletion may ask for the node and take its absence for a loss.
        let path = held.directory().child(&name);
        self.forget_hold(&path);
        self.cleanup.reap(Item {
            session: Arc::clone(self),
            directory: held.directory().clone(),
            orphan: Orphan::Hold { name: name.as_ref().to_owned(), hand_over },
            number: held.number(),
            until_gone: held.take_permit().map(|place| -> Arc<dyn Any + Send + Sync> { place }),
            done,
        });
    }

    /// The lock, which was held by the node `own`, is held by the node `name`, as `kind`, from here on; false if it was
    /// lost meanwhile: then the nodes are the caller's to delete, and after that it calls
    /// [`abandon_conversion`](Self::abandon_conversion).
    pub(crate) fn end_conversion(
        self: &Arc<Self>,
        held: &Arc<Held>,
        own: &str,
        name: &str,
        kind: Kind,
    ) -> bool {
        if !held.end_conversion(name, kind) {
            return false;
        }
        if own != name {
            self.let_go_of(&held.directory().child(own));
        }
        if kind == Kind::Shared {
            // The gate bounds the queue, not the number of readers inside (docs/protocol.md#places).
            drop(held.take_permit());
        }
        self.hold(held);
        true
    }

    /// A conversion, of the node `own`, has ended with the loss of the lock; what is left of it has been deleted.
    pub(crate) fn abandon_conversion(&self, held: &Arc<Held>, own: &str, reason: LostReason) {
        self.tell_lost(held, reason);
        held.mark_released();
        self.let_go_of(&held.directory().child(own));
        drop(held.take_permit());
    }

    /// No lock is held by this node any more.
    fn let_go_of(&self, path: &str) {
        self.lock_holds().held.remove(path);
    }

    /// Who waits for whom in memory.
    pub(crate) fn line(&self) -> MutexGuard<'_, Line<oneshot::Sender<ReleaseNotice>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that wait in memory for a node that is gone.
    fn tell_line(&self, name: &str, how: Gone<'_>) {
        let told = self.line().gone(name, how);
        for (waiter, word) in told {
            // One that does not wait any more: the end of its own node is told to those behind it.
            let _ = waiter.send(word);
        }
    }

    /// What bounds the requests that a crowd makes.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Counts a watch on a node for as long as the answer lives; nothing if the session watches too much already.
    pub(crate) fn watch(&self, path: &str, use_of: WatchUse) -> Option<Watching> {
        self.watches.watch(path, use_of)
    }

    /// Whether any lock is held in this session.
    pub(crate) fn has_holds(&self) -> bool {
        !self.lock_holds().held.is_empty()
    }

    /// The locks held in this session.
    pub(crate) fn holds(&self) -> Vec<Arc<Held>> {
        self.lock_holds().held.values().map(Arc::clone).collect()
    }

    /// What the heartbeat asks for: the nodes that hold locks, by server path.
    pub(crate) fn held_nodes(&self) -> Vec<(String, Arc<Held>)> {
        let holds = self.lock_holds();
        holds.held.iter().map(|(path, held)| (path.clone(), Arc::clone(held))).collect()
    }

    /// The same, and those of lost holds that are kept.
    pub(crate) fn nodes_of_holds(&self) -> Vec<(String, Arc<Held>)> {
        let holds = self.lock_holds();
        let kept = holds.kept.iter().map(|(path, (held, _))| (path, held));
        holds.held.iter().chain(kept).map(|(path, held)| (path.clone(), Arc::clone(held))).collect()
    }

    fn lock_holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_hold(&self, path: &str) {
        let mut holds = self.lock_holds();
        holds.held.remove(path);
        holds.kept.remove(path);
    }

    /// How many nodes there are.
    pub(crate) fn live_nodes(&self) -> watch::Receiver<usize> {
        self.nodes.count()
    }

    /// Whether there is anything to write in the session: beats, while there are nodes, or creates.
    pub(crate) fn is_wanted(&self) -> bool {
        *self.live_nodes().borrow() > 0 || *self.attempts.borrow() > 0
    }

    /// Counts an attempt for as long as the answer lives.
    pub(crate) fn attempt(self: &Arc<Self>) -> Attempt {
        self.attempts.send_modify(|attempts| *attempts += 1);
        Attempt(Arc::clone(self))
    }

    /// How many attempts may have requests under way.
    pub(crate) fn attempts(&self) -> watch::Receiver<usize> {
        self.attempts.subscribe()
    }

    /// A node of ours exists, and belongs to `owner`.
    pub(crate) fn adopt(&self, path: String, owner: Weak<dyn NodeOwner>) {
        self.nodes.adopt(path, owner);
    }

    /// A node of ours, if it exists, is to be deleted.
    pub(crate) fn leave(&self, path: String) {
        self.nodes.leave(path);
    }

    /// Whether a node of ours is to be deleted, and is no contender any more.
    pub(crate) fn is_leaving(&self, path: &str) -> bool {
        self.nodes.is_leaving(path)
    }

    /// The servers refuse to delete a node of ours, if there is such a node.
    pub(crate) fn refused(&self, directory: &LockPath, name: &str) {
        self.nodes.refused(directory, name);
        self.tell_line(name, Gone::Unclear);
    }

    /// The nodes that the servers refused to delete: all of them, or those of one directory.
    pub(crate) fn orphans(&self, directory: Option<&LockPath>) -> Vec<RefusedOrphan> {
        self.nodes.refused_orphans(directory)
    }

    /// Changes when a deletion was refused.
    pub(crate) fn refusals(&self) -> watch::Receiver<u64> {
        self.nodes.refusals()
    }

    /// Waits until a node of ours that is to be deleted is gone, or the servers have refused that.
    pub(crate) async fn until_gone(&self, path: &str) {
        self.nodes.until_gone(path).await;
    }

    /// A node of ours is gone, by another hand for all we know.
    pub(crate) fn disown(&self, path: &str) {
        self.disown_as(path, Gone::Unclear);
    }

    /// A node of ours is gone.
    pub(crate) fn disown_as(&self, path: &str, how: Gone<'_>) {
        self.forget_hold(path);
        self.nodes.gone(path, how);
        self.tell_line(node_name(path), how);
    }

    /// The server paths of our nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.nodes.paths()
    }

    /// Remembers a create whose outcome nobody could establish: should a later list of its directory show it,
    /// it is deleted (docs/protocol.md#write-barrier).
    pub(crate) fn owe(&self, directory: &LockPath, id: &str) {
        let directory = directory.server().to_owned();
        let mut unknown_creates = self.unknown_creates.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown_creates.order.len() == MAX_UNKNOWN_CREATES {
            if let Some((directory, id)) = unknown_creates.order.pop_front() {
                unknown_creates.forget(&directory, &id);
            }
        }
        unknown_creates.order.push_back((directory.clone(), id.to_owned()));
        unknown_creates.by_directory.entry(directory).or_default().insert(id.to_owned());
    }

    /// Which of the children of a directory are late creates that nobody waits for any more. They are forgotten
    /// here: the caller has them deleted.
    pub(crate) fn find_late_creates<'a>(&self, directory: &LockPath, children: &'a [String]) -> Vec<&'a str> {
        let mut unknown_creates = self.unknown_creates.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(owed) = unknown_creates.by_directory.get(directory.server()) else { return Vec::new() };
        let late = |child: &&String| id(child).is_some_and(|id| owed.contains(id));
        let found: Vec<&str> = children.iter().filter(late).map(String::as_str).collect();
        for name in &found {
            unknown_creates.forget(directory.server(), id(name).unwrap_or_default());
        }
        found
    }

    /// What an error of the client library means for the request that got it, with the error.
    pub(crate) fn failure(&self, error: zk::Error) -> Failure {
        let kind = self.judge(&error);
        tracing::debug!(%error, ?kind, "request failed");
        Failure { kind, cause: cause(error) }
    }

    /// What an error of the client library means for the request that got it
    /// (docs/protocol.md#unknown-outcome).
    pub(crate) fn judge(&self, error: &zk::Error) -> FailureKind {
        match error {
            zk::Error::NoNode => FailureKind::NoNode,
            zk::Error::NoAuth => FailureKind::Refused(Refusal::NoAuth),
            zk::Error::NodeExists => FailureKind::Refused(Refusal::NodeExists),
            zk::Error::BadVersion
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::NotEmpty
            | zk::Error::InvalidAcl
            | zk::Error::QuotaExceeded
            | zk::Error::MarshallingError
            | zk::Error::Unimplemented
            | zk::Error::BadArguments(_) => FailureKind::Refused(Refusal::Other),
            zk::Error::Throttled | zk::Error::NotReadOnly => FailureKind::NotNow,
            zk::Error::SessionExpired => {
                self.end(LostReason::SessionExpired);
                FailureKind::SessionOver
            }
            zk::Error::AuthFailed | zk::Error::ClientClosed => {
                self.end(LostReason::Closed);
                FailureKind::SessionOver
            }
            zk::Error::UnexpectedError(_) => {
                self.end_if_dead();
                // Not "ended": in a borrowed session that we are leaving, a lost request is no more than that.
                if self.handle().is_none() { FailureKind::SessionOver } else { FailureKind::Unknown }
            }
            // ConnectionLoss, Custom, an unknown code, anything a later version adds.
            _ => FailureKind::Unknown,
        }
    }

    /// Ends the session if the task that serves the session is gone. Nothing else says so: the state stays
    /// what it was (docs/protocol.md#session-end). A live session never answers a request before it has been
    /// sent.
    fn end_if_dead(&self) {
        let Some(handle) = self.handle() else { return };
        let mut probe = std::pin::pin!(handle.sync("/"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Err(zk::Error::UnexpectedError(_))) = probe.as_mut().poll(&mut context)
        {
            self.unlogged().task_died = true;
            self.end(LostReason::SessionExpired);
        }
    }
}

/// Answers a release of a lock that was lost before.
fn lost_already(held: &Held, done: Option<Done>) {
    let Some(done) = done else { return };
    let path = held.directory().user().into();
    let reason = held.lost().unwrap_or(LostReason::LeaseExpired);
    // An error: the release was cancelled, and has no reader.
    let _ = done.send(Err(Lost { path, reason }.into()));
}

impl UnknownCreates {
    fn forget(&mut self, directory: &str, id: &str) {
        if let Some(owed) = self.by_directory.get_mut(directory) {
            owed.remove(id);
            if owed.is_empty() {
                self.by_directory.remove(directory);
            }
        }
    }
}

/// An attempt that may have requests under way; see [`Session::attempt`].
#[derive(Debug)]
pub(crate) struct Attempt(Arc<Session>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.attempts.send_modify(|attempts| *attempts = attempts.saturating_sub(1));
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.number)
            .field("session_id", &format_args!("{:#x}", self.session_id))
            .field("ended", &self.end_reason())
            .finish_non_exhaustive()
    }
}

/// An error of the client library as the source of one of ours.
pub(crate) fn cause(error: zk::Error) -> Cause {
    Arc::new(error)
}

#[cfg(test)]
mod tests {
    use zookeeper_test_server::Server;

    use super::*;

    /// A session without a proof, in which nothing is believed, and a hold of it.
    async fn over(server: &Server) -> (Arc<Session>, Arc<Held>) {
        let handle = zk::Client::connect(&server.connect_string()).await.unwrap();
        let (cleanup, _work) = Cleanup::new();
        let directory = LockPath::parse("", "/lock").unwrap();
        let held = Held::new(directory, "x-lock-0000000000", Kind::Exclusive, None, 0);
        (Session::new(1, handle, Margin::default(), cleanup), held)
    }

    /// The thread that gives it up may be paused before it tells.
    #[tokio::test]
    async fn a_hold_that_is_given_up_by_the_clock_is_lost_before_that_is_told() {
        let server = Server::start().unwrap();
        let (session, held) = over(&server).await;
        let untold = held.watch_lost();
        session.keep(&held);
        // Although the session was heard of since.
        session.renewed(clock::now());
        assert_eq!(session.check(&held), Some(LostReason::LeaseExpired));
        assert!(!untold.has_changed().unwrap(), "told while it was not to be");
        assert!(!held.begin_conversion());
    }

    #[tokio::test]
    async fn a_hold_that_the_clock_takes_from_a_conversion_is_suspect_before_that_is_told() {
        let server = Server::start().unwrap();
        let (session, held) = over(&server).await;
        assert!(held.begin_conversion());
        session.keep(&held);
        assert_eq!(session.check(&held), Some(LostReason::LeaseExpired));
        assert!(!session.end_conversion(&held, "own", "other", Kind::Shared));
    }
}
