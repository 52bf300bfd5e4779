//! What an answer of the servers means. Pure.

/// A server's answer to one request.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Is(T),
    No(Failure),
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Definitely not done: the node, or its parent, does not exist.
    NoNode,
    /// Definitely not done, and no repetition will change that.
    Refused,
    /// Definitely not done, but a repetition may succeed (an overloaded server).
    NotNow,
    /// Done or not: the connection was lost, or the answer made no sense.
    Unknown,
    /// The session is over: its nodes are gone or going.
    SessionOver,
    /// Not asked: the session watches as many nodes as it can.
    TooManyWatches,
}
