//! The locks that are held in one session, and those that are lost with a node that is kept.
//!
//! ```text
//!   registration of the lock | table           | read
//!   -------------------------+-----------------+------------------------------------------------
//!   Active, without a lease  | active          | by heartbeats, when the session lease expires,
//!                            |                 | and when the session ends
//!   Active, with a lease     | active, and     | in the same cases, and when the lease of the
//!                            | hold_lease_ends | hold ends
//!   Kept until a moment      | kept            | at that moment, and when the session ends
//!   None                     |                 |
//! ```
//!
//! Heartbeats check the nodes of held locks (docs/protocol.md#node-deleted-by-hand). The session
//! notifies locks when its lease expires, when a lease that their caller has set ends
//! (docs/protocol.md#lease-over), when the session ends, and when the node of a lost lock need not
//! be kept any longer (docs/protocol.md#lost-lock-keeps-its-node). When one of several locks that
//! form one value is lost, [`Bond`] notifies the others (docs/protocol.md#one-value).
//!
//! A lock registers itself: after each change of its state, the session reads under the table's
//! mutex how the lock is to be registered. So if two threads change the state, the later one
//! registers both changes. All events are handled after the mutex is unlocked, from a copy of the
//! table. A lock that has left the table by then handles its event as a lock that has ended.
//!
//! The table is one of holds and not of nodes, by the numbers of the holds: readers share a node,
//! and each of them is notified (docs/protocol.md#shared-read-node).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::protocol::hold::{HoldEvent, Registration};
use crate::protocol::moment::Moment;
use crate::protocol::numbers::HoldNumber;
use crate::session::threads::mutex::Mutex;
use crate::values::path::LockPath;

/// A lock that is or was held, as its session sees it.
pub(crate) trait SessionLock: Send + Sync {
    /// Returns the number of the hold, which is unique in the client.
    fn number(&self) -> HoldNumber;

    fn directory(&self) -> &LockPath;

    /// Returns the name of its node.
    fn node(&self) -> Arc<str>;

    /// Returns whether a heartbeat may check the node with this name.
    fn is_held_by(&self, node: &str) -> bool;

    /// Returns how the session registers the lock in its state at this moment.
    fn registration(&self) -> Registration;

    /// Handles an event. The handler calls wakers of other executors, so the caller must hold no
    /// mutex of the session.
    fn on(self: Arc<Self>, event: HoldEvent);
}

/// A node by which a lock is held.
#[derive(Clone)]
pub(crate) struct LockNode {
    pub(crate) lock: Arc<dyn SessionLock>,
    pub(crate) name: Arc<str>,
    /// Its server path.
    pub(crate) path: String,
}

impl LockNode {
    fn new(lock: &Arc<dyn SessionLock>) -> Self {
        let name = lock.node();
        Self {
            path: lock.directory().child(&name),
            lock: Arc::clone(lock),
            name,
        }
    }

    /// Returns whether the lock is still held by this node, and no conversion of it is under way.
    pub(crate) fn is_held(&self) -> bool {
        self.lock.is_held_by(&self.name)
    }
}

/// The locks of one session, by their numbers.
#[derive(Default)]
pub(crate) struct SessionLocks(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    /// Locks that are held, and lost locks whose node the session or a conversion still has.
    /// Heartbeats and the clock check only these locks, so that other lost locks do not slow them
    /// down.
    active: BTreeMap<HoldNumber, Active>,
    /// The ends of the leases that callers have set for active locks, with the numbers of the
    /// locks.
    hold_lease_ends: BTreeSet<(Moment, HoldNumber)>,
    /// Lost locks whose nodes are kept until this moment.
    kept: BTreeMap<HoldNumber, (Moment, Arc<dyn SessionLock>)>,
}

struct Active {
    lock: Arc<dyn SessionLock>,
    /// When the lease that the caller has set ends.
    lease_end: Option<Moment>,
}

impl Registered {
    fn activate(
        &mut self,
        number: HoldNumber,
        lock: &Arc<dyn SessionLock>,
        lease_end: Option<Moment>,
    ) {
        // An earlier end of the lease would end a lock whose lease the caller has extended.
        self.deactivate(number);
        self.active.insert(
            number,
            Active {
                lock: Arc::clone(lock),
                lease_end,
            },
        );
        self.hold_lease_ends
            .extend(lease_end.map(|end| (end, number)));
    }

    fn deactivate(&mut self, number: HoldNumber) {
        // The caller of `update` has another reference to the lock. So the last one is never
        // dropped here, under the mutex, where the drop could call other code.
        if let Some(end) = self
            .active
            .remove(&number)
            .and_then(|active| active.lease_end)
        {
            self.hold_lease_ends.remove(&(end, number));
        }
    }

    fn locks(&self) -> impl Iterator<Item = &Arc<dyn SessionLock>> {
        self.active.values().map(|active| &active.lock)
    }
}

impl SessionLocks {
    /// Registers a lock under its current state, or forgets it. A lock calls this after each change
    /// of its state. Returns whether this is the first active lock, and the end of the lease that
    /// its caller has set.
    pub(crate) fn update(&self, lock: &Arc<dyn SessionLock>) -> (bool, Option<Moment>) {
        // The mutex of the table is locked before that of the lock's state, here and wherever both
        // are needed. A lock calls this function after it has unlocked its state.
        let number = lock.number();
        let mut state = self.0.lock();
        let none = state.active.is_empty();
        let mut new_end = None;
        // The registration is read under the mutex, so that the later of two threads that have
        // changed the state registers both changes.
        match lock.registration() {
            // The lock is held, or is lost and its node is left to the session or a conversion.
            Registration::Active { lease_end } => {
                state.kept.remove(&number);
                state.activate(number, lock, lease_end);
                new_end = lease_end;
            }
            // Heartbeats do not check the node of a lost lock, because the end of that node changes
            // nothing for the holder.
            Registration::Kept { until } => {
                state.deactivate(number);
                state.kept.insert(number, (until, Arc::clone(lock)));
            }
            // The lock is released, or its node does not exist, or cleanup has the node.
            Registration::None => {
                state.kept.remove(&number);
                state.deactivate(number);
            }
        }
        // The lease thread has to be woken for the first lock of a session only: the others have
        // the same session lease.
        (none && !state.active.is_empty(), new_end)
    }

    /// Returns the locks whose hold leases have ended.
    pub(crate) fn hold_leases_over(&self, now: Moment) -> Vec<Arc<dyn SessionLock>> {
        let state = self.0.lock();
        // The ends are ordered, so locks whose leases last longer cost nothing here.
        let over = state
            .hold_lease_ends
            .iter()
            .take_while(|(end, _)| *end <= now);
        over.filter_map(|(_, number)| state.active.get(number))
            .map(|active| Arc::clone(&active.lock))
            .collect()
    }

    /// Returns when the next lease that a caller has set ends; `None` if there is none.
    pub(crate) fn next_hold_lease_end(&self) -> Option<Moment> {
        self.0.lock().hold_lease_ends.first().map(|(end, _)| *end)
    }

    /// Returns whether there are locks that are held, or lost locks whose node the session or a
    /// conversion still has.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().active.is_empty()
    }

    /// Returns the active locks: the held ones, and lost locks whose node the session or a
    /// conversion still has.
    pub(crate) fn active(&self) -> Vec<Arc<dyn SessionLock>> {
        self.0.lock().locks().map(Arc::clone).collect()
    }

    /// Returns the nodes of the active locks. `LockNode::is_held` shows which of them are held.
    pub(crate) fn nodes(&self) -> Vec<LockNode> {
        self.0.lock().locks().map(LockNode::new).collect()
    }

    /// Returns the nodes of all locks, including those of lost locks that are kept.
    pub(crate) fn all(&self) -> Vec<LockNode> {
        let state = self.0.lock();
        let kept = state.kept.values().map(|(_, lock)| lock);
        state.locks().chain(kept).map(LockNode::new).collect()
    }

    /// Returns the lost locks whose nodes need not be kept any longer, and how long until the next
    /// one.
    pub(crate) fn overdue(&self, now: Moment) -> (Vec<Arc<dyn SessionLock>>, Option<Duration>) {
        // Losses are rare, so the whole table is read. `since` is zero for a moment that has
        // passed.
        let (mut over, mut next) = (Vec::new(), None::<Duration>);
        for (until, lock) in self.0.lock().kept.values() {
            match until.since(now) {
                Duration::ZERO => over.push(Arc::clone(lock)),
                left => next = Some(next.map_or(left, |next| next.min(left))),
            }
        }
        (over, next)
    }
}

/// Several locks that their holder has as one value. The references are weak, because each lock has
/// a reference to this.
pub(crate) struct Bond<L> {
    /// The holds; empty once a hold is lost, so that the others are notified only once.
    holds: Mutex<Vec<Weak<L>>>,
    /// The path of the lock that was lost first.
    first_lost: OnceLock<Arc<str>>,
}

impl<L> Bond<L> {
    pub(crate) fn new(holds: Vec<Weak<L>>) -> Arc<Self> {
        Arc::new(Self {
            holds: Mutex::new(holds),
            first_lost: OnceLock::new(),
        })
    }
}

/// The bond of a hold; `None` if the hold is not bound to others.
pub(crate) struct Bound<L>(Mutex<Option<Arc<Bond<L>>>>);

impl<L> Default for Bound<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: SessionLock> Bound<L> {
    pub(crate) fn set(&self, bond: Option<Arc<Bond<L>>>) {
        // The previous bond is dropped after the mutex is unlocked.
        let _before = std::mem::replace(&mut *self.0.lock(), bond);
    }

    /// Notifies the holds of the value, once, that the hold at this path is lost. Each hold gets
    /// the event that `event` returns for it, if any (docs/protocol.md#one-value).
    pub(crate) fn notify_others(&self, path: &str, event: impl Fn(&L) -> Option<HoldEvent>) {
        let Some(bond) = self.0.lock().clone() else {
            return;
        };
        // The first hold that is lost takes all references. So of two threads that lose two holds
        // at the same time one notifies the others, and the notified holds notify none.
        let holds = std::mem::take(&mut *bond.holds.lock());
        // A hold without references has been released, and has no holder to notify.
        let notified = holds.iter().filter_map(Weak::upgrade);
        let notified: Vec<_> = notified
            .filter_map(|hold| event(&hold).map(|event| (hold, event)))
            .collect();
        if notified.is_empty() {
            // The session ends all holds of the value separately, so each reports its own path.
            return;
        }
        // The path is set before the others are notified, so that a task that finds one of them
        // lost can report which was lost first.
        bond.first_lost.get_or_init(|| path.into());
        // The lost hold is among them, and ignores the event. No mutex is locked here, because an
        // event calls wakers of other executors.
        for (hold, event) in notified {
            hold.on(event);
        }
    }

    /// Returns the path of the hold of the value that was lost first; `None` if none was.
    pub(crate) fn first_lost(&self) -> Option<Arc<str>> {
        self.0
            .lock()
            .as_ref()
            .and_then(|bond| bond.first_lost.get().cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LostReason;
    use crate::protocol::numbers::by_value::hold_number;

    #[derive(Debug)]
    struct Lock {
        number: HoldNumber,
        directory: LockPath,
        registration: Mutex<Registration>,
        told: Mutex<Vec<HoldEvent>>,
    }

    fn lock(number: u64, registration: Registration) -> Arc<Lock> {
        let directory = LockPath::parse("", "/lock").unwrap();
        Arc::new(Lock {
            number: hold_number(number),
            directory,
            registration: Mutex::new(registration),
            told: Mutex::default(),
        })
    }

    impl SessionLock for Lock {
        fn number(&self) -> HoldNumber {
            self.number
        }

        fn directory(&self) -> &LockPath {
            &self.directory
        }

        fn node(&self) -> Arc<str> {
            "node".into()
        }

        fn is_held_by(&self, node: &str) -> bool {
            node == "node" && matches!(self.registration(), Registration::Active { .. })
        }

        fn registration(&self) -> Registration {
            *self.registration.lock()
        }

        fn on(self: Arc<Self>, event: HoldEvent) {
            self.told.lock().push(event);
        }
    }

    fn numbers<const N: usize>(values: [u64; N]) -> Vec<HoldNumber> {
        values.map(hold_number).to_vec()
    }

    const AT: fn(u64) -> Moment = |seconds| Moment::at(Duration::from_secs(seconds));

    #[test]
    fn lost_nodes_are_kept_until_due() {
        let holds = SessionLocks::default();
        let update = |number, registration| {
            let lock: Arc<dyn SessionLock> = lock(number, registration);
            holds.update(&lock);
        };
        let overdue = |now| {
            let (over, next) = holds.overdue(AT(now));
            (
                over.iter().map(|lock| lock.number()).collect::<Vec<_>>(),
                next,
            )
        };
        assert!(!holds.any());
        update(1, Registration::Active { lease_end: None });
        assert!(holds.any());
        assert_eq!(overdue(20), (vec![], None));
        update(2, Registration::Kept { until: AT(30) });
        update(3, Registration::Kept { until: AT(60) });
        assert_eq!(
            holds
                .nodes()
                .iter()
                .map(|node| &*node.path)
                .collect::<Vec<_>>(),
            ["/lock/node"]
        );
        assert_eq!(holds.all().len(), 3);
        assert_eq!(overdue(20), (vec![], Some(Duration::from_secs(10))));
        assert_eq!(overdue(30), (numbers([2]), Some(Duration::from_secs(30))));
        let held = |nodes: Vec<LockNode>| nodes.iter().filter(|node| node.is_held()).count();
        assert_eq!(
            (held(holds.nodes()), held(holds.all())),
            (1, 1),
            "two are lost"
        );
    }

    #[test]
    fn lease_ends_cover_current_holds() {
        let holds = SessionLocks::default();
        let update = |number, registration| {
            let lock: Arc<dyn SessionLock> = lock(number, registration);
            holds.update(&lock)
        };
        let until = |end: Option<u64>| Registration::Active {
            lease_end: end.map(AT),
        };
        let over = |now| {
            let mut over: Vec<_> = holds
                .hold_leases_over(AT(now))
                .iter()
                .map(|lock| lock.number())
                .collect();
            over.sort_unstable();
            over
        };
        assert_eq!(holds.next_hold_lease_end(), None);
        assert!(update(1, until(None)).0);
        assert_eq!(holds.next_hold_lease_end(), None);
        for (number, end) in [(2, 30), (3, 20), (4, 20), (5, 40)] {
            assert_eq!(update(number, until(Some(end))), (false, Some(AT(end))));
        }
        assert_eq!(
            (holds.next_hold_lease_end(), over(19), over(20)),
            (Some(AT(20)), vec![], numbers([3, 4]))
        );
        // Later, none, lost with a node that is kept, released: no earlier end is left of any.
        assert_eq!(update(3, until(Some(50))).1, Some(AT(50)));
        assert_eq!(
            (holds.next_hold_lease_end(), over(30)),
            (Some(AT(20)), numbers([2, 4]))
        );
        update(4, until(None));
        assert_eq!(
            (holds.next_hold_lease_end(), over(30)),
            (Some(AT(30)), numbers([2]))
        );
        update(2, Registration::Kept { until: AT(60) });
        assert_eq!(
            (holds.next_hold_lease_end(), over(45)),
            (Some(AT(40)), numbers([5]))
        );
        update(5, Registration::None);
        assert_eq!(
            (holds.next_hold_lease_end(), over(60)),
            (Some(AT(50)), numbers([3]))
        );
        // Sooner.
        update(3, until(Some(10)));
        assert_eq!(
            (holds.next_hold_lease_end(), over(10)),
            (Some(AT(10)), numbers([3]))
        );
        assert_eq!(holds.active().len(), 3);
    }

    // Shows: one-value
    #[test]
    fn sibling_holds_are_notified_once() {
        let event = |seconds| HoldEvent::OtherLost {
            reason: LostReason::LeaseOver,
            until: Some(AT(seconds)),
        };
        let each = |seconds| move |_: &Lock| Some(event(seconds));
        let locks = [1, 2].map(|number| lock(number, Registration::None));
        let told = || locks.each_ref().map(|lock| lock.told.lock().clone());
        // A lock that is gone is not told.
        let all = locks
            .iter()
            .cloned()
            .chain([lock(3, Registration::None)])
            .map(|lock| Arc::downgrade(&lock))
            .collect();
        let bond = Bond::new(all);
        let bounds = [Bound::default(), Bound::default()];
        bounds[0].notify_others("/a", each(1));
        for bound in &bounds {
            bound.set(Some(Arc::clone(&bond)));
        }
        assert_eq!((told(), bounds[1].first_lost()), ([vec![], vec![]], None));
        bounds[0].notify_others("/a", each(2));
        bounds[1].notify_others("/b", each(3));
        assert_eq!(told(), [vec![event(2)], vec![event(2)]]);
        assert_eq!(
            bounds.each_ref().map(Bound::first_lost),
            [Some("/a".into()), Some("/a".into())]
        );
        bounds[1].set(None);
        assert_eq!(bounds[1].first_lost(), None);
    }
}
