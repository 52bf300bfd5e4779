//! The execution environment: threads, runtimes, the clock, the mutex, and wakers whose panics are
//! contained. All of the session and the engine use this module. No other part of the library
//! starts a thread or a runtime, or reads this clock.
//!
//! A process has these threads:
//!
//! | thread | number | does |
//! |---|---|---|
//! | `zk-session` | one for each client | requests, heartbeats, attempts, cleanup |
//! | `zk-lease` | one | notifies holders when a lease ends by the clock |
//! | `zk-journal` | one, from the first report on | calls subscribers and recorders |
//! | `zk-spare` | one for a client whose lease is at risk | heartbeats over spare connections |
//! | `zk-probe` | one for each server, near the end of a connect timeout | asks the server |
//! | `zk-probe` | one after a spare connection that failed | connects to the server |
//! | `zk-check` | one, before the first connection | shows that a thread can be started |
//!
//! The client library and its reactor start other threads.

#[cfg_attr(simulation, path = "../../../simulation/threads.rs")]
pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod mutex;
pub(crate) mod waker;

/// A future whose type its user does not know.
pub(crate) type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
