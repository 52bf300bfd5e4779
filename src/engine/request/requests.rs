//! The requests of an attempt, and the events that their answers become.
//!
//! The state machine of `protocol/acquire.rs` names the next request, and gets the answer as an
//! event. The functions here send the request in the session of the attempt. Before an answer is
//! used, each node that it shows to be ours is recorded in two places: with the session, which
//! deletes nodes ([`nodes`](crate::session::contents::nodes)), and with the queue of the path, by
//! which other attempts of this client wait in memory (docs/protocol.md#waiting-in-memory). So a
//! node has an owner even if its attempt ends at this moment (docs/protocol.md#node-owners).
//!
//! No request is repeated here. All attempts that need a list of a fair lock's directory at the
//! same time share it (docs/protocol.md#shared-lists).

use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;
use zookeeper_client as zk;

use crate::engine::lock::first::in_queue;
use crate::engine::lock::lock_options::LockOptions;
use crate::engine::lock::path_lock::PathLock;
use crate::engine::shared_queue;
use crate::protocol::acquire::{AcquireEvent, OwnNode, Standing};
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::local_queue::{Neighbour, Notice};
use crate::protocol::node_name::{Child, Dialect, Family, Kind, Naming, classify};
use crate::protocol::numbers::AttemptNumber;
use crate::protocol::queue::{Listing, Queue};
use crate::session::contents::limits::{WatchUse, WindowSlot, watch_event};
use crate::session::leftovers::cleanup::{CleanupItem, Orphan};
use crate::session::live::zk_session::{Session, SessionGone};
use crate::session::reports::log;
use crate::session::threads::BoxFuture;
use crate::values::path::LockPath;

/// The context of a request: the lock, the session and the attempt that it is sent for.
#[derive(Clone, Copy)]
pub(crate) struct AttemptContext<'a> {
    pub(crate) path_lock: &'a Arc<PathLock>,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) number: AttemptNumber,
    pub(crate) kind: Kind,
}

/// Returns a fresh id for one create request (docs/protocol.md#one-id-per-create), as the dialect
/// writes it.
pub(crate) fn new_id(naming: Naming) -> String {
    let id = Uuid::new_v4();
    match naming.dialect {
        Dialect::Curator => id.to_string(),
        Dialect::Kazoo => id.simple().to_string(),
    }
}

/// Reserves room for the node of the create with this fresh id. Returns whether the session has
/// room for it (docs/protocol.md#session-nodes).
pub(crate) fn reserve_room(context: AttemptContext<'_>, id: &str) -> bool {
    let beginning = context.path_lock.options.naming().prefix(id, context.kind);
    let path = context.path_lock.path.child(&beginning);
    context.session.nodes.creates.begin(&[id.to_owned()], &path)
}

/// Sends the create with this id, for which [room is reserved](reserve_room), and the list, both at
/// the first poll: a session's requests are answered in order (docs/protocol.md#create-and-list).
///
/// The list is omitted if the number in the answer to the create may prove as much. In a fair lock
/// whose last node is of this session, that node may be right before the new one, which then waits
/// for it in memory (docs/protocol.md#waiting-in-memory). After three free grants in a row, the new
/// node may be first (docs/protocol.md#succession). If the number proves neither, the attempt lists
/// then.
pub(crate) async fn create(
    context: AttemptContext<'_>,
    slot: WindowSlot,
    id: String,
) -> AcquireEvent {
    let AttemptContext {
        path_lock,
        session,
        number,
        kind,
    } = context;
    let beginning = path_lock.options.naming().prefix(&id, kind);
    let path = path_lock.path.child(&beginning);
    let what = (zk::CreateMode::EphemeralSequential, &*path_lock.options.acl);
    let (path, beginning) = (&path, &beginning);
    let queue = &path_lock.queue;
    let may_wait = path_lock.is_fair() && queue.with(|queue| queue.may_skip_list(session.number));
    let list_too = !may_wait && !queue.without_list.expects_first(session, kind);
    let data = &path_lock.node_data();
    let both = session.request(|handle| async move {
        let create = session.create(&handle, path, data, what);
        // The create has been sent, so the next attempt may send its create: the servers carry out
        // the creates of a session in order (docs/protocol.md#arrival-order).
        queue.with(|queue| queue.step_aside(number, session.number));
        let list = list_too.then(|| list(path_lock, session, &handle));
        let create = async move {
            let answer = create.await;
            // The slot limits the unanswered creates, so it is free before the list is answered.
            drop(slot);
            // The node is registered before the list arrives, so that attempts that begin in
            // between may wait for it in memory.
            answer.map(|(stat, sequence)| {
                created(path_lock, session, format!("{beginning}{sequence}"), &stat)
            })
        };
        let list = async move {
            match list {
                Some(list) => Some(list.await),
                None => None,
            }
        };
        tokio::join!(create, list)
    });
    let Ok((create, list)) = both.await else {
        // The create may have made a node, which is deleted with the session.
        let list = list_too.then(|| Answer::no(FailureKind::SessionGone));
        return AcquireEvent::Created {
            id,
            create: Answer::no(FailureKind::SessionGone),
            list,
            standing: Standing::Unknown,
        };
    };
    let (create, before) = match create {
        Ok((node, before)) => (Answer::Is(node), before),
        Err(error) => {
            let failure = session.failure(error);
            // A definite error proves that there is no node, so its room is free again. The room of
            // an unknown create stays reserved until a list shows the node, or cleanup has settled
            // the create (docs/protocol.md#session-nodes). After the end of the session, no room is
            // given back (`Creates::freeze`).
            if failure.kind != FailureKind::Unknown {
                session.nodes.creates.end(&id);
            }
            if failure.kind == FailureKind::NoNode {
                // The attempt gets its turn back before it creates the directory, because a later
                // attempt would otherwise have the first node in it.
                queue.with(|queue| queue.directory_missing(number, session.number));
            }
            (Answer::No(failure), None)
        }
    };
    // The place of the node is decided after the answer to its create. By then the client library
    // has reported every event of the directory's watch that came before that answer
    // (docs/protocol.md#directory-watch).
    let standing = match (&create, &list, before) {
        (Answer::Is(node), None, _) if queue.without_list.is_first(session, node) => {
            Standing::First
        }
        (Answer::Is(_), None, Some(before)) => Standing::Behind(before),
        _ => Standing::Unknown,
    };
    AcquireEvent::Created {
        id,
        create,
        list: list.map(|list| answer(session, Ok(list))),
        standing,
    }
}

/// Registers a created node. Returns it, and the live node right before it, if that is certain.
fn created(
    path_lock: &PathLock,
    session: &Session,
    name: String,
    stat: &zk::Stat,
) -> (OwnNode, Option<Neighbour>) {
    session
        .nodes
        .add(path_lock.path.child(&name), path_lock.as_owner());
    let before = match classify(&name, path_lock.options.naming()) {
        // Waiters of a fair lock may wait for this node in memory, even if a mutex created it: the
        // two share a queue. A read-write lock has no fair waiters.
        Child::Contender { sequence, .. }
            if path_lock.options.naming().family != Family::ReadWrite =>
        {
            let leaving = |name: &str| session.nodes.is_leaving(&path_lock.path, name);
            path_lock.queue.with(|queue| {
                let before = queue.created(session.number, &name, sequence);
                // A waiter reports live contenders ahead of it. If that is not certain, the attempt
                // lists instead.
                before.filter(|before| queue.is_live(session.number, &before.name, &leaving))
            })
        }
        _ => None,
    };
    (own_node(name, stat), before)
}

/// Creates a directory of a lock and those above it that are missing.
pub(crate) async fn make_directories(
    AttemptContext {
        path_lock, session, ..
    }: AttemptContext<'_>,
    directory: &LockPath,
) -> Answer<()> {
    let (client, LockOptions { acl, parents, .. }) = (&path_lock.client, &path_lock.options);
    let made = session.request(|handle| async move {
        client
            .make_directories(&handle, directory.server(), acl, *parents)
            .await
    });
    answer(session, made.await)
}

/// Lists the directory for the contender with the node `own`, if it has one.
pub(crate) async fn list_own(context: AttemptContext<'_>, own: Option<&str>) -> AcquireEvent {
    let AttemptContext {
        path_lock, session, ..
    } = context;
    // An attempt that lists does not wait in memory, so no release may choose its node for a
    // hand-over until the attempt waits again.
    if let Some(own) = own {
        path_lock
            .queue
            .with(|queue| queue.stop_waiting(session.number, own));
    }
    let list = session
        .request(|handle| async move { list(path_lock, session, &handle).await })
        .await;
    AcquireEvent::Listed(answer(session, list))
}

/// Reads the Stat of an own node that is known from a list only (docs/protocol.md#owner-check).
pub(crate) async fn inspect(
    AttemptContext {
        path_lock, session, ..
    }: AttemptContext<'_>,
    name: &str,
) -> AcquireEvent {
    let path = path_lock.path.child(name);
    AcquireEvent::Inspected(match stat(session, &path).await {
        Answer::Is(stat) => {
            // The node exists, so it gets an owner first. If its session is another one, ours ends
            // below, and the record with it.
            session.nodes.add(path, path_lock.as_owner());
            if path_lock.options.naming().family != Family::ReadWrite {
                path_lock
                    .queue
                    .with(|queue| queue.add_listed(session.number, name));
            }
            match session.check_owner(&stat) {
                true => Answer::Is(own_node(name.to_owned(), &stat)),
                false => Answer::no(FailureKind::SessionGone),
            }
        }
        Answer::No(failure) => Answer::No(failure),
    })
}

/// Reads the Stat of a node that exists as far as is known.
pub(crate) async fn stat(session: &Session, path: &str) -> Answer<zk::Stat> {
    let stat = session
        .request(|handle| async move { handle.check_stat(path).await?.ok_or(zk::Error::NoNode) });
    answer(session, stat.await)
}

/// Watches a predecessor on the servers, if the session can watch one more node, and waits until
/// something happens to it.
pub(crate) async fn watch(
    context: AttemptContext<'_>,
    own: Option<&str>,
    predecessor: &str,
) -> AcquireEvent {
    let AttemptContext {
        path_lock, session, ..
    } = context;
    // If this node is deleted, an attempt that waits for it in memory inherits the watch of the
    // predecessor.
    if let Some(own) = own.filter(|_| path_lock.is_fair()) {
        path_lock
            .queue
            .with(|queue| queue.watch(session.number, own, predecessor));
    }
    let path = path_lock.path.child(predecessor);
    let Some(_watching) = session.watches.watch(&path, WatchUse::Queue) else {
        return AcquireEvent::WatchFailed(FailureKind::TooManyWatches.into());
    };
    let path = &path;
    let set = session
        .request(|handle| async move { handle.get_and_watch_data(path).await })
        .await;
    let (watcher, seen) = match answer(session, set) {
        Answer::Is((data, stat, watcher)) => {
            // The error of an attempt that is not granted in time names this contender
            // (docs/protocol.md#held-by).
            let (naming, read, id) = (
                path_lock.options.naming(),
                (&*data, &stat),
                session.session_id,
            );
            let contender = || in_queue(naming, &path_lock.path, predecessor, read, id);
            let seen = path_lock.first_seen.watched(predecessor, contender);
            (watcher, seen)
        }
        // A refusal (NoAuth) ends the attempt. An `exists` would set a watch without the
        // READ permission, but servers with the fix of CVE-2024-23944 do not deliver its event
        // then: the attempt would wait forever (docs/protocol.md#no-access).
        // With `NoNode`, the predecessor was deleted before the watch was set, and the attempt
        // lists (docs/protocol.md#watch-one-node).
        Answer::No(failure) => return AcquireEvent::WatchFailed(failure),
    };
    // The handle is not kept during this wait, which may take hours
    // (docs/protocol.md#lent-session).
    let event = watch_event(watcher).await;
    if let Some(seen) = seen {
        seen.fired();
    }
    match meaning(session, event) {
        Answer::Is(()) => AcquireEvent::WaitOver,
        Answer::No(failure) => AcquireEvent::WatchFailed(failure),
    }
}

/// Returns the meaning of a watch's event: a change of the node, or the end of the session.
pub(crate) fn meaning(session: &Session, event: Option<zk::WatchedEvent>) -> Answer<()> {
    let error = match event {
        Some(event) => match (event.event_type, event.session_state) {
            (zk::EventType::Session, zk::SessionState::Expired) => zk::Error::SessionExpired,
            (zk::EventType::Session, state) if state.is_terminated() => zk::Error::ClientClosed,
            // A change of the data, such as a requested revocation, wakes the attempt too. The list
            // that follows shows that the predecessor still exists.
            _ => return Answer::Is(()),
        },
        // The client library's task for the session has panicked (docs/protocol.md#session-end).
        None => zk::Error::UnexpectedError("the session's task has died".to_owned()),
    };
    Answer::No(session.failure(error))
}

/// Waits in memory for a node of the same session.
pub(crate) async fn wait_for(
    context: AttemptContext<'_>,
    own: Option<&str>,
    before: &Neighbour,
) -> AcquireEvent {
    let AttemptContext {
        path_lock, session, ..
    } = context;
    let (wake, notice) = oneshot::channel();
    let wait = |own| {
        path_lock
            .queue
            .with(|queue| queue.wait(session.number, own, before, wake))
    };
    if !own.is_some_and(wait) {
        // The predecessor is not known any more, because it was deleted since the list. Without an
        // own node, which is not expected, the attempt lists too.
        return AcquireEvent::WatchFailed(FailureKind::NoNode.into());
    }
    match notice.await {
        Ok(Notice::HandedOver) => AcquireEvent::HandedOver,
        Ok(Notice::Watch { predecessor }) => AcquireEvent::Inherited { predecessor },
        // The node is gone without a hand-over to this one, or a newer session has begun. In each
        // case of doubt, and without a notice, the attempt lists.
        Ok(_) | Err(_) => AcquireEvent::WaitOver,
    }
}

/// Lists the directory. A separate list is sent when this is called; a shared one after all earlier
/// requests of the caller.
pub(crate) fn list<'a>(
    path_lock: &'a Arc<PathLock>,
    session: &'a Arc<Session>,
    handle: &'a zk::Client,
) -> BoxFuture<'a, Result<Listing, zk::Error>> {
    if !path_lock.is_fair() {
        return Box::pin(list_alone(path_lock, session, handle));
    }
    let (queue, client) = (&path_lock.queue, &path_lock.client);
    let (path_lock, session) = (Arc::clone(path_lock), Arc::clone(session));
    Box::pin(shared_queue::ask_list(
        queue,
        client,
        session.number,
        move || {
            let (path_lock, session) = (Arc::clone(&path_lock), Arc::clone(&session));
            async move {
                let (path_lock, session) = (&path_lock, &session);
                let list = session
                    .request(|handle| async move { list_alone(path_lock, session, &handle).await });
                // Every attempt that shares the list notices the end of the session itself.
                list.await.unwrap_or(Err(zk::Error::ConnectionLoss))
            }
        },
    ))
}

/// Lists the directory. The request is sent when this is called.
pub(crate) fn list_alone(
    path_lock: &Arc<PathLock>,
    session: &Arc<Session>,
    handle: &zk::Client,
) -> impl Future<Output = Result<Listing, zk::Error>> {
    let children = handle.list_children(path_lock.path.server());
    async move { Ok(read_list(path_lock, session, children.await?)) }
}

/// Reads a list of the directory, and has late creates deleted that it shows.
pub(crate) fn read_list(
    path_lock: &PathLock,
    session: &Arc<Session>,
    children: Vec<String>,
) -> Listing {
    delete_late_creates(path_lock, &path_lock.path, session, &children);
    let names = children.iter().map(String::as_str);
    // Nodes that are being deleted are noted now: by the time an attempt reads a shared list, such
    // a node may be gone, and not known as one of this client any more.
    let leaving = session.nodes.leaving_of(&path_lock.path, names);
    let leaving = leaving.into_iter().map(ToOwned::to_owned).collect();
    let listing = Queue::read_with(children, path_lock.options.naming(), leaving);
    if let Ok(queue) = &listing {
        path_lock.report_foreign_children(queue);
    }
    listing
}

fn own_node(name: String, stat: &zk::Stat) -> OwnNode {
    // A token from an invalid Stat would be the oldest of all (docs/protocol.md#fencing-token).
    // Without a zxid, the attempt reads the Stat before it is granted the lock.
    OwnNode {
        name,
        czxid: (!stat.is_invalid()).then_some(stat.czxid),
    }
}

/// Returns the answer to a request.
pub(crate) fn answer<T>(
    session: &Session,
    result: Result<Result<T, zk::Error>, SessionGone>,
) -> Answer<T> {
    match result {
        Ok(Ok(answer)) => Answer::Is(answer),
        Ok(Err(error)) => Answer::No(session.failure(error)),
        Err(SessionGone) => Answer::no(FailureKind::SessionGone),
    }
}

/// Has the nodes deleted that a list shows and that come from creates of ended attempts
/// (docs/protocol.md#write-barrier).
pub(crate) fn delete_late_creates(
    path_lock: &PathLock,
    directory: &LockPath,
    session: &Arc<Session>,
    children: &[String],
) {
    for late in session.unknown_creates.take_late(directory, children) {
        let path = directory.user();
        log::debug!(
            path,
            node = late,
            "a create came through after it was given up"
        );
        path_lock.client.cleanup.submit(CleanupItem {
            session: Arc::clone(session),
            directory: directory.clone(),
            orphan: Orphan::Node(late.to_owned()),
            // The attempt of this create has ended, so the node gets a new number: a flush that has
            // begun does not wait for it.
            number: path_lock.client.cleanup.number(1),
            slot: None,
            done: None,
        });
    }
}
