//! Collects orphans to delete: the nodes of released and dropped guards, of cancelled and timed-out
//! attempts, and nodes that may or may not exist (docs/protocol.md#cleanup). Cleanup owns a node
//! from its submission to its end (docs/protocol.md#node-owners).
//!
//! Submitting an item never blocks, so a `Drop` can do it: it marks the nodes as leaving, and sends
//! the item to the [task](super::settle) on the session's thread. The queue between the two needs no
//! bound of its own, because an item is a node, and nodes are bounded.
//!
//! A [`Ticket`] counts an item until it is done. A flush waits for the tickets of all attempts that
//! began before it (docs/protocol.md#flush), so a ticket is made before the state that it covers
//! can be seen: before a lock counts as released, and before a caller that has left is forgotten.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use crate::error::{Lost, LostReason, ReleaseError};
use crate::protocol::numbers::AttemptNumber;
use crate::session::contents::creates::AbandonedCreate;
use crate::session::live::zk_session::Session;
use crate::values::path::LockPath;

/// The nodes to delete: no attempt and no guard needs them any more.
pub(crate) enum Orphan {
    /// The node with this name, which exists or has existed.
    Node(String),
    /// The same, of a hold: other contenders wait for its deletion. `hand_over` is whether the lock
    /// may be handed over to the next attempt of this session, which it may not be if it was lost.
    Hold { name: String, hand_over: bool },
    /// These nodes, which may exist, one after the other.
    Nodes(Vec<String>),
    /// The node of this create, whose outcome is unknown. If the node exists, its name begins with
    /// `beginning`.
    UnknownCreate {
        create: AbandonedCreate,
        beginning: String,
    },
}

/// An orphan, and the values that wait for its deletion.
pub(crate) struct Item {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: LockPath,
    pub(crate) orphan: Orphan,
    /// The number of the attempt that it comes from; see [`Tickets`].
    pub(crate) number: AttemptNumber,
    /// The slot of the attempt, which is free when this is dropped: when the node is gone.
    pub(crate) until_gone: Option<Arc<OwnedSemaphorePermit>>,
    /// Receives the result.
    pub(crate) done: Option<Done>,
}

/// Where the result of an item is sent.
pub(crate) type Done = oneshot::Sender<Result<(), ReleaseError>>;

/// The items to delete, each with the ticket that counts it.
pub(crate) type CleanupQueue = mpsc::UnboundedReceiver<(Item, Ticket)>;

/// The outstanding work of cleanup, by the number of the attempt that it comes from.
///
/// An attempt gets its number when it begins, and everything that it leaves to cleanup keeps that
/// number, whatever tasks it passes through. So a flush knows by the numbers which work began
/// before it.
#[derive(Default)]
pub(crate) struct Tickets {
    /// The number of the next attempt.
    pub(crate) next: AttemptNumber,
    /// How many tickets each number has.
    outstanding: BTreeMap<AttemptNumber, usize>,
}

impl Tickets {
    /// Returns how many attempts have work outstanding.
    pub(crate) fn count(&self) -> usize {
        self.outstanding.len()
    }

    /// Returns how many attempts with a number below `limit` have work outstanding.
    pub(crate) fn count_before(&self, limit: AttemptNumber) -> usize {
        self.outstanding.range(..limit).count()
    }

    /// Returns whether no attempt with a number below `limit` has work outstanding.
    pub(crate) fn none_before(&self, limit: AttemptNumber) -> bool {
        self.outstanding
            .first_key_value()
            .is_none_or(|(first, _)| *first >= limit)
    }
}

/// One piece of outstanding work: counted in [`Tickets`] until it is dropped.
pub(crate) struct Ticket {
    number: AttemptNumber,
    tickets: watch::Sender<Tickets>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tickets.send_if_modified(|tickets| {
            let Entry::Occupied(mut count) = tickets.outstanding.entry(self.number) else {
                return false;
            };
            *count.get_mut() -= 1;
            let is_last = *count.get() == 0;
            if is_last {
                count.remove();
            }
            is_last
        });
    }
}

/// The sending side of cleanup; cheap to clone.
#[derive(Clone)]
pub(crate) struct Cleanup {
    items: mpsc::UnboundedSender<(Item, Ticket)>,
    pending: watch::Sender<Tickets>,
}

impl Cleanup {
    /// Returns a cleanup and its queue, for the [task](crate::session::leftovers::settle)
    /// that does its work.
    pub(crate) fn new() -> (Self, CleanupQueue) {
        let (items, queue) = mpsc::unbounded_channel();
        let pending = watch::Sender::new(Tickets::default());
        (Self { items, pending }, queue)
    }

    /// Submits an item. Its queue is bounded by the number of nodes, which the slots of the path
    /// locks limit.
    pub(crate) fn submit(&self, item: Item) {
        let ticket = self.ticket(item.number);
        let leave = |name: &str| item.session.nodes.mark_leaving(item.directory.child(name));
        match &item.orphan {
            Orphan::Node(name) | Orphan::Hold { name, .. } => leave(name),
            Orphan::Nodes(names) => names.iter().for_each(|name| leave(name)),
            Orphan::UnknownCreate { .. } => {}
        }
        if let Err(mpsc::error::SendError((item, _ticket))) = self.items.send((item, ticket)) {
            // The session's thread has stopped, so the session is closed and its nodes are deleted.
            finish(item.done, Err(lost(&item.directory, LostReason::Closed)));
        }
    }

    /// Returns the number of a new attempt that may get this many holds, each of which has a number.
    pub(crate) fn number(&self, holds: u32) -> AttemptNumber {
        let mut number = AttemptNumber::default();
        self.pending.send_if_modified(|tickets| {
            number = tickets.next;
            tickets.next = number.after(holds);
            // No receiver waits for this change.
            false
        });
        number
    }

    /// Returns a ticket that counts as pending work, for an item that is submitted later, or turns
    /// out not to be needed.
    pub(crate) fn ticket(&self, number: AttemptNumber) -> Ticket {
        self.pending.send_if_modified(|tickets| {
            *tickets.outstanding.entry(number).or_default() += 1;
            // A flush waits for work to be done, and not for more of it.
            false
        });
        Ticket {
            number,
            tickets: self.pending.clone(),
        }
    }

    /// Returns a receiver of the pending work.
    pub(crate) fn pending(&self) -> watch::Receiver<Tickets> {
        self.pending.subscribe()
    }
}

/// Returns the error of a deletion that came after the lock was lost.
pub(crate) fn lost(directory: &LockPath, reason: LostReason) -> ReleaseError {
    ReleaseError::Lost(Lost {
        path: directory.user().into(),
        reason,
    })
}

/// Sends the result of an item to its receiver.
pub(crate) fn finish(done: Option<Done>, result: Result<(), ReleaseError>) {
    if let Some(done) = done {
        // An error means that the release was cancelled. It goes on, and its result has no
        // receiver.
        let _ = done.send(result);
    }
}
