//! Why a job that runs once per occasion is not known to be recorded.

use thiserror::Error;

use super::acquire::AcquireError;
use super::build::BuildError;
use super::lost::Lost;
use super::request::{Cause, Error, ErrorKind};
use super::transaction::TransactionError;
use crate::values::shown::{Quoted, debug_as_text, why};

/// Error of [`OnceJob::run`](crate::OnceJob::run).
///
/// After [`Unknown`](Self::Unknown) the job may be recorded; after any other error this call has
/// not recorded it, and the next call for the occasion, in any process, runs it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{OnceError, OnceJob};
///
/// let report = OnceJob::new(&client, "/jobs/report", "2026-11-22");
/// match report.run(|_| async { Err::<(), _>("the disk is full") }).await {
///     Ok(_) => panic!("it failed"),
///     Err(OnceError::Failed { source, .. }) => assert_eq!(source.to_string(), "the disk is full"),
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The path, the occasion or an option cannot be used. Nothing was sent.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The lock could not be acquired: another process kept it for all of the
    /// [`wait`](crate::OnceJob::wait), perhaps with the job, or no server answered. The job did not
    /// run.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The record of the occasion could not be read. The job did not run.
    #[error(transparent)]
    Request(#[from] Error),
    /// The lock was lost. If the job was running, it was dropped, and has done only a part of its
    /// work.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The job returned an error.
    #[error(
        "the job {path} failed for {occasion}: {}",
        why(source), path = Quoted(path), occasion = Quoted(occasion)
    )]
    #[non_exhaustive]
    Failed {
        /// The path of the job.
        path: String,
        /// The occasion.
        occasion: String,
        /// The error that the job returned.
        source: Cause,
    },
    /// The job ran to completion, but is not recorded: the lock was lost at that moment, or the
    /// servers refused the record or a write that was to be committed with it
    /// ([`record_with`](crate::OnceRun::record_with)).
    #[error(
        "the job {path} ran for {occasion} and is not recorded, so it will run again: {}",
        why_not_recorded(source), path = Quoted(path), occasion = Quoted(occasion)
    )]
    #[non_exhaustive]
    NotRecorded {
        /// The path of the job.
        path: String,
        /// The occasion.
        occasion: String,
        /// Why.
        source: Box<TransactionError>,
    },
    /// The job ran to completion, but no server has answered whether it is recorded. The next call
    /// for the occasion finds out, and runs the job only if it is not recorded.
    #[error(
        "the job {path} ran for {occasion}, and it is unknown whether it is recorded, which the next call finds \
         out: {}",
        why(source), path = Quoted(path), occasion = Quoted(occasion)
    )]
    #[non_exhaustive]
    Unknown {
        /// The path of the job.
        path: String,
        /// The occasion.
        occasion: String,
        /// The error of the connection, or the loss of the lock before the record was written.
        source: Box<TransactionError>,
    },
}

impl OnceError {
    /// Returns the kind of the request that failed, for the lock or the record; `None` for the
    /// other errors.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Acquire(error) => error.kind(),
            Self::Request(error) => Some(error.kind()),
            _ => None,
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed. That call runs
    /// the job again only if the occasion has not been recorded in the meantime.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Build(_) => false,
            Self::Acquire(error) => error.is_retryable(),
            Self::Request(error) => error.is_retryable(),
            Self::Lost(_) | Self::Failed { .. } | Self::Unknown { .. } => true,
            Self::NotRecorded { source, .. } => !matches!(
                **source,
                TransactionError::InvalidPath(_) | TransactionError::TooLarge { .. }
            ),
        }
    }

    /// Returns the path of the job, or that of its lock or record, if the error is of one of these.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Build(error) => error.path(),
            Self::Acquire(error) => error.path(),
            Self::Request(error) => error.path(),
            Self::Lost(lost) => lost.path(),
            Self::Failed { path, .. }
            | Self::NotRecorded { path, .. }
            | Self::Unknown { path, .. } => path,
        }
    }
}

/// Returns why a job is not recorded. The text of [`TransactionError::Unknown`] would contradict
/// that, so only its reason is given.
fn why_not_recorded(source: &TransactionError) -> String {
    match source {
        TransactionError::Unknown { source, .. } => why(source),
        source => why(source),
    }
}

debug_as_text!(OnceError(Request) { Build, Acquire, Lost, Failed, NotRecorded, Unknown });
