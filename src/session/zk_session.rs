//! One session's incarnation.
//!
//! A ZooKeeper session cannot be revived: when it ends, its nodes go, and the holder of a lock by one of them has
//! lost it. Everything that belongs to a session therefore hangs on its [`Session`], and nothing of an older session is
//! ever used in a newer one (CURATOR-498 and -604 are what happens otherwise).

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::error::{Cause, LostReason};
use crate::path::LockPath;
use crate::protocol::hold::HoldEvent;
use crate::protocol::lease::{Lease, LeaseState, Margin};
use crate::protocol::local_queue::Gone;
use crate::session::clock;
use crate::session::holds::{HeldLock, HeldNode, Holds};
use crate::session::lease::SessionLease;
use crate::session::lease_timer::{self, Leased};
use crate::session::log::SessionLog;
use crate::session::nodes::{NodeOwner, Nodes, RefusedOrphan};
use crate::session::orphans::UnknownCreates;
use crate::session::running::{Running, RunningCount};
use crate::session::watches::{WatchLimit, WatchUse, Watching};
use crate::session::window::Windows;

/// One session, from its establishment to its end, which comes in two steps: it is *ended* when nothing may be
/// held or waited for in it any more, and *gone* when no request can be sent in it. For a session of our own the
/// two are one moment, since its nodes go with it. A borrowed session lives on after our client is closed, so
/// between the two our nodes are deleted.
pub(crate) struct Session {
    number: u64,
    session_id: i64,
    /// Taken out when the session is gone, so that a guard that is kept for long does not keep a dead session's
    /// connection.
    handle: Mutex<Option<zk::Client>>,
    ended: watch::Sender<Option<LostReason>>,
    gone: watch::Sender<bool>,
    /// The negotiated session timeout.
    timeout: Duration,
    lease: SessionLease,
    holds: Holds,
    nodes: Nodes,
    unknown_creates: UnknownCreates,
    running: RunningCount,
    watches: Arc<WatchLimit>,
    windows: Windows,
    log: SessionLog,
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
    pub(crate) fn new(number: u64, handle: zk::Client, margin: Margin) -> Arc<Self> {
        let (session_id, timeout) = (handle.session_id().0, handle.session_timeout());
        Arc::new(Self {
            number,
            session_id,
            handle: Mutex::new(Some(handle)),
            ended: watch::Sender::new(None),
            gone: watch::Sender::new(false),
            timeout,
            lease: SessionLease::new(Lease::new(timeout, margin), timeout),
            holds: Holds::default(),
            nodes: Nodes::new(number),
            unknown_creates: UnknownCreates::default(),
            running: RunningCount::default(),
            watches: Arc::default(),
            windows: Windows::default(),
            log: SessionLog::new(number, session_id),
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

    pub(super) fn handle(&self) -> Option<zk::Client> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How the session ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<LostReason> {
        *self.ended.borrow()
    }

    /// Resolves when the session ends; owns what it needs.
    pub(crate) fn ended(&self) -> impl Future<Output = LostReason> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => (*reason).unwrap_or(LostReason::Closed),
                // Every handle of the session is dropped: nothing can be held in it.
                Err(_) => LostReason::Closed,
            }
        }
    }

    /// Resolves when nothing can be sent in the session any more; owns what it needs.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
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
            // First: what learns of the end must not find a guard that still reports `Held`.
            for lock in self.holds.watched() {
                lock.on(HoldEvent::SessionEnding(reason));
            }
        }
        let first = self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(reason);
                // Before it is heard of: those that log end with the session.
                self.log.ended(reason);
            }
            first
        });
        if first {
            // A lock that is registered from here on sees the end itself.
            for node in self.holds.all() {
                node.lock.on(HoldEvent::SessionEnded(reason));
            }
            self.log.tell();
        }
    }

    /// The lease of the session.
    pub(crate) fn lease(&self) -> &SessionLease {
        &self.lease
    }

    /// What has happened in the session and is not logged yet.
    pub(crate) fn log(&self) -> &SessionLog {
        &self.log
    }

    /// Looks after a lock as its state is now, or not any more; called after each change of that state.
    pub(crate) fn look_after(self: &Arc<Self>, lock: &Arc<dyn HeldLock>) {
        if self.holds.update(lock) {
            lease_timer::arm(&(Arc::<Self>::clone(self) as Arc<dyn Leased>));
        }
    }

    /// Tells the holders, and those that wait for a change, what time has done; returns how long until it will have done
    /// more, if no renewal comes.
    pub(crate) fn tell_time(&self) -> Duration {
        self.lease.tell();
        if self.lease.state() == LeaseState::Expired {
            for lock in self.holds.watched() {
                // Once more, each after it was registered: a lock granted by a renewal of this very moment is not over.
                if self.lease.state() == LeaseState::Expired {
                    lock.on(HoldEvent::LeaseExpired { until: self.lease.kept_until() });
                }
            }
        }
        self.lease.until_next_state()
    }

    /// Lets the nodes of lost locks go whose time is over; returns how long the next one has.
    pub(crate) fn release_overdue(&self) -> Option<Duration> {
        let (over, next) = self.holds.overdue(clock::now());
        for lock in over {
            lock.on(HoldEvent::GraceOver);
        }
        next
    }

    /// What bounds the requests that a crowd makes.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Counts a watch on a node for as long as the answer lives; nothing if the session watches too much already.
    pub(crate) fn watch(&self, path: &str, use_of: WatchUse) -> Option<Watching> {
        self.watches.watch(path, use_of)
    }

    /// Returns whether any lock is held in this session.
    pub(crate) fn has_holds(&self) -> bool {
        self.holds.any()
    }

    /// The nodes that hold locks.
    pub(crate) fn held_nodes(&self) -> Vec<HeldNode> {
        self.holds.nodes()
    }

    /// The same, and those of locks that are lost.
    pub(crate) fn nodes_of_holds(&self) -> Vec<HeldNode> {
        self.holds.all()
    }

    /// How many nodes there are.
    pub(crate) fn live_nodes(&self) -> watch::Receiver<usize> {
        self.nodes.count()
    }

    /// Whether there is anything to write in the session: beats, while there are nodes, or creates.
    pub(crate) fn is_wanted(&self) -> bool {
        *self.live_nodes().borrow() > 0 || *self.running.watch().borrow() > 0
    }

    /// Counts an attempt, or a conversion, for as long as what is returned lives.
    pub(crate) fn begin_work(&self) -> Running {
        self.running.begin()
    }

    /// How many attempts and conversions may have requests under way.
    pub(crate) fn running(&self) -> watch::Receiver<usize> {
        self.running.watch()
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
        self.nodes.gone(path, how);
    }

    /// Returns the node that a lock which is held by the node at `path` can be handed over to, in memory.
    pub(crate) fn heir(&self, path: &str) -> Option<Arc<str>> {
        self.nodes.heir(path)
    }

    /// The server paths of our nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.nodes.paths()
    }

    /// Remembers a create whose outcome could not be found out: should a later list of its directory show it, it is
    /// deleted.
    pub(crate) fn owe(&self, directory: &LockPath, id: &str) {
        self.unknown_creates.remember(directory, id);
    }

    /// Returns those children of a directory that are late creates of attempts that have been given up. They are
    /// forgotten here: the caller has them deleted.
    pub(crate) fn find_late_creates<'a>(&self, directory: &LockPath, children: &'a [String]) -> Vec<&'a str> {
        self.unknown_creates.take_late(directory, children)
    }
}

impl Leased for Session {
    fn tell_time(&self) -> Duration {
        // The method above.
        Self::tell_time(self)
    }

    fn is_watched(&self) -> bool {
        // What was held in one that has ended was told so by the end, and what comes to be held in it finds out by itself,
        // although its guards, which are still there, may be kept for long.
        self.has_holds() && self.end_reason().is_none()
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
