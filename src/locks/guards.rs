//! What all guards have in common: the trait, and the methods of each.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use self::sealed::Inside;
use crate::engine::multi_lock::multi::BoxedFuture;
use crate::error::{Lost, ReleaseError};
use crate::locks::guard_set::Shares;
use crate::locks::transaction::{DataRead, Transaction};
use crate::protocol::hold::LockState;

/// A guard of any kind, for code that does not depend on the kind: of a lock
/// ([`LockGuard`](crate::LockGuard)), of several ([`MultiLockGuard`](crate::MultiLockGuard)), or of permits
/// ([`SemaphorePermit`](crate::SemaphorePermit)).
///
/// The guards have methods of the same names, which are the better choice where the type is known: their
/// futures need no `Box`. Guards of locks of several kinds are also one type, [`AnyGuard`](crate::AnyGuard).
///
/// It is implemented for `Box<dyn Guard>`, too. The trait is sealed: only the guards of this crate implement
/// it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Guard, InterProcessMutex, InterProcessSemaphore};
///
/// /// The locks that a worker must hold while it works.
/// async fn work(needed: Vec<Box<dyn Guard>>) -> Result<(), Box<dyn std::error::Error>> {
///     assert!(needed.iter().all(|guard| guard.is_held()));
///     for guard in needed {
///         guard.release().await?;
///     }
///     Ok(())
/// }
///
/// let gpu = InterProcessSemaphore::new(&client, "/cluster/gpus", 8)?.try_acquire().await?;
/// let model = InterProcessMutex::new(&client, "/models/prices")?.lock().await?;
/// work(vec![Box::new(gpu), Box::new(model)]).await
/// # }
/// ```
///
/// As a bound of generic code:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{Guard, InterProcessMultiLock, Lost};
///
/// /// Waits for the loss in a task, which does not keep the lock.
/// fn alarm(guard: &impl Guard) -> tokio::task::JoinHandle<Lost> {
///     tokio::spawn(guard.lost())
/// }
///
/// let both = InterProcessMultiLock::from_paths(&client, ["/accounts/4", "/accounts/17"])?;
/// let guard = both.lock().await?;
/// let alarm = alarm(&guard);
/// client.close().await?;
/// println!("{}", alarm.await?);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the guard releases the lock at once: bind it to `_guard`, not to `_`"]
pub trait Guard: sealed::IsGuard + fmt::Debug + Send + Sync + 'static {
    /// Returns the state: of several locks or permits, the worst one.
    fn state(&self) -> LockState {
        self.shares(Inside(())).state()
    }

    /// Waits until the state differs from `known`, and returns the new one.
    ///
    /// Returns at once if the state differs already, or after a loss. See
    /// [`LockGuard::state_changed`](crate::LockGuard::state_changed).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost.
    fn state_changed(&self, known: LockState) -> Pin<Box<dyn Future<Output = LockState> + Send + '_>> {
        Box::pin(self.shares(Inside(())).state_changed(known))
    }

    /// Returns `true` unless a lock or a permit is lost, by the clock. See
    /// [`LockGuard::is_held`](crate::LockGuard::is_held).
    fn is_held(&self) -> bool {
        self.shares(Inside(())).lost_now().is_none()
    }

    /// Returns a future that resolves when a lock or a permit is lost. It does not borrow the guard. See
    /// [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the next one resolves at once if a lock or a permit was
    /// lost in between.
    fn lost(&self) -> Pin<Box<dyn Future<Output = Lost> + Send>> {
        Box::pin(self.shares(Inside(())).lost())
    }

    /// Runs `work` until it is done or a lock or a permit is lost. See
    /// [`LockGuard::while_held`](crate::LockGuard::while_held).
    ///
    /// # Errors
    /// [`Lost`] if a lock or a permit was lost first; `work` is dropped.
    ///
    /// # Cancel safety
    /// If the future is dropped, so is `work`.
    fn while_held<T: Send>(
        &self,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = Result<T, Lost>> + Send
    where
        Self: Sized,
    {
        self.shares(Inside(())).while_held(work)
    }

    /// Returns a future that resolves when another process requests revocation. It does not borrow the guard.
    /// See [`LockGuard::revoked`](crate::LockGuard::revoked).
    ///
    /// # Cancel safety
    /// If the future is dropped, the watch ends. The next one resolves for the same request.
    fn revoked(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.shares(Inside(())).revoked())
    }

    /// Sets the end of the lease to `lease` from now, sooner or later than it was. See
    /// [`LockGuard::set_lease`](crate::LockGuard::set_lease).
    ///
    /// # Errors
    /// [`Lost`] if a lock or a permit is lost, by the clock.
    fn set_lease(&self, lease: Duration) -> Result<(), Lost> {
        self.shares(Inside(())).set_lease(lease)
    }

    /// Returns how much of the lease is left; `None` if there is no lease. See
    /// [`LockGuard::lease_remaining`](crate::LockGuard::lease_remaining).
    fn lease_remaining(&self) -> Option<Duration> {
        self.shares(Inside(())).lease_remaining()
    }

    /// Returns an empty transaction, which is committed only while all locks or permits are held.
    fn transaction(&self) -> Transaction<'_> {
        self.shares(Inside(())).transaction()
    }

    /// Reads a node, and the version of its data. `None` if there is no such node. See
    /// [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// See [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Cancel safety
    /// It only reads.
    fn get_data<'a>(&'a self, path: &'a str) -> Pin<Box<dyn Future<Output = DataRead> + Send + 'a>> {
        Box::pin(self.shares(Inside(())).get_data(path))
    }

    /// Releases the locks or permits, and waits until a server has confirmed it.
    ///
    /// # Errors
    /// See [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    /// They are released in any case, from the moment of the call. If the future is dropped, the outcome is
    /// not known.
    fn release(self) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>>
    where
        Self: Sized,
    {
        Box::new(self).release_boxed(Inside(()))
    }
}

pub(crate) mod sealed {
    use crate::engine::multi_lock::multi::BoxedFuture;
    use crate::error::ReleaseError;
    use crate::locks::guard_set::Shares;

    /// Implemented by the guards of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsGuard {
        #[doc(hidden)]
        fn shares(&self, inside: Inside) -> Shares<'_>;

        /// Releases a guard whose type may not be known.
        #[doc(hidden)]
        fn release_boxed(self: Box<Self>, inside: Inside) -> BoxedFuture<Result<(), ReleaseError>>;
    }

    /// An argument that only this crate can make, so that no other calls the method.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Debug)]
    pub struct Inside(pub(crate) ());
}

impl<G: Guard + ?Sized> sealed::IsGuard for Box<G> {
    fn shares(&self, inside: Inside) -> Shares<'_> {
        (**self).shares(inside)
    }

    fn release_boxed(self: Box<Self>, inside: Inside) -> BoxedFuture<Result<(), ReleaseError>> {
        (*self).release_boxed(inside)
    }
}

impl<G: Guard + ?Sized> Guard for Box<G> {}

/// The methods that all guards have, and the trait, for a type with `shares` and `into_holds`.
///
/// The texts are for the documentation: what of it can be lost, all that it holds, and an expression that
/// makes a guard, for the examples.
macro_rules! guard_methods {
    ($guard:ident $(<$mode:ident: $bound:ident>)?, $one:literal, $all:literal, $make:literal) => {
        impl $(<$mode: $bound>)? $guard $(<$mode>)? {
            #[doc = concat!("Returns the state: [`Lost`](crate::LockState::Lost) once ", $one, " is lost.")]
            ///
            /// The clock is read at each call, so a task that was not scheduled for long cannot hide a loss.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// use zookeeper_recipes::LockState;
            ///
            /// assert_eq!(guard.state(), LockState::Held);
            /// client.close().await?;
            /// assert!(matches!(guard.state(), LockState::Lost(_)));
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn state(&self) -> crate::LockState {
                self.shares().state()
            }

            /// Waits until the state differs from `known`, and returns the new one.
            ///
            /// Returns at once if the state differs already, or if the guard is lost. An overdue renewal is
            /// noticed within a second. Intermediate states may be skipped.
            ///
            /// # Cancel safety
            /// If the future is dropped, nothing is lost.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # async fn sell(_paused: std::sync::Arc<std::sync::atomic::AtomicBool>) {}
            /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
            /// use zookeeper_recipes::LockState;
            ///
            /// let paused = Arc::new(AtomicBool::new(false));
            /// let mut work = std::pin::pin!(sell(Arc::clone(&paused)));
            /// let mut state = guard.state();
            /// while !matches!(state, LockState::Lost(_)) {
            ///     paused.store(state == LockState::Suspended, Ordering::Relaxed); // begin nothing new
            ///     tokio::select! {
            ///         changed = guard.state_changed(state) => state = changed,
            ///         () = &mut work => break,
            ///     }
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn state_changed(&self, known: crate::LockState) -> crate::LockState {
                self.shares().state_changed(known).await
            }

            #[doc = concat!("Returns `true` unless ", $one, " is lost, by the clock.")]
            ///
            /// Also while it is [`Suspended`](crate::LockState::Suspended). The answer is advisory: the loss
            /// may come a moment later, and only the [token](crate::FencingToken) protects the resource then.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # let mut items = vec![1, 2, 3];
            /// while guard.is_held() {
            ///     let Some(item) = items.pop() else { break };
            ///     println!("item {item}"); // short work
            /// }
            /// # assert!(items.is_empty());
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn is_held(&self) -> bool {
                self.shares().lost_now().is_none()
            }

            /// Sets the end of the lease to `lease` from now, sooner or later than it was.
            ///
            /// A guard without a lease has one from here on. When the lease is over, the guard is lost, with
            /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then released; see
            /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease). A lease of zero is over
            /// at once: this returns that loss. One of more than a year is none.
            ///
            /// It costs no request. All guards that [share](crate::LockGuard::reenter) a hold share the
            /// lease.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost, by the clock: a lease that is over cannot be set
            /// again.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// use std::time::Duration;
            ///
            /// for part in 1..=3 {
            ///     guard.set_lease(Duration::from_secs(10))?; // each part has ten seconds
            ///     println!("part {part}");
            /// }
            /// guard.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "updateLeaseTime")]
            pub fn set_lease(&self, lease: std::time::Duration) -> Result<(), crate::Lost> {
                self.shares().set_lease(lease)
            }

            /// Returns how much of the lease is left; `None` if there is no lease.
            ///
            /// The lease is that of [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) or
            /// [`set_lease`](Self::set_lease). If permits with different leases were merged, it is the
            /// first to end. Zero if it is over, or if the guard is lost in another way, which may be
            /// before the lease is over, since it ends with its session too.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// use std::time::Duration;
            ///
            /// assert_eq!(guard.lease_remaining(), None);
            /// guard.set_lease(Duration::from_secs(10))?;
            /// assert!(guard.lease_remaining() <= Some(Duration::from_secs(10)));
            /// # assert!(guard.lease_remaining() > Some(Duration::from_secs(5)));
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            #[doc(alias = "remainTimeToLive")]
            pub fn lease_remaining(&self) -> Option<std::time::Duration> {
                self.shares().lease_remaining()
            }

            #[doc = concat!("Returns a future that resolves when ", $one, " is lost, with the reason.")]
            ///
            /// It resolves when the lease of the session has expired, when a lease that was set for this
            /// guard ([`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease),
            /// [`set_lease`](Self::set_lease)) is over, when the session has ended or the client is closed,
            /// or when a node of the guard was deleted by another process, which is noticed within a sixth of
            /// the session timeout (by default). The future does not borrow the guard, so another task can
            /// wait for it.
            ///
            /// After a release it stays pending until the session ends, and then resolves although nothing
            /// was lost: drop it when you release the guard.
            ///
            /// # Cancel safety
            /// If the future is dropped, nothing is lost: the next one resolves at once after a loss in
            /// between.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # async fn sell() {}
            /// tokio::select! {
            ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
            ///     () = sell() => guard.release().await?,
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn lost(&self) -> impl Future<Output = crate::Lost> + Send + 'static + use<$($mode)?> {
                self.shares().lost()
            }

            #[doc = concat!("Runs `work` while the guard holds ", $all, ", and returns its output.")]
            ///
            /// As soon as the guard is lost, `work` is dropped. If it is lost by the time that `work` is
            /// done, its output is dropped. [`while_held_owned`](Self::while_held_owned) takes the guard, for
            /// a task of its own.
            ///
            /// # Work that it does not stop
            /// Dropping a future stops what the future does, not what it waits for. A closure of
            /// [`tokio::task::spawn_blocking`], or a task of [`tokio::spawn`], goes on after `while_held` has
            /// returned [`Lost`](crate::Lost), or was dropped itself, and then without the lock, once the
            /// guard is dropped. Move the guard into the closure: it is held for as long as the work, and the
            /// work asks [`is_held`](Self::is_held) between its parts.
            ///
            /// The same happens where a framework drops the handler of a request whose caller has
            /// disconnected, as hyper and axum do: the handler's guards are dropped with it, at whatever
            /// `await` it was. Run work that has to come to its end in a task, with
            /// [`while_held_owned`](Self::while_held_owned).
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost. If it was lost before the call, `work` is not
            /// polled.
            ///
            /// # Cancel safety
            /// If the future is dropped, `work` is dropped with it. The guard is kept.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// let rows = guard.while_held(async { 42 /* the nightly job */ }).await?;
            /// guard.release().await?;
            /// # assert_eq!(rows, 42);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// Work that blocks, which keeps the guard until it ends although its caller may be gone:
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # fn compress(_part: u32) {}
            /// let work = tokio::task::spawn_blocking(move || {
            ///     for part in 0..3 {
            ///         if !guard.is_held() {
            ///             break; // what follows would be without the lock
            ///         }
            ///         compress(part);
            ///     }
            ///     guard // or dropped here, with the end of the work
            /// });
            /// work.await?.release().await?;
            /// # Ok(())
            /// # }
            /// ```
            pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, crate::Lost> {
                self.shares().while_held(work).await
            }

            #[doc = concat!("Runs `work` while it holds ", $all, ", and returns its output with the guard.")]
            ///
            /// Does the same as [`while_held`](Self::while_held), but takes the guard, so the future can be
            /// given to [`tokio::spawn`]: it is held for as long as the task runs.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost. It is dropped then, after `work`.
            ///
            /// # Cancel safety
            /// If the future is dropped, or its task aborted, `work` is dropped, and then the guard, which
            /// releases in the background.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// let job = tokio::spawn(guard.while_held_owned(async { 42 /* the nightly job */ }));
            /// // ..
            /// let (rows, guard) = job.await??;
            /// guard.release().await?;
            /// # assert_eq!(rows, 42);
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "spawn")]
            pub fn while_held_owned<T>(
                self,
                work: impl Future<Output = T>,
            ) -> impl Future<Output = Result<(T, Self), crate::Lost>> {
                // In the order in which they are dropped, polled or not: the work relies on the guard.
                let owned = (work, self);
                async move {
                    let (work, guard) = owned;
                    let output = guard.while_held(work).await?;
                    Ok((output, guard))
                }
            }

            #[doc = concat!("Returns an empty transaction, committed only while the guard holds ", $all, ".")]
            ///
            /// It is for writes to ZooKeeper: see [`Transaction`](crate::Transaction).
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # server.create("/orders", b"")?;
            /// guard.transaction().create("/orders/4711", b"new").commit().await?;
            /// # assert_eq!(server.children("/orders"), ["4711"]);
            /// # Ok(())
            /// # }
            /// ```
            pub fn transaction(&self) -> crate::Transaction<'_> {
                self.shares().transaction()
            }

            /// Reads a node, and the version of its data for a [transaction](Self::transaction) that is based
            /// on them. `None` if there is no such node.
            ///
            /// The path is below the client's [namespace](crate::ClientBuilder::namespace), and needs READ by
            /// its ACL. The answer is not older than the grant: it has every write that was committed before
            /// the release by the previous holder (of several locks, by each of theirs), through whichever
            /// server. It may be out of date by the time that it is used, if others write without the lock or
            /// this one is lost: pass its version to the write.
            ///
            /// It costs two requests, a `sync` and the read, which are sent together, and is repeated by the
            /// client's [`RetryPolicy`](crate::RetryPolicy) until a loss.
            ///
            /// # Errors
            /// - [`TransactionError::Lost`](crate::TransactionError::Lost) after a loss, also if that
            ///   happened during the read.
            /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node does not let this
            ///   client read it.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered.
            /// - See [`TransactionError`](crate::TransactionError) for the other variants.
            ///
            /// # Cancel safety
            /// It only reads.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # server.create("/config/rates", b"old")?;
            /// let (rates, version) = guard.get_data("/config/rates").await?.ok_or("there are no rates")?;
            /// if rates == b"old" {
            ///     guard.transaction().set_data("/config/rates", b"new", version).commit().await?;
            /// }
            /// assert!(guard.get_data("/config/none").await?.is_none());
            /// # assert_eq!(server.node("/config/rates").unwrap().data, b"new");
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "getData")]
            pub async fn get_data(
                &self,
                path: impl AsRef<str>,
            ) -> Result<Option<(Vec<u8>, i32)>, crate::TransactionError> {
                self.shares().get_data(path.as_ref()).await
            }

            #[doc = concat!("Returns a future that resolves when another requests revocation of ", $one, ".")]
            ///
            /// Requests come from [`Client::attempt_revoke`](crate::Client::attempt_revoke), and for locks
            /// from Curator's `Revoker`. One that came before this call is not missed; for a lock, neither is a
            /// request that came while this client was still waiting for the grant, but a permit has another
            /// node than its waiter had. Nothing is released by itself: that is the holder's decision.
            /// Neither a release nor a loss resolves the future, and it does not borrow the guard.
            ///
            /// While it is polled, each node of the guard is watched, which costs one request for each.
            ///
            /// # Cancel safety
            /// If the future is dropped, the watch ends. The next one resolves for the same request.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # async fn reindex() {}
            /// tokio::select! {
            ///     () = guard.revoked() => guard.release().await?, // another process needs it more urgently
            ///     () = reindex() => {}
            /// }
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "makeRevocable")]
            pub fn revoked(&self) -> impl Future<Output = ()> + Send + 'static + use<$($mode)?> {
                self.shares().revoked()
            }

            #[doc = concat!("Releases ", $all, ", and waits until a server has confirmed it.")]
            ///
            /// While other guards [share](crate::LockGuard::reenter) a hold, it only gives up this share,
            /// without a request.
            ///
            /// With no server in reach it waits until the session is over, which takes about 1.4 times the
            /// session timeout, and returns [`ReleaseError::Lost`](crate::ReleaseError::Lost). To wait less,
            /// wrap it in [`tokio::time::timeout`]: the release goes on. After a loss it returns at once, and
            /// nodes are deleted in the background.
            ///
            /// # Errors
            /// - [`ReleaseError::Lost`](crate::ReleaseError::Lost) if the guard was lost before the call, or
            ///   if the session ended before a server confirmed the release. In the first case, what was done
            ///   since the loss may have overlapped with another holder; in the second case it was held until
            ///   the call. To tell them apart, ask [`is_held`](Self::is_held) right before the release.
            /// - [`ReleaseError::Refused`](crate::ReleaseError::Refused) if the ACL does not allow this
            ///   client to delete its own node.
            ///
            /// There is nothing to repeat after either. Once DELETE is granted,
            /// [`Client::flush`](crate::Client::flush) tries a refused deletion again.
            ///
            /// # Cancel safety
            /// It is released in any case, from the moment of the call. If the future is dropped, the outcome
            /// is not known.
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
            /// # let server = zookeeper_test_server::Server::start()?;
            /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// use zookeeper_recipes::ReleaseError;
            ///
            /// // The work.
            /// let held = guard.is_held();
            /// match guard.release().await {
            ///     Ok(()) => println!("released"),
            ///     Err(ReleaseError::Lost(lost)) if held => println!("held until the release: {lost}"),
            ///     Err(ReleaseError::Lost(lost)) => println!("the work may have to be undone: {lost}"),
            ///     Err(error) => return Err(error.into()),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            #[doc(alias = "unlock")]
            #[doc(alias = "returnLease")]
            #[doc(alias = "returnAll")]
            pub fn release(
                self,
            ) -> impl Future<Output = Result<(), crate::ReleaseError>> + Send + 'static + use<$($mode)?> {
                $crate::locks::guard_set::release(self.into_holds())
            }

            /// Releases like [`release`](Self::release), and blocks the thread until a server has confirmed
            /// it.
            ///
            /// # Errors
            /// See [`release`](Self::release).
            pub fn blocking_release(self) -> Result<(), crate::ReleaseError> {
                $crate::blocking::block_on(self.release())
            }
        }

        impl $(<$mode: $bound>)? $crate::locks::guards::sealed::IsGuard for $guard $(<$mode>)? {
            fn shares(&self, _: $crate::locks::guards::sealed::Inside) -> $crate::locks::guard_set::Shares<'_> {
                Self::shares(self)
            }

            fn release_boxed(
                self: Box<Self>,
                _: $crate::locks::guards::sealed::Inside,
            ) -> $crate::engine::multi_lock::multi::BoxedFuture<Result<(), crate::ReleaseError>> {
                Box::pin(Self::release(*self))
            }
        }

        impl $(<$mode: $bound>)? $crate::locks::guards::Guard for $guard $(<$mode>)? {}
    };
}

pub(crate) use guard_methods;
