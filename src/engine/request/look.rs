//! Looks at a queue by a client that is not in it: for questions, for a try before it creates a
//! node, and for errors, which name the holder.
//!
//! A look lists the directory, and omits the nodes that this client is deleting
//! (docs/protocol.md#live-contender). The connected server may lag behind the others, and show a
//! holder that released the lock long ago. The answer to a question is what that server shows. A
//! try that finds the lock busy looks once more, right behind a `sync`, so that `WouldBlock` is
//! true (docs/protocol.md#try-lock).
//!
//! Errors name the first node in the queue. Of all calls that are about to end, one reads that
//! node, and the others share the result (docs/protocol.md#held-by).
//!
//! If this client has an orphan in the directory whose deletion was refused, the deletion is
//! requested once more before a newcomer is refused because of that orphan
//! (docs/protocol.md#refused-orphan).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::engine::lock::first::{contender, in_queue};
use crate::engine::lock::lock_options::SemaphoreOptions;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::request::requests::{delete_late_creates, list, list_alone};
use crate::error::{AcquireError, Error, ErrorKind, Purpose, RequestFailure};
use crate::protocol::late::Ahead;
use crate::protocol::node_name::Kind;
use crate::protocol::queue::{Listing, Queue, Unusable};
use crate::session::contents::limits::{WatchUse, watch_event};
use crate::session::contents::nodes::RefusedOrphan;
use crate::session::leftovers::deletion::first_refused;
use crate::session::live::zk_session::Session;
use crate::values::contender::ContenderKind;
use crate::values::path::{LockPath, NodePath, above};

/// Returns the paths of the contenders of a lock, all or those of one kind, in order.
pub(crate) async fn participants(
    path_lock: &Arc<PathLock>,
    kind: Option<Kind>,
) -> Result<Vec<NodePath>, Error> {
    let queue = usable_queue(path_lock).await?;
    let nodes = queue.iter().flat_map(|queue| queue.in_order(kind));
    Ok(nodes.map(|name| path_lock.path.user_child(name)).collect())
}

/// Returns how many contenders are before the node `name`. `None` if it is not in the queue.
pub(crate) async fn position(
    path_lock: &Arc<PathLock>,
    name: &str,
) -> Result<Option<usize>, Error> {
    let Some(queue) = list_queue(path_lock).await? else {
        return Ok(None);
    };
    // A contender of another order behind the node does not end a wait, so it is no error here
    // either.
    queue
        .usable_by(name)
        .map_err(|unusable| unusable_directory(path_lock, unusable))?;
    Ok(queue.rank(name))
}

/// How long a look waits for a contender of another order to leave, in all.
const LEAVING: Duration = Duration::from_secs(1);

/// Returns the queue, for a look. A contender of another order may be about to leave, as its last
/// handle did: then it is waited for, and the look shows who is there without it
/// (docs/protocol.md#mixed-recipes). `None` if the directory does not exist.
pub(crate) async fn usable_queue(path_lock: &Arc<PathLock>) -> Result<Option<Arc<Queue>>, Error> {
    let until = tokio::time::Instant::now() + LEAVING;
    loop {
        let Some(queue) = list_queue(path_lock).await? else {
            return Ok(None);
        };
        let unusable = match queue.usable() {
            Ok(()) => return Ok(Some(queue)),
            Err(unusable) => unusable,
        };
        let gone = match &unusable {
            Unusable::OtherOrder(node) => {
                tokio::time::timeout_at(until, until_gone(path_lock, node)).await
            }
            Unusable::Exhausted => Ok(false),
        };
        // The time is over, the node could not be watched, or no wait would help.
        if gone != Ok(true) {
            return Err(unusable_directory(path_lock, unusable));
        }
    }
}

/// Waits until something happens to a contender's node, if it can be watched. Returns whether
/// something has.
async fn until_gone(path_lock: &Arc<PathLock>, node: &str) -> bool {
    let path = &path_lock.path.child(node);
    let watched = path_lock.client.repeat(|session, handle| async move {
        let watching = session.watches.watch(path, WatchUse::Node);
        // The look reports the contender instead of waiting if the session can watch no more.
        if watching.is_none() {
            return Ok(None);
        }
        let (stat, watcher) = handle.check_and_watch_stat(path).await?;
        Ok(Some(stat.map(|_| (watcher, watching))))
    });
    match watched.await {
        // The next list shows whether the node is gone, whatever the event was. Until then the
        // watch counts against the limit of the session.
        Ok(Some(Some((watcher, _watching)))) => {
            drop(watch_event(watcher).await);
            true
        }
        // The node was deleted before the watch was set.
        Ok(Some(None)) => true,
        Ok(None) | Err(_) => false,
    }
}

/// Returns the queue as it is now. `None` if the directory does not exist.
pub(crate) async fn list_queue(path_lock: &Arc<PathLock>) -> Result<Option<Arc<Queue>>, Error> {
    let path = &path_lock.path;
    let listing = path_lock.client.repeat(|session, handle| async move {
        match list(path_lock, &session, &handle).await {
            Ok(listing) => Ok(Some(listing)),
            Err(zk::Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    });
    match listing.await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(queue))) => Ok(Some(queue)),
        Ok(Some(Err(unusable))) => Err(unusable_directory(path_lock, unusable)),
        Err(unanswered) => Err(unseen(path_lock, path, unanswered)),
    }
}

/// The node that a request was about.
#[derive(Default)]
pub(crate) enum Subject {
    #[default]
    Directory,
    /// The directory above the lock's, or one above that.
    Parent,
    /// Another contender's node.
    Node(Box<str>),
}

/// Returns the error of a request about this node of a directory.
pub(crate) fn error_of(
    path_lock: &PathLock,
    purpose: Purpose,
    (directory, subject): (&LockPath, Subject),
    why: impl Into<RequestFailure>,
) -> Error {
    let error = path_lock.error(purpose, why);
    // A missing permission is fixed at one node, so the error has to name it. Other errors are
    // about the lock.
    if error.kind() != ErrorKind::NoAuth {
        return error;
    }
    match subject {
        Subject::Directory => error.at(directory.whole()),
        Subject::Parent => error.at(above(directory.whole())),
        Subject::Node(name) => error.at(directory.user_child(&name)),
    }
}

/// Returns the error of a look into a directory.
pub(crate) fn unseen(
    path_lock: &PathLock,
    directory: &LockPath,
    why: impl Into<RequestFailure>,
) -> Error {
    error_of(
        path_lock,
        Purpose::Look,
        (directory, Subject::Directory),
        why,
    )
}

/// Returns the error of a directory that is unusable.
pub(crate) fn unusable_directory(path_lock: &PathLock, unusable: Unusable) -> Error {
    match unusable {
        Unusable::OtherOrder(name) => {
            let node = path_lock.path.user_child(&name);
            path_lock
                .error(Purpose::Look, RequestFailure::MixedRecipes)
                .at(node)
        }
        Unusable::Exhausted => path_lock.error(Purpose::Look, RequestFailure::SequenceExhausted),
    }
}

/// Returns an error if this client has refused orphans in the directory, after asking for their
/// deletion once more. With `ahead`, a list and the name of a contender, only contenders ahead of
/// that one count (docs/protocol.md#refused-orphan).
pub(crate) async fn refused_orphan_error(
    path_lock: &PathLock,
    session: &Session,
    kind: Kind,
    ahead: Option<(&Queue, Option<&str>)>,
) -> Option<AcquireError> {
    let mut orphans = session.nodes.refused_orphans(Some(&path_lock.path));
    if orphans.is_empty() {
        return None;
    }
    // Without a list each of them counts: another attempt would leave another orphan.
    if let Some((queue, name)) = ahead {
        let in_the_way: HashSet<&str> = queue.in_the_way(name, kind).1.collect();
        orphans.retain(|orphan| in_the_way.contains(orphan.name.as_str()));
    }
    // The future is on the heap, so that waiting attempts, of which there may be thousands,
    // reserve no memory for this rare case.
    Box::pin(refused_again(path_lock, session, orphans)).await
}

/// Asks for the deletion of these nodes once more. Returns the error if one is refused.
pub(crate) async fn refused_again(
    path_lock: &PathLock,
    session: &Session,
    orphans: Vec<RefusedOrphan>,
) -> Option<AcquireError> {
    let (orphan, source) = first_refused(session, orphans).await?;
    let node = orphan.directory.user_child(&orphan.name);
    Some(AcquireError::Orphaned {
        path: path_lock.path.user().to_owned(),
        node,
        source,
    })
}

/// Waits until the deletion of a node of this client in a directory is refused.
pub(crate) async fn refused_in(
    directory: &LockPath,
    session: &Session,
    refusals: &mut watch::Receiver<u64>,
) {
    // An error is impossible: the session has the sender.
    while refusals.changed().await.is_ok() {
        if !session.nodes.refused_orphans(Some(directory)).is_empty() {
            return;
        }
    }
    // The end of the session ends the wait of the attempt, which drops this future.
    std::future::pending::<()>().await;
}

/// The contenders that another must wait for.
pub(crate) enum InTheWay {
    Nothing,
    /// Live contenders.
    Live(Ahead),
    /// Only nodes of this session that are being deleted. `last` is the server path of the last of
    /// them.
    Leaving {
        last: String,
    },
}

impl InTheWay {
    /// Returns the live contenders; `None` if there are none.
    pub(crate) fn ahead(self) -> Option<Ahead> {
        match self {
            Self::Live(ahead) => Some(ahead),
            Self::Nothing | Self::Leaving { .. } => None,
        }
    }
}

/// Returns the contenders that `name`, or a newcomer of this kind, must wait for, according to a
/// list.
pub(crate) fn in_the_way(
    path_lock: &PathLock,
    session: &Session,
    queue: &Queue,
    name: Option<&str>,
    kind: Kind,
) -> InTheWay {
    let (count, names) = queue.in_the_way(name, kind);
    // The count is that of the arrival of the list. Thousands may be ahead, so the names are looked
    // up only until the first live contender.
    let count = count.saturating_sub(queue.leaving_in_the_way(name, kind));
    let mut leaving = None;
    for name in names {
        if !is_leaving(path_lock, session, queue, name) {
            return InTheWay::Live(Ahead {
                count,
                first: Some(path_lock.path.user_child(name)),
            });
        }
        leaving = Some(name);
    }
    leaving.map_or(InTheWay::Nothing, |name| InTheWay::Leaving {
        last: path_lock.path.child(name),
    })
}

/// Returns whether this client is deleting a contender, or was when the list arrived.
fn is_leaving(path_lock: &PathLock, session: &Session, queue: &Queue, name: &str) -> bool {
    queue.is_leaving(name) || session.nodes.is_leaving(&path_lock.path, name)
}

/// Records who is first by a list, for errors. A node that this client is deleting is not first.
/// Returns the name of the first node if nothing is known of it. The queue of a semaphore is not
/// recorded, because it does not show who has the permits.
pub(crate) fn saw_first(
    path_lock: &PathLock,
    session: &Session,
    queue: &Queue,
) -> Option<Arc<str>> {
    if path_lock.options.semaphore.is_some() {
        return None;
    }
    let is_live = |name: &&str| !is_leaving(path_lock, session, queue, name);
    let first = queue.in_order(None).find(is_live)?;
    path_lock.first_seen.saw(first)
}

/// Records the live leases of a semaphore, the oldest of which is first, for errors. Returns them,
/// and the name of the oldest if nothing is known of it. `None` if there are none, or this client
/// is deleting all of them.
pub(crate) fn saw_leases(
    path_lock: &PathLock,
    session: &Session,
    semaphore: &SemaphoreOptions,
    leases: &[String],
) -> Option<(Ahead, Option<Arc<str>>)> {
    let leaving = session
        .nodes
        .leaving_of(&semaphore.leases, leases.iter().map(String::as_str));
    let live = leases
        .iter()
        .filter(|name| leaving.is_empty() || !leaving.contains(name.as_str()));
    // The sequence numbers have ten digits, so their order as text is their order as numbers.
    let first = live.min_by_key(|name| name.rsplit_once('-').map(|(_, number)| number))?;
    let ahead = Ahead {
        count: leases.len().saturating_sub(leaving.len()),
        first: Some(semaphore.leases.user_child(first)),
    };
    Some((ahead, path_lock.first_seen.saw(first)))
}

/// Returns the contenders that a try would have to wait for, before it creates a node. The
/// connected server may lag behind, so live contenders count only in a list that was sent right
/// behind a `sync` (docs/protocol.md#try-lock). After an error the result is `Nothing`, and the
/// create that follows reports it.
pub(crate) async fn look_before_try(
    path_lock: &Arc<PathLock>,
    session: &Arc<Session>,
    kind: Kind,
) -> InTheWay {
    // The name is that of the first node, if nothing is known of it yet.
    let judge = |listing: Listing| match listing {
        Ok(queue) if queue.usable().is_ok() => {
            let unknown = saw_first(path_lock, session, &queue);
            (in_the_way(path_lock, session, &queue, None, kind), unknown)
        }
        _ => (InTheWay::Nothing, None),
    };
    // A late create of this client would block every try; the list causes its deletion.
    let list =
        session.request(|handle| async move { list_alone(path_lock, session, &handle).await });
    let unknown = match list.await {
        Ok(Ok(listing)) => match judge(listing) {
            (InTheWay::Live(_), unknown) => unknown,
            // A stale list without a live contender does no harm, because the create that follows
            // decides.
            (seen, _) => return seen,
        },
        _ => return InTheWay::Nothing,
    };
    // Who holds the lock is read in the same flight, once for each node (docs/protocol.md#held-by).
    let first = unknown.as_deref().map(|name| path_lock.path.child(name));
    let first = &first;
    let certain = session.request(|handle| async move {
        // All three are sent before the first is awaited. The server answers them in order, so the
        // list is not older than the `sync`.
        let sync = handle.sync(path_lock.path.server());
        let list = list_alone(path_lock, session, &handle);
        let read = first.as_deref().map(|path| handle.get_data(path));
        let read = async {
            match read {
                Some(read) => read.await.ok(),
                None => None,
            }
        };
        tokio::join!(sync, list, read)
    });
    match certain.await {
        Ok((Ok(()), Ok(listing), read)) => {
            if let (Some(name), Some(read)) = (&unknown, &read) {
                know_first(path_lock, session, name, read);
            }
            judge(listing).0
        }
        _ => InTheWay::Nothing,
    }
}

/// How often one look-up reads the first node. If that node is gone, another list shows the next.
const ROUNDS: u32 = 2;

/// Asks who is first in the queue, for an error, unless that is known or has just been asked. One
/// of many calls that end soon asks for all (docs/protocol.md#held-by).
pub(crate) fn ask_first(path_lock: &Arc<PathLock>) {
    let first = &path_lock.first_seen;
    // If a hold of this client excludes all others, the error names the line that holds it, which
    // takes no request.
    if !first.begin_lookup() || path_lock.is_first_by_itself() {
        return;
    }
    let Some(session) = path_lock.client.live() else {
        return;
    };
    // The answer is for all calls that end soon, so the task outlives the one that has started it.
    let asking = Arc::clone(path_lock);
    let ask = async move {
        let (path_lock, session) = (&asking, &session);
        let directory = path_lock.directory_of_holders();
        for _ in 0..ROUNDS {
            let is_live = |name: &Arc<str>| !session.nodes.is_leaving(directory, name);
            // A list is needed only if none has shown a first node that is still live.
            if path_lock.first_seen.name().filter(is_live).is_none()
                && list_first(path_lock, session).await.is_none()
            {
                return;
            }
            let name = path_lock.first_seen.name().filter(is_live);
            let is_gone = read_first(path_lock, session, name).await;
            if !is_gone {
                return;
            }
        }
    };
    path_lock.client.tasks.start(ask).detach();
}

/// Lists the nodes of the holders, which shows the first; `None` without an answer.
async fn list_first(path_lock: &Arc<PathLock>, session: &Arc<Session>) -> Option<()> {
    let Some(semaphore) = &path_lock.options.semaphore else {
        let list =
            session.request(|handle| async move { list_alone(path_lock, session, &handle).await });
        let queue = list.await.ok()?.ok()?.ok()?;
        saw_first(path_lock, session, &queue);
        return Some(());
    };
    let path = semaphore.leases.server();
    let list = session.request(|handle| async move { handle.list_children(path).await });
    let leases = list.await.ok()?.ok()?;
    delete_late_creates(path_lock, &semaphore.leases, session, &leases);
    saw_leases(path_lock, session, semaphore, &leases);
    Some(())
}

/// Reads the node of the first holder, if its name is given. Returns whether the node is gone, so
/// that another is first.
pub(crate) async fn read_first(
    path_lock: &PathLock,
    session: &Arc<Session>,
    name: Option<Arc<str>>,
) -> bool {
    let Some(name) = name else {
        return false;
    };
    let path = &path_lock.directory_of_holders().child(&name);
    let read = session.request(|handle| async move { handle.get_data(path).await });
    match read.await {
        Ok(Ok(read)) => {
            know_first(path_lock, session, &name, &read);
            false
        }
        Ok(Err(zk::Error::NoNode)) => {
            path_lock.first_seen.gone(&name);
            true
        }
        // Without an answer, the error has only the number of contenders ahead.
        _ => false,
    }
}

/// The longest time before its deadline at which a call asks who is first. A short call asks a
/// quarter of its time before the deadline.
const BEFORE: Duration = Duration::from_millis(100);

/// Returns when a call with this deadline asks who is first, for the error if it is not granted in
/// time. The moment may have passed, if another call had an earlier deadline until now. `None` if
/// the clock does not reach back so far.
pub(crate) fn ask_at(deadline: Instant, asked: Duration) -> Option<Instant> {
    deadline.checked_sub((asked / 4).min(BEFORE))
}

/// Waits until the deadline of a call. Asks shortly before it who is first.
pub(crate) async fn until_deadline(path_lock: Arc<PathLock>, deadline: Instant, asked: Duration) {
    // A call that begins after that moment does not ask, because the answer would come too late.
    if let Some(at) = ask_at(deadline, asked).filter(|at| *at > Instant::now()) {
        tokio::time::sleep_until(at.into()).await;
        ask_first(&path_lock);
    }
    tokio::time::sleep_until(deadline.into()).await;
}

/// Records the result of a read of the node `name`.
fn know_first(
    path_lock: &PathLock,
    session: &Session,
    name: &str,
    (data, stat): &(Vec<u8>, zk::Stat),
) {
    let (read, id) = ((&**data, stat), session.session_id);
    let first = match &path_lock.options.semaphore {
        Some(semaphore) => {
            let named = (name, ContenderKind::Permit);
            Some(contender(&semaphore.leases, named, read, id))
        }
        None => in_queue(path_lock.options.naming(), &path_lock.path, name, read, id),
    };
    if let Some(first) = first {
        path_lock.first_seen.know(first);
    }
}
