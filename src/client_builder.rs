//! How a client is set up.

use std::fmt;
use std::time::Duration;

use zookeeper_client as zk;

use crate::client::Client;
use crate::error::ConnectError;
use crate::options::Acl;
use crate::protocol::lease::Margin;
use crate::session::heartbeat::Heartbeat;
use crate::session::retry::RetryPolicy;
use crate::session::setup::{self, Setup};

/// Options of a [`Client`].
#[must_use = "it does nothing until `connect` is called"]
#[derive(Clone, Default)]
pub struct ClientBuilder {
    setup: Setup,
}

impl ClientBuilder {
    /// For how long the servers keep the session, and its locks, without hearing from this process. By default 30 s;
    /// Curator's default is 60 s. The servers move it into their limits, by default 2 to 20 of their ticks
    /// (4 to 40 s at ZooKeeper's default tick of 2 s); [`Client::session_timeout`] is what they granted.
    ///
    /// It is a choice between two things. Let T be the granted timeout:
    ///
    /// - **A holder that crashes keeps the others waiting** until its session expires: up to T and a tick. (One that is
    ///   closed, or whose guard is dropped, does not.)
    /// - **An outage costs no lock** if a server commits a write again within T/2 of its beginning, reconnecting
    ///   included: a lock is believed for 2T/3 after the last proof (with the [default margin](Margin::Standard)), and that may
    ///   be T/6 old when the outage begins.
    ///
    /// | T | a crashed holder blocks others for up to | no lock is lost by an outage of up to | leader killed | leader hangs |
    /// |---|---|---|---|---|
    /// | 6 s | 8 s | 3 s | may be lost | lost |
    /// | 15 s | 17 s | 7.5 s | kept | lost |
    /// | 30 s | 32 s | 15 s | kept | kept |
    /// | 40 s | 42 s | 20 s | kept | kept |
    ///
    /// The last two columns are for servers with the default `tickTime` (2 s) and `syncLimit` (5): a killed leader is
    /// replaced within a few seconds, but that a leader hangs is noticed only after `syncLimit` ticks, 10 s, to which
    /// the election and a reconnect come. With a smaller `syncLimit` a smaller T does.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.setup.session_timeout = timeout;
        self
    }

    /// For how long one try to get a session may take; by default 5 s, as in the articles' Curator set-up
    /// (Curator's own default is 15 s). It is also how long [`try_lock`](crate::InterProcessMutex::try_lock) waits for an
    /// answer.
    ///
    /// One server may be silent for a third of it, or for an eighth of the granted session timeout if that is less, but for half
    /// a second at least, before another is tried, now and later. Where the servers grant another session timeout than was
    /// asked for, and that makes a difference, connecting establishes a second session and closes the first. If
    /// commits take longer than that for a whole session timeout, so that no write is answered before the connection
    /// is given up, the session is replaced by one with twice the time, up to 2/5 of the session timeout; after a session that
    /// lasted for ten session timeouts it begins anew.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.setup.connect_timeout = timeout;
        self
    }

    /// How often to try again to replace a lost session, or to repeat a request that failed. By default
    /// [`RetryPolicy::exponential(1 s, 3, 5 s)`](RetryPolicy::exponential).
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.setup.retry = policy;
        self
    }

    /// A prefix of all paths, created when it is missing: with `shop`, the lock `/sku-42` is the node
    /// `/shop/sku-42` at the servers. By default none. It comes after a path in the connect string.
    #[doc(alias = "usingNamespace")]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.setup.namespace);
        self
    }

    /// The ACL of everything that is created, unless a recipe has its own. By default [open](Acl::open).
    #[doc(alias = "aclProvider")]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.setup.acl = acl.into();
        self
    }

    /// Credentials, for example `auth("digest", "user:password")`. Several are possible.
    #[doc(alias = "authorization")]
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        self.setup.auth.push((scheme.to_owned(), credentials.into()));
        self
    }

    /// How the client proves that the servers still keep its session while something is held or waited for. By
    /// default [`Heartbeat::Commit`], the only one that proves it.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.setup.lease.heartbeat = heartbeat;
        self
    }

    /// How much earlier than the servers may give a lock away it is given up here. By default [`Margin::Standard`],
    /// a third of the session timeout.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.setup.lease.margin = margin;
        self
    }

    /// A connector of the client library, for what it can do and this builder has no name for: TLS (feature
    /// `tls`), SASL (features `sasl-digest-md5`, `sasl-gssapi`). The session timeout and the credentials of this builder
    /// are put on top. Servers are spoken to by TLS where the connect string says `tcp+tls://host:port`.
    ///
    /// It must make sessions that this client may own: not one with `with_session` (a session that has expired would
    /// be asked for again and again), `with_detached` (closing would not delete the nodes) or `with_readonly`.
    pub fn connector(mut self, connector: zk::Connector) -> Self {
        self.setup.connector = Some(connector);
        self
    }

    /// Connects to `host:port[,host:port…][/namespace]`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// # Cancel safety
    /// As [`Client::connect`].
    pub async fn connect(self, servers: &str) -> Result<Client, ConnectError> {
        setup::connect(self.setup, servers).await.map(Client::new)
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials stay out of logs.
        f.debug_struct("ClientBuilder")
            .field("session_timeout", &self.setup.session_timeout)
            .field("connect_timeout", &self.setup.connect_timeout)
            .field("retry", &self.setup.retry)
            .field("namespace", &self.setup.namespace)
            .field("acl", &self.setup.acl)
            .field("lease", &self.setup.lease)
            .finish_non_exhaustive()
    }
}
