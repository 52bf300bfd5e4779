//! ZooKeeper servers that are set up for TLS and SASL.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use test_support::{Options, SOON, ZooKeeper};
use zookeeper_recipes::{Client, ClientBuilder, TlsOptions};

use super::Outcome;
use super::certificates::Certificates;

pub(crate) const USER: &str = "shop";
pub(crate) const PASSWORD: &str = "geheim, \"2\\ €";
/// The connect timeout of clients that get no session: a server is asked why in its second half.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

/// A server with its certificates.
pub(crate) struct Server {
    pub(crate) zookeeper: ZooKeeper,
    pub(crate) certificates: Certificates,
    directory: TempDir,
}

/// The servers that trials share, each started by the first that needs it.
#[derive(Default)]
pub(crate) struct Servers {
    mutual: Mutex<Option<Result<Arc<Server>, String>>>,
    one_sided: Mutex<Option<Result<Arc<Server>, String>>>,
}

impl Servers {
    /// Returns a server that requires a certificate of its clients, and knows a user by SASL, at
    /// both ports.
    pub(crate) fn mutual(&self) -> Result<Arc<Server>, String> {
        shared(&self.mutual, || {
            let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
            let options = with_sasl(Options::new(), &directory, PASSWORD)
                .setting("ssl.clientAuth", "need")
                .setting(
                    "authProvider.x509",
                    "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                );
            Server::start(directory, options, &["127.0.0.1", "localhost"])
        })
    }

    /// Returns a server that requires no certificate, with one that is for `localhost` only, and
    /// without SASL.
    pub(crate) fn one_sided(&self) -> Result<Arc<Server>, String> {
        shared(&self.one_sided, || {
            let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
            let options = Options::new().setting("ssl.clientAuth", "none");
            Server::start(directory, options, &["localhost"])
        })
    }
}

fn shared(
    server: &Mutex<Option<Result<Arc<Server>, String>>>,
    start: impl FnOnce() -> Result<Server, String>,
) -> Result<Arc<Server>, String> {
    let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
    server.get_or_insert_with(|| start().map(Arc::new)).clone()
}

/// Adds the user to a server's options, by a file in this directory.
pub(crate) fn with_sasl(options: Options, directory: &TempDir, password: &str) -> Options {
    let path = write_jaas(directory, password);
    options
        .setting(
            "authProvider.sasl",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        )
        .jvm_arg(format!(
            "-Djava.security.auth.login.config={}",
            path.display()
        ))
}

/// Writes the servers' JAAS configuration.
pub(crate) fn write_jaas(directory: &TempDir, password: &str) -> PathBuf {
    let path = directory.path().join("jaas.conf");
    let password = password.replace('\\', "\\\\").replace('"', "\\\"");
    let login = "org.apache.zookeeper.server.auth.DigestLoginModule";
    fs::write(
        &path,
        format!("Server {{\n  {login} required user_{USER}=\"{password}\";\n}};\n"),
    )
    .unwrap();
    path
}

impl Server {
    fn start(directory: TempDir, options: Options, hosts: &[&str]) -> Result<Self, String> {
        let certificates = Certificates::new(hosts);
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let ca = file("ca.pem", certificates.ca.pem());
        let server = file("server.pem", certificates.server.pem());
        file("client.pem", certificates.client.certificate.pem());
        file("client-key.pem", certificates.client.key.serialize_pem());
        let options = options
            .secure_port()
            .setting("ssl.keyStore.location", server)
            .setting("ssl.keyStore.type", "PEM")
            .setting("ssl.trustStore.location", ca)
            .setting("ssl.trustStore.type", "PEM");
        let zookeeper = ZooKeeper::standalone(&options).map_err(|error| error.to_string())?;
        Ok(Self {
            zookeeper,
            certificates,
            directory,
        })
    }

    /// Returns the file of this name among `ca.pem`, `client.pem`, `client-key.pem` and
    /// `server.pem`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the server's address for clients with TLS, with this host name.
    pub(crate) fn secure(&self, host: &str) -> String {
        format!("{host}:{}", self.zookeeper.secure_address(0).port())
    }

    /// Returns the server's address for clients without TLS.
    pub(crate) fn plain(&self) -> String {
        self.zookeeper.connect_string()
    }

    /// Returns options with the server's CA.
    pub(crate) fn options(&self) -> TlsOptions {
        TlsOptions::new().ca_file(self.file("ca.pem"))
    }

    /// Returns options with the server's CA and the client's certificate.
    pub(crate) fn options_with_identity(&self) -> TlsOptions {
        self.options()
            .identity_files(self.file("client.pem"), self.file("client-key.pem"))
    }

    pub(crate) fn builder_with_identity(&self) -> ClientBuilder {
        builder().tls(self.options_with_identity())
    }
}

pub(crate) fn builder() -> ClientBuilder {
    // The timeout is longer than `within` waits, so that a call that must end at once does not end
    // by it.
    Client::builder().connect_timeout(2 * SOON)
}

pub(crate) fn run(trial: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(trial)
}
