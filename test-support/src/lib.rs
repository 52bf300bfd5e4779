//! Helpers of the tests of this workspace: waiting with a name ([`within`], [`ByHand`],
//! [`poll_until`]), locks on a server in this process ([`in_process`]), real ZooKeeper servers as
//! child processes, the other programs that the tests use (Java Curator, Python kazoo, Redis), and
//! a test harness that reports which tests it did not run, and why ([`Suite`]).
//!
//! Functions that are not `async` block, and need no runtime.

mod example;
pub mod in_process;
mod log;
pub mod peers;
mod poll;
mod ports;
pub mod prelude;
mod proxy;
mod random;
mod redis;
mod shared;
pub mod short_outages;
mod steadiness;
mod suite;
mod terminal;
mod wait;
mod watchdog;
mod zookeeper;

pub use example::example;
pub use log::listen_to_log;
pub use poll::{TimedOut, poll_until};
pub use proxy::{Cut, Direction, Proxy};
pub use random::Random;
pub use redis::Redis;
pub use shared::{shared_ensemble, shared_standalone, stop_shared, unique_path};
pub use steadiness::Steadiness;
pub use suite::{IntoOutcome, Suite};
pub use terminal::shown_on_a_terminal;
pub use wait::{ByHand, PATIENCE, SOON, all_done, block_on, broken_waker, pending, within};
pub use zookeeper::{Mode, Options, ServerError, ZooKeeper};
