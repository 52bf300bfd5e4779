//! The protocol's error codes.

use thiserror::Error;

/// The reason for which the server refused an operation: one of the protocol's error codes.
///
/// ```
/// use zookeeper_test_server::{Server, ServerError};
///
/// # fn main() -> std::io::Result<()> {
/// let server = Server::start()?;
/// let error = server.delete("/missing").unwrap_err();
/// assert_eq!((error, error.code()), (ServerError::NoNode, -101));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerError {
    /// No error: the result of the operations of a failed multi that come before the failed one.
    #[error("ok")]
    Ok,
    /// The result of the operations of a failed multi that come after the failed one.
    #[error("not tried: an earlier operation of the multi failed")]
    RuntimeInconsistency,
    /// The request could not be read.
    #[error("malformed request")]
    Marshalling,
    /// The server does not support the operation.
    #[error("unimplemented")]
    Unimplemented,
    /// A path or a flag is invalid.
    #[error("bad arguments")]
    BadArguments,
    /// The node does not exist.
    #[error("no such node")]
    NoNode,
    /// The access control list does not permit the operation.
    #[error("not authorised")]
    NoAuth,
    /// The node has another version.
    #[error("wrong version")]
    BadVersion,
    /// An ephemeral node cannot have children.
    #[error("ephemeral nodes have no children")]
    NoChildrenForEphemerals,
    /// The node exists already.
    #[error("the node exists")]
    NodeExists,
    /// The node has children.
    #[error("the node has children")]
    NotEmpty,
    /// The session does not exist any more.
    #[error("the session is over")]
    SessionExpired,
    /// The access control list is invalid.
    #[error("invalid access control list")]
    InvalidAcl,
    /// The client could not be authenticated.
    #[error("authentication failed")]
    AuthFailed,
    /// The watch does not exist.
    #[error("no such watch")]
    NoWatcher,
    /// Any other code.
    #[error("error {0}")]
    Other(i32),
}

impl ServerError {
    /// Returns the code on the wire.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::RuntimeInconsistency => -2,
            Self::Marshalling => -5,
            Self::Unimplemented => -6,
            Self::BadArguments => -8,
            Self::NoNode => -101,
            Self::NoAuth => -102,
            Self::BadVersion => -103,
            Self::NoChildrenForEphemerals => -108,
            Self::NodeExists => -110,
            Self::NotEmpty => -111,
            Self::SessionExpired => -112,
            Self::InvalidAcl => -114,
            Self::AuthFailed => -115,
            Self::NoWatcher => -121,
            Self::Other(code) => code,
        }
    }
}
