//! The leader latch: a participant in an election for as long as the value lives.
//!
//! A `LeaderLatch` owns a `Candidate`, whose task takes part in the election (`election`). A
//! `Leadership` is one term of the candidate, for the work that belongs to the term. Clones of a
//! latch share the candidate, which leaves the election when the last clone is dropped.

use std::fmt;
use std::sync::Arc;

use crate::builder::{RecipeBuilder, sealed};
use crate::client::Client;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::PathLock;
use crate::error::{
    AcquireError, BuildError, Error, Lost, Purpose, ReleaseError, RequestFailure, TransactionError,
};
use crate::locks::guard_set::while_held;
use crate::locks::transaction::{Transaction, get_data};
use crate::recipes::election::{self, Candidate, LeaderWatch, LeadershipState, Term};
use crate::state_watch::StateWatch;
use crate::values::contender::Participant;
use crate::values::path::NodePath;
use crate::values::shown::{Quoted, debug_as_path};
use crate::values::token::FencingToken;

/// A participant in an election, from its start until it is closed or dropped.
///
/// Across all processes, one participant leads at a time, for a *term*. A latch stays in the
/// election without further calls: it joins when it is started, and joins again after its session
/// has ended, after its node was deleted, and after an outage. You need neither a thread nor a
/// listener. [`leadership`](Self::leadership) waits for a term, and
/// [`watch_state`](Self::watch_state) returns a watch of the state. To run one piece of work while
/// leading, [`LeaderSelector::lead`](crate::LeaderSelector::lead) is simpler.
///
/// The latch works like Curator's class of this name, with the same layout, so Java processes can
/// take part in the same election: each participant has a node in the directory of the election,
/// with its id as data, and the node with the lowest number leads. A lock, or a
/// [`LeaderSelector`](crate::LeaderSelector), needs another path.
///
/// A latch is a handle, and cheap to clone. When the last clone is dropped, the participant leaves
/// the election in the background; [`close`](Self::close) waits until it has left.
///
/// # What the leader knows
/// A leader has the same guarantees as the holder of a lock
/// ([`LockGuard`](crate::LockGuard#what-it-proves-and-what-it-does-not)): a term ends after two
/// thirds of the session timeout without a renewal, before the servers let another participant
/// lead. A process that was paused for longer than that continues its work when it resumes, so pass
/// the [fencing token](Leadership::fencing_token) of the term to every resource to which the leader
/// writes.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # async fn schedule(_term: zookeeper_recipes::FencingToken) {}
/// use zookeeper_recipes::LeaderLatch;
///
/// let latch = LeaderLatch::builder(&client, "/scheduler/leader").id("web-3").build()?;
/// loop {
///     let leadership = latch.leadership().await?;
///     match leadership.while_held(schedule(leadership.fencing_token())).await {
///         Ok(()) => break,
///         Err(lost) => eprintln!("no longer the leader: {lost}"), // the latch has joined again
///     }
/// }
/// latch.close().await?;
/// # Ok(())
/// # }
/// ```
///
/// For a health check, or to forward requests to the leader:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::LeaderLatch;
///
/// let latch = LeaderLatch::builder(&client, "/scheduler/leader").id("10.0.0.7:8080").build()?;
/// # latch.leadership().await?;
/// if !latch.has_leadership() {
///     if let Some(leader) = latch.leader().await? {
///         println!("ask {}", leader.id());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "leader election")]
#[must_use = "dropping the latch leaves the election: bind it to `_latch`, not to `_`"]
pub struct LeaderLatch {
    path_lock: Arc<PathLock>,
    candidate: Arc<Candidate>,
}

impl LeaderLatch {
    /// Joins the election at `path` in the background, with the default options, and returns at
    /// once.
    ///
    /// Later errors are reported by [`leadership`](Self::leadership).
    ///
    /// # Errors
    /// See [`RecipeBuilder::build`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::LeaderLatch;
    ///
    /// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
    /// latch.leadership().await?;
    /// assert!(latch.has_leadership());
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "start")]
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Returns a builder of a participant in the election at `path`.
    ///
    /// # Examples
    /// With every option:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::builder().auth("digest", "shop:secret");
    /// # let client = client.connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{Acl, LeaderLatch, ParentNodes};
    ///
    /// let latch = LeaderLatch::builder(&client, "/scheduler/leader")
    ///     .id("web-3")
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // the directory stays when no participant is left
    ///     .build()?;
    /// # latch.leadership().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>) -> RecipeBuilder<Self> {
        RecipeBuilder::new(client, path.as_ref())
    }

    /// Waits until this participant leads, and returns its leadership. Returns at once if the
    /// participant leads already.
    ///
    /// While no server answers, or the latch's node is deleted repeatedly, the call keeps waiting.
    /// Wrap the call in [`tokio::time::timeout`] to wait less.
    ///
    /// # Errors
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the latch was closed or dropped, or the
    ///   client was closed.
    /// - Another error if the servers refuse this participant: see [`AcquireError`]. Do not retry
    ///   after any of these errors.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. The participant stays in the election.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use std::time::Duration;
    /// use zookeeper_recipes::LeaderLatch;
    ///
    /// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
    /// match tokio::time::timeout(Duration::from_secs(5), latch.leadership()).await {
    ///     Ok(leadership) => println!("leads with the token {}", leadership?.fencing_token()),
    ///     Err(_) => println!("another one leads"),
    /// }
    /// # assert!(latch.has_leadership());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "await")]
    pub async fn leadership(&self) -> Result<Leadership, AcquireError> {
        match self.candidate.until_leading().await {
            Ok(term) => Ok(Leadership { term }),
            Err(Some(error)) => Err(error),
            Err(None) => Err(Error::new(Purpose::Lock, self.path(), RequestFailure::Left).into()),
        }
    }

    /// Reads the clock, and returns `true` if this participant leads.
    ///
    /// A [`Suspended`](LeadershipState::Suspended) participant still leads. The answer is advisory:
    /// the leadership may be lost a moment later, and only the [token](Leadership::fencing_token)
    /// of its term protects the resources to which the leader writes.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let latch = zookeeper_recipes::LeaderLatch::new(&client, "/scheduler/leader")?;
    /// latch.leadership().await?;
    /// assert!(latch.has_leadership());
    /// latch.close().await?;
    /// assert!(!latch.has_leadership());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "hasLeadership")]
    pub fn has_leadership(&self) -> bool {
        self.candidate.term().is_some()
    }

    /// Reads the clock, and returns the state of this participant in the election.
    #[must_use]
    #[doc(alias = "getState")]
    pub fn state(&self) -> LeadershipState {
        self.candidate.state()
    }

    /// Returns a watch of the [`state`](Self::state), to wait for changes.
    ///
    /// The session's thread reports changes, so the watch may be late; [`state`](Self::state) and
    /// [`has_leadership`](Self::has_leadership) read the clock. The watch does not keep the latch
    /// in the election: when the last handle of the latch is dropped, the watch returns
    /// [`Closed`](LeadershipState::Closed).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let latch = zookeeper_recipes::LeaderLatch::new(&client, "/scheduler/leader")?;
    /// use zookeeper_recipes::LeadershipState;
    ///
    /// let mut states = latch.watch_state();
    /// let log = tokio::spawn(async move {
    ///     // Ends after `Closed`.
    ///     while let Some(state) = states.changed().await {
    ///         match state {
    ///             LeadershipState::Leader(token) => println!("leads with the token {token}"),
    ///             state => println!("{state:?}"),
    ///         }
    ///     }
    /// });
    /// latch.close().await?;
    /// log.await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "LeaderLatchListener")]
    #[doc(alias = "addListener")]
    pub fn watch_state(&self) -> StateWatch<LeadershipState> {
        StateWatch::new(self.candidate.watch_state(), |state| {
            *state == LeadershipState::Closed
        })
    }

    /// Leaves the election, and waits until any leadership is given up.
    ///
    /// Work in [`Leadership::while_held`] is dropped first, so that the work has ended before
    /// another participant leads. So do not await this call inside such work: the call would be
    /// dropped with the work. If the executor does not poll the task that runs the work, the call
    /// waits for the work to be dropped, for at most the session timeout. All clones of the latch
    /// are closed, and a second call returns the same result. If the participant does not lead, the
    /// call returns at once, and the node is deleted in the background;
    /// [`Client::flush`](crate::Client::flush) waits for that.
    ///
    /// # Errors
    /// [`ReleaseError`] if the leadership could not be given up, as from
    /// [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    /// From the first poll on, the participant leaves in any case.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::LeaderLatch;
    ///
    /// let (one, two) = (LeaderLatch::new(&client, "/l")?, LeaderLatch::new(&client, "/l")?);
    /// one.leadership().await?;
    /// one.close().await?;
    /// two.leadership().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) -> Result<(), ReleaseError> {
        self.candidate.leave().await
    }

    /// Returns the participant, of any process, that leads or is about to lead; `None` if there is
    /// none.
    ///
    /// The call reads from the servers. The leader may have changed by the time the call returns,
    /// and a leader whose session is about to expire is still returned.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    #[doc(alias = "getLeader")]
    pub async fn leader(&self) -> Result<Option<Participant>, Error> {
        Ok(election::participants(&self.path_lock, 1).await?.pop())
    }

    /// Returns the participants of all processes, the leader first and the others in the order in
    /// which they will lead.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let latch = zookeeper_recipes::LeaderLatch::builder(&client, "/scheduler/leader");
    /// # let latch = latch.id("web-3").build()?;
    /// # latch.leadership().await?;
    /// let participants = latch.participants().await?;
    /// assert!(participants[0].id() == "web-3" && participants[0].is_leader());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getParticipants")]
    pub async fn participants(&self) -> Result<Vec<Participant>, Error> {
        election::participants(&self.path_lock, usize::MAX).await
    }

    /// Returns the path of the election, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_lock.path.user()
    }
}

impl RecipeBuilder<LeaderLatch> {
    /// Sets the id by which other participants know this one, such as its address.
    ///
    /// The id is stored as the data of the latch's node, and may have at most 1,000,000 bytes. The
    /// default is the same data as in a lock's node.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.asked.data = Some(id.into().into_bytes().into());
        self
    }

    /// Returns a watch of who leads the election, without taking part in it and without any I/O.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`] and [`BuildError::InvalidOption`], as from
    /// [`build`](Self::build).
    pub fn watch_leader(self) -> Result<LeaderWatch, BuildError> {
        Ok(LeaderWatch::new(
            self.unshared_path_lock(Recipe::LeaderLatch)?,
        ))
    }
}

debug_as_path!(LeaderLatch);

impl sealed::Buildable for LeaderLatch {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        let path_lock = builder.path_lock(Recipe::LeaderLatch)?;
        let candidate = Arc::new(election::join(&path_lock, builder.location));
        Ok(Self {
            path_lock,
            candidate,
        })
    }
}

/// One term as leader, returned by [`LeaderLatch::leadership`].
///
/// Keeping this value does not keep the leadership: the term ends when the leadership is lost, or
/// when the latch is closed or dropped. From then on, [`is_held`](Self::is_held) always returns
/// `false`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # server.create("/scheduler/next", b"")?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{LeaderLatch, LostReason};
///
/// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
/// let leadership = latch.leadership().await?;
/// let done = leadership.while_held(async { 42 /* work of the leader alone */ }).await?;
/// // For data in ZooKeeper: the servers refuse the write once another participant may lead.
/// leadership.transaction().set_data("/scheduler/next", b"07:00", None).commit().await?;
///
/// latch.close().await?;
/// assert_eq!(leadership.lost().await.reason(), LostReason::GivenUp);
/// # assert_eq!(done, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Leadership {
    term: Arc<Term>,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The output omits the state, because reading the state reads the clock, and may end the
        // term.
        write!(
            f,
            "Leadership({}, {})",
            Quoted(self.path()),
            self.fencing_token()
        )
    }
}

impl Leadership {
    /// Returns the fencing token of this term, which is greater than that of every earlier term of
    /// any participant, so that a resource can refuse former leaders
    /// ([`FenceGate`](crate::FenceGate)).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{FenceGate, LeaderLatch};
    ///
    /// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
    /// let first = latch.leadership().await?;
    /// let session = client.session_id().ok_or("no session")?;
    /// # let expired = first.lost();
    /// # server.expire_session(session);
    /// // The session expires, and the latch joins again.
    /// # expired.await;
    /// let second = latch.leadership().await?;
    /// assert!(second.fencing_token() > first.fencing_token());
    ///
    /// let store = FenceGate::new();
    /// store.admit(second.fencing_token())?;
    /// assert!(store.admit(first.fencing_token()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.term.token()
    }

    /// Reads the clock, and returns `true` unless the term has ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.term.lost().is_none()
    }

    /// Returns a future that resolves when the term ends, because it was lost or given up.
    ///
    /// The future does not borrow the leadership, so another task can wait for it.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If the term ends before the next call, the next future
    /// resolves at once.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let latch = zookeeper_recipes::LeaderLatch::new(&client, "/scheduler/leader")?;
    /// # async fn schedule() {}
    /// let leadership = latch.leadership().await?;
    /// tokio::select! {
    ///     lost = leadership.lost() => eprintln!("stop at once: {lost}"),
    ///     () = schedule() => {}
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        self.term.when_lost()
    }

    /// Runs `work` in this term, and returns its output.
    ///
    /// As soon as the term ends, `work` is dropped. If the term has ended by the time `work` is
    /// done, the output of `work` is dropped.
    ///
    /// # Errors
    /// [`Lost`] if the term has ended. If the term ended before the call, `work` is not polled.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped with it. The participant continues to lead.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let latch = zookeeper_recipes::LeaderLatch::new(&client, "/scheduler/leader")?;
    /// let leadership = latch.leadership().await?;
    /// let done = leadership.while_held(async { 42 /* work of the leader alone */ }).await?;
    /// # assert_eq!(done, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
        // The counter is declared first and so dropped last: the node of the term is kept until the
        // work has been dropped.
        let _working = self.term.begin_work();
        while_held(self.term.when_lost(), || self.term.lost(), work).await
    }

    /// Returns an empty transaction, which commits only during this term.
    ///
    /// See [`Transaction`].
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::under(self.term.hold())
    }

    /// Reads a node, and the version of its data, for a [transaction](Self::transaction) that
    /// depends on them; returns `None` if there is no such node.
    ///
    /// See [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// [`TransactionError::Lost`] if the term has ended; see [`TransactionError`] for the other
    /// variants.
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # server.create("/scheduler/plan", b"old")?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::LeaderLatch;
    ///
    /// let latch = LeaderLatch::new(&client, "/scheduler/leader")?;
    /// let leadership = latch.leadership().await?;
    /// let (_, version) = leadership.get_data("/scheduler/plan").await?.ok_or("there is no plan")?;
    /// leadership.transaction().set_data("/scheduler/plan", b"new", version).commit().await?;
    /// # assert_eq!(server.node("/scheduler/plan").unwrap().data, b"new");
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getData")]
    pub async fn get_data(
        &self,
        path: impl AsRef<str>,
    ) -> Result<Option<(Vec<u8>, i32)>, TransactionError> {
        get_data(&[&self.term.hold()?], path.as_ref()).await
    }

    /// Returns the path of the leader's node, without the client's namespace.
    #[must_use]
    #[doc(alias = "getOurPath")]
    #[doc(alias = "getLastPathIsLeader")]
    pub fn node(&self) -> NodePath {
        self.term.node()
    }

    /// Returns the path of the election, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.term.path()
    }
}
