//! The back-ends, and what each can do.

use std::fmt;
use std::net::SocketAddr;

use test_support::prelude::*;
use test_support::{Options, ZooKeeper, shared_ensemble, shared_standalone};

/// The servers that a behaviour runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// A server in this process.
    InProcess,
    /// A server in this process, with connections that break all the time.
    Faults,
    /// A real server, shared with other behaviours.
    Standalone,
    /// Three real servers, shared with other behaviours.
    Ensemble,
    /// A server in this process that behaves like a ClickHouse Keeper without containers.
    Keeper,
}

/// Why ClickHouse Keeper cannot show what happens to containers.
pub(crate) const NO_CONTAINERS: &str = "it has no containers";
/// Why ClickHouse Keeper cannot show how a session's end is reported.
pub(crate) const NO_EXPIRY: &str = "a Keeper does not say that a session has expired";
/// Why ClickHouse Keeper cannot show when the first session of a client has ended.
pub(crate) const SESSION_OUTLIVES: &str =
    "a session that a Keeper has replaced lives until it expires";

/// The requirements of a behaviour besides a server on which it has separate paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Stop the servers and start them again, and make them delete empty containers at once.
    OwnServers,
    /// Count the requests to the server by kind.
    CountRequests,
    /// Hold single requests and replies.
    HoldReplies,
    /// Distinguish containers from other nodes.
    SeeKinds,
    /// Set the number of the next sequential node.
    SetSequence,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InProcess => "in-process",
            Self::Faults => "in-process-faults",
            Self::Standalone => "zookeeper",
            Self::Ensemble => "zookeeper-ensemble",
            Self::Keeper => "clickhouse-keeper-model",
        })
    }
}

impl Backend {
    pub(crate) const ALL: [Self; 4] = [
        Self::InProcess,
        Self::Faults,
        Self::Standalone,
        Self::Ensemble,
    ];

    /// Returns whether the servers run in other processes, which this machine may not have.
    pub(crate) fn is_real(self) -> bool {
        matches!(self, Self::Standalone | Self::Ensemble)
    }

    /// Returns why the back-end lacks what a behaviour needs; `None` if it has it.
    pub(crate) fn lacks(self, need: Need) -> Option<&'static str> {
        match need {
            Need::OwnServers => None,
            Need::CountRequests if self == Self::Keeper => Some(
                "a client of a Keeper without containers asks, and connects, more often at first",
            ),
            Need::SeeKinds if self == Self::Keeper => Some("it has no containers"),
            Need::CountRequests if self.is_real() => {
                Some("a real ZooKeeper does not count requests by kind")
            }
            Need::HoldReplies if self.is_real() => Some("a real ZooKeeper does not hold replies"),
            Need::SetSequence if self.is_real() => {
                Some("a real ZooKeeper counts its sequence numbers itself")
            }
            Need::SeeKinds if self.is_real() => {
                Some("a real ZooKeeper does not say which nodes are containers")
            }
            Need::CountRequests | Need::HoldReplies | Need::SeeKinds | Need::SetSequence => None,
        }
    }
}

/// The least and the greatest session timeout that every back-end grants.
pub(crate) const SESSION_LIMITS: (Duration, Duration) =
    (Duration::from_millis(400), Duration::from_secs(60));

/// The servers behind a back-end.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    Ours(Arc<Server>),
    Real(Arc<ZooKeeper>),
}

impl Servers {
    pub(crate) fn start(backend: Backend, own: bool) -> Self {
        let real = |shared: Result<_, test_support::ServerError>| {
            Self::Real(shared.expect("ZooKeeper starts"))
        };
        let options = || Options::new().container_check(Duration::from_millis(250));
        match (backend, own) {
            (Backend::InProcess | Backend::Faults | Backend::Keeper, _) => {
                let (min, max) = SESSION_LIMITS;
                let version = match backend {
                    Backend::Keeper => Version::ClickHouseKeeperWithoutContainers,
                    _ => Version::default(),
                };
                let server = Server::builder()
                    .zookeeper_version(version)
                    .tick(Duration::from_millis(100))
                    .min_session_timeout(min)
                    .max_session_timeout(max);
                Self::Ours(Arc::new(server.start().expect("a free port")))
            }
            (Backend::Standalone, false) => real(shared_standalone()),
            (Backend::Standalone, true) => real(ZooKeeper::standalone(&options()).map(Arc::new)),
            (Backend::Ensemble, false) => real(shared_ensemble()),
            (Backend::Ensemble, true) => real(ZooKeeper::ensemble(3, &options()).map(Arc::new)),
        }
    }

    pub(crate) fn connect_string(&self) -> String {
        match self {
            Self::Ours(server) => server.connect_string(),
            Self::Real(servers) => servers.connect_string(),
        }
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Ours(server) => vec![server.addr()],
            Self::Real(servers) => (0..servers.len())
                .map(|member| servers.address(member))
                .collect(),
        }
    }
}
