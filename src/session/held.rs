//! One held lock, as far as its session is concerned: by what node it is held, in whose hand that node is, and whether
//! the lock is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::engine::places::Place;
use crate::error::LostReason;
use crate::path::LockPath;
use crate::protocol::node_name::Kind;

/// One held lock.
#[derive(Debug)]
pub(crate) struct Held {
    directory: LockPath,
    /// Of the attempt that got it; see [`Tickets`](crate::session::cleanup::Tickets).
    number: u64,
    standing: Mutex<HeldBy>,
    lost: watch::Sender<Option<LostReason>>,
    /// Transactions under it whose outcome is not known (yet).
    writing: AtomicUsize,
    /// Somebody has asked for it back; a conversion does not undo that.
    revocation_requested: AtomicBool,
    /// The place in the path lock's gate, until the node is handed to the cleanup or gone with its session.
    permit: Mutex<Option<Arc<Place>>>,
}

/// The node that a lock is held by. A conversion exchanges it.
#[derive(Debug)]
struct HeldBy {
    name: Arc<str>,
    kind: Kind,
    hand: Hand,
}

/// In whose hand the node of a hold is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// Ours; the beats look after it.
    Held,
    /// A conversion's: which node there is cannot be told at the moment. No beat asks, and what is given back meanwhile
    /// is cleaned up by the conversion.
    Converting,
    /// Still ours although the lock is lost: until the last guard is gone, or the servers may have given it away anyway, so
    /// that the holder has time to stop. No beat asks for it.
    Kept,
    /// The cleanup's, or, if that happened during a conversion, the conversion's.
    Released,
}

impl Held {
    pub(crate) fn new(
        directory: LockPath,
        name: &str,
        kind: Kind,
        permit: Option<Arc<Place>>,
        number: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            directory,
            number,
            standing: Mutex::new(HeldBy { name: name.into(), kind, hand: Hand::Held }),
            lost: watch::Sender::new(None),
            writing: AtomicUsize::new(0),
            revocation_requested: AtomicBool::new(false),
            permit: Mutex::new(permit),
        })
    }

    pub(super) fn directory(&self) -> &LockPath {
        &self.directory
    }

    fn standing(&self) -> MutexGuard<'_, HeldBy> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of its node.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.standing().name)
    }

    /// What it is held as.
    pub(crate) fn kind(&self) -> Kind {
        self.standing().kind
    }

    /// The number of the attempt that got it, which no other hold of the client has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How it was lost, if that is known already; [`Session::check`] also asks the clock.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        *self.lost.borrow()
    }

    /// Changes once, when it is lost.
    pub(crate) fn watch_lost(&self) -> watch::Receiver<Option<LostReason>> {
        self.lost.subscribe()
    }

    /// A transaction is about to be sent.
    pub(crate) fn begin_write(&self) {
        self.writing.fetch_add(1, Ordering::AcqRel);
    }

    /// Its outcome is known.
    pub(crate) fn end_write(&self) {
        self.writing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the outcome of a transaction is not known.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::Acquire) > 0
    }

    /// Somebody asks for it back.
    pub(crate) fn request_revocation(&self) {
        self.revocation_requested.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for it back, as far as was looked.
    pub(crate) fn is_revocation_requested(&self) -> bool {
        self.revocation_requested.load(Ordering::Relaxed)
    }

    /// The place in the gate, which is not a live contender's any more.
    pub(super) fn take_permit(&self) -> Option<Arc<Place>> {
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        let place = permit.take();
        // Under the lock: an attempt that finds the place taken from its hold may make it live again.
        if let Some(place) = &place {
            place.set_live(false);
        }
        place
    }

    /// Whether its node is no more ours to look after: given back, or kept only until the holder has stopped.
    pub(crate) fn is_released(&self) -> bool {
        matches!(self.standing().hand, Hand::Kept | Hand::Released)
    }

    /// Whether it is held by the node `name` of its directory, and nobody is about to change that.
    pub(crate) fn is_held_by(&self, path: &str) -> bool {
        let standing = self.standing();
        standing.hand == Hand::Held && path.ends_with(&*standing.name)
    }

    /// Marks it lost; false if it was already. Those that wait for that are woken by [`tell_lost`](Self::tell_lost), and not
    /// before: a waker may do anything.
    pub(super) fn mark_lost(&self, reason: LostReason) -> bool {
        let mut first = false;
        self.lost.send_if_modified(|lost| {
            first = lost.is_none();
            if first {
                *lost = Some(reason);
            }
            false
        });
        first
    }

    /// Wakes those that wait for its loss.
    pub(super) fn tell_lost(&self) {
        self.lost.send_modify(|_| {});
    }

    /// Marks it given back; answers in whose hand it was, and the name of its node.
    pub(super) fn mark_released(&self) -> (Hand, Arc<str>) {
        let mut standing = self.standing();
        (std::mem::replace(&mut standing.hand, Hand::Released), Arc::clone(&standing.name))
    }

    /// It is lost, and its node is kept; answers with the node's name, or nothing if it was not held. What is lost during a
    /// conversion is given back, to it.
    pub(super) fn keep(&self) -> Option<Arc<str>> {
        let mut standing = self.standing();
        let kept = standing.hand == Hand::Held;
        match standing.hand {
            Hand::Held => standing.hand = Hand::Kept,
            Hand::Converting => standing.hand = Hand::Released,
            Hand::Kept | Hand::Released => {}
        }
        kept.then(|| Arc::clone(&standing.name))
    }

    /// Puts it into a conversion's hand, where the clock goes on; false if it has been given back.
    pub(crate) fn begin_conversion(&self) -> bool {
        let mut standing = self.standing();
        let held = standing.hand == Hand::Held;
        if held {
            standing.hand = Hand::Converting;
        }
        held
    }

    /// It is held by the node `name`, as `kind`, from here on; false if it was given back meanwhile.
    pub(super) fn end_conversion(&self, name: &str, kind: Kind) -> bool {
        let mut standing = self.standing();
        let converting = standing.hand == Hand::Converting;
        if converting {
            *standing = HeldBy { name: name.into(), kind, hand: Hand::Held };
        }
        converting
    }
}
