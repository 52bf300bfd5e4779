//! An election: its participants queue as the contenders of a lock do, and the first of them leads
//! (docs/protocol.md#election).
//!
//! A leader selector waits with `until_leading` in the future of its caller, and holds the lock by
//! a guard. A leader latch joins the election with a task:
//!
//! ```text
//!   join --> until_leading: acquire the lock, and again after each retryable error
//!              |       ^
//!      granted |       | the term was lost
//!              v       |
//!            a term: `Status::Leads` until the term is lost, or the candidate leaves
//!              |
//!              v
//!            the work of the term ends, then the node is deleted
//!              |
//!              | the candidate has left, or the client is drained
//!              v
//!            `Status::Left`
//! ```
//!
//! Each term ends in this order: loss, work, node. The hold is marked as lost first (as *given up*,
//! if the candidate leaves), which makes `while_held` drop the work. Then the task waits until no
//! work of the term is left, for at most the session timeout. Only then the node is deleted, and
//! the next participant leads (docs/protocol.md#leaders-work).
//!
//! Callers see a candidate by its `Status`, which has the `Term`, and users by the
//! `LeadershipState`. A term that users keep keeps neither the session nor the client open.

use std::fmt;
use std::panic::Location;
use std::slice;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::acquisition::{Hold, LockRef};
use crate::engine::attempts::shared_attempt;
use crate::engine::granted::GrantedLock;
use crate::engine::held::Held;
use crate::engine::lock::path_lock::{Ask, Budget, PathLock};
use crate::engine::who;
use crate::error::{AcquireError, Error, ErrorKind, Lost, LostReason, ReleaseError};
use crate::locks::guard_set::Shares;
use crate::locks::lock::{look, until_received};
use crate::protocol::hold::{HoldEvent, LockState};
use crate::protocol::node_name::Kind;
use crate::session::contents::holds::SessionLock;
use crate::session::core::Core;
use crate::session::reports::log;
use crate::session::request::retry::clean_up_pause;
use crate::session::threads::waker::{self, contain_panic};
use crate::values::contender::Participant;
use crate::values::path::NodePath;
use crate::values::shown::Quoted;
use crate::values::token::FencingToken;

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
/// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
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
    /// Another participant leads, or this participant is about to join or rejoin the election.
    #[default]
    Follower,
    /// The participant leads, in the term with this token.
    Leader(FencingToken),
    /// The participant leads, in the term with this token, but no server has confirmed the session
    /// lately, so the leadership may be lost soon. Start no new work.
    Suspended(FencingToken),
    /// The participant has left the election: it was closed, its client was closed, or the servers
    /// refuse a request that it needs.
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

/// Returns the participants in the order in which they lead, at most `most` of them.
pub(crate) async fn participants(
    path_lock: &Arc<PathLock>,
    most: usize,
) -> Result<Vec<Participant>, Error> {
    look(path_lock, move |path_lock| async move {
        who::participants(&path_lock, most).await
    })
    .await
}

/// A watch of an election's leader, for a process that takes no part in it;
/// [`RecipeBuilder::watch_leader`](crate::RecipeBuilder::watch_leader) returns it.
///
/// The watch has no task, and sends no request while [`changed`](Self::changed) is not awaited. It
/// keeps the client and its session open.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::LeaderLatch;
///
/// let mut leaders = LeaderLatch::builder(&client, "/scheduler/leader").watch_leader()?;
/// assert_eq!(leaders.changed().await?, None); // at once
///
/// let latch = LeaderLatch::builder(&client, "/scheduler/leader").id("10.0.0.7:8080").build()?;
/// let leader = leaders.changed().await?.ok_or("no leader")?;
/// println!("ask {}", leader.id());
/// # assert_eq!(leader.id(), "10.0.0.7:8080");
/// latch.close().await?;
/// assert_eq!(leaders.changed().await?, None);
/// # Ok(())
/// # }
/// ```
pub struct LeaderWatch {
    path_lock: Arc<PathLock>,
    /// The result of the last call; `None` before the first.
    returned: Option<Option<Participant>>,
}

impl LeaderWatch {
    pub(crate) fn new(path_lock: Arc<PathLock>) -> Self {
        Self {
            path_lock,
            returned: None,
        }
    }

    /// Waits until the leader differs from the one that the last call returned, and returns the new
    /// leader, or `None` if there is none. The first call returns the leader at once.
    ///
    /// If the leader was replaced between two calls, the next call returns at once; leaders in
    /// between are skipped. A participant that left and leads again has a new node, so it counts as
    /// a new leader. The watch continues across the sessions of the client. In a new session, a
    /// server that lags behind may show an earlier leader until it has caught up.
    ///
    /// A call costs two lists and a read. It costs the same again whenever a participant joins or
    /// leaves or, if the session already watches as many nodes as it can, every sixth of the
    /// session timeout.
    ///
    /// # Errors
    /// [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered for as long as
    /// the retry policy allows: call it again. See [`Error`] for the other kinds.
    ///
    /// # Cancel safety
    /// If the future is dropped, the next call returns the result that this one would have
    /// returned.
    pub async fn changed(&mut self) -> Result<Option<Participant>, Error> {
        // The nodes of the leaders are compared, because a participant that leads again has another
        // node (docs/protocol.md#leader-watch).
        let known = self.returned.clone();
        let changed = look(&self.path_lock, move |path_lock| async move {
            match known {
                // A new leader is compared by its node, so a participant that has left and leads
                // again is noticed.
                Some(known) => {
                    who::leader_changed(&path_lock, known.as_ref().map(Participant::node)).await
                }
                None => Ok(who::participants(&path_lock, 1).await?.pop()),
            }
        });
        let leader = changed.await?;
        self.returned = Some(leader.clone());
        Ok(leader)
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaderWatch({})", Quoted(self.path_lock.path.user()))
    }
}

/// Waits until this participant leads. An error that another try may fix does not end the wait,
/// which lasts until the caller leaves (docs/protocol.md#election).
pub(crate) async fn until_leading(
    path_lock: &Arc<PathLock>,
    location: &'static Location<'static>,
) -> Result<Hold, AcquireError> {
    let mut failures = 0_u32;
    loop {
        let ask = Ask::new(Kind::Exclusive, Budget::Forever, location);
        let attempt = |ask| shared_attempt::acquire(Arc::clone(path_lock), ask);
        let error = match until_received(ask, attempt, slice::from_ref).await {
            // The drain may have checked before the grant was made. Dropping the hold releases the
            // lock (docs/protocol.md#drain).
            Ok(hold) => {
                return path_lock
                    .client
                    .drained_error(&path_lock.path)
                    .map_or(Ok(hold), Err);
            }
            // No other try would change the outcome, because the client is closed, for example, or
            // a permission is missing.
            Err(error) if !error.is_retryable() => return Err(error),
            Err(error) => error,
        };
        log::warn!(path = path_lock.path.user(), %error, "a participant joins its election again");
        let pause = clean_up_pause(failures);
        failures = failures.saturating_add(1);
        let client = &path_lock.client;
        // The pause is a task, because the caller's executor may have no timers. An error means
        // that the client has ended, which the next attempt reports.
        let _ = client
            .tasks
            .start(async move { tokio::time::sleep(pause).await })
            .await;
    }
}

/// The term of a leader, shared with the work in it. The participant keeps the leadership, the
/// client and its session; the term keeps none of them.
pub(crate) struct Term {
    held: Arc<Held>,
    path_lock: Weak<PathLock>,
    /// The two numbers of its token.
    token: (i64, u64),
    /// The number of futures that run as work in this term.
    working: watch::Sender<usize>,
}

/// Work that is under way in a term, until this is dropped.
pub(crate) struct TermWork<'a>(&'a Term);

impl Term {
    fn new(hold: &Hold) -> Arc<Self> {
        Arc::new(Self {
            held: Arc::clone(&hold.held),
            path_lock: Arc::downgrade(&hold.path_lock),
            token: hold.token,
            working: watch::Sender::new(0),
        })
    }

    /// Returns the token, which is greater than that of every earlier term.
    pub(crate) fn token(&self) -> FencingToken {
        let (zxid, counter) = self.token;
        FencingToken::from_parts(zxid, counter)
    }

    /// Returns the lock that the term's node holds, for work in the term. Returns the loss of the
    /// term as the error.
    pub(crate) fn hold(&self) -> Result<LockRef, Lost> {
        if let Some(lost) = self.lost() {
            return Err(lost);
        }
        // Both are gone once the participant has left and nothing else uses the client. The term
        // has ended then.
        let kept = self.path_lock.upgrade().zip(self.held.session());
        let (path_lock, session) = kept.ok_or_else(|| self.lost_by(LostReason::Closed))?;
        Ok(LockRef::new(
            path_lock,
            GrantedLock::new(Arc::clone(&self.held), session, self.token),
        ))
    }

    /// Returns the path of its node.
    pub(crate) fn node(&self) -> NodePath {
        self.held.directory().user_child(&self.held.name())
    }

    /// Returns the loss, if the term has ended by the clock.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.held.check_lost().map(|reason| self.lost_by(reason))
    }

    fn lost_by(&self, reason: LostReason) -> Lost {
        Lost {
            path: self.held.lost_path(),
            reason,
        }
    }

    /// Waits until the term ends. The future keeps neither the session nor the client open.
    pub(crate) fn when_lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let (path, lost) = (self.held.lost_path(), waker::contain(self.held.when_lost()));
        async move {
            Lost {
                path,
                reason: lost.await,
            }
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.held.directory().user()
    }

    /// Counts work until the result is dropped. The node of the term is kept at least until then
    /// (docs/protocol.md#leaders-work).
    pub(crate) fn begin_work(&self) -> TermWork<'_> {
        self.working.send_modify(|working| *working += 1);
        TermWork(self)
    }

    /// Waits until no work is under way, for at most the session timeout, because work whose task
    /// is not polled is never dropped.
    async fn until_idle(&self, session_timeout: Duration) {
        let mut working = self.working.subscribe();
        let idle = tokio::time::timeout(session_timeout, working.wait_for(|working| *working == 0));
        if idle.await.is_err() {
            log::warn!(
                path = self.path(),
                "a leader's work was not dropped within the session timeout"
            );
        }
    }
}

impl Drop for TermWork<'_> {
    fn drop(&mut self) {
        self.0
            .working
            .send_modify(|working| *working = working.saturating_sub(1));
    }
}

/// The status of a candidate, for callers that wait for its terms.
#[derive(Clone, Default)]
pub(crate) enum Status {
    #[default]
    Follows,
    Leads(Arc<Term>),
    /// The participant has left the election; `why` is the error that caused this, if an error did.
    /// `released` is the result of giving up the leadership; `None` until then.
    Left {
        why: Option<AcquireError>,
        released: Option<Result<(), ReleaseError>>,
    },
}

impl Status {
    /// Reads the clock, and returns the candidate's term; `None` if it has ended.
    fn term(&self) -> Option<&Arc<Term>> {
        match self {
            Self::Leads(term) if term.lost().is_none() => Some(term),
            _ => None,
        }
    }

    fn state(&self) -> LeadershipState {
        match self {
            Self::Left { .. } => LeadershipState::Closed,
            Self::Follows => LeadershipState::Follower,
            // The clock may have ended the term before the candidate's task has noticed. Such a
            // term counts as ended already.
            Self::Leads(term) => match term.hold().map(|hold| hold.state()) {
                Ok(LockState::Held) => LeadershipState::Leader(term.token()),
                Ok(LockState::Suspended) => LeadershipState::Suspended(term.token()),
                Ok(LockState::Lost(_)) | Err(_) => LeadershipState::Follower,
            },
        }
    }
}

/// The reports of a candidate's task.
#[derive(Default)]
struct Reports {
    status: watch::Sender<Status>,
    /// The state for users, which changes within a term too, when the term is suspended.
    state: watch::Sender<LeadershipState>,
}

impl Reports {
    /// Returns a copy, because asking a term whether it is lost may call code outside the library
    /// (docs/protocol.md#no-lock-across-await).
    fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    fn set(&self, status: Status) {
        // The status is set first, so that a caller that sees the state `Leader` finds the term.
        self.status.send_replace(status);
        self.publish();
    }

    /// Publishes the state, if it has changed. The receivers are polled by the user's executors,
    /// whose wakers may panic.
    fn publish(&self) {
        let state = self.status().state();
        contain_panic(|| {
            self.state
                .send_if_modified(|told| std::mem::replace(told, state) != state);
        });
    }
}

/// Takes part in an election, from [`join`] until it is dropped or [leaves](Self::leave).
pub(crate) struct Candidate {
    /// The task of the candidate ends when this sender is dropped.
    stop: watch::Sender<bool>,
    reports: Arc<Reports>,
}

/// Joins an election: a task of the client takes part in it until the candidate is dropped.
pub(crate) fn join(path_lock: &Arc<PathLock>, location: &'static Location<'static>) -> Candidate {
    let (stop, stopped) = watch::channel(false);
    let reports = Arc::<Reports>::default();
    let left = LeftOnDrop {
        path_lock: Arc::clone(path_lock),
        reports: Arc::clone(&reports),
    };
    let client = &path_lock.client;
    // On a client that grants no lock any more, `left` is dropped at the end of this function,
    // which reports that the candidate has left.
    if !client.is_closed() && client.drained_error(&path_lock.path).is_none() {
        client
            .tasks
            .start(take_part(left, stopped, location))
            .detach();
    }
    Candidate { stop, reports }
}

impl Candidate {
    /// Reads the clock, and returns the candidate's term; `None` if it does not lead.
    pub(crate) fn term(&self) -> Option<Arc<Term>> {
        self.reports.status().term().cloned()
    }

    pub(crate) fn state(&self) -> LeadershipState {
        self.reports.status().state()
    }

    pub(crate) fn watch_state(&self) -> watch::Receiver<LeadershipState> {
        self.reports.state.subscribe()
    }

    /// Waits until the candidate leads. The error is `None` if the candidate has left the election
    /// by its own decision.
    pub(crate) async fn until_leading(&self) -> Result<Arc<Term>, Option<AcquireError>> {
        let mut status = self.reports.status.subscribe();
        loop {
            let now = status.borrow_and_update().clone();
            if let Some(term) = now.term() {
                return Ok(Arc::clone(term));
            }
            if let Status::Left { why, .. } = now {
                return Err(why);
            }
            // An error is impossible, because `self` has the sender.
            if waker::contain(status.changed()).await.is_err() {
                return Err(None);
            }
        }
    }

    /// Leaves the election, and waits until the leadership is given up.
    pub(crate) async fn leave(&self) -> Result<(), ReleaseError> {
        // The task waits for this value, for the drop of the sender and for the drain of the
        // client.
        self.stop.send_replace(true);
        let mut status = self.reports.status.subscribe();
        let is_done = |status: &Status| {
            matches!(
                status,
                Status::Left {
                    released: Some(_),
                    ..
                }
            )
        };
        match waker::contain(status.wait_for(is_done)).await.as_deref() {
            Ok(Status::Left {
                released: Some(released),
                ..
            }) => released.clone(),
            // The wait ends with no other status, and `self` has the sender.
            _ => Ok(()),
        }
    }
}

/// Reports that a candidate has left, in whichever way its task ends, also if the end of the client
/// drops the task.
struct LeftOnDrop {
    path_lock: Arc<PathLock>,
    reports: Arc<Reports>,
}

impl Drop for LeftOnDrop {
    fn drop(&mut self) {
        // A task that has run to its end has set the status. A task that was dropped has not,
        // because its client has ended. In both cases the hold was dropped before this value, which
        // is an argument of the task.
        let (why, released) = match self.reports.status() {
            Status::Left { why, released } => (why, released),
            _ => (Some(self.path_lock.ended()), None),
        };
        self.reports.set(Status::Left {
            why,
            // `leave` waits for this result. There was no leadership to give up, or its hold has
            // been dropped.
            released: released.or(Some(Ok(()))),
        });
    }
}

/// Takes part in an election until the candidate stops.
async fn take_part(
    left: LeftOnDrop,
    mut stop: watch::Receiver<bool>,
    location: &'static Location<'static>,
) {
    let LeftOnDrop { path_lock, reports } = &left;
    // The reason is `None` if the candidate decides to leave, and otherwise why no lock can be
    // acquired any more.
    let why = || path_lock.client.drained_error(&path_lock.path);
    loop {
        let leading = tokio::select! {
            biased;
            // The drop of the other future cancels the attempt, whose node is deleted then.
            () = stopped(&mut stop, &path_lock.client) => {
                return reports.set(Status::Left { why: why(), released: None });
            }
            leading = Box::pin(until_leading(path_lock, location)) => leading,
        };
        let hold = match leading {
            Ok(hold) => Arc::new(hold),
            Err(error) => {
                let path = path_lock.path.user();
                // The user requested the end of the client, so this is no error.
                if error.kind() == Some(ErrorKind::Closed) {
                    log::debug!(
                        path,
                        "a participant has left its election: its client was closed"
                    );
                } else {
                    log::error!(path, %error, "a participant has left its election");
                }
                return reports.set(Status::Left {
                    why: Some(error),
                    released: None,
                });
            }
        };
        // From here on a loss of the lock ends the term, and the call counts as granted.
        hold.note_received();
        let term = Term::new(&hold);
        // The value is dropped before the hold, in whichever way the function ends.
        let given_up = GivesUp(Arc::clone(&hold.held));
        reports.set(Status::Leads(Arc::clone(&term)));
        let is_lost = tokio::select! {
            biased;
            () = stopped(&mut stop, &path_lock.client) => false,
            () = until_lost(&hold, reports) => true,
        };
        // If the candidate leaves, the hold is given up here. In each case the hold is lost from
        // here on, so `while_held` drops the work before the node is deleted.
        drop(given_up);
        let left = (!is_lost).then(why);
        reports.set(left.clone().map_or(Status::Follows, |why| Status::Left {
            why,
            released: None,
        }));
        // The node of the hold is before that of any next term, so the next leader waits until the
        // work of this term has ended (docs/protocol.md#leaders-work).
        term.until_idle(hold.session.timeout()).await;
        // The task has the only hold of the term, so `into_inner` returns the hold. If the term was
        // lost, the hold is dropped here, before the next attempt, which otherwise would queue
        // behind the node of this term.
        if let (Some(why), Some(hold)) = (left, Arc::into_inner(hold)) {
            return reports.set(Status::Left {
                why,
                released: Some(hold.release().await),
            });
        }
    }
}

/// Gives up a hold when this is dropped, unless the hold is lost. Work in a term waits for the loss
/// of the hold, and a release is not a loss. So without this, a task that ends in the middle would
/// leave the work running while another participant leads.
struct GivesUp(Arc<Held>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        contain_panic(|| {
            self.0.handle_event(HoldEvent::Ended(LostReason::GivenUp));
        });
    }
}

/// Waits until the candidate is dropped or leaves, or its client is drained. A leadership has no
/// natural end, so a drain cannot wait for it (docs/protocol.md#drain).
async fn stopped(stop: &mut watch::Receiver<bool>, client: &Core) {
    tokio::select! {
        // An error means that the candidate was dropped.
        _ = stop.wait_for(|stop| *stop) => {}
        () = client.drained() => {}
    }
}

/// Publishes the changes of the state until the term is lost.
async fn until_lost(hold: &Arc<Hold>, reports: &Reports) {
    let mut state = hold.state();
    loop {
        // The state is published after it is read here, so that the published state is not older.
        reports.publish();
        if matches!(state, LockState::Lost(_)) {
            return;
        }
        state = Shares(slice::from_ref(hold)).state_changed(state).await;
    }
}
