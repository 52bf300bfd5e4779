//! The client, as the command line describes it.

use std::path::Path;
use std::time::Duration;

use zookeeper_recipes::{Acl, Client, ClientBuilder};

use crate::exit::{Failure, USAGE};
use crate::messages::say;
use crate::options::Connection;

/// How long the end of a session may take whose locks are released. After that the process ends,
/// and the servers end the session.
const CLOSING: Duration = Duration::from_secs(5);

const NO_SERVERS: &str =
    "no servers: give --servers HOST:PORT, or set ZK_CONNECT (cron does not inherit it)";

/// Connects to the servers.
pub(crate) async fn connect(options: &Connection) -> Result<Client, Failure> {
    // A cron table may have an empty value by mistake: `ZK_CONNECT=`.
    let servers = options
        .servers
        .as_deref()
        .filter(|servers| !servers.is_empty());
    let servers = servers.ok_or_else(|| Failure::new(USAGE, NO_SERVERS))?;
    let builder = Client::builder()
        .name("zklock")
        .session_timeout(options.session_timeout);
    let builder = with_credentials(with_tls(builder, options), options)?;
    let client = builder.connect(servers).await?;
    if options.has_own_session_timeout() {
        tell_of_another(options.session_timeout, client.session_timeout());
    }
    Ok(client)
}

/// Tells people if the servers have moved the session timeout into their limits. Of the default
/// they are not told: a job of cron is silent.
fn tell_of_another(asked: Duration, granted: Option<Duration>) {
    if let Some(granted) = granted.filter(|granted| granted.as_millis() != asked.as_millis()) {
        say(&format!(
            "the session timeout is {granted:?} instead of {asked:?}, by the limits of the servers"
        ));
    }
}

/// Closes the client, which releases its locks. Returns whether a server has confirmed that in
/// time; if not, the session expires.
pub(crate) async fn close(client: &Client) -> bool {
    let closed = tokio::time::timeout(CLOSING, client.close()).await;
    matches!(closed, Ok(Ok(())))
}

fn with_credentials(
    mut builder: ClientBuilder,
    options: &Connection,
) -> Result<ClientBuilder, Failure> {
    if let Some(file) = &options.auth_file {
        let (scheme, credentials) = pair(file)?;
        builder = builder.auth(scheme, credentials);
    }
    #[cfg(feature = "sasl-digest-md5")]
    if let Some(file) = &options.sasl_file {
        let (user, password) = pair(file)?;
        builder = builder.sasl_digest(user, password);
    }
    if options.private {
        builder = builder.acl([Acl::creator_all()]);
    }
    Ok(builder)
}

#[cfg(feature = "tls")]
fn with_tls(builder: ClientBuilder, options: &Connection) -> ClientBuilder {
    use zookeeper_recipes::TlsOptions;
    let options = &options.tls;
    let Some(authorities) = &options.tls_ca else {
        return builder;
    };
    let mut tls = TlsOptions::new().ca_file(authorities);
    if let (Some(certificate), Some(key)) = (&options.tls_cert, &options.tls_key) {
        tls = tls.identity_files(certificate, key);
    }
    builder.tls(tls)
}

#[cfg(not(feature = "tls"))]
fn with_tls(builder: ClientBuilder, _: &Connection) -> ClientBuilder {
    builder
}

/// Returns the two sides of the first colon of a file. The message does not repeat them: they are
/// secret.
fn pair(file: &Path) -> Result<(String, String), Failure> {
    let failed = |why: &str| Failure::new(USAGE, format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error.to_string()))?;
    let (one, other) = text
        .trim_end()
        .split_once(':')
        .ok_or_else(|| failed("it has no colon"))?;
    Ok((one.to_owned(), other.to_owned()))
}
