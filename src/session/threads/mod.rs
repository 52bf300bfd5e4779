//! Where things run: threads, runtimes, the clock, the mutex, and wakers that are contained. All of
//! the session and the engine use it. Nothing else in the library starts a thread or a runtime, or
//! reads a clock.

#[cfg_attr(simulation, path = "../../../simulation/threads.rs")]
pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod waker;

/// A future whose type its user does not know.
pub(crate) type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
