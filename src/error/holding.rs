//! A lock that a guard of this client holds.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use crate::values::shown::Quoted;

/// The largest number of held locks that a message names.
const NAMED: usize = 3;

/// A lock that a guard of this client holds: its path, where it was acquired, and how long ago.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::InterProcessMutex;
///
/// let guard = InterProcessMutex::new(&client, "/jobs/nightly")?.lock().await?;
/// for holding in client.holdings() {
///     assert_eq!(holding.path(), "/jobs/nightly");
///     println!("{} since {:?}, by {}", holding.path(), holding.held_for(), holding.location());
/// }
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// In the error of a call that has waited for it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use std::time::Duration;
/// use zookeeper_recipes::{AcquireError, InterProcessMutex};
///
/// let mutex = InterProcessMutex::new(&client, "/inventory/sku-42")?;
/// let guard = mutex.lock().await?;
/// let error = mutex.acquire(Duration::from_millis(20)).await.unwrap_err();
/// let AcquireError::TimedOut { contention, .. } = &error else { panic!("{error}") };
/// let holder = contention.holder.as_ref().unwrap();
/// assert!(holder.held_for() >= Duration::from_millis(20));
/// println!("held since {}", holder.location()); // the line of `mutex.lock()`
/// # guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Holding {
    pub(crate) path: String,
    pub(crate) held_for: Duration,
    pub(crate) location: &'static Location<'static>,
}

impl Holding {
    /// Returns the path of the lock, as it was given.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how long the lock had been held when this value was created.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        self.held_for
    }

    /// Returns the source location of the call that acquired the lock.
    #[must_use]
    pub fn location(&self) -> &'static Location<'static> {
        self.location
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, for {:?}, acquired at {}",
            Quoted(&self.path),
            self.held_for,
            self.location
        )
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Holding({self})")
    }
}

/// Returns the holdings as text, the first few by name.
pub(super) fn listed(held: &[Holding]) -> String {
    let mut text = String::new();
    for (i, holding) in held.iter().take(NAMED).enumerate() {
        text.push_str(if i == 0 { "" } else { "; " });
        text.push_str(&holding.to_string());
    }
    match held.len().saturating_sub(NAMED) {
        0 => {}
        more => text.push_str(&format!("; and {more} more")),
    }
    text
}
