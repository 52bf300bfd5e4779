//! The guard of a held lock.

use std::time::Duration;

use crate::engine::room::Hold;
use crate::error::{Lost, ReleaseError};
use crate::token::FencingToken;

/// A lock that this process holds.
///
/// **Dropping it gives the lock back**, in the background: the node's deletion is handed to a task that repeats it
/// until the node is gone or the session over. The drop itself never blocks and never panics, and works outside of a
/// runtime. [`release`](Self::release) does the same and reports. The guard can be sent to other threads and
/// tasks and be released there. It cannot be cloned.
///
/// # What it proves, and what it does not
/// While the session lives, nobody else is granted the lock. A session can end under its holder: when the
/// servers do not hear from this process for the session timeout they delete its nodes and give the lock on. The
/// guard then turns [lost](Self::lost), as soon as this process learns of it, which can be *after* somebody else
/// was granted the lock; and a process that is paused learns nothing at all. So a lock alone protects nothing that can be
/// written by a process that was away: give the [`fencing_token`](Self::fencing_token) to the resource and let it
/// refuse older ones.
#[must_use = "dropping the guard gives the lock back at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Whether the lock is still held, as far as this process knows. Advisory: it may be lost the moment after; only
    /// the [token](Self::fencing_token) is proof to others.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.lost().is_none()
    }

    /// Resolves when the lock is lost: its session has expired or was replaced, or the client was closed. It never
    /// resolves because of a release. Does not borrow the guard, so it can be given to another task.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; a later one resolves at once if the lock was lost in between.
    ///
    /// ```no_run
    /// # async fn example(guard: zookeeper_recipes::LockGuard) {
    /// # async fn sell() {}
    /// tokio::select! {
    ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
    ///     () = sell() => drop(guard),
    /// }
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        let lost = self.hold.when_lost();
        let path = self.path().into();
        async move { Lost { path, reason: lost.await } }
    }

    /// The number by which a resource can tell this grant from earlier ones; see [`FencingToken`].
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.token()
    }

    /// The path of the lock node, without the client's namespace.
    #[must_use]
    pub fn node(&self) -> String {
        let path = self.hold.room().path();
        path.to_user(&path.child(self.hold.node())).to_owned()
    }

    /// The lock's path, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        self.hold.room().path().user()
    }

    /// Gives the lock back and waits until a server has confirmed it.
    ///
    /// It waits for as long as it takes to know: with no server in reach until the session is over, which is
    /// about 1.4 times the session timeout. Wrap it in [`tokio::time::timeout`] to wait less; the release goes on.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] if the lock had been lost before: what was done under it since may have overlapped
    /// with another holder. [`ReleaseError::Refused`] if the ACL does not let this client delete its own node. In no case is
    /// there anything to repeat.
    ///
    /// # Cancel safety
    /// The lock is given back in any case, from the moment of the call; dropping the future loses the report.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send + 'static {
        let lost = self.hold.lost();
        let path = self.path().into();
        let released = self.hold.release();
        async move {
            let result = released.await;
            match lost {
                Some(reason) => Err(ReleaseError::Lost(Lost { path, reason })),
                None => result,
            }
        }
    }
}

/// The time of a call, as an instant; nothing when it is so long that the clock has no such instant.
pub(crate) fn after(timeout: Duration) -> Option<std::time::Instant> {
    // tokio's timers reach about two years; an instant beyond that would be moved up silently.
    const LONG: Duration = Duration::from_secs(60 * 60 * 24 * 365);
    if timeout > LONG { None } else { std::time::Instant::now().checked_add(timeout) }
}
