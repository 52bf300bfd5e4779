//! A semaphore's permits under faults: lost replies, nodes deleted by other processes, limits that
//! change, permits of other clients. Cancellation at every point is in `cancellation`.

use ::simulation::scenario::tokio;
use test_support::in_process;
use test_support::prelude::*;
use zookeeper_client as zk;

use crate::until_ended;

pub(crate) const PATH: &str = "/sem";
pub(crate) const LOCKS: &str = "/sem/locks";
pub(crate) const LEASES: &str = "/sem/leases";
pub(crate) const LIMIT: &str = "/sem/permits";

/// ZooKeeper's error code for a throttled request.
const THROTTLED: i32 = -127;

pub(crate) type Acquiring = JoinHandle<Result<SemaphorePermit, AcquireError>>;

/// A server on which the semaphore's directories exist.
fn start() -> Server {
    let server = in_process::start_empty();
    for directory in [PATH, LOCKS, LEASES] {
        server.create(directory, "").unwrap();
    }
    server
}

pub(crate) fn semaphore(client: &Client, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, PATH, permits).unwrap()
}

async fn acquired(semaphore: &InterProcessSemaphore, n: u32) -> SemaphorePermit {
    within("the permits", semaphore.acquire_many(n, SOON))
        .await
        .unwrap()
}

/// Starts an acquire, and returns once it waits at the head of the queue.
pub(crate) async fn at_head(server: &Server, client: &Client, permits: u32, n: u32) -> Acquiring {
    let attempt = tokio::spawn(semaphore(client, permits).acquire_many(n, SOON));
    let id = session(client);
    until(server, "the watch on the leases", move |view| {
        view.watches_on(LEASES).contains(&id)
    })
    .await;
    attempt
}

async fn permit(attempt: Acquiring) -> SemaphorePermit {
    within("the permits", attempt).await.unwrap().unwrap()
}

/// Matches the transactions of a session that take permits.
fn takes(id: i64) -> Match {
    Match::op(Op::Multi)
        .session(id)
        .path_prefix(format!("{LEASES}/"))
}

/// Asserts that no node is left below the semaphore, and that no watch is left.
async fn assert_clean(server: &Server, what: &str) {
    let empty =
        |view: View<'_>| view.children(LOCKS).is_empty() && view.children(LEASES).is_empty();
    until(server, &format!("empty directories: {what}"), empty).await;
    until(server, &format!("the end of all watches: {what}"), |view| {
        view.watches() == 0
    })
    .await;
}

/// Permits that are granted to a call that is not polled any more are returned when it is dropped.
#[tokio::test]
async fn dropped_with_the_grant_in_flight() {
    let (server, [client]) = with_clients(start(), calm).await;
    let attempt = ByHand::new(semaphore(&client, 3).acquire_many(2, SOON)).start();
    attempt.woken().await;
    assert_eq!(server.children(LEASES).len(), 2);
    drop(attempt);
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "the grant in flight").await;
}

/// Whichever transaction's reply is lost, the call gets all permits, exactly once.
// Shows: permits-unknown-outcome
#[tokio::test]
async fn lost_replies_give_all_permits_once() {
    for losses in 1..4 {
        for arrives in [false, true] {
            let (server, [client]) = with_clients(start(), calm).await;
            let fault = lose(
                &server,
                takes(session(&client)).times(losses),
                arrives,
                Loss::Close,
            );
            let permit = acquired(&semaphore(&client, 3), 2).await;
            fault.remove();
            assert_eq!(
                (permit.slots(), server.children(LEASES).len()),
                (vec![0, 1], 2),
                "{losses} {arrives}"
            );
            assert!(permit.is_held());
            permit.release().await.unwrap();
            assert_clean(&server, "lost replies").await;
        }
    }
}

/// Another process deletes the lock node of the head. The head queues again at the end, and is not
/// granted the lock together with the next head.
// Shows: semaphore-queue
#[tokio::test]
async fn deleted_head_requeues_at_end() {
    let server = start();
    let (holder, first, second) = (
        calm(&server).await,
        connect_for(&server, Duration::from_secs(12)).await,
        calm(&server).await,
    );
    let held = acquired(&semaphore(&holder, 1), 1).await;
    let one = at_head(&server, &first, 1, 1).await;
    let deleted = server.children(LOCKS).remove(0);
    let two = tokio::spawn(semaphore(&second, 1).acquire(SOON));
    until(&server, "the queue", |view| view.children(LOCKS).len() == 2).await;
    server.delete(&format!("{LOCKS}/{deleted}")).unwrap();
    let id = session(&second);
    until(&server, "the next head", move |view| {
        view.watches_on(LEASES).contains(&id)
    })
    .await;
    held.release().await.unwrap();
    let two = permit(two).await;
    // The first head has noticed the deletion by its transaction, or notices it by a heartbeat.
    let waits = |view: View<'_>| view.children(LOCKS).len() == 1;
    until(&server, "the first in the queue again", waits).await;
    assert_eq!(server.children(LEASES).len(), 1);
    two.release().await.unwrap();
    let one = permit(one).await;
    assert_eq!((one.slot(), server.children(LEASES).len()), (0, 1));
    one.release().await.unwrap();
    assert_clean(&server, "a deleted lock node").await;
}

/// The node is deleted between the list and the transaction, repeatedly, until the attempt ends.
// Shows: permits-by-one-transaction
#[tokio::test]
async fn repeated_lock_node_deletions_end_attempt() {
    let server = start();
    let client = calm_with(&server, RetryPolicy::n_times(2, Duration::from_millis(1))).await;
    let id = session(&client);
    let attempt = tokio::spawn(semaphore(&client, 1).acquire(SOON));
    for _ in 0..3 {
        let gate = server.hold_request(takes(id));
        within("the transaction", gate.wait_hit()).await;
        let lock = server.children(LOCKS).remove(0);
        server.delete(&format!("{LOCKS}/{lock}")).unwrap();
        gate.release();
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { times: 3, .. }),
        "{error}"
    );
    assert_clean(&server, "deleted again and again").await;
}

/// The node is deleted each time the attempt waits at the head for permits of another client. In
/// the second case the leases change, too, more often than the head checks its node.
// Shows: waiter-without-node, semaphore-queue
#[tokio::test]
async fn deletions_while_waiting_end_attempt() {
    for leases_change in [false, true] {
        deleted_while_waiting(leases_change).await;
    }
}

async fn deleted_while_waiting(leases_change: bool) {
    let (server, [holder]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 1), 1).await;
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(6))
        .retry_policy(RetryPolicy::n_times(2, Duration::from_millis(1)));
    let client = connect_as(builder, &server).await;
    let id = session(&client);
    let attempt = tokio::spawn(semaphore(&client, 1).acquire(SOON));
    let changes = async {
        if !leases_change {
            std::future::pending::<()>().await;
        }
        loop {
            // The time is virtual. The head checks its node once a second.
            tokio::time::sleep(Duration::from_millis(100)).await;
            server.create(&format!("{LEASES}/other"), "").unwrap();
            server.delete(&format!("{LEASES}/other")).unwrap();
        }
    };
    tokio::select! {
        () = deletes_heads(&server, id) => {}
        () = changes => {}
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(error, AcquireError::NodeDeleted { times: 3, .. }),
        "{error}"
    );
    held.release().await.unwrap();
    assert_clean(&server, "deleted while it waited").await;
}

/// Deletes the lock nodes of three heads of this session.
async fn deletes_heads(server: &Server, id: i64) {
    let mut deleted = Vec::new();
    for _ in 0..3 {
        let earlier = deleted.clone();
        until(server, "the head", move |view| {
            let locks = view.children(LOCKS);
            locks.iter().any(|lock| !earlier.contains(lock))
                && view.watches_on(LEASES).contains(&id)
        })
        .await;
        let lock = server.children(LOCKS).remove(0);
        server.delete(&format!("{LOCKS}/{lock}")).unwrap();
        deleted.push(lock);
    }
}

// Shows: slots, permit-tokens
#[tokio::test]
async fn deleted_lease_loses_whole_permit() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(12)).await;
    let semaphore = semaphore(&client, 4);
    let (lost, kept) = (acquired(&semaphore, 2).await, acquired(&semaphore, 2).await);
    server.delete(&lost.nodes()[1]).unwrap();
    let reason = within("the loss", lost.lost()).await.reason();
    assert_eq!(reason, LostReason::NodeDeleted);
    assert!(!lost.is_held() && kept.is_held());
    // The slot goes to the next, whose token is greater.
    let next = acquired(&semaphore, 1).await;
    assert_eq!(next.slot(), lost.slots()[1]);
    assert!(next.fencing_token() > lost.fencing_token());
    drop(lost);
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(LEASES).len(), 3);
}

/// The holder has set the end of the lease, so all permits are returned at once, without waiting
/// for the drop of the value.
// Shows: one-value
#[tokio::test]
async fn expired_lease_returns_all_permits() {
    let (server, [client]) = with_clients(start(), calm).await;
    let semaphore = semaphore(&client, 6);
    let none_left = |what| until(&server, what, |view| view.children(LEASES).is_empty());
    let three = acquired(&semaphore, 3).await;
    assert_eq!(
        three.set_lease(Duration::ZERO).unwrap_err().reason(),
        LostReason::LeaseOver
    );
    within("the returns", client.flush(SOON)).await.unwrap();
    none_left("the return of three by hand").await;
    // If several permits were merged, the end of the first lease ends all of them.
    let mut merged = acquired(&semaphore, 2).await;
    let short = within(
        "the permit",
        semaphore.acquire_with_lease(SOON, Duration::from_secs(1)),
    )
    .await
    .unwrap();
    merged.merge(short).unwrap();
    assert_eq!(
        within("the end", merged.lost()).await.reason(),
        LostReason::LeaseOver
    );
    none_left("the return of what was merged").await;
    // If a permit is lost before a merge, the permits that it is merged with are lost too, but not
    // those that were split off.
    let mut whole = acquired(&semaphore, 3).await;
    let split = whole.split(1).unwrap();
    whole.merge(three).unwrap();
    assert!(!whole.is_held() && split.is_held());
    let left = split.nodes()[0].name().to_owned();
    until(&server, "the return of what was lost", move |view| {
        view.children(LEASES) == [left.as_str()]
    })
    .await;
    assert!(!merged.is_held());
}

// Shows: one-value
#[tokio::test]
async fn split_permits_are_lost_separately() {
    for ends_split in [false, true] {
        let (server, [client]) = with_clients(start(), calm).await;
        let mut rest = acquired(&semaphore(&client, 3), 3).await;
        let split = rest.split(1).unwrap();
        let (lost, kept) = if ends_split {
            (split, rest)
        } else {
            (rest, split)
        };
        lost.set_lease(Duration::ZERO).unwrap_err();
        assert!(!lost.is_held() && kept.is_held());
        within("the return", kept.release()).await.unwrap();
        drop(lost);
        client.flush(SOON).await.unwrap();
        assert_clean(&server, "split permits").await;
    }
}

/// After the loss, the other permits are kept for as long as after any loss that the holder did not
/// choose, so that the holder has time to stop.
// Shows: one-value
#[tokio::test]
async fn permits_beside_deleted_one_return() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(4)).await;
    let value = acquired(&semaphore(&client, 3), 3).await;
    server.delete(&value.nodes()[1]).unwrap();
    assert_eq!(
        within("the loss", value.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert_eq!(
        server.children(LEASES).len(),
        2,
        "its holder may still be at work"
    );
    until(&server, "the return of the others", |view| {
        view.children(LEASES).is_empty()
    })
    .await;
    assert!(!value.is_held());
    // After the drop of a value, its remaining permit is returned at once.
    let value = acquired(&semaphore(&client, 3), 2).await;
    server.delete(&value.nodes()[0]).unwrap();
    within("the loss", value.lost()).await;
    drop(value);
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(LEASES).len(), 0);
}

/// The session that ended notifies only its own permit. The permit that was merged with it belongs
/// to the next session, and must not be kept by a lost value.
// Shows: one-value
#[tokio::test]
async fn permit_merged_with_lost_one_returns() {
    let server = start();
    let client = connect_for(&server, Duration::from_secs(4)).await;
    let semaphore = semaphore(&client, 2);
    let mut merged = acquired(&semaphore, 1).await;
    assert!(server.expire_session(session(&client)));
    within("the loss", merged.lost()).await;
    let other = acquired(&semaphore, 1).await;
    assert!(other.is_held());
    merged.merge(other).unwrap();
    assert!(!merged.is_held());
    assert_eq!(
        server.children(LEASES).len(),
        1,
        "its holder has time to stop"
    );
    // The lost value still exists at this point.
    until(&server, "the return of the other", |view| {
        view.children(LEASES).is_empty()
    })
    .await;
    drop(merged);
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "a permit of an ended session").await;
}

/// The transaction is committed only under the limit that was read.
// Shows: semaphore-limit
#[tokio::test]
async fn limit_change_refuses_stale_transaction() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    semaphore(&other, 2).set_limit(2).await.unwrap();
    let held = acquired(&semaphore(&other, 2), 1).await;
    let gate = server.hold_request(takes(session(&client)));
    let attempt = tokio::spawn(semaphore(&client, 2).acquire(SOON));
    within("the transaction", gate.wait_hit()).await;
    semaphore(&other, 2).set_limit(1).await.unwrap();
    gate.release();
    until(&server, "its wait", |view| {
        view.watches_on(LEASES).len() == 1
    })
    .await;
    assert_eq!(server.children(LEASES).len(), 1, "the limit is one");
    held.release().await.unwrap();
    permit(attempt).await.release().await.unwrap();
    assert_clean(&server, "a limit that shrinks").await;
}

/// The first write of the limit, before which the limit of the handle applies, wakes the head too.
// Shows: semaphore-limit
#[tokio::test]
async fn raised_limit_wakes_the_head() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let mut held = acquired(&semaphore(&client, 1), 1).await;
    for limit in [2, 3] {
        let attempt = at_head(&server, &client, 1, 1).await;
        semaphore(&other, 1).set_limit(limit).await.unwrap();
        held.merge(permit(attempt).await).unwrap();
        assert_eq!(held.num_permits(), limit);
    }
    held.release().await.unwrap();
}

/// The last renewal of the session is too old by the time the permits are known to be taken.
// Shows: suspended
#[tokio::test]
async fn waits_out_a_doubt_with_permits() {
    /// The session timeout. After a third of it without a renewal, the session is in doubt.
    const T: Duration = Duration::from_secs(30);
    let (server, [client]) =
        with_clients(start(), async |server| connect_for(server, T).await).await;
    let id = session(&client);
    let lost = server.drop_reply(takes(id), Loss::Close);
    let lease = Match::op(Op::Exists)
        .session(id)
        .path_prefix(format!("{LEASES}/"));
    let unseen = server.fail(lease.always(), THROTTLED);
    let attempt = tokio::spawn(semaphore(&client, 1).acquire(10 * T));
    within("the transaction", lost.wait_hit()).await;
    within("the look at the lease", unseen.wait_hit()).await;
    let silence = server.fail(Match::op(Op::Multi).session(id).always(), THROTTLED);
    // The test waits until a heartbeat is overdue, because the session is then in doubt.
    tokio::time::sleep(T / 2).await;
    unseen.remove();
    until(&server, "the Stat of the lease", move |view| {
        let stat = |entry: &&LogEntry| {
            (entry.kind, entry.op, entry.session) == (LogKind::Applied, Op::Exists, id)
        };
        let last = view.log().rev().find(stat);
        last.is_some_and(|entry| entry.error == 0)
    })
    .await;
    // This look is answered after the read of the Stat.
    within("a look", semaphore(&client, 1).available_permits())
        .await
        .unwrap();
    assert!(!attempt.is_finished(), "granted in doubt");
    silence.remove();
    permit(attempt).await.release().await.unwrap();
}

/// Children of any name count, as Curator counts them.
// Shows: permits-by-one-transaction
#[tokio::test]
async fn leases_of_other_clients_count() {
    let (server, [client, java]) = with_clients(start(), calm).await;
    let (beginning, id) = (
        format!("{LEASES}/_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lease-"),
        session(&java),
    );
    let lease = server
        .create_as(&beginning, "10.0.0.7", CreateMode::EphemeralSequential, id)
        .unwrap();
    server.create(&format!("{LEASES}/stray"), "").unwrap();
    let semaphore = semaphore(&client, 3);
    assert_eq!(semaphore.available_permits().await.unwrap(), 1);
    let permit = acquired(&semaphore, 1).await;
    assert_eq!(permit.slot(), 0);
    let error = semaphore.try_acquire().await.unwrap_err();
    assert!(
        matches!(
            error,
            TryLockError::WouldBlock {
                contention: Contention { ahead: 3, .. },
                ..
            }
        ),
        "{error}"
    );
    let waiter = at_head(&server, &client, 3, 1).await;
    server.delete(&lease).unwrap();
    let second = within("the permit", waiter).await.unwrap().unwrap();
    assert_eq!(second.slot(), 1);
    assert_eq!(server.children(LEASES).len(), 3);
}

/// The head keeps its place in an outage that is longer than a lease, and only waits longer.
// Shows: reconnect, semaphore-queue
#[tokio::test]
async fn head_keeps_place_during_outage() {
    let server = Server::builder()
        .tick(Duration::from_millis(100))
        .max_session_timeout(in_process::HOUR)
        .start()
        .unwrap();
    // The lease will expire, but the server keeps the session.
    server.freeze_expiry(true);
    let waiting = Client::builder()
        .session_timeout(Duration::from_secs(2))
        .retry_policy(in_process::eager());
    let (holder, first) = (calm(&server).await, connect_as(waiting, &server).await);
    let held = acquired(&semaphore(&holder, 1), 1).await;
    let attempt = at_head(&server, &first, 1, 1).await;
    let other = InterProcessSemaphore::new(&first, "/other", 1).unwrap();
    let (probe, id) = (acquired(&other, 1).await, session(&first));
    server.refuse_connections(true);
    server.cut(id, Cut::Fin);
    assert_eq!(
        within("the loss", probe.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    server.refuse_connections(false);
    server.freeze_expiry(false);
    held.release().await.unwrap();
    let granted = permit(attempt).await;
    assert_eq!(session(&first), id, "the session has outlived the outage");
    let created = in_process::logged(&server, id, Op::Create, LogKind::Applied);
    let queued = created
        .iter()
        .filter(|entry| entry.path.starts_with(&format!("{LOCKS}/")))
        .count();
    assert_eq!(queued, 1, "it did not queue again");
    assert!(granted.is_held());
}

/// If the servers refuse to let a client delete its own lease, the lease blocks a permit, and the
/// client reports this.
#[tokio::test]
async fn undeletable_lease_is_reported() {
    let (server, [client]) = with_clients(start(), calm).await;
    let semaphore = semaphore(&client, 1);
    let permit = acquired(&semaphore, 1).await;
    let node = permit.nodes().remove(0);
    server.fail(
        Match::op(Op::Delete)
            .path_prefix(format!("{LEASES}/"))
            .always(),
        ServerError::NoAuth.code(),
    );
    assert!(permit.release().await.is_err());
    let error = semaphore.acquire(SOON).await.unwrap_err();
    let AcquireError::Orphaned { node: said, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(*said, node);
    server.clear_faults();
    acquired(&semaphore, 1).await.release().await.unwrap();
    drop(semaphore);
    assert_clean(&server, "a lease that may not be deleted").await;
}

/// A server that has replaced the session lists leases of another session.
// Shows: permits-unknown-outcome
#[tokio::test]
async fn listed_leases_must_belong_to_session() {
    let (server, [one, two]) = with_clients(start(), calm).await;
    let id = session(&one);
    let _lost = server.drop_reply(takes(id), Loss::Close);
    let again = server.hold_request(takes(id).nth(1));
    let attempt = tokio::spawn(semaphore(&one, 2).acquire_many(2, SOON));
    within("the repetition", again.wait_hit()).await;
    for name in server.children(LEASES) {
        let path = format!("{LEASES}/{name}");
        server.delete(&path).unwrap();
        server
            .create_as(&path, "", CreateMode::Ephemeral, session(&two))
            .unwrap();
    }
    again.release();
    // The leases take permits until their session is closed.
    until_ended(&server, id).await;
    two.close().await.unwrap();
    let permit = permit(attempt).await;
    for node in permit.nodes() {
        assert_eq!(
            server.node(node.as_str()).unwrap().ephemeral_owner,
            session(&one)
        );
    }
}

/// A request for too many permits is refused only after a `sync`.
// Shows: try-permits
#[tokio::test]
async fn lagging_limit_refuses_no_permits() {
    let (server, [client, other]) = with_clients(start(), calm).await;
    let id = session(&client);
    server.create(LIMIT, 1_i32.to_be_bytes()).unwrap();
    for is_try in [false, true] {
        server.set_data(LIMIT, 1_i32.to_be_bytes()).unwrap();
        // With a contender ahead, the call waits for its turn meanwhile, and reads no outdated
        // limit.
        let ahead = format!("{LOCKS}/_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-");
        let mode = CreateMode::EphemeralSequential;
        let ahead = (!is_try).then(|| server.create_as(&ahead, "", mode, session(&other)).unwrap());
        let stale = server.hold_reply(Match::op(Op::GetData).path(LIMIT));
        let semaphore = semaphore(&client, 1);
        let attempt = tokio::spawn(async move {
            if is_try {
                return semaphore
                    .try_acquire_many(2)
                    .await
                    .map_err(|error| error.to_string());
            }
            semaphore
                .acquire_many(2, SOON)
                .await
                .map_err(|error| error.to_string())
        });
        within("the read", stale.wait_hit()).await;
        server.set_data(LIMIT, 5_i32.to_be_bytes()).unwrap();
        stale.release();
        until(&server, "the sync", move |view| {
            view.counters().requests_of(id, Op::Sync) > 0
        })
        .await;
        if let Some(ahead) = ahead {
            server.delete(&ahead).unwrap();
        }
        let permit = within("the permits", attempt).await.unwrap().unwrap();
        permit.release().await.unwrap();
        server.reset_counters();
    }
}

/// When the session of several waiters of one client ends, they queue in the next session in the
/// order of their calls. The former head is the first, also before waiters in memory, which had no
/// node.
// Shows: semaphore-queue, bounded-nodes
#[tokio::test]
async fn waiter_order_outlives_session() {
    for nodes in [64, 1] {
        let (server, [holder, client]) = with_clients(start(), calm).await;
        let _options = InterProcessSemaphore::builder(&client, PATH, 1)
            .max_znodes(nodes)
            .build()
            .unwrap();
        let mut held = acquired(&semaphore(&holder, 1), 1).await;
        let mut waiters = vec![at_head(&server, &client, 1, 1).await];
        for queued in 2..=4 {
            waiters.push(tokio::spawn(semaphore(&client, 1).acquire(SOON)));
            until(&server, "the queue", move |view| {
                view.children(LOCKS).len() == queued.min(nodes)
            })
            .await;
        }
        for _ in 0..2 {
            let id = session(&client);
            assert!(server.expire_session(id));
            let again = move |view: View<'_>| {
                let heads = view.watches_on(LEASES);
                view.children(LOCKS).len() == 4.min(nodes) && heads.iter().any(|other| *other != id)
            };
            until(&server, "the queue of the next session", again).await;
        }
        for waiter in waiters {
            held.release().await.unwrap();
            held = permit(waiter).await;
        }
    }
}

/// The error names the node of the semaphore whose ACL refuses the request.
// Shows: semaphore-limit
#[tokio::test]
async fn denied_limit_node_is_named() {
    let server = start();
    let owner = connect_as(Client::builder().auth("digest", "shop:secret"), &server).await;
    let stranger = calm(&server).await;
    let build = |path, count| {
        InterProcessSemaphore::builder(&owner, path, 2)
            .shared_count(count)
            .acl([Acl::creator_all()])
    };
    build(PATH, LIMIT)
        .build()
        .unwrap()
        .set_limit(2)
        .await
        .unwrap();
    build("/other", "/counts/open")
        .build()
        .unwrap()
        .set_limit(2)
        .await
        .unwrap();
    let elsewhere = InterProcessSemaphore::builder(&stranger, "/third", 2)
        .shared_count("/counts/new")
        .build()
        .unwrap();
    let semaphore = semaphore(&stranger, 2);
    for error in [
        semaphore.limit().await.unwrap_err(),
        semaphore.available_permits().await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.node()),
            (ErrorKind::NoAuth, Some(LIMIT)),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(&format!("{LIMIT:?} needs READ")),
            "{error}"
        );
    }
    for (error, named) in [
        (semaphore.set_limit(3).await.unwrap_err(), LIMIT),
        (elsewhere.set_limit(3).await.unwrap_err(), "/counts"),
    ] {
        assert_eq!(
            (error.kind(), error.node()),
            (ErrorKind::NoAuth, Some(named)),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("{named:?} needs WRITE")),
            "{error}"
        );
    }
    assert_eq!(
        semaphore.participants().await.unwrap(),
        [""; 0],
        "the leases may be listed"
    );
    // The node with the limit must also be readable, to acquire permits. A path that begins with
    // the lock's name is not below it.
    build("/pool", "/po")
        .build()
        .unwrap()
        .set_limit(2)
        .await
        .unwrap();
    let pool = InterProcessSemaphore::builder(&stranger, "/pool", 2)
        .shared_count("/po")
        .build()
        .unwrap();
    for (semaphore, named) in [(semaphore, LIMIT), (pool, "/po")] {
        let error = within("the refusal", semaphore.acquire(SOON))
            .await
            .unwrap_err();
        let AcquireError::Request(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (error.kind(), error.node()),
            (ErrorKind::NoAuth, Some(named)),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(&format!("{named:?} needs READ")),
            "{error}"
        );
    }
}

/// The lock node is deleted in one directory, and the leases are created in the other.
// Shows: permits-by-one-transaction
#[tokio::test]
async fn refused_transaction_names_its_directory() {
    for (directory, denied) in [
        (LOCKS, zk::Permission::DELETE),
        (LEASES, zk::Permission::CREATE),
    ] {
        let server = in_process::start_empty();
        let raw = within("a session", zk::Client::connect(&server.connect_string()))
            .await
            .unwrap();
        for path in [PATH, LOCKS, LEASES] {
            let all = [
                zk::Permission::READ,
                zk::Permission::WRITE,
                zk::Permission::CREATE,
                zk::Permission::DELETE,
            ];
            let granted = all
                .into_iter()
                .filter(|one| path != directory || *one != denied);
            let granted = granted.fold(zk::Permission::NONE, |all, one| all | one);
            let acls = [zk::Acl::new(granted, zk::AuthId::anyone())];
            let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
            within("the directory", raw.create(path, b"", &mode))
                .await
                .unwrap();
        }
        let client = calm(&server).await;
        let error = within("the refusal", semaphore(&client, 2).acquire(SOON))
            .await
            .unwrap_err();
        let AcquireError::Request(error) = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (error.kind(), error.node()),
            (ErrorKind::NoAuth, Some(directory)),
            "{error:?}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("{directory:?} needs CREATE, DELETE and READ")),
            "{error}"
        );
    }
}

/// The first look is answered, and shows who has the permits. The error reports these although the
/// second look is not answered.
// Shows: live-contender
#[tokio::test]
async fn first_look_reports_full_semaphore() {
    let (server, [holder, client]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 2), 2).await;
    let looks = Match::op(Op::GetChildren)
        .path(LEASES)
        .session(session(&client));
    let second = server.hold_reply(looks.nth(1));
    let attempt = tokio::spawn(semaphore(&client, 2).acquire(Duration::from_secs(2)));
    within("the second look", second.wait_hit()).await;
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    let first = held.nodes().into_iter().next();
    assert!(
        matches!(&error, AcquireError::TimedOut { contention: Contention { ahead: 2, first: node, .. }, .. } if *node == first),
        "{error:?}"
    );
    second.release();
}

/// The try has seen that the head of the queue waits, but gets no answer to whether it still waits.
// Shows: live-contender
#[tokio::test]
async fn unanswered_try_is_not_busy() {
    let (server, [holder, waiter]) = with_clients(start(), calm).await;
    let held = acquired(&semaphore(&holder, 3), 1).await;
    let large = at_head(&server, &waiter, 3, 3).await;
    let time = Duration::from_secs(2);
    let builder = Client::builder()
        .connect_timeout(time)
        .session_timeout(in_process::HOUR);
    let client = connect_as(builder.retry_policy(in_process::eager()), &server).await;
    let lists = Match::op(Op::GetChildren)
        .path(LOCKS)
        .session(session(&client));
    // The fault begins after the list that shows the call's own node.
    let second = server.hold_reply(lists.nth(1).always());
    let attempt = tokio::spawn(semaphore(&client, 3).try_acquire());
    within("the look", second.wait_hit()).await;
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("no answer to the list of the lock's directory within"),
        "{source}"
    );
    second.release();
    // With an answer, the call reports that the semaphore is busy.
    let error = within("the answer", semaphore(&client, 3).try_acquire())
        .await
        .unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    drop((held, large));
}

/// If a server closes the connection at each such transaction, the number of repetitions is
/// bounded.
// Shows: permits-unknown-outcome
#[tokio::test]
async fn disconnecting_transaction_ends_by_policy() {
    let server = Server::builder().max_frame(16 * 1024).start().unwrap();
    let client = connect_as(
        Client::builder().retry_policy(RetryPolicy::n_times(3, Duration::from_millis(5))),
        &server,
    )
    .await;
    let semaphore = InterProcessSemaphore::new(&client, PATH, 300).unwrap();
    let error = within("the policy", semaphore.acquire_many(200, Duration::MAX))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    assert_clean(&server, "a transaction that is too large for the server").await;
}
