//! Sessions: establishes them, watches the current one, renews its lease, and cleans up its orphans.

pub(crate) mod ask;
#[cfg(not(simulation))]
pub(crate) mod background;
pub(crate) mod cleanup;
mod cleanup_task;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod core;
pub(crate) mod deletion;
pub(crate) mod directory_watches;
mod earlier;
pub(crate) mod heartbeat;
pub(crate) mod holds;
pub(crate) mod journal;
mod judge;
pub(crate) mod lease;
mod lease_timer;
pub(crate) mod log;
#[cfg(feature = "metrics")]
mod metrics;
pub(crate) mod nodes;
pub(crate) mod observer;
mod probe;
pub(crate) mod retry;
pub(crate) mod running;
#[cfg(feature = "sasl-digest-md5")]
mod sasl;
mod servers;
pub(crate) mod setup;
#[cfg(simulation)]
pub(crate) mod simulated;
mod spare;
pub(crate) mod supervisor;
pub(crate) mod tickets;
#[cfg(feature = "tls")]
mod tls;
mod unknown_creates;
pub(crate) mod waker;
pub(crate) mod watches;
pub(crate) mod window;
pub(crate) mod write;
pub(crate) mod zk_session;

#[cfg(simulation)]
pub(crate) use simulated as background;
