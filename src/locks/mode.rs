//! The modes in which a [`LockGuard`](crate::LockGuard) holds its lock, and the kinds of a
//! [`Lock`](crate::Lock), as types.
//!
//! All guards are one type with the mode as a parameter, so a function can take the guard of any
//! lock:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = zookeeper_test_server::Server::start()?;
//! # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
//! use zookeeper_recipes::mode::Mode;
//! use zookeeper_recipes::{FenceGate, InterProcessMutex, InterProcessReadWriteLock, LockGuard, StaleToken};
//!
//! /// Lets the holder of any lock in.
//! fn enter<M: Mode>(gate: &FenceGate, guard: &LockGuard<M>) -> Result<(), StaleToken> {
//!     println!("{} is {:?}", guard.path(), guard.state());
//!     gate.admit(guard.fencing_token()) // of the type `M::Token`
//! }
//!
//! let gate = FenceGate::new();
//! let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
//! enter(&gate, &mutex.lock().await?)?; // a `LockGuard<mode::Exclusive>`
//!
//! let gate = FenceGate::new();
//! let lock = InterProcessReadWriteLock::new(&client, "/cache/prices")?;
//! enter(&gate, &lock.read_lock().lock().await?)?; // a `LockGuard<mode::Read>`
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::hash::Hash;

use crate::protocol::node_name::Kind;
use crate::values::token::{FencingToken, ReadToken, Token};

/// The mode in which a guard holds its lock: [`Exclusive`], [`Read`], [`Write`] or [`Any`]. It is
/// sealed.
///
/// ```
/// use zookeeper_recipes::mode::{Exclusive, Mode, Read};
/// use zookeeper_recipes::{FencingToken, ReadToken, Token};
///
/// /// What a generic store keeps of the last grant.
/// struct Stored<M: Mode>(M::Token);
///
/// let exclusive = Stored::<Exclusive>(FencingToken::from_parts(9, 0));
/// let read = Stored::<Read>(ReadToken::from_parts(11, 0));
/// let tokens: [Token; 2] = [exclusive.0.into(), read.0.into()];
/// # assert_eq!(tokens.map(Token::zxid), [9, 11]);
/// ```
pub trait Mode: sealed::IsMode + Copy + fmt::Debug + Send + Sync + Unpin + 'static {
    /// The type that [`fencing_token`](crate::LockGuard::fencing_token) returns.
    type Token: sealed::IsToken
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

/// The kind of a [`Lock`](crate::Lock), which decides the mode of its guards. It is sealed.
///
/// | kind | lock | mode of its guards |
/// |---|---|---|
/// | [`Exclusive`] | [`InterProcessMutex`](crate::InterProcessMutex) | [`Exclusive`] |
/// | [`Fair`] | [`InterProcessFairLock`](crate::InterProcessFairLock) | [`Exclusive`] |
/// | [`Read`] | [`InterProcessReadLock`](crate::InterProcessReadLock) | [`Read`] |
/// | [`Write`] | [`InterProcessWriteLock`](crate::InterProcessWriteLock) | [`Write`] |
/// | [`Any`] | one of these, behind [`InterProcessLock`](crate::InterProcessLock) | [`Any`] |
pub trait LockKind: sealed::IsLockKind + Copy + fmt::Debug + Send + Sync + Unpin + 'static {
    /// The mode of the guards.
    type Mode: Mode;
}

/// The mode of a mutex and of a fair lock: no other contender holds the lock. Also the kind of a
/// mutex.
///
/// It is the default: [`LockGuard`](crate::LockGuard) means `LockGuard<Exclusive>`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Exclusive;

impl Mode for Exclusive {
    type Token = FencingToken;
}

impl LockKind for Exclusive {
    type Mode = Self;
}

/// The kind of a fair lock, whose guards have the mode [`Exclusive`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Fair;

impl LockKind for Fair {
    type Mode = Exclusive;
}

/// The mode of a read lock: other readers may hold it. See [`ReadGuard`](crate::ReadGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Read;

impl Mode for Read {
    type Token = ReadToken;
}

impl LockKind for Read {
    type Mode = Self;
}

/// The mode of a write lock: no other contender holds it, and it can be converted into a read lock.
/// See [`WriteGuard`](crate::WriteGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Write;

impl Mode for Write {
    type Token = FencingToken;
}

impl LockKind for Write {
    type Mode = Self;
}

/// One of the other modes, known only at run time. See [`AnyGuard`](crate::AnyGuard), which
/// [`InterProcessLock`](crate::InterProcessLock) returns.
#[derive(Clone, Copy)]
pub struct Any {
    reads: bool,
}

impl Any {
    pub(crate) fn kind(self) -> Kind {
        if self.reads {
            Kind::Shared
        } else {
            Kind::Exclusive
        }
    }
}

impl fmt::Debug for Any {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Any")
    }
}

impl Mode for Any {
    type Token = Token;
}

impl LockKind for Any {
    type Mode = Self;
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
    use super::{Any, Exclusive, Fair, FencingToken, Read, ReadToken, Write};

    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsMode: Into<Any> {}

    impl IsMode for Exclusive {}
    impl IsMode for Read {}
    impl IsMode for Write {}
    impl IsMode for Any {}

    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsLockKind {
        /// The name of the lock, for its `Debug`.
        #[doc(hidden)]
        const NAME: &'static str;
    }

    impl IsLockKind for Exclusive {
        const NAME: &'static str = "InterProcessMutex";
    }

    impl IsLockKind for Fair {
        const NAME: &'static str = "InterProcessFairLock";
    }

    impl IsLockKind for Read {
        const NAME: &'static str = "InterProcessReadLock";
    }

    impl IsLockKind for Write {
        const NAME: &'static str = "InterProcessWriteLock";
    }

    impl IsLockKind for Any {
        const NAME: &'static str = "InterProcessLock";
    }

    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait IsToken {
        /// Returns the token with these numbers, in this mode.
        fn new(zxid: i64, counter: u64, mode: Any) -> Self;
    }

    impl IsToken for FencingToken {
        fn new(zxid: i64, counter: u64, _: Any) -> Self {
            Self::from_parts(zxid, counter)
        }
    }

    impl IsToken for ReadToken {
        fn new(zxid: i64, counter: u64, _: Any) -> Self {
            Self::from_parts(zxid, counter)
        }
    }

    impl IsToken for super::Token {
        fn new(zxid: i64, counter: u64, mode: Any) -> Self {
            if mode.reads {
                Self::Read(ReadToken::from_parts(zxid, counter))
            } else {
                Self::Write(FencingToken::from_parts(zxid, counter))
            }
        }
    }
}
