//! The requests for several locks at once: one transaction that creates the nodes of all, and one read of all
//! their queues (docs/protocol.md#multi-lock-at-once).

use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use crate::engine::attempt::Begun;
use crate::engine::look::{InTheWay, in_the_way};
use crate::engine::path_lock::{Admission, Member, PathLock};
use crate::engine::requests::{
    check_owner, created, list_alone, make_parents, new_id, read_list, to_library,
};
use crate::engine::seat::Seat;
use crate::engine::shared_queue::Place;
use crate::protocol::acquire::{AcquireEvent, IfBusy, OwnNode, Standing};
use crate::protocol::failure::{Answer, Failure, FailureKind};
use crate::protocol::local_queue::{Arrival, Newcomer, Wish};
use crate::protocol::queue::Listing;
use crate::session::clock;
use crate::session::running::Running;
use crate::session::window::Slot;
use crate::session::zk_session::Session;

/// How many nodes are created by one transaction at most.
const MOST_NODES: usize = 100;

/// How many bytes such a transaction has at most: half of what a server accepts, because the answer of the
/// read that may follow has the same data again.
const MOST_BYTES: usize = 500_000;

/// Returns for how many of these members, from the first on, one transaction can create the nodes.
pub(super) fn fit_together(members: &[Member]) -> usize {
    let mut bytes = 0_usize;
    let fits = |member: &&Member| {
        let (path, options) = (member.path_lock.path(), member.path_lock.options());
        let acl: usize = options.acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 16).sum();
        // The name of the node and the header of the operation have less than 150 bytes.
        bytes = bytes.saturating_add(path.server().len() + member.path_lock.most_data() + acl + 150);
        bytes <= MOST_BYTES
    };
    members.iter().take(MOST_NODES).take_while(fits).count()
}

/// A member that has its place and its turn to create, and no node yet. Both are given up when it is dropped.
pub(super) struct Reserved {
    member: Member,
    number: u64,
    place: Arc<Place>,
}

impl Reserved {
    /// Takes a place and a turn in a session. `None` if either has to be waited for, behind other attempts of
    /// this client.
    pub(super) fn new(member: &Member, session: &Session, admission: Admission) -> Option<Self> {
        let path_lock = &member.path_lock;
        let number = path_lock.client().cleanup().number();
        // Its drop tells the queue that it has left.
        let place = Place::new(path_lock.queue(), number);
        let newcomer = Newcomer {
            number,
            limit: path_lock.limit(),
            kind: member.kind,
            again: admission == Admission::Again,
            wish: Wish::Join,
        };
        let (wake, _) = oneshot::channel();
        let (turn, _) = oneshot::channel();
        let has_both = path_lock.queue().with(|queue| {
            queue.arrive(newcomer, wake) == Arrival::Admitted
                && queue.may_create(number, session.number(), turn)
        });
        has_both.then(|| Self { member: member.clone(), number, place })
    }

    fn seat<'a>(&'a self, session: &'a Arc<Session>) -> Seat<'a> {
        Seat { path_lock: &self.member.path_lock, session, number: self.number, kind: self.member.kind }
    }
}

/// What came of a transaction that creates the nodes of all.
enum Created {
    /// All were created.
    All(Vec<Answer<OwnNode>>),
    /// All were created, or none.
    Unknown(Failure),
    /// None was created: the operation at this index was refused because its directory is missing.
    NoDirectory(usize),
    /// None was created.
    None,
}

/// Creates the nodes of all members by one transaction, and reads all their queues in the same flight.
/// Returns what each attempt has begun with; empty if none was created, for a reason that an ordinary attempt
/// finds out.
pub(super) async fn create_together(
    session: Arc<Session>,
    mut members: Vec<Reserved>,
    if_busy: IfBusy,
    slot: Slot,
    running: Arc<Running>,
) -> Vec<Begun> {
    let mut slot = Some(slot);
    let mut made_directories = false;
    loop {
        let ids: Vec<String> =
            members.iter().map(|member| new_id(member.member.path_lock.naming())).collect();
        let (created, lists) = send_together(&session, &members, &ids, slot.take()).await;
        let creates = match created {
            Created::All(nodes) => with_zxids(&session, &members, nodes).await,
            Created::Unknown(failure) => members.iter().map(|_| Answer::No(failure.clone())).collect(),
            Created::NoDirectory(index) if !made_directories => {
                made_directories = true;
                if make_directories(&session, &members, index, &lists).await {
                    continue;
                }
                return Vec::new();
            }
            Created::NoDirectory(_) | Created::None => return Vec::new(),
        };
        let answers = creates.into_iter().zip(lists).zip(ids);
        let begun = members.drain(..).zip(answers).map(|(reserved, ((create, list), id))| {
            let event = AcquireEvent::Created { id, create, list: Some(list), standing: Standing::Unknown };
            let place = Arc::clone(&reserved.place);
            Begun::new(reserved.seat(&session), place, if_busy, event, Arc::clone(&running))
        });
        return begun.collect();
    }
}

/// Sends the transaction and the read, neither of which waits for the other's reply.
async fn send_together(
    session: &Arc<Session>,
    members: &[Reserved],
    ids: &[String],
    slot: Option<Slot>,
) -> (Created, Vec<Answer<Listing>>) {
    let beginning =
        |(member, id): (&Reserved, &String)| member.member.path_lock.naming().prefix(id, member.member.kind);
    let beginnings: Vec<String> = members.iter().zip(ids).map(beginning).collect();
    let path_locks: Vec<&Arc<PathLock>> = members.iter().map(|member| &member.member.path_lock).collect();
    let sent = clock::now();
    let (beginnings, path_locks) = (&beginnings, &path_locks);
    let both = session.request(|handle| async move {
        let mut writer = handle.new_multi_writer();
        let mut put = Ok(());
        for (path_lock, beginning) in path_locks.iter().zip(beginnings) {
            let acls = to_library(&path_lock.options().acl);
            let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&acls));
            let path = path_lock.path().child(beginning);
            put = put.and_then(|()| writer.add_create(&path, &path_lock.node_data(), &options));
        }
        // An error is not expected: the paths have been checked, and the ACL is not empty.
        let create = put.map(|()| writer.commit());
        for member in members {
            let queue = member.member.path_lock.queue();
            queue.with(|queue| queue.create_sent(member.number, session.number()));
        }
        let lists = read_queues(session, path_locks, &handle);
        let create = async move {
            let answer = match create {
                Ok(create) => create.await,
                Err(source) => Err(zk::MultiWriteError::RequestFailed { source }),
            };
            drop(slot);
            // Before the lists arrive: attempts that come in the meantime may wait for these nodes.
            judge(session, path_locks, beginnings, sent, answer)
        };
        tokio::join!(create, lists)
    });
    let gone = || Answer::no(FailureKind::SessionGone);
    both.await.unwrap_or_else(|_| (Created::None, members.iter().map(|_| gone()).collect()))
}

/// Registers the created nodes, or returns why there are none.
fn judge(
    session: &Arc<Session>,
    path_locks: &[&Arc<PathLock>],
    beginnings: &[String],
    sent: crate::protocol::moment::Moment,
    answer: Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>,
) -> Created {
    let unknown = || Created::Unknown(FailureKind::Unknown.into());
    match answer {
        Ok(results) if results.len() == path_locks.len() => {
            session.lease().renewed(sent);
            let mut nodes = Vec::with_capacity(results.len());
            for ((path_lock, beginning), result) in path_locks.iter().zip(beginnings).zip(results) {
                let zk::MultiWriteResult::Create { path, stat } = result else { return unknown() };
                match path.rsplit_once('/') {
                    Some((_, name)) if name.starts_with(beginning.as_str()) => {
                        nodes.push(created(path_lock, session, name.to_owned(), &stat).0);
                    }
                    // Not expected.
                    _ => return unknown(),
                }
            }
            Created::All(nodes)
        }
        Ok(_) => unknown(),
        Err(error) => {
            let (index, source) = match error {
                zk::MultiWriteError::OperationFailed { index, source } => (Some(index), source),
                zk::MultiWriteError::RequestFailed { source } => (None, source),
            };
            session.lease().renewed_by_refusal(sent, &source);
            let failure = session.failure(source);
            match (failure.kind, index) {
                (FailureKind::Unknown, _) => Created::Unknown(failure),
                (FailureKind::NoNode, Some(index)) => Created::NoDirectory(index),
                _ => Created::None,
            }
        }
    }
}

/// Makes the directories that the answers say are missing. Returns whether all were made.
async fn make_directories(
    session: &Arc<Session>,
    members: &[Reserved],
    refused: usize,
    lists: &[Answer<Listing>],
) -> bool {
    for member in members {
        // Before a directory is made: those that come later must not be in it first.
        let queue = member.member.path_lock.queue();
        queue.with(|queue| queue.directory_missing(member.number, session.number()));
    }
    for (index, (member, list)) in members.iter().zip(lists).enumerate() {
        let missing = matches!(list, Answer::No(Failure { kind: FailureKind::NoNode, .. }));
        if index == refused || missing {
            match make_parents(member.seat(session)).await {
                AcquireEvent::ParentsMade(Answer::Is(())) => {}
                _ => return false,
            }
        }
    }
    true
}

/// Reads when the nodes were created, where the server has not said so (ZOOKEEPER-4026).
async fn with_zxids(
    session: &Arc<Session>,
    members: &[Reserved],
    mut nodes: Vec<Answer<OwnNode>>,
) -> Vec<Answer<OwnNode>> {
    let asked: Vec<(usize, String)> = nodes
        .iter()
        .zip(members)
        .enumerate()
        .filter_map(|(index, (node, member))| match node {
            Answer::Is(OwnNode { name, czxid: None }) => {
                Some((index, member.member.path_lock.path().child(name)))
            }
            _ => None,
        })
        .collect();
    if asked.is_empty() {
        return nodes;
    }
    let paths: Vec<&str> = asked.iter().map(|(_, path)| path.as_str()).collect();
    let stats = read_stats(session, &paths).await;
    for ((index, _), stat) in asked.iter().zip(stats) {
        if let (Some(node), Some(stat)) = (nodes.get_mut(*index), stat) {
            if let Answer::Is(OwnNode { name, .. }) = node {
                *node = check_owner(session, std::mem::take(name), &stat);
            }
        }
    }
    nodes
}

/// Reads the Stats of nodes, each if it is known. An attempt asks again where it is not.
async fn read_stats(session: &Session, paths: &[&str]) -> Vec<Option<zk::Stat>> {
    let together = session.reads_together();
    let read = session.request(|handle| async move {
        if together {
            let mut reader = handle.new_multi_reader();
            for path in paths {
                reader.add_get_data(path)?;
            }
            let stat = |result| match result {
                zk::MultiReadResult::Data { stat, .. } => Some(stat),
                _ => None,
            };
            return reader.commit().await.map(|results| results.into_iter().map(stat).collect());
        }
        let asked: Vec<_> = paths.iter().map(|path| handle.check_stat(path)).collect();
        let mut stats = Vec::with_capacity(asked.len());
        for stat in asked {
            stats.push(stat.await?);
        }
        Ok::<Vec<Option<zk::Stat>>, zk::Error>(stats)
    });
    match read.await {
        Ok(Ok(stats)) => stats,
        Ok(Err(error)) => {
            session.failure(error);
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// Reads all queues by one request; by one request for each, sent together, where the servers do not know
/// that one. The requests are sent when this is called.
fn read_queues<'a>(
    session: &'a Arc<Session>,
    path_locks: &'a [&'a Arc<PathLock>],
    handle: &'a zk::Client,
) -> impl Future<Output = Vec<Answer<Listing>>> + 'a {
    let together = session.reads_together().then(|| {
        let mut reader = handle.new_multi_reader();
        let put =
            path_locks.iter().try_for_each(|path_lock| reader.add_get_children(path_lock.path().server()));
        // An error is not expected: the paths have been checked.
        put.map(|()| reader.commit())
    });
    let alone = together.is_none().then(|| one_by_one(session, path_locks, handle));
    async move {
        if let Some(alone) = alone {
            return alone.await;
        }
        let answer = match together {
            Some(Ok(read)) => read.await,
            Some(Err(error)) => Err(error),
            None => Ok(Vec::new()),
        };
        let results = match answer {
            Ok(results) if results.len() == path_locks.len() => results,
            Ok(_) => return path_locks.iter().map(|_| Answer::no(FailureKind::Unknown)).collect(),
            Err(error) => {
                let failure = session.failure(error);
                // ZooKeeper has this read since 3.6. An older server, or another product, may refuse it or
                // close the connection: after any failure it is not sent again in this session.
                session.read_one_by_one();
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

/// Returns what a newcomer would have to wait for, of each member. `certain` is whether the lists are sent
/// right behind a `sync`: the connected server may lag behind (docs/protocol.md#try-lock). After an error
/// nothing is in the way, and the create that follows reports it.
pub(super) async fn look(session: &Arc<Session>, members: &[Member], certain: bool) -> Vec<InTheWay> {
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
