//! Takes what must be deleted: nodes of released and dropped guards, of cancelled and timed-out attempts, and nodes that
//! may or may not exist. Never blocks, so that a `Drop` can hand something over.

use std::any::Any;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::error::{Lost, LostReason, ReleaseError};
use crate::path::LockPath;
use crate::session::tickets::{Ticket, Tickets};
use crate::session::zk_session::Session;

/// What to delete.
#[derive(Debug)]
pub(crate) enum Orphan {
    /// This node, by name. It exists, or did.
    Node(String),
    /// The same; a lock was held by it, and others wait for it. Whether it may be handed over to the next in line of this
    /// session: not if it was lost.
    Hold { name: String, hand_over: bool },
    /// These nodes, each before the next. They exist, or may.
    Nodes(Vec<String>),
    /// Whatever a create with this id led to, whose outcome is unknown: a node whose name begins like this, or none.
    UnknownCreate { id: String, beginning: String },
}

/// One thing to delete, and what depends on it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: LockPath,
    pub(crate) orphan: Orphan,
    /// The number of the attempt that it comes from; see [`Tickets`].
    pub(crate) number: u64,
    /// Dropped when the node is gone: the right to have it.
    pub(crate) until_gone: Option<Arc<dyn Any + Send + Sync>>,
    /// Told the result.
    pub(crate) done: Option<Done>,
}

/// Where the result of an item goes.
pub(crate) type Done = oneshot::Sender<Result<(), ReleaseError>>;

/// What is to be deleted, each item with the ticket by which it is counted.
pub(crate) type CleanupQueue = mpsc::UnboundedReceiver<(Item, Ticket)>;

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cleanup {
    items: mpsc::UnboundedSender<(Item, Ticket)>,
    pending: watch::Sender<Tickets>,
}

impl Cleanup {
    /// Returns a cleanup and its queue, for the [task](crate::session::cleanup_task) that does its work.
    pub(crate) fn new() -> (Self, CleanupQueue) {
        let (items, queue) = mpsc::unbounded_channel();
        let pending = watch::Sender::new(Tickets::default());
        (Self { items, pending }, queue)
    }

    /// Hands an item over. The queue holds no more than there are nodes, which the path locks bound.
    pub(crate) fn reap(&self, item: Item) {
        let ticket = self.ticket(item.number);
        let leave = |name: &str| item.session.leave(item.directory.child(name));
        match &item.orphan {
            Orphan::Node(name) | Orphan::Hold { name, .. } => leave(name),
            Orphan::Nodes(names) => names.iter().for_each(|name| leave(name)),
            Orphan::UnknownCreate { .. } => {}
        }
        if let Err(mpsc::error::SendError((item, _ticket))) = self.items.send((item, ticket)) {
            // The session's thread has stopped, so the session is closed and its nodes with it. This is not logged: the
            // caller may be a holder's `release`.
            finish(item.done, Err(lost(&item.directory, LostReason::Closed)));
        }
    }

    /// Hands over a node of which only the server path is known.
    pub(crate) fn reap_path(&self, session: &Arc<Session>, path: &str) {
        let Some((directory, name)) = path.rsplit_once('/') else {
            return;
        };
        // Our nodes are always below a lock's directory, which was parsed once already.
        let Ok(directory) = LockPath::parse("", directory) else {
            return;
        };
        let orphan = Orphan::Node(name.to_owned());
        let number = self.number();
        self.reap(Item {
            session: Arc::clone(session),
            directory,
            orphan,
            number,
            until_gone: None,
            done: None,
        });
    }

    /// A number for an attempt, greater than all before.
    pub(crate) fn number(&self) -> u64 {
        let mut number = 0;
        self.pending.send_if_modified(|tickets| {
            number = tickets.next;
            tickets.next += 1;
            // No receiver waits for this value.
            false
        });
        number
    }

    /// Counts as pending from now on, for what will be handed over, or found to be nothing, a little later.
    pub(crate) fn ticket(&self, number: u64) -> Ticket {
        Ticket::new(&self.pending, number)
    }

    /// What is not done yet.
    pub(crate) fn pending(&self) -> watch::Receiver<Tickets> {
        self.pending.subscribe()
    }
}

/// The error of a deletion that came after the lock was lost.
pub(super) fn lost(directory: &LockPath, reason: LostReason) -> ReleaseError {
    ReleaseError::Lost(Lost { path: directory.user().into(), reason })
}

/// Tells the result of an item to the one that waits for it.
pub(super) fn finish(done: Option<Done>, result: Result<(), ReleaseError>) {
    if let Some(done) = done {
        // A release that was cancelled goes on, but its result has no reader.
        let _ = done.send(result);
    }
}
