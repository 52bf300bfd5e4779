//! Why there is no session.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::build::InvalidPath;
use super::cause::Cause;
use crate::shown::{Quoted, Short, debug_as_text};

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

debug_as_text!(ConnectError, ServerFailures);
