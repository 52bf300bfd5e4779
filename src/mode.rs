//! What a [`LockGuard`](crate::LockGuard) holds its lock for, as a type.
//!
//! ```
//! # async fn example(lock: zookeeper_recipes::InterProcessReadWriteLock) -> Result<(), Box<dyn std::error::Error>> {
//! use zookeeper_recipes::{AnyGuard, LockGuard, ReadGuard, mode};
//!
//! /// Takes the guard of any lock.
//! fn report<M: mode::Mode>(guard: &LockGuard<M>) {
//!     println!("{} is {:?}", guard.path(), guard.state());
//! }
//!
//! let guard: ReadGuard = lock.read_lock().lock().await?; // a `LockGuard<mode::Read>`
//! report(&guard);
//! let guard: AnyGuard = guard.into();
//! report(&guard);
//! # Ok(())
//! # }
//! ```

use std::fmt;

/// What a guard holds its lock for: [`Exclusive`], [`Read`], [`Write`] or [`Any`] of them. There are no others.
pub trait Mode: sealed::Sealed + Copy + fmt::Debug + Send + Sync + Unpin + 'static {}

/// Nobody else holds the lock: the guard of a mutex or of a fair lock.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Exclusive;

/// Other readers may hold the lock: [`ReadGuard`](crate::ReadGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Read;

/// Nobody else holds the lock, and the guard can become a reader's: [`WriteGuard`](crate::WriteGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Write;

/// One of the others, known at run time only: [`AnyGuard`](crate::AnyGuard), which `dyn`
/// [`InterProcessLock`](crate::InterProcessLock) answers with.
#[derive(Clone, Copy, Debug)]
pub struct Any(());

impl Mode for Exclusive {}
impl Mode for Read {}
impl Mode for Write {}
impl Mode for Any {}

mod sealed {
    #[expect(unnameable_types, reason = "that nobody can name it is what it is for")]
    pub trait Sealed: Into<super::Any> {}

    impl Sealed for super::Exclusive {}
    impl Sealed for super::Read {}
    impl Sealed for super::Write {}
    impl Sealed for super::Any {}
}

impl From<Exclusive> for Any {
    fn from(_: Exclusive) -> Self {
        Self(())
    }
}

impl From<Read> for Any {
    fn from(_: Read) -> Self {
        Self(())
    }
}

impl From<Write> for Any {
    fn from(_: Write) -> Self {
        Self(())
    }
}
