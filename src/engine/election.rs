//! An election: its participants queue as the contenders of a lock do, and the first of them leads.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client as zk;

use crate::engine::held::Held;
use crate::engine::hold::Hold;
use crate::engine::look::{self, Subject};
use crate::engine::path_lock::{Ask, Budget, PathLock};
use crate::engine::room;
use crate::error::{AcquireError, Error, Lost, LostReason, Purpose, ReleaseError, RequestFailure};
use crate::path::NodePath;
use crate::protocol::hold::LockState;
use crate::protocol::node_name::Kind;
use crate::session::core::Core;
use crate::session::holds::HeldLock;
use crate::session::log;
use crate::session::retry::clean_up_pause;
use crate::session::waker::{self, contain_panic};
use crate::token::FencingToken;

/// How many nodes are read at a time.
const AT_A_TIME: usize = 64;

/// The state of a [`LeaderLatch`](crate::LeaderLatch) in its election.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{LeaderLatch, LeadershipState};
///
/// let latch = LeaderLatch::start(&client, "/scheduler/leader")?;
/// let leadership = latch.leadership().await?;
/// assert_eq!(latch.state(), LeadershipState::Leader(leadership.fencing_token()));
/// latch.close().await?;
/// assert_eq!(latch.state(), LeadershipState::Closed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeadershipState {
    /// Another participant leads, or this one is about to join, or to join again.
    #[default]
    Follower,
    /// It leads, in the term with this token.
    Leader(FencingToken),
    /// It leads, in the term with this token, and no server has confirmed the session lately: the leadership
    /// may be lost soon. Begin nothing new.
    Suspended(FencingToken),
    /// It has left the election: it was closed, its client was closed, or the servers refuse a request that
    /// it needs.
    Closed,
}

impl fmt::Display for LeadershipState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follower => f.write_str("follower"),
            Self::Leader(token) => write!(f, "leader with the token {token}"),
            Self::Suspended(token) => write!(f, "suspended leader with the token {token}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// A participant of an election, as its node shows it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::LeaderLatch;
///
/// let latch = LeaderLatch::builder(&client, "/scheduler/leader").id("web-3").start()?;
/// latch.leadership().await?;
/// for participant in latch.participants().await? {
///     println!("{} {}", participant.id(), if participant.is_leader() { "leads" } else { "follows" });
///     assert!(participant.id() == "web-3" && participant.is_leader() && participant.is_ours());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    id: String,
    node: NodePath,
    is_leader: bool,
    is_ours: bool,
}

impl Participant {
    /// Returns the id of the participant, which is the data of its node. Bytes that are not UTF-8 are
    /// replaced.
    #[must_use]
    #[doc(alias = "getId")]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the path of its node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> &NodePath {
        &self.node
    }

    /// Returns `true` if its node is the first: it leads, or is about to.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Returns `true` if its node belongs to the session of the client that was asked.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }
}

/// Returns the participants in the order of their nodes, at most `most` of them. Participants that leave
/// meanwhile are left out.
pub(crate) async fn participants(path_lock: &Arc<PathLock>, most: usize) -> Result<Vec<Participant>, Error> {
    let work = Arc::clone(path_lock);
    let participants = path_lock.client().run_while_polled(async move {
        let nodes = look::participants(&work, None).await?;
        let mut found: Vec<Participant> = Vec::new();
        for nodes in nodes.chunks(AT_A_TIME.min(most)) {
            found.extend(read(&work, nodes).await?);
            if found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        if let Some(first) = found.first_mut() {
            first.is_leader = true;
        }
        Ok(found)
    });
    participants.await.unwrap_or_else(|| Err(path_lock.error(Purpose::Look, path_lock.client().why_ended())))
}

/// Reads the nodes of participants that still exist.
async fn read(path_lock: &Arc<PathLock>, nodes: &[NodePath]) -> Result<Vec<Participant>, Error> {
    let path = path_lock.path();
    let answers = path_lock.client().ask(|session, handle| async move {
        // Each is sent when it is called; the answers come in the same order.
        let reads: Vec<_> =
            nodes.iter().map(|node| (node, handle.get_data(&path.child(node.name())))).collect();
        let mut found = Ok(Vec::new());
        for (node, read) in reads {
            match (read.await, &mut found) {
                (Ok((data, stat)), Ok(found)) => found.push(Participant {
                    id: String::from_utf8_lossy(&data).into_owned(),
                    node: node.clone(),
                    is_leader: false,
                    is_ours: stat.ephemeral_owner == session.session_id(),
                }),
                (Err(zk::Error::NoNode), _) | (_, Err(_)) => {}
                // Said of the node that it is about.
                (Err(zk::Error::NoAuth), Ok(_)) => found = Err(node.name().into()),
                (Err(error), Ok(_)) => return Err(error),
            }
        }
        Ok(found)
    });
    match answers.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(node)) => {
            let subject = (path, Subject::Node(node));
            Err(look::error_of(path_lock, Purpose::Look, subject, RequestFailure::NoAuth))
        }
        Err(unanswered) => Err(look::unseen(path_lock, path, unanswered)),
    }
}

/// Waits until this participant leads. An error that a repetition may cure does not end the wait, which lasts
/// until the caller leaves (docs/protocol.md#election).
pub(crate) async fn until_leading(
    path_lock: &Arc<PathLock>,
    location: &'static Location<'static>,
) -> Result<Hold, AcquireError> {
    let first = Ask::new(Kind::Exclusive, Budget::Forever, location);
    let (mut ask, mut failures) = (first, 0_u32);
    loop {
        match room::acquire(Arc::clone(path_lock), ask).await {
            Ok(hold) if hold.lost().is_none() => return Ok(hold),
            // Lost before its caller had it.
            Ok(_) => ask = ask.again(),
            Err(error) => {
                let error = error.timed_out(Duration::ZERO, Duration::ZERO);
                if !error.is_retryable() {
                    return Err(error);
                }
                log::warn!(path = path_lock.path().user(), %error, "a participant joins its election again");
                let pause = clean_up_pause(failures);
                failures = failures.saturating_add(1);
                ask = first;
                // `None` if the client has ended, which the next attempt says.
                path_lock.client().run_while_polled(async move { tokio::time::sleep(pause).await }).await;
            }
        }
    }
}

/// One term of a leader, shared with the work in it. It keeps neither the leadership nor the client and its
/// session: the participant does.
#[derive(Debug)]
pub(crate) struct Term {
    held: Arc<Held>,
    path_lock: Weak<PathLock>,
    /// The two numbers of its token.
    token: (i64, u64),
    given_up: watch::Sender<bool>,
    /// How much work is under way in this term.
    working: watch::Sender<usize>,
}

/// Work that is under way in a term, until this is dropped.
#[derive(Debug)]
pub(crate) struct Work<'a>(&'a Term);

impl Term {
    pub(crate) fn new(hold: &Hold) -> Arc<Self> {
        Arc::new(Self {
            held: Arc::clone(hold.held()),
            path_lock: Arc::downgrade(hold.path_lock()),
            token: hold.token(),
            given_up: watch::Sender::new(false),
            working: watch::Sender::new(0),
        })
    }

    /// Returns the token, which is greater than that of every earlier term.
    pub(crate) fn token(&self) -> FencingToken {
        let (zxid, counter) = self.token;
        FencingToken::from_parts(zxid, counter)
    }

    /// Returns the hold of its node, for transactions; its drop does not release anything. The error is the loss of a
    /// term whose client or session is gone.
    pub(crate) fn hold(&self) -> Result<Hold, Lost> {
        let (path_lock, session) = (self.path_lock.upgrade(), self.held.session());
        match path_lock.zip(session) {
            Some((path_lock, session)) => {
                Ok(Hold::for_use(path_lock, session, Arc::clone(&self.held), self.token))
            }
            None => Err(self
                .lost()
                .unwrap_or_else(|| Lost { path: self.path().into(), reason: LostReason::Closed })),
        }
    }

    /// Returns the path of its node.
    pub(crate) fn node(&self) -> NodePath {
        self.held.directory().user_child(&self.held.name())
    }

    /// Notifies the work in the term that the leader has ended it.
    pub(crate) fn give_up(&self) {
        self.given_up.send_replace(true);
    }

    /// Returns the loss, if the term has ended by the clock.
    pub(crate) fn lost(&self) -> Option<Lost> {
        let given_up = *self.given_up.borrow();
        let reason = if given_up { Some(LostReason::GivenUp) } else { self.held.lost() };
        reason.map(|reason| Lost { path: self.path().into(), reason })
    }

    /// Waits until the term ends. Keeps neither the session nor the client.
    pub(crate) fn when_lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let path = self.path().into();
        let (mut given_up, lost) = (self.given_up.subscribe(), waker::contain(self.held.when_lost()));
        async move {
            let given_up = waker::contain(async move {
                // An error means that the term was never given up, and is forgotten.
                let is_over = given_up.wait_for(|given_up| *given_up).await.is_ok();
                if !is_over {
                    std::future::pending::<()>().await;
                }
            });
            let reason = tokio::select! {
                biased;
                () = given_up => LostReason::GivenUp,
                reason = lost => reason,
            };
            Lost { path, reason }
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.held.directory().user()
    }

    fn state(&self) -> LockState {
        // A term without its session is lost.
        let valid = self.held.session().is_some_and(|session| session.lease().is_valid());
        self.held.state(valid)
    }

    /// Counts work until the result is dropped: the node of the term stays at least as long
    /// (docs/protocol.md#leaders-work).
    pub(crate) fn begin_work(&self) -> Work<'_> {
        self.working.send_modify(|working| *working += 1);
        Work(self)
    }

    /// Waits until no work is under way, but not longer than the session timeout: work that is not polled is
    /// not dropped.
    async fn until_idle(&self, session_timeout: Duration) {
        let mut working = self.working.subscribe();
        let idle = tokio::time::timeout(session_timeout, working.wait_for(|working| *working == 0));
        if idle.await.is_err() {
            log::warn!(path = self.path(), "a leader's work was not dropped within the session timeout");
        }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.working.send_modify(|working| *working = working.saturating_sub(1));
    }
}

/// The state of a member of an election, for callers that wait for its terms.
#[derive(Clone, Debug, Default)]
pub(crate) enum Status {
    #[default]
    Follows,
    Leads(Arc<Term>),
    /// It has left the election, with the error that was the reason, if it was one.
    Left(Option<AcquireError>),
}

impl Status {
    /// Returns its term; `None` if that has ended by the clock.
    fn term(&self) -> Option<&Arc<Term>> {
        match self {
            Self::Leads(term) if term.lost().is_none() => Some(term),
            _ => None,
        }
    }

    fn state(&self) -> LeadershipState {
        match self {
            Self::Left(_) => LeadershipState::Closed,
            Self::Follows => LeadershipState::Follower,
            Self::Leads(term) => match (term.lost(), term.state()) {
                (None, LockState::Held) => LeadershipState::Leader(term.token()),
                (None, LockState::Suspended) => LeadershipState::Suspended(term.token()),
                _ => LeadershipState::Follower,
            },
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    status: watch::Sender<Status>,
    /// The same for the user, with the changes in between.
    state: watch::Sender<LeadershipState>,
    /// The result of leaving; `None` until that is done.
    left: watch::Sender<Option<Result<(), ReleaseError>>>,
}

impl Shared {
    /// Returns a copy: asking a term whether it is lost may call foreign code
    /// (docs/protocol.md#no-lock-across-await).
    fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    fn set(&self, status: Status) {
        self.status.send_replace(status);
        self.publish();
    }

    /// Tells the state, if it has changed. Its receivers are polled by executors of the user's, whose wakers
    /// may panic.
    fn publish(&self) {
        let state = self.status().state();
        contain_panic(|| {
            self.state.send_if_modified(|told| std::mem::replace(told, state) != state);
        });
    }
}

/// A member of an election, from [`join`] until it is dropped or [leaves](Self::leave).
#[derive(Debug)]
pub(crate) struct Member {
    /// Its drop ends the task too.
    stop: watch::Sender<bool>,
    shared: Arc<Shared>,
}

/// Joins an election: a task of the client takes part in it until the member is dropped.
pub(crate) fn join(path_lock: &Arc<PathLock>, location: &'static Location<'static>) -> Member {
    let (stop, stopped) = watch::channel(false);
    let shared = Arc::<Shared>::default();
    let left = LeftOnDrop { path_lock: Arc::clone(path_lock), shared: Arc::clone(&shared) };
    let client = path_lock.client();
    // Otherwise it has left at once, by the drop.
    if !client.is_closed() && client.refuses(path_lock.path()).is_none() {
        client.spawn(take_part(left, stopped, location));
    }
    Member { stop, shared }
}

impl Member {
    /// Returns its term; `None` if it does not lead, by the clock.
    pub(crate) fn term(&self) -> Option<Arc<Term>> {
        self.shared.status().term().cloned()
    }

    pub(crate) fn state(&self) -> LeadershipState {
        self.shared.status().state()
    }

    pub(crate) fn watch_state(&self) -> watch::Receiver<LeadershipState> {
        self.shared.state.subscribe()
    }

    /// Waits until it leads. The error is `None` if it has left the election by its own decision.
    pub(crate) async fn until_leading(&self) -> Result<Arc<Term>, Option<AcquireError>> {
        let mut status = self.shared.status.subscribe();
        loop {
            let now = status.borrow_and_update().clone();
            if let Some(term) = now.term() {
                return Ok(Arc::clone(term));
            }
            if let Status::Left(why) = now {
                return Err(why);
            }
            // No error: this has the sender.
            if waker::contain(status.changed()).await.is_err() {
                return Err(None);
            }
        }
    }

    /// Leaves the election, and waits until the leadership is given up.
    pub(crate) async fn leave(&self) -> Result<(), ReleaseError> {
        self.stop.send_replace(true);
        let mut left = self.shared.left.subscribe();
        let left = waker::contain(left.wait_for(Option::is_some)).await;
        left.ok().and_then(|left| left.clone()).unwrap_or(Ok(()))
    }
}

/// Tells that a member has left, however its task ends: it is dropped with the end of its client.
#[derive(Debug)]
struct LeftOnDrop {
    path_lock: Arc<PathLock>,
    shared: Arc<Shared>,
}

impl Drop for LeftOnDrop {
    fn drop(&mut self) {
        let Self { path_lock, shared } = self;
        if !matches!(shared.status(), Status::Left(_)) {
            shared.set(Status::Left(Some(path_lock.ended())));
        }
        contain_panic(|| {
            shared.left.send_if_modified(|left| {
                let is_done = left.is_some();
                left.get_or_insert(Ok(()));
                !is_done
            });
        });
    }
}

/// Takes part in an election until the member stops.
async fn take_part(left: LeftOnDrop, mut stop: watch::Receiver<bool>, location: &'static Location<'static>) {
    let LeftOnDrop { path_lock, shared } = &left;
    // The member left by its own decision, or because nothing can be acquired any more.
    let left_for = || Status::Left(path_lock.client().refuses(path_lock.path()));
    loop {
        let leading: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(until_leading(path_lock, location));
        let leading = tokio::select! {
            biased;
            () = stopped(&mut stop, path_lock.client()) => return shared.set(left_for()),
            leading = leading => leading,
        };
        let hold = match leading {
            Ok(hold) => hold,
            Err(error) => {
                log::error!(path = path_lock.path().user(), %error, "a participant has left its election");
                return shared.set(Status::Left(Some(error)));
            }
        };
        hold.is_had();
        let term = Term::new(&hold);
        // Dropped before the hold, also with the runtime.
        let mut unless_lost = GivesUp(Some(&term));
        shared.set(Status::Leads(Arc::clone(&term)));
        let is_lost = tokio::select! {
            biased;
            () = stopped(&mut stop, path_lock.client()) => false,
            () = until_lost(&hold, shared) => true,
        };
        if is_lost {
            unless_lost.0 = None;
            shared.set(Status::Follows);
        } else {
            term.give_up();
            shared.set(left_for());
        }
        // Its node is before that of any next term (docs/protocol.md#leaders-work).
        term.until_idle(hold.session().timeout()).await;
        drop(unless_lost);
        drop(term);
        if !is_lost {
            let released = hold.release().await;
            contain_panic(|| {
                shared.left.send_replace(Some(released));
            });
            return;
        }
    }
}

/// Ends a term when it is dropped, however its task ends, so that no answer says that it goes on.
struct GivesUp<'a>(Option<&'a Term>);

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        if let Some(term) = self.0 {
            contain_panic(|| term.give_up());
        }
    }
}

/// Waits until the member is dropped or leaves, or its client is drained: a leadership does not end by
/// itself, so a drain cannot wait for it (docs/protocol.md#drain).
async fn stopped(stop: &mut watch::Receiver<bool>, client: &Core) {
    tokio::select! {
        // An error means that it was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
        () = client.drained() => {}
    }
}

/// Tells the changes of the state until the term is lost.
async fn until_lost(hold: &Hold, shared: &Shared) {
    let mut state = hold.state();
    loop {
        // This comes after the look, so that the reported state is no older.
        shared.publish();
        if matches!(state, LockState::Lost(_)) {
            return;
        }
        state = hold.state_changed(state).await;
    }
}
