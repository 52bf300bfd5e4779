//! The common parts of all guards: the trait, and the methods of each guard.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use self::sealed::Inside;
use crate::error::{Lost, ReleaseError};
use crate::locks::guard_set::Shares;
use crate::locks::transaction::{DataRead, Transaction};
use crate::protocol::hold::LockState;
use crate::session::threads::BoxFuture;

/// A guard of any kind, for code that does not depend on the kind: of a lock
/// ([`LockGuard`](crate::LockGuard)), of several ([`MultiLockGuard`](crate::MultiLockGuard)), or of
/// permits ([`SemaphorePermit`](crate::SemaphorePermit)).
///
/// Each guard has its own methods of the same names. Prefer these where the type is known: their
/// futures need no `Box`. For guards of several kinds of locks there is also one type,
/// [`AnyGuard`](crate::AnyGuard).
///
/// `Box<dyn Guard>` implements the trait, too. It is sealed: only the guards of this crate
/// implement it.
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
    /// Returns the state; for several locks or permits, the worst state.
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
    fn state_changed(
        &self,
        known: LockState,
    ) -> Pin<Box<dyn Future<Output = LockState> + Send + '_>> {
        Box::pin(self.shares(Inside(())).state_changed(known))
    }

    /// Reads the clock, and returns `true` unless a lock or a permit is lost. See
    /// [`LockGuard::is_held`](crate::LockGuard::is_held).
    fn is_held(&self) -> bool {
        self.shares(Inside(())).lost_now().is_none()
    }

    /// Returns a future that resolves when a lock or a permit is lost. It does not borrow the
    /// guard. See [`LockGuard::lost`](crate::LockGuard::lost).
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is lost: the next one resolves at once if a lock or a
    /// permit was lost in between.
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

    /// Returns a future that resolves when another process requests revocation. It does not borrow
    /// the guard. See [`LockGuard::revoked`](crate::LockGuard::revoked).
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

    /// Reads a node, and the version of its data; returns `None` if there is no such node. See
    /// [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Errors
    /// See [`LockGuard::get_data`](crate::LockGuard::get_data).
    ///
    /// # Cancel safety
    /// Cancel safe: this only reads.
    fn get_data<'a>(
        &'a self,
        path: &'a str,
    ) -> Pin<Box<dyn Future<Output = DataRead> + Send + 'a>> {
        Box::pin(self.shares(Inside(())).get_data(path))
    }

    /// Releases the locks or permits, and waits until a server has confirmed it.
    ///
    /// # Errors
    /// See [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    /// The call itself releases the locks or permits. If the future is dropped, only the outcome is
    /// lost.
    fn release(self) -> Pin<Box<dyn Future<Output = Result<(), ReleaseError>> + Send>>
    where
        Self: Sized,
    {
        Box::new(self).release_boxed(Inside(()))
    }
}

pub(crate) mod sealed {
    use crate::error::ReleaseError;
    use crate::locks::guard_set::Shares;
    use crate::session::threads::BoxFuture;

    /// Implemented by the guards of this crate.
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsGuard {
        #[doc(hidden)]
        fn shares(&self, inside: Inside) -> Shares<'_>;

        /// Releases a guard whose type may be unknown.
        #[doc(hidden)]
        fn release_boxed(
            self: Box<Self>,
            inside: Inside,
        ) -> BoxFuture<'static, Result<(), ReleaseError>>;
    }

    /// An argument that only this crate can make, so that no other crate calls the method.
    #[expect(unnameable_types, reason = "only this crate needs a name for it")]
    #[derive(Debug)]
    pub struct Inside(pub(crate) ());
}

impl<G: Guard + ?Sized> sealed::IsGuard for Box<G> {
    fn shares(&self, inside: Inside) -> Shares<'_> {
        (**self).shares(inside)
    }

    fn release_boxed(
        self: Box<Self>,
        inside: Inside,
    ) -> BoxFuture<'static, Result<(), ReleaseError>> {
        (*self).release_boxed(inside)
    }
}

impl<G: Guard + ?Sized> Guard for Box<G> {}

/// Defines the methods of a guard, and implements the trait, for a type with `shares` and
/// `into_holds`.
///
/// The literals are for the documentation: the part that can be lost, all that the guard holds, and
/// for the examples an expression that makes a guard.
macro_rules! guard_methods {
    ($guard:ident $(<$mode:ident: $bound:ident>)?, $one:literal, $all:literal, $make:literal) => {
        impl $(<$mode: $bound>)? $guard $(<$mode>)? {
            #[doc = concat!("Returns the state: [`Lost`](crate::LockState::Lost) once ", $one, " is lost.")]
            ///
            /// Each call reads the clock, so a task that was not scheduled for long cannot hide a
            /// loss.
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
            /// Returns at once if the state differs already, or if the guard is lost. An overdue
            /// renewal is noticed within a second. Intermediate states may be skipped.
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
            /// A [`Suspended`](crate::LockState::Suspended) guard is held. The answer is advisory:
            /// the loss may come a moment later, and only the [token](crate::FencingToken) protects
            /// the resource then.
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
            /// A guard without a lease gets one. When the lease ends, the guard is lost, with
            /// [`LostReason::LeaseOver`](crate::LostReason::LeaseOver), and then released; see
            /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease). A lease of
            /// zero ends at once: the guard is lost, and this returns the loss. More than a year is
            /// no limit.
            ///
            /// This sends no request. All guards that [share](crate::LockGuard::reenter) a hold
            /// share the lease.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost, by the clock: a lease that has ended
            /// cannot be extended.
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
            /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) or
            /// [`set_lease`](Self::set_lease) has set the lease. If permits with different leases
            /// were merged, the first lease to end counts. Returns zero if the lease has ended, or
            /// the guard is lost for another reason.
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
            /// It resolves when the session lease has expired, when a lease of this guard
            /// ([`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease),
            /// [`set_lease`](Self::set_lease)) has ended, when the session has ended or the client
            /// is closed, or when another process has deleted a node of the guard, which is noticed
            /// within a sixth of the session timeout (by default). The future does not borrow the
            /// guard, so another task can wait for it.
            ///
            /// After a release it stays pending until the session ends, and then resolves although
            /// nothing was lost: drop it when you release the guard.
            ///
            /// # Cancel safety
            /// If the future is dropped, nothing is lost: the next one resolves at once after a
            /// loss in between.
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
            /// As soon as the guard is lost, `work` is dropped. If the guard is lost by the time
            /// that `work` is done, the output is dropped.
            /// [`while_held_owned`](Self::while_held_owned) takes the guard, for a separate task.
            ///
            /// # Work that it does not stop
            /// Dropping a future stops what the future does, not what it waits for. A closure of
            /// [`tokio::task::spawn_blocking`], or a task of [`tokio::spawn`], goes on after
            /// `while_held` has returned [`Lost`](crate::Lost) or was dropped, and once the guard
            /// is dropped, without the lock. Move the guard into the closure: then the lock is held
            /// for as long as the work lasts, and the work can ask [`is_held`](Self::is_held)
            /// between its parts.
            ///
            /// The same happens where a framework (hyper, axum) drops the handler of a request
            /// because the caller has disconnected: the handler's guards are dropped with it, at
            /// any `await`. Run work that must be completed in a task, with
            /// [`while_held_owned`](Self::while_held_owned).
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost. If it was lost before the call, `work`
            /// is not polled.
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
            /// Blocking work, which keeps the guard until its end, even if its caller is gone:
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
            /// This works like [`while_held`](Self::while_held), but takes the guard, so the future
            /// can be passed to [`tokio::spawn`]: the lock is held for as long as the task runs.
            ///
            /// # Errors
            /// [`Lost`](crate::Lost) if the guard is lost, which is then dropped, after `work`.
            ///
            /// # Cancel safety
            /// If the future is dropped, or its task aborted, `work` is dropped, and then the
            /// guard, which releases in the background.
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
                // This is the order of their drop, polled or not, because the work relies on the
                // guard.
                let owned = (work, self);
                async move {
                    let (work, guard) = owned;
                    let output = guard.while_held(work).await?;
                    Ok((output, guard))
                }
            }

            #[doc = concat!("Returns an empty transaction, committed only while the guard holds ", $all, ".")]
            ///
            /// This is for writes to ZooKeeper: see [`Transaction`](crate::Transaction).
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

            /// Reads a node, and the version of its data, for a [transaction](Self::transaction)
            /// that depends on them; returns `None` if there is no such node.
            ///
            /// The path is below the client's [namespace](crate::ClientBuilder::namespace), and the
            /// node's ACL must allow READ. The answer is not older than the grant: it includes
            /// every write, through any server, that was committed before the previous holder's
            /// release (for several locks, before each of theirs). It may be out of date when you
            /// use it, if others write without the lock or the lock is lost, so pass its version to
            /// the write.
            ///
            /// This costs two requests, a `sync` and the read, sent together and repeated by the
            /// client's [`RetryPolicy`](crate::RetryPolicy) until a loss.
            ///
            /// # Errors
            /// - [`TransactionError::Lost`](crate::TransactionError::Lost) after a loss, even
            ///   during the read.
            /// - [`ErrorKind::NoAuth`](crate::ErrorKind::NoAuth) if the ACL of the node denies this
            ///   client READ.
            /// - [`ErrorKind::Connection`](crate::ErrorKind::Connection) if no server answered.
            /// - See [`TransactionError`](crate::TransactionError) for the other variants.
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
            #[doc = concat!("# let guard = zookeeper_recipes::", $make, ";")]
            /// # server.create("/config/rates", b"old")?;
            /// let (rates, version) = guard.get_data("/config/rates").await?.ok_or("there are no
            /// rates")?; if rates == b"old" {
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

            #[doc = concat!("Returns a future that resolves when revocation of ", $one, " is requested.")]
            ///
            /// Requests come from [`Client::attempt_revoke`](crate::Client::attempt_revoke), and
            /// for locks from Curator's `Revoker`. Requests before this call are not missed; for a
            /// lock, neither are requests before the grant (a permit has a different node than its
            /// waiter had). The holder decides whether to release. Neither a release nor a loss
            /// resolves the future, which does not borrow the guard.
            ///
            /// The polled future watches each node of the guard, which costs one request for each.
            ///
            /// # Cancel safety
            /// If the future is dropped, the watch ends. The next one resolves for the same
            /// request.
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
            /// While other guards [share](crate::LockGuard::reenter) the hold, this only gives up
            /// this guard's share, without a request.
            ///
            /// If no server can be reached, this waits until the session has ended, about 1.4 times
            /// the session timeout, and returns [`ReleaseError::Lost`](crate::ReleaseError::Lost).
            /// To wait less, wrap the call in [`tokio::time::timeout`]: the release goes on. After
            /// a loss this returns at once, and nodes are deleted in the background.
            ///
            /// # Errors
            /// - [`ReleaseError::Lost`](crate::ReleaseError::Lost) if the guard was lost before the
            ///   call, or if the session ended before a server confirmed the release. In the first
            ///   case, work since the loss may have overlapped with another holder; in the second
            ///   case, the lock was held until the call. To tell the two apart, ask
            ///   [`is_held`](Self::is_held) right before the release.
            /// - [`ReleaseError::Refused`](crate::ReleaseError::Refused) if the ACL does not allow
            ///   this client to delete its own node.
            ///
            /// Neither error calls for a repetition. Once the ACL allows DELETE,
            /// [`Client::flush`](crate::Client::flush) tries a refused deletion again.
            ///
            /// # Cancel safety
            /// The call itself releases. If the future is dropped, only the outcome is lost.
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

            /// Releases like [`release`](Self::release), and blocks the thread until a server has
            /// confirmed it.
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
            ) -> $crate::session::threads::BoxFuture<'static, Result<(), crate::ReleaseError>> {
                Box::pin(Self::release(*self))
            }
        }

        impl $(<$mode: $bound>)? $crate::locks::guards::Guard for $guard $(<$mode>)? {}
    };
}

pub(crate) use guard_methods;
