//! Why there is no session.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use super::request::Cause;
use crate::values::path::InvalidPath;
use crate::values::shown::{Quoted, Short, debug_as_text, why};

/// Why one server created no session; part of [`ConnectError::TimedOut`].
///
/// After a connect that failed, each server is asked once for its status (`srvr`), which creates no
/// session.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use zookeeper_recipes::{Client, ConnectError, ServerFailure};
///
/// // No process listens at the port 1.
/// let builder = Client::builder().connect_timeout(Duration::from_millis(100));
/// let error = builder.connect("127.0.0.1:1").await.unwrap_err();
/// let ConnectError::TimedOut { failures, .. } = &error else { panic!("{error}") };
/// for (server, failure) in failures {
///     assert_eq!(server, "127.0.0.1:1");
///     println!("{server}: {failure}"); // 127.0.0.1:1: it refuses connections
///     // A busy machine may not have asked in time.
///     assert!(matches!(failure, ServerFailure::ConnectionRefused | ServerFailure::NoAnswer));
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerFailure {
    /// The host name has no address, or could not be looked up.
    UnknownHost,
    /// No process listens at the port.
    ConnectionRefused,
    /// The network has no route to the address, or this process lacks file descriptors or threads;
    /// the text of the error says which.
    Unreachable,
    /// The server, or the lookup of its address, did not answer in time.
    NoAnswer,
    /// The server closed the connection without an answer: it has too many connections from this
    /// host (`maxClientCnxns`), or expects TLS.
    ClosedAtOnce,
    /// The server expects TLS, which the builder's `tls` enables (feature `tls`).
    SpeaksTls,
    /// The server does not speak TLS.
    SpeaksNoTls,
    /// The answer is not ZooKeeper's.
    NotZooKeeper,
    /// The server serves no requests at the moment, because it has no quorum. A member in read-only
    /// mode (`readonlymode.enabled`), which grants no locks, is reported in the same way.
    NotServing,
    /// The server answers, but created no session: it may be overloaded, or the SASL options may
    /// not match.
    NoSession,
    /// The server's certificate is not signed by one of the client's CAs.
    UntrustedCertificate,
    /// The server's certificate is not for the host in the connect string.
    CertificateOfOtherHost,
    /// The server's certificate cannot be used: it has expired, or is not for servers.
    InvalidCertificate,
    /// The server requires a client certificate, and the client has none.
    NoClientCertificate,
    /// The server does not accept the client's certificate.
    ClientCertificateRefused,
    /// The TLS handshake failed for another reason.
    HandshakeFailed,
}

impl fmt::Display for ServerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownHost => "its name is unknown",
            Self::ConnectionRefused => "it refuses connections",
            Self::Unreachable => "it cannot be reached",
            Self::NoAnswer => "it does not answer",
            Self::ClosedAtOnce => {
                "it closes the connection at once: too many connections of this host (maxClientCnxns), or it speaks TLS"
            }
            Self::SpeaksTls => "it speaks TLS: call `tls` of the client's builder (feature `tls`)",
            Self::SpeaksNoTls => "it does not speak TLS",
            Self::NotZooKeeper => "its answer is not ZooKeeper's",
            Self::NotServing => "it is not serving requests: it has no quorum",
            Self::NoSession => "it answers, but gave no session",
            Self::UntrustedCertificate => {
                "its certificate is not signed by a CA of the client's: see the CAs of its `TlsOptions`"
            }
            Self::CertificateOfOtherHost => {
                "its certificate is for another host: connect by a name or an address that is in it"
            }
            Self::InvalidCertificate => "its certificate cannot be used",
            Self::NoClientCertificate => {
                "it wants a certificate of the client's: call an `identity` method of `TlsOptions`"
            }
            Self::ClientCertificateRefused => {
                "it refuses the client's certificate: the server's CAs must have signed it"
            }
            Self::HandshakeFailed => "the TLS handshake failed",
        })
    }
}

/// A server that created no session, with the answer of the server or the error of the system.
pub(crate) struct FailedServer {
    pub(crate) server: String,
    pub(crate) failure: ServerFailure,
    pub(crate) detail: Option<String>,
}

impl fmt::Display for FailedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Short(&self.server), self.failure)?;
        match &self.detail {
            Some(detail) => write!(f, " ({})", Short(detail)),
            None => Ok(()),
        }
    }
}

/// Why each server created no session, as the source of an error, with one line for each server.
pub(crate) struct ServerFailures {
    text: String,
    /// The last error of the client library.
    source: Option<Cause>,
}

impl ServerFailures {
    pub(crate) fn new(failures: &[FailedServer], source: Option<Cause>) -> Self {
        let lines: Vec<_> = failures.iter().map(ToString::to_string).collect();
        let text = match &lines[..] {
            [] => "no server could be asked why".to_owned(),
            lines => lines.join("\n"),
        };
        Self { text, source }
    }
}

impl fmt::Display for ServerFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ServerFailures {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_ref()
            .map(|source| &**source as &(dyn Error + 'static))
    }
}

/// Error of [`Client::connect`](crate::Client::connect): why there is no session.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use zookeeper_recipes::{Client, ConnectError};
///
/// let error = Client::connect("zk1:2181,zk2:port").await.unwrap_err();
/// assert!(matches!(error, ConnectError::InvalidConnectString { .. }));
/// assert_eq!(error.servers(), Some("zk1:2181,zk2:port"));
/// assert!(!error.is_retryable());
/// # }
/// ```
///
/// [`connect`](crate::Client::connect) is one try. A service that may start before its ensemble
/// uses [`connect_lazy`](crate::ClientBuilder::connect_lazy), which fails for bad arguments only:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let servers = server.connect_string();
/// use zookeeper_recipes::{Client, ConnectionState};
///
/// let client = Client::connect_lazy(&servers)?;
/// client.watch_state().wait_for(|state| *state == ConnectionState::Connected).await.ok_or("closed")?;
/// client.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server created a session within the connect timeout. The servers may be down,
    /// unreachable, or without a quorum; the source says what failed for each server.
    #[error(
        "no ZooKeeper server of {servers} gave a session within {timeout:?}: {}",
        why(source), servers = Short(servers)
    )]
    #[non_exhaustive]
    TimedOut {
        /// The connect string.
        servers: String,
        /// The connect timeout.
        timeout: Duration,
        /// At most 16 of the servers, as in the connect string, and why each created no session.
        failures: Vec<(String, ServerFailure)>,
        /// The same as text, with one line for each server and more details.
        source: Cause,
    },
    /// The connect string cannot be used.
    #[error(
        "the connect string {servers} cannot be used: {reason}; it is `host:port[,host:port...][/namespace]`",
        servers = Quoted(servers)
    )]
    #[non_exhaustive]
    InvalidConnectString {
        /// The connect string.
        servers: String,
        /// The problem with it.
        reason: String,
    },
    /// ZooKeeper would refuse the namespace.
    #[error("the namespace cannot be used: {0}")]
    InvalidNamespace(#[from] InvalidPath),
    /// The name of the client ([`ClientBuilder::name`](crate::ClientBuilder::name)) cannot be used.
    #[error("the client's name {name} cannot be used: {reason}", name = Quoted(name))]
    #[non_exhaustive]
    InvalidName {
        /// The name.
        name: String,
        /// The problem with it.
        reason: &'static str,
    },
    /// The servers refused the credentials, or require some.
    #[error(
        "ZooKeeper at {servers} refused the client's credentials: check the user and the password",
        servers = Short(servers)
    )]
    #[non_exhaustive]
    AuthFailed {
        /// The connect string.
        servers: String,
    },
    /// The client's ACL is for credentials that the client does not have: either the ACL is for the
    /// creator's credentials ([`Acl::creator_all`](crate::Acl::creator_all)) and the client has
    /// none, or all entries are of the scheme `digest` ([`Acl::digest`](crate::Acl::digest)) and
    /// for other users.
    ///
    /// With such an ACL, the client would lock itself, and all other clients without these
    /// credentials, out of the directories that it creates.
    #[error(
        "the ACL of the client for {servers} is for credentials that it does not have: call `auth` or \
         `sasl_digest` of its builder",
        servers = Short(servers)
    )]
    #[non_exhaustive]
    NoCredentials {
        /// The connect string.
        servers: String,
    },
    /// The user or the password cannot be sent.
    #[error("the credentials of the client for {servers} cannot be used: {reason}", servers = Short(servers))]
    #[non_exhaustive]
    InvalidCredentials {
        /// The connect string.
        servers: String,
        /// The problem with them.
        reason: String,
    },
    /// The TLS options cannot be used: a file cannot be read or is not PEM, there is no CA, or the
    /// key does not match the certificate.
    #[error("the TLS options of the client for {servers} cannot be used: {reason}", servers = Short(servers))]
    #[non_exhaustive]
    InvalidTls {
        /// The connect string.
        servers: String,
        /// The problem with them.
        reason: String,
    },
    /// The client could not be set up: an option of its connector is wrong, or a thread could not
    /// be started.
    #[error("the client for {servers} could not be set up: {}", why(source), servers = Short(servers))]
    #[non_exhaustive]
    Setup {
        /// The connect string.
        servers: String,
        /// The step that failed.
        source: Cause,
    },
}

impl ConnectError {
    /// Returns `true` if the same call may succeed later with nothing else changed: after
    /// [`TimedOut`](Self::TimedOut).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Returns the connect string, or `None` if the error is about the namespace or the name of the
    /// client.
    #[must_use]
    pub fn servers(&self) -> Option<&str> {
        match self {
            Self::TimedOut { servers, .. }
            | Self::InvalidConnectString { servers, .. }
            | Self::AuthFailed { servers }
            | Self::NoCredentials { servers }
            | Self::InvalidCredentials { servers, .. }
            | Self::InvalidTls { servers, .. }
            | Self::Setup { servers, .. } => Some(servers),
            Self::InvalidNamespace(_) | Self::InvalidName { .. } => None,
        }
    }

    /// Returns the namespace if the error is about it, otherwise `None`, because a connection
    /// concerns no single path.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::InvalidNamespace(invalid) => Some(invalid.path()),
            _ => None,
        }
    }
}

debug_as_text!(ConnectError {
    TimedOut,
    InvalidConnectString,
    InvalidNamespace,
    InvalidName,
    AuthFailed,
    NoCredentials,
    InvalidCredentials,
    InvalidTls,
    Setup
});
debug_as_text!(ServerFailures);
