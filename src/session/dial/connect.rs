//! Establishes sessions with the servers: one try, or tries by the retry policy.
//!
//! The client library tries one server after another, and does not report why a try fails. So
//! shortly before the connect timeout, separate connections ask each server why it creates no
//! session ([`probe`](super::probe)); the error contains the answers
//! (docs/protocol.md#connect-errors). If the servers grant a session timeout other than the one
//! from which the server timeout was calculated, the session is exchanged, once, for one with the
//! right server timeout (docs/protocol.md#server-timeout).
//!
//! The [`Dialer`] also ends the sessions before the current one, because ending a session needs the
//! same servers and options ([`earlier`](super::earlier)).

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zookeeper_client as zk;

use crate::error::{Cause, ConnectError, FailedServer, ServerFailures};
use crate::protocol::server_timeout::{ServerTimeout, effective};
use crate::session::dial::earlier::{Earlier, Ending};
use crate::session::dial::probe::{Handshake, ask_before, not_asked};
use crate::session::dial::resources;
use crate::session::dial::servers::Servers;
use crate::session::dial::spare::Spare;
use crate::session::live::zk_session::{Session, cause};
use crate::session::reports::log;
use crate::session::request::retry::RetryPolicy;
use crate::session::threads::waker;

/// How sessions are established.
pub(crate) struct DialOptions {
    pub(crate) servers: Servers,
    pub(crate) connector: zk::Connector,
    /// How to ask a server over TLS why it creates no session.
    pub(crate) handshake: Option<Handshake>,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) retry: RetryPolicy,
}

/// Establishes sessions, and remembers facts about the servers.
pub(crate) struct Dialer {
    options: DialOptions,
    /// The session timeout that the servers granted last.
    granted: Option<Duration>,
    /// The server timeout of the next session.
    pub(crate) next_server_timeout: ServerTimeout,
    /// The server timeout of the last session, which applies for as long as that session lives.
    pub(crate) server_timeout: Duration,
    /// The sessions before that.
    earlier: Earlier,
}

impl Dialer {
    pub(crate) fn new(options: DialOptions) -> Self {
        Self {
            options,
            granted: None,
            next_server_timeout: ServerTimeout::default(),
            server_timeout: Duration::ZERO,
            earlier: Earlier::default(),
        }
    }

    /// Tries once to establish a session, within the connect timeout.
    pub(crate) async fn dial(&mut self) -> Result<zk::Client, ConnectError> {
        self.dial_with(self.next_server_timeout).await
    }

    /// Does the same as [`dial`](Self::dial), with the given server timeout until a server has
    /// answered.
    ///
    /// The client library fixes the server timeout of a session when it connects, but the session
    /// timeout, from which it is calculated, is known only afterwards. If the servers grant a
    /// session timeout other than the expected one, the session is exchanged, once, for one with
    /// the right server timeout, and the next connect expects that session timeout. If the second
    /// session is not established in time, the first one is used.
    async fn dial_with(
        &mut self,
        server_timeout: ServerTimeout,
    ) -> Result<zk::Client, ConnectError> {
        let started = Instant::now();
        // The servers bring each requested session timeout within their own limits, so they usually
        // grant the one that they granted last.
        let expected = self.granted.unwrap_or(self.options.session_timeout);
        let first = server_timeout.duration(expected, self.options.connect_timeout);
        let handle = self.connect(first, self.options.connect_timeout).await?;
        // The doublings of `dial_by_policy` only apply until a session is established, so the right
        // server timeout does not include them.
        let right = self
            .next_server_timeout
            .duration(handle.session_timeout(), self.options.connect_timeout);
        // The client library replaces a server timeout that is too long, so the effective timeouts
        // are compared.
        if self.server_timeout == effective(right, handle.session_timeout()) {
            return Ok(handle);
        }
        match self
            .connect(
                right,
                self.options
                    .connect_timeout
                    .saturating_sub(started.elapsed()),
            )
            .await
        {
            // The first session has no nodes, and its drop closes it.
            Ok(exchanged) => {
                self.earlier.end(
                    Ending::new(&handle),
                    self.connector(right),
                    self.repeated_list(),
                );
                Ok(exchanged)
            }
            Err(error) => {
                // The first session is usable. Only its server timeout is not the right one.
                log::debug!(%error, "no second session, with another server timeout: the first one is kept");
                Ok(handle)
            }
        }
    }

    /// Ends the former current session on the servers too. If the client gave that session up
    /// because no server could be reached, its end begins with
    /// [`end_given_up`](Self::end_given_up).
    pub(crate) fn end_last(&mut self, ending: Ending) {
        let connector = self.connector(self.server_timeout);
        self.earlier
            .end_last(ending, connector, self.repeated_list());
    }

    /// Ends the last session if the client has given it up, now that a server may be reachable.
    pub(crate) fn end_given_up(&mut self) {
        let connector = self.connector(self.server_timeout);
        self.earlier.end_given_up(connector, self.repeated_list());
    }

    /// Waits until the servers have confirmed the end of all earlier sessions, for at most
    /// `timeout`. Returns whether they have.
    pub(crate) async fn all_ended(&mut self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.earlier.all_ended()).await == Ok(true)
    }

    /// Returns how to make spare connections for the session that was established last.
    pub(crate) fn spare(&self, session: &Session) -> Option<Spare> {
        // A spare connection is made to one server at a time, so the list contains each server
        // once.
        let servers = self.options.servers.addresses.to_vec();
        Spare::new(
            session,
            self.connector(self.server_timeout),
            servers,
            self.server_timeout,
        )
    }

    /// Returns the list of servers that is passed to the client library.
    fn repeated_list(&self) -> String {
        self.options
            .servers
            .repeated_list(self.granted.unwrap_or(self.options.session_timeout))
    }

    fn connector(&self, server_timeout: Duration) -> zk::Connector {
        // Each session requests the timeout of the options, not the one that was granted last,
        // because the limits of the servers may have changed.
        let connector = self
            .options
            .connector
            .clone()
            .with_session_timeout(self.options.session_timeout);
        connector.with_connection_timeout(server_timeout)
    }

    /// Establishes a session that leaves a server that is silent for `server_timeout`, both while
    /// it connects and later.
    async fn connect(
        &mut self,
        server_timeout: Duration,
        timeout: Duration,
    ) -> Result<zk::Client, ConnectError> {
        let servers = || self.options.servers.given.to_owned();
        let began = Instant::now();
        // Without these resources the first connection may end the client library's reactor for the
        // life of the process.
        if let Err(error) = resources::available(timeout).await {
            return Err(self.timed_out(timeout, not_asked(&self.options.servers, &error), None));
        }
        let left = timeout.saturating_sub(began.elapsed());
        let connector = self.connector(server_timeout);
        let repeated_list = self.repeated_list();
        let dialled = async {
            loop {
                match waker::connect(connector.clone(), &repeated_list).await {
                    // The client library gives up after the session timeout, which may be shorter
                    // than the connect timeout.
                    Err(zk::Error::Timeout) => {}
                    result => return result,
                }
            }
        };
        let mut dialled = pin!(tokio::time::timeout(left, dialled));
        // The client library does not report why it got no session, so the servers are asked while
        // there is still time.
        let mut asking = pin!(ask_before(
            left,
            &self.options.servers,
            self.options.handshake.as_ref()
        ));
        let (result, asked) = tokio::select! {
            // A session that is established while the last answers arrive counts.
            biased;
            result = dialled.as_mut() => (result, None),
            // The answers usually come before the timeout. The tries continue until then, because a
            // server may become ready in the meantime.
            asked = asking.as_mut() => (dialled.as_mut().await, Some(asked)),
        };
        let error = match result {
            Ok(Ok(handle)) => {
                // The reactor works from now on, so no later try needs to check the resources.
                resources::connected();
                let granted = handle.session_timeout();
                self.granted = Some(granted);
                self.server_timeout = effective(server_timeout, granted);
                return Ok(handle);
            }
            Ok(Err(zk::Error::AuthFailed)) => {
                // The refusal itself is the reason, so the answers of the servers are not awaited.
                return Err(ConnectError::AuthFailed { servers: servers() });
            }
            Ok(Err(error)) if is_setup_error(&error) => {
                return Err(ConnectError::Setup {
                    servers: servers(),
                    source: cause(error),
                });
            }
            Ok(Err(error)) => Some(cause(error)),
            Err(_) => None,
        };
        // If the tries ended before the servers were asked, or before all of them answered, the
        // answers are awaited here.
        let failures = match asked {
            Some(failures) => failures,
            None => asking.await,
        };
        Err(self.timed_out(timeout, failures, error))
    }

    fn timed_out(
        &self,
        timeout: Duration,
        failures: Vec<FailedServer>,
        error: Option<Cause>,
    ) -> ConnectError {
        let source = Arc::new(ServerFailures::new(&failures, error));
        let failures = failures
            .into_iter()
            .map(|failed| (failed.server, failed.failure))
            .collect();
        ConnectError::TimedOut {
            servers: self.options.servers.given.to_owned(),
            timeout,
            failures,
            source,
        }
    }

    /// Tries to establish a session until it succeeds, the retry policy is exhausted, or an error
    /// is not retryable. Calls `failed` with the error of each try that fails.
    pub(crate) async fn dial_by_policy(
        &mut self,
        failed: impl Fn(&ConnectError),
    ) -> Result<zk::Client, ConnectError> {
        let start = Instant::now();
        let mut server_timeout = self.next_server_timeout;
        let mut retry = 0;
        loop {
            let error = match self.dial_with(server_timeout).await {
                Ok(handle) => return Ok(handle),
                Err(error) => error,
            };
            failed(&error);
            // Refused credentials and unusable options would fail in the same way at each try.
            let pause = if error.is_retryable() {
                self.options.retry.pause(retry, start.elapsed())
            } else {
                None
            };
            let Some(pause) = pause else {
                return Err(error);
            };
            log::warn!(%error, ?pause, "no session yet");
            tokio::time::sleep(pause).await;
            retry += 1;
            // Establishing a session takes a committed write, so slow commits may be the reason for
            // this failure.
            server_timeout.double();
        }
    }
}

/// Returns whether an error is about the client's own options: the client library reports unusable
/// options of TLS and SASL as separate errors, before it tries to connect. The connect string was
/// validated earlier.
fn is_setup_error(error: &zk::Error) -> bool {
    matches!(
        error,
        zk::Error::BadArguments(_) | zk::Error::Custom(_) | zk::Error::UnexpectedError(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: connect-errors
    #[test]
    fn bad_options_blame_no_server() {
        assert!(is_setup_error(&zk::Error::BadArguments(&"no tls ca")));
        assert!(
            !is_setup_error(&zk::Error::ConnectionLoss) && !is_setup_error(&zk::Error::Timeout)
        );
    }
}
