//! Distributed locks for tokio on Apache ZooKeeper.

mod client;
mod engine;
mod error;
mod guard;
mod lock;
mod mutex;
mod options;
mod path;
mod token;

pub use client::{Client, ClientBuilder, ConnectionState, RetryPolicy};
pub use error::{
    AcquireError, BuildError, ConnectError, InvalidPath, LocalHolder, Lost, LostReason, OptionalExt,
    ReleaseError, TryLockError,
};
pub use guard::LockGuard;
pub use lock::InterProcessLock;
pub use mutex::{InterProcessMutex, InterProcessMutexBuilder};
pub use options::{Acl, Parents, Permissions};
pub use token::FencingToken;
