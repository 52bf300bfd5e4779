//! One small error type per question that a caller can ask.
//!
//! Each names the path, says what to do where there is something to do, answers `is_retryable()` where the
//! question makes sense, and keeps what the server or the connection said as [`source`](std::error::Error::source).

mod acquire;
mod build;
mod cause;
mod connect;
mod convert;
mod lost;
mod optional;
mod release;
mod revoke;
mod transaction;

pub use acquire::{AcquireError, LocalHolder, TryLockError};
pub use build::{BuildError, InvalidPath};
pub(crate) use cause::Cause;
pub use connect::{ConnectError, ServerFailure, ServerFailureKind, ServerFailures};
pub use convert::{ConversionError, ConversionFailure};
pub use lost::{Lost, LostReason};
pub use optional::{Acquisition, OptionalExt};
pub use release::ReleaseError;
pub use revoke::RevokeError;
pub use transaction::TransactionError;
