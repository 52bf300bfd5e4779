//! Sets a client up: connects it, and starts the thread that its sessions run on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use zookeeper_client as zk;

use super::cleanup::Cleanup;
use super::connect::Dialer;
use super::core::Core;
use super::lease_timer;
use super::retry::RetryPolicy;
use super::servers::Servers;
use super::supervisor::{LeaseOptions, Shared, supervise};
use super::zk_session::Session;
use crate::error::ConnectError;
use crate::options::Acl;
use crate::path::parse_namespace;

/// How a client is to be set up.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) namespace: String,
    pub(crate) acl: Vec<Acl>,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    pub(crate) connector: Option<zk::Connector>,
    pub(crate) lease: LeaseOptions,
}

/// Long enough to ride out a leader that hangs, with the servers' own defaults: they notice after 10 s, and 15 s without
/// an answer cost no lock. Within the servers' limits, which end at 40 s.
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for Setup {
    fn default() -> Self {
        Self {
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            retry: RetryPolicy::default(),
            namespace: String::new(),
            acl: vec![Acl::open()],
            auth: Vec::new(),
            connector: None,
            lease: LeaseOptions::default(),
        }
    }
}

/// Connects to `host:port[,host:port…][/namespace]`.
pub(crate) async fn connect(setup: Setup, servers: &str) -> Result<Arc<Core>, ConnectError> {
    let unusable = |reason| ConnectError::InvalidConnectString { servers: servers.to_owned(), reason };
    let servers = Servers::parse(servers).map_err(unusable)?;
    let namespace = parse_namespace(servers.namespace())? + &parse_namespace(&setup.namespace)?;
    let has_credentials = match &setup.connector {
        Some(_) if setup.auth.is_empty() => None,
        _ => Some(!setup.auth.is_empty()),
    };
    if has_credentials == Some(false) && setup.acl.iter().any(Acl::needs_credentials) {
        return Err(ConnectError::NoCredentials { servers: servers.given().to_owned() });
    }
    let mut connector = setup.connector.unwrap_or_else(zk::Client::connector);
    for (scheme, credentials) in &setup.auth {
        connector = connector.with_auth(scheme, credentials);
    }
    let mut dialer = Dialer::new(
        servers,
        connector,
        // ZooKeeper counts milliseconds in 32 bits.
        setup.session_timeout.clamp(Duration::from_millis(1), Duration::from_millis(i32::MAX as u64)),
        setup.connect_timeout,
        setup.retry,
    );
    let given = dialer.servers().given().to_owned();
    let failed = |error| ConnectError::Setup { servers: given.clone(), source: Arc::new(error) };
    lease_timer::start().map_err(failed)?;
    let runtime = runtime::Builder::new_current_thread().enable_time().build().map_err(failed)?;
    let shared = Shared::new();
    let (cleanup, reap) = Cleanup::new();
    // Made before the first try: if this future is dropped, its drop stops the thread.
    let core = Arc::new(Core {
        shared: Arc::clone(&shared),
        runtime: runtime.handle().clone(),
        cleanup: cleanup.clone(),
        retry: setup.retry,
        connect_timeout: setup.connect_timeout,
        namespace,
        acl: setup.acl.into(),
        has_credentials,
        no_containers: AtomicBool::new(false),
    });
    let contact = setup.lease;
    let (connected, first) = oneshot::channel();
    // A thread of its own, as Java's client has: an executor that is blocked must not lose the lock
    // (docs/protocol.md#session-thread).
    let run = move || {
        runtime.block_on(async move {
            let mut stop = shared.stop.subscribe();
            let dialled = tokio::select! {
                dialled = dialer.dial() => dialled,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            match dialled {
                Ok(handle) => {
                    tokio::spawn(reap);
                    // Before the caller hears of it, who may ask for the session at once.
                    let session = Session::new(1, handle, contact.margin, cleanup.clone());
                    shared.begin(&session);
                    // If the caller has gone, so has the client, and the supervisor closes the session.
                    let _ = connected.send(Ok(()));
                    supervise(shared, session, Some(dialer), cleanup, contact).await;
                }
                // The caller may have gone; nobody else wants to know.
                Err(error) => drop(connected.send(Err(error))),
            }
        });
    };
    thread::Builder::new().name("zookeeper-recipes".to_owned()).spawn(run).map_err(failed)?;
    match first.await {
        Ok(Ok(())) => Ok(core),
        Ok(Err(error)) => Err(error),
        // The thread ended without a word: it cannot, short of a panic in the client library.
        Err(gone) => Err(ConnectError::Setup { servers: given, source: Arc::new(gone) }),
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

/// The core of a client on a session that it does not own; see [`Client::from_session`].
pub(crate) fn borrow(handle: zk::Client) -> Result<Arc<Core>, ConnectError> {
    let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
    if !has_timers() {
        return Err(ConnectError::NoRuntime);
    }
    if handle.state().is_terminated() {
        return Err(ConnectError::SessionEnded);
    }
    let failed =
        |error| ConnectError::Setup { servers: "a borrowed session".to_owned(), source: Arc::new(error) };
    lease_timer::start().map_err(failed)?;
    let shared = Shared::new();
    let (cleanup, reap) = Cleanup::new();
    runtime.spawn(reap);
    let contact = LeaseOptions::default();
    let session = Session::new(1, handle, contact.margin, cleanup.clone());
    shared.begin(&session);
    runtime.spawn(supervise(Arc::clone(&shared), session, None, cleanup.clone(), contact));
    let defaults = Setup::default();
    Ok(Arc::new(Core {
        shared,
        runtime,
        cleanup,
        retry: defaults.retry,
        connect_timeout: defaults.connect_timeout,
        namespace: String::new(),
        acl: defaults.acl.into(),
        has_credentials: None,
        no_containers: AtomicBool::new(false),
    }))
}
