//! Deletes what must go: nodes of released and dropped guards, of cancelled and timed-out attempts, and nodes that
//! may or may not exist.
//!
//! Handing something over never blocks, so a `Drop` can do it. Each item is worked on until its node is known to
//! be gone or its epoch is over, with a growing pause between tries; what the server refuses for good is reported
//! and given up, because only the end of the session can delete it then.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{self, JoinSet};
use zookeeper_client as zk;

use super::clock::Moment;
use super::epoch::{Epoch, EpochOver, Orphan, Session, cause};
use super::window::Window;
use crate::engine::contender::Failure;
use crate::engine::line::Gone;
use crate::engine::name::id;
use crate::engine::places::Place;
use crate::error::{Cause, Lost, LostReason, ReleaseError};
use crate::path::LockPath;

/// The pauses between tries. The requests of a session without a connection are queued, not failed, so a try is
/// long already while the servers are away; the pause is for servers that answer nonsense.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What to delete.
#[derive(Debug)]
pub(crate) enum Debt {
    /// This node, by name. It exists, or did.
    Node(String),
    /// The same; a lock was held by it, and others wait for it. Whether it may be handed over to the next in line of this
    /// session: not if it was lost.
    Hold { name: String, hand_over: bool },
    /// These nodes, each before the next. They exist, or may.
    Nodes(Vec<String>),
    /// Whatever a create with this id led to, whose outcome is unknown: a node whose name begins like this, or none.
    Unsettled { id: String, beginning: String },
}

/// One thing to delete, and what depends on it.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) directory: LockPath,
    pub(crate) debt: Debt,
    /// The number of the attempt that it comes from; see [`Tickets`].
    pub(crate) number: u64,
    /// Kept until the node is gone: a place in the room's gate.
    pub(crate) permit: Option<Arc<Place>>,
    /// Told the result.
    pub(crate) done: Option<Done>,
}

/// Where the result of an item goes.
pub(crate) type Done = oneshot::Sender<Result<(), ReleaseError>>;

/// What is to be cleaned up and is not yet, by the number of the attempt that it comes from.
///
/// An attempt has its number from its beginning, and whatever it leaves to others bears it: a flush knows by the number
/// what began before it, through however many hands that goes.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    next: u64,
    /// How many tickets there are of each number.
    outstanding: BTreeMap<u64, usize>,
}

impl Tickets {
    /// How many attempts have left something.
    pub(crate) fn count(&self) -> usize {
        self.outstanding.len()
    }

    /// How many of those with a number below `limit`.
    pub(crate) fn count_before(&self, limit: u64) -> usize {
        self.outstanding.range(..limit).count()
    }

    /// The number that the next one gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether there is none with a number below `limit`.
    pub(crate) fn none_before(&self, limit: u64) -> bool {
        self.outstanding.first_key_value().is_none_or(|(first, _)| *first >= limit)
    }
}

/// One of [`Tickets`].
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    tickets: watch::Sender<Tickets>,
}

impl Ticket {
    fn new(tickets: &watch::Sender<Tickets>, number: u64) -> Self {
        tickets.send_modify(|tickets| *tickets.outstanding.entry(number).or_default() += 1);
        Self { number, tickets: tickets.clone() }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tickets.send_modify(|tickets| {
            if let Entry::Occupied(mut count) = tickets.outstanding.entry(self.number) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        });
    }
}

/// The sending side; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reaper {
    items: mpsc::UnboundedSender<(Item, Ticket)>,
    pending: watch::Sender<Tickets>,
}

impl Reaper {
    /// A reaper and the task that does its work, to be spawned where the sessions run.
    pub(crate) fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (items, receiver) = mpsc::unbounded_channel();
        let pending = watch::Sender::new(Tickets::default());
        let task = run(receiver);
        (Self { items, pending }, task)
    }

    /// Hands an item over. The queue holds no more than there are nodes, which the rooms bound.
    pub(crate) fn reap(&self, item: Item) {
        let ticket = self.ticket(item.number);
        let leave = |name: &str| item.epoch.leave(item.directory.child(name));
        match &item.debt {
            Debt::Node(name) | Debt::Hold { name, .. } => leave(name),
            Debt::Nodes(names) => names.iter().for_each(|name| leave(name)),
            Debt::Unsettled { .. } => {}
        }
        if let Err(mpsc::error::SendError((item, _ticket))) = self.items.send((item, ticket)) {
            // The session's thread has stopped, so the session is closed and its nodes with it. This is not logged: the
            // caller may be a holder's `release`.
            finish(item.done, Err(lost(&item.directory, LostReason::Closed)));
        }
    }

    /// Hands over a node of which only the server path is known.
    pub(crate) fn reap_path(&self, epoch: &Arc<Epoch>, path: &str) {
        let Some((directory, name)) = path.rsplit_once('/') else {
            return;
        };
        // Our nodes are always below a lock's directory, which was parsed once already.
        let Ok(directory) = LockPath::parse("", directory) else {
            return;
        };
        let debt = Debt::Node(name.to_owned());
        let number = self.number();
        self.reap(Item { epoch: Arc::clone(epoch), directory, debt, number, permit: None, done: None });
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

/// Creates whose outcome is unknown are settled together, those of one directory in one epoch: by one write and one list
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
                Some((item, ticket)) if matches!(item.debt, Debt::Unsettled { .. }) => {
                    let group = (item.epoch.number(), item.directory.clone());
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
    let (epoch, directory) = (Arc::clone(&first.epoch), first.directory.clone());
    let Debt::Unsettled { beginning, .. } = &first.debt else { return found };
    let result = look_behind(&epoch, &directory, beginning).await;
    let by_id: HashMap<&str, &String> = match &result {
        Ok(children) => children.iter().filter_map(|child| Some((id(child)?, child))).collect(),
        Err(_) => HashMap::new(),
    };
    for (mut item, ticket) in items {
        let Debt::Unsettled { id, .. } = &item.debt else { continue };
        match (&result, by_id.get(id.as_str())) {
            (Ok(_), Some(name)) => {
                item.debt = Debt::Node((*name).clone());
                found.push((item, ticket));
            }
            (Ok(_), None) => {
                // A request that some server still holds may come to light later.
                epoch.owe(&directory, id);
                drop(item.permit.take());
                finish(item.done, Ok(()));
            }
            (Err(error), _) => {
                if let ReleaseError::Refused { source, .. } = error {
                    // A later list of the directory may show it.
                    epoch.owe(&directory, id);
                    let path = directory.user();
                    tracing::error!(path, id, %source, "whether a lock node was created could not be found out");
                }
                drop(item.permit.take());
                finish(item.done, Err(error.clone()));
            }
        }
    }
    found
}

/// Lists a directory behind everything that the session has sent before.
async fn look_behind(
    epoch: &Epoch,
    directory: &LockPath,
    beginning: &str,
) -> Result<Vec<String>, ReleaseError> {
    // The deletion of a name that cannot exist is a committed write of this session. Whatever the session
    // sent before is decided once it is answered (a `sync` would prove less: a deposed leader answers it).
    let window = &epoch.windows().removals;
    delete(epoch, directory, beginning, window).await?;
    persist(epoch, directory, directory.server(), window, |session| async move {
        match session.list_children(directory.server()).await {
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            answer => answer,
        }
    })
    .await
}

async fn work(item: Item) {
    let Item { epoch, directory, debt, number: _, permit, done } = item;
    let result = settle(&epoch, &directory, &debt).await;
    if let Err(ReleaseError::Refused { node, source, .. }) = &result {
        tracing::error!(node, error = %source, "a lock node could not be deleted and stays until its session ends");
    }
    // The place in the gate is free before the caller learns that the node is gone, so that it can be taken at once.
    drop(permit);
    finish(done, result);
}

async fn settle(epoch: &Epoch, directory: &LockPath, debt: &Debt) -> Result<(), ReleaseError> {
    let windows = epoch.windows();
    match debt {
        Debt::Node(name) => delete(epoch, directory, name, &windows.removals).await?.by_us(directory),
        Debt::Hold { name, hand_over: may } => {
            let handed_over = if *may { hand_over(epoch, directory, name).await? } else { HandOver::NotDone };
            let asked = match handed_over {
                HandOver::Done => return Ok(()),
                HandOver::NotDone => false,
                HandOver::Unknown => true,
            };
            delete_after(epoch, directory, name, &windows.releases, asked).await?.by_us(directory)
        }
        Debt::Nodes(names) => {
            let mut result = Ok(());
            for name in names {
                match delete(epoch, directory, name, &windows.releases).await {
                    // The others need not stay as well.
                    Err(refused @ ReleaseError::Refused { .. }) => result = result.and(Err(refused)),
                    Err(over) => return Err(over),
                    Ok(_) => {}
                }
            }
            result
        }
        // Settled together with others.
        Debt::Unsettled { .. } => Ok(()),
    }
}

/// Deletes what the servers have refused to delete before, if they let us now. Answers with the first node of the session
/// that they refuse again, and how many others.
pub(crate) async fn delete_orphans(epoch: &Epoch) -> Result<(), ReleaseError> {
    let mut orphans = epoch.orphans(None).into_iter();
    let Some((first, source)) = first_refused(epoch, orphans.by_ref()).await else { return Ok(()) };
    let mut others = 0;
    while first_refused(epoch, orphans.by_ref()).await.is_some() {
        others += 1;
    }
    Err(ReleaseError::Refused { node: first.directory.user_child(&first.name), others, source })
}

/// Deletes these nodes, one after the other, until the servers refuse one: answers with that one, and what they say.
pub(crate) async fn first_refused(
    epoch: &Epoch,
    orphans: impl IntoIterator<Item = Orphan>,
) -> Option<(Orphan, Cause)> {
    for orphan in orphans {
        match delete(epoch, &orphan.directory, &orphan.name, &epoch.windows().removals).await {
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
async fn hand_over(epoch: &Epoch, directory: &LockPath, name: &str) -> Result<HandOver, ReleaseError> {
    let slot = epoch.windows().releases.slot().await;
    // Not before: it may give up while this waits.
    let Some(next) = epoch.line().heir(name) else { return Ok(HandOver::NotDone) };
    let (own, heir) = (directory.child(name), directory.child(&next));
    let sent = Moment::now();
    let (own, heir) = (&own, &heir);
    let answer = epoch.request(|session| async move {
        let mut writer = session.new_multi_writer();
        writer
            .add_check_version(heir, -1)
            .and_then(|()| writer.add_delete(own, None))
            .map_err(|source| zk::MultiWriteError::RequestFailed { source })?;
        writer.commit().await
    });
    let answer = answer.await;
    drop(slot);
    let Ok(answer) = answer else { return over(epoch, directory) };
    let error = match answer {
        Ok(results) if results.len() == 2 => {
            epoch.proved(sent);
            epoch.disown_as(own, Gone::HandedOver { to: &next });
            return Ok(HandOver::Done);
        }
        Ok(_) => return Ok(HandOver::Unknown),
        Err(zk::MultiWriteError::OperationFailed { source, .. }) => {
            epoch.proved_by_check(sent, &source);
            // The next in line has gone, or its node has; or it may not be read.
            return match epoch.judge(&source) {
                Failure::EpochOver => over(epoch, directory),
                _ => Ok(HandOver::NotDone),
            };
        }
        Err(zk::MultiWriteError::RequestFailed { source }) => source,
    };
    tracing::debug!(path = own, %error, "not handed over");
    match epoch.judge(&error) {
        Failure::EpochOver => over(epoch, directory),
        Failure::Refused | Failure::NotNow | Failure::NoNode => Ok(HandOver::NotDone),
        Failure::Unknown | Failure::OverBudget => Ok(HandOver::Unknown),
    }
}

/// Deletes one node, until it is gone.
async fn delete(
    epoch: &Epoch,
    directory: &LockPath,
    name: &str,
    window: &Window,
) -> Result<Deleted, ReleaseError> {
    delete_after(epoch, directory, name, window, false).await
}

/// The same; `asked` says that an earlier request may have deleted it.
async fn delete_after(
    epoch: &Epoch,
    directory: &LockPath,
    name: &str,
    window: &Window,
    asked: bool,
) -> Result<Deleted, ReleaseError> {
    let path = directory.child(name);
    let deleted = delete_path(epoch, directory, &path, window, asked).await;
    match &deleted {
        Ok(Deleted::ByUs) => epoch.disown_as(&path, Gone::Deleted),
        Ok(Deleted::PerhapsByUs | Deleted::Before) => epoch.disown(&path),
        Err(ReleaseError::Refused { .. }) => epoch.refused(directory, name),
        Err(_) => {}
    }
    deleted
}

async fn delete_path(
    epoch: &Epoch,
    directory: &LockPath,
    path: &str,
    window: &Window,
    mut asked: bool,
) -> Result<Deleted, ReleaseError> {
    persist(epoch, directory, path, window, |session| {
        let asked_before = std::mem::replace(&mut asked, true);
        async move {
            let sent = Moment::now();
            let result = session.delete(path, None).await;
            match &result {
                Ok(()) => epoch.proved(sent),
                Err(error) => epoch.proved_by_refusal(sent, error),
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
    epoch: &Epoch,
    directory: &LockPath,
    path: &str,
    window: &Window,
    mut request: impl FnMut(Session) -> F,
) -> Result<T, ReleaseError>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let slot = window.slot().await;
        let answer = epoch.request(&mut request).await;
        drop(slot);
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(EpochOver) => return over(epoch, directory),
        };
        match epoch.judge(&error) {
            Failure::Refused => {
                let node = directory.to_user(path).to_owned();
                return Err(ReleaseError::Refused { node, others: 0, source: cause(error) });
            }
            Failure::EpochOver => return over(epoch, directory),
            Failure::NoNode | Failure::NotNow | Failure::OverBudget | Failure::Unknown => {
                tracing::debug!(path, %error, "asking again");
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = epoch.gone() => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

fn over<T>(epoch: &Epoch, directory: &LockPath) -> Result<T, ReleaseError> {
    Err(lost(directory, epoch.end_reason().unwrap_or(LostReason::Closed)))
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
