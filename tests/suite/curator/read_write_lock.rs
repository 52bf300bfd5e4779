//! TestInterProcessReadWriteLock, and behaviours that it omits.

use test_support::prelude::*;
use tokio::sync::Barrier;

use super::stage::{Kind, Stage, ported};
use crate::harness::{Behaviour, SharedSection};

pub(crate) fn all() -> Vec<Behaviour> {
    // The kind does not matter: each test uses both.
    ported![Kind::Write;
        test_get_participant_nodes = "TestInterProcessReadWriteLock.testGetParticipantNodes",
        test_that_upgrading_is_disallowed = "TestInterProcessReadWriteLock.testThatUpgradingIsDisallowed",
        test_that_downgrading_respects_threads =
            "TestInterProcessReadWriteLock.testThatDowngradingRespectsThreads",
        test_downgrading = "TestInterProcessReadWriteLock.testDowngrading",
        test_downgrading_at_once = "TestInterProcessReadWriteLock.testDowngrading",
        test_contending_downgrading = "TestInterProcessReadWriteLock.testContendingDowngrading"
            .also_on_ensemble(),
        test_basic = "TestInterProcessReadWriteLock.testBasic".with_faults().also_on_ensemble(),
        test_set_node_data = "TestInterProcessReadWriteLock.testSetNodeData",
        test_lock_path = "TestInterProcessReadWriteLock.testLockPath",
        own_readers_and_writers_exclude,
        downgrades_keep_writers_alone.with_faults().also_on_ensemble(),
        conversion_keeps_its_listeners,
        downgrades_need_no_queue_place,
    ]
}

fn pair(stage: &Stage<'_>, client: &Client) -> (InterProcessReadLock, InterProcessWriteLock) {
    let lock = InterProcessReadWriteLock::new(client, stage.env.lock_path()).unwrap();
    (lock.read_lock(), lock.write_lock())
}

/// Twenty readers and eight writers, counted by kind, and in total by the order of the queue.
// Shows: bounded-nodes
async fn test_get_participant_nodes(stage: &Stage<'_>) {
    let client = stage.client().await;
    let path = stage.env.lock_path();
    // The readers share no node, as Curator's do not.
    let lock = InterProcessReadWriteLock::builder(&client, &path)
        .hand_off(1, SOON)
        .build()
        .unwrap();
    let (read, write) = (lock.read_lock(), lock.write_lock());
    let mut readers = Vec::new();
    for _ in 0..20 {
        readers.push(within("a reader's grant", read.lock()).await.unwrap());
    }
    let mut writers = JoinSet::new();
    for writer in 1..=8 {
        // The writers of one client would wait behind one node.
        let write = pair(stage, &stage.client().await).1;
        writers.spawn(async move { write.lock().await.unwrap().release().await.unwrap() });
        stage.env.wait_count(&path, 20 + writer).await;
    }
    let strangers = stage.client().await;
    let (their_read, their_write) = pair(stage, &strangers);
    for (read, write) in [(&read, &write), (&their_read, &their_write)] {
        let (readers_seen, writers_seen) = (
            read.participants().await.unwrap(),
            write.participants().await.unwrap(),
        );
        assert_eq!((readers_seen.len(), writers_seen.len()), (20, 8));
        assert!(
            readers_seen
                .iter()
                .all(|node| node.starts_with(&path) && node.contains("-__READ__"))
        );
        assert!(
            writers_seen
                .iter()
                .all(|node| node.starts_with(&path) && node.contains("-__WRIT__"))
        );
        let held: Vec<_> = readers.iter().map(|guard| guard.node()).collect();
        assert_eq!(readers_seen, held);
    }
    let lock = InterProcessReadWriteLock::new(&strangers, &path).unwrap();
    let all = lock.participants().await.unwrap();
    let by_kind = [
        read.participants().await.unwrap(),
        write.participants().await.unwrap(),
    ]
    .concat();
    assert_eq!(all, by_kind, "the readers came first");
    for reader in readers {
        reader.release().await.unwrap();
    }
    all_done("every writer", writers).await;
}

/// A caller that holds a read lock and waits for the write lock waits for itself.
async fn test_that_upgrading_is_disallowed(stage: &Stage<'_>) {
    let (read, write) = pair(stage, &stage.client().await);
    let reader = within("a free lock", read.lock()).await.unwrap();
    let waiter = tokio::spawn(write.lock());
    stage.env.wait_count(&stage.env.lock_path(), 2).await;
    // The answer comes after that of the waiter's list.
    assert_eq!(write.participants().await.unwrap().len(), 1);
    let refused = write.acquire(Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(refused, AcquireError::TimedOut { .. }),
        "{refused}"
    );
    assert!(!waiter.is_finished());
    waiter.abort();
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    assert!(
        reader.is_held()
            && read.is_acquired_in_this_process()
            && !write.is_acquired_in_this_process()
    );
    assert!(matches!(
        write.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));

    assert!(reader.is_held() && stage.env.stat(&reader.node()).await.is_some());
    reader.release().await.unwrap();
    within("a free lock", write.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A writing task excludes all readers, even of the same handle.
async fn test_that_downgrading_respects_threads(stage: &Stage<'_>) {
    let client = stage.client().await;
    let (read, write) = pair(stage, &client);
    let writer = within("a free lock", write.lock()).await.unwrap();
    let second = tokio::spawn({
        let read = read.clone();
        async move {
            (
                read.acquire(Duration::ZERO).await.map(drop),
                read.try_lock().await.map(drop),
            )
        }
    });
    let (asked, tried) = within("the second task", second).await.unwrap();
    assert!(
        matches!(asked, Err(AcquireError::TimedOut { .. })),
        "{asked:?}"
    );
    assert!(
        matches!(tried, Err(TryLockError::WouldBlock { .. })),
        "{tried:?}"
    );
    let waiter = tokio::spawn(read.lock());
    stage.env.wait_count(&stage.env.lock_path(), 2).await;
    // The answer comes after that of the waiter's list.
    assert_eq!(read.participants().await.unwrap().len(), 1);
    assert!(!waiter.is_finished());
    waiter.abort();
    stage.env.wait_count(&stage.env.lock_path(), 1).await;
    // Only the guard itself can be converted.
    let shared = writer.reenter_as_reader().unwrap();
    assert!(shared.is_held());
    shared.release().await.unwrap();
    assert!(writer.is_held());
    writer.release().await.unwrap();
    within("a free lock", read.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The sequence is: write, read, release the write lock, release the read lock. Until then the lock
/// is exclusive: an inner read is a share of the writer's hold.
async fn test_downgrading(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let (read, write) = pair(stage, &theirs);
    let writer = within("a free lock", pair(stage, &ours).1.lock())
        .await
        .unwrap();
    let node = writer.node();
    let reader = writer.reenter_as_reader().unwrap();
    assert_eq!(reader.hold_count(), 2);
    writer.release().await.unwrap();
    assert!(reader.is_held() && stage.env.stat(&node).await.is_some());
    assert!(matches!(
        read.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    assert!(matches!(
        write.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    reader.release().await.unwrap();
    assert!(stage.env.stat(&node).await.is_none());
    within("a free lock", write.try_lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The guard itself becomes a reader's: other readers share the lock, no writer does, and the token
/// stays.
async fn test_downgrading_at_once(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let path = stage.env.lock_path();
    let (read, write) = pair(stage, &theirs);
    let writer = within("a free lock", pair(stage, &ours).1.lock())
        .await
        .unwrap();
    let (node, token) = (writer.node(), writer.fencing_token());
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    assert!(reader.is_held());
    assert_eq!(
        reader.fencing_token(),
        ReadToken::from_parts(token.zxid(), token.counter())
    );
    // The node has the writer's number, before all later contenders.
    assert_eq!(
        reader.node()[reader.node().len() - 18..],
        node[node.len() - 18..].replace("__WRIT__", "__READ__")
    );
    assert_eq!(stage.env.children(&path).await.len(), 1);
    let other = within("another reader's grant", read.try_lock())
        .await
        .unwrap();
    assert!(matches!(
        write.try_lock().await,
        Err(TryLockError::WouldBlock { .. })
    ));
    other.release().await.unwrap();
    reader.release().await.unwrap();
    within("a free lock", write.try_lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A queued writer is not granted the lock when the holder is downgraded to a reader. In Curator
/// before 5.5.0 it was.
// Shows: downgrade
async fn test_contending_downgrading(stage: &Stage<'_>) {
    let (ours, theirs) = (stage.client().await, stage.client().await);
    let path = stage.env.lock_path();
    for (holds, queued) in [(&ours, &theirs), (&theirs, &ours)] {
        let writer = within("a free lock", pair(stage, holds).1.lock())
            .await
            .unwrap();
        let (read, write) = pair(stage, queued);
        let mut next = tokio::spawn(async move { write.lock().await.unwrap() });
        stage.env.wait_watchers(&writer.node(), 1).await;
        let last = tokio::spawn(async move { read.lock().await.unwrap() });
        stage.env.wait_count(&path, 3).await;
        let reader = within("the downgrade", writer.downgrade()).await.unwrap();
        // The waiter lists again, because its predecessor's node is gone, and finds the reader's.
        let node = reader.node();
        tokio::select! {
            () = stage.env.wait_watchers(&node, 1) => {}
            writer = &mut next => panic!("the writer was granted the lock while a reader held it: {writer:?}"),
        }
        assert!(reader.is_held() && !next.is_finished());
        assert!(
            !last.is_finished(),
            "expected the reader behind the writer to wait"
        );
        stage.env.wait_count(&path, 3).await;
        reader.release().await.unwrap();
        let next = within("the writer's grant", next).await.unwrap();
        assert!(!last.is_finished());
        next.release().await.unwrap();
        within("the last reader's grant", last)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// Stays inside for one query to the servers, during which others might wrongly enter; the answer
/// must name the holder.
async fn stays(lock: &impl InterProcessLock, node: &NodePath) {
    let participants = lock.participants().await.unwrap();
    assert!(
        participants.contains(node),
        "{node} is not among {participants:?}"
    );
}

async fn reads(library: &SharedSection, read: &InterProcessReadLock) -> ReadGuard {
    let guard = read.lock().await.unwrap();
    library.read_while(&guard, stays(read, &guard.node())).await;
    assert!(guard.is_held());
    guard
}

async fn writes(library: &SharedSection, write: &InterProcessWriteLock) -> WriteGuard {
    let guard = write.lock().await.unwrap();
    library
        .write_while(&guard, stays(write, &guard.node()))
        .await;
    assert!(guard.is_held());
    guard
}

/// Eight clients run a hundred rounds each, writing in one of ten.
async fn test_basic(stage: &Stage<'_>) {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 100;
    let library = Arc::new(SharedSection::default());
    // The readers wait for each other, so that they do not meet only by chance.
    let meeting = Arc::new(Barrier::new(CLIENTS));
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = stage.client().await;
        let (read, write) = pair(stage, &client);
        let (library, meeting) = (Arc::clone(&library), Arc::clone(&meeting));
        let rounds: Vec<bool> = (0..ROUNDS)
            .map(|_| stage.env.random().below(10) == 0)
            .collect();
        tasks.spawn(async move {
            let guard = read.lock().await.unwrap();
            library.read_while(&guard, meeting.wait()).await;
            drop(guard);
            for is_write in &rounds {
                if *is_write {
                    drop(writes(&library, &write).await);
                } else {
                    drop(reads(&library, &read).await);
                }
            }
            rounds.iter().filter(|is_write| **is_write).count()
        });
    }
    let written: usize = all_done("every client", tasks).await.into_iter().sum();
    assert!(written > 0 && written < CLIENTS * ROUNDS);
    assert_eq!(library.most_readers(), CLIENTS);
}

/// The nodes of both kinds have the data that was set when the lock was made.
async fn test_set_node_data(stage: &Stage<'_>) {
    let client = stage.client().await;
    let path = stage.env.lock_path();
    let mut data = vec![1, 2, 3, 4];
    let lock = InterProcessReadWriteLock::builder(&client, &path)
        .data(&*data)
        .build()
        .unwrap();
    data[0] = 5;
    let has_data = async |node: NodePath| {
        assert_eq!(
            stage.env.get_data(&node).await.unwrap().0,
            [1, 2, 3, 4],
            "{node}"
        );
    };
    let writer = within("a free lock", lock.write_lock().lock())
        .await
        .unwrap();
    has_data(writer.node()).await;
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    has_data(reader.node()).await;
    reader.release().await.unwrap();
    let reader = within("a free lock", lock.read_lock().lock())
        .await
        .unwrap();
    has_data(reader.node()).await;
    reader.release().await.unwrap();
}

/// After the end of a writer's session its node is gone, and another client reads.
async fn test_lock_path(stage: &Stage<'_>) {
    let (ours, link) = stage.linked().await;
    let theirs = stage.client().await;
    let writer = within("a free lock", pair(stage, &ours).1.lock())
        .await
        .unwrap();
    assert_eq!(writer.path(), stage.env.lock_path());
    assert!(stage.env.stat(&writer.node()).await.is_some());
    stage.env.expire(&ours, &link).await;
    let reader = within("the reader's grant", pair(stage, &theirs).0.lock())
        .await
        .unwrap();
    assert!(stage.env.stat(&writer.node()).await.is_none());
    within("the loss", writer.lost()).await;
    // Every conversion into a reader is refused.
    assert!(writer.reenter_as_reader().is_err());
    let failed = within("an answer", writer.downgrade()).await.unwrap_err();
    assert!(matches!(failed, ConversionError::Lost { .. }), "{failed:?}");
    assert!(matches!(
        failed.into_guard().release().await,
        Err(ReleaseError::Lost(_))
    ));
    assert!(reader.is_held() && stage.env.stat(&reader.node()).await.is_some());
    reader.release().await.unwrap();
}

/// Many handles of one client follow the same rules as clients do.
async fn own_readers_and_writers_exclude(stage: &Stage<'_>) {
    let client = stage.client().await;
    let library = Arc::new(SharedSection::default());
    let meeting = Arc::new(Barrier::new(4));
    let mut tasks = JoinSet::new();
    for task in 0..4 {
        let (read, write) = pair(stage, &client);
        let (library, meeting) = (Arc::clone(&library), Arc::clone(&meeting));
        tasks.spawn(async move {
            for round in 0..15 {
                if round % 5 == 0 {
                    // The readers can only meet if all of them hold the lock together.
                    meeting.wait().await;
                    let guard = read.lock().await.unwrap();
                    library.read_while(&guard, meeting.wait()).await;
                    guard.release().await.unwrap();
                } else if (round + task) % 2 == 0 {
                    drop(writes(&library, &write).await);
                } else {
                    reads(&library, &read).await.release().await.unwrap();
                }
            }
        });
    }
    all_done("every task", tasks).await;
    assert_eq!(library.most_readers(), 4);
}

/// Four clients keep writing and reading, beside two that only read and two that only write.
async fn downgrades_keep_writers_alone(stage: &Stage<'_>) {
    let library = Arc::new(SharedSection::default());
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let client = stage.client().await;
        let (read, write) = pair(stage, &client);
        let library = Arc::clone(&library);
        tasks.spawn(async move {
            for _ in 0..10 {
                match task {
                    0..4 => {
                        let writer = writes(&library, &write).await;
                        let token = writer.fencing_token();
                        // Other readers may hold the lock from now on, and no writer.
                        let reader = writer.downgrade().await.unwrap();
                        assert_eq!(
                            reader.fencing_token(),
                            ReadToken::from_parts(token.zxid(), token.counter())
                        );
                        library
                            .read_while(&reader, stays(&read, &reader.node()))
                            .await;
                    }
                    4 | 5 => drop(reads(&library, &read).await),
                    _ => drop(writes(&library, &write).await),
                }
            }
        });
    }
    all_done("every client", tasks).await;
}

/// A listener for a request or for the loss survives the exchange of the node.
async fn conversion_keeps_its_listeners(stage: &Stage<'_>) {
    let (ours, link) = stage.linked().await;
    let theirs = stage.client().await;
    let writer = within("a free lock", pair(stage, &ours).1.lock())
        .await
        .unwrap();
    let (asked, lost) = (tokio::spawn(writer.revoked()), tokio::spawn(writer.lost()));
    stage.env.wait_watchers(&writer.node(), 1).await;
    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    stage.env.wait_watchers(&reader.node(), 1).await;
    assert!(!asked.is_finished() && !lost.is_finished());
    within("the request", theirs.attempt_revoke(&reader.node()))
        .await
        .unwrap();
    within("the news", asked).await.unwrap();
    assert!(!lost.is_finished());
    stage.env.expire(&ours, &link).await;
    let lost = within("the loss", lost).await.unwrap();
    assert!(stage.env.is_loss(lost.reason()), "{lost}");
    assert!(!reader.is_held());
    drop(reader);
}

/// A client with room for one contender at a time: a holder does not take the slot of waiters, even
/// as a reader.
// Shows: downgrade, bounded-nodes
async fn downgrades_need_no_queue_place(stage: &Stage<'_>) {
    let client = stage.client().await;
    let lock = InterProcessReadWriteLock::builder(&client, stage.env.lock_path())
        .build()
        .unwrap();
    let (read, write) = (lock.read_lock(), lock.write_lock());
    for _ in 0..3 {
        let writer = within("a free lock", write.lock()).await.unwrap();
        let reader = within("the downgrade", writer.downgrade()).await.unwrap();
        let other = within("another reader's grant", read.lock()).await.unwrap();
        other.release().await.unwrap();
        reader.release().await.unwrap();
        let writer = within("a free lock", write.lock()).await.unwrap();
        let waiter = tokio::spawn(read.lock());
        let reader = within("the downgrade", writer.downgrade()).await.unwrap();
        within("the waiting reader's grant", waiter)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
        // A waiting writer has the only slot.
        let next = tokio::spawn(write.lock());
        stage.env.wait_watchers(&reader.node(), 1).await;
        assert!(!next.is_finished());
        reader.release().await.unwrap();
        within("the next writer's grant", next)
            .await
            .unwrap()
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}
