//! The harness of the behaviours: back-ends, what each can do, and observers.

mod backend;
mod behaviour;
mod critical;
mod env;
mod fault_injector;
mod link;
mod random;
mod sections;

use std::fmt::Debug;
use std::time::Duration;

use zookeeper_recipes::{AcquireError, ErrorKind};

pub(crate) use backend::{NO_CONTAINERS, NO_EXPIRY, Need, SESSION_LIMITS, SESSION_OUTLIVES};
pub(crate) use behaviour::{Behaviour, Registry, behaviours};
pub(crate) use critical::CriticalSection;
pub(crate) use env::Env;
pub(crate) use link::Link;
pub(crate) use sections::{LimitedSection, SharedSection};

/// A timeout for calls that are expected to time out: long enough that most servers answer before.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_millis(400);

/// The longest time that [`expect_timeout`] gives an attempt.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(8);

/// How much later than requested a timeout may end: the machine is shared with other tests.
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(20);

/// Runs an attempt that must fail, because another holds the lock, with [`SHORT_TIMEOUT`]. A server
/// on a busy machine may need longer to show the holder; the attempt is then repeated with twice
/// the timeout. Returns the error, and the timeout of the last attempt.
pub(crate) async fn expect_timeout<T: Debug, F: Future<Output = Result<T, AcquireError>>>(
    attempt: impl Fn(Duration) -> F,
) -> (AcquireError, Duration) {
    let mut timeout = SHORT_TIMEOUT;
    loop {
        match attempt(timeout).await.unwrap_err() {
            error if error.kind() == Some(ErrorKind::Connection) && timeout < LONGEST_TIMEOUT => {
                timeout *= 2;
            }
            error => return (error, timeout),
        }
    }
}
