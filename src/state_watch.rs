//! A watch of a state, which returns copies.

use std::fmt;

use tokio::sync::watch;

use crate::session::threads::waker;

/// A watch of the state of a client, of a participant in an election or of a node.
///
/// Returned by `watch_state` of [`Client`](crate::Client::watch_state),
/// [`LeaderLatch`](crate::LeaderLatch::watch_state),
/// [`PersistentNode`](crate::PersistentNode::watch_state) and
/// [`GroupMember`](crate::GroupMember::watch_state). A watch that is slow may miss states in
/// between, but always gets the latest. It keeps nothing open, and continues after the watched
/// object is dropped, up to the last state, which is `Closed`.
///
/// It returns a copy, and calls a predicate with a copy: a caller that is slow, blocks or panics
/// delays neither the session nor another watch. It needs no runtime.
///
/// A clone starts where the original is, and both continue independently.
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
///     while let Some(state) = states.changed().await {
///         println!("{state:?}");
///     }
/// }
///
/// let log = tokio::spawn(log(client.watch_state())); // begins with the state of now
/// client.close().await?;
/// log.await?; // has ended with `Closed`
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StateWatch<S> {
    /// The receiver and its borrows are not handed out: while a borrow is kept, the sender waits,
    /// which is the session's thread (docs/protocol.md#no-lock-across-await). So no code of a
    /// caller runs under its lock either.
    receiver: watch::Receiver<S>,
    is_last: fn(&S) -> bool,
}

impl<S: Copy + Send + Sync> StateWatch<S> {
    /// A watch that has returned nothing. After a state that `is_last` there is no other.
    pub(crate) fn new(mut receiver: watch::Receiver<S>, is_last: fn(&S) -> bool) -> Self {
        receiver.mark_changed();
        Self { receiver, is_last }
    }

    /// Returns the latest state.
    ///
    /// [`changed`](Self::changed) does not count it as returned.
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
    /// client.close().await?;
    /// assert_eq!(states.get(), ConnectionState::Closed);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn get(&self) -> S {
        *self.receiver.borrow()
    }

    /// Waits for a state that this watch has not returned, and returns it. The first call returns
    /// the latest state at once.
    ///
    /// Nothing is lost between two calls: if the state changed then, the next call returns the
    /// latest at once, also where it has changed back.
    ///
    /// Returns `None` after the last state, `Closed`, has been returned.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call returns the state that this one would have returned.
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
    /// assert_eq!(states.changed().await, Some(ConnectionState::Connected)); // at once
    /// client.close().await?;
    /// assert_eq!(states.changed().await, Some(ConnectionState::Closed));
    /// assert_eq!(states.changed().await, None);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<S> {
        let (state, is_new) = self.take();
        if is_new {
            return Some(state);
        }
        // The sender may live for long after its last state.
        if (self.is_last)(&state) {
            return None;
        }
        // An error means that there is no sender any more.
        waker::contain(self.receiver.changed()).await.ok()?;
        Some(self.take().0)
    }

    /// Waits for a state for which `predicate` is true, and returns it; at once if it is true for
    /// the latest.
    ///
    /// States that come and go while the predicate runs, or before this is polled, may be missed.
    ///
    /// Returns `None` if it is not true for the last state, `Closed`.
    ///
    /// # Cancel safety
    /// Cancel safe: this only waits. If the future is dropped, if the predicate panics or if `None`
    /// is returned, [`changed`](Self::changed) returns the same state as without this call.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = zookeeper_test_server::Server::start()?;
    /// # let client = zookeeper_recipes::Client::connect(&server.connect_string()).await?;
    /// use zookeeper_recipes::{PersistentNode, PersistentNodeState};
    ///
    /// let node = PersistentNode::new(&client, "/services/web/web-1", "10.0.0.7:80")?;
    /// let mut states = node.watch_state();
    /// states.wait_for(|state| *state == PersistentNodeState::Present).await.ok_or("closed")?;
    /// # assert!(server.exists(node.path()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_for(&mut self, mut predicate: impl FnMut(&S) -> bool) -> Option<S> {
        // The watch advances only when a state is returned: states that only the predicate has seen
        // do not count.
        let mut ahead = self.clone();
        let (mut state, _) = ahead.take();
        while !predicate(&state) {
            state = ahead.changed().await?;
        }
        *self = ahead;
        Some(state)
    }

    /// Returns the latest state, which counts as returned from now on, and whether it did not
    /// before.
    fn take(&mut self) -> (S, bool) {
        let state = self.receiver.borrow_and_update();
        (*state, state.has_changed())
    }
}

impl<S: Copy + fmt::Debug + Send + Sync> fmt::Debug for StateWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The state is a copy, because the writer may block.
        f.debug_tuple("StateWatch").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use test_support::SOON;
    use tokio_test::{assert_pending, assert_ready_eq, task};

    use super::*;

    /// The last state.
    const LAST: u32 = 100;

    fn watch() -> (watch::Sender<u32>, StateWatch<u32>) {
        let (sender, receiver) = watch::channel(1);
        (sender, StateWatch::new(receiver, |state| *state == LAST))
    }

    /// Returns what `changed` returns at once, without a runtime.
    #[track_caller]
    fn changes(watch: &mut StateWatch<u32>) -> Option<u32> {
        match task::spawn(watch.changed()).poll() {
            std::task::Poll::Ready(state) => state,
            std::task::Poll::Pending => panic!("no change"),
        }
    }

    #[test]
    fn changes_are_returned_once() {
        let (sender, mut watch) = watch();
        assert_eq!(watch.get(), 1);
        assert_eq!(
            changes(&mut watch),
            Some(1),
            "at once, and `get` does not count"
        );
        assert_pending!(task::spawn(watch.changed()).poll());
        sender.send_replace(2);
        sender.send_replace(3);
        assert_eq!(watch.get(), 3);
        assert_eq!(changes(&mut watch), Some(3));
        let mut changed = task::spawn(watch.changed());
        assert_pending!(changed.poll());
        sender.send_replace(2);
        sender.send_replace(3);
        assert!(changed.is_woken());
        assert_ready_eq!(changed.poll(), Some(3), "it has changed back");
    }

    // Shows: no-lock-across-await
    #[test]
    fn dropped_call_takes_nothing() {
        let (sender, mut watch) = watch();
        assert_eq!(changes(&mut watch), Some(1));
        {
            let mut changed = task::spawn(watch.changed());
            assert_pending!(changed.poll());
            sender.send_replace(2);
        }
        assert_eq!(changes(&mut watch), Some(2));
        sender.send_replace(3);
        assert_pending!(task::spawn(watch.wait_for(|state| *state == 4)).poll());
        assert_eq!(changes(&mut watch), Some(3));
    }

    #[test]
    fn awaited_state_is_returned_once() {
        let (sender, mut watch) = watch();
        assert_ready_eq!(
            task::spawn(watch.wait_for(|state| *state == 1)).poll(),
            Some(1)
        );
        assert_ready_eq!(
            task::spawn(watch.wait_for(|state| *state == 1)).poll(),
            Some(1),
            "for the latest"
        );
        let mut clone = watch.clone();
        assert_pending!(
            task::spawn(clone.changed()).poll(),
            "nor does the clone return it"
        );
        {
            let mut waiting = task::spawn(watch.wait_for(|state| *state == 3));
            assert_pending!(waiting.poll());
            sender.send_replace(2);
            assert_pending!(waiting.poll());
            sender.send_replace(3);
            assert!(waiting.is_woken());
            assert_ready_eq!(waiting.poll(), Some(3));
        }
        assert_pending!(task::spawn(watch.changed()).poll());
        assert_eq!(changes(&mut clone), Some(3), "which goes on by itself");
    }

    // Shows: no-lock-across-await
    #[test]
    fn panicking_predicate_takes_nothing() {
        let (sender, mut watch) = watch();
        let panics = |_: &u32| panic!("as the test asked for");
        catch_unwind(AssertUnwindSafe(|| {
            task::spawn(watch.wait_for(panics)).poll()
        }))
        .unwrap_err();
        assert_eq!(changes(&mut watch), Some(1));
        sender.send_replace(2);
        assert_eq!(changes(&mut watch), Some(2));
    }

    #[test]
    fn nothing_comes_after_the_last_state() {
        let (sender, mut watch) = watch();
        let mut waiting = watch.clone();
        let mut waiting = task::spawn(waiting.wait_for(|state| *state == 2));
        assert_pending!(waiting.poll());
        sender.send_replace(LAST);
        assert!(waiting.is_woken());
        assert_ready_eq!(waiting.poll(), None);
        assert_ready_eq!(
            task::spawn(watch.wait_for(|state| *state == 2)).poll(),
            None
        );
        assert_eq!(changes(&mut watch), Some(LAST), "it has not been returned");
        assert_eq!(changes(&mut watch), None);
        assert_eq!(changes(&mut watch), None);
        assert_ready_eq!(
            task::spawn(watch.wait_for(|state| *state == LAST)).poll(),
            Some(LAST)
        );
    }

    #[test]
    fn nothing_comes_without_a_sender() {
        let (sender, mut watch) = watch();
        sender.send_replace(2);
        drop(sender);
        assert_ready_eq!(
            task::spawn(watch.wait_for(|state| *state == 3)).poll(),
            None
        );
        assert_eq!(changes(&mut watch), Some(2));
        assert_eq!(changes(&mut watch), None);
        assert_eq!(watch.get(), 2);
    }

    /// The writer to which the copy is formatted may block while another state is sent.
    #[test]
    fn shows_copy_of_latest_state() {
        struct Writer(Arc<watch::Sender<u32>>);

        impl fmt::Write for Writer {
            fn write_str(&mut self, _: &str) -> fmt::Result {
                let (sender, (told, is_told)) = (Arc::clone(&self.0), mpsc::channel());
                thread::spawn(move || told.send(sender.send_replace(2)));
                is_told.recv_timeout(SOON).map(drop).map_err(|_| fmt::Error)
            }
        }

        let (sender, watch) = watch();
        assert_eq!(format!("{watch:?}"), "StateWatch(1)");
        fmt::write(&mut Writer(Arc::new(sender)), format_args!("{watch:?}")).unwrap();
        assert_eq!(format!("{watch:?}"), "StateWatch(2)");
    }
}
