//! Deletes the orphans that were submitted to [cleanup](crate::session::leftovers::cleanup), by one
//! task for each node, or for each directory of creates whose outcome is unknown.
//!
//! ```text
//!   a node                    --> `settle`: hand-over to the next waiter, or deletion --> done
//!   a create without answer   --> `settle_together`: a write, then a list of the directory
//!                                     | the node of the create is there    | it is not there
//!                                     v                                    v
//!                                 a node to delete                  remembered as a late create
//! ```
//!
//! A deletion is repeated, with growing pauses, until the node is known to be gone or the session
//! has ended (docs/protocol.md#cleanup). A deletion that the servers refuse is logged and given up:
//! the end of the session deletes the node.
//!
//! Creates of one directory are settled together, by one write and one list for all that have come
//! until then: with a list of a long directory for each, they would delay the heartbeats
//! (docs/protocol.md#write-barrier). Creates that come while their group is being settled wait for
//! the next round, because the list may have been sent before theirs.
//!
//! The ticket of an item ends with its work, which a flush waits for; a panic ends it too.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{self, JoinError, JoinSet};
use zookeeper_client as zk;

use crate::error::ReleaseError;
use crate::protocol::node_name::id;
use crate::protocol::numbers::SessionNumber;
use crate::session::leftovers::cleanup::{CleanupQueue, Item, Orphan, Ticket, finish};
use crate::session::leftovers::deletion::{
    HandOver, delete, delete_after, hand_over, repeat_until_decided,
};
use crate::session::live::zk_session::Session;
use crate::session::reports::journal::TARGET;
use crate::session::reports::log;
use crate::session::threads::background::here;
use crate::session::threads::waker::send_at_once;
use crate::values::path::LockPath;

/// The session and directory of creates whose outcome is unknown.
type CreateGroup = (SessionNumber, LockPath);

/// The items that a finished task leaves to do.
type OpenItems = Vec<(Item, Ticket)>;

/// Deletes orphans until all senders of items are dropped and all items are done.
pub(crate) async fn run(mut items: CleanupQueue) {
    let mut tasks = CleanupTasks::default();
    let mut open = true;
    while open || !tasks.running.is_empty() {
        tokio::select! {
            item = items.recv(), if open => match item {
                Some((item, ticket)) => tasks.begin(item, ticket),
                None => open = false,
            },
            Some(done) = tasks.running.join_next_with_id() => tasks.ended(done),
        }
    }
}

/// The tasks that work on items.
#[derive(Default)]
struct CleanupTasks {
    running: JoinSet<OpenItems>,
    /// The groups of creates that are being settled, by their tasks.
    settling: HashMap<task::Id, CreateGroup>,
    /// The items of those groups that have come since.
    waiting: HashMap<CreateGroup, OpenItems>,
}

impl CleanupTasks {
    /// Has an item worked on, or has it wait for the task of its group.
    fn begin(&mut self, item: Item, ticket: Ticket) {
        if !matches!(item.orphan, Orphan::UnknownCreate { .. }) {
            return self.send_now(item, ticket);
        }
        let group = (item.session.number, item.directory.clone());
        match self.waiting.get_mut(&group) {
            Some(others) => others.push((item, ticket)),
            None => self.settle(group, vec![(item, ticket)]),
        }
    }

    /// Sends the first request of an item at once where it may be, so that what is sent by a task
    /// that was started after the item was submitted is behind it: a create that overtook the
    /// deletion of its client's last node would wait for that node.
    fn send_now(&mut self, item: Item, ticket: Ticket) {
        // After a panic the drop of the item tells its receiver.
        if let Some(work) = send_at_once(Box::pin(alone(item, ticket))) {
            self.running.spawn(here(work));
        }
    }

    /// Has the creates of a group settled by one task. Creates of that group wait from here on.
    fn settle(&mut self, group: CreateGroup, items: OpenItems) {
        self.waiting.insert(group.clone(), OpenItems::new());
        let task = self.running.spawn(here(settle_together(items))).id();
        self.settling.insert(task, group);
    }

    /// Goes on after the end of a task: with the nodes that it has found, and with the creates that
    /// have come meanwhile.
    fn ended(&mut self, done: Result<(task::Id, OpenItems), JoinError>) {
        let (task, found) = match done {
            Ok((task, found)) => (task, found),
            // The task has panicked, and the drop of its items told their receivers.
            Err(error) => (error.id(), OpenItems::new()),
        };
        for (item, ticket) in found {
            self.running.spawn(here(alone(item, ticket)));
        }
        if let Some(group) = self.settling.remove(&task) {
            let more = self.waiting.remove(&group).unwrap_or_default();
            if !more.is_empty() {
                self.settle(group, more);
            }
        }
    }
}

/// Finds out which creates of one directory have happened. Returns those as nodes to delete.
async fn settle_together(items: OpenItems) -> OpenItems {
    let mut found = OpenItems::new();
    let Some((first, _)) = items.first() else {
        return found;
    };
    let (session, directory) = (Arc::clone(&first.session), first.directory.clone());
    let Orphan::UnknownCreate { beginning, .. } = &first.orphan else {
        return found;
    };
    let result = look_behind(&session, &directory, beginning).await;
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
                // The node is known from here on, before the create is none that is abandoned: if
                // the deletion is refused, the node is a refused orphan.
                session.nodes.mark_leaving(directory.child(name));
                item.orphan = Orphan::Node((*name).clone());
                found.push((item, ticket));
            }
            (Ok(_), None) => {
                // The create may still happen, if a server has its request.
                session.unknown_creates.remember(&directory, id);
                drop(item.until_gone.take());
                finish(item.done, Ok(()));
            }
            (Err(error), _) => {
                if let ReleaseError::Refused { source, .. } = error {
                    create.keep_counted();
                    // A later list of the directory may show it.
                    session.unknown_creates.remember(&directory, id);
                    let path = directory.user();
                    log::error!(path, id, %source, "whether a lock node was created could not be found out");
                }
                drop(item.until_gone.take());
                finish(item.done, Err(error.clone()));
            }
        }
    }
    found
}

/// Lists a directory, after everything that the session has sent before is decided.
async fn look_behind(
    session: &Session,
    directory: &LockPath,
    beginning: &str,
) -> Result<Vec<String>, ReleaseError> {
    // The deletion of a name that cannot exist is a committed write of this session. Once it is
    // answered, everything that the session sent before is decided. A `sync` proves less, because a
    // deposed leader answers it.
    let window = &session.windows.removals;
    delete(session, directory, beginning, window).await?;
    repeat_until_decided(
        session,
        directory,
        directory.server(),
        window,
        |handle| async move {
            match handle.list_children(directory.server()).await {
                Err(zk::Error::NoNode) => Ok(Vec::new()),
                answer => answer,
            }
        },
    )
    .await
}

/// Deletes the node of an item. Leaves nothing else to do.
async fn alone(item: Item, ticket: Ticket) -> OpenItems {
    let Item {
        session,
        directory,
        orphan,
        number: _,
        until_gone,
        done,
    } = item;
    let result = settle(&session, &directory, &orphan).await;
    if let Err(ReleaseError::Refused { node, source, .. }) = &result {
        let (node, error) = (node.as_str(), source);
        log::error!(node, %error, "a lock node could not be deleted and stays until its session ends");
    }
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
    drop(until_gone);
    finish(done, result);
    drop(ticket);
    OpenItems::new()
}

async fn settle(
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
            hand_over: may,
        } => {
            let handed_over = if *may {
                hand_over(session, directory, name).await?
            } else {
                HandOver::NotDone
            };
            let asked = match handed_over {
                HandOver::Done => return Ok(()),
                HandOver::NotDone => false,
                HandOver::Unknown => true,
            };
            delete_after(session, directory, name, &windows.releases, asked)
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
                    Err(over) => return Err(over),
                    Ok(_) => {}
                }
            }
            result
        }
        // Creates are settled by `settle_together`.
        Orphan::UnknownCreate { .. } => Ok(()),
    }
}
