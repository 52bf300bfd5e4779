//! Creates a client from its options, and starts the thread on which its sessions run.
//!
//! Options that no answer of a server could make valid are refused here, before any connection: the
//! connect string, the name, credentials, TLS. Then the lease thread is started, unless the process
//! already has one, and the client's thread, which runs the supervisor and the cleanup. With
//! [`connect`], the caller waits for the first session; with [`connect_lazy`], the calls that need
//! a session wait for it.
//!
//! The core exists before the first session. So if a call that connects is dropped, the core is
//! dropped too, which stops the thread.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;
use zookeeper_client as zk;

use super::core::{Core, GuardChanges};
use super::supervisor::{ClientState, Connected, supervise};
use super::tasks::Tasks;
use crate::error::ConnectError;
#[cfg(feature = "metrics")]
use crate::protocol::labels::Labels;
use crate::session::dial::connect::{DialOptions, Dialer};
use crate::session::dial::probe::Handshake;
#[cfg(feature = "sasl-digest-md5")]
use crate::session::dial::sasl;
use crate::session::dial::servers::Servers;
#[cfg(feature = "tls")]
use crate::session::dial::tls;
use crate::session::leftovers::cleanup::{self, Cleanup};
use crate::session::live::session_lease;
use crate::session::live::zk_session::SessionOptions;
use crate::session::request::retry::RetryPolicy;
use crate::session::threads::background;
use crate::values::contender::Process;
use crate::values::options::{Acl, Credentials};
use crate::values::path::parse_namespace;
#[cfg(feature = "tls")]
use crate::values::tls::TlsOptions;

/// The options of a client.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) namespace: String,
    /// The name of the client; `None` stands for the name of the program.
    pub(crate) name: Option<String>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    pub(crate) connector: Option<zk::Connector>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<TlsOptions>,
    /// User and password of SASL DIGEST-MD5.
    #[cfg(feature = "sasl-digest-md5")]
    pub(crate) sasl: Option<(String, String)>,
    pub(crate) session: SessionOptions,
    /// The path prefixes that are used as labels.
    #[cfg(feature = "metrics")]
    pub(crate) metrics_prefixes: Vec<String>,
}

/// The default is long enough to outlast a hung leader with the servers' default settings: the
/// servers notice the leader after 10 s, and no lock is lost in 15 s without an answer
/// (docs/protocol.md#session-timeout). The default is below the servers' default limit of 40 s.
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of a client's thread.
const NAME: &str = "zk-session";

impl Default for Setup {
    fn default() -> Self {
        Self {
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            retry: RetryPolicy::default(),
            namespace: String::new(),
            name: None,
            acl: vec![Acl::open()],
            auth: Vec::new(),
            connector: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "sasl-digest-md5")]
            sasl: None,
            session: SessionOptions::default(),
            #[cfg(feature = "metrics")]
            metrics_prefixes: Vec::new(),
        }
    }
}

impl Setup {
    /// Returns whether the client authenticates to the servers by other means than the user's
    /// connector.
    fn has_credentials(&self) -> bool {
        // The servers' X509AuthenticationProvider uses the name in the certificate.
        #[cfg(feature = "tls")]
        if self.tls.as_ref().is_some_and(|tls| tls.identity.is_some()) {
            return true;
        }
        #[cfg(feature = "sasl-digest-md5")]
        if self.sasl.is_some() {
            return true;
        }
        !self.auth.is_empty()
    }

    /// Returns the servers, the connector for them, and the function that asks a server over TLS.
    fn connector(
        &self,
        servers: Servers,
    ) -> Result<(Servers, zk::Connector, Option<Handshake>), ConnectError> {
        let mut connector = self.connector.clone().unwrap_or_else(zk::Client::connector);
        for (scheme, credentials) in &self.auth {
            // The client library sends these credentials again on each new connection.
            connector = connector.with_auth(scheme, credentials);
        }
        #[cfg(feature = "sasl-digest-md5")]
        if let Some((user, password)) = &self.sasl {
            let given = || servers.given.to_owned();
            // The client library would send some names and passwords in a form that the servers
            // refuse as wrong credentials, without the reason.
            sasl::check(user, password).map_err(|reason| ConnectError::InvalidCredentials {
                servers: given(),
                reason,
            })?;
            connector = connector.with_sasl(zk::SaslOptions::digest_md5(
                user.to_owned(),
                password.to_owned(),
            ));
        }
        #[cfg(feature = "tls")]
        if let Some(options) = &self.tls {
            let given = servers.given.to_owned();
            let servers =
                servers
                    .by_tls()
                    .map_err(|reason| ConnectError::InvalidConnectString {
                        servers: given.clone(),
                        reason,
                    })?;
            let (options, handshake) =
                tls::prepare(options).map_err(|reason| ConnectError::InvalidTls {
                    servers: given,
                    reason,
                })?;
            return Ok((servers, connector.with_tls(options), Some(handshake)));
        }
        // A connector of the user may have TLS options, which cannot be read from it.
        if self.connector.is_none() && servers.addresses.iter().any(|address| address.tls) {
            let reason = "`tcp+tls://` needs to know a CA: call `tls` of the builder".to_owned();
            return Err(ConnectError::InvalidConnectString {
                servers: servers.given.to_owned(),
                reason,
            });
        }
        Ok((servers, connector, None))
    }
}

/// Connects a new client to `host:port[,host:port…][/namespace]`.
pub(crate) async fn connect(setup: Setup, servers: &str) -> Result<Arc<Core>, ConnectError> {
    let (connected, first) = oneshot::channel();
    // The core is created before the first try. If this future is dropped, the drop of the core
    // stops the thread.
    let core = start(setup, servers, Some(connected))?;
    match first.await {
        Ok(Ok(())) => Ok(core),
        Ok(Err(error)) => Err(error),
        // The thread ended without a result: it has panicked, in the client library or a tracing
        // subscriber.
        Err(gone) => Err(ConnectError::Setup {
            servers: servers.to_owned(),
            source: Arc::new(gone),
        }),
    }
}

/// Creates a new client, which connects in the background.
pub(crate) fn connect_lazy(setup: Setup, servers: &str) -> Result<Arc<Core>, ConnectError> {
    start(setup, servers, None)
}

/// Starts the thread of a new client.
fn start(
    setup: Setup,
    servers: &str,
    connected: Option<Connected>,
) -> Result<Arc<Core>, ConnectError> {
    let unusable = |reason| ConnectError::InvalidConnectString {
        servers: servers.to_owned(),
        reason,
    };
    // Everything that can be refused without a server is refused before a thread is started.
    let servers = Servers::parse(servers).map_err(unusable)?;
    let namespace = parse_namespace(&servers.namespace)? + &parse_namespace(&setup.namespace)?;
    let unusable = |reason| ConnectError::InvalidName {
        name: setup.name.clone().unwrap_or_default(),
        reason,
    };
    // Each node of the client contains this description, and other tools print it, so a name that
    // would spoil a line is refused here.
    let process = Process::new(&host(), setup.name.as_deref()).map_err(unusable)?;
    let credentials = Credentials::new(
        setup.has_credentials(),
        &setup.auth,
        setup.connector.is_some(),
    );
    // With such an ACL the servers refuse each create, or the client locks itself out of the
    // directories that it creates. Neither would show before the first lock.
    if credentials.lack(&setup.acl) {
        return Err(ConnectError::NoCredentials {
            servers: servers.given.to_owned(),
        });
    }
    let (servers, connector, handshake) = setup.connector(servers)?;
    let given = servers.given.clone();
    let dialer = Dialer::new(DialOptions {
        servers,
        connector,
        handshake,
        // The wire format has 32 bits for the number of milliseconds.
        session_timeout: setup.session_timeout.clamp(
            Duration::from_millis(1),
            Duration::from_millis(i32::MAX as u64),
        ),
        connect_timeout: setup.connect_timeout,
        retry: setup.retry,
    });
    let failed = |error| ConnectError::Setup {
        servers: given.clone(),
        source: Arc::new(error),
    };
    // Without the lease thread no task would be woken at a loss, so a client without that thread is
    // not created (docs/protocol.md#telling-a-loss).
    session_lease::start_thread().map_err(failed)?;
    let shared = ClientState::new();
    let (cleanup, queue) = Cleanup::new();
    let options = setup.session;
    let (supervised, cleaned) = (Arc::clone(&shared), cleanup.clone());
    // The session has a separate thread, as in Java's client: a blocked executor must not lose the
    // lock (docs/protocol.md#session-thread).
    let run = async move {
        // Cleanup runs beside the supervisor, because the supervisor may wait for it
        // (`settle_down`).
        let (client_ends, client_ended) = oneshot::channel();
        let cleanup = background::spawn(cleanup::run(queue, client_ended));
        // The supervisor is a task, so that the cleanup ends in order after a panic of the
        // supervisor, too. The drop of `CloseOnDrop` has then closed the client.
        let _ = background::spawn(supervise(supervised, connected, dialer, cleaned, options)).await;
        // Nothing is left to delete: the client's sessions are closed, or expire. Calls that wait
        // for a deletion end. An error means that the cleanup has panicked.
        drop(client_ends);
        let _ = cleanup.await;
    };
    // The runtime ends after the supervisor and the cleanup, and drops all other tasks of the
    // client.
    let runtime = background::start(NAME, run).map_err(failed)?;
    Ok(Arc::new(Core {
        tasks: Tasks::new(runtime, Arc::clone(&shared)),
        shared,
        cleanup,
        retry: setup.retry,
        connect_timeout: setup.connect_timeout,
        namespace,
        acl: setup.acl.into(),
        process,
        credentials,
        no_containers: AtomicBool::new(false),
        #[cfg(feature = "metrics")]
        labels: Labels::new(&setup.metrics_prefixes),
        guard_changes: GuardChanges::default(),
    }))
}

/// Returns the name of this host, as `uname -n` prints it.
#[cfg(unix)]
fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Returns the name of this host.
#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
