//! The requests of an attempt, and what their answers mean to a contender.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;
use uuid::Uuid;
use zookeeper_client as zk;

use super::Contest;
use crate::client::clock::Moment;
use crate::client::epoch::{Epoch, EpochOver, Session};
use crate::client::reaper::{Debt, Item};
use crate::client::watches::WatchUse;
use crate::client::window::Slot;
use crate::engine::contender::{Answer, Event, Failure, Node, Request};
use crate::engine::line::{Neighbour, Word};
use crate::engine::name::{Child, Dialect, Family, Kind, Naming, classify};
use crate::engine::queue::{Listing, Queue};
use crate::engine::room::Room;
use crate::error::LostReason;
use crate::options::{Acl, Parents, Permissions};

/// An event, and the error that it came from.
pub(super) type Came = (Event, Option<zk::Error>);

/// An id for one create request and no other (rule 6), as the dialect writes it.
pub(super) fn new_id(naming: Naming) -> String {
    let id = Uuid::new_v4();
    match naming.dialect {
        Dialect::Curator => id.to_string(),
        Dialect::Kazoo => id.simple().to_string(),
    }
}

/// Sends the create and the list together: the client library sends when the method is called, and a session's
/// requests are answered in order (rule 1). Where a node of our own session that can be waited for in memory is in the
/// directory, the answer to the create may say that it is right before ours, and the list is not sent.
async fn create(contest: &Contest<'_>, kind: Kind, slot: Option<Slot>) -> Came {
    let (room, epoch) = (contest.room, contest.epoch);
    let id = new_id(room.naming());
    let beginning = room.naming().prefix(&id, kind);
    let path = room.path().child(&beginning);
    let acls = to_library(&room.options().acl);
    let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::new(&acls));
    let sent = Moment::now();
    let (path, options, beginning) = (&path, &options, &beginning);
    let list_too = !room.waits_in_memory() || !epoch.line().is_in(room.path().server());
    let both = epoch.request(|session| async move {
        let create = session.create(path, &room.options().data, options);
        room.turns().sent(contest.number, epoch.number());
        let list = list_too.then(|| list(room, epoch, &session));
        let create = async move {
            let answer = create.await;
            drop(slot);
            // Known before the list is there: others may come meanwhile, who wait for it.
            answer.map(|(stat, sequence)| {
                epoch.proved(sent);
                let name = format!("{beginning}{sequence}");
                epoch.adopt(room.path().child(&name));
                let before = created(room, epoch, &name);
                (owned(epoch, name, &stat), before)
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
        let over = || Failure::EpochOver;
        let (create, list) = (Answer::No(over()), list_too.then(|| Answer::No(over())));
        return (Event::Created { id, create, list, before: None }, None);
    };
    let mut error = None;
    let (create, before) = match create {
        Ok(created) => created,
        Err(failed) => {
            epoch.proved_by_refusal(sent, &failed);
            let failure = failure(epoch, failed, &mut error);
            if failure == Failure::NoNode {
                // Before anybody can make the directory: those that come later must not be in it first.
                room.turns().failed(contest.number, epoch.number());
            }
            (Answer::No(failure), None)
        }
    };
    let list = list.map(|list| listed(epoch, list, &mut error));
    (Event::Created { id, create, list, before }, error)
}

/// A node of ours exists, which fair contenders of the session may wait for in memory. Answers with whom it is behind, if
/// that is certain.
fn created(room: &Room, epoch: &Epoch, name: &str) -> Option<Neighbour> {
    match classify(name, room.naming()) {
        Child::Contender { sequence, .. } if room.naming().family == Family::Exclusive => {
            let leaving = |name: &str| epoch.is_leaving(&room.path().child(name));
            let mut line = epoch.line();
            let before = line.created(room.path().server(), name, sequence);
            // A waiter says of its wait that live contenders are ahead: where that is not certain, it looks.
            before.filter(|before| line.is_live(&before.name, &leaving))
        }
        _ => None,
    }
}

/// Asks the server, for the node `own` if it is there. What is sent, is sent by the first poll.
///
/// Each request has a future of its own on the heap: those that wait, perhaps by the thousand, are the smallest.
pub(super) fn perform<'a>(
    contest: &'a Contest<'_>,
    kind: Kind,
    request: Request,
    own: Option<String>,
    slot: Option<Slot>,
) -> Pin<Box<dyn Future<Output = Came> + Send + 'a>> {
    let (room, epoch) = (contest.room, contest.epoch);
    match request {
        Request::Create => Box::pin(create(contest, kind, slot)),
        Request::MakeParents => Box::pin(async move {
            let mut error = None;
            let made = match epoch.request(|session| make_parents(room, session)).await {
                Ok(Ok(())) => Answer::Is(()),
                Ok(Err(failed)) => Answer::No(failure(epoch, failed, &mut error)),
                Err(EpochOver) => Answer::No(Failure::EpochOver),
            };
            (Event::ParentsMade(made), error)
        }),
        Request::List => Box::pin(async move {
            if let Some(own) = own {
                epoch.line().settled(&own);
            }
            let mut error = None;
            let list = epoch.request(|session| async move { list(room, epoch, &session).await }).await;
            let list = match list {
                Ok(list) => listed(epoch, list, &mut error),
                Err(EpochOver) => Answer::No(Failure::EpochOver),
            };
            (Event::Listed(list), error)
        }),
        Request::Inspect { name } => Box::pin(inspect(room, epoch, name)),
        Request::Watch { predecessor } => {
            if let Some(own) = own.filter(|_| room.waits_in_memory()) {
                epoch.line().watch(&own, &predecessor);
            }
            Box::pin(watch_within_budget(epoch, room.path().child(&predecessor)))
        }
        Request::WaitFor { before } => Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let waits = own.is_some_and(|own| {
                let mut line = epoch.line();
                line.know(room.path().server(), &own);
                line.wait(&own, &before, tell)
            });
            if !waits {
                // It has gone since it was looked for.
                return (Event::WatchFailed(Failure::NoNode), None);
            }
            let event = match told.await {
                Ok(Word::HandedOver) => Event::HandedOver,
                Ok(Word::Watch { predecessor }) => Event::Inherited { predecessor },
                Ok(Word::Look) | Err(_) => Event::Changed,
            };
            (event, None)
        }),
    }
}

/// Looks at a node of ours that is known from a list only.
async fn inspect(room: &Room, epoch: &Arc<Epoch>, name: String) -> Came {
    let mut error = None;
    let path = room.path().child(&name);
    let node = match epoch.request(|session| async move { session.check_stat(&path).await }).await {
        Ok(Ok(Some(stat))) => {
            epoch.adopt(room.path().child(&name));
            if room.naming().family == Family::Exclusive {
                epoch.line().know(room.path().server(), &name);
            }
            owned(epoch, name, &stat)
        }
        Ok(Ok(None)) => Answer::No(Failure::NoNode),
        Ok(Err(failed)) => Answer::No(failure(epoch, failed, &mut error)),
        Err(EpochOver) => Answer::No(Failure::EpochOver),
    };
    (Event::Inspected(node), error)
}

/// Watches a predecessor at the servers, if the session can watch one more node.
async fn watch_within_budget(epoch: &Arc<Epoch>, path: String) -> Came {
    let Some(_watching) = epoch.watch(&path, WatchUse::Queue) else {
        return (Event::WatchFailed(Failure::OverBudget), None);
    };
    let mut error = None;
    let event = match watch(epoch, &path).await {
        Ok(Ok(event)) => event,
        Ok(Err(failed)) => Event::WatchFailed(failure(epoch, failed, &mut error)),
        Err(EpochOver) => Event::WatchFailed(Failure::EpochOver),
    };
    (event, error)
}

/// Lists the directory: sent by the call, or behind everything that the caller has sent when it is shared.
pub(super) fn list<'a>(
    room: &'a Arc<Room>,
    epoch: &'a Arc<Epoch>,
    session: &'a zk::Client,
) -> Pin<Box<dyn Future<Output = Result<Listing, zk::Error>> + Send + 'a>> {
    match room.lists() {
        Some(lists) => Box::pin(lists.ask(room, epoch)),
        None => Box::pin(list_alone(room, epoch, session)),
    }
}

/// Lists the directory; sent by the call.
pub(super) fn list_alone(
    room: &Arc<Room>,
    epoch: &Arc<Epoch>,
    session: &zk::Client,
) -> impl Future<Output = Result<Listing, zk::Error>> {
    let children = session.list_children(room.path().server());
    async move {
        let children = children.await?;
        reap_late(room, epoch, &children);
        let listing = Queue::read(children, room.naming());
        if let Ok(queue) = &listing {
            room.report_strays(queue);
        }
        Ok(listing)
    }
}

/// A node that the server says exists, if it is this session's.
fn owned(epoch: &Arc<Epoch>, name: String, stat: &zk::Stat) -> Answer<Node> {
    if stat.is_invalid() {
        return Answer::Is(Node { name, czxid: None });
    }
    if stat.ephemeral_owner != epoch.session_id() {
        // The server gave us another session and did not say so (ClickHouse Keeper does). What we made belongs to
        // that one and goes when the connection is closed, which the end of the epoch does.
        epoch.end(LostReason::SessionReplaced);
        return Answer::No(Failure::EpochOver);
    }
    Answer::Is(Node { name, czxid: Some(stat.czxid) })
}

pub(super) fn failure(epoch: &Epoch, error: zk::Error, last: &mut Option<zk::Error>) -> Failure {
    let failure = epoch.judge(&error);
    tracing::debug!(%error, ?failure, "request failed");
    *last = Some(error);
    failure
}

/// Has late creates deleted that a list of the directory shows and nobody waits for any more (rule 6).
fn reap_late(room: &Room, epoch: &Arc<Epoch>, children: &[String]) {
    for late in epoch.collect_debts(room.path(), children) {
        let path = room.path().user();
        tracing::debug!(path, node = late, "a create came through after it was given up");
        room.client().reaper().reap(Item {
            epoch: Arc::clone(epoch),
            directory: room.path().clone(),
            debt: Debt::Node(late.to_owned()),
            number: room.client().reaper().number(),
            permit: None,
            done: None,
        });
    }
}

/// Judges a list.
fn listed(
    epoch: &Arc<Epoch>,
    list: Result<Listing, zk::Error>,
    last: &mut Option<zk::Error>,
) -> Answer<Listing> {
    match list {
        Ok(listing) => Answer::Is(listing),
        // The create's error says more, if there is one.
        Err(error) => {
            let mut own = None;
            let failure = failure(epoch, error, &mut own);
            *last = last.take().or(own);
            Answer::No(failure)
        }
    }
}

/// Watches a node and waits until something happens to it.
async fn watch(epoch: &Epoch, path: &str) -> Result<Result<Event, zk::Error>, EpochOver> {
    let watcher = match epoch.request(|session| async move { session.get_and_watch_data(path).await }).await?
    {
        Ok((_, _, watcher)) => watcher,
        Err(zk::Error::NoNode) => return Ok(Ok(Event::WatchFailed(Failure::NoNode))),
        // Also NoAuth, which ends the attempt. An `exists` would set a watch without READ permission, but servers with
        // the fix of CVE-2024-23944 do not deliver its event to a session that lacks it: we would wait for ever.
        Err(error) => return Ok(Err(error)),
    };
    Ok(match changed(watcher).await {
        Some(event) => match (event.event_type, event.session_state) {
            (zk::EventType::Session, zk::SessionState::Expired) => Err(zk::Error::SessionExpired),
            (zk::EventType::Session, state) if state.is_terminated() => Err(zk::Error::ClientClosed),
            _ => Ok(Event::Changed),
        },
        None => Err(zk::Error::UnexpectedError("the session's task has died".to_owned())),
    })
}

/// Waits for the event of a watch; nothing if the task that serves the session dies, in which case the library panics
/// (review finding 18).
pub(super) async fn changed(watcher: zk::OneshotWatcher) -> Option<zk::WatchedEvent> {
    let mut changed = pin!(watcher.changed());
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| changed.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(event)) => Poll::Ready(Some(event)),
        Err(_) => Poll::Ready(None),
    })
    .await
}

/// Creates the lock's directory and those above it that are missing, as containers if the servers know them.
async fn make_parents(room: &Room, session: Session) -> Result<(), zk::Error> {
    let client = room.client();
    if room.options().parents == Parents::Persistent || !client.makes_containers() {
        return make_directory(room, &session, zk::CreateMode::Persistent).await;
    }
    // Servers that do not know the request say so, or close the connection at it (ZooKeeper 3.4, ClickHouse Keeper), which
    // is proof once it has happened twice in a row while another request is answered.
    for _ in 0..2 {
        match make_directory(room, &session, zk::CreateMode::Container).await {
            Err(zk::Error::Unimplemented) => break,
            Err(zk::Error::ConnectionLoss) => drop(session.check_stat("/").await?),
            made => return made,
        }
    }
    client.make_no_containers();
    make_directory(room, &session, zk::CreateMode::Persistent).await
}

/// Creates the lock's directory and those above it that are missing, from the leaf upwards as long as there is
/// none, then down again.
async fn make_directory(room: &Room, session: &zk::Client, mode: zk::CreateMode) -> Result<(), zk::Error> {
    let acls = to_library(&room.options().acl);
    let options = mode.with_acls(zk::Acls::new(&acls));
    session.mkdir(room.path().server(), &options).await
}

pub(super) fn to_library(acl: &[Acl]) -> Vec<zk::Acl> {
    let permission = |set: Permissions| {
        [
            (Permissions::READ, zk::Permission::READ),
            (Permissions::WRITE, zk::Permission::WRITE),
            (Permissions::CREATE, zk::Permission::CREATE),
            (Permissions::DELETE, zk::Permission::DELETE),
            (Permissions::ADMIN, zk::Permission::ADMIN),
        ]
        .into_iter()
        .filter(|(ours, _)| set.contains(*ours))
        .fold(zk::Permission::NONE, |all, (_, theirs)| all | theirs)
    };
    acl.iter()
        .map(|acl| zk::Acl::new(permission(acl.permissions), zk::AuthId::new(&acl.scheme, &acl.id)))
        .collect()
}
