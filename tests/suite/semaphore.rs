//! The semaphore, which limits the number of holders.

use std::collections::BTreeSet;

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, LimitedSection, Need, behaviours, expect_timeout};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        holders_never_exceed_the_limit
            .with_faults()
            .also_on_ensemble(),
        permits_are_acquired_atomically.also_on_ensemble(),
        semaphore_fifo_across_clients.also_on_ensemble(),
        semaphore_fifo_within_client,
        large_request_not_starved,
        query_does_not_block.also_on_ensemble(),
        timed_out_wait_leaves_nothing,
        limit_is_set_while_used.also_on_ensemble(),
        smaller_limit_takes_nothing_away,
        smaller_limit_ends_larger_waits,
        permits_are_split_and_merged.also_on_ensemble(),
        permits_of_others_are_not_merged,
        free_slots_are_assigned,
        tokens_rise_with_each_grant.also_on_ensemble(),
        permit_knows_its_node,
        drop_returns_the_permit.with_faults(),
        session_end_loses_the_permit.also_on_ensemble(),
        transaction_commits_while_held.also_on_ensemble(),
        permit_revocation,
        closed_client_returns_all_permits.also_on_ensemble(),
        cancelling_at_random_moments_leaves_nothing
            .with_faults()
            .also_on_ensemble(),
        cancelled_waiter_grants_the_next.with_faults(),
        permits_survive_an_outage
            .needs(Need::OwnServers)
            .also_on_ensemble(),
        directories_are_containers.needs(Need::SeeKinds),
        swept_directories_are_made_again.needs(Need::OwnServers),
        namespace_is_hidden,
        acl_covers_all_nodes,
        denied_create_in_directories_fails,
        rejects_zero_and_excessive_limits.in_process_only(),
        rejects_zero_and_excessive_permits,
        conflicting_limits_are_refused.also_on_ensemble(),
        rejects_malformed_limit_node,
    ]
}

fn at(client: &Client, path: &str, permits: u32) -> InterProcessSemaphore {
    InterProcessSemaphore::new(client, path, permits).unwrap()
}

fn spawn(
    semaphore: &InterProcessSemaphore,
    n: u32,
) -> JoinHandle<Result<SemaphorePermit, AcquireError>> {
    tokio::spawn(semaphore.acquire_many(n, SOON))
}

/// The holders never have more permits than there are, whatever they ask for, and all are served.
// Shows: permits-by-one-transaction, permit-tokens
async fn holders_never_exceed_the_limit(env: &Env) {
    const ROUNDS: usize = 5;
    let section = Arc::new(LimitedSection::new(3));
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let semaphore = env.semaphore(3).await;
        for (task, n) in [1, 1, 2, 1].into_iter().enumerate() {
            let (semaphore, section) = (semaphore.clone(), Arc::clone(&section));
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let permit = semaphore.acquire_many(n, SOON).await.unwrap();
                    // The visit lasts as long as a query to the servers, during which others might
                    // enter.
                    section
                        .visit_while(&permit, semaphore.available_permits())
                        .await
                        .unwrap();
                    assert!(permit.is_held());
                    // In Curator a release could forget the lease of another task's next acquire
                    // (CURATOR-376).
                    if task % 2 == 0 {
                        permit.release().await.unwrap();
                    } else {
                        drop(permit);
                    }
                }
            });
        }
    }
    all_done("all of them", tasks).await;
    assert_eq!(section.visits(), 12 * ROUNDS);
    env.wait_no_permits().await;
}

/// A waiter for several permits holds none.
async fn permits_are_acquired_atomically(env: &Env) {
    let (ours, theirs) = (env.semaphore(5).await, env.semaphore(5).await);
    let two = within("two of five", ours.acquire_many(2, SOON))
        .await
        .unwrap();
    assert_eq!(
        (two.num_permits(), ours.available_permits().await.unwrap()),
        (2, 3)
    );
    let four = spawn(&theirs, 4);
    env.wait_semaphore_full().await;
    assert!(!four.is_finished());
    assert_eq!(env.children(&env.leases()).await.len(), 2);
    two.release().await.unwrap();
    let four = within("four of five", four).await.unwrap().unwrap();
    // One of the two returned permits is enough.
    assert_eq!(
        (four.num_permits(), four.nodes().len(), four.slots().len()),
        (4, 4, 4)
    );
    env.wait_count(&env.leases(), 4).await;
    assert_eq!(
        env.semaphore(5).await.participants().await.unwrap(),
        four.nodes()
    );
    four.release().await.unwrap();
    let five = within("all", ours.acquire_many(5, SOON)).await.unwrap();
    assert_eq!(ours.available_permits().await.unwrap(), 0);
    five.release().await.unwrap();
    env.wait_no_permits().await;
}

/// Permits are granted in the order of arrival, across all clients; each release grants one.
async fn semaphore_fifo_across_clients(env: &Env) {
    let holder = env.semaphore(2).await;
    let mut held = vec![
        holder.acquire(SOON).await.unwrap(),
        holder.acquire(SOON).await.unwrap(),
    ];
    let others = [env.semaphore(2).await, env.semaphore(2).await];
    let mut waiting = Vec::new();
    for number in 0..5 {
        waiting.push(spawn(&others[number % 2], 1));
        env.wait_count(&env.locks(), number + 1).await;
    }
    for number in 0..5 {
        held.remove(0).release().await.unwrap();
        held.push(
            within("the next", &mut waiting[number])
                .await
                .unwrap()
                .unwrap(),
        );
        env.wait_count(&env.locks(), 4 - number).await;
        assert!(
            waiting[number + 1..]
                .iter()
                .all(|waiter| !waiter.is_finished())
        );
    }
    for permit in held {
        permit.release().await.unwrap();
    }
    env.wait_no_permits().await;
}

/// Permits are granted in the order of arrival even when most waiters wait in memory.
async fn semaphore_fifo_within_client(env: &Env) {
    let client = env.client().await;
    let semaphore = InterProcessSemaphore::builder(&client, env.lock_path(), 1)
        .max_znodes(1)
        .build()
        .unwrap();
    let mut held = semaphore.acquire(SOON).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..4 {
        let order = Arc::clone(&order);
        // The call queues at its first poll.
        let mut permit = task::spawn(semaphore.acquire(SOON));
        assert_pending!(permit.poll());
        waiting.push(tokio::spawn(async move {
            let permit = permit.await.unwrap();
            order.lock().unwrap().push(number);
            permit
        }));
    }
    env.wait_count(&env.locks(), 1).await;
    for waiter in waiting {
        held.release().await.unwrap();
        held = within("the next", waiter).await.unwrap();
    }
    held.release().await.unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    env.wait_no_permits().await;
}

/// A waiter behind one that waits for more permits cannot take a free permit, as in tokio.
// Shows: semaphore-queue
async fn large_request_not_starved(env: &Env) {
    let (ours, theirs, others) = (
        env.semaphore(3).await,
        env.semaphore(3).await,
        env.semaphore(3).await,
    );
    let two = ours.acquire_many(2, SOON).await.unwrap();
    let three = spawn(&theirs, 3);
    env.wait_count(&env.locks(), 1).await;
    let one = spawn(&others, 1);
    env.wait_count(&env.locks(), 2).await;
    assert_eq!(ours.available_permits().await.unwrap(), 1);
    assert!(matches!(
        ours.try_acquire().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    assert!(!three.is_finished() && !one.is_finished());
    two.release().await.unwrap();
    let three = within("the first in the queue", three)
        .await
        .unwrap()
        .unwrap();
    assert!(!one.is_finished());
    three.release().await.unwrap();
    within("the second", one)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    env.wait_no_permits().await;
}

async fn query_does_not_block(env: &Env) {
    let (ours, theirs) = (env.semaphore(3).await, env.semaphore(3).await);
    let two = ours.try_acquire_many(2).await.unwrap();
    assert!(matches!(
        theirs.try_acquire_many(2).await,
        Err(TryLockError::WouldBlock { .. })
    ));
    let one = theirs.try_acquire().await.unwrap();
    for semaphore in [&ours, &theirs] {
        let error = semaphore.try_acquire().await.unwrap_err();
        assert!(
            matches!(error, TryLockError::WouldBlock { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(&env.lock_path()), "{error}");
        let error = semaphore.acquire(Duration::ZERO).await.unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    }
    assert_eq!(env.children(&env.leases()).await.len(), 3);
    env.wait_count(&env.locks(), 0).await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    ours.acquire_many(3, Duration::ZERO)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    env.wait_no_permits().await;
}

async fn timed_out_wait_leaves_nothing(env: &Env) {
    let (ours, theirs) = (&env.semaphore(3).await, &env.semaphore(3).await);
    let permit = ours.acquire_many(2, SOON).await.unwrap();
    for n in [2, 3] {
        let (error, _) = expect_timeout(|timeout| async move {
            let start = Instant::now();
            let refused = theirs.acquire_many(n, timeout).await;
            assert!(start.elapsed() >= timeout && start.elapsed() < SOON);
            refused
        })
        .await;
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
        assert!(error.is_retryable() && error.path() == env.lock_path());
    }
    let (error, _) = expect_timeout(|timeout| async move {
        let deadline = Instant::now() + timeout;
        let refused = theirs.acquire_many_until(2, deadline).await;
        assert!(Instant::now() >= deadline);
        refused
    })
    .await;
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error:?}");
    env.wait_count(&env.locks(), 0).await;
    env.wait_watchers(&format!("{}/permits", env.lock_path()), 0)
        .await;
    assert_eq!(env.children(&env.leases()).await.len(), 2);
    theirs
        .acquire_until(Instant::now() + SOON)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    permit.release().await.unwrap();
    env.wait_no_permits().await;
}

/// The limit is stored as four bytes, as in Curator's SharedCount, and all clients follow it:
/// waiters, and handles that state another limit.
// Shows: semaphore-limit
async fn limit_is_set_while_used(env: &Env) {
    let (ours, theirs) = (env.semaphore(1).await, env.semaphore(1).await);
    assert_eq!(
        (
            ours.limit().await.unwrap(),
            theirs.available_permits().await.unwrap()
        ),
        (1, 1)
    );
    let first = ours.acquire(SOON).await.unwrap();
    let second = spawn(&theirs, 1);
    env.wait_count(&env.locks(), 1).await;
    let third = spawn(&theirs, 1);
    env.wait_count(&env.locks(), 2).await;
    ours.set_limit(2).await.unwrap();
    let (data, _) = env
        .get_data(&format!("{}/permits", env.lock_path()))
        .await
        .unwrap();
    assert_eq!(data, [0, 0, 0, 2]);
    let second = within("two free permits", second).await.unwrap().unwrap();
    env.wait_count(&env.locks(), 1).await;
    assert!(!third.is_finished());
    // The limit applies, whichever client sets it.
    theirs.set_limit(300).await.unwrap();
    let third = within("three free permits", third).await.unwrap().unwrap();
    let different = env.semaphore(7).await;
    assert_eq!(different.limit().await.unwrap(), 300);
    assert_eq!(different.available_permits().await.unwrap(), 297);
    let fourth = different.acquire_many(8, SOON).await.unwrap();
    for permit in [first, second, third, fourth] {
        assert!(permit.is_held());
        permit.release().await.unwrap();
    }
    env.wait_no_permits().await;
}

// Shows: semaphore-limit
async fn smaller_limit_takes_nothing_away(env: &Env) {
    let (ours, theirs) = (env.semaphore(3).await, env.semaphore(3).await);
    let mut three = ours.acquire_many(3, SOON).await.unwrap();
    theirs.set_limit(1).await.unwrap();
    assert_eq!(three.state(), LockState::Held);
    assert_eq!(
        (
            ours.limit().await.unwrap(),
            ours.available_permits().await.unwrap()
        ),
        (1, 0)
    );
    let waiter = spawn(&theirs, 1);
    env.wait_semaphore_full().await;
    for _ in 0..2 {
        three.split(1).unwrap().release().await.unwrap();
        assert!(matches!(
            ours.try_acquire().await,
            Err(TryLockError::WouldBlock { .. })
        ));
        assert!(!waiter.is_finished());
    }
    three.release().await.unwrap();
    let next = within("its turn", waiter).await.unwrap().unwrap();
    assert_eq!(next.slot(), 0);
    assert!(matches!(
        ours.try_acquire().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    next.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn smaller_limit_ends_larger_waits(env: &Env) {
    let (ours, theirs) = (env.semaphore(3).await, env.semaphore(3).await);
    let one = ours.acquire(SOON).await.unwrap();
    let three = spawn(&theirs, 3);
    env.wait_semaphore_full().await;
    ours.set_limit(2).await.unwrap();
    let error = within("its end", three).await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::TooManyPermits {
                asked: 3,
                limit: 2,
                ..
            }
        ),
        "{error:?}"
    );
    // The failed waiter blocks no later caller.
    theirs.acquire(SOON).await.unwrap().release().await.unwrap();
    one.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn permits_are_split_and_merged(env: &Env) {
    let semaphore = env.semaphore(4).await;
    let mut most = semaphore.acquire_many(4, SOON).await.unwrap();
    let names = |permit: &SemaphorePermit| -> BTreeSet<String> {
        permit.nodes().iter().map(ToString::to_string).collect()
    };
    let nodes = names(&most);
    let mut one = most.split(1).unwrap();
    assert_eq!((most.num_permits(), one.num_permits()), (3, 1));
    assert!(most.split(0).is_none() && most.split(3).is_none() && one.split(1).is_none());
    assert_eq!(most.num_permits(), 3);
    assert_eq!(&names(&most) | &names(&one), nodes);
    // Each permit is returned separately.
    let two = most.split(2).unwrap();
    assert!(one.merge(two).is_ok());
    assert_eq!(
        (
            one.num_permits(),
            semaphore.available_permits().await.unwrap()
        ),
        (3, 0)
    );
    one.release().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 3);
    assert!(most.is_held() && names(&most).is_subset(&nodes));
    assert_eq!(env.children(&env.leases()).await.len(), 1);
    most.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn permits_of_others_are_not_merged(env: &Env) {
    let client = env.client().await;
    let mut ours = at(&client, &env.lock_path(), 4)
        .acquire(SOON)
        .await
        .unwrap();
    let foreign = [env.semaphore(4).await, at(&client, &env.path("other"), 4)];
    for semaphore in foreign {
        let theirs = semaphore.acquire(SOON).await.unwrap();
        let nodes = theirs.nodes();
        let theirs = ours.merge(theirs).unwrap_err();
        assert_eq!(
            (theirs.nodes(), theirs.is_held(), ours.num_permits()),
            (nodes, true, 1)
        );
        theirs.release().await.unwrap();
    }
    ours.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn free_slots_are_assigned(env: &Env) {
    let (ours, theirs) = (env.semaphore(4).await, env.semaphore(4).await);
    let zero = ours.acquire(SOON).await.unwrap();
    let some = theirs.acquire_many(2, SOON).await.unwrap();
    let three = ours.acquire(SOON).await.unwrap();
    assert_eq!(
        (zero.slots(), some.slots(), three.slots()),
        (vec![0], vec![1, 2], vec![3])
    );
    assert_eq!((zero.slot(), some.slot()), (0, 1));
    zero.release().await.unwrap();
    let again = theirs.acquire(SOON).await.unwrap();
    assert_eq!((again.slot(), three.slot()), (0, 3));
    some.release().await.unwrap();
    again.release().await.unwrap();
    // The free slots are those below the slot that is still held.
    let rest = ours.acquire_many(3, SOON).await.unwrap();
    assert_eq!(rest.slots(), [0, 1, 2]);
    rest.release().await.unwrap();
    three.release().await.unwrap();
    env.wait_no_permits().await;
}

// Shows: permit-tokens
async fn tokens_rise_with_each_grant(env: &Env) {
    let semaphores = [env.semaphore(3).await, env.semaphore(3).await];
    let mut newest = None;
    for round in 0..4 {
        let semaphore = &semaphores[round % 2];
        let mut first = semaphore.acquire(SOON).await.unwrap();
        let second = semaphores[1].acquire_many(2, SOON).await.unwrap();
        assert!(newest < Some(first.fencing_token()), "{newest:?} {first:?}");
        assert!(first.fencing_token() < second.fencing_token());
        newest = Some(second.fencing_token());
        if round % 2 == 1 {
            // Merged permits have the lowest of their tokens, because a resource would accept the
            // highest even after the token of a later holder.
            let (lowest, newer) = (first.fencing_token(), second.fencing_token());
            assert!(first.merge(second).is_ok());
            assert_eq!(first.fencing_token(), lowest);
            let split = first.split(1).unwrap();
            assert_eq!(split.fencing_token(), newer, "each has its own again");
            split.release().await.unwrap();
        }
        first.release().await.unwrap();
    }
    env.wait_no_permits().await;
}

async fn permit_knows_its_node(env: &Env) {
    let client = env.client().await;
    let semaphore = InterProcessSemaphore::builder(&client, env.lock_path(), 2)
        .data("worker-7")
        .build()
        .unwrap();
    let permit = semaphore.acquire_many(2, SOON).await.unwrap();
    assert_eq!(
        (permit.path(), semaphore.path()),
        (&*env.lock_path(), &*env.lock_path())
    );
    for node in permit.nodes() {
        assert!(node.starts_with(&format!("{}/", env.leases())), "{node}");
        let (data, stat) = env.get_data(&node).await.unwrap();
        assert_eq!(
            (&data[..], stat.ephemeral_owner),
            (&b"worker-7"[..], client.session_id().unwrap())
        );
    }
    assert_eq!(semaphore.participants().await.unwrap(), permit.nodes());
    permit.release().await.unwrap();
    assert_eq!(semaphore.participants().await.unwrap(), [""; 0]);
    env.wait_no_permits().await;
}

async fn drop_returns_the_permit(env: &Env) {
    let (ours, theirs) = (env.semaphore(2).await, env.semaphore(2).await);
    for _ in 0..4 {
        let permit = within("both", ours.acquire_many(2, SOON)).await.unwrap();
        let waiter = spawn(&theirs, 1);
        env.wait_children(&env.locks(), "a waiter", |now| !now.is_empty())
            .await;
        drop(permit);
        drop(within("the next", waiter).await.unwrap().unwrap());
    }
    env.wait_no_permits().await;
}

/// The permits of an expired session are free, and their holders are notified.
async fn session_end_loses_the_permit(env: &Env) {
    let (client, link) = env.linked(env.builder()).await;
    let (ours, theirs) = (at(&client, &env.lock_path(), 2), env.semaphore(2).await);
    let mut lost = ours.acquire_many(2, SOON).await.unwrap();
    let part = lost.split(1).unwrap();
    // A waiter in the same session starts again in the next.
    let waiters = [spawn(&theirs, 1), spawn(&ours, 1)];
    env.wait_count(&env.locks(), 2).await;
    env.expire(&client, &link).await;
    for permit in [&lost, &part] {
        let lost = within("the loss", permit.lost()).await;
        assert!(env.is_loss(lost.reason()), "{lost}");
        assert!(!permit.is_held() && matches!(permit.state(), LockState::Lost(_)));
        assert!(
            permit
                .while_held(async { unreachable!("work without a permit") })
                .await
                .is_err()
        );
    }
    let mut granted = Vec::new();
    for waiter in waiters {
        let next = within("a permit that was lost", waiter)
            .await
            .unwrap()
            .unwrap();
        assert!(next.fencing_token() > lost.fencing_token());
        granted.push(next);
    }
    // Returning lost permits takes nothing from their present holders.
    for permit in [lost, part] {
        assert!(matches!(
            within("an answer", permit.release()).await,
            Err(ReleaseError::Lost(_))
        ));
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(env.children(&env.leases()).await.len(), 2);
    for permit in granted {
        assert!(permit.is_held());
        permit.release().await.unwrap();
    }
    env.wait_no_permits().await;
}

// Shows: permit-tokens
async fn transaction_commits_while_held(env: &Env) {
    let semaphore = env.semaphore(3).await;
    let (permit, path) = (
        semaphore.acquire_many(2, SOON).await.unwrap(),
        env.path("written"),
    );
    permit
        .transaction()
        .create(&path, "by the holder")
        .commit()
        .await
        .unwrap();
    assert!(env.stat(&path).await.is_some());
    // All nodes of a permit value have to exist.
    env.delete(&permit.nodes()[1]).await;
    let refused = env.path("refused");
    let write = within(
        "an answer",
        permit.transaction().create(&refused, "").commit(),
    )
    .await;
    assert!(matches!(write, Err(TransactionError::Lost(_))), "{write:?}");
    assert!(env.stat(&refused).await.is_none());
    drop(permit);
    env.wait_no_permits().await;
}

// Shows: permit-tokens
async fn permit_revocation(env: &Env) {
    let (semaphore, other) = (env.semaphore(3).await, env.client().await);
    let permit = semaphore.acquire_many(2, SOON).await.unwrap();
    let revoked = tokio::spawn(permit.revoked());
    let nodes = semaphore.participants().await.unwrap();
    within("the request", other.attempt_revoke(&nodes[1]))
        .await
        .unwrap();
    within("the request", revoked).await.unwrap();
    assert!(permit.is_held());
    permit.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn closed_client_returns_all_permits(env: &Env) {
    let client = env.client().await;
    let (ours, theirs) = (at(&client, &env.lock_path(), 2), env.semaphore(2).await);
    let permit = ours.acquire_many(2, SOON).await.unwrap();
    let (waiter, next) = (spawn(&ours, 1), {
        env.wait_count(&env.locks(), 1).await;
        spawn(&theirs, 2)
    });
    env.wait_count(&env.locks(), 2).await;
    client.close().await.unwrap();
    assert_eq!(
        within("the loss", permit.lost()).await.reason(),
        LostReason::Closed
    );
    let error = within("its end", waiter).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error:?}");
    let next = within("the next", next).await.unwrap().unwrap();
    assert!(
        matches!(&ours.acquire(SOON).await, Err(error) if error.kind() == Some(ErrorKind::Closed))
    );
    assert!(matches!(&ours.limit().await, Err(error) if error.kind() == ErrorKind::Closed));
    assert!(matches!(&ours.set_limit(3).await, Err(error) if error.kind() == ErrorKind::Closed));
    drop(permit);
    assert!(next.is_held());
    next.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn cancelling_at_random_moments_leaves_nothing(env: &Env) {
    let client = env.client().await;
    let semaphore = at(&client, &env.lock_path(), 3);
    let mut granted = 0;
    for n in (0..60).map(|round| round % 3 + 1) {
        let patience = env.random().duration(Duration::from_millis(6));
        if let Ok(permit) = tokio::time::timeout(patience, semaphore.acquire_many(n, SOON)).await {
            drop(permit.unwrap());
            granted += 1;
        }
    }
    client.flush(SOON).await.unwrap();
    assert_eq!(
        env.children(&env.locks()).await,
        [""; 0],
        "{granted} were granted"
    );
    assert_eq!(
        env.children(&env.leases()).await,
        [""; 0],
        "{granted} were granted"
    );
    let all = env.semaphore(3).await;
    within("all permits", all.acquire_many(3, SOON))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn cancelled_waiter_grants_the_next(env: &Env) {
    let (ours, theirs) = (env.semaphore(2).await, env.semaphore(2).await);
    let held = within("one", ours.acquire(SOON)).await.unwrap();
    for _ in 0..3 {
        let much = spawn(&theirs, 2);
        env.wait_children(&env.locks(), "a waiter", |now| !now.is_empty())
            .await;
        let little = spawn(&ours, 1);
        much.abort();
        assert!(within("its end", much).await.unwrap_err().is_cancelled());
        within("the one behind it", little)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    held.release().await.unwrap();
    env.wait_no_permits().await;
}

async fn permits_survive_an_outage(env: &Env) {
    // The timeout is longer than three servers on a busy machine take to come back.
    let patient = || env.connect(env.builder().session_timeout(Duration::from_secs(60)));
    let (ours, theirs) = (
        at(&patient().await, &env.lock_path(), 2),
        at(&patient().await, &env.lock_path(), 2),
    );
    let held = within("both", ours.acquire_many(2, SOON)).await.unwrap();
    let mut waiting = Vec::new();
    for (number, semaphore) in [&theirs, &ours, &theirs].into_iter().enumerate() {
        waiting.push(spawn(semaphore, 1));
        env.wait_count(&env.locks(), number + 1).await;
    }
    env.stop_servers().await;
    env.restart_servers().await;
    assert!(held.is_held(), "the outage was short");
    assert!(waiting.iter().all(|waiter| !waiter.is_finished()));
    within("the release", held.release()).await.unwrap();
    for waiter in waiting {
        within("its turn", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    env.wait_no_permits().await;
}

async fn directories_are_containers(env: &Env) {
    let semaphore = env.semaphore(2).await;
    semaphore.set_limit(2).await.unwrap();
    let permit = semaphore.acquire(SOON).await.unwrap();
    for path in [env.lock_path(), env.locks(), env.leases()] {
        assert_eq!(
            env.server().node(&path).unwrap().kind,
            NodeKind::Container,
            "{path}"
        );
    }
    let limit = format!("{}/permits", env.lock_path());
    assert_eq!(
        env.server().node(&limit).unwrap().kind,
        NodeKind::Persistent
    );
    permit.release().await.unwrap();
}

async fn swept_directories_are_made_again(env: &Env) {
    let semaphore = env.semaphore(2).await;
    for _ in 0..2 {
        let permit = within("both", semaphore.acquire_many(2, SOON))
            .await
            .unwrap();
        env.sweep(&env.locks()).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 0);
        permit.release().await.unwrap();
        env.sweep(&env.leases()).await;
        assert_eq!(semaphore.available_permits().await.unwrap(), 2);
        assert_eq!(semaphore.participants().await.unwrap(), [""; 0]);
    }
    env.sweep(&env.lock_path()).await;
    assert_eq!(semaphore.limit().await.unwrap(), 2);
    within("one", semaphore.acquire(SOON))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn namespace_is_hidden(env: &Env) {
    let namespace = env.path("ns");
    let client = env.connect(env.builder().namespace(&namespace)).await;
    let semaphore = at(&client, "/foo/bar", 2);
    semaphore.set_limit(3).await.unwrap();
    let permit = semaphore.acquire(SOON).await.unwrap();
    assert_eq!(permit.path(), "/foo/bar");
    assert!(
        permit.nodes()[0].starts_with("/foo/bar/leases/"),
        "{permit:?}"
    );
    assert_eq!(semaphore.participants().await.unwrap(), permit.nodes());
    // A client without the namespace contends for the same permits.
    let other = at(&env.client().await, &format!("{namespace}/foo/bar"), 2);
    assert_eq!(
        (
            other.limit().await.unwrap(),
            other.available_permits().await.unwrap()
        ),
        (3, 2)
    );
    assert!(matches!(
        other.try_acquire_many(3).await,
        Err(TryLockError::WouldBlock { .. })
    ));
    permit.release().await.unwrap();
    other
        .try_acquire_many(3)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn acl_covers_all_nodes(env: &Env) {
    let client = env
        .connect(env.builder().auth("digest", "shop:secret"))
        .await;
    let path = env.lock_path();
    let semaphore = InterProcessSemaphore::builder(&client, &path, 2)
        .acl([Acl::creator_all()])
        .build()
        .unwrap();
    semaphore.set_limit(2).await.unwrap();
    let permit = semaphore.acquire(SOON).await.unwrap();
    let limit = format!("{path}/permits");
    for node in [
        path.clone(),
        env.locks(),
        env.leases(),
        limit,
        permit.nodes().remove(0).to_string(),
    ] {
        assert!(
            matches!(env.get_data(&node).await, Err(zk::Error::NoAuth)),
            "{node}"
        );
    }
    let stranger = env.semaphore(2).await;
    for error in [
        within("an answer", stranger.acquire(SOON))
            .await
            .unwrap_err(),
        within("an answer", stranger.limit())
            .await
            .unwrap_err()
            .into(),
        within("an answer", stranger.available_permits())
            .await
            .unwrap_err()
            .into(),
    ] {
        assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error:?}");
        assert!(
            error.to_string().contains(&path) && !error.is_retryable(),
            "{error}"
        );
    }
    let error = within("an answer", stranger.set_limit(3))
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::NoAuth && !error.is_retryable(),
        "{error:?}"
    );
    assert!(error.to_string().contains(&path), "{error}");
    assert!(permit.is_held());
    permit.release().await.unwrap();
    assert_eq!(semaphore.available_permits().await.unwrap(), 2);
}

/// A denied create in any of the directories, or in their parent, is an error that names the
/// directory, and leaves nothing behind.
async fn denied_create_in_directories_fails(env: &Env) {
    let acls = [zk::Acl::new(zk::Permission::READ, zk::AuthId::anyone())];
    let closed = zk::CreateMode::Persistent.with_acls(zk::Acls::new(&acls));
    let client = env.client().await;
    for below in ["", "/locks", "/leases"] {
        let path = env.path(&format!("closed{}", below.replace('/', "-")));
        let directory = env.create_with(&format!("{path}{below}"), &closed).await;
        let semaphore = at(&client, &path, 2);
        let error = within("an answer", semaphore.acquire(SOON))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{below}: {error:?}");
        assert!(
            error.to_string().contains(&directory) && !error.is_retryable(),
            "{error}"
        );
        client.flush(SOON).await.unwrap();
        for children in [
            env.children(&format!("{path}/locks")),
            env.children(&format!("{path}/leases")),
        ] {
            assert_eq!(children.await, [""; 0], "{below}");
        }
    }
}

async fn rejects_zero_and_excessive_limits(env: &Env) {
    let client = env.client().await;
    for limit in [0, 10_001, u32::MAX] {
        let error = InterProcessSemaphore::new(&client, env.lock_path(), limit).unwrap_err();
        assert!(
            matches!(error, BuildError::InvalidOption { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(&env.lock_path()), "{error}");
    }
    assert!(matches!(
        InterProcessSemaphore::new(&client, "no path", 1),
        Err(BuildError::InvalidPath(_))
    ));
    let semaphore = at(&client, &env.lock_path(), 2);
    let error = InterProcessSemaphore::new(&client, env.lock_path(), 3).unwrap_err();
    assert!(
        matches!(
            error,
            BuildError::LimitMismatch {
                ours: 3,
                theirs: 2,
                ..
            }
        ),
        "{error:?}"
    );
    drop(semaphore);
    assert!(env.stat(&env.lock_path()).await.is_none());
}

/// The request is refused, and the semaphore stays unchanged.
async fn rejects_zero_and_excessive_permits(env: &Env) {
    let semaphore = env.semaphore(3).await;
    let permit = semaphore.acquire(SOON).await.unwrap();
    let acquired = |n| within("an answer", semaphore.acquire_many(n, SOON));
    let error = acquired(0).await.unwrap_err();
    assert!(
        matches!(error, AcquireError::ZeroPermits { .. }),
        "{error:?}"
    );
    let error = acquired(4).await.unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::TooManyPermits {
                asked: 4,
                limit: 3,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(
        error.to_string().contains('4') && error.to_string().contains('3'),
        "{error}"
    );
    assert!(
        error.to_string().contains(&env.lock_path()) && !error.is_retryable(),
        "{error}"
    );
    match within("an answer", semaphore.try_acquire_many(4))
        .await
        .unwrap_err()
    {
        TryLockError::Acquire(error) => {
            assert!(
                matches!(error, AcquireError::TooManyPermits { .. }),
                "{error:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    let error = semaphore.set_limit(0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{error:?}");
    let error = semaphore.set_limit(u32::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidLimit, "{error:?}");
    assert!(
        env.stat(&format!("{}/permits", env.lock_path()))
            .await
            .is_none()
    );
    assert_eq!(
        (
            semaphore.limit().await.unwrap(),
            semaphore.available_permits().await.unwrap()
        ),
        (3, 2)
    );
    permit.release().await.unwrap();
    env.wait_no_permits().await;
}

/// Two processes disagree: the error states both numbers, until a limit is set for both.
// Shows: semaphore-limit
async fn conflicting_limits_are_refused(env: &Env) {
    let (ours, theirs) = (env.semaphore(3).await, env.semaphore(5).await);
    let permit = ours.acquire(SOON).await.unwrap();
    for error in [
        within("an answer", theirs.acquire(SOON)).await.unwrap_err(),
        within("an answer", theirs.available_permits())
            .await
            .unwrap_err()
            .into(),
    ] {
        assert_eq!(error.kind(), Some(ErrorKind::LimitMismatch), "{error:?}");
        assert!(
            error.to_string().contains(" is 5 here, ")
                && error.to_string().contains(" limit of 3:"),
            "{error}"
        );
    }
    env.wait_count(&env.locks(), 0).await;
    assert_eq!(env.children(&env.leases()).await.len(), 1);
    theirs.set_limit(5).await.unwrap();
    let four = within("what is free of five", theirs.acquire_many(4, SOON))
        .await
        .unwrap();
    assert!(matches!(
        ours.try_acquire().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    four.release().await.unwrap();
    permit.release().await.unwrap();
    env.wait_no_permits().await;
}

/// The limit's node has data that is not a limit, or an invalid limit.
async fn rejects_malformed_limit_node(env: &Env) {
    let semaphore = env.semaphore(3).await;
    let node = env
        .create(
            &format!("{}/permits", env.lock_path()),
            zk::CreateMode::Persistent,
        )
        .await;
    let bad: [&[u8]; 5] = [
        b"",
        b"5",
        b"\0\0\0\0\0\0\0\x05",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
    ];
    for data in bad {
        env.plain_client()
            .await
            .set_data(&node, data, None)
            .await
            .unwrap();
        for error in [
            within("an answer", semaphore.acquire(SOON))
                .await
                .unwrap_err(),
            within("an answer", semaphore.limit())
                .await
                .unwrap_err()
                .into(),
        ] {
            assert_eq!(
                error.kind(),
                Some(ErrorKind::InvalidLimit),
                "{data:?}: {error:?}"
            );
            assert!(error.to_string().contains(&node), "{error}");
        }
        env.wait_count(&env.locks(), 0).await;
    }
    semaphore.set_limit(2).await.unwrap();
    within("both", semaphore.acquire_many(2, SOON))
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    env.wait_no_permits().await;
}
