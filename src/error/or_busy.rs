//! A busy lock as an answer instead of an error.

use super::acquire::{AcquireError, TryLockError};

mod sealed {
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsResult {}
    impl<T> IsResult for Result<T, super::AcquireError> {}
    impl<T> IsResult for Result<T, super::TryLockError> {}
}

/// The result of [`OrBusy::or_busy`]: the outcome of acquiring a lock when a busy lock is not an
/// error.
///
/// Unlike `Option` it is `#[must_use]`, and has no method like `is_some`, which would release the
/// lock by dropping the guard. Its variants can be imported by themselves.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::Acquisition::{Acquired, Busy};
/// use zookeeper_recipes::{InterProcessMutex, OrBusy};
///
/// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
/// match mutex.try_lock().await.or_busy()? {
///     Acquired(guard) => {
///         // The job runs here.
///         guard.release().await?;
///     }
///     Busy => println!("another process runs it"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropping it releases the lock at once: `if let Acquired(guard) = .. { .. }`"]
pub enum Acquisition<G> {
    /// The lock is held until this guard is dropped or released.
    Acquired(G),
    /// The lock was not free: [`AcquireError::TimedOut`] or [`TryLockError::WouldBlock`].
    Busy,
}

impl<G> From<Acquisition<G>> for Option<G> {
    fn from(acquisition: Acquisition<G>) -> Self {
        match acquisition {
            Acquisition::Acquired(guard) => Some(guard),
            Acquisition::Busy => None,
        }
    }
}

/// Turns a busy lock from an error into a value, for callers that expect it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::Acquisition::Acquired;
/// use zookeeper_recipes::{InterProcessMutex, OrBusy};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// if let Acquired(guard) = mutex.acquire(Duration::from_secs(2)).await.or_busy()? {
///     // The lock is held until `guard` is dropped or released.
///     guard.release().await?;
/// }
///
/// let Acquired(guard) = mutex.try_lock().await.or_busy()? else { return Ok(()) };
/// // The lock is held here as well.
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Wrong forms
/// The lock is released when its guard is dropped. The forms below look right, but drop the guard
/// at once, and the following code runs without the lock. The right forms give the guard a name and
/// keep it until the work is done.
///
/// The compiler rejects these, or warns about them (`unused_must_use`):
///
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// mutex.lock().await?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// mutex.acquire(Duration::from_secs(2)).await.or_busy()?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// if mutex.try_lock().await.or_busy()?.is_some() { /* without the lock */ }
/// # Ok(())
/// # }
/// ```
///
/// The compiler accepts these; the last column names the lint that finds them, if there is one:
///
/// | wrong | right | lint |
/// |---|---|---|
/// | `let _ = mutex.lock().await?;` | `let guard = mutex.lock().await?;` or `let _guard = ..` | `clippy::let_underscore_must_use` and rustc's `let_underscore_drop`, both off by default |
/// | `if let Acquired(_) = mutex.try_lock().await.or_busy()? { .. }` | `if let Acquired(guard) = ..`, or `Acquired(_guard)` | |
/// | `let Acquired(_) = mutex.try_lock().await.or_busy()? else { return };` | `let Acquired(guard) = .. else { return };` | |
/// | `if let Ok(_) = mutex.try_lock().await { .. }` | `if let Ok(guard) = ..` | `clippy::redundant_pattern_matching`, whose suggestion, `is_ok()`, is just as wrong |
/// | `let Ok(_) = mutex.try_lock().await else { return };` | `let Ok(guard) = .. else { return };` | |
/// | `if mutex.try_lock().await.is_ok() { .. }` | `if let Ok(guard) = mutex.try_lock().await { .. }` | |
/// | `select! { _ = mutex.lock() => .., .. }` | `select! { guard = mutex.lock() => { let guard = guard?; .. } .. }` | |
/// | `select! { Ok(_) = mutex.lock() => .., .. }` | `select! { Ok(guard) = mutex.lock() => .., .. }` | |
/// | `let token = mutex.lock().await?.fencing_token();` | `let guard = mutex.lock().await?; let token = guard.fencing_token();` | |
pub trait OrBusy: sealed::IsResult {
    /// The type of the guard.
    type Guard;
    /// The type of the error, which stays the same.
    type Error;

    /// Returns [`Acquisition::Busy`] for [`AcquireError::TimedOut`] and
    /// [`TryLockError::WouldBlock`].
    ///
    /// # Errors
    /// Returns every other error unchanged.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::Acquisition::{Acquired, Busy};
    /// use zookeeper_recipes::{InterProcessMutex, OrBusy, TryLockError};
    ///
    /// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let Acquired(guard) = mutex.try_lock().await.or_busy()? else { panic!("it is free") };
    /// assert!(matches!(mutex.try_lock().await.or_busy()?, Busy));
    ///
    /// client.close().await?;
    /// let error = mutex.try_lock().await.or_busy().unwrap_err();
    /// assert!(matches!(error, TryLockError::Acquire(_)), "{error}");
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    fn or_busy(self) -> Result<Acquisition<Self::Guard>, Self::Error>;
}

impl<T> OrBusy for Result<T, AcquireError> {
    type Guard = T;
    type Error = AcquireError;

    fn or_busy(self) -> Result<Acquisition<T>, AcquireError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(AcquireError::TimedOut { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}

impl<T> OrBusy for Result<T, TryLockError> {
    type Guard = T;
    type Error = TryLockError;

    fn or_busy(self) -> Result<Acquisition<T>, TryLockError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(TryLockError::WouldBlock { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}
