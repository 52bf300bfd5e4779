//! The execution environment: threads, runtimes, the clock, the mutex, and wakers whose panics are
//! contained. All of the session and the engine use this module. No other part of the library
//! starts a thread or a runtime, or reads this clock.

#[cfg_attr(simulation, path = "../../../simulation/threads.rs")]
pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod waker;

/// A future whose type its user does not know.
pub(crate) type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
