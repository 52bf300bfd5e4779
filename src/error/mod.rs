//! One [`Error`] for requests that failed, and a small enum around it for each operation that can
//! also end in other ways.
//!
//! Each has `path()` (`servers()` for a connection), says by `is_retryable()` whether the same call
//! may succeed later with nothing else changed, and keeps the error of the server or the connection
//! as its [`source`](std::error::Error::source). The message of each error names the path and, if
//! there is one, a remedy. The message also gives the reason: it contains the messages of the
//! error's sources, up to a limit. So it is enough to print `{error}`; `source` is for code that
//! looks for a type.
//!
//! Enums and their struct-like variants are `#[non_exhaustive]`: a later version may distinguish
//! more cases, or add fields. Match fields with `..`.

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
