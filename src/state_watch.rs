//! A watch of a state.

use std::fmt;

use tokio::sync::watch;

/// A watch of the state of a client's connection, of a leadership or of a persistent node.
///
/// Returned by [`Client::watch_state`](crate::Client::watch_state),
/// [`LeaderLatch::watch_state`](crate::LeaderLatch::watch_state),
/// [`PersistentNode::watch_state`](crate::PersistentNode::watch_state) and
/// [`GroupMember::watch_state`](crate::GroupMember::watch_state). It is a receiver like that of
/// [`tokio::sync::watch`], which may miss states in between and always gets the latest, but lends no reference: however
/// long a caller takes over a state, the client goes on. It keeps neither the client nor its session.
///
/// Its futures need no runtime, and are `Send` and `'static` with what they borrow.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = zookeeper_test_server::Server::start()?;
/// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
/// use zookeeper_recipes::{ConnectionState, StateWatch};
///
/// async fn log(mut states: StateWatch<ConnectionState>) {
///     println!("{:?}", states.get());
///     while let Some(state) = states.changed().await {
///         println!("{state:?}");
///     }
/// }
///
/// let log = tokio::spawn(log(client.watch_state()));
/// client.close().await?;
/// log.await?; // `Closed` was the last one
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StateWatch<S> {
    states: watch::Receiver<S>,
    /// Whether no other state follows one.
    is_last: fn(&S) -> bool,
    /// Whether that one has been returned.
    ended: bool,
}

impl<S: Copy + Send + Sync> StateWatch<S> {
    pub(crate) fn new(states: watch::Receiver<S>, is_last: fn(&S) -> bool) -> Self {
        let mut watch = Self { states, is_last, ended: false };
        // It counts as returned.
        watch.next();
        watch
    }

    /// Returns the state now.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::ConnectionState;
    ///
    /// let states = client.watch_state();
    /// assert_eq!(states.get(), ConnectionState::Connected);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn get(&self) -> S {
        *self.states.borrow()
    }

    /// Waits until the state has changed since this watch was made, or returned one by this method or by
    /// [`wait_for`](Self::wait_for), and returns it. `None` if there is no other one: the last is `Closed`.
    ///
    /// # Cancel safety
    /// If the future is dropped, no state is lost: the next call returns it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::ConnectionState;
    ///
    /// let mut states = client.watch_state();
    /// client.close().await?;
    /// assert_eq!(states.changed().await, Some(ConnectionState::Closed));
    /// assert_eq!(states.changed().await, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<S> {
        if self.ended {
            return None;
        }
        self.states.changed().await.ok()?;
        Some(self.next())
    }

    /// Waits until there is a state that `is_wanted`, the present one included, and returns it. `None` if the last one
    /// is not.
    ///
    /// # Cancel safety
    /// If the future is dropped, the states that were not wanted are not returned by [`changed`](Self::changed) either.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// use zookeeper_recipes::{Client, ConnectionState};
    ///
    /// let client = Client::connect_lazy(&server.connect_string())?;
    /// let connected = |state: &_| *state == ConnectionState::Connected;
    /// client.watch_state().wait_for(connected).await.ok_or("closed")?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&S) -> bool + Send) -> Option<S> {
        loop {
            let state = self.next();
            // Not under the channel's lock, for which the client's thread would wait.
            if is_wanted(&state) {
                return Some(state);
            }
            if self.ended {
                return None;
            }
            self.states.changed().await.ok()?;
        }
    }

    fn next(&mut self) -> S {
        let state = *self.states.borrow_and_update();
        self.ended = (self.is_last)(&state);
        state
    }
}

impl<S: fmt::Debug> fmt::Debug for StateWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StateWatch").field(&*self.states.borrow()).finish()
    }
}
