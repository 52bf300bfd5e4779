//! The read-write lock: a reader watches the nearest writer before it and no other node, a writer
//! the node before its own.

use std::collections::BTreeMap;

use test_support::Suite;
use test_support::within;
use zookeeper_recipes::{Client, InterProcessReadWriteLock};

use crate::add;
use crate::contenders::Recipe::{self, Read, Write};
use crate::contenders::{Clients, Contenders, Departure, connect};
use crate::observer::{Observer, QueueNode, QueueState};

pub(crate) fn add_all(suite: &mut Suite) {
    add(
        suite,
        "read_write_lock::readers_watch_the_nearest_writer_only",
        nearest_writer_is_watched,
    );
    let departures = [
        (Departure::Dropped, "dropped"),
        (Departure::Closed, "closed"),
        (Departure::Expired, "expired"),
    ];
    for (who, goes) in [
        (2, "reader_behind_holder"),
        (3, "writer_between_readers"),
        (4, "reader_between_writers"),
    ] {
        for (departure, name) in departures {
            let name = format!("read_write_lock::watch_moves_past_{goes}::{name}");
            add(suite, &name, move |observer| {
                departed_waiter(observer, departure, who)
            });
        }
    }
    // Shows: seen-from-outside
    let name = "read_write_lock::readers_fall_back_to_earlier_writer";
    add(suite, name, readers_behind_departed_writer);
    // Shows: seen-from-outside
    add(
        suite,
        "read_write_lock::downgrade_exchanges_one_node_for_another",
        downgrade,
    );
}

async fn nearest_writer_is_watched(observer: Observer) {
    let mut contenders = Contenders::new(
        observer,
        &[Read, Read, Write, Read, Read, Write],
        Clients::Each,
    )
    .await;
    for (reader, queue) in [(1, &[1][..]), (2, &[1, 2])] {
        contenders.enqueue(reader).await;
        contenders.await_grant(reader).await;
        contenders.assert_queue(queue, &[]).await;
    }
    let watches = [(3, 2), (4, 3), (5, 3), (6, 5)];
    for joined in 3..=6 {
        contenders.enqueue(joined).await;
        contenders
            .assert_queue(&[1, 2, 3, 4, 5, 6][..joined], &watches[..joined - 2])
            .await;
    }

    // The writer watches another reader now, and nothing changes for the other contenders.
    contenders.release_to(2, &[]).await;
    contenders
        .assert_queue(&[1, 3, 4, 5, 6], &[(3, 1), (4, 3), (5, 3), (6, 5)])
        .await;

    contenders.release_to(1, &[3]).await;
    contenders
        .assert_queue(&[3, 4, 5, 6], &[(4, 3), (5, 3), (6, 5)])
        .await;

    contenders.release_to(3, &[4, 5]).await;
    contenders.assert_queue(&[4, 5, 6], &[(6, 5)]).await;

    contenders.release_to(4, &[]).await;
    contenders.assert_queue(&[5, 6], &[(6, 5)]).await;

    contenders.release_to(5, &[6]).await;
    contenders.assert_queue(&[6], &[]).await;
    contenders.finish().await;
}

/// A writer holds the lock; a reader, a writer, a reader and a writer wait, and one of them leaves.
async fn departed_waiter(observer: Observer, departure: Departure, who: usize) {
    let breakable = (departure == Departure::Expired).then_some(who);
    let mut contenders = Contenders::with_breakable_link(
        observer,
        &[Write, Read, Write, Read, Write],
        Clients::Each,
        breakable,
    )
    .await;
    contenders.enqueue_all().await;
    contenders.await_grant(1).await;
    contenders
        .assert_queue(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 3), (5, 4)])
        .await;
    contenders.depart(who, departure).await;
    let queue: Vec<_> = [1, 2, 3, 4, 5]
        .into_iter()
        .filter(|number| *number != who)
        .collect();
    let watches = match who {
        2 => [(3, 1), (4, 3), (5, 4)],
        3 => [(2, 1), (4, 1), (5, 4)],
        _ => [(2, 1), (3, 2), (5, 3)],
    };
    contenders.assert_queue(&queue, &watches).await;
    if departure == Departure::Expired {
        // Readers and writers alike watch the last writer when they are behind it.
        contenders.reconnect(who).await;
        let queue: Vec<_> = queue.into_iter().chain([who]).collect();
        let watches: Vec<_> = watches.into_iter().chain([(who, 5)]).collect();
        contenders.assert_queue(&queue, &watches).await;
    }
    // The successors are not granted the lock before their new predecessors release it.
    let grants: &[(usize, &[usize])] = match who {
        2 => &[(1, &[3]), (3, &[4])],
        3 => &[(1, &[2, 4]), (4, &[]), (2, &[5])],
        _ => &[(1, &[2]), (2, &[3]), (3, &[5])],
    };
    for (from, to) in grants {
        contenders.release_to(*from, to).await;
    }
    contenders.finish().await;
}

/// Three readers wait for the second of two writers. That writer leaves, and all readers wait for
/// the first.
async fn readers_behind_departed_writer(observer: Observer) {
    let mut contenders =
        Contenders::new(observer, &[Write, Write, Read, Read, Read], Clients::Each).await;
    contenders.enqueue_all().await;
    contenders.await_grant(1).await;
    contenders
        .assert_queue(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 2), (5, 2)])
        .await;
    contenders.depart(2, Departure::Dropped).await;
    contenders
        .assert_queue(&[1, 3, 4, 5], &[(3, 1), (4, 1), (5, 1)])
        .await;
    contenders.release_to(1, &[3, 4, 5]).await;
    contenders.assert_queue(&[3, 4, 5], &[]).await;
    contenders.finish().await;
}

/// A writer that holds the lock becomes a reader: it keeps its place in the queue, with one node at
/// each moment, and the contenders behind it watch the nodes that they would watch behind a reader.
async fn downgrade(observer: Observer) {
    let servers = observer.servers.connect_string();
    let clients = [
        connect(&servers, 40).await,
        connect(&servers, 40).await,
        connect(&servers, 40).await,
    ];
    let path = observer.directory();
    let lock = |client: &Client| InterProcessReadWriteLock::new(client, &path).unwrap();
    let session = |number: usize| clients[number - 1].session_id().unwrap();
    let view = |queue: &[(usize, Recipe)], watches: &[(usize, usize)]| QueueState {
        queue: queue
            .iter()
            .map(|(number, recipe)| QueueNode {
                kind: recipe.marker().to_owned(),
                owner: session(*number),
                watchers: watches
                    .iter()
                    .filter(|(_, on)| on == number)
                    .map(|(by, _)| session(*by))
                    .collect(),
            })
            .collect(),
        other_watches: BTreeMap::new(),
    };
    let writer = within("the writer's grant", lock(&clients[0]).write_lock().lock())
        .await
        .unwrap();
    let place = |node: &str| node[node.len() - 10..].to_owned();
    let number = place(&writer.node());
    let second = tokio::spawn(lock(&clients[1]).read_lock().lock());
    observer.wait_nodes(2).await;
    let third = tokio::spawn(lock(&clients[2]).write_lock().lock());
    observer
        .assert_state(
            "a writer",
            view(&[(1, Write), (2, Read), (3, Write)], &[(2, 1), (3, 2)]),
        )
        .await;

    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let second = within("the reader's grant", second).await.unwrap().unwrap();
    observer
        .assert_state(
            "a downgrade",
            view(&[(1, Read), (2, Read), (3, Write)], &[(3, 2)]),
        )
        .await;
    assert_eq!(place(&reader.node()), number);

    second.release().await.unwrap();
    observer
        .assert_state("a reader alone", view(&[(1, Read), (3, Write)], &[(3, 1)]))
        .await;
    assert!(!third.is_finished());

    reader.release().await.unwrap();
    let third = within("the writer's grant", third).await.unwrap().unwrap();
    observer
        .assert_state("the next writer", view(&[(3, Write)], &[]))
        .await;
    third.release().await.unwrap();
    observer.assert_state("the end", view(&[], &[])).await;
}
