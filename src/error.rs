//! One small error type per question that a caller can ask.
//!
//! Each names the path, says what to do where there is something to do, answers `is_retryable()` where the
//! question makes sense, and keeps what the server or the connection said as [`source`](std::error::Error::source).

use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::shown::{Quoted, Short, debug_as_text};

/// What ZooKeeper's client library said; opaque, so that its version is not part of our interface.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// A lock path, or a namespace, that ZooKeeper would refuse.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("invalid lock path {path}: {reason}", path = Quoted(.path))]
pub struct InvalidPath {
    path: String,
    reason: &'static str,
}

impl InvalidPath {
    pub(crate) fn new(path: &str, reason: &'static str) -> Self {
        Self { path: path.to_owned(), reason }
    }

    /// The path as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// Why a recipe could not be made. No I/O is done by constructors, so none of these is worth a retry.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// ZooKeeper would refuse the path.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// An option has a value that cannot work.
    #[error("option `{option}` of the lock {path}: {reason}", path = Quoted(path))]
    InvalidOption {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another handle of the same client for the same path was made with other options. All handles of one path
    /// share one queue, so they cannot differ: set the option where the first handle is made, or clone that one.
    #[error(
        "option `{option}` of the lock {path} differs from the one that a live handle of this client was made with", path = Quoted(path))]
    ConflictingOptions {
        /// The lock's path.
        path: String,
        /// The setter's name.
        option: &'static str,
    },
    /// A live handle or guard of the same client, or a call that is still being cleaned up, uses the path for a recipe
    /// that queues in another order: a read-write lock needs a path of its own.
    #[error(
        "the path {path} is in use by another recipe of this client: a read-write lock needs a path of its own", path = Quoted(path))]
    MixedRecipes {
        /// The lock's path.
        path: String,
    },
}

/// Why one server gave no session, as far as could be found out by asking it once, without making a session.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerFailure {
    pub(crate) server: String,
    pub(crate) kind: ServerFailureKind,
    pub(crate) detail: Option<String>,
}

/// How a server gave no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerFailureKind {
    /// The name has no address, or could not be looked up.
    UnknownHost,
    /// No process listens at the port.
    ConnectionRefused,
    /// The network does not lead there.
    Unreachable,
    /// It did not answer in time, or its address did not.
    NoAnswer,
    /// It closed the connection without a word: it has too many connections of this host (`maxClientCnxns`), or speaks TLS.
    ClosedAtOnce,
    /// It speaks TLS: its address is `tcp+tls://host:port` (feature `tls`).
    SpeaksTls,
    /// It does not speak TLS.
    SpeaksNoTls,
    /// It answers something that is not ZooKeeper's.
    NotZooKeeper,
    /// It is a ZooKeeper server that serves no requests at the moment: it has no quorum.
    NotServing,
    /// It answers, and has given no session: it may be overloaded, or TLS or SASL do not fit.
    NoSession,
}

impl fmt::Display for ServerFailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownHost => "its name is unknown",
            Self::ConnectionRefused => "it refuses connections",
            Self::Unreachable => "it cannot be reached",
            Self::NoAnswer => "it does not answer",
            Self::ClosedAtOnce => {
                "it closes the connection at once: too many connections of this host (maxClientCnxns), or it speaks TLS"
            }
            Self::SpeaksTls => "it speaks TLS: use `tcp+tls://` and the feature `tls`",
            Self::SpeaksNoTls => "it does not speak TLS",
            Self::NotZooKeeper => "it answers something that is not ZooKeeper's",
            Self::NotServing => "it is not serving requests: it has no quorum",
            Self::NoSession => "it answers, but gave no session",
        })
    }
}

impl ServerFailure {
    /// The server's address, as it was given.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// How it gave no session.
    #[must_use]
    pub fn kind(&self) -> ServerFailureKind {
        self.kind
    }
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Short(&self.server), self.kind)?;
        match &self.detail {
            Some(detail) => write!(f, " ({})", Short(detail)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerFailure({self})")
    }
}

/// What became of each server: the source of [`ConnectError::TimedOut`]. Shown on one line for each.
#[derive(Clone, Default)]
pub struct ServerFailures {
    pub(crate) failures: Vec<ServerFailure>,
    /// What the client library said last.
    pub(crate) source: Option<Cause>,
}

impl ServerFailures {
    /// The servers, in the order of the connect string, at most 16.
    pub fn iter(&self) -> impl Iterator<Item = &ServerFailure> {
        self.failures.iter()
    }
}

impl fmt::Display for ServerFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.failures.is_empty() {
            return f.write_str("no server could be asked why");
        }
        for (i, failure) in self.failures.iter().enumerate() {
            write!(f, "{}{failure}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl Error for ServerFailures {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// Why no session could be had.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server gave a session in time. The servers may be down, unreachable, or without a quorum: the source says what
    /// became of each.
    #[error("no ZooKeeper server of {servers} gave a session within {timeout:?}", servers = Short(servers))]
    TimedOut {
        /// The connect string.
        servers: String,
        /// The connect timeout.
        timeout: Duration,
        /// What became of each server: the source.
        #[source]
        failures: ServerFailures,
    },
    /// The connect string cannot be used.
    #[error(
        "the connect string {servers} cannot be used: {reason}; it is `host:port[,host:port...][/namespace]`", servers = Quoted(servers))]
    InvalidConnectString {
        /// The connect string.
        servers: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The namespace cannot be used.
    #[error("the namespace cannot be used")]
    InvalidNamespace(#[from] InvalidPath),
    /// The servers refused the credentials. No retry helps.
    #[error("ZooKeeper at {servers} refused the authentication", servers = Short(servers))]
    AuthFailed {
        /// The connect string.
        servers: String,
    },
    /// The client's ACL is for its own credentials ([`Acl::creator_all`](crate::Acl::creator_all)), and it has none.
    #[error("the ACL of the client for {servers} needs credentials: call `auth` of its builder", servers = Short(servers))]
    NoCredentials {
        /// The connect string.
        servers: String,
    },
    /// The client could not be set up: TLS or SASL options, or no thread for the session or for
    /// telling losses.
    #[error("the client for {servers} could not be set up", servers = Short(servers))]
    Setup {
        /// The connect string.
        servers: String,
        /// What failed.
        #[source]
        source: Cause,
    },
    /// The session that was handed in has ended.
    #[error("the session that was handed in has ended: a new one is needed")]
    SessionEnded,
    /// [`Client::from_session`](crate::Client::from_session) was called outside a tokio runtime, or inside one without
    /// timers.
    #[error(
        "a borrowed session needs a tokio runtime with timers: call from_session inside one that is built with enable_all or enable_time"
    )]
    NoRuntime,
}

impl ConnectError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// Where and since when this process itself holds a lock; part of [`AcquireError::TimedOut`], because the
/// commonest cause of a timeout is a guard kept further up in the same program.
#[derive(Clone)]
pub struct LocalHolder {
    pub(crate) held_for: Duration,
    pub(crate) location: &'static Location<'static>,
}

impl LocalHolder {
    /// For how long it had been held when the error was made.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// The line of the call that acquired it.
    #[must_use]
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }
}

impl fmt::Display for LocalHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this process itself has held it for {:?}, acquired at {}", self.held_for, self.location)
    }
}

impl fmt::Debug for LocalHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalHolder({:?}, {})", self.held_for, self.location)
    }
}

/// The end of a message about a lock that is not free.
fn in_the_way(ahead: usize, first: Option<&str>, holder: Option<&LocalHolder>) -> String {
    let mut text = String::new();
    if ahead > 1 {
        text.push_str(&format!(", {ahead} contenders are ahead"));
    }
    if let Some(first) = first {
        text.push_str(&format!(", the first is {}", Quoted(first)));
    }
    if let Some(holder) = holder {
        text.push_str(&format!(": {holder}"));
    }
    text
}

/// What a client needs of the ACL of `node`, to have the lock `path`.
fn needed(path: &str, node: &str, has_credentials: Option<bool>) -> String {
    let shown = Quoted(node);
    let mut text = if node == path {
        "its directory needs CREATE, DELETE and READ for this client".to_owned()
    } else if node.starts_with(path) {
        format!("the node before ours, {shown}, needs READ for this client")
    } else {
        format!("the directory {shown}, or the nearest above it that exists, needs CREATE for this client")
    };
    text.push_str(match has_credentials {
        Some(true) => ", which has credentials, but not the right ones",
        Some(false) => ", which has no credentials (`ClientBuilder::auth`)",
        None => "",
    });
    text
}

/// Why a lock was not acquired. Whatever the answer, nothing of the attempt keeps its place in the queue: a node
/// that could not be deleted yet is deleted in the background ([`Client::flush`](crate::Client::flush) waits
/// for it).
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock was not free in time: other live contenders were seen to hold it, or to be ahead in its queue. Time that
    /// passed without any seen is [`Connection`](Self::Connection).
    #[error("the lock {path} was not free within {timeout:?}{}", in_the_way(*ahead, first.as_deref(), holder.as_ref()), path = Quoted(path))]
    TimedOut {
        /// The lock's path.
        path: String,
        /// The time that was asked for; zero for a call that only asks.
        timeout: Duration,
        /// The time that passed.
        waited: Duration,
        /// How many contenders were known to be ahead: by the last list of the queue that this call got, or at least 1 where
        /// it needed none.
        ahead: usize,
        /// The path of the first of their nodes, without the client's namespace; `None` if the call needed no list, because
        /// it waited for another contender of this client.
        first: Option<String>,
        /// This client's own hold, if it is the one in the way.
        holder: Option<LocalHolder>,
    },
    /// No server answered, for as long as the retry policy allows or for the time given, whichever was shorter. The
    /// source says what there was no answer to.
    #[error("no ZooKeeper server to ask for the lock {path}", path = Quoted(path))]
    Connection {
        /// The lock's path.
        path: String,
        /// What the connection said last.
        #[source]
        source: Cause,
    },
    /// An ACL does not let this client in: that of the lock's directory, of one above it where the directory is missing, or of
    /// the predecessor's node, which has to be readable.
    #[error("no permission for the lock {path}: {}", needed(path, node, *has_credentials), path = Quoted(path))]
    NoAuth {
        /// The lock's path.
        path: String,
        /// The node whose ACL is in the way; where the lock's directory is missing, the one in which it, or a directory above
        /// it, would have to be created.
        node: String,
        /// Whether this client has credentials ([`ClientBuilder::auth`](crate::ClientBuilder::auth)); `None` if its session or
        /// connector was handed in, which may have credentials of its own.
        has_credentials: Option<bool>,
    },
    /// A node of this client is left in the lock's directory, which the servers refuse to delete, so that it keeps the
    /// lock from all contenders: the ACL of the directory lacks DELETE for this client. Grant it, or close the client. The
    /// deletion was asked for once more by this call.
    #[error(
        "the lock {path} is blocked by a node that this client left, {node}, and may not delete: grant it DELETE on the lock's directory, or close the client", path = Quoted(path), node = Quoted(node))]
    Orphaned {
        /// The lock's path.
        path: String,
        /// The node that is left.
        node: String,
        /// What the server said to its deletion.
        #[source]
        source: Cause,
    },
    /// The directory holds contenders of another recipe, which order themselves by other rules: both sides
    /// would be let in. Use a path of its own for each recipe.
    #[error(
        "the lock {path} is in use by another recipe: its node {node} does not queue with ours; use a path of its own", path = Quoted(path), node = Quoted(node))]
    MixedRecipes {
        /// The lock's path.
        path: String,
        /// One of the other recipe's nodes.
        node: String,
    },
    /// More than 2^31 nodes were created under the directory; from here on Java and Go clients sort new
    /// contenders before old ones. Stop all contenders and delete the directory, which starts the numbers again.
    #[error(
        "the sequence numbers of the lock {path} are used up: stop its contenders and delete the directory", path = Quoted(path))]
    SequenceExhausted {
        /// The lock's path.
        path: String,
    },
    /// A fair lock has as many waiters in this client as it may have: every one of them has a node, and a directory
    /// that is too large cannot be listed any more
    /// ([`max_waiters`](crate::InterProcessFairLockBuilder::max_waiters)).
    #[error("the fair lock {path} has {max} nodes of this client already, its limit: contenders, or nodes still being deleted", path = Quoted(path))]
    TooManyWaiters {
        /// The lock's path.
        path: String,
        /// The limit.
        max: usize,
    },
    /// The session watches as many nodes as it can (about 120 KiB of paths; one that watches more cannot reconnect).
    /// Wait for fewer locks at once, use shorter paths, or several clients.
    #[error("no wait for the lock {path}: this client's session watches as many nodes as it can", path = Quoted(path))]
    TooManyWatches {
        /// The lock's path.
        path: String,
    },
    /// Somebody deleted this contender's own node, again and again.
    #[error("the node of this contender for the lock {path} was deleted by somebody else {times} times", path = Quoted(path))]
    NodeDeleted {
        /// The lock's path.
        path: String,
        /// How often.
        times: u32,
    },
    /// The server refuses to create the node, for a reason that a retry will not change.
    #[error("ZooKeeper refuses a node for the lock {path}", path = Quoted(path))]
    Rejected {
        /// The lock's path.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The servers refused the client's credentials: it is closed.
    #[error("no lock {path}: ZooKeeper refused the client's authentication", path = Quoted(path))]
    AuthFailed {
        /// The lock's path.
        path: String,
    },
    /// The client was closed, or the session that it borrowed has ended.
    #[error("no lock {path}: its client is closed", path = Quoted(path))]
    Closed {
        /// The lock's path.
        path: String,
    },
}

impl AcquireError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Connection { .. }
                | Self::NodeDeleted { .. }
                | Self::TooManyWaiters { .. }
                | Self::TooManyWatches { .. }
        )
    }

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::TimedOut { path, .. }
            | Self::Connection { path, .. }
            | Self::NoAuth { path, .. }
            | Self::Orphaned { path, .. }
            | Self::MixedRecipes { path, .. }
            | Self::SequenceExhausted { path }
            | Self::TooManyWaiters { path, .. }
            | Self::TooManyWatches { path }
            | Self::NodeDeleted { path, .. }
            | Self::Rejected { path, .. }
            | Self::AuthFailed { path }
            | Self::Closed { path } => path,
        }
    }
}

/// Why `try_lock` did not answer with a guard.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is held, or another contender is ahead in its queue.
    #[error("the lock {path} is not free{}", in_the_way(1, first.as_deref(), holder.as_ref()), path = Quoted(path))]
    WouldBlock {
        /// The lock's path.
        path: String,
        /// The path of the first node in the queue, without the client's namespace; `None` if this client's own
        /// contenders have all its places and no server was asked.
        first: Option<String>,
        /// This client's own hold, if it is the one in the way.
        holder: Option<LocalHolder>,
    },
    /// The lock could not be asked for.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

impl TryLockError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::WouldBlock { .. } => true,
            Self::Acquire(error) => error.is_retryable(),
        }
    }
}

/// The lock is no longer ours, although its guard is still there.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("the lock {path} is lost: {reason}", path = Quoted(.path))]
pub struct Lost {
    pub(crate) path: Arc<str>,
    pub(crate) reason: LostReason,
}

impl Lost {
    /// How it was lost.
    #[must_use]
    pub fn reason(&self) -> LostReason {
        self.reason
    }

    /// The lock's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The servers, or this client on their behalf, ended the session because they had not heard of each other
    /// for the session timeout.
    SessionExpired,
    /// A server gave this client another session than the one that holds the lock.
    SessionReplaced,
    /// Somebody deleted the lock node.
    NodeDeleted,
    /// No server has proved for too long that the session lives: the lock may have been given to somebody else.
    /// The session may have survived. Then nobody else gets the lock before the last guard is dropped or released, or
    /// the session timeout has passed since the last proof, whichever comes first.
    LeaseExpired,
    /// The client was closed, or the session that it borrowed was.
    Closed,
    /// ZooKeeper refused to delete a node of a conversion ([`try_upgrade`](crate::ReadGuard::try_upgrade),
    /// [`downgrade`](crate::WriteGuard::downgrade)), or to say which of its two nodes there is: what the lock is held as
    /// cannot be told. Its nodes are deleted, or stay until the session ends where that is refused as well.
    NotConverted,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionExpired => "its session expired",
            Self::SessionReplaced => "a server replaced its session by another",
            Self::NodeDeleted => "somebody deleted its node",
            Self::LeaseExpired => "no server has answered for too long to be sure of it",
            Self::Closed => "its client was closed",
            Self::NotConverted => "ZooKeeper refused a request of its conversion",
        })
    }
}

/// A read-write lock that could not be converted, and its guard: as good as it was before, unless the
/// [reason](Self::reason) is that the lock is [lost](ConversionFailure::Lost).
#[derive(Error)]
#[error("the lock {path} was not converted", path = Quoted(.path))]
pub struct ConversionError<G: fmt::Debug> {
    guard: G,
    path: String,
    #[source]
    reason: ConversionFailure,
}

impl<G: fmt::Debug> ConversionError<G> {
    pub(crate) fn new(guard: G, path: &str, reason: ConversionFailure) -> Self {
        Self { guard, path: path.to_owned(), reason }
    }

    /// The guard of the lock as it was.
    #[must_use]
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// Why it was not converted.
    #[must_use]
    pub fn reason(&self) -> &ConversionFailure {
        &self.reason
    }

    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self.reason, ConversionFailure::Contended)
    }
}

/// Why a read-write lock could not be converted.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ConversionFailure {
    /// Other guards share the hold ([`reenter`](crate::LockGuard::reenter), [`read`](crate::WriteGuard::read)):
    /// whoever waited for them here would wait for itself.
    #[error("other guards share this hold, and waiting for them would be waiting for oneself")]
    WouldDeadlock,
    /// Another reader may be inside, or another conversion is under way, or has left a node behind that could not be
    /// deleted and stays until its session ends.
    #[error("another reader may be inside")]
    Contended,
    /// The lock is lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The directory holds contenders of another recipe.
    #[error("the lock's directory is in use by another recipe: {node} does not queue with ours", node = Quoted(node))]
    MixedRecipes {
        /// One of the other recipe's nodes.
        node: String,
    },
    /// The server refuses, for a reason that a retry will not change.
    #[error("ZooKeeper refuses")]
    Rejected {
        /// What the server said.
        #[source]
        source: Cause,
    },
}

/// Why a holder could not be asked to give its lock back.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The path is none.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// No server answered, for as long as the retry policy allows; the request may have been written.
    #[error("no ZooKeeper server to ask for the node {node} back", node = Quoted(node))]
    Connection {
        /// The lock node.
        node: String,
        /// What the connection said last.
        #[source]
        source: Cause,
    },
    /// The server refuses to write to the node: its ACL lacks WRITE for this client.
    #[error("ZooKeeper refuses a request to the holder of the node {node}", node = Quoted(node))]
    Refused {
        /// The lock node.
        node: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// The client is closed.
    #[error("no request to the holder of {node}: the client is closed", node = Quoted(node))]
    Closed {
        /// The lock node.
        node: String,
    },
}

impl RevokeError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }
}

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and another one".to_owned(),
        _ => format!(" and {others} others"),
    }
}

/// Why a release, a [`flush`](crate::Client::flush) or a [`close`](crate::Client::close) could not report success.
/// The lock is not kept by any of these: what is left is deleted in the background or ends with the session.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before the release: what was done under it since may have overlapped with another
    /// holder.
    #[error("the lock {} was released too late: {}", Quoted(_0.path()), _0.reason())]
    Lost(#[from] Lost),
    /// The servers refuse the deletion: the ACL of the lock's directory lacks DELETE for this client. The node stays until
    /// the session ends, and keeps the lock from all others.
    #[error("ZooKeeper refuses to delete the node {node}{}; it stays until the session ends", and_others(*others), node = Quoted(node))]
    Refused {
        /// The lock node.
        node: String,
        /// How many other nodes it refuses to delete; of a release always 0.
        others: usize,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// Not everything could be confirmed in time; it goes on in the background.
    #[error("{nodes} lock nodes are not confirmed to be gone after {waited:?}")]
    TimedOut {
        /// How many: one for each lock, or attempt to get it, that has left something, and those whose deletion was
        /// refused before and has been asked for again.
        nodes: usize,
        /// The time that was given.
        waited: Duration,
    },
    /// The session could not be closed in time; the servers end it, and its nodes, when it expires.
    #[error(
        "no server confirmed the end of the session within {waited:?}; it ends, with its nodes, when it expires"
    )]
    SessionNotClosed {
        /// How long was waited.
        waited: Duration,
    },
}

impl ReleaseError {
    /// Whether the same call may succeed later without anything else being changed: a [`flush`](crate::Client::flush)
    /// that ran out of time may. A release has happened by its call, and a [`close`](crate::Client::close) answers the
    /// same again, so there is nothing to repeat in the other cases.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }
}

/// Why a transaction was not known to be committed.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// The lock is not held any more. Nothing was written.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The lock is held, but one of the writes is not possible: the node exists or does not, has another version, has
    /// children, or the ACL forbids it. Nothing was written.
    #[error("write number {index} of the transaction on {path} was rejected", path = Quoted(path))]
    Rejected {
        /// Which one, from 0.
        index: usize,
        /// The path of that write.
        path: String,
        /// What the server said.
        #[source]
        source: Cause,
    },
    /// No answer came: everything was written, or nothing. Read the data before you go on.
    #[error("whether the transaction under the lock {path} was committed is not known", path = Quoted(path))]
    Unknown {
        /// The lock's path.
        path: String,
        /// What the connection said.
        #[source]
        source: Cause,
    },
    /// A path cannot be used. Nothing was sent.
    #[error(transparent)]
    InvalidPath(#[from] InvalidPath),
    /// It is larger than ZooKeeper's limit for one request (1 MiB). Nothing was sent.
    #[error("the transaction has {bytes} bytes; ZooKeeper takes at most 1 MiB at a time")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl TransactionError {
    /// Whether the same transaction may succeed later, and do no harm, without anything else being changed. None may at
    /// present: after [`Unknown`](Self::Unknown) the writes may have been made already, and would be made twice, so the
    /// data have to be read first; [`Rejected`](Self::Rejected) needs the data changed, and the others another guard,
    /// path or size.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Lost(_)
            | Self::Rejected { .. }
            | Self::Unknown { .. }
            | Self::InvalidPath(_)
            | Self::TooLarge { .. } => false,
        }
    }
}

debug_as_text!(
    TransactionError,
    InvalidPath,
    BuildError,
    ConnectError,
    AcquireError,
    TryLockError,
    Lost,
    ConversionFailure,
    RevokeError,
    ReleaseError,
    ServerFailures,
);

impl<G: fmt::Debug> fmt::Debug for ConversionError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConversionError({self}: {}, {:?})", self.reason, self.guard)
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "sealing is the point")]
    pub trait Sealed {}
    impl<T> Sealed for Result<T, super::AcquireError> {}
    impl<T> Sealed for Result<T, super::TryLockError> {}
}

/// What came of asking for a lock, where a busy lock is no error: the answer of [`OptionalExt::optional`].
///
/// Unlike `Option` it is `#[must_use]`, and has no question like `is_some` that gives the lock back in passing.
/// Its variants can be imported by themselves.
#[derive(Debug)]
#[must_use = "dropping it gives the lock back at once: `if let Acquired(guard) = .. { .. }`"]
pub enum Acquisition<G> {
    /// The lock is held, until this guard is dropped or released.
    Acquired(G),
    /// Other contenders were in the way: [`AcquireError::TimedOut`] or [`TryLockError::WouldBlock`].
    Busy,
}

impl<G> From<Acquisition<G>> for Option<G> {
    fn from(acquisition: Acquisition<G>) -> Self {
        match acquisition {
            Acquisition::Acquired(guard) => Some(guard),
            Acquisition::Busy => None,
        }
    }
}

/// Turns a busy lock from an error into an answer, for callers to whom it is none.
///
/// ```no_run
/// # async fn example(mutex: zookeeper_recipes::InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use zookeeper_recipes::{Acquired, OptionalExt};
///
/// if let Acquired(guard) = mutex.acquire(Duration::from_millis(200)).await.optional()? {
///     // the lock is ours, until `guard` is dropped or released
///     guard.release().await?;
/// }
///
/// let Acquired(guard) = mutex.try_lock().await.optional()? else { return Ok(()) };
/// // the lock is ours
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Wrong forms
/// The lock is held by the guard, so it is free again as soon as the guard is dropped. These look right, and run what comes
/// after them without the lock. The right forms give the guard a name, and keep it to the end of the work.
///
/// The compiler rejects these, or warns of them (`unused_must_use`):
///
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// mutex.lock().await?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// mutex.acquire(Duration::from_millis(200)).await.optional()?;
/// # Ok(())
/// # }
/// ```
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # use std::time::Duration;
/// # use zookeeper_recipes::*;
/// # async fn example(mutex: InterProcessMutex) -> Result<(), Box<dyn std::error::Error>> {
/// if mutex.try_lock().await.optional()?.is_some() { /* without the lock */ }
/// # Ok(())
/// # }
/// ```
///
/// These it accepts; where a lint finds one, the last column names it:
///
/// | wrong | right | lint |
/// |---|---|---|
/// | `let _ = mutex.lock().await?;` | `let guard = mutex.lock().await?;` or `let _guard = ..` | `clippy::let_underscore_must_use` and rustc's `let_underscore_drop`, both off by default |
/// | `if let Acquired(_) = mutex.try_lock().await.optional()? { .. }` | `if let Acquired(guard) = ..`, or `Acquired(_guard)` | |
/// | `let Acquired(_) = mutex.try_lock().await.optional()? else { return };` | `let Acquired(guard) = .. else { return };` | |
/// | `if let Ok(_) = mutex.try_lock().await { .. }` | `if let Ok(guard) = ..` | `clippy::redundant_pattern_matching`, whose suggestion, `is_ok()`, is as wrong |
/// | `let Ok(_) = mutex.try_lock().await else { return };` | `let Ok(guard) = .. else { return };` | |
/// | `if mutex.try_lock().await.is_ok() { .. }` | `if let Ok(guard) = mutex.try_lock().await { .. }` | |
/// | `select! { _ = mutex.lock() => .., .. }` | `select! { guard = mutex.lock() => { let guard = guard?; .. } .. }` | |
/// | `select! { Ok(_) = mutex.lock() => .., .. }` | `select! { Ok(guard) = mutex.lock() => .., .. }` | |
/// | `let token = mutex.lock().await?.fencing_token();` | `let guard = mutex.lock().await?; let token = guard.fencing_token();` | |
pub trait OptionalExt: sealed::Sealed {
    /// What is inside the `Ok`.
    type Guard;
    /// The error without the answers that became [`Acquisition::Busy`]; of the same type.
    type Error;

    /// [`Acquisition::Busy`] instead of [`AcquireError::TimedOut`] and [`TryLockError::WouldBlock`].
    ///
    /// # Errors
    /// Every other error, unchanged.
    fn optional(self) -> Result<Acquisition<Self::Guard>, Self::Error>;
}

impl<T> OptionalExt for Result<T, AcquireError> {
    type Guard = T;
    type Error = AcquireError;

    fn optional(self) -> Result<Acquisition<T>, AcquireError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(AcquireError::TimedOut { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}

impl<T> OptionalExt for Result<T, TryLockError> {
    type Guard = T;
    type Error = TryLockError;

    fn optional(self) -> Result<Acquisition<T>, TryLockError> {
        match self {
            Ok(guard) => Ok(Acquisition::Acquired(guard)),
            Err(TryLockError::WouldBlock { .. }) => Ok(Acquisition::Busy),
            Err(error) => Err(error),
        }
    }
}
