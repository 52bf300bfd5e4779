//! Collects orphans, and deletes them: the nodes of released and dropped guards, of cancelled and
//! timed-out attempts, and nodes that may or may not exist (docs/protocol.md#cleanup). Cleanup owns
//! a node from its submission to its end (docs/protocol.md#node-owners).
//!
//! [`Cleanup::submit`] never blocks, so a `Drop` can call it. This method marks the nodes as
//! leaving, and sends the item to the [task](run) on the session's thread.
//!
//! A [`Ticket`] counts an item until the item is done, or its task panics. A flush waits for the
//! tickets of all attempts that began before it (docs/protocol.md#flush), so a ticket is made
//! before other code can see the change that it stands for: before a lock counts as released, and
//! before a caller that has left is forgotten.
//!
//! # The tasks
//! Each item has a task of its own, except that the creates of one directory share a task if their
//! outcome is unknown. An item is usually one node.
//!
//! ```text
//!   a node                    --> `delete_orphan`: hand-over to a waiter, or deletion --> done
//!   an unanswered create      --> `settle_together`: a write, then a list of the directory
//!                                     | the node of the create is there    | it is not there
//!                                     v                                    v
//!                                 a node to delete                  remembered as a late create
//! ```
//!
//! A deletion is repeated, with growing pauses, until the node is known to be gone or the session
//! has ended (docs/protocol.md#cleanup). A deletion that the servers refuse is logged and given up:
//! the end of the session deletes the node.
//!
//! The creates of one directory that are waiting are settled together, by one write and one list. A
//! separate list of a long directory for each create would delay the heartbeats
//! (docs/protocol.md#write-barrier). Creates that arrive while their group is being settled wait
//! for the next round, because the list may have been sent before them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::{self, JoinError, JoinSet};
use zookeeper_client as zk;

use crate::error::{LostReason, ReleaseError};
use crate::protocol::node_name::id;
use crate::protocol::numbers::{AttemptNumber, SessionNumber};
use crate::session::contents::creates::AbandonedCreate;
use crate::session::leftovers::deletion::{
    HandOver, delete, delete_after, hand_over, lost, repeat_until_decided,
};
use crate::session::live::zk_session::Session;
use crate::session::reports::journal::TARGET;
use crate::session::reports::log;
use crate::session::threads::background::on_this_thread;
use crate::session::threads::waker::{contain_panic, send_at_once};
use crate::values::path::LockPath;

/// Nodes to delete, which no attempt and no guard needs any more.
pub(crate) enum Orphan {
    /// The node with this name, which exists or has existed.
    Node(String),
    /// The node of a hold, for whose deletion other contenders wait. `may_hand_over` is whether the
    /// lock may be handed over to the next attempt of this session; a lost lock may not.
    Hold { name: String, may_hand_over: bool },
    /// The two nodes of a downgrade, which may exist. The nodes are deleted one after the other.
    Nodes(Vec<String>),
    /// The node of this create, whose outcome is unknown. If the node exists, its name begins with
    /// `beginning`.
    UnknownCreate {
        create: AbandonedCreate,
        beginning: String,
    },
}

/// An orphan, and the parties that wait for its deletion.
pub(crate) struct CleanupItem {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: LockPath,
    pub(crate) orphan: Orphan,
    /// The number of the attempt that left the orphan; see [`Tickets`].
    pub(crate) number: AttemptNumber,
    /// The slot of the attempt. The reference is dropped when the node is gone, which frees the
    /// slot.
    pub(crate) slot: Option<Arc<OwnedSemaphorePermit>>,
    /// Receives the result.
    pub(crate) done: Option<ReleaseReply>,
}

/// Where the result of an item is sent.
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), ReleaseError>>;

/// The items to delete, each with the ticket that counts it.
pub(crate) type CleanupQueue = mpsc::UnboundedReceiver<(CleanupItem, Ticket)>;

/// The outstanding work of cleanup, by the number of the attempt that left it.
///
/// An attempt gets its number when it begins, and everything that the attempt leaves to cleanup
/// keeps that number, through whichever tasks it passes. So the numbers tell a flush which work
/// began before the flush.
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

/// One piece of outstanding work, which is counted in [`Tickets`] until the ticket is dropped.
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
            // A flush waits for attempts, so only the last ticket of an attempt can end its wait.
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
    items: mpsc::UnboundedSender<(CleanupItem, Ticket)>,
    pending: watch::Sender<Tickets>,
}

impl Cleanup {
    /// Returns a cleanup and its queue, for the [task](run) that does its work.
    pub(crate) fn new() -> (Self, CleanupQueue) {
        let (items, queue) = mpsc::unbounded_channel();
        // The first number is for the ends of earlier sessions, which every flush waits for.
        let pending = watch::Sender::new(Tickets {
            next: AttemptNumber::default().after(1),
            ..Tickets::default()
        });
        (Self { items, pending }, queue)
    }

    /// Submits an item. The length of the queue is bounded, because each item has a node or a
    /// create of its session, and the total size of their paths is limited
    /// (docs/protocol.md#session-nodes).
    pub(crate) fn submit(&self, item: CleanupItem) {
        // The nodes are marked by the thread that submits them, so that a later try of that thread
        // takes none of them for a live contender.
        let ticket = self.ticket(item.number);
        let leave = |name: &str| item.session.nodes.mark_leaving(item.directory.child(name));
        match &item.orphan {
            Orphan::Node(name) | Orphan::Hold { name, .. } => leave(name),
            Orphan::Nodes(names) => names.iter().for_each(|name| leave(name)),
            // The node has no name yet. The abandoned create in the item marks the node as no live
            // contender until the name is known.
            Orphan::UnknownCreate { .. } => {}
        }
        if let Err(mpsc::error::SendError((item, _ticket))) = self.items.send((item, ticket)) {
            // The client has ended: its session is closed, or expires, and its nodes are deleted.
            finish(item.done, Err(lost(&item.directory, LostReason::Closed)));
        }
    }

    /// Returns the number of a new attempt that may get this many holds, each of which has a
    /// number.
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

    /// Returns a ticket that counts as pending work, for an item that is submitted later, or that
    /// turns out not to be needed.
    pub(crate) fn ticket(&self, number: AttemptNumber) -> Ticket {
        self.pending.send_if_modified(|tickets| {
            *tickets.outstanding.entry(number).or_default() += 1;
            // A flush waits until work is done, so an addition wakes no flush.
            false
        });
        Ticket {
            number,
            tickets: self.pending.clone(),
        }
    }

    pub(crate) fn pending(&self) -> watch::Receiver<Tickets> {
        self.pending.subscribe()
    }
}

/// Sends the result of an item to its receiver.
pub(crate) fn finish(done: Option<ReleaseReply>, result: Result<(), ReleaseError>) {
    if let Some(done) = done {
        // An error means that the caller of the release has left. The release continues, and no
        // task receives its result.
        let _ = done.send(result);
    }
}

/// The session and directory of creates whose outcome is unknown.
type CreateGroup = (SessionNumber, LockPath);

/// The items that a finished task leaves to other tasks.
type OpenItems = Vec<(CleanupItem, Ticket)>;

/// Deletes orphans until the sender of `client_ended` is dropped, or until all senders of items are
/// dropped and all items are done. At the end of the client, the items that are left are dropped.
pub(crate) async fn run(mut items: CleanupQueue, mut client_ended: oneshot::Receiver<()>) {
    let mut tasks = CleanupTasks::default();
    let mut open = true;
    // After the last sender is dropped, no item can arrive, but the tasks that run are completed.
    while open || !tasks.running.is_empty() {
        tokio::select! {
            biased;
            _ = &mut client_ended => break,
            // The tasks that have ended come before new items, which would otherwise delay the nodes
            // that those tasks have found. New items are not delayed for long, because an item
            // starts two tasks at most.
            Some(done) = tasks.running.join_next_with_id() => tasks.ended(done),
            item = items.recv(), if open => match item {
                Some((item, ticket)) => tasks.begin(item, ticket),
                None => open = false,
            },
        }
    }
    // The queue is emptied until no send is under way. If the receiver were simply dropped, tokio's
    // channel would keep an item that is sent at that moment until the last sender is dropped. The
    // release that waits for the item keeps a sender, so it would never end.
    items.close();
    while let Some(item) = items.recv().await {
        // The drop of an item wakes the caller that waits for it.
        contain_panic(|| drop(item));
    }
}

/// The tasks that work on items.
#[derive(Default)]
struct CleanupTasks {
    running: JoinSet<OpenItems>,
    /// The groups of creates that are being settled, each under the id of its task.
    settling: HashMap<task::Id, CreateGroup>,
    /// The items of those groups that have arrived since.
    waiting: HashMap<CreateGroup, OpenItems>,
}

impl CleanupTasks {
    /// Starts the work on an item, or makes the item wait for the task of its group.
    fn begin(&mut self, item: CleanupItem, ticket: Ticket) {
        if !matches!(item.orphan, Orphan::UnknownCreate { .. }) {
            // The first request of the work is sent before this function returns, if the work need
            // not wait for a slot. So a create that is sent by a task that started after the
            // submission is usually behind the deletion. The order is not certain: tokio's budget
            // may interrupt this task, and tokio has a separate queue for tasks that another thread
            // starts or wakes. A create that overtakes the deletion of its client's last node waits
            // for that node, which costs time but grants nothing wrongly. After a panic, the drop
            // of the item notifies its receiver.
            if let Some(work) = send_at_once(Box::pin(clean_up_item(item, ticket))) {
                self.running.spawn(on_this_thread(work));
            }
            return;
        }
        let group = (item.session.number, item.directory.clone());
        match self.waiting.get_mut(&group) {
            // The group is being settled. Its list may have been sent before this create.
            Some(others) => others.push((item, ticket)),
            None => self.begin_group(group, vec![(item, ticket)]),
        }
    }

    /// Starts one task that settles the creates of a group. Further creates of that group wait from
    /// now on.
    fn begin_group(&mut self, group: CreateGroup, items: OpenItems) {
        // The entry shows, even without items, that the group is being settled.
        self.waiting.insert(group.clone(), OpenItems::new());
        let task = self
            .running
            .spawn(on_this_thread(settle_together(items)))
            .id();
        self.settling.insert(task, group);
    }

    /// Continues after the end of a task: with the nodes that the task has found, and with the
    /// creates that have arrived in the meantime.
    fn ended(&mut self, done: Result<(task::Id, OpenItems), JoinError>) {
        let (task, found) = match done {
            Ok((task, found)) => (task, found),
            // The task has panicked, and the drop of its items has notified their receivers.
            Err(error) => (error.id(), OpenItems::new()),
        };
        for (item, ticket) in found {
            self.running
                .spawn(on_this_thread(clean_up_item(item, ticket)));
        }
        // The group ends after a panic too. Otherwise the creates that have arrived since would
        // wait for a task that no longer exists.
        if let Some(group) = self.settling.remove(&task) {
            let more = self.waiting.remove(&group).unwrap_or_default();
            if !more.is_empty() {
                self.begin_group(group, more);
            }
        }
    }
}

/// Finds out which creates of one directory have made a node. Returns those nodes, to be deleted.
async fn settle_together(items: OpenItems) -> OpenItems {
    let mut found = OpenItems::new();
    let Some((first, _)) = items.first() else {
        return found;
    };
    let (session, directory) = (Arc::clone(&first.session), first.directory.clone());
    // One answer decides all creates of the group, so the name of the first serves for all.
    let Orphan::UnknownCreate { beginning, .. } = &first.orphan else {
        return found;
    };
    let result = list_behind_write(&session, &directory, beginning).await;
    let by_id: HashMap<&str, &String> = match &result {
        Ok(children) => children
            .iter()
            .filter_map(|child| Some((id(child)?, child)))
            .collect(),
        Err(_) => HashMap::new(),
    };
    for (mut item, ticket) in items {
        let Orphan::UnknownCreate { create, .. } = &item.orphan else {
            continue;
        };
        let id = create.id();
        match (&result, by_id.get(id)) {
            (Ok(_), Some(name)) => {
                // The node is recorded before its create stops counting as abandoned, so that the
                // node becomes a refused orphan if its deletion is refused.
                session.nodes.mark_leaving(directory.child(name));
                item.orphan = Orphan::Node((*name).clone());
                found.push((item, ticket));
            }
            (Ok(_), None) => {
                // No node exists, and none is expected any more. The id is remembered nevertheless,
                // in case a server still has the request.
                session.unknown_creates.remember(&directory, id);
                drop(item.slot.take());
                finish(item.done, Ok(()));
            }
            // Either the session has ended for this client, and the servers delete the node with
            // it, or the servers refuse the requests.
            (Err(error), _) => {
                if let ReleaseError::Refused { source, .. } = error {
                    create.keep_counted();
                    // A later list of the directory may show the node.
                    session.unknown_creates.remember(&directory, id);
                    let path = directory.user();
                    log::error!(path, id, %source, "it is unknown whether a lock node was created");
                }
                drop(item.slot.take());
                finish(item.done, Err(error.clone()));
            }
        }
    }
    found
}

/// Lists a directory once everything that the session sent earlier is decided.
async fn list_behind_write(
    session: &Session,
    directory: &LockPath,
    beginning: &str,
) -> Result<Vec<String>, ReleaseError> {
    // The deletion of a name that cannot exist is a committed write of this session. Once it is
    // answered, everything that the session sent earlier is decided. A `sync` proves less, because
    // a deposed leader answers it. The name cannot exist, because the servers append a number to
    // the name of each node that is created with it.
    let window = &session.windows.removals;
    delete(session, directory, beginning, window).await?;
    repeat_until_decided(
        session,
        directory,
        directory.server(),
        window,
        |handle| async move {
            match handle.list_children(directory.server()).await {
                // The directory does not exist, so no create in it has made a node.
                Err(zk::Error::NoNode) => Ok(Vec::new()),
                answer => answer,
            }
        },
    )
    .await
}

/// Deletes the nodes of an item, and notifies the parties that wait for that. Leaves nothing to
/// other tasks.
async fn clean_up_item(item: CleanupItem, ticket: Ticket) -> OpenItems {
    let CleanupItem {
        session,
        directory,
        orphan,
        number: _,
        slot,
        done,
    } = item;
    let result = delete_orphan(&session, &directory, &orphan).await;
    if let Err(ReleaseError::Refused { node, source, .. }) = &result {
        let (node, error) = (node.as_str(), source);
        log::error!(node, %error, "a lock node could not be deleted and stays until its session ends");
    }
    // A release is reported by its call. Only the nodes that attempts have left are reported here.
    if let (Ok(()), Orphan::Node(name)) = (&result, &orphan) {
        let (path, node) = (directory.user(), name);
        log::debug!(
            [name: "orphan.deleted", target: TARGET] path, node,
            "a node that no caller needed was deleted"
        );
        log::count!(orphan_deleted);
    }
    // The slot is free before the caller is notified that the node is gone, so that another attempt
    // may have it by then.
    drop(slot);
    finish(done, result);
    // The ticket is dropped last, so that a flush returns after all of this.
    drop(ticket);
    OpenItems::new()
}

/// Deletes the nodes of an orphan. For the node of a hold, the lock is handed over instead if that
/// is allowed and a waiter of this client is next.
async fn delete_orphan(
    session: &Session,
    directory: &LockPath,
    orphan: &Orphan,
) -> Result<(), ReleaseError> {
    let windows = &session.windows;
    match orphan {
        Orphan::Node(name) => delete(session, directory, name, &windows.removals)
            .await?
            .by_us(directory),
        Orphan::Hold {
            name,
            may_hand_over,
        } => {
            // A hand-over replaces the deletion. If the hand-over is refused, nothing is deleted
            // yet; if it is not answered, the deletion may find that the node is gone.
            let handed_over = if *may_hand_over {
                hand_over(session, directory, name).await?
            } else {
                HandOver::NotDone
            };
            let may_be_deleted = match handed_over {
                HandOver::Done => return Ok(()),
                HandOver::NotDone => false,
                HandOver::Unknown => true,
            };
            delete_after(session, directory, name, &windows.releases, may_be_deleted)
                .await?
                .by_us(directory)
        }
        Orphan::Nodes(names) => {
            let mut result = Ok(());
            for name in names {
                match delete(session, directory, name, &windows.releases).await {
                    // The other nodes can be deleted nevertheless.
                    Err(refused @ ReleaseError::Refused { .. }) => {
                        result = result.and(Err(refused));
                    }
                    // The session has ended, and the other nodes with it.
                    Err(over) => return Err(over),
                    // A node that was never created needs no deletion.
                    Ok(_) => {}
                }
            }
            result
        }
        // Creates are settled by `settle_together`.
        Orphan::UnknownCreate { .. } => Ok(()),
    }
}
