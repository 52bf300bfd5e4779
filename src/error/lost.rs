//! How a lock was lost.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::values::shown::{Quoted, debug_as_text};

/// The loss of a lock whose guard still exists. Another process may hold the lock now.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, LostReason};
///
/// let guard = InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?;
/// # server.expire_session(client.session_id().unwrap());
/// // The servers expire the session.
/// let lost = guard.lost().await;
/// assert_eq!(lost.reason(), LostReason::SessionExpired);
/// assert_eq!(lost.to_string(), "the lock \"/inventory/sku-42\" is lost: its session expired");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error("the lock {path} is lost: {reason}", path = Quoted(.path))]
pub struct Lost {
    pub(crate) path: Arc<str>,
    pub(crate) reason: LostReason,
}

impl Lost {
    /// Returns the way in which the lock was lost.
    #[must_use]
    pub fn reason(&self) -> LostReason {
        self.reason
    }

    /// Returns the lock's path, without the client's namespace.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns `false`: a guard that has lost its lock never gets it back. Acquire the lock again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// The way in which a lock was lost.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{InterProcessMutex, LostReason};
///
/// let guard = InterProcessMutex::new(&client, "/inventory/sku-42")?.lock().await?;
/// # server.delete(&guard.node())?;
/// // An administrator deletes the node of the lock. The heartbeat notices it within a sixth of the session
/// // timeout, a transaction at once.
/// # let _ = guard.transaction().check("/inventory", None).commit().await;
/// match guard.lost().await.reason() {
///     LostReason::NodeDeleted => eprintln!("the node of the lock was deleted"),
///     LostReason::LeaseExpired | LostReason::SessionExpired => panic!("the servers were away"),
///     other => panic!("{other}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The session expired: the servers had not heard from this client for the session timeout, or
    /// this client had not heard from them.
    SessionExpired,
    /// On a reconnect, a server created another session for this client, instead of resuming the
    /// lock's session.
    SessionReplaced,
    /// The node of the lock was deleted, by an administrator or another program.
    NodeDeleted,
    /// The session lease expired: no server has confirmed the session for the session timeout less
    /// the [margin](crate::LeaseMargin), so the servers may soon grant the lock to another process.
    /// If the session has survived, they do not do so before the last guard of this hold is
    /// dropped, or the session timeout has passed since the last renewal.
    LeaseExpired,
    /// The lease that the caller had set by
    /// [`acquire_with_lease`](crate::InterProcessMutex::acquire_with_lease) or
    /// [`set_lease`](crate::LockGuard::set_lease) ended: the holder was notified, and then the lock
    /// was released, so that another process may hold it. Unlike
    /// [`LeaseExpired`](Self::LeaseExpired), this reason does not mean a fault of the servers or
    /// the session.
    LeaseOver,
    /// The client was closed.
    Closed,
    /// The leadership was given up by this participant of the election: its latch was closed or
    /// dropped, or its selector was [interrupted](crate::LeaderSelector::interrupt_leadership). Also
    /// the state of a [`OnceRun`](crate::OnceRun::state) whose job has ended.
    GivenUp,
    /// ZooKeeper refused the requests that would have shown the outcome of a
    /// [`downgrade`](crate::WriteGuard::downgrade), so it is unknown whether the lock is held for
    /// reading or for writing. The client deletes both nodes; if ZooKeeper refuses that too, the
    /// node that exists stays until the session ends.
    NotConverted,
}

impl LostReason {
    /// Returns the reason as a label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::SessionExpired => "session_expired",
            Self::SessionReplaced => "session_replaced",
            Self::NodeDeleted => "node_deleted",
            Self::LeaseExpired => "lease_expired",
            Self::LeaseOver => "lease_over",
            Self::Closed => "closed",
            Self::NotConverted => "not_converted",
            Self::GivenUp => "given_up",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionExpired => "its session expired",
            Self::SessionReplaced => "a server replaced its session by another",
            Self::NodeDeleted => "its node was deleted",
            Self::LeaseExpired => "no server confirmed its session in time",
            Self::LeaseOver => "its lease is over",
            Self::Closed => "its client was closed",
            Self::GivenUp => "it was given up",
            Self::NotConverted => "ZooKeeper refused a request of its downgrade",
        })
    }
}

debug_as_text!(Lost);
