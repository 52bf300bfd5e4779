//! Holders and waiters of a lock, and the effect of breaking it.

use test_support::prelude::*;
use zookeeper_client as zk;

use crate::harness::{Behaviour, Env, behaviours};

pub(crate) fn all() -> Vec<Behaviour> {
    behaviours![
        queue_lists_its_contenders.with_faults().also_on_ensemble(),
        leading_readers_hold_together,
        semaphore_shows_holders_and_waiters,
        foreign_data_is_shown_unchanged,
        timeout_and_try_name_the_holder,
        timeout_and_try_name_permit_holder,
        broken_holder_is_notified.also_on_ensemble(),
        broken_waiter_requeues_at_end,
        broken_permit_is_lost_and_free,
        break_spares_other_nodes,
    ]
}

async fn named(env: &Env, name: &str) -> Client {
    env.connect(env.builder().name(name)).await
}

/// The names in the identities.
fn names(contenders: &[Contender]) -> Vec<&str> {
    contenders
        .iter()
        .map(|contender| contender.identity().name().unwrap())
        .collect()
}

// Shows: identity
async fn queue_lists_its_contenders(env: &Env) {
    let path = env.lock_path();
    let (stock, shop) = (named(env, "stock").await, named(env, "shop").await);
    let holder = InterProcessMutex::new(&stock, &path).unwrap();
    let other = InterProcessFairLock::new(&shop, &path).unwrap();
    assert!(!other.is_locked().await.unwrap());
    assert_eq!(
        (other.queue().await.unwrap(), other.holders().await.unwrap()),
        (vec![], vec![])
    );
    let guard = within("the grant", holder.lock()).await.unwrap();
    // An unanswered create is repeated: the first node is in the queue too, until it is deleted.
    let mut place = within("a place in the queue", other.enqueue())
        .await
        .unwrap();
    env.wait_count(&path, 2).await;
    let lock: &dyn InterProcessLock = &other;
    assert!(lock.is_locked().await.unwrap());
    assert_eq!(lock.queue_len().await.unwrap(), 2);
    let queue = lock.queue().await.unwrap();
    assert_eq!(names(&queue), ["stock", "shop"]);
    let participants = other.participants().await.unwrap();
    assert!(queue.iter().map(Contender::node).eq(&participants));
    let [first, second] = &queue[..] else {
        panic!("{queue:?}")
    };
    assert_eq!(lock.holders().await.unwrap()[0].node(), first.node());
    assert_eq!((first.is_mine(), second.is_mine()), (false, true));
    let sessions = [stock.session_id(), shop.session_id()];
    assert_eq!(
        [Some(first.session_id()), Some(second.session_id())],
        sessions
    );
    assert_eq!(first.token(), Some(guard.fencing_token()));
    for contender in &queue {
        let identity = contender.identity();
        assert_eq!(
            (contender.kind(), identity.pid()),
            (ContenderKind::Exclusive, Some(std::process::id()))
        );
        assert!(!identity.host().unwrap().is_empty());
        // The servers are on this host and use the same clock.
        let apart = contender.since().duration_since(identity.since().unwrap());
        assert!(
            apart.unwrap_or_default() < Duration::from_secs(60),
            "{contender}"
        );
        assert!(contender.age() < Duration::from_secs(600), "{contender}");
        assert!(
            contender
                .to_string()
                .contains(&format!("/{}/s", std::process::id())),
            "{contender}"
        );
    }
    assert!(first.since() <= second.since());
    guard.release().await.unwrap();
    let guard = within("the second in line", place.lock()).await.unwrap();
    assert_eq!(names(&holder.queue().await.unwrap()), ["shop"]);
    guard.release().await.unwrap();
    assert!(!other.is_locked().await.unwrap());
}

// Shows: identity
async fn leading_readers_hold_together(env: &Env) {
    let path = env.lock_path();
    let (one, two) = (named(env, "one").await, named(env, "two").await);
    let lock = InterProcessReadWriteLock::new(&one, &path).unwrap();
    // The readers of this lock share no node.
    let other = InterProcessReadWriteLock::builder(&two, &path)
        .hand_off(1, SOON)
        .build()
        .unwrap();
    let first = within("a reader", lock.read_lock().lock()).await.unwrap();
    let second = within("a reader", other.read_lock().lock()).await.unwrap();
    let writer = tokio::spawn(lock.write_lock().lock());
    env.wait_count(&path, 3).await;
    let late = tokio::spawn(other.read_lock().lock());
    env.wait_count(&path, 4).await;
    let queue = lock.queue().await.unwrap();
    assert_eq!(names(&queue), ["one", "two", "one", "two"]);
    let kinds: Vec<ContenderKind> = queue.iter().map(Contender::kind).collect();
    use ContenderKind::{Read, Write};
    assert_eq!(kinds, [Read, Read, Write, Read]);
    let holders = other.holders().await.unwrap();
    assert!(
        holders
            .iter()
            .map(Contender::node)
            .eq([&first.node(), &second.node()]),
        "{holders:?}"
    );
    // Each side shows the whole queue, unlike `participants`.
    assert_eq!(lock.write_lock().queue_len().await.unwrap(), 4);
    assert_eq!(lock.read_lock().holders().await.unwrap().len(), 2);
    assert_eq!(lock.write_lock().participants().await.unwrap().len(), 1);
    // The tokens of readers have another type, and state no order among them.
    assert_eq!(holders[0].token(), None);
    first.release().await.unwrap();
    second.release().await.unwrap();
    let writer = within("the writer", writer).await.unwrap().unwrap();
    let holders = lock.holders().await.unwrap();
    assert_eq!((holders.len(), holders[0].kind()), (1, Write));
    assert_eq!(holders[0].token(), Some(writer.fencing_token()));
    // A downgrade makes the writer a reader.
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let late = within("the last reader", late).await.unwrap().unwrap();
    let both = lock.holders().await.unwrap();
    assert_eq!(
        both.iter().map(Contender::kind).collect::<Vec<_>>(),
        [Read, Read]
    );
    assert!(both.iter().all(|holder| holder.token().is_none()));
    late.release().await.unwrap();
    reader.release().await.unwrap();
}

// Shows: identity
async fn semaphore_shows_holders_and_waiters(env: &Env) {
    let path = env.lock_path();
    let (one, two) = (named(env, "one").await, named(env, "two").await);
    let semaphore = InterProcessSemaphore::new(&one, &path, 3).unwrap();
    let other = InterProcessSemaphore::new(&two, &path, 3).unwrap();
    assert_eq!(
        (other.holders().await.unwrap(), other.queue().await.unwrap()),
        (vec![], vec![])
    );
    let permits = within(
        "two permits",
        semaphore.acquire_many(2, Duration::from_secs(20)),
    )
    .await
    .unwrap();
    let last = within("the last", other.try_acquire()).await.unwrap();
    let waiter = tokio::spawn(other.acquire(Duration::from_secs(60)));
    env.wait_count(&env.locks(), 1).await;
    let holders = other.holders().await.unwrap();
    assert_eq!(names(&holders), ["one", "one", "two"]);
    assert!(
        holders
            .iter()
            .all(|holder| holder.kind() == ContenderKind::Permit && holder.token().is_none())
    );
    let expected: Vec<_> = [permits.nodes(), last.nodes()].concat();
    assert!(
        holders.iter().map(Contender::node).eq(&expected),
        "{holders:?}"
    );
    assert_eq!(
        holders.iter().map(Contender::is_mine).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!(
        (
            names(&semaphore.queue().await.unwrap()),
            semaphore.queue_len().await.unwrap()
        ),
        (vec!["two"], 1)
    );
    permits.release().await.unwrap();
    within("a permit", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    last.release().await.unwrap();
    env.wait_no_permits().await;
}

// Shows: identity
async fn foreign_data_is_shown_unchanged(env: &Env) {
    let path = env.lock_path();
    let mutex = env.mutex().await;
    let prefix = format!("{path}/lock-");
    let plain_client = env.plain_client().await;
    let mode = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());
    // The directory exists, as Curator leaves it.
    within("the grant", mutex.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let data: [&[u8]; 5] = [
        b"10.0.0.7",
        b"",
        b"a\xff\nb",
        "web-3/7/x since 9".as_bytes(),
        &[b'x'; 5_000],
    ];
    for data in data {
        plain_client.create(&prefix, data, &mode).await.unwrap();
    }
    let queue = mutex.queue().await.unwrap();
    let text: Vec<&str> = queue
        .iter()
        .map(|contender| contender.identity().text())
        .collect();
    assert_eq!(
        &text[..4],
        ["10.0.0.7", "", "a\u{fffd}\nb", "web-3/7/x since 9"]
    );
    assert!(text[4].len() < 300 && text[4].starts_with("xxx"));
    assert_eq!(queue[3].identity().pid(), Some(7));
    assert!(
        queue
            .iter()
            .all(|contender| contender.session_id() == plain_client.session_id().0)
    );
    for contender in &queue {
        assert!(!contender.to_string().contains('\n'), "{contender}");
        assert!(mutex.break_lock(contender).await.unwrap());
    }
    assert_eq!(env.children(&path).await, [""; 0]);
}

// Shows: held-by
async fn timeout_and_try_name_the_holder(env: &Env) {
    let path = env.lock_path();
    let (stock, second) = (named(env, "stock").await, env.mutex().await);
    let guard = within(
        "the grant",
        InterProcessMutex::new(&stock, &path).unwrap().lock(),
    )
    .await
    .unwrap();
    let waiter = tokio::spawn(second.lock());
    env.wait_count(&path, 2).await;
    let third = env.mutex().await;
    let tried = third.try_lock().await.unwrap_err();
    let TryLockError::WouldBlock {
        contention:
            Contention {
                held_by: Some(holder),
                ahead: 2,
                ..
            },
        ..
    } = &tried
    else {
        panic!("{tried}")
    };
    assert_eq!(
        (holder.node(), holder.identity().name()),
        (&guard.node(), Some("stock"))
    );
    // The third waiter is behind another, and asks a tenth of a second before its deadline. A busy
    // machine may not have the answer by then.
    let timed_out = async {
        loop {
            let error = third.acquire(Duration::from_secs(1)).await.unwrap_err();
            match &error {
                AcquireError::TimedOut { contention, .. } => {
                    assert_eq!(contention.ahead, 2, "{error}");
                    if let Some(holder) = contention.held_by.clone() {
                        return (error, holder);
                    }
                }
                _ => panic!("{error}"),
            }
        }
    };
    let (error, holder) = within("a timeout that names the holder", timed_out).await;
    assert_eq!(
        (holder.node(), holder.identity().name()),
        (&guard.node(), Some("stock"))
    );
    assert!(
        error.to_string().contains("/stock for ")
            && error.to_string().contains("2 contenders are ahead")
    );
    guard.release().await.unwrap();
    within("the second", waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The error names the holder of the oldest permit, both at the head of the queue and behind it.
// Shows: held-by
async fn timeout_and_try_name_permit_holder(env: &Env) {
    let path = env.lock_path();
    let (stock, shop) = (named(env, "stock").await, named(env, "shop").await);
    let semaphore = |client| InterProcessSemaphore::new(client, &path, 2).unwrap();
    let oldest = within("a permit", semaphore(&stock).try_acquire()).await;
    let oldest = oldest.unwrap();
    let second = within("a permit", semaphore(&shop).try_acquire()).await;
    let second = second.unwrap();
    let third = env.semaphore(2).await;
    let tried = third.try_acquire().await.unwrap_err();
    let (text, node) = (tried.to_string(), oldest.nodes().remove(0));
    let TryLockError::WouldBlock { contention, .. } = tried else {
        panic!("{tried}")
    };
    let holder = contention.held_by.unwrap();
    assert_eq!(
        (holder.kind(), holder.identity().name(), contention.ahead),
        (ContenderKind::Permit, Some("stock"), 2)
    );
    assert_eq!(holder.node(), &node);
    assert!(
        text.contains(": 2 permits are held, the oldest by ") && text.contains("/stock for "),
        "{text}"
    );
    let head = tokio::spawn(third.acquire(Duration::from_secs(60)));
    env.wait_semaphore_full().await;
    oldest.release().await.unwrap();
    let oldest = within("the head", head).await.unwrap().unwrap();
    let at_head = env.semaphore(2).await;
    let late = within("the end", at_head.acquire(Duration::from_secs(5))).await;
    let text = late.unwrap_err().to_string();
    assert!(
        text.contains(": 2 permits are held, the oldest by ") && text.contains("/shop for "),
        "{text}"
    );
    let head = tokio::spawn(at_head.acquire(Duration::from_secs(60)));
    env.wait_semaphore_full().await;
    let behind = env.semaphore(2).await;
    let late = within("the end", behind.acquire(Duration::from_secs(5))).await;
    let text = late.unwrap_err().to_string();
    assert!(
        text.contains(": the oldest permit is held by ") && text.contains("/shop for "),
        "{text}"
    );
    oldest.release().await.unwrap();
    within("the head", head)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    second.release().await.unwrap();
}

/// Returns a mutex whose client checks its nodes every two seconds.
async fn beating(env: &Env) -> InterProcessMutex {
    let client = env
        .connect(env.builder().session_timeout(Duration::from_secs(12)))
        .await;
    InterProcessMutex::new(&client, env.lock_path()).unwrap()
}

// Shows: break-lock
async fn broken_holder_is_notified(env: &Env) {
    let path = env.lock_path();
    let (ours, theirs) = (beating(env).await, env.mutex().await);
    let guard = within("the grant", ours.lock()).await.unwrap();
    let waiter = tokio::spawn(theirs.lock());
    env.wait_count(&path, 2).await;
    let operator = env.mutex().await;
    let holders = operator.holders().await.unwrap();
    assert!(operator.break_lock(&holders[0]).await.unwrap());
    let next = within("the next in line", waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    // No write by the broken guard is committed any more, even before it is notified.
    let write = guard.transaction().set_data(&path, b"late", None);
    within("the answer", write.commit()).await.unwrap_err();
    let lost = within("the loss, with a heartbeat", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::NodeDeleted);
    assert!(
        !operator.break_lock(&holders[0]).await.unwrap(),
        "expected no node"
    );
    assert!(next.is_held());
    next.release().await.unwrap();
    assert!(guard.release().await.is_err());
}

// Shows: break-lock
async fn broken_waiter_requeues_at_end(env: &Env) {
    let path = env.lock_path();
    let (ours, theirs, third) = (env.mutex().await, env.mutex().await, env.mutex().await);
    let guard = within("the grant", ours.lock()).await.unwrap();
    let broken = tokio::spawn(theirs.lock());
    env.wait_count(&path, 2).await;
    let waits = tokio::spawn(third.lock());
    env.wait_count(&path, 3).await;
    let queue = ours.queue().await.unwrap();
    env.wait_watchers(queue[1].node(), 1).await;
    assert!(ours.break_lock(&queue[1]).await.unwrap());
    guard.release().await.unwrap();
    let third = within("the one behind it", waits).await.unwrap().unwrap();
    assert!(!broken.is_finished());
    // The contender is in the queue again, behind the holder.
    env.wait_count(&path, 2).await;
    third.release().await.unwrap();
    let guard = within("the one that was broken", broken)
        .await
        .unwrap()
        .unwrap();
    assert_ne!(&guard.node(), queue[1].node());
    guard.release().await.unwrap();
}

// Shows: break-lock
async fn broken_permit_is_lost_and_free(env: &Env) {
    let client = env
        .connect(env.builder().session_timeout(Duration::from_secs(12)))
        .await;
    let ours = InterProcessSemaphore::new(&client, env.lock_path(), 2).unwrap();
    let theirs = env.semaphore(2).await;
    let permits = within("both", ours.try_acquire_many(2)).await.unwrap();
    let waiter = tokio::spawn(theirs.acquire(Duration::from_secs(60)));
    env.wait_semaphore_full().await;
    let holders = theirs.holders().await.unwrap();
    assert!(theirs.break_lock(&holders[0]).await.unwrap());
    let permit = within("the permit", waiter).await.unwrap().unwrap();
    assert_eq!(
        within("the loss", permits.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(permits.release().await.is_err());
    permit.release().await.unwrap();
    env.wait_no_permits().await;
}

/// Names without an id recur when the directory is made anew, and a lock's node belongs to that
/// lock only.
// Shows: break-lock
async fn break_spares_other_nodes(env: &Env) {
    let path = env.lock_path();
    let mutex = env.mutex().await;
    let node = format!("{path}/lock-0000000007");
    env.create(&node, zk::CreateMode::Ephemeral).await;
    let [old] = &mutex.queue().await.unwrap()[..] else {
        panic!("one contender")
    };
    env.delete(&node).await;
    env.create(&node, zk::CreateMode::Ephemeral).await;
    assert!(
        !mutex.break_lock(old).await.unwrap(),
        "expected the new node to be spared"
    );
    let [new] = &mutex.queue().await.unwrap()[..] else {
        panic!("one contender")
    };
    let other = InterProcessMutex::new(&env.client().await, env.path("other")).unwrap();
    let error = other.break_lock(new).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert!(
        error
            .to_string()
            .starts_with(&format!("the node {node:?} is in no queue")),
        "{error}"
    );
    // Other data that were written to the node, by Curator's `Revoker` for example, change nothing.
    env.plain_client()
        .await
        .set_data(&node, b"__REVOKE__", None)
        .await
        .unwrap();
    assert!(mutex.break_lock(new).await.unwrap());
    assert_eq!(env.children(&path).await, [""; 0]);
}
