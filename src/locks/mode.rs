//! The modes in which a [`LockGuard`](crate::LockGuard) holds its lock, as types.
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

/// The mode of a mutex and of a fair lock: no other contender holds the lock.
///
/// It is the default: [`LockGuard`](crate::LockGuard) means `LockGuard<Exclusive>`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Exclusive;

impl Mode for Exclusive {
    type Token = FencingToken;
}

/// The mode of a read lock: other readers may hold it. See [`ReadGuard`](crate::ReadGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Read;

impl Mode for Read {
    type Token = ReadToken;
}

/// The mode of a write lock: no other contender holds it, and it can be converted into a read lock.
/// See [`WriteGuard`](crate::WriteGuard).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Write;

impl Mode for Write {
    type Token = FencingToken;
}

/// One of the other modes, known only at run time. See [`AnyGuard`](crate::AnyGuard), which
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
    pub trait IsMode: Into<Any> {}

    impl IsMode for Exclusive {}
    impl IsMode for Read {}
    impl IsMode for Write {}
    impl IsMode for Any {}

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
