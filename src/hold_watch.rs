//! A watch of the locks that the guards of a client hold.

use std::fmt;
use std::sync::Arc;

use crate::engine::holdings;
use crate::engine::path_lock::{Key, PathLock};
use crate::engine::registry::Registry;
use crate::error::Holding;
use crate::session::core::Core;
use crate::session::supervisor::ConnectionState;
use crate::session::waker;

/// A watch of the locks that the guards of a client hold, to wait for in a test or to show in a service.
///
/// Returned by [`Client::watch_holds`](crate::Client::watch_holds). A test that lets a session expire, stops
/// the server or stops the service needs to know first that the lock is held, which the guard, deep in the
/// service, does not tell it. It sees the current holds, and keeps no history: a lock that is acquired and
/// released at once may have been held without being seen. It knows all recipes' guards and permits of this
/// client, not those of other processes, and keeps the client's session open, as a handle does.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use zookeeper_recipes::{Client, InterProcessMutex, LostReason};
///
/// let server = zookeeper_test_server::Server::start()?;
/// let client = Client::connect(&server.connect_string()).await?;
///
/// // The service under test.
/// let mutex = InterProcessMutex::new(&client, "/jobs/nightly")?;
/// let service = tokio::spawn(async move {
///     let guard = mutex.lock().await?;
///     let lost = guard.while_held(std::future::pending::<()>()).await.unwrap_err();
///     Ok::<_, zookeeper_recipes::AcquireError>(lost.reason())
/// });
///
/// let holds = client.watch_holds();
/// holds.held("/jobs/nightly").await.ok_or("closed")?; // now it is in the middle of its work
/// server.expire_session(client.session_id().ok_or("no session")?);
/// assert_eq!(service.await??, LostReason::SessionExpired);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HoldWatch {
    core: Arc<Core>,
    path_locks: Arc<Registry<Key, PathLock>>,
}

impl HoldWatch {
    pub(crate) fn new(core: Arc<Core>, path_locks: Arc<Registry<Key, PathLock>>) -> Self {
        Self { core, path_locks }
    }

    /// Returns the current holds, by the clock, in the order of the paths.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let guard = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
    /// for holding in client.watch_holds().holdings() {
    ///     println!("{holding}");
    /// }
    /// guard.release().await?;
    /// assert!(client.watch_holds().holdings().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn holdings(&self) -> Vec<Holding> {
        holdings::holdings(&self.path_locks)
    }

    /// Waits until a guard holds the lock at `path`; returns at once if one does. Of several holds at the
    /// path one is returned.
    ///
    /// Not before the call that acquires the lock has returned its guard: a session that expires before that
    /// is not a loss, since the call goes on in the next one.
    ///
    /// Returns `None` if the client is closed before that.
    ///
    /// # Cancel safety
    /// Cancel safe: it only waits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let holds = client.watch_holds();
    /// let (guard, holding) = tokio::join!(mutex.lock(), holds.held("/jobs/nightly"));
    /// assert_eq!(holding.ok_or("closed")?.path(), "/jobs/nightly");
    /// # guard?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn held(&self, path: impl AsRef<str>) -> Option<Holding> {
        let held = holdings::held(&self.core, &self.path_locks, path.as_ref());
        let mut states = self.core.watch_state();
        tokio::select! {
            biased;
            holding = held => Some(holding),
            // An error is impossible: the core has the sender.
            _ = waker::contain(states.wait_for(|state| *state == ConnectionState::Closed)) => None,
        }
    }

    /// Waits until no guard of the client holds the lock at `path`: released, dropped or lost. Returns at
    /// once if none does.
    ///
    /// The node of a guard that was dropped may still be there: [`Client::flush`](crate::Client::flush) waits
    /// for its deletion.
    ///
    /// # Cancel safety
    /// Cancel safe: it only waits.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// # let mutex = zookeeper_recipes::InterProcessMutex::new(&client, "/jobs/nightly")?;
    /// let guard = mutex.lock().await?;
    /// let work = tokio::spawn(async move {
    ///     // ..
    ///     guard.release().await
    /// });
    /// client.watch_holds().released("/jobs/nightly").await;
    /// assert!(!mutex.is_acquired_in_this_process());
    /// # work.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn released(&self, path: impl AsRef<str>) {
        holdings::released(&self.core, &self.path_locks, Some(path.as_ref()), || {}).await;
    }
}

impl fmt::Debug for HoldWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.holdings()).finish()
    }
}
