//! Tests in virtual time: what lets time pass and needs no real server, process, thread or runtime of its
//! own. See `simulation::scenario`.

use test_support::in_process::until;
use zookeeper_test_server::{Fault, Gate, Loss, Match, Server};

mod cancellation;
mod conversions;
mod crowd;
mod fair_lock_faults;
mod guard;
mod lease;
mod multi_lock_faults;
mod regressions;
mod revocation;
mod rules;
mod semaphore_faults;
mod short_outages;
mod sticky;
mod sticky_readers;

/// Loses the request, or, if it is carried out, its reply.
fn lose(server: &Server, request: Match, carried_out: bool, loss: Loss) -> Fault {
    if carried_out { server.drop_reply(request, loss) } else { server.drop_request(request, loss) }
}

/// Holds the request up, or, if it is carried out, its reply.
fn hold_up(server: &Server, request: Match, carried_out: bool) -> Gate {
    if carried_out { server.hold_reply(request) } else { server.hold_request(request) }
}

/// Waits until the servers have no such session.
async fn until_ended(server: &Server, session: i64) {
    let ended =
        move |view: zookeeper_test_server::View<'_>| view.sessions().iter().all(|it| it.id != session);
    until(server, "the end of the session", ended).await;
}
