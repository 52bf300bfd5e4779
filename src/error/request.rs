//! The error of a failed request; every call that needs the servers can return it.

use std::fmt;
use std::sync::Arc;

use crate::values::shown::{self, Quoted, why};

/// An error of the client library. It is opaque, so that the version of that library is not part of
/// the public interface.
pub(crate) type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// Error of a request that failed, or that could not be sent.
///
/// Calls that only ask the servers return it: `participants`, `queue`, `holders`, `queue_len`,
/// `is_locked`, `limit`, `available_permits`, `leader`, `set_limit`, `break_lock`,
/// [`attempt_revoke`](crate::Client::attempt_revoke) and
/// [`Client::request`](crate::Client::request). A call that can also fail in other ways returns an
/// enum with a variant `Request` for this error, such as [`AcquireError`](crate::AcquireError), and
/// with a method `kind`.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ErrorKind, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// # client.close().await?;
/// match mutex.queue().await {
///     Ok(queue) => println!("{} contenders", queue.len()),
///     // No server answered: try again later.
///     Err(error) if error.is_retryable() => eprintln!("{}: {error}", error.path()),
///     Err(error) if error.kind() == ErrorKind::Closed => {
///         assert_eq!(error.path(), "/inventory/sku-42");
///     }
///     // A missing permission ..: work for an administrator.
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error(Box<Request>);

#[derive(Clone)]
struct Request {
    purpose: Purpose,
    path: String,
    node: Option<String>,
    has_credentials: Option<bool>,
    failure: RequestFailure,
}

/// The way in which a request failed: the kind of an [`Error`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ErrorKind, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// client.close().await?;
/// let error = mutex.lock().await.unwrap_err();
/// assert_eq!(error.kind(), Some(ErrorKind::Closed));
/// assert_eq!(ErrorKind::Closed.to_string(), "the client is closed");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No server answered for as long as the retry policy allows, or for the time given if that is
    /// shorter. The source is the last failure. It has no source if servers answered, but others
    /// had deleted a node that the request needs, such as the directory of a lock, before the last
    /// try. This is the only kind after which the same call may succeed with nothing else changed.
    ///
    /// Servers answer a request that is larger than their `jute.maxbuffer` by closing the
    /// connection. If that setting is below its default of 1 MiB, calls with much data fail with
    /// this kind at each try, while others succeed.
    Connection,
    /// An ACL denies this client a permission that it needs. The message names the ACL and the
    /// permission.
    NoAuth,
    /// The servers refused the request for a reason that a retry does not change and that the
    /// source contains, or the request was invalid and was not sent.
    Rejected,
    /// The servers refused the client's credentials; the client is closed.
    AuthFailed,
    /// The client was closed, or is [drained](crate::Client::drain). This is also returned if the
    /// object of the call has ended: the latch has left its election, or a
    /// [`QueuedLock`](crate::QueuedLock) had already returned its guard or its error.
    Closed,
    /// The directory has contenders of another recipe, which queue by other rules, so that two
    /// contenders would be granted the lock. Use a separate path for each recipe. A query of the
    /// queue waits up to 1 s for those contenders to leave.
    MixedRecipes,
    /// More than 2^31 nodes were created in the directory, after which Java and Go clients sort new
    /// contenders before old ones. Stop all contenders and delete the directory, which starts the
    /// numbers again.
    SequenceExhausted,
    /// Another process has acquired permits of the semaphore under another limit: one of the two is
    /// wrong. Give all handles the same limit, or store the limit for all with
    /// [`set_limit`](crate::InterProcessSemaphore::set_limit): then the limits of the handles do
    /// not count.
    LimitMismatch,
    /// The node that stores the semaphore's limit does not contain a limit, which is four bytes,
    /// big-endian and at least 1, as Curator's `SharedCount` writes it. From
    /// [`set_limit`](crate::InterProcessSemaphore::set_limit): the new limit is zero or too large,
    /// and nothing was sent.
    InvalidLimit,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "no server answered, or nodes were deleted meanwhile",
            Self::NoAuth => "an ACL denies the request",
            Self::Rejected => "the request was refused",
            Self::AuthFailed => "the servers refused the client's credentials",
            Self::Closed => "the client is closed",
            Self::MixedRecipes => "the path is in use by another recipe",
            Self::SequenceExhausted => "the sequence numbers are used up",
            Self::LimitMismatch => "the semaphore has another limit",
            Self::InvalidLimit => "the limit cannot be used",
        })
    }
}

/// The purpose of a request.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Lock,
    Look,
    /// To set the limit of a semaphore.
    Limit,
    Counter,
    /// A persistent node, or the members of a group.
    Node,
    /// To read the data that a lock protects.
    Data,
    Revocation,
    /// The deletion of another contender's node.
    Deletion,
    Conversion,
    /// The caller's work in the client's session.
    Work,
}

/// How a request failed.
#[derive(Clone, Debug)]
pub(crate) enum RequestFailure {
    Connection(Cause),
    Deleted,
    NoAuth,
    Rejected(Cause),
    /// The path cannot be sent.
    InvalidPath(Cause),
    /// The contender is not in a queue of this lock.
    OtherLock,
    AuthFailed,
    Closed,
    /// A place in a queue has returned its guard or its error.
    PlaceUsed,
    /// A latch has left its election.
    Left,
    MixedRecipes,
    SequenceExhausted,
    LimitMismatch {
        ours: u32,
        theirs: u32,
    },
    /// The contents of the node with the limit.
    NoLimit(String),
    LimitOutOfRange {
        asked: u32,
        largest: u32,
    },
}

impl Error {
    pub(crate) fn new(purpose: Purpose, path: &str, failure: impl Into<RequestFailure>) -> Self {
        let (path, failure) = (path.to_owned(), failure.into());
        Self(Box::new(Request {
            purpose,
            path,
            node: None,
            has_credentials: None,
            failure,
        }))
    }

    /// Names the node.
    pub(crate) fn at(mut self, node: impl Into<String>) -> Self {
        self.0.node = Some(node.into());
        self
    }

    /// Adds whether the client has credentials, if that is known.
    pub(crate) fn with_credentials(mut self, has_credentials: Option<bool>) -> Self {
        self.0.has_credentials = has_credentials;
        self
    }

    /// Returns the way in which the request failed.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0.failure {
            RequestFailure::Connection(_) | RequestFailure::Deleted => ErrorKind::Connection,
            RequestFailure::NoAuth => ErrorKind::NoAuth,
            RequestFailure::Rejected(_)
            | RequestFailure::InvalidPath(_)
            | RequestFailure::OtherLock => ErrorKind::Rejected,
            RequestFailure::AuthFailed => ErrorKind::AuthFailed,
            RequestFailure::Closed | RequestFailure::PlaceUsed | RequestFailure::Left => {
                ErrorKind::Closed
            }
            RequestFailure::MixedRecipes => ErrorKind::MixedRecipes,
            RequestFailure::SequenceExhausted => ErrorKind::SequenceExhausted,
            RequestFailure::LimitMismatch { .. } => ErrorKind::LimitMismatch,
            RequestFailure::NoLimit(_) | RequestFailure::LimitOutOfRange { .. } => {
                ErrorKind::InvalidLimit
            }
        }
    }

    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`Connection`](ErrorKind::Connection).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Connection
    }

    /// Returns the path of the call's object, without the client's namespace: of the lock, the
    /// semaphore, the election, the counter, the node or the group.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Returns the path of the node that caused the error, without the client's namespace: the node
    /// whose ACL denies the request, a node of the other recipe, a permit under another limit, the
    /// node with the limit, or the contender's node. Returns `None` if the error is not about a
    /// node, or if the node is not known.
    ///
    /// If a lock's directory is missing and cannot be created, the path is that of its parent. (If
    /// the parent is missing too, the nearest existing directory above denies the request.)
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.failure {
            RequestFailure::Connection(source)
            | RequestFailure::Rejected(source)
            | RequestFailure::InvalidPath(source) => Some(&**source),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = &*self.0;
        let (path, node) = (Quoted(&request.path), Quoted(request.node_or_path()));
        match &request.failure {
            RequestFailure::Connection(source) => {
                let certain = match request.purpose {
                    Purpose::Limit => ", so set it again",
                    Purpose::Deletion => ", which may be deleted or not",
                    _ => "",
                };
                write!(
                    f,
                    "no ZooKeeper server answered a request to {request}{certain}: {}",
                    why(source)
                )
            }
            RequestFailure::Deleted => write!(
                f,
                "cannot {request}: a node was deleted meanwhile; try again"
            ),
            RequestFailure::NoAuth => {
                let credentials = credentials(request.has_credentials);
                write!(
                    f,
                    "no permission to {request}: {}{credentials}",
                    request.needed()
                )
            }
            RequestFailure::Rejected(source) => write!(
                f,
                "ZooKeeper refused a request to {request}: {}",
                why(source)
            ),
            RequestFailure::InvalidPath(source) => write!(
                f,
                "cannot {request}: its path cannot be used: {}",
                why(source)
            ),
            RequestFailure::OtherLock => write!(
                f,
                "the node {node} is in no queue of the lock {path}: call `break_lock` of the lock that returned it"
            ),
            RequestFailure::AuthFailed => {
                write!(
                    f,
                    "cannot {request}: ZooKeeper refused the client's credentials; connect another client"
                )
            }
            RequestFailure::Closed => {
                write!(f, "cannot {request}: its client is closed; connect another")
            }
            RequestFailure::PlaceUsed => {
                write!(
                    f,
                    "cannot {request}: the place in its queue has been used; queue again"
                )
            }
            RequestFailure::Left => {
                write!(f, "the latch {path} has left its election: start another")
            }
            RequestFailure::MixedRecipes => write!(
                f,
                "the path {path} is in use by another recipe: its node {node} queues by other rules; use a path of \
                 its own for each recipe"
            ),
            RequestFailure::SequenceExhausted => write!(
                f,
                "the sequence numbers of {path} are used up: stop its contenders and delete the directory"
            ),
            RequestFailure::LimitMismatch { ours, theirs } => write!(
                f,
                "the limit of the semaphore {path} is {ours} here, but the node {node} was created under a limit of \
                 {theirs}: give all handles the same limit, or store one for all with `set_limit`"
            ),
            RequestFailure::NoLimit(found) => write!(
                f,
                "the node {node} stores no limit for the semaphore {path}: {found}, instead of four bytes with a \
                 number of at least 1; store one with `set_limit`, or delete the node"
            ),
            RequestFailure::LimitOutOfRange { asked: 0, .. } => {
                write!(
                    f,
                    "the limit of the semaphore {path} cannot be zero: set one of at least 1"
                )
            }
            RequestFailure::LimitOutOfRange { asked, largest } => {
                write!(
                    f,
                    "the limit of the semaphore {path} cannot be {asked}: the largest is {largest}"
                )
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(&format!("Error::{:?}", self.kind()), self, f)
    }
}

/// Describes the request in words, as they follow a "to".
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, node) = (Quoted(&self.path), Quoted(self.node_or_path()));
        match self.purpose {
            Purpose::Lock => write!(f, "acquire the lock {path}"),
            Purpose::Look => write!(f, "look at {path}"),
            Purpose::Limit => write!(f, "set the limit of the semaphore {path}"),
            Purpose::Counter => write!(f, "use the counter {path}"),
            Purpose::Node => write!(f, "use {path}"),
            Purpose::Data => write!(f, "read {path}"),
            Purpose::Revocation => write!(f, "revoke {node}"),
            Purpose::Deletion => write!(f, "delete the node {node} of the lock {path}"),
            Purpose::Conversion => write!(f, "convert the lock {path}"),
            Purpose::Work => f.write_str("do the caller's work in the client's session"),
        }
    }
}

impl Request {
    fn node_or_path(&self) -> &str {
        self.node.as_deref().unwrap_or(&self.path)
    }

    /// The permissions that an ACL must grant.
    fn needed(&self) -> String {
        let node = Quoted(self.node_or_path());
        match self.purpose {
            Purpose::Lock | Purpose::Conversion => needed_to_lock(&self.path, self.node_or_path()),
            Purpose::Look => format!("the ACL of {node} needs READ for this client"),
            Purpose::Limit => format!(
                "the ACL of {node} needs WRITE for this client, or CREATE if the node with the limit does not exist"
            ),
            Purpose::Counter => {
                "its ACL needs READ and WRITE, or, if it is missing, the nearest directory above it \
                                 CREATE, for this client"
                    .to_owned()
            }
            Purpose::Node => {
                "its ACL needs READ and WRITE, and the directory above it CREATE and DELETE, for this \
                              client"
                    .to_owned()
            }
            // The work itself reports an ACL that denies it something.
            Purpose::Data | Purpose::Work => "its ACL needs READ for this client".to_owned(),
            Purpose::Revocation => "its ACL needs WRITE for this client".to_owned(),
            Purpose::Deletion => {
                "the ACL of the directory in which it is needs DELETE for this client".to_owned()
            }
        }
    }
}

/// The permissions that the ACL of `node` must grant a client for the lock `path`.
fn needed_to_lock(path: &str, node: &str) -> String {
    let shown = Quoted(node);
    if node == path {
        "the ACL of its directory needs CREATE, DELETE and READ for this client".to_owned()
    } else if matches!(node.strip_prefix(path), Some("/locks" | "/leases")) {
        // The slots of a semaphore's permits. Contenders' nodes end with a number.
        format!("the ACL of its directory {shown} needs CREATE, DELETE and READ for this client")
    } else if node.strip_prefix(path) == Some("/permits")
        || !is_below(path, node) && !is_below(node, path)
    {
        // For a semaphore, the node with the limit, which may be at a separate path.
        format!("the ACL of {shown} needs READ for this client")
    } else if is_below(node, path) {
        format!("the ACL of the node before this client's, {shown}, needs READ for this client")
    } else {
        format!(
            "the ACL of {shown}, or of the nearest directory above it that exists, needs CREATE for this client"
        )
    }
}

fn is_below(path: &str, directory: &str) -> bool {
    // The root ends with the slash.
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the end of a message about an ACL that denies this client a permission.
fn credentials(has_credentials: Option<bool>) -> &'static str {
    match has_credentials {
        Some(true) => ", which has credentials, but not the right ones",
        Some(false) => ", which has no credentials (`ClientBuilder::auth`)",
        None => "",
    }
}
