//! One read of the queues of several locks (docs/protocol.md#multi-lock-try).

use std::sync::Arc;

use zookeeper_client as zk;

use crate::engine::lock::path_lock::{Member, PathLock};
use crate::engine::request::look::{InTheWay, in_the_way};
use crate::engine::request::requests::{list_alone, read_list};
use crate::protocol::failure::{Answer, FailureKind};
use crate::protocol::queue::Listing;
use crate::session::live::zk_session::Session;

/// How many queues are read by one request at most.
const MOST_QUEUES: usize = 100;

/// How many bytes such a request has at most: half of the server's limit.
const MOST_BYTES: usize = 500_000;

/// Returns how many of these members, from the first on, are read by one request: one at least.
pub(crate) fn read_together(members: &[Member]) -> usize {
    let mut bytes = 0_usize;
    let fits = |member: &&Member| {
        // The header of the operation has less than 20 bytes.
        bytes = bytes.saturating_add(member.path_lock.path().server().len() + 20);
        bytes <= MOST_BYTES
    };
    members.iter().take(MOST_QUEUES).take_while(fits).count().clamp(1, members.len().max(1))
}

/// Reads all queues by one request; by one request for each, sent together, where the servers do not know
/// that one. The requests are sent when this is called.
fn read_queues<'a>(
    session: &'a Arc<Session>,
    path_locks: &'a [&'a Arc<PathLock>],
    handle: &'a zk::Client,
) -> impl Future<Output = Vec<Answer<Listing>>> + 'a {
    let paths = path_locks.iter().map(|path_lock| path_lock.path().server());
    let sent = session.read_together(handle, paths).ok_or_else(|| one_by_one(session, path_locks, handle));
    async move {
        let answer = match sent {
            Ok(together) => together.await,
            Err(alone) => return alone.await,
        };
        let results = match answer {
            Ok(results) => results,
            Err(error) => {
                let failure = session.failure(error);
                if matches!(failure.kind, FailureKind::Refused(_)) {
                    return one_by_one(session, path_locks, handle).await;
                }
                return path_locks.iter().map(|_| Answer::No(failure.clone())).collect();
            }
        };
        let read = |(path_lock, result): (&&Arc<PathLock>, _)| match result {
            zk::MultiReadResult::Children { children } => Answer::Is(read_list(path_lock, session, children)),
            zk::MultiReadResult::Error { err } => Answer::No(session.failure(err)),
            _ => Answer::no(FailureKind::Unknown),
        };
        path_locks.iter().zip(results).map(read).collect()
    }
}

/// Lists all directories by one request for each. They are sent when this is called.
fn one_by_one<'a>(
    session: &'a Arc<Session>,
    path_locks: &'a [&'a Arc<PathLock>],
    handle: &'a zk::Client,
) -> impl Future<Output = Vec<Answer<Listing>>> + 'a {
    let asked: Vec<_> = path_locks.iter().map(|path_lock| list_alone(path_lock, session, handle)).collect();
    async move {
        let mut lists = Vec::with_capacity(asked.len());
        for list in asked {
            lists.push(match list.await {
                Ok(listing) => Answer::Is(listing),
                Err(error) => Answer::No(session.failure(error)),
            });
        }
        lists
    }
}

/// Returns, for each member, the contenders that a newcomer would have to wait for. `certain` is whether the
/// lists are sent right behind a `sync`: the connected server may lag behind (docs/protocol.md#try-lock).
/// After an error this finds no contender, and the create that follows reports the error.
pub(crate) async fn look(session: &Arc<Session>, members: &[Member], certain: bool) -> Vec<InTheWay> {
    let path_locks: Vec<&Arc<PathLock>> = members.iter().map(|member| &member.path_lock).collect();
    let path_locks = &path_locks;
    let lists = session.request(|handle| async move {
        // It is for everything that the leader has committed, whatever its path.
        let sync = match path_locks.first() {
            Some(path_lock) if certain => Some(handle.sync(path_lock.path().server())),
            _ => None,
        };
        let lists = read_queues(session, path_locks, &handle);
        let synced = async move {
            match sync {
                Some(sync) => sync.await.is_ok(),
                None => true,
            }
        };
        let (synced, lists) = tokio::join!(synced, lists);
        synced.then_some(lists)
    });
    let lists = lists.await.ok().flatten().unwrap_or_default();
    let judge = |(member, list): (&Member, Answer<Listing>)| match list {
        Answer::Is(Ok(queue)) if queue.usable().is_ok() => {
            in_the_way(&member.path_lock, session, &queue, None, member.kind)
        }
        _ => InTheWay::Nothing,
    };
    members.iter().zip(lists).map(judge).collect()
}
