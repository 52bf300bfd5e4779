//! Who holds a lock and who waits for it, as its directory shows, and the deletion of a contender's
//! node by hand (docs/protocol.md#identity, docs/protocol.md#break-lock). Faces and recipes use
//! this file. This file acquires no lock, and changes nothing on the servers except by
//! `break_lock`.
//!
//! A query lists the directory, and then reads the nodes that it needs, 32 at a time. Because the
//! reads come after the list, a node may be deleted in between, and is then omitted. The answers
//! show the state of one server, which may lag behind the others, so no lock is granted by them.
//!
//! `break_lock` reads the Stat of the node, compares the owner, and deletes the node by the version
//! that it has read. If another client writes to the node in between, it begins again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;
use zookeeper_client as zk;

use crate::engine::data::group::Group;
use crate::engine::lock::first::{NodeRead, contender, kind_of};
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::look::{Subject, error_of, unseen, usable_queue};
use crate::engine::semaphore_limit;
use crate::error::{Error, Purpose, RequestFailure};
use crate::session::reports::log;
use crate::values::contender::{Contender, ContenderKind, Participant};
use crate::values::path::{LockPath, NodePath};

/// How many nodes are read at a time, so that the heartbeat does not wait behind the reads of a
/// long queue (docs/protocol.md#request-window).
const READ_AT_ONCE: usize = 32;

/// How often a node is looked at if another client writes to the node between each look and its
/// deletion.
const MOST_LOOKS: u32 = 5;

/// The node was written to between each look and its deletion.
#[derive(Debug, Error)]
#[error("the node was written to by another client each time before it could be deleted")]
struct WrittenAgain;

/// Returns the contenders of a lock in order.
pub(crate) async fn queue(path_lock: Arc<PathLock>) -> Result<Vec<Contender>, Error> {
    read_all(&path_lock, &path_lock.path, names(&path_lock).await?).await
}

/// Returns the names of the contenders of a lock in order.
async fn names(path_lock: &Arc<PathLock>) -> Result<Vec<(String, ContenderKind)>, Error> {
    // A directory that does not exist has no contenders.
    let queue = usable_queue(path_lock).await?;
    let names = queue.iter().flat_map(|queue| queue.contenders());
    Ok(names
        .map(|(name, kind)| (name.to_owned(), kind_of(path_lock.options.naming(), kind)))
        .collect())
}

/// Returns the participants of an election in the order in which they lead, at most `most` of them.
pub(crate) async fn participants(
    path_lock: &Arc<PathLock>,
    most: usize,
) -> Result<Vec<Participant>, Error> {
    let (directory, names) = (&path_lock.path, names(path_lock).await?);
    let mut found = read(
        path_lock,
        directory,
        names,
        most,
        |(name, _), (data, stat), session| {
            Participant::new(
                directory.user_child(name),
                data,
                stat.ephemeral_owner == session,
            )
        },
    )
    .await?;
    if let Some(first) = found.first_mut() {
        // Nodes that were deleted since the list are omitted, so the first one that is left leads.
        first.leads();
    }
    Ok(found)
}

/// Waits until another participant than `known` is the first, and returns it; `None` if there is
/// none.
pub(crate) async fn leader_changed(
    path_lock: &Arc<PathLock>,
    known: Option<&NodePath>,
) -> Result<Option<Participant>, Error> {
    let directory = &path_lock.path;
    let group = Group {
        client: Arc::clone(&path_lock.client),
        directory: directory.clone(),
    };
    loop {
        // The watch is set before the look, so that no change after the look is missed. A server
        // that lags behind reports a change when it has caught up (docs/protocol.md#leader-watch).
        let changed = group
            .watch()
            .await
            .map_err(|why| unseen(path_lock, directory, why))?;
        let leader = participants(path_lock, 1).await?.pop();
        if leader.as_ref().map(Participant::node) != known {
            return Ok(leader);
        }
        changed.await;
    }
}

/// Returns the contenders that hold a lock; for a semaphore, those that hold permits.
pub(crate) async fn holders(path_lock: Arc<PathLock>) -> Result<Vec<Contender>, Error> {
    // The queue of a semaphore has only callers that wait. A holder has a lease in another
    // directory.
    if let Some(semaphore) = &path_lock.options.semaphore {
        let leases = semaphore_limit::participants(&path_lock, semaphore).await?;
        let names = leases
            .iter()
            .map(|node| (node.name().to_owned(), ContenderKind::Permit));
        return read_all(&path_lock, &semaphore.leases, names.collect()).await;
    }
    let Some(queue) = usable_queue(&path_lock).await? else {
        return Ok(Vec::new());
    };
    let names = queue
        .holders()
        .map(|(name, kind)| (name.to_owned(), kind_of(path_lock.options.naming(), kind)));
    read_all(&path_lock, &path_lock.path, names.collect()).await
}

/// Returns the number of contenders of a lock, holders included.
pub(crate) async fn count(path_lock: Arc<PathLock>) -> Result<usize, Error> {
    Ok(usable_queue(&path_lock)
        .await?
        .map_or(0, |queue| queue.contenders().count()))
}

/// Reads these contenders.
async fn read_all(
    path_lock: &Arc<PathLock>,
    directory: &LockPath,
    names: Vec<(String, ContenderKind)>,
) -> Result<Vec<Contender>, Error> {
    let make = |named: (&str, ContenderKind), node: NodeRead<'_>, session| {
        contender(directory, named, node, session)
    };
    read(path_lock, directory, names, usize::MAX, make).await
}

/// Reads the nodes of contenders until `most` are found; missing nodes are omitted. `make` gets
/// each node, and the id of the session that has read it.
async fn read<T: Send + Sync>(
    path_lock: &Arc<PathLock>,
    directory: &LockPath,
    names: Vec<(String, ContenderKind)>,
    most: usize,
    make: impl Fn((&str, ContenderKind), NodeRead<'_>, i64) -> T + Sync,
) -> Result<Vec<T>, Error> {
    let (mut contenders, make) = (Vec::new(), &make);
    for some in names.chunks(READ_AT_ONCE.min(most).max(1)) {
        let read = path_lock.client.repeat(|session, handle| async move {
            // The request of each read is sent when the method is called, so that all of them share
            // a flight. A repetition sends all of them again.
            let paths: Vec<String> = some.iter().map(|(name, _)| directory.child(name)).collect();
            let reads: Vec<_> = paths.iter().map(|path| handle.get_data(path)).collect();
            let mut read = Vec::with_capacity(some.len());
            for (((name, kind), path), answer) in some.iter().zip(&paths).zip(reads) {
                let (data, stat) = match answer.await {
                    Ok(answer) => answer,
                    Err(zk::Error::NoNode) => continue,
                    // Without the permission to read, servers before 3.9.3 return the Stat, which
                    // has the age of the node. Later ones refuse that, too.
                    Err(zk::Error::NoAuth) => match handle.check_stat(path).await {
                        Ok(Some(stat)) => (Vec::new(), stat),
                        Ok(None) => continue,
                        Err(zk::Error::NoAuth) => return Ok(Err(name.as_str().into())),
                        Err(error) => return Err(error),
                    },
                    Err(error) => return Err(error),
                };
                read.push(make((name, *kind), (&data, &stat), session.session_id));
            }
            Ok(Ok(read))
        });
        match read.await {
            Ok(Ok(mut read)) => contenders.append(&mut read),
            // A contender that cannot be read is not omitted, because it may be the holder.
            Ok(Err(unreadable)) => {
                let subject = (directory, Subject::Node(unreadable));
                return Err(error_of(
                    path_lock,
                    Purpose::Look,
                    subject,
                    RequestFailure::NoAuth,
                ));
            }
            Err(why) => return Err(unseen(path_lock, directory, why)),
        }
        // A node that was deleted since the list leaves room for a later one, so another chunk may
        // be needed even if the first had `most` names.
        if contenders.len() >= most {
            break;
        }
    }
    contenders.truncate(most);
    Ok(contenders)
}

/// The outcome of a request to delete a contender's node.
enum BreakOutcome {
    Done,
    /// The node does not exist, or the node of this name is another contender's.
    NotThere,
    /// Another client wrote to the node after it was looked at.
    Written,
}

/// Deletes the node of a contender. Returns whether it existed.
pub(crate) async fn break_lock(
    path_lock: &Arc<PathLock>,
    contender: &Contender,
) -> Result<bool, Error> {
    let node = contender.node();
    let leases = path_lock
        .options
        .semaphore
        .as_ref()
        .map(|semaphore| &semaphore.leases);
    // The contenders of a semaphore are in two directories: those that wait, and the leases.
    let directory = [Some(&path_lock.path), leases];
    let directory = directory
        .into_iter()
        .flatten()
        .find(|one| one.whole() == node.lock_path());
    let Some(directory) = directory else {
        return Err(not_broken(path_lock, contender, RequestFailure::OtherLock));
    };
    let server = &directory.child(node.name());
    // If a deletion gets no answer, and the node does not exist later, the deletion counts as done
    // by this call, because the node existed before it.
    let was_there = &AtomicBool::new(false);
    for _ in 0..MOST_LOOKS {
        // The look and the deletion are repeated together, because the node of this name may belong
        // to another contender by the time of a repetition.
        let deleted = path_lock.client.repeat(|session, handle| async move {
            // The server may lag behind, and still show a node that was deleted.
            handle.sync(server).await?;
            let stat = handle
                .check_stat(server)
                .await?
                .filter(|stat| is_of(contender, stat));
            let Some(stat) = stat else {
                return Ok(BreakOutcome::NotThere);
            };
            was_there.store(true, Ordering::Relaxed);
            // The version shows that the node is the one that was read. Another node with the same
            // name, number and version would need a new directory, and as many creates in it as in
            // the old one.
            let deleted = session.write(|| handle.delete(server, Some(stat.version)));
            match deleted.await {
                Ok(()) => Ok(BreakOutcome::Done),
                Err(zk::Error::NoNode) => Ok(BreakOutcome::NotThere),
                Err(zk::Error::BadVersion) => Ok(BreakOutcome::Written),
                Err(error) => Err(error),
            }
        });
        match deleted
            .await
            .map_err(|why| not_broken(path_lock, contender, why))?
        {
            BreakOutcome::Done => {
                let (path, node) = (path_lock.path.user(), node.as_str());
                let owner = contender;
                log::warn!(path, node, %owner, "a contender's node was deleted by `break_lock`");
                return Ok(true);
            }
            BreakOutcome::NotThere => return Ok(was_there.load(Ordering::Relaxed)),
            // Most likely, another client has requested a revocation. The next look checks again
            // whether the node is still that of the contender.
            BreakOutcome::Written => {}
        }
    }
    Err(not_broken(
        path_lock,
        contender,
        RequestFailure::Connection(Arc::new(WrittenAgain)),
    ))
}

/// Returns whether a node is that of the contender.
fn is_of(contender: &Contender, stat: &zk::Stat) -> bool {
    // The name proves nothing: other libraries create nodes without an id in the name, and such a
    // name may recur in a directory that was deleted and created again.
    let known = contender.stat;
    stat.ephemeral_owner == known.session && stat.czxid == known.czxid
}

/// Returns the error of a deletion.
pub(crate) fn not_broken(
    path_lock: &PathLock,
    contender: &Contender,
    why: impl Into<RequestFailure>,
) -> Error {
    path_lock.error(Purpose::Deletion, why).at(contender.node())
}
