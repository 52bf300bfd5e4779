//! How a request failed, and the error that reported it.
//!
//! Decisions depend on two questions only: was the request carried out, and would a repetition
//! help? [`FailureKind`] has the answers for each error code and each lost connection
//! (docs/protocol.md#unknown-outcome):
//!
//! ```text
//!   kind             carried out?   repeated?
//!   NoNode           no             depends on which node is missing
//!   Refused          no             no: the answer would be the same
//!   NotNow           no             after a pause, the first time too
//!   Unknown          perhaps        at once on the next connection, then after pauses
//!   SessionGone      perhaps        no: the nodes of the session go with it
//!   TooManyWatches   no, not sent   no
//! ```
//! An error that is not known to be definite counts as `Unknown`: to look for a node that was not
//! created costs a request, and to forget one that was created blocks the lock. The error itself is
//! kept as the cause, for the caller.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use crate::error::{Cause, RequestFailure};

/// The answer of a server to one request, or the failure of a request that was not answered, or not
/// sent.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Is(T),
    No(Failure),
}

impl<T> Answer<T> {
    /// Returns a failure of this kind without an error of the client library.
    pub(crate) fn no(kind: FailureKind) -> Self {
        Self::No(kind.into())
    }
}

/// How a request failed. Failures of the same kind are equal, because decisions depend on the kind
/// only; the cause is for the error that the caller gets.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) cause: Cause,
}

impl Failure {
    /// Returns the caller's error for a request that was refused.
    pub(crate) fn refused(&self) -> RequestFailure {
        match self.kind {
            FailureKind::Refused(Refusal::NoAuth) => RequestFailure::NoAuth,
            _ => RequestFailure::Rejected(Arc::clone(&self.cause)),
        }
    }

    /// Returns the caller's error for a request whose repetitions failed too.
    pub(crate) fn unanswered(&self) -> RequestFailure {
        match self.kind {
            // The servers have answered each time: another process deletes the directory as soon
            // as it is created.
            FailureKind::NoNode => RequestFailure::Deleted,
            // No server has answered, or each was too busy: both are reported as a connection that
            // does not work, which a later call may find repaired.
            _ => RequestFailure::Connection(Arc::clone(&self.cause)),
        }
    }
}

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        // Some failures have no error of the client library: a session that ended before the
        // request was sent, or a watch for which there is no room. The kind is its own cause.
        Self {
            kind,
            cause: Arc::new(kind),
        }
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        // Errors of the client library cannot be compared.
        self.kind == other.kind
    }
}

impl Eq for Failure {}

impl Hash for Failure {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

/// The consequence of a failure for the request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// Definitely not carried out: the node, or its parent, does not exist.
    #[error("the node does not exist")]
    NoNode,
    /// Definitely not carried out, and a repetition would be refused too.
    #[error("the request was refused")]
    Refused(Refusal),
    /// Definitely not carried out, but a repetition may succeed (an overloaded server).
    #[error("the server is too busy")]
    NotNow,
    /// Carried out or not: the connection was lost, or the answer is not understood.
    #[error("the connection kept failing")]
    Unknown,
    /// The session has ended.
    #[error("the session is over")]
    SessionGone,
    /// Not sent: the session can watch no more.
    #[error("the session watches too many nodes")]
    TooManyWatches,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// An ACL forbids the request.
    NoAuth,
    /// A node of that name exists.
    NodeExists,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_compare_by_kind() {
        let unknown = Failure {
            kind: FailureKind::Unknown,
            cause: Arc::new(FailureKind::NoNode),
        };
        assert_eq!(unknown, FailureKind::Unknown.into());
        assert_ne!(unknown, FailureKind::NoNode.into());
    }

    #[test]
    fn denial_is_reported_as_such() {
        let failure = |refusal| Failure::from(FailureKind::Refused(refusal)).refused();
        assert!(matches!(failure(Refusal::NoAuth), RequestFailure::NoAuth));
        assert!(matches!(
            failure(Refusal::NodeExists),
            RequestFailure::Rejected(_)
        ));
    }

    #[test]
    fn repeated_deletions_are_no_missing_answer() {
        let failure = |kind| Failure::from(kind).unanswered();
        assert!(matches!(
            failure(FailureKind::NoNode),
            RequestFailure::Deleted
        ));
        assert!(matches!(
            failure(FailureKind::NotNow),
            RequestFailure::Connection(_)
        ));
    }
}
