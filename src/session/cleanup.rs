//! Deletes what must go: nodes of released and dropped guards, of cancelled and timed-out attempts, and nodes that
//! may or may not exist.
//!
//! Handing something over never blocks, so a `Drop` can do it. Each item is worked on until its node is known to
//! be gone or its session is over, with a growing pause between tries; what the server refuses for good is reported
//! and given up, because only the end of the session can delete it then.

use crate::session::tickets::{Ticket, Tickets};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use zookeeper_client as zk;

use crate::error::{Cause, Lost, LostReason, ReleaseError};
use crate::path::LockPath;
use crate::protocol::failure::FailureKind;
use crate::protocol::local_queue::Gone;
use crate::protocol::node_name::id;
use crate::session::ask::{Repetition, Unanswered};
use crate::session::clock;
use crate::session::nodes::RefusedOrphan;
use crate::session::window::Window;
use crate::session::zk_session::{Handle, Session, SessionOver};

/// What to delete.
#[derive(Debug)]
pub(crate) enum Orphan {
    /// This node, by name. It exists, or did.
    Node(String),
    /// The same; a lock was held by it, and others wait for it. Whether it may be handed over to the next in line of this
    /// session: not if it was lost.
    Hold { name: String, hand_over: bool },
    /// These nodes, each before the next. They exist, or may.
    Nodes(Vec<String>),
    /// Whatever a create with this id led to, whose outcome is unknown: a node whose name begins like this, or none.
    UnknownCreate { id: String, beginning: String },
}

/// One thing to delete, and what depends on it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) session: Arc<Session>,
    pub(crate) directory: LockPath,
    pub(crate) orphan: Orphan,
    /// The number of the attempt that it comes from; see [`Tickets`].
    pub(crate) number: u64,
    /// Dropped when the node is gone: the right to have it.
    pub(crate) until_gone: Option<Arc<dyn Any + Send + Sync>>,
    /// Told the result.
    pub(crate) done: Option<Done>,
}

/// Where the result of an item goes.
pub(crate) type Done = oneshot::Sender<Result<(), ReleaseError>>;

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Cleanup {
    items: mpsc::UnboundedSender<(Item, Ticket)>,
    pending: watch::Sender<Tickets>,
}

impl Cleanup {
    /// A cleanup and the task that does its work, to be spawned where the sessions run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (items, receiver) = mpsc::unbounded_channel();
        let pending = watch::Sender::new(Tickets::default());
        let task = run(receiver);
        (Self { items, pending }, task)
    }

    /// Hands an item over. The queue holds no more than there are nodes, which the path locks bound.
    pub(crate) fn reap(&self, item: Item) {
        let ticket = self.ticket(item.number);
        let leave = |name: &str| item.session.leave(item.directory.child(name));
        match &item.orphan {
            Orphan::Node(name) | Orphan::Hold { name, .. } => leave(name),
            Orphan::Nodes(names) => names.iter().for_each(|name| leave(name)),
            Orphan::UnknownCreate { .. } => {}
        }
        if let Err(mpsc::error::SendError((item, _ticket))) = self.items.send((item, ticket)) {
            // The session's thread has stopped, so the session is closed and its nodes with it. This is not logged: the
            // caller may be a holder's `release`.
            finish(item.done, Err(lost(&item.directory, LostReason::Closed)));
        }
    }

    /// Hands over a node of which only the server path is known.
    pub(crate) fn reap_path(&self, session: &Arc<Session>, path: &str) {
        let Some((directory, name)) = path.rsplit_once('/') else {
            return;
        };
        // Our nodes are always below a lock's directory, which was parsed once already.
        let Ok(directory) = LockPath::parse("", directory) else {
            return;
        };
        let orphan = Orphan::Node(name.to_owned());
        let number = self.number();
        self.reap(Item {
            session: Arc::clone(session),
            directory,
            orphan,
            number,
            until_gone: None,
            done: None,
        });
    }

    /// A number for an attempt, greater than all before.
    pub(crate) fn number(&self) -> u64 {
        let mut number = 0;
        self.pending.send_if_modified(|tickets| {
            number = tickets.next;
            tickets.next += 1;
            // Nobody waits for this.
            false
        });
        number
    }

    /// Counts as pending from now on, for what will be handed over, or found to be nothing, a little later.
    pub(crate) fn ticket(&self, number: u64) -> Ticket {
        Ticket::new(&self.pending, number)
    }

    /// What is not done yet.
    pub(crate) fn pending(&self) -> watch::Receiver<Tickets> {
        self.pending.subscribe()
    }
}

/// Creates whose outcome is unknown are settled together, those of one directory in one session: by one write and one list
/// for all that there are. A crowd of them, each with a list of a long directory, would keep the session from proving that
/// it lives.
type Group = (u64, LockPath);

/// What a finished task leaves to be done.
type Rest = Vec<(Item, Ticket)>;

async fn run(mut items: mpsc::UnboundedReceiver<(Item, Ticket)>) {
    let mut working = JoinSet::new();
    // The groups that are being settled, by their tasks, and what has come of each since.
    let mut settling: HashMap<task::Id, Group> = HashMap::new();
    let mut waiting: HashMap<Group, Rest> = HashMap::new();
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
                    working.spawn(alone(item, ticket));
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
                    // A panic, in a tracing subscriber: its items are answered by their drop.
                    Err(error) => (error.id(), Rest::new()),
                };
                for (item, ticket) in found {
                    working.spawn(alone(item, ticket));
                }
                let Some(group) = settling.remove(&task) else { continue };
                let more = waiting.remove(&group).unwrap_or_default();
                (group, more)
            }
        };
        if !more.is_empty() {
            waiting.insert(group.clone(), Rest::new());
            let task = working.spawn(settle_together(more)).id();
            settling.insert(task, group);
        }
    }
}

async fn alone(item: Item, ticket: Ticket) -> Rest {
    work(item).await;
    drop(ticket);
    Rest::new()
}

/// Finds out what became of creates of one directory; answers with those that did happen.
async fn settle_together(items: Rest) -> Rest {
    let mut found = Rest::new();
    let Some((first, _)) = items.first() else { return found };
    let (session, directory) = (Arc::clone(&first.session), first.directory.clone());
    let Orphan::UnknownCreate { beginning, .. } = &first.orphan else { return found };
    let result = look_behind(&session, &directory, beginning).await;
    let by_id: HashMap<&str, &String> = match &result {
        Ok(children) => children.iter().filter_map(|child| Some((id(child)?, child))).collect(),
        Err(_) => HashMap::new(),
    };
    for (mut item, ticket) in items {
        let Orphan::UnknownCreate { id, .. } = &item.orphan else { continue };
        match (&result, by_id.get(id.as_str())) {
            (Ok(_), Some(name)) => {
                item.orphan = Orphan::Node((*name).clone());
                found.push((item, ticket));
            }
            (Ok(_), None) => {
                // A request that some server still holds may come to light later.
                session.owe(&directory, id);
                drop(item.until_gone.take());
                finish(item.done, Ok(()));
            }
            (Err(error), _) => {
                if let ReleaseError::Refused { source, .. } = error {
                    // A later list of the directory may show it.
                    session.owe(&directory, id);
                    let path = directory.user();
                    tracing::error!(path, id, %source, "whether a lock node was created could not be found out");
                }
                drop(item.until_gone.take());
                finish(item.done, Err(error.clone()));
            }
        }
    }
    found
}

/// Lists a directory behind everything that the session has sent before.
async fn look_behind(
    session: &Session,
    directory: &LockPath,
    beginning: &str,
) -> Result<Vec<String>, ReleaseError> {
    // The deletion of a name that cannot exist is a committed write of this session. Whatever the session
    // sent before is decided once it is answered (a `sync` would prove less: a deposed leader answers it).
    let window = &session.windows().removals;
    delete(session, directory, beginning, window).await?;
    persist(session, directory, directory.server(), window, |handle| async move {
        match handle.list_children(directory.server()).await {
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            answer => answer,
        }
    })
    .await
}

async fn work(item: Item) {
    let Item { session, directory, orphan, number: _, until_gone, done } = item;
    let result = settle(&session, &directory, &orphan).await;
    if let Err(ReleaseError::Refused { node, source, .. }) = &result {
        tracing::error!(node = node.as_str(), error = %source, "a lock node could not be deleted and stays until its session ends");
    }
    // Before the caller learns that the node is gone, so that the place that was kept for it can be taken at once.
    drop(until_gone);
    finish(done, result);
}

async fn settle(session: &Session, directory: &LockPath, orphan: &Orphan) -> Result<(), ReleaseError> {
    let windows = session.windows();
    match orphan {
        Orphan::Node(name) => delete(session, directory, name, &windows.removals).await?.by_us(directory),
        Orphan::Hold { name, hand_over: may } => {
            let handed_over =
                if *may { hand_over(session, directory, name).await? } else { HandOver::NotDone };
            let asked = match handed_over {
                HandOver::Done => return Ok(()),
                HandOver::NotDone => false,
                HandOver::Unknown => true,
            };
            delete_after(session, directory, name, &windows.releases, asked).await?.by_us(directory)
        }
        Orphan::Nodes(names) => {
            let mut result = Ok(());
            for name in names {
                match delete(session, directory, name, &windows.releases).await {
                    // The others need not stay as well.
                    Err(refused @ ReleaseError::Refused { .. }) => result = result.and(Err(refused)),
                    Err(over) => return Err(over),
                    Ok(_) => {}
                }
            }
            result
        }
        // Settled together with others.
        Orphan::UnknownCreate { .. } => Ok(()),
    }
}

/// Deletes what the servers have refused to delete before, if they let us now. Answers with the first node of the session
/// that they refuse again, and how many others.
pub(crate) async fn delete_orphans(session: &Session) -> Result<(), ReleaseError> {
    let mut orphans = session.orphans(None).into_iter();
    let Some((first, source)) = first_refused(session, orphans.by_ref()).await else { return Ok(()) };
    let mut others = 0;
    while first_refused(session, orphans.by_ref()).await.is_some() {
        others += 1;
    }
    Err(ReleaseError::Refused { node: first.directory.user_child(&first.name), others, source })
}

/// Deletes these nodes, one after the other, until the servers refuse one: answers with that one, and what they say.
pub(crate) async fn first_refused(
    session: &Session,
    orphans: impl IntoIterator<Item = RefusedOrphan>,
) -> Option<(RefusedOrphan, Cause)> {
    for orphan in orphans {
        match delete(session, &orphan.directory, &orphan.name, &session.windows().removals).await {
            Ok(_) => {}
            Err(ReleaseError::Refused { source, .. }) => return Some((orphan, source)),
            // The session is over, and its nodes with it.
            Err(_) => return None,
        }
    }
    None
}

/// How a node went.
enum Deleted {
    /// By our request.
    ByUs,
    /// Most likely so: an earlier request of ours was not answered.
    PerhapsByUs,
    /// It was gone before we asked.
    Before,
}

impl Deleted {
    fn by_us(self, directory: &LockPath) -> Result<(), ReleaseError> {
        match self {
            Self::ByUs | Self::PerhapsByUs => Ok(()),
            Self::Before => Err(lost(directory, LostReason::NodeDeleted)),
        }
    }
}

/// What came of a hand-over.
enum HandOver {
    Done,
    NotDone,
    Unknown,
}

/// Deletes the node of a lock that is given back, on the condition that the node of the next in line exists, which is told if
/// that was so. Asked once: otherwise a plain deletion follows, after which the next in line looks at the queue.
async fn hand_over(session: &Session, directory: &LockPath, name: &str) -> Result<HandOver, ReleaseError> {
    let slot = session.windows().releases.slot().await;
    // Not before: it may give up while this waits.
    let own = directory.child(name);
    let Some(next) = session.heir(&own) else { return Ok(HandOver::NotDone) };
    let heir = directory.child(&next);
    let sent = clock::now();
    let (own, heir) = (&own, &heir);
    let answer = session.request(|handle| async move {
        let mut writer = handle.new_multi_writer();
        writer
            .add_check_version(heir, -1)
            .and_then(|()| writer.add_delete(own, None))
            .map_err(|source| zk::MultiWriteError::RequestFailed { source })?;
        writer.commit().await
    });
    let answer = answer.await;
    drop(slot);
    let Ok(answer) = answer else { return over(session, directory) };
    let error = match answer {
        Ok(results) if results.len() == 2 => {
            session.lease().renewed(sent);
            session.disown_as(own, Gone::HandedOver { to: &next });
            return Ok(HandOver::Done);
        }
        Ok(_) => return Ok(HandOver::Unknown),
        Err(zk::MultiWriteError::OperationFailed { source, .. }) => {
            session.lease().renewed_by_check(sent, &source);
            // The next in line has gone, or its node has; or it may not be read.
            return match session.judge(&source) {
                FailureKind::SessionOver => over(session, directory),
                _ => Ok(HandOver::NotDone),
            };
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => source,
    };
    tracing::debug!(path = own, %error, "not handed over");
    match session.judge(&error) {
        FailureKind::SessionOver => over(session, directory),
        FailureKind::Refused(_) | FailureKind::NotNow | FailureKind::NoNode => Ok(HandOver::NotDone),
        FailureKind::Unknown | FailureKind::TooManyWatches => Ok(HandOver::Unknown),
    }
}

/// Deletes one node, until it is gone.
async fn delete(
    session: &Session,
    directory: &LockPath,
    name: &str,
    window: &Window,
) -> Result<Deleted, ReleaseError> {
    delete_after(session, directory, name, window, false).await
}

/// The same; `asked` says that an earlier request may have deleted it.
async fn delete_after(
    session: &Session,
    directory: &LockPath,
    name: &str,
    window: &Window,
    asked: bool,
) -> Result<Deleted, ReleaseError> {
    let path = directory.child(name);
    let deleted = delete_path(session, directory, &path, window, asked).await;
    match &deleted {
        Ok(Deleted::ByUs) => session.disown_as(&path, Gone::Deleted),
        Ok(Deleted::PerhapsByUs | Deleted::Before) => session.disown(&path),
        Err(ReleaseError::Refused { .. }) => session.refused(directory, name),
        Err(_) => {}
    }
    deleted
}

async fn delete_path(
    session: &Session,
    directory: &LockPath,
    path: &str,
    window: &Window,
    mut asked: bool,
) -> Result<Deleted, ReleaseError> {
    persist(session, directory, path, window, |handle| {
        let asked_before = std::mem::replace(&mut asked, true);
        async move {
            let sent = clock::now();
            let result = handle.delete(path, None).await;
            match &result {
                Ok(()) => session.lease().renewed(sent),
                Err(error) => session.lease().renewed_by_refusal(sent, error),
            }
            match result {
                Ok(()) => Ok(Deleted::ByUs),
                Err(zk::Error::NoNode) if asked_before => Ok(Deleted::PerhapsByUs),
                Err(zk::Error::NoNode) => Ok(Deleted::Before),
                Err(error) => Err(error),
            }
        }
    })
    .await
}

/// Repeats a request until there is a definite answer, or no session to ask in: then the servers delete the node, if they
/// have not already.
async fn persist<T, F>(
    session: &Session,
    directory: &LockPath,
    path: &str,
    window: &Window,
    request: impl FnMut(Handle) -> F,
) -> Result<T, ReleaseError>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    match Repetition::of_clean_up(window).ask(session, request).await {
        Ok(answer) => Ok(answer),
        Err(Unanswered::NoSession(SessionOver)) => over(session, directory),
        // It never gives up otherwise.
        Err(Unanswered::Refused(failure) | Unanswered::GaveUp(failure)) => {
            Err(ReleaseError::Refused { node: directory.to_user(path), others: 0, source: failure.cause })
        }
    }
}

fn over<T>(session: &Session, directory: &LockPath) -> Result<T, ReleaseError> {
    Err(lost(directory, session.end_reason().unwrap_or(LostReason::Closed)))
}

fn lost(directory: &LockPath, reason: LostReason) -> ReleaseError {
    ReleaseError::Lost(Lost { path: directory.user().into(), reason })
}

fn finish(done: Option<Done>, result: Result<(), ReleaseError>) {
    if let Some(done) = done {
        // Nobody waits any more: a release that was cancelled goes on, and its result has no reader.
        let _ = done.send(result);
    }
}
