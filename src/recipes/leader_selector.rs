//! The leader selector: runs work whenever this participant leads an election.
//!
//! `LeaderSelector::lead` acquires the lock of the election, runs the work under the guard, and
//! releases the guard. If the work was dropped because the lock was lost, `lead` queues again. The
//! calls of one selector and its clones are registered in `Terms`, so that
//! `LeaderSelector::interrupt_leadership` can mark their holds as lost.

use std::panic::Location;
use std::sync::{Arc, Weak};

use crate::builder::{RecipeBuilder, sealed};
use crate::client::Client;
use crate::engine::held::Held;
use crate::engine::lock::lock_options::Recipe;
use crate::engine::lock::path_lock::PathLock;
use crate::error::{AcquireError, BuildError, Error, LostReason};
use crate::locks::guard::LockGuard;
use crate::protocol::hold::HoldEvent;
use crate::recipes::election::{self, LeaderWatch};
use crate::session::reports::log;
use crate::session::threads::mutex::Mutex;
use crate::values::contender::Participant;
use crate::values::shown::debug_as_path;
use crate::values::token::FencingToken;

/// A participant of an election that runs a future while it leads: see [`lead`](Self::lead).
///
/// Across all processes, one participant leads at a time, for a *term*. Each term has a fencing
/// token, which is greater than that of every earlier term.
///
/// The selector works like Curator's class of this name, with the same layout, so Java processes
/// can take part in the same election. The leader holds an
/// [`InterProcessMutex`](crate::InterProcessMutex) at the path of the election; the data of its
/// node is the participant's id. Python processes can take part by kazoo's `Election`, if the
/// selector is built with that [dialect](RecipeBuilder::dialect). A
/// [`LeaderLatch`](crate::LeaderLatch) needs another path.
///
/// A selector is a handle, and cheap to clone. It sends no request until [`lead`](Self::lead) is
/// called.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::LeaderSelector;
///
/// let selector = LeaderSelector::builder(&client, "/scheduler/leader").id("web-3").build()?;
/// let sent = selector
///     .lead(|token| async move {
///         // No other process runs this now. Pass `token` to the database with each write.
///         println!("leads with the token {token}");
///         42
///     })
///     .await?;
/// # assert_eq!(sent, 42);
/// # Ok(())
/// # }
/// ```
///
/// For as long as the process runs, in a task that a shutdown ends:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// # async fn shutdown() {}
/// # async fn schedule(_term: zookeeper_recipes::FencingToken) { std::future::pending().await }
/// use zookeeper_recipes::LeaderSelector;
///
/// let selector = LeaderSelector::new(&client, "/scheduler/leader")?;
/// tokio::select! {
///     ended = selector.lead(schedule) => ended?,
///     () = shutdown() => {} // drops the work, then gives the leadership up
/// }
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "leader election")]
#[doc(alias = "Election")]
pub struct LeaderSelector {
    path_lock: Arc<PathLock>,
    terms: Arc<Terms>,
}

/// The state that the calls of [`LeaderSelector::lead`] of all clones of one selector share.
#[derive(Default)]
struct Terms(Mutex<Vec<Weak<Held>>>);

impl Terms {
    /// Adds a term, and removes those that have ended.
    fn begin(&self, guard: &LockGuard) {
        let mut terms = self.0.lock();
        terms.retain(|held| held.strong_count() > 0);
        terms.push(Arc::downgrade(&guard.hold().held));
    }

    /// Reads the clock, and returns the terms that have not ended.
    fn current(&self) -> Vec<Arc<Held>> {
        let mut terms: Vec<Arc<Held>> = {
            let terms = self.0.lock();
            terms.iter().filter_map(Weak::upgrade).collect()
        };
        // The check runs outside the mutex, because it may call code outside the library
        // (docs/protocol.md#no-lock-across-await).
        terms.retain(|held| held.is_held() && !held.is_lost_or_released());
        terms
    }
}

impl LeaderSelector {
    /// Creates a participant of the election at `path`, without any I/O.
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
    /// use zookeeper_recipes::LeaderSelector;
    ///
    /// let selector = LeaderSelector::new(&client, "/scheduler/leader")?;
    /// assert_eq!(selector.path(), "/scheduler/leader");
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(client: &Client, path: impl AsRef<str>) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// Returns a builder of a participant of the election at `path`.
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
    /// use zookeeper_recipes::{Acl, Dialect, LeaderSelector, ParentNodes};
    ///
    /// let selector = LeaderSelector::builder(&client, "/scheduler/leader")
    ///     .id("web-3")
    ///     .acl([Acl::creator_all()]) // the client has credentials
    ///     .parents(ParentNodes::Persistent) // the directory stays when no participant is left
    ///     .dialect(Dialect::Curator)
    ///     .build()?;
    /// # selector.lead(async |_| ()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(client: &Client, path: impl AsRef<str>) -> RecipeBuilder<Self> {
        RecipeBuilder::new(client, path.as_ref())
    }

    /// Waits until this participant leads, runs `work`, gives up the leadership, and returns the
    /// output of `work`.
    ///
    /// If the term ends before the work does, because it was lost or
    /// [interrupted](Self::interrupt_leadership), the work is dropped, the participant queues
    /// again, and `work` is called for its next term. So the work starts again from the beginning.
    /// If the work is done only after the leadership was lost, its output is dropped, and the work
    /// starts again too.
    ///
    /// The work is dropped when two thirds of the session timeout have passed since the last
    /// renewal of the session, which is before another participant leads. A process that was paused
    /// for longer than that continues its work when it resumes, so pass the token to every resource
    /// to which the work writes ([`FenceGate`](crate::FenceGate)).
    ///
    /// While no server answers, the call keeps waiting. To take part again after the work has
    /// ended, call `lead` in a loop; other participants may lead in between.
    ///
    /// # Errors
    /// [`AcquireError`] if the servers refuse a request of this participant, or the client is
    /// closed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped, and then the participant leaves: its node on
    /// the servers is deleted in the background, and [`Client::flush`](crate::Client::flush) waits
    /// for that. Do not keep the future without polling it, because its participant may be the
    /// leader, which blocks the others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{FenceGate, LeaderSelector};
    ///
    /// let store = FenceGate::new(); // in the database
    /// let selector = LeaderSelector::new(&client, "/scheduler/leader")?;
    /// selector.lead(async |token| store.admit(token)).await??;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "takeLeadership")]
    #[doc(alias = "autoRequeue")]
    #[doc(alias = "requeue")]
    #[track_caller]
    pub fn lead<T, F, W>(
        &self,
        mut work: W,
    ) -> impl Future<Output = Result<T, AcquireError>> + use<T, F, W>
    where
        F: Future<Output = T>,
        W: FnMut(FencingToken) -> F,
    {
        let location = Location::caller();
        let (path_lock, terms) = (Arc::clone(&self.path_lock), Arc::clone(&self.terms));
        async move {
            loop {
                // The guard is declared first and so dropped last, because the work relies on it.
                let guard = LockGuard::new(election::until_leading(&path_lock, location).await?);
                terms.begin(&guard);
                let output = guard.while_held(work(guard.fencing_token())).await;
                // The lock is released in any case. A failed release is logged, but does not affect
                // the result of the work.
                let released = guard.release().await;
                match output {
                    Ok(output) => return Ok(output),
                    Err(lost) => {
                        log::info!(path = lost.path(), %lost, ?released, "a leader's work was dropped");
                    }
                }
            }
        }
    }

    /// Ends the term of this participant if it leads: the work is dropped, and the participant
    /// queues again behind the others. Returns `true` if the participant led.
    ///
    /// The call affects this selector and its clones, and does not wait until the work has ended.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::LeaderSelector;
    ///
    /// let selector = LeaderSelector::new(&client, "/scheduler/leader")?;
    /// let mut tokens = Vec::new();
    /// selector
    ///     .lead(|token| {
    ///         tokens.push(token);
    ///         let is_first = tokens.len() == 1;
    ///         let selector = selector.clone();
    ///         async move {
    ///             if is_first {
    ///                 assert!(selector.interrupt_leadership());
    ///                 std::future::pending::<()>().await;
    ///             }
    ///         }
    ///     })
    ///     .await?;
    /// assert!(tokens[1] > tokens[0]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "interruptLeadership")]
    pub fn interrupt_leadership(&self) -> bool {
        let terms = self.terms.current();
        for term in &terms {
            // The loss ends `while_held` in `lead`, which drops the work. Then `lead` releases the
            // guard and queues again, behind the other participants.
            term.handle_event(HoldEvent::Ended(LostReason::GivenUp));
        }
        !terms.is_empty()
    }

    /// Reads the clock, and returns `true` if this participant leads, which means that a call of
    /// [`lead`](Self::lead) of this selector or a clone runs its work.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let selector = zookeeper_recipes::LeaderSelector::new(&client, "/scheduler/leader")?;
    /// assert!(selector.lead(async |_| selector.has_leadership()).await?);
    /// assert!(!selector.has_leadership());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "hasLeadership")]
    pub fn has_leadership(&self) -> bool {
        !self.terms.current().is_empty()
    }

    /// Returns the participant that leads or is about to, of all processes; `None` if there is
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
    /// # let selector = zookeeper_recipes::LeaderSelector::builder(&client, "/scheduler/leader");
    /// # let selector = selector.id("web-3").build()?;
    /// let participants = selector.lead(async |_| selector.participants().await).await??;
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

impl RecipeBuilder<LeaderSelector> {
    /// Sets the id of this participant that the others see, such as its address.
    ///
    /// The id is stored as the data of the participant's node, and has at most 1,000,000 bytes. The
    /// default, which is also used for an empty id as in Curator, is the same data as in a lock's
    /// node.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.asked.data = Some(id.into())
            .filter(|id| !id.is_empty())
            .map(|id| id.into_bytes().into());
        self
    }

    /// Returns a watch of who leads the election, without taking part in it and without any I/O.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`] and [`BuildError::InvalidOption`], as from
    /// [`build`](Self::build).
    pub fn watch_leader(self) -> Result<LeaderWatch, BuildError> {
        Ok(LeaderWatch::new(self.unshared_path_lock(Recipe::Mutex)?))
    }
}

debug_as_path!(LeaderSelector);

impl sealed::Buildable for LeaderSelector {
    fn built(builder: RecipeBuilder<Self>) -> Result<Self, BuildError> {
        Ok(Self {
            path_lock: builder.path_lock(Recipe::Mutex)?,
            terms: Arc::default(),
        })
    }
}

impl sealed::HasDialect for LeaderSelector {}
