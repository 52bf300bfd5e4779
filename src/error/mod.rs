//! One small error type per question that a caller can ask.
//!
//! Each has `path()` (`servers()` for a connection), says by `is_retryable()` whether the same call may
//! succeed later with nothing else changed, and keeps what the server or the connection said as its
//! [`source`](std::error::Error::source). Its message names the path and, where something can be done, what.
//!
//! Enums and their struct-like variants are `#[non_exhaustive]`: a later version may tell apart more, and say
//! more about it. Match fields with `..`.

mod acquire;
mod atomic;
mod break_lock;
mod build;
mod cause;
mod connect;
mod convert;
mod drain;
mod inspect;
mod lead;
mod lost;
mod once;
mod or_busy;
mod persistent_node;
mod read;
mod release;
mod revoke;
mod set_permits;
#[cfg(test)]
mod tests;
mod transaction;

pub use acquire::{AcquireError, LocalHolder, TryLockError};
pub use atomic::AtomicLongError;
pub use break_lock::BreakError;
pub use build::{BuildError, InvalidPath};
pub(crate) use cause::Cause;
pub use connect::{ConnectError, ServerFailure, ServerFailureKind, ServerFailures};
pub use convert::{ConversionError, ConversionFailure};
pub use drain::{DrainError, Holding};
pub use inspect::InspectError;
pub use lead::LeadError;
pub use lost::{Lost, LostReason};
pub use once::OnceError;
pub use or_busy::{Acquisition, OrBusy};
pub use persistent_node::PersistentNodeError;
pub use read::ReadError;
pub use release::ReleaseError;
pub use revoke::RevokeError;
pub use set_permits::SetPermitsError;
pub use transaction::TransactionError;
