//! What a behaviour runs in: a back-end, what that can do, and what looks on from outside.

mod backend;
mod behaviour;
mod critical;
mod env;
mod link;
mod random;
mod room;
mod saboteur;

use std::fmt::Debug;
use std::time::Duration;

use zookeeper_recipes::{AcquireError, ErrorKind};

pub(crate) use backend::{NO_CONTAINERS, NO_EXPIRY, Need, OUTLIVED, SESSION_LIMITS};
pub(crate) use behaviour::{Behaviour, Registry, behaviours};
pub(crate) use critical::CriticalSection;
pub(crate) use env::Env;
pub(crate) use link::Link;
pub(crate) use room::{Library, Room};

/// A deadline that passes, where that is what is shown: long enough that most servers answer
/// before.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(400);

/// The longest time that [`in_vain`] gives an attempt.
const PATIENTLY: Duration = Duration::from_secs(8);

/// How much later than asked a timeout may come: this is no real-time system, and much else runs.
pub(crate) const LATE: Duration = Duration::from_secs(20);

/// Asks for what another has: [`BRIEFLY`] and, where the servers did not say in that time that it
/// is taken, which is no fault of theirs on a busy machine, twice as long. Returns the error, and
/// the time that the attempt was given.
pub(crate) async fn in_vain<T: Debug, F: Future<Output = Result<T, AcquireError>>>(
    attempt: impl Fn(Duration) -> F,
) -> (AcquireError, Duration) {
    let mut timeout = BRIEFLY;
    loop {
        match attempt(timeout).await.unwrap_err() {
            error if error.kind() == Some(ErrorKind::Connection) && timeout < PATIENTLY => {
                timeout *= 2;
            }
            error => return (error, timeout),
        }
    }
}
