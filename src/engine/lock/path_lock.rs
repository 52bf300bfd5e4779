//! The state that the handles of one client for one path and recipe share, and a registry of values
//! by key, in which they find it.
//!
//! A [`PathLock`] has no decisions of its own. Its parts have them, each with its own mutex:
//! - [`SharedPath`]: the local holders, and the callers that wait together behind one node;
//! - [`SharedQueue`]: the attempts, and whose turn it is to create a node or to look at the list;
//! - [`Slots`]: how many attempts may have nodes at a time;
//! - [`FirstSeen`]: who is first in the queue, for errors.
//!
//! Two handles must find the same value: two queues for one path would each take the other's nodes
//! for those of another client. So the registry is locked for the whole of [`PathLock::get`], and
//! keeps its values weakly: the drop of the last handle ends the path lock, and takes its entry out
//! of the registry. That drop locks the registry, so no handle may be dropped while it is locked.
//!
//! What the errors of a call say of other contenders is put together here, from what the parts know
//! at that moment (docs/protocol.md#live-contender, docs/protocol.md#held-by).

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::engine::held::LocalOwner;
use crate::engine::lock::first::FirstSeen;
use crate::engine::lock::lock_options::{LOCKS, LockOptions, Recipe, RequestedOptions};
use crate::engine::shared_path::SharedPath;
use crate::engine::shared_queue::SharedQueue;
use crate::engine::shared_queue::Slots;
use crate::error::{
    AcquireError, BuildError, Contention, Error, Holding, Lost, LostReason, Purpose,
    RequestFailure, TryLockError,
};
use crate::protocol::acquire::IfBusy;
use crate::protocol::late::{Ahead, Late, NoAnswer, Waiting};
use crate::protocol::node_name::Kind;
use crate::protocol::queue::Queue;
use crate::session::contents::nodes::NodeOwner;
use crate::session::core::Core;
use crate::session::live::zk_session::Session;
use crate::session::reports::log;
use crate::session::reports::observer::CallNumber;
use crate::session::threads::mutex::{Mutex, MutexGuard};
use crate::values::contender::{Contender, Process};
use crate::values::path::LockPath;

/// Values that are shared by key, for as long as something else keeps them.
pub(crate) struct Registry<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Registry<K, V> {
    /// Locks the registry. No value may be dropped while it is locked: its drop calls
    /// [`forget`](Self::forget).
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<K, Weak<V>>> {
        self.0.lock()
    }

    /// Removes the entry of a value that has been dropped, unless another value has taken its key
    /// already.
    pub(crate) fn forget(&self, key: &K) {
        // A new handle may have been built after the last reference was dropped and before this
        // lock. Its value has the same key, and stays.
        let mut entries = self.lock();
        if entries
            .get(key)
            .is_some_and(|value| value.strong_count() == 0)
        {
            entries.remove(key);
        }
    }
}

/// The key of a path lock within a client.
pub(crate) type Key = (LockPath, Recipe);

/// How long an attempt may take.
#[derive(Clone, Copy)]
pub(crate) enum Budget {
    /// Does not wait for other contenders. Waits for the servers' answers no longer than `timeout`.
    Try {
        timeout: Duration,
    },
    /// Waits until the deadline. `asked` is the time that the caller gave.
    Until {
        deadline: Instant,
        asked: Duration,
    },
    Forever,
}

impl Budget {
    /// Returns whether a call with this budget waits for other contenders.
    pub(crate) fn if_busy(self) -> IfBusy {
        match self {
            Self::Try { .. } => IfBusy::Fail,
            Self::Until { .. } | Self::Forever => IfBusy::Wait,
        }
    }

    /// Returns how long a call with this budget has waited. With a deadline that is since the
    /// caller gave the time: the task that asks has `started` later.
    pub(crate) fn waited(self, started: Instant) -> Duration {
        match self {
            Self::Until { deadline, asked } => {
                let now = Instant::now();
                let late = now.saturating_duration_since(deadline);
                asked
                    .saturating_add(late)
                    .saturating_sub(deadline.saturating_duration_since(now))
            }
            Self::Try { .. } | Self::Forever => started.elapsed(),
        }
    }
}

/// Whether an attempt asks for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    First,
    /// An earlier attempt of the call was granted the lock, which was lost before the caller had
    /// it. The attempt waits where a newcomer would be refused.
    Again,
}

/// The request of a caller.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    pub(crate) budget: Budget,
    pub(crate) admission: Admission,
    /// The time from the grant to the end of the lock; `None` if the caller asked for no lease.
    pub(crate) lease: Option<Duration>,
    /// Where the caller asks for the lock.
    pub(crate) location: &'static Location<'static>,
    /// The call that it is for, if that is observed.
    pub(crate) call: Option<CallNumber>,
}

impl Ask {
    /// Asks for a lock without a lease, for the first time.
    pub(crate) fn new(kind: Kind, budget: Budget, location: &'static Location<'static>) -> Self {
        Self {
            kind,
            budget,
            admission: Admission::First,
            lease: None,
            location,
            call: None,
        }
    }

    /// The same after a lock that was lost before its caller had it.
    pub(crate) fn again(self) -> Self {
        Self {
            admission: Admission::Again,
            ..self
        }
    }
}

/// One lock of several.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) path_lock: Arc<PathLock>,
    pub(crate) kind: Kind,
}

/// The handles of one client for one path and recipe.
///
/// Each attempt of a path lock queues by a separate node, at most `node_limit` at a time. An
/// attempt without a slot waits in memory, in order of arrival. The attempts of a fair lock do not
/// wait for a slot, since its order is that of the nodes: an attempt that finds none is refused.
/// The [`LocalQueue`](crate::protocol::local_queue::LocalQueue) decides which attempt is next.
pub(crate) struct PathLock {
    registry: Arc<Registry<Key, Self>>,
    pub(crate) client: Arc<Core>,
    pub(crate) path: LockPath,
    pub(crate) options: LockOptions,
    /// Shared with the path lock of the other recipe in the same queue: a fair lock waits in memory
    /// for a mutex's nodes.
    pub(crate) queue: Arc<SharedQueue>,
    pub(crate) slots: Arc<Slots>,
    /// The local holders, and the callers that wait behind one node.
    pub(crate) shared: Arc<SharedPath>,
    foreign_reported: AtomicBool,
    /// Whether a call that waits for a hold of the same client is being checked, or has been
    /// logged.
    self_wait: AtomicBool,
    /// Who is first in the queue, for errors.
    pub(crate) first_seen: FirstSeen,
}

impl LocalOwner {
    /// Returns whether it still holds the lock, by the clock.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_held()
    }

    pub(crate) fn as_holding(&self, path: &str) -> Holding {
        Holding {
            path: path.to_owned(),
            held_for: self.since.elapsed(),
            location: self.location,
        }
    }
}

impl PathLock {
    /// Returns the path lock of one recipe at `path`: the existing one, if the options agree with
    /// it, or a new one (docs/protocol.md#one-path-lock).
    pub(crate) fn get(
        registry: &Arc<Registry<Key, Self>>,
        client: &Arc<Core>,
        path: &str,
        recipe: Recipe,
        asked: &RequestedOptions,
    ) -> Result<Arc<Self>, BuildError> {
        let path = LockPath::parse(&client.namespace, path)?;
        let options = asked.resolve(
            &client.namespace,
            &path,
            recipe,
            &client.acl,
            &client.credentials,
        )?;
        let path = match recipe {
            // The queue of a semaphore is a mutex in this directory
            // (docs/protocol.md#semaphore-queue).
            Recipe::Semaphore => path.subdirectory(LOCKS),
            Recipe::Mutex | Recipe::FairLock | Recipe::ReadWriteLock | Recipe::LeaderLatch => path,
        };
        // The handles that are found are dropped after the registry is unlocked: one of them may be
        // the last by then, whose drop locks the registry.
        let others: Vec<Arc<Self>>;
        let mut entries = registry.lock();
        let known = |recipe| entries.get(&(path.clone(), recipe)).and_then(Weak::upgrade);
        others = Recipe::ALL.into_iter().filter_map(known).collect();
        // Two orders at one path would grant the lock twice (docs/protocol.md#mixed-recipes).
        let is_mixed = |other: &Arc<Self>| other.options.recipe.family() != recipe.family();
        if others.iter().any(is_mixed) {
            return Err(BuildError::MixedRecipes {
                path: path.user().to_owned(),
            });
        }
        if let Some(path_lock) = others.iter().find(|other| other.options.recipe == recipe) {
            // Different limits are a separate error, with both values
            // (docs/protocol.md#semaphore-limit).
            if let (Some(theirs), Some(ours)) = (&path_lock.options.semaphore, &options.semaphore) {
                if theirs.permits != ours.permits {
                    return Err(BuildError::LimitMismatch {
                        path: path.user().to_owned(),
                        ours: ours.permits,
                        theirs: theirs.permits,
                    });
                }
            }
            return match asked.agrees_with(&path_lock.options) {
                Ok(()) => Ok(Arc::clone(path_lock)),
                Err(option) => Err(BuildError::ConflictingOptions {
                    path: path.user().to_owned(),
                    option,
                }),
            };
        }
        // The recipes of one order share a queue, whose nodes have names of one dialect.
        if others
            .iter()
            .any(|other| other.options.dialect != options.dialect)
        {
            return Err(BuildError::ConflictingOptions {
                path: path.user().to_owned(),
                option: "dialect",
            });
        }
        let queue = others
            .first()
            .map(|other| Arc::clone(&other.queue))
            .unwrap_or_else(|| Arc::new(SharedQueue::new(path.clone(), options.naming())));
        let key = (path.clone(), recipe);
        let path_lock = Arc::new(Self::new(
            Arc::clone(registry),
            Arc::clone(client),
            path,
            options,
            queue,
        ));
        // The registry has been locked since the look-up, so no other thread has made a second
        // value for this key.
        entries.insert(key, Arc::downgrade(&path_lock));
        Ok(path_lock)
    }

    fn new(
        registry: Arc<Registry<Key, Self>>,
        client: Arc<Core>,
        path: LockPath,
        options: LockOptions,
        queue: Arc<SharedQueue>,
    ) -> Self {
        let shared = SharedPath::new(options.hand_off, client.guard_changes.clone());
        Self {
            registry,
            client,
            path,
            slots: Slots::new(options.node_limit),
            options,
            queue,
            shared,
            foreign_reported: AtomicBool::new(false),
            self_wait: AtomicBool::new(false),
            first_seen: FirstSeen::default(),
        }
    }

    /// Returns the data of a node that is created now.
    pub(crate) fn node_data(&self) -> Cow<'_, [u8]> {
        match &self.options.data {
            Some(data) => Cow::Borrowed(data),
            None => Cow::Owned(self.client.process.data()),
        }
    }

    /// Returns the largest number of bytes that these data can have.
    pub(crate) fn most_data(&self) -> usize {
        self.options
            .data
            .as_ref()
            .map_or(Process::MOST_BYTES, |data| data.len())
    }

    /// Returns the owner of its nodes, for the session.
    pub(crate) fn as_owner(&self) -> Weak<dyn NodeOwner> {
        let owner: Weak<SharedQueue> = Arc::downgrade(&self.queue);
        owner
    }

    /// Returns whether the callers that ask for a lock of this kind wait together, behind one node,
    /// and have nodes one after the other or at once. All other callers have nodes of their own.
    pub(crate) fn waits_together(&self, kind: Kind) -> bool {
        match self.options.recipe {
            Recipe::Mutex => kind == Kind::Exclusive,
            Recipe::ReadWriteLock => true,
            Recipe::FairLock | Recipe::Semaphore | Recipe::LeaderLatch => false,
        }
    }

    /// Returns whether each contender has a node from the beginning
    /// (docs/protocol.md#fair-waiters). There may be thousands, more than a session can watch: they
    /// wait in memory for a predecessor of the same session, and those that arrive together share
    /// one list. The other queues look from outside as their recipes say
    /// (docs/protocol.md#seen-from-outside).
    pub(crate) fn is_fair(&self) -> bool {
        match self.options.recipe {
            Recipe::FairLock => true,
            Recipe::Mutex | Recipe::ReadWriteLock | Recipe::Semaphore | Recipe::LeaderLatch => {
                false
            }
        }
    }

    /// Returns whether errors need not ask who is first, because a hold of this client excludes all
    /// others.
    pub(crate) fn is_first_by_itself(&self) -> bool {
        let excludes = |holder: &LocalOwner| holder.held.kind() == Kind::Exclusive;
        // A permit excludes no other permit, so the first lease may be that of another client.
        self.options.semaphore.is_none()
            && self
                .holders()
                .iter()
                .any(|holder| excludes(holder) && holder.holds())
    }

    /// Returns the directory with the nodes of the holders: that of the queue, or of a semaphore
    /// that of the leases.
    pub(crate) fn directory_of_holders(&self) -> &LockPath {
        let semaphore = self.options.semaphore.as_ref();
        semaphore.map_or(&self.path, |semaphore| &semaphore.leases)
    }

    /// Returns who holds the lock, for an error; `None` if that is not known.
    fn held_by(&self) -> Option<Box<Contender>> {
        let contender = self.first_seen.contender()?;
        // A node of this client that is being deleted holds nothing.
        let session = self.client.live();
        let is_leaving = session.is_some_and(|session| {
            let directory = self.directory_of_holders();
            session.nodes.is_leaving(directory, contender.node().name())
        });
        (!is_leaving).then(|| Box::new(contender))
    }

    /// Returns the hold of this client for which a contender of this kind would have to wait;
    /// `None` if there is none.
    pub(crate) fn holder_for(&self, kind: Kind) -> Option<LocalOwner> {
        first_for(kind, self.holders())
    }

    /// Returns that hold as a contender ahead. `None` for a semaphore, because a permit of this
    /// client does not block another for certain.
    pub(crate) fn own_ahead(&self, kind: Kind) -> Option<Ahead> {
        if self.options.semaphore.is_some() {
            return None;
        }
        self.holder_for(kind).map(|holder| self.ahead(&holder))
    }

    /// Returns the hold of this client that is in the way of a try. A grant on its way to a caller
    /// does not count: the caller may have left, and then its node is about to be deleted
    /// (docs/protocol.md#live-contender).
    pub(crate) fn ahead_of_try(&self, kind: Kind) -> Option<Ahead> {
        let mut holders = self.holders();
        holders.retain(|holder| holder.held.is_received());
        first_for(kind, holders).map(|holder| self.ahead(&holder))
    }

    fn ahead(&self, holder: &LocalOwner) -> Ahead {
        Ahead {
            count: 1,
            first: Some(self.path.user_child(&holder.held.name())),
        }
    }

    /// Returns the hold of this client that blocks another of this kind; `None` if there is none.
    pub(crate) fn local_holder(&self, kind: Kind) -> Option<Box<Holding>> {
        self.holder_for(kind)
            .map(|holder| Box::new(holder.as_holding(self.path.user())))
    }

    /// Returns the error of a call that was not granted within `asked`, of which it has `waited`.
    pub(crate) fn late(
        &self,
        waiting: Waiting,
        kind: Kind,
        asked: Duration,
        waited: Duration,
    ) -> AcquireError {
        // The time has passed, so the deadline only selects the kind of the error. An error never
        // reports a shorter wait than the caller asked for.
        let (budget, waited) = (
            Budget::Until {
                deadline: Instant::now(),
                asked,
            },
            waited.max(asked),
        );
        self.out_of_time(waiting, kind, budget, waited)
            .timed_out(asked, waited)
    }

    /// Returns the error of a call whose time has passed.
    pub(crate) fn out_of_time(
        &self,
        waiting: Waiting,
        kind: Kind,
        budget: Budget,
        waited: Duration,
    ) -> TryLockError {
        match waiting.late(budget.if_busy(), || self.own_ahead(kind)) {
            Late::Busy(ahead) => match (budget, self.would_block(kind, ahead)) {
                (Budget::Until { asked, .. }, busy) => busy.timed_out(asked, waited).into(),
                (Budget::Try { .. } | Budget::Forever, busy) => busy,
            },
            // Another process has deleted the directory, but no node of this call.
            Late::Deleted(0) => self.failed(RequestFailure::Deleted).into(),
            Late::Deleted(times) => AcquireError::NodeDeleted {
                path: self.path.user().to_owned(),
                times,
            }
            .into(),
            Late::NoAnswer(waits_for) => {
                // Without a session, the reason of the last failed connection explains the missing
                // answer.
                let source = self.client.why_no_session();
                let why = NoAnswer {
                    waits_for,
                    waited,
                    source,
                };
                self.failed(RequestFailure::Connection(Arc::new(why)))
                    .into()
            }
        }
    }

    /// Returns the error of a try that has found other contenders.
    pub(crate) fn would_block(&self, kind: Kind, ahead: Ahead) -> TryLockError {
        let contention = Contention {
            ahead: ahead.count,
            first: ahead.first,
            held_by: self.held_by(),
            holder: self.local_holder(kind),
        };
        TryLockError::WouldBlock {
            path: self.path.user().to_owned(),
            contention,
        }
    }

    /// Returns the error of a request that failed.
    pub(crate) fn error(&self, purpose: Purpose, why: impl Into<RequestFailure>) -> Error {
        self.client.error(purpose, self.path.user(), why)
    }

    /// Returns the error of a request for the lock itself that failed.
    pub(crate) fn failed(&self, why: impl Into<RequestFailure>) -> AcquireError {
        self.error(Purpose::Lock, why).into()
    }

    /// Returns the error of a call for whose nodes the session has no room.
    pub(crate) fn too_many_nodes(&self, session: &Session) -> AcquireError {
        AcquireError::TooManyNodes {
            path: self.path.user().to_owned(),
            max: session.nodes.creates.max_bytes(),
        }
    }

    /// Returns the error of a call whose client has ended.
    pub(crate) fn ended(&self) -> AcquireError {
        self.client.ended_error(&self.path)
    }

    /// Returns the error of a lock that was lost before its caller had it, with no time left.
    pub(crate) fn lost_at_once(&self, reason: LostReason) -> AcquireError {
        let path = self.path.user();
        match reason {
            LostReason::NodeDeleted => AcquireError::NodeDeleted {
                path: path.to_owned(),
                times: 1,
            },
            LostReason::LeaseOver => AcquireError::LeaseOver {
                path: path.to_owned(),
            },
            // A lock that no caller has had can otherwise be lost only if its session ends or the
            // session lease expires.
            reason => self.failed(RequestFailure::Connection(Arc::new(Lost {
                path: path.into(),
                reason,
            }))),
        }
    }

    /// Returns whether a guard of this path lock holds the lock, as this kind.
    pub(crate) fn is_held(&self, kind: Kind) -> bool {
        self.holders()
            .iter()
            .any(|holder| holder.held.kind() == kind && holder.holds())
    }

    /// Returns copies of the holders: asking one whether it holds may call foreign code, which must
    /// find the mutex free.
    pub(crate) fn holders(&self) -> Vec<LocalOwner> {
        self.shared.holders()
    }

    /// Returns whether no other call that waits for a hold of the same client is being checked or
    /// was logged, and records that one is being checked.
    pub(crate) fn begin_self_wait(&self) -> bool {
        // The flag protects no other data, so its order among other accesses does not matter.
        !self.self_wait.swap(true, Ordering::Relaxed)
    }

    /// Returns whether such a call is being checked, or was logged.
    pub(crate) fn is_self_wait_known(&self) -> bool {
        self.self_wait.load(Ordering::Relaxed)
    }

    /// Records that there was nothing to log.
    pub(crate) fn end_self_wait(&self) {
        self.self_wait.store(false, Ordering::Relaxed);
    }

    /// Logs once that the directory has children that no lock recipe created.
    pub(crate) fn report_foreign_children(&self, queue: &Queue) {
        // Curator's processes wait for such a child if its name sorts before the sequence numbers
        // (docs/protocol.md#contenders), so an operator should know of it.
        let [foreign_child, ..] = &*queue.foreign_children else {
            return;
        };
        if !self.foreign_reported.swap(true, Ordering::Relaxed) {
            let (path, count) = (self.path.user(), queue.foreign_children.len());
            log::warn!(
                path,
                foreign_child,
                count,
                "a lock's directory has children that are not contenders; they are ignored, but Curator peers may wait for them"
            );
        }
    }
}

/// Returns the first of the holders for which a contender of this kind would have to wait. `None`
/// if there is none.
fn first_for(kind: Kind, holders: Vec<LocalOwner>) -> Option<LocalOwner> {
    let in_the_way =
        |holder: &LocalOwner| kind == Kind::Exclusive || holder.held.kind() == Kind::Exclusive;
    let mut holders = holders.into_iter();
    holders.find(|holder| in_the_way(holder) && holder.holds())
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // A woken task finds that its path lock is gone, and ends. Without this, it would wait for
        // further callers, of which there can be none.
        for kind in [Kind::Exclusive, Kind::Shared] {
            self.shared.wake.of(kind).notify_one();
        }
        self.registry
            .forget(&(self.path.clone(), self.options.recipe));
    }
}
