//! The read-write lock.

use std::sync::Arc;

use crate::client::Client;
use crate::engine::driver;
use crate::engine::name::Kind;
use crate::engine::room::{Hold, Room};
use crate::error::{
    AcquireError, BuildError, ConversionError, ConversionFailure, Lost, LostReason, ReleaseError,
};
use crate::guard::{LockGuard, LockState};
use crate::lock::{lock_builder, lock_methods, participants};
use crate::options::{Asked, Recipe};
use crate::token::FencingToken;
use crate::transaction::Transaction;

/// Readers together, writers alone, over all processes that use the same path, in order of arrival: neither side starves.
///
/// It is Curator's class of that name, in Curator's znode dialect, and Java (Curator) processes contend on the same path.
/// A reader waits for the last writer before it, and watches that node alone; a writer waits for whoever is before it. A
/// reader with only readers before it watches nothing. A free lock of either kind costs 2 requests.
///
/// The two sides are locks like any other: [`read_lock`](Self::read_lock) and [`write_lock`](Self::write_lock), each an
/// [`InterProcessLock`](crate::InterProcessLock). A writer can [become a reader](WriteGuard::downgrade) without letting
/// anybody in between, and a reader that is alone [the writer](ReadGuard::try_upgrade).
///
/// A read-write lock needs a path of its own: where its nodes and a mutex's meet, both refuse with
/// [`AcquireError::MixedRecipes`] (Curator lets both in).
///
/// # Not re-entrant
/// A task that holds the read lock and waits for the write lock of the same path waits for itself, until its timeout; the
/// error says where this process holds it. What a guard can do by itself never waits for others:
/// [`try_upgrade`](ReadGuard::try_upgrade) answers at once, [`WriteGuard::read`] shares the hold, and where a conversion
/// would have to wait for another share of the same hold it is [`ConversionFailure::WouldDeadlock`].
///
/// # Curator before 5.5
/// Older Curators downgrade in two steps, and let a queued writer in between (CURATOR-621): ours too, because nobody
/// can tell their downgraded reader from one that waits. Our own [`downgrade`](WriteGuard::downgrade) is safe with all of
/// them.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # let servers = server.connect_string();
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, InterProcessReadWriteLock};
///
/// let client = Client::connect(&servers).await?;
/// let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
///
/// let writer = lock.write_lock().acquire(Duration::from_secs(1)).await?;
/// // Write the row and drop the cached value: nobody reads between the two.
/// let reader = writer.downgrade().await?;
/// // Fill the cache with what was written: other readers come in, no writer does.
/// reader.release().await?;
/// # client.close().await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InterProcessReadWriteLock {
    room: Arc<Room>,
}

impl InterProcessReadWriteLock {
    /// The read-write lock at `path`, with the options of the handles that this client has for it already, or the
    /// defaults.
    ///
    /// # Errors
    /// [`BuildError::InvalidPath`], [`BuildError::MixedRecipes`]. No I/O is done.
    pub fn new(client: &Client, path: &str) -> Result<Self, BuildError> {
        Self::builder(client, path).build()
    }

    /// The same with options.
    pub fn builder(client: &Client, path: &str) -> InterProcessReadWriteLockBuilder {
        InterProcessReadWriteLockBuilder {
            client: client.clone(),
            path: path.to_owned(),
            asked: Asked::default(),
        }
    }

    /// The lock that readers share.
    #[must_use]
    #[doc(alias = "readLock")]
    pub fn read_lock(&self) -> InterProcessReadLock {
        InterProcessReadLock { room: Arc::clone(&self.room) }
    }

    /// The lock that one writer has alone.
    #[must_use]
    #[doc(alias = "writeLock")]
    pub fn write_lock(&self) -> InterProcessWriteLock {
        InterProcessWriteLock { room: Arc::clone(&self.room) }
    }

    /// The paths of the nodes of all readers and writers, of all processes, in order.
    ///
    /// # Errors
    /// Those of [`InterProcessReadLock::participants`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn participants(&self) -> Result<Vec<String>, AcquireError> {
        participants(Arc::clone(&self.room), None).await
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.room.path().user()
    }
}

lock_builder! {
    /// Options of an [`InterProcessReadWriteLock`].
    InterProcessReadWriteLockBuilder, InterProcessReadWriteLock, Recipe::ReadWriteLock
}

impl InterProcessReadWriteLockBuilder {
    /// How many contenders of this client have a node below the path at most; further ones wait in memory, in order,
    /// readers and writers alike. A reader gives its place up when it is let in, so this does not bound how many readers
    /// are inside. From 1 to 10,000, by default 64.
    pub fn max_znodes(mut self, nodes: usize) -> Self {
        self.asked.max_nodes = Some(nodes);
        self
    }
}

/// The side of an [`InterProcessReadWriteLock`] that readers share.
#[derive(Clone, Debug)]
pub struct InterProcessReadLock {
    room: Arc<Room>,
}

lock_methods!(InterProcessReadLock, ReadGuard, Kind::Shared, Some(Kind::Shared));

/// The side of an [`InterProcessReadWriteLock`] that one writer has alone.
#[derive(Clone, Debug)]
pub struct InterProcessWriteLock {
    room: Arc<Room>,
}

lock_methods!(InterProcessWriteLock, WriteGuard, Kind::Exclusive, Some(Kind::Exclusive));

/// What the guards of the two sides can do as every guard can.
macro_rules! guard_methods {
    ($guard:ident) => {
        impl $guard {
            pub(crate) fn new(hold: Hold) -> Self {
                Self { guard: LockGuard::new(hold) }
            }

            /// As [`LockGuard::state`].
            #[must_use]
            pub fn state(&self) -> LockState {
                self.guard.state()
            }

            /// As [`LockGuard::state_changed`].
            ///
            /// # Cancel safety
            /// As there.
            pub async fn state_changed(&self, known: LockState) -> LockState {
                self.guard.state_changed(known).await
            }

            /// As [`LockGuard::is_held`].
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.guard.is_held()
            }

            /// As [`LockGuard::lost`]. A conversion does not end it.
            ///
            /// # Cancel safety
            /// As there.
            pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
                self.guard.lost()
            }

            /// As [`LockGuard::while_held`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Cancel safety
            /// As there.
            pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Lost> {
                self.guard.while_held(work).await
            }

            /// As [`LockGuard::reenter`].
            ///
            /// # Errors
            /// As there.
            pub fn reenter(&self) -> Result<Self, Lost> {
                self.guard.reenter().map(|guard| Self { guard })
            }

            /// As [`LockGuard::hold_count`].
            #[must_use]
            pub fn hold_count(&self) -> usize {
                self.guard.hold_count()
            }

            /// As [`LockGuard::transaction`].
            pub fn transaction(&self) -> Transaction<'_> {
                self.guard.transaction()
            }

            /// As [`LockGuard::revoked`]. A conversion does not end it.
            ///
            /// # Cancel safety
            /// As there.
            pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static {
                self.guard.revoked()
            }

            /// As [`LockGuard::node`].
            #[must_use]
            pub fn node(&self) -> String {
                self.guard.node()
            }

            /// As [`LockGuard::path`].
            #[must_use]
            pub fn path(&self) -> &str {
                self.guard.path()
            }

            /// As [`LockGuard::release`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Cancel safety
            /// As there.
            pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static {
                self.guard.release()
            }
        }

        impl From<$guard> for LockGuard {
            fn from(guard: $guard) -> Self {
                guard.guard
            }
        }
    };
}

/// A read lock that this process holds. It is a [`LockGuard`] in all but its type, and converts into one.
#[must_use = "dropping the guard gives the lock back at once"]
#[derive(Debug)]
pub struct ReadGuard {
    guard: LockGuard,
}

guard_methods!(ReadGuard);

impl ReadGuard {
    /// The number of this grant. Readers that are inside together have theirs in no particular order, so a resource
    /// compares it with the highest token of a *writer* only ([`FenceGate::check_read`](crate::FenceGate::check_read)), and does not remember it. Of a
    /// guard that was downgraded it is the writer's.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Becomes the writer if no other reader can be inside, without waiting for anybody: later readers queue behind
    /// it, and so do the writers that were waiting. The token stays what it was.
    ///
    /// Of two readers that try at the same time neither succeeds as long as both are inside: one has to give its lock
    /// back.
    ///
    /// # Errors
    /// [`ConversionError`] with the guard, as it was: [`Contended`](ConversionFailure::Contended) when another reader
    /// may be inside, [`WouldDeadlock`](ConversionFailure::WouldDeadlock) when another guard shares the hold, and the
    /// others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back. It waits for the servers' answers: with none in reach until the session
    /// is over.
    pub async fn try_upgrade(self) -> Result<WriteGuard, ConversionError<Self>> {
        convert(self.guard, Kind::Exclusive, driver::upgrade)
            .await
            .map(|guard| WriteGuard { guard })
            .map_err(|(guard, path, reason)| ConversionError::new(Self { guard }, &path, reason))
    }
}

/// A write lock that this process holds. It is a [`LockGuard`] in all but its type, and converts into one.
#[must_use = "dropping the guard gives the lock back at once"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: LockGuard,
}

guard_methods!(WriteGuard);

impl WriteGuard {
    /// As [`LockGuard::fencing_token`]. Of a guard that was upgraded it is the reader's: greater than every writer's
    /// before it, smaller than every writer's after it.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// A read guard of the same hold, for code that wants one. The lock stays a write lock until the last of the guards
    /// is gone: to let other readers in, [`downgrade`](Self::downgrade).
    ///
    /// # Errors
    /// [`Lost`] if the lock is lost.
    pub fn read(&self) -> Result<ReadGuard, Lost> {
        self.guard.reenter().map(|guard| ReadGuard { guard })
    }

    /// Becomes a reader: other readers come in, and no writer in between. One transaction; the token stays what it was.
    ///
    /// # Errors
    /// [`ConversionError`] with the guard, as it was: [`WouldDeadlock`](ConversionFailure::WouldDeadlock) when another
    /// guard shares the hold, and the others as they say.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back. It waits for the server's answer: with none in reach until the session
    /// is over.
    pub async fn downgrade(self) -> Result<ReadGuard, ConversionError<Self>> {
        convert(self.guard, Kind::Shared, driver::downgrade)
            .await
            .map(|guard| ReadGuard { guard })
            .map_err(|(guard, path, reason)| ConversionError::new(Self { guard }, &path, reason))
    }
}

type Unconverted = (LockGuard, String, ConversionFailure);

/// Converts the hold of a guard that nobody shares, where the session runs.
async fn convert<W>(
    guard: LockGuard,
    kind: Kind,
    work: impl FnOnce(Hold) -> W,
) -> Result<LockGuard, Unconverted>
where
    W: Future<Output = driver::Counted> + Send + 'static,
{
    let path = guard.path().to_owned();
    let hold = match guard.into_hold() {
        Ok(hold) => hold,
        Err(guard) => return Err((guard, path, ConversionFailure::WouldDeadlock)),
    };
    if hold.kind() == kind && hold.lost().is_none() {
        // A read guard of `WriteGuard::read`, and the last of its hold.
        return Ok(LockGuard::new(hold));
    }
    // A client that is over takes the task along, and with it the hold, which is over as well: its shadow answers for it.
    let (client, shadow) = (Arc::clone(hold.room().client()), hold.shadow());
    match client.run(work(hold)).await {
        Some((Ok(hold), _)) => Ok(LockGuard::new(hold)),
        Some((Err((hold, reason)), _)) => Err((LockGuard::new(hold), path, reason)),
        None => {
            shadow.lose(LostReason::Closed);
            let reason = shadow.lost().unwrap_or(LostReason::Closed);
            let lost = Lost { path: path.as_str().into(), reason };
            Err((LockGuard::new(shadow), path, lost.into()))
        }
    }
}
