//! Where things run: threads, runtimes, the clock, and wakers that are contained.
//! All of the session and the engine use it. Nothing else in the library starts a thread or a runtime, or reads
//! a clock.

#[cfg(not(simulation))]
pub(crate) mod background;
pub(crate) mod clock;
#[cfg(simulation)]
pub(crate) mod simulated;
pub(crate) mod waker;

#[cfg(simulation)]
pub(crate) use self::simulated as background;
