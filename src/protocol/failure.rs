//! How a request failed, and the error that said so. Pure.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use thiserror::Error;

use crate::error::Cause;

/// A server's answer to one request.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Is(T),
    No(Failure),
}

impl<T> Answer<T> {
    /// A failure of this kind that no error of the client library lies behind.
    pub(crate) fn no(kind: FailureKind) -> Self {
        Self::No(kind.into())
    }
}

/// How a request failed. Two failures are equal if they are of one kind: decisions depend on the kind alone,
/// and the cause is for the error that the caller gets.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) cause: Cause,
}

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, cause: Arc::new(kind) }
    }
}

impl PartialEq for Failure {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Failure {}

impl Hash for Failure {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
    }
}

/// What a failure means for the request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub(crate) enum FailureKind {
    /// Definitely not done: the node, or its parent, does not exist.
    #[error("the node does not exist")]
    NoNode,
    /// Definitely not done, and no repetition will change that.
    #[error("the request was refused")]
    Refused(Refusal),
    /// Definitely not done, but a repetition may succeed (an overloaded server).
    #[error("the server is too busy")]
    NotNow,
    /// Done or not: the connection was lost, or the answer made no sense.
    #[error("the connection kept failing")]
    Unknown,
    /// The session is over: its nodes are gone or going.
    #[error("the session is over")]
    SessionOver,
    /// Not asked: the session watches as many nodes as it can.
    #[error("the session watches too many nodes")]
    TooManyWatches,
}

/// Why a request was refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// By an ACL.
    NoAuth,
    /// A node of that name exists.
    NodeExists,
    Other,
}
