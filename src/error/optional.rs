//! A busy lock as an answer instead of an error.

use super::acquire::{AcquireError, TryLockError};

mod sealed {
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Sealed {}
    impl<T> Sealed for Result<T, super::AcquireError> {}
    impl<T> Sealed for Result<T, super::TryLockError> {}
}

/// What came of asking for a lock, where a busy lock is no error: the answer of [`OptionalExt::optional`].
///
/// Unlike `Option` it is `#[must_use]`, and has no question like `is_some` that gives the lock back in passing.
/// Its variants can be imported by themselves.
#[derive(Debug)]
#[must_use = "dropping it gives the lock back at once: `if let Acquired(guard) = .. { .. }`"]
pub enum Acquisition<G> {
    /// The lock is held, until this guard is dropped or released.
    Acquired(G),
    /// Other contenders were in the way: [`AcquireError::TimedOut`] or [`TryLockError::WouldBlock`].
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

/// Turns a busy lock from an error into an answer, for callers to whom it is none.
///
/// ```no_run
/// # async fn example(mutex: zookeeper_recipes::InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use zookeeper_recipes::{Acquired, OptionalExt};
///
/// if let Acquired(guard) = mutex.acquire(Duration::from_millis(200)).await.optional()? {
///     // the lock is ours, until `guard` is dropped or released
///     guard.release().await?;
/// }
///
/// let Acquired(guard) = mutex.try_lock().await.optional()? else { return Ok(()) };
/// // the lock is ours
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Wrong forms
/// The lock is held by the guard, so it is free again as soon as the guard is dropped. These look right, and run what comes
/// after them without the lock. The right forms give the guard a name, and keep it to the end of the work.
///
/// The compiler rejects these, or warns of them (`unused_must_use`):
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
/// mutex.acquire(Duration::from_millis(200)).await.optional()?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// if mutex.try_lock().await.optional()?.is_some() { /* without the lock */ }
/// # Ok(())
/// # }
/// ```
///
/// These it accepts; where a lint finds one, the last column names it:
///
/// | wrong | right | lint |
/// |---|---|---|
/// | `let _ = mutex.lock().await?;` | `let guard = mutex.lock().await?;` or `let _guard = ..` | `clippy::let_underscore_must_use` and rustc's `let_underscore_drop`, both off by default |
/// | `if let Acquired(_) = mutex.try_lock().await.optional()? { .. }` | `if let Acquired(guard) = ..`, or `Acquired(_guard)` | |
/// | `let Acquired(_) = mutex.try_lock().await.optional()? else { return };` | `let Acquired(guard) = .. else { return };` | |
/// | `if let Ok(_) = mutex.try_lock().await { .. }` | `if let Ok(guard) = ..` | `clippy::redundant_pattern_matching`, whose suggestion, `is_ok()`, is as wrong |
/// | `let Ok(_) = mutex.try_lock().await else { return };` | `let Ok(guard) = .. else { return };` | |
/// | `if mutex.try_lock().await.is_ok() { .. }` | `if let Ok(guard) = mutex.try_lock().await { .. }` | |
/// | `select! { _ = mutex.lock() => .., .. }` | `select! { guard = mutex.lock() => { let guard = guard?; .. } .. }` | |
/// | `select! { Ok(_) = mutex.lock() => .., .. }` | `select! { Ok(guard) = mutex.lock() => .., .. }` | |
/// | `let token = mutex.lock().await?.fencing_token();` | `let guard = mutex.lock().await?; let token = guard.fencing_token();` | |
pub trait OptionalExt: sealed::Sealed {
    /// What is inside the `Ok`.
    type Guard;
    /// The error without the answers that became [`Acquisition::Busy`]; of the same type.
    type Error;

    /// [`Acquisition::Busy`] instead of [`AcquireError::TimedOut`] and [`TryLockError::WouldBlock`].
    ///
    /// # Errors
    /// Every other error, unchanged.
    fn optional(self) -> Result<Acquisition<Self::Guard>, Self::Error>;
}

impl<T> OptionalExt for Result<T, AcquireError> {
    type Guard = T;
    type Error = AcquireError;

    fn optional(self) -> Result<Acquisition<T>, AcquireError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(AcquireError::TimedOut { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}

impl<T> OptionalExt for Result<T, TryLockError> {
    type Guard = T;
    type Error = TryLockError;

    fn optional(self) -> Result<Acquisition<T>, TryLockError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(TryLockError::WouldBlock { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}
