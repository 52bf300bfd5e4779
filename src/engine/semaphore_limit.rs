//! A semaphore's leases and its limit: how they are read, and how the limit is set. Attempts, which
//! take the permits, questions and the semaphore's face use it. It never takes a permit.
//!
//! A *lease* is here what Curator calls so: the node of a permit that is held. The limit is that of
//! the handle, unless a node says another for all clients (docs/protocol.md#semaphore-limit). Both
//! are read in one flight. The head of the queue looks with a watch on each, and the one on the
//! limit must also fire when a missing node is created.
//!
//! Data that are no limit, and a lease of another limit, are an error of the call that finds them,
//! with both limits: neither of two processes that disagree knows which one is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zookeeper_client as zk;

use crate::engine::lock::lock_options::{LockOptions, SemaphoreOptions};
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::look::{Subject, error_of, unseen};
use crate::engine::request::requests::delete_late_creates;
use crate::error::{Error, Purpose, RequestFailure};
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::permits::{LimitNode, Seen, free, other_limit};
use crate::session::contents::limits::{WatchUse, Watching};
use crate::session::live::zk_session::{Session, SessionGone};
use crate::values::path::{LockPath, NodePath, above};

/// The watches of one look, counted against the session's limit.
pub(crate) struct Watches {
    pub(crate) leases: zk::OneshotWatcher,
    pub(crate) limit: zk::OneshotWatcher,
    pub(crate) counted: [Watching; 2],
}

/// Lists the leases and reads the limit, in one flight. With `certain` both follow a `sync`,
/// because the connected server may lag behind and show leases that are deleted. Also returns the
/// directory or the node that the answer is about, for an error.
pub(crate) async fn look<'a>(
    path_lock: &PathLock,
    semaphore: &'a SemaphoreOptions,
    session: &Arc<Session>,
    certain: bool,
) -> (Answer<Seen>, &'a LockPath) {
    // The requests are sent in this order before the first answer is awaited. The servers
    // answer them in order, so the list is not older than the `sync`.
    let all = session.request(|handle| async move {
        let sync = certain.then(|| handle.sync(semaphore.leases.server()));
        tokio::join!(synced(sync), read_both(semaphore, &handle))
    });
    match all.await {
        Ok((Ok(()), (leases, limit))) => seen(path_lock, semaphore, session, leases, limit),
        // Without the `sync` the list proves nothing, even if it was answered.
        Ok((Err(error), _)) => (Answer::No(session.failure(error)), &semaphore.leases),
        Err(SessionGone) => (Answer::no(FailureKind::SessionGone), &semaphore.leases),
    }
}

/// Like [`look`], with a watch on the leases and one on the limit, which also fires when a missing
/// node is created. `limit_exists` is whether the last look has found the node with the limit, and
/// decides which request is tried first.
pub(crate) async fn look_and_watch<'a>(
    path_lock: &PathLock,
    semaphore: &'a SemaphoreOptions,
    session: &Arc<Session>,
    limit_exists: bool,
) -> ((Answer<Seen>, &'a LockPath), Option<Watches>) {
    let unseen = |kind| ((Answer::no(kind), &semaphore.leases), None);
    // The watches count from before they are set. A head that cannot watch cannot wait, so there is
    // no poll instead (docs/protocol.md#watch-limit).
    let counted = |path| session.watches.watch(path, WatchUse::Queue);
    let counted = counted(semaphore.leases.server()).zip(counted(semaphore.limit.server()));
    let Some(counted) = counted else {
        return unseen(FailureKind::TooManyWatches);
    };
    let both = session.request(|handle| async move {
        let leases = handle.list_and_watch_children(semaphore.leases.server());
        let limit = read_and_watch_limit(semaphore, &handle, limit_exists);
        tokio::join!(leases, limit)
    });
    let (leases, limit) = match both.await {
        Ok(both) => both,
        Err(SessionGone) => return unseen(FailureKind::SessionGone),
    };
    let (leases, on_leases) = split(leases);
    let (limit, on_limit) = split(limit);
    // A list of a missing directory sets no watch. The head does not wait then, because there are
    // no leases to wait for.
    let watches = on_leases.zip(on_limit).map(|(leases, limit)| Watches {
        leases,
        limit,
        counted: counted.into(),
    });
    (seen(path_lock, semaphore, session, leases, limit), watches)
}

/// Waits for a `sync`, if one was sent.
async fn synced(
    sync: Option<impl Future<Output = Result<(), zk::Error>>>,
) -> Result<(), zk::Error> {
    match sync {
        Some(sync) => sync.await,
        None => Ok(()),
    }
}

fn split<T, W>(result: Result<(T, W), zk::Error>) -> (Result<T, zk::Error>, Option<W>) {
    match result {
        Ok((value, watcher)) => (Ok(value), Some(watcher)),
        Err(error) => (Err(error), None),
    }
}

/// The data of the node with the limit, and its version; `None` if there is no such node.
type LimitData = Option<(Vec<u8>, i32)>;

/// Lists the leases and reads the limit. Both requests are sent in this call, and not when the
/// future is polled.
fn read_both(
    semaphore: &SemaphoreOptions,
    handle: &zk::Client,
) -> impl Future<Output = (Result<Vec<String>, zk::Error>, Result<LimitData, zk::Error>)> {
    let leases = handle.list_children(semaphore.leases.server());
    let limit = read_limit(semaphore, handle);
    async move { tokio::join!(leases, limit) }
}

/// Reads the limit. The request is sent when this is called, and so together with others of the
/// caller.
fn read_limit(
    semaphore: &SemaphoreOptions,
    handle: &zk::Client,
) -> impl Future<Output = Result<LimitData, zk::Error>> + use<> {
    let data = handle.get_data(semaphore.limit.server());
    async move {
        match data.await {
            Ok((data, stat)) => Ok(Some((data, stat.version))),
            Err(zk::Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads the limit, and watches its node even if it is missing.
async fn read_and_watch_limit(
    semaphore: &SemaphoreOptions,
    handle: &zk::Client,
    limit_exists: bool,
) -> Result<(LimitData, zk::OneshotWatcher), zk::Error> {
    let path = semaphore.limit.server();
    if limit_exists {
        // One request reads and watches a node that exists. For a missing node it sets no watch, so
        // `exists` follows then.
        match handle.get_and_watch_data(path).await {
            Ok((data, stat, watcher)) => return Ok((Some((data, stat.version)), watcher)),
            Err(zk::Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    // A watch by `exists` fires when a missing node is created, and otherwise when the data of the
    // node change. The read below shows every change before it, and the watch fires for every later
    // one.
    let (exists, watcher) = handle.check_and_watch_stat(path).await?;
    let data = match exists {
        Some(_) => read_limit(semaphore, handle).await?,
        None => None,
    };
    Ok((data, watcher))
}

/// Returns the meaning of the answers to a look, and the directory or the node that it is about.
fn seen<'a>(
    path_lock: &PathLock,
    semaphore: &'a SemaphoreOptions,
    session: &Arc<Session>,
    leases: Result<Vec<String>, zk::Error>,
    limit: Result<LimitData, zk::Error>,
) -> (Answer<Seen>, &'a LockPath) {
    let leases = match leases {
        Ok(leases) => leases,
        // No permit has been taken here yet, or the servers have deleted the empty container.
        Err(zk::Error::NoNode) => Vec::new(),
        Err(error) => return (Answer::No(session.failure(error)), &semaphore.leases),
    };
    // A lease of an attempt that has ended may have been created late. Every child counts as a
    // taken permit, so each look has such leases deleted.
    delete_late_creates(path_lock, &semaphore.leases, session, &leases);
    let limit = match limit {
        Ok(limit) => decode(limit.as_ref()),
        Err(error) => return (Answer::No(session.failure(error)), &semaphore.limit),
    };
    let names = leases.iter().map(String::as_str);
    // A lease that this client is deleting still counts. A try waits for its deletion instead of
    // reporting the semaphore as busy (docs/protocol.md#live-contender).
    let leaving = session.nodes.leaving_of(&semaphore.leases, names).len();
    (
        Answer::Is(Seen {
            leases: leases.into(),
            leaving,
            limit,
        }),
        &semaphore.leases,
    )
}

/// Reads the data as Curator's `SharedCount` writes it.
fn decode(data: Option<&(Vec<u8>, i32)>) -> LimitNode {
    let Some((data, version)) = data else {
        return LimitNode::Missing;
    };
    // A Java `int` has four bytes, in big-endian order.
    let Ok(bytes) = <[u8; 4]>::try_from(data.as_slice()) else {
        return LimitNode::Invalid(format!("{} bytes", data.len()));
    };
    match i32::from_be_bytes(bytes) {
        // With a limit of zero or less no permit could ever be taken, so such a number counts as a
        // mistake.
        permits @ 1.. => LimitNode::Is {
            permits: permits.unsigned_abs(),
            version: *version,
        },
        number => LimitNode::Invalid(format!("the number {number}")),
    }
}

/// Writes the limit for all clients, where handles find it.
pub(crate) async fn set_limit(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
    permits: u32,
) -> Result<(), Error> {
    let data = &permits.to_be_bytes();
    let path = semaphore.limit.server();
    // Whether the last request was about the directories above the node. If that request is refused
    // for lack of a permission, the error names the directory above, whose ACL is the reason.
    let makes_above = &AtomicBool::new(false);
    let LockOptions { acl, parents, .. } = &path_lock.options;
    let written = path_lock.client.repeat(|session, handle| async move {
        makes_above.store(false, Ordering::Relaxed);
        // The write names no version: of several processes that set the limit, the last one counts.
        // A repetition has the same effect.
        match session.write(|| handle.set_data(path, data, None)).await {
            Err(zk::Error::NoNode) => {}
            answer => return answer.map(drop),
        }
        makes_above.store(true, Ordering::Relaxed);
        path_lock
            .client
            .make_directories(&handle, above(path), acl, *parents)
            .await?;
        match session
            .create(&handle, path, data, (zk::CreateMode::Persistent, acl))
            .await
        {
            // Another process has created the node in the meantime, or an earlier try of this call.
            Err(zk::Error::NodeExists) => {
                makes_above.store(false, Ordering::Relaxed);
                let written = session.write(|| handle.set_data(path, data, None));
                written.await.map(drop)
            }
            answer => answer.map(drop),
        }
    });
    written.await.map_err(|unanswered| {
        let subject = if makes_above.load(Ordering::Relaxed) {
            Subject::Parent
        } else {
            Subject::Directory
        };
        error_of(
            path_lock,
            Purpose::Limit,
            (&semaphore.limit, subject),
            unanswered,
        )
    })
}

/// Reads the limit in force; with `certain`, right behind a `sync`.
pub(crate) async fn limit(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
    certain: bool,
) -> Result<u32, Error> {
    let read = path_lock.client.repeat(|_, handle| async move {
        let sync = certain.then(|| handle.sync(semaphore.limit.server()));
        let (synced, data) = tokio::join!(synced(sync), read_limit(semaphore, &handle));
        synced?;
        data
    });
    let data = read
        .await
        .map_err(|unanswered| unseen(path_lock, &semaphore.limit, unanswered))?;
    match decode(data.as_ref()) {
        // The limit of this handle applies, as in an attempt.
        LimitNode::Missing => Ok(semaphore.permits),
        LimitNode::Is { permits, .. } => Ok(permits),
        LimitNode::Invalid(found) => Err(invalid(path_lock, semaphore, found)),
    }
}

/// Returns how many permits are free.
pub(crate) async fn available(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
) -> Result<u32, Error> {
    let (leases, data) = list(path_lock, semaphore).await?;
    let Some(data) = data else {
        // The number of free permits depends on the limit, so a limit that may not be read is an
        // error here. The list of leases alone is sufficient for `participants`.
        return Err(unseen(path_lock, &semaphore.limit, RequestFailure::NoAuth));
    };
    let limit = match decode(data.as_ref()) {
        LimitNode::Is { permits, .. } => permits,
        LimitNode::Invalid(found) => return Err(invalid(path_lock, semaphore, found)),
        // Without the node, the leases show whether another handle has another limit
        // (docs/protocol.md#semaphore-limit).
        LimitNode::Missing => match other_limit(&leases, semaphore.permits) {
            Some((theirs, lease)) => return Err(mismatch(path_lock, semaphore, theirs, lease)),
            None => semaphore.permits,
        },
    };
    Ok(free(limit, leases.len()))
}

/// Returns the paths of the leases, in the order of their creation.
pub(crate) async fn participants(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
) -> Result<Vec<NodePath>, Error> {
    let (mut leases, _) = list(path_lock, semaphore).await?;
    let number = |name: &String| {
        name.rsplit_once('-')
            .and_then(|(_, number)| number.parse::<i64>().ok())
    };
    // The number is that of the lease in its directory, which the servers count up. Names without a
    // number come first.
    leases.sort_by_cached_key(|name| (number(name), name.clone()));
    Ok(leases
        .iter()
        .map(|name| semaphore.leases.user_child(name))
        .collect())
}

/// Returns the names of the leases, and the data of the node with the limit; `None` instead of the
/// latter if this client may not read the node.
async fn list(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
) -> Result<(Vec<String>, Option<LimitData>), Error> {
    let looked = path_lock.client.repeat(|session, handle| async move {
        let (leases, limit) = read_both(semaphore, &handle).await;
        let leases = match leases {
            Err(zk::Error::NoNode) => Vec::new(),
            leases => leases?,
        };
        delete_late_creates(path_lock, &semaphore.leases, &session, &leases);
        match limit {
            Err(zk::Error::NoAuth) => Ok((leases, None)),
            limit => Ok((leases, Some(limit?))),
        }
    });
    looked
        .await
        .map_err(|unanswered| unseen(path_lock, &semaphore.leases, unanswered))
}

/// Returns the error of a node that contains no limit.
pub(crate) fn invalid(path_lock: &PathLock, semaphore: &SemaphoreOptions, found: String) -> Error {
    path_lock
        .error(Purpose::Look, RequestFailure::NoLimit(found))
        .at(semaphore.limit.whole())
}

/// Returns the error of a lease that was taken under another limit.
pub(crate) fn mismatch(
    path_lock: &PathLock,
    semaphore: &SemaphoreOptions,
    theirs: u32,
    lease: &str,
) -> Error {
    let why = RequestFailure::LimitMismatch {
        ours: semaphore.permits,
        theirs,
    };
    path_lock
        .error(Purpose::Look, why)
        .at(semaphore.leases.user_child(lease))
}
