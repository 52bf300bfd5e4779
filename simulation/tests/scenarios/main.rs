//! Tests in virtual time: those that let time pass and need no real server, process, thread or
//! runtime of their own. See `simulation::scenario`.

use test_support::in_process::until;
use zookeeper_test_server::{Server, View};

mod atomic_long;
mod cancellation;
mod conversions;
mod crowd;
mod directories;
mod fair_lock_faults;
mod guard;
mod heartbeats;
mod leaders;
mod lease;
mod multi_lock_faults;
mod persistent_node;
mod regressions;
mod revocation;
mod rules;
mod semaphore_faults;
mod short_outages;
mod spare;
mod who;
mod without_servers;

/// Waits until the servers have ended the session.
async fn until_ended(server: &Server, session: i64) {
    let ended = move |view: View<'_>| view.sessions().iter().all(|it| it.id != session);
    until(server, "the end of the session", ended).await;
}
