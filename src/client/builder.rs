//! How a client is set up.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use zookeeper_client as zk;

use super::belief::Margin;
use super::dialer::Dialer;
use super::epoch::Epoch;
use super::heartbeat::Heartbeat;
use super::lease;
use super::reaper::Reaper;
use super::retry::RetryPolicy;
use super::servers::Servers;
use super::supervisor::{Contact, Shared, supervise};
use super::{Client, Inner};
use crate::error::ConnectError;
use crate::options::Acl;
use crate::path::parse_namespace;

/// Options of a [`Client`].
#[must_use = "it does nothing until `connect` is called"]
#[derive(Clone)]
pub struct ClientBuilder {
    session_timeout: Duration,
    connect_timeout: Duration,
    retry: RetryPolicy,
    namespace: String,
    acl: Vec<Acl>,
    auth: Vec<(String, Vec<u8>)>,
    connector: Option<zk::Connector>,
    contact: Contact,
}

/// Long enough to ride out a leader that hangs, with the servers' own defaults: they notice after 10 s, and 15 s without
/// an answer cost no lock. Within the servers' limits, which end at 40 s.
pub(crate) const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            retry: RetryPolicy::default(),
            namespace: String::new(),
            acl: vec![Acl::open()],
            auth: Vec::new(),
            connector: None,
            contact: Contact::default(),
        }
    }
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
        self.session_timeout = timeout;
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
        self.connect_timeout = timeout;
        self
    }

    /// How often to try again to replace a lost session, or to repeat a request that failed. By default
    /// [`RetryPolicy::exponential(1 s, 3, 5 s)`](RetryPolicy::exponential).
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// A prefix of all paths, created when it is missing: with `shop`, the lock `/sku-42` is the node
    /// `/shop/sku-42` at the servers. By default none. It comes after a path in the connect string.
    #[doc(alias = "usingNamespace")]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// The ACL of everything that is created, unless a recipe has its own. By default [open](Acl::open).
    #[doc(alias = "aclProvider")]
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = acl.into();
        self
    }

    /// Credentials, for example `auth("digest", "user:password")`. Several are possible.
    #[doc(alias = "authorization")]
    pub fn auth(mut self, scheme: &str, credentials: impl Into<Vec<u8>>) -> Self {
        self.auth.push((scheme.to_owned(), credentials.into()));
        self
    }

    /// How the client proves that the servers still keep its session while something is held or waited for. By
    /// default [`Heartbeat::Commit`], the only one that proves it.
    pub fn heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.contact.heartbeat = heartbeat;
        self
    }

    /// How much earlier than the servers may give a lock away it is given up here. By default [`Margin::Standard`],
    /// a third of the session timeout.
    pub fn margin(mut self, margin: Margin) -> Self {
        self.contact.margin = margin;
        self
    }

    /// A connector of the client library, for what it can do and this builder has no name for: TLS (feature
    /// `tls`), SASL (features `sasl-digest-md5`, `sasl-gssapi`). The session timeout and the credentials of this builder
    /// are put on top. Servers are spoken to by TLS where the connect string says `tcp+tls://host:port`.
    ///
    /// It must make sessions that this client may own: not one with `with_session` (a session that has expired would
    /// be asked for again and again), `with_detached` (closing would not delete the nodes) or `with_readonly`.
    pub fn connector(mut self, connector: zk::Connector) -> Self {
        self.connector = Some(connector);
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
        let unusable = |reason| ConnectError::InvalidConnectString { servers: servers.to_owned(), reason };
        let servers = Servers::parse(servers).map_err(unusable)?;
        let namespace = parse_namespace(servers.namespace())? + &parse_namespace(&self.namespace)?;
        let has_credentials = match &self.connector {
            Some(_) if self.auth.is_empty() => None,
            _ => Some(!self.auth.is_empty()),
        };
        if has_credentials == Some(false) && self.acl.iter().any(Acl::needs_credentials) {
            return Err(ConnectError::NoCredentials { servers: servers.given().to_owned() });
        }
        let mut connector = self.connector.unwrap_or_else(zk::Client::connector);
        for (scheme, credentials) in &self.auth {
            connector = connector.with_auth(scheme, credentials);
        }
        let mut dialer = Dialer::new(
            servers,
            connector,
            // ZooKeeper counts milliseconds in 32 bits.
            self.session_timeout.clamp(Duration::from_millis(1), Duration::from_millis(i32::MAX as u64)),
            self.connect_timeout,
            self.retry,
        );
        let given = dialer.servers().given().to_owned();
        let setup = |error| ConnectError::Setup { servers: given.clone(), source: Arc::new(error) };
        lease::start().map_err(setup)?;
        let runtime = runtime::Builder::new_current_thread().enable_time().build().map_err(setup)?;
        let shared = Shared::new();
        let (reaper, reap) = Reaper::new();
        // Made before the first try: if this future is dropped, its drop stops the thread.
        let client = Client {
            inner: Arc::new(Inner {
                shared: Arc::clone(&shared),
                runtime: runtime.handle().clone(),
                reaper: reaper.clone(),
                retry: self.retry,
                connect_timeout: self.connect_timeout,
                namespace,
                acl: self.acl.into(),
                has_credentials,
                no_containers: AtomicBool::new(false),
                rooms: Mutex::new(HashMap::new()),
            }),
        };
        let contact = self.contact;
        let (connected, first) = oneshot::channel();
        // A thread of its own, as Java's client has: an executor that is blocked must not lose the lock (rule 20).
        let run = move || {
            runtime.block_on(async move {
                let mut stop = shared.stop.subscribe();
                let dialled = tokio::select! {
                    dialled = dialer.dial() => dialled,
                    _ = stop.wait_for(|stop| *stop) => return,
                };
                match dialled {
                    Ok(session) => {
                        tokio::spawn(reap);
                        // Before the caller hears of it, who may ask for the session at once.
                        let epoch = Epoch::new(1, session, contact.margin, reaper.clone());
                        shared.begin(&epoch);
                        // If the caller has gone, so has the client, and the supervisor closes the session.
                        let _ = connected.send(Ok(()));
                        supervise(shared, epoch, Some(dialer), reaper, contact).await;
                    }
                    // The caller may have gone; nobody else wants to know.
                    Err(error) => drop(connected.send(Err(error))),
                }
            });
        };
        thread::Builder::new().name("zookeeper-recipes".to_owned()).spawn(run).map_err(setup)?;
        match first.await {
            Ok(Ok(())) => Ok(client),
            Ok(Err(error)) => Err(error),
            // The thread ended without a word: it cannot, short of a panic in the client library.
            Err(gone) => Err(ConnectError::Setup { servers: given, source: Arc::new(gone) }),
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials stay out of logs.
        f.debug_struct("ClientBuilder")
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry", &self.retry)
            .field("namespace", &self.namespace)
            .field("acl", &self.acl)
            .field("contact", &self.contact)
            .finish_non_exhaustive()
    }
}

/// Whether the runtime that this is called in has timers.
///
/// Tokio answers that by a panic and in no other way (a `Handle` says nothing of its drivers). It is caught here, and the
/// panic hook prints it, which names the remedy. Otherwise the heartbeat would panic, where no caller sees it, and a
/// client would be closed that seemed to be well.
fn has_timers() -> bool {
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// A client on a session that it does not own; see [`Client::from_session`].
pub(super) fn borrow(session: zk::Client) -> Result<Client, ConnectError> {
    let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
    if !has_timers() {
        return Err(ConnectError::NoRuntime);
    }
    if session.state().is_terminated() {
        return Err(ConnectError::SessionEnded);
    }
    let setup = |error| ConnectError::Setup {
        servers: "a session that was handed in".to_owned(),
        source: Arc::new(error),
    };
    lease::start().map_err(setup)?;
    let shared = Shared::new();
    let (reaper, reap) = Reaper::new();
    runtime.spawn(reap);
    let contact = Contact::default();
    let epoch = Epoch::new(1, session, contact.margin, reaper.clone());
    shared.begin(&epoch);
    runtime.spawn(supervise(Arc::clone(&shared), epoch, None, reaper.clone(), contact));
    let defaults = ClientBuilder::default();
    let inner = Inner {
        shared,
        runtime,
        reaper,
        retry: defaults.retry,
        connect_timeout: defaults.connect_timeout,
        namespace: String::new(),
        acl: defaults.acl.into(),
        has_credentials: None,
        no_containers: AtomicBool::new(false),
        rooms: Mutex::default(),
    };
    Ok(Client { inner: Arc::new(inner) })
}
