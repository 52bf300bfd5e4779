//! Deletes the orphans that were submitted to [cleanup](crate::session::leftovers::cleanup): one
//! task for each node, or for each directory of creates whose outcome is unknown.
//!
//! A deletion is repeated, with growing pauses, until the node is known to be gone or the session
//! is. A deletion that the servers refuse is logged and given up: the end of the session deletes
//! the node.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::task::{self, JoinSet};
use zookeeper_client as zk;

use crate::error::ReleaseError;
use crate::protocol::node_name::id;
use crate::session::leftovers::cleanup::{CleanupQueue, Item, Orphan, Ticket, finish};
use crate::session::leftovers::deletion::{HandOver, delete, delete_after, hand_over, persist};
use crate::session::live::zk_session::Session;
use crate::session::reports::journal::TARGET;
use crate::session::reports::log;
use crate::session::threads::background::here;
use crate::values::path::LockPath;

/// The session and directory of creates whose outcome is unknown. Such creates are settled
/// together, by one write and one list for all of a group: with a list of a long directory for
/// each, they would delay the heartbeats (docs/protocol.md#write-barrier).
type CreateGroup = (u64, LockPath);

/// The items that a finished task leaves to do.
type Rest = Vec<(Item, Ticket)>;

/// Deletes orphans until all senders of items are dropped and all items are done.
pub(crate) async fn run(mut items: CleanupQueue) {
    let mut working = JoinSet::new();
    // The groups that are being settled, by their tasks, and the items of those groups that have
    // come since.
    let mut settling: HashMap<task::Id, CreateGroup> = HashMap::new();
    let mut waiting: HashMap<CreateGroup, Rest> = HashMap::new();
    let mut open = true;
    while open || !working.is_empty() {
        let (group, more) = tokio::select! {
            item = items.recv(), if open => match item {
                Some((item, ticket)) if matches!(item.orphan, Orphan::UnknownCreate { .. }) => {
                    let group = (item.session.number(), item.directory.clone());
                    if let Some(others) = waiting.get_mut(&group) {
                        others.push((item, ticket));
                        continue;
                    }
                    (group, vec![(item, ticket)])
                }
                Some((item, ticket)) => {
                    begin(&mut working, item, ticket);
                    continue;
                }
                None => {
                    open = false;
                    continue;
                }
            },
            Some(done) = working.join_next_with_id() => {
                let (task, found) = match done {
                    Ok((task, found)) => (task, found),
                    // A panic. Its items are dropped, which tells their receivers.
                    Err(error) => (error.id(), Rest::new()),
                };
                for (item, ticket) in found {
                    working.spawn(here(alone(item, ticket)));
                }
                let Some(group) = settling.remove(&task) else { continue };
                let more = waiting.remove(&group).unwrap_or_default();
                (group, more)
            }
        };
        if !more.is_empty() {
            waiting.insert(group.clone(), Rest::new());
            let task = working.spawn(here(settle_together(more))).id();
            settling.insert(task, group);
        }
    }
}

/// Has an item worked on. Its request is sent at once where it may be, so that what is sent by a
/// task that was started after the item was submitted is behind it (docs/protocol.md#succession).
fn begin(working: &mut JoinSet<Rest>, item: Item, ticket: Ticket) {
    let mut work = Box::pin(alone(item, ticket));
    // Polled again by its task, which is the one to be woken.
    let mut first = Context::from_waker(Waker::noop());
    let begun = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut first)));
    // After a panic the drop of the item tells its receiver.
    if matches!(begun, Ok(Poll::Pending)) {
        working.spawn(here(work));
    }
}

async fn alone(item: Item, ticket: Ticket) -> Rest {
    work(item).await;
    drop(ticket);
    Rest::new()
}

/// Finds out which creates of one directory have happened. Returns those as nodes to delete.
async fn settle_together(items: Rest) -> Rest {
    let mut found = Rest::new();
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
    persist(
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

async fn work(item: Item) {
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
        log::error!(node = node.as_str(), error = %source, "a lock node could not be deleted and stays until its session ends");
    }
    if let (Ok(()), Orphan::Node(name)) = (&result, &orphan) {
        let (path, node) = (directory.user(), name);
        log::debug!(
            name: "orphan.deleted", target: TARGET, path, node,
            "a node that no caller needed was deleted"
        );
        log::count!(orphan_deleted);
    }
    // This comes before the caller is notified that the node is gone, so that another may have one
    // by then.
    drop(until_gone);
    finish(done, result);
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
        // These are settled by `settle_together`.
        Orphan::UnknownCreate { .. } => Ok(()),
    }
}
