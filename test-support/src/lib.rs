//! What the tests of this workspace share: real ZooKeeper servers as child processes, the other
//! programs they run against (Java Curator, Python kazoo), and a test harness that says what it did
//! not run and why.
//!
//! Everything blocks; nothing here needs an async runtime.

mod log;
pub mod peers;
mod poll;
mod ports;
mod proxy;
mod shared;
mod suite;
mod terminal;
mod zookeeper;

pub use log::listen_to_log;
pub use poll::{TimedOut, poll_until};
pub use proxy::{Cut, Direction, Proxy};
pub use shared::{shared_ensemble, shared_standalone, stop_shared, unique_path};
pub use suite::{IntoOutcome, Suite};
pub use terminal::shown_on_a_terminal;
pub use zookeeper::{MemberAddrs, Mode, Options, ServerError, ZooKeeper};
