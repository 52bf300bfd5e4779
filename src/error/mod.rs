//! One [`Error`] of a request that failed, and around it a small enum for each question that can
//! end in other ways too.
//!
//! Each has `path()` (`servers()` for a connection), says by `is_retryable()` whether the same call
//! may succeed later with nothing else changed, and keeps the error of the server or the connection
//! as its [`source`](std::error::Error::source). Its message names the path and, if there is one, a
//! remedy, and says why: it has the messages of its sources, up to a bound. A program that prints
//! `{error}` needs no more; `source` is for code that looks for a type.
//!
//! Enums and their struct-like variants are `#[non_exhaustive]`: a later version may tell apart
//! more, and say more about it. Match fields with `..`.

mod acquire;
mod atomic;
mod build;
mod connect;
mod convert;
mod holding;
mod lost;
mod once;
mod or_busy;
mod persistent_node;
mod release;
mod request;
#[cfg(test)]
mod tests;
mod transaction;

pub use acquire::{AcquireError, Contention, TryLockError};
pub use atomic::AtomicLongError;
pub use build::BuildError;
pub use connect::{ConnectError, ServerFailure};
pub(crate) use connect::{FailedServer, ServerFailures};
pub use convert::ConversionError;
pub use holding::Holding;
pub use lost::{Lost, LostReason};
pub use once::OnceError;
pub use or_busy::{Acquisition, OrBusy};
pub use persistent_node::PersistentNodeError;
pub use release::ReleaseError;
pub(crate) use request::{Cause, Purpose, RequestFailure};
pub use request::{Error, ErrorKind};
pub use transaction::TransactionError;
