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
use std::hash::Hash;

use crate::token::{FencingToken, ReadToken, Token};

/// What a guard holds its lock for: [`Exclusive`], [`Read`], [`Write`] or [`Any`] of them. There are no others.
pub trait Mode: sealed::Mode + Copy + fmt::Debug + Send + Sync + Unpin + 'static {
    /// What [`fencing_token`](crate::LockGuard::fencing_token) returns.
    type Token: sealed::Token
        + Into<Token>
        + Copy
        + Eq
        + Hash
        + fmt::Debug
        + fmt::Display
        + Send
        + Sync
        + 'static;
}

/// No other contender holds the lock: the guard of a mutex or of a fair lock.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Exclusive;

impl Mode for Exclusive {
    type Token = FencingToken;
}

/// Other readers may hold the lock: [`ReadGuard`](crate::ReadGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Read;

impl Mode for Read {
    type Token = ReadToken;
}

/// No other contender holds the lock, and the guard can become a reader's: [`WriteGuard`](crate::WriteGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Write;

impl Mode for Write {
    type Token = FencingToken;
}

/// One of the others, known at run time only: [`AnyGuard`](crate::AnyGuard), which `dyn`
/// [`InterProcessLock`](crate::InterProcessLock) returns.
#[derive(Clone, Copy)]
pub struct Any {
    reads: bool,
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Any")
    }
}

impl Mode for Any {
    type Token = Token;
}

impl From<Exclusive> for Any {
    fn from(_: Exclusive) -> Self {
        Self { reads: false }
    }
}

impl From<Read> for Any {
    fn from(_: Read) -> Self {
        Self { reads: true }
    }
}

impl From<Write> for Any {
    fn from(_: Write) -> Self {
        Self { reads: false }
    }
}

pub(crate) mod sealed {
    use super::{Any, Exclusive, FencingToken, Read, ReadToken, Write};

    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Mode: Into<Any> {}

    impl Mode for Exclusive {}
    impl Mode for Read {}
    impl Mode for Write {}
    impl Mode for Any {}

    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Token {
        /// The token with these numbers, in this mode.
        fn new(zxid: i64, counter: u64, mode: Any) -> Self;
    }

    impl Token for FencingToken {
        fn new(zxid: i64, counter: u64, _: Any) -> Self {
            Self::from_parts(zxid, counter)
        }
    }

    impl Token for ReadToken {
        fn new(zxid: i64, counter: u64, _: Any) -> Self {
            Self::from_parts(zxid, counter)
        }
    }

    impl Token for super::Token {
        fn new(zxid: i64, counter: u64, mode: Any) -> Self {
            if mode.reads {
                Self::Read(ReadToken::from_parts(zxid, counter))
            } else {
                Self::Write(FencingToken::from_parts(zxid, counter))
            }
        }
    }
}
