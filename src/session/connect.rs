//! Gets sessions from the servers.

use std::pin::pin;
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::error::{ConnectError, ServerFailures};
use crate::protocol::server_timeout::{Patience, effective};
use crate::session::probe::ask_before;
use crate::session::retry::RetryPolicy;
use crate::session::servers::Servers;
use crate::session::zk_session::cause;

/// How to get sessions, and what was learned about the servers by it.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    servers: Servers,
    connector: zk::Connector,
    session_timeout: Duration,
    connect_timeout: Duration,
    retry: RetryPolicy,
    /// What the servers made of the session timeout the last time.
    granted: Option<Duration>,
    /// For the next session.
    pub(super) patience: Patience,
    /// Of the last session, which keeps it.
    present_patience: Duration,
}

impl Dialer {
    pub(super) fn new(
        servers: Servers,
        connector: zk::Connector,
        session_timeout: Duration,
        connect_timeout: Duration,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            servers,
            connector,
            session_timeout,
            connect_timeout,
            retry,
            granted: None,
            patience: Patience::default(),
            present_patience: Duration::ZERO,
        }
    }

    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// For how long a server may be silent in the session that was established last.
    pub(super) fn present_patience(&self) -> Duration {
        self.present_patience
    }

    /// One try to establish a session, within the connect timeout.
    pub(super) async fn dial(&mut self) -> Result<zk::Client, ConnectError> {
        self.dial_with(self.patience).await
    }

    /// The same, with this patience for as long as no server has answered.
    ///
    /// The library fixes the patience of a session when it connects, and only then is the session timeout known that it
    /// goes by. So where the servers granted another than was expected, the session is exchanged for one with the right patience,
    /// once; the next time that timeout is expected. If they give no second session in time, the first will do.
    async fn dial_with(&mut self, patience: Patience) -> Result<zk::Client, ConnectError> {
        let started = Instant::now();
        let expected = self.granted.unwrap_or(self.session_timeout);
        let handle =
            self.connect(patience.with(expected, self.connect_timeout), self.connect_timeout).await?;
        let right = self.patience.with(handle.session_timeout(), self.connect_timeout);
        if self.present_patience == effective(right, handle.session_timeout()) {
            return Ok(handle);
        }
        let (granted, present) = (self.granted, self.present_patience);
        match self.connect(right, self.connect_timeout.saturating_sub(started.elapsed())).await {
            // The first has no nodes, and is closed by its drop.
            Ok(exchanged) => Ok(exchanged),
            Err(error) => {
                tracing::debug!(%error, "a session with another patience was not to be had");
                (self.granted, self.present_patience) = (granted, present);
                Ok(handle)
            }
        }
    }

    /// Establishes a session that gives a server up that is silent for as long as `patience`, while it connects and later.
    async fn connect(&mut self, patience: Duration, timeout: Duration) -> Result<zk::Client, ConnectError> {
        let servers = || self.servers.given().to_owned();
        let dialled = async {
            loop {
                let connector = self.connector.clone();
                let connector = connector.with_session_timeout(self.session_timeout);
                let connector = connector.with_connection_timeout(patience);
                match connector.connect(self.servers.repeated()).await {
                    // It gives up after the session timeout, which may be shorter than ours.
                    Err(zk::Error::Timeout) => {}
                    result => return result,
                }
            }
        };
        let mut dialled = pin!(tokio::time::timeout(timeout, dialled));
        // Why there is none the library does not tell, so they are asked while there is still time.
        let mut asking = pin!(ask_before(timeout, &self.servers));
        let (result, asked) = tokio::select! {
            biased;
            result = dialled.as_mut() => (result, None),
            asked = asking.as_mut() => (dialled.as_mut().await, Some(asked)),
        };
        let error = match result {
            Ok(Ok(handle)) => {
                let granted = handle.session_timeout();
                self.granted = Some(granted);
                self.present_patience = effective(patience, granted);
                return Ok(handle);
            }
            Ok(Err(zk::Error::AuthFailed)) => return Err(ConnectError::AuthFailed { servers: servers() }),
            Ok(Err(error)) if is_of_setup(&error) => {
                return Err(ConnectError::Setup { servers: servers(), source: cause(error) });
            }
            Ok(Err(error)) => Some(cause(error)),
            Err(_) => None,
        };
        let failures = match asked {
            Some(failures) => failures,
            None => asking.await,
        };
        let failures = ServerFailures { failures, source: error };
        Err(ConnectError::TimedOut { servers: servers(), timeout, failures })
    }

    /// Tries until there is a session, the policy is exhausted, or retrying is no use.
    pub(super) async fn dial_by_policy(&mut self) -> Result<zk::Client, ConnectError> {
        let start = Instant::now();
        let mut patience = self.patience;
        let mut retry = 0;
        loop {
            let error = match self.dial_with(patience).await {
                Ok(handle) => return Ok(handle),
                Err(error) => error,
            };
            let pause = if error.is_retryable() { self.retry.pause(retry, start.elapsed()) } else { None };
            let Some(pause) = pause else { return Err(error) };
            tracing::warn!(%error, ?pause, "no session yet");
            tokio::time::sleep(pause).await;
            retry += 1;
            // A session is established by a write: that may be what takes them longer.
            patience.grow();
        }
    }
}

/// Whether an error is about the client's own options: unusable ones of TLS and SASL come as errors of their own, before any
/// connection is tried. The connect string was read by us before, so it is not to blame.
fn is_of_setup(error: &zk::Error) -> bool {
    matches!(error, zk::Error::BadArguments(_) | zk::Error::Custom(_) | zk::Error::UnexpectedError(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_not_blamed_on_the_connect_string_nor_on_the_servers() {
        assert!(is_of_setup(&zk::Error::BadArguments(&"no tls ca")));
        assert!(!is_of_setup(&zk::Error::ConnectionLoss) && !is_of_setup(&zk::Error::Timeout));
    }
}
