//! The read-write lock: a reader watches the nearest writer before it and no other node, a writer
//! the node before its own.

use std::collections::BTreeMap;

use test_support::Suite;
use test_support::within;
use zookeeper_recipes::{Client, InterProcessReadWriteLock};

use crate::add;
use crate::cast::Role::{self, Read, Write};
use crate::cast::{Cast, Clients, End, connect};
use crate::view::{Outside, Seen, View};

pub(crate) fn add_all(suite: &mut Suite) {
    add(
        suite,
        "read_write_lock::readers_watch_the_nearest_writer_only",
        order,
    );
    let ends = [
        (End::Dropped, "dropped"),
        (End::Closed, "closed"),
        (End::Expired, "expired"),
    ];
    for (who, goes) in [
        (2, "reader_behind_holder"),
        (3, "writer_between_readers"),
        (4, "reader_between_writers"),
    ] {
        for (end, name) in ends {
            let name = format!("read_write_lock::watch_moves_past_{goes}::{name}");
            add(suite, &name, move |outside| death(outside, end, who));
        }
    }
    // Shows: seen-from-outside
    let name = "read_write_lock::readers_fall_back_to_earlier_writer";
    add(suite, name, readers_move_on);
    // Shows: seen-from-outside
    add(
        suite,
        "read_write_lock::downgrade_exchanges_one_node_for_another",
        downgrade,
    );
}

async fn order(outside: Outside) {
    let mut cast = Cast::new(
        outside,
        &[Read, Read, Write, Read, Read, Write],
        Clients::Each,
    )
    .await;
    for (reader, queue) in [(1, &[1][..]), (2, &[1, 2])] {
        cast.joins(reader).await;
        cast.gets_it(reader).await;
        cast.shows(queue, &[]).await;
    }
    let watches = [(3, 2), (4, 3), (5, 3), (6, 5)];
    for joined in 3..=6 {
        cast.joins(joined).await;
        cast.shows(&[1, 2, 3, 4, 5, 6][..joined], &watches[..joined - 2])
            .await;
    }

    // The writer looks for another reader to wait for; no other contender has anything to do with
    // it.
    cast.passes_on(2, &[]).await;
    cast.shows(&[1, 3, 4, 5, 6], &[(3, 1), (4, 3), (5, 3), (6, 5)])
        .await;

    cast.passes_on(1, &[3]).await;
    cast.shows(&[3, 4, 5, 6], &[(4, 3), (5, 3), (6, 5)]).await;

    cast.passes_on(3, &[4, 5]).await;
    cast.shows(&[4, 5, 6], &[(6, 5)]).await;

    cast.passes_on(4, &[]).await;
    cast.shows(&[5, 6], &[(6, 5)]).await;

    cast.passes_on(5, &[6]).await;
    cast.shows(&[6], &[]).await;
    cast.ends_clean().await;
}

/// A writer holds; a reader, a writer, a reader and a writer wait, and one of them goes.
async fn death(outside: Outside, end: End, who: usize) {
    let mortal = (end == End::Expired).then_some(who);
    let mut cast = Cast::with_mortal(
        outside,
        &[Write, Read, Write, Read, Write],
        Clients::Each,
        mortal,
    )
    .await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 3), (5, 4)])
        .await;
    cast.ends(who, end).await;
    let queue: Vec<_> = [1, 2, 3, 4, 5]
        .into_iter()
        .filter(|number| *number != who)
        .collect();
    let watches = match who {
        2 => [(3, 1), (4, 3), (5, 4)],
        3 => [(2, 1), (4, 1), (5, 4)],
        _ => [(2, 1), (3, 2), (5, 3)],
    };
    cast.shows(&queue, &watches).await;
    if end == End::Expired {
        // Last in the queue, behind the last writer, it watches that whatever it is itself.
        cast.returns(who).await;
        let queue: Vec<_> = queue.into_iter().chain([who]).collect();
        let watches: Vec<_> = watches.into_iter().chain([(who, 5)]).collect();
        cast.shows(&queue, &watches).await;
    }
    // Those that took over wait for their new predecessors indeed.
    let grants: &[(usize, &[usize])] = match who {
        2 => &[(1, &[3]), (3, &[4])],
        3 => &[(1, &[2, 4]), (4, &[]), (2, &[5])],
        _ => &[(1, &[2]), (2, &[3]), (3, &[5])],
    };
    for (from, to) in grants {
        cast.passes_on(*from, to).await;
    }
    cast.ends_clean().await;
}

/// Three readers behind the second of two writers, which goes: all of them wait for the first from
/// then on.
async fn readers_move_on(outside: Outside) {
    let mut cast = Cast::new(outside, &[Write, Write, Read, Read, Read], Clients::Each).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 2), (5, 2)])
        .await;
    cast.ends(2, End::Dropped).await;
    cast.shows(&[1, 3, 4, 5], &[(3, 1), (4, 1), (5, 1)]).await;
    cast.passes_on(1, &[3, 4, 5]).await;
    cast.shows(&[3, 4, 5], &[]).await;
    cast.ends_clean().await;
}

/// A holder turns from writer to reader: it has one node all the time, in the same place, and those
/// behind it watch whom they would watch if it had been there from the beginning.
async fn downgrade(outside: Outside) {
    let servers = outside.servers.connect_string();
    let clients = [
        connect(&servers, 40).await,
        connect(&servers, 40).await,
        connect(&servers, 40).await,
    ];
    let path = outside.directory();
    let lock = |client: &Client| InterProcessReadWriteLock::new(client, &path).unwrap();
    let session = |number: usize| clients[number - 1].session_id().unwrap();
    let view = |queue: &[(usize, Role)], watches: &[(usize, usize)]| View {
        queue: queue
            .iter()
            .map(|(number, role)| Seen {
                kind: role.mark().to_owned(),
                owner: session(*number),
                watchers: watches
                    .iter()
                    .filter(|(_, on)| on == number)
                    .map(|(by, _)| session(*by))
                    .collect(),
            })
            .collect(),
        elsewhere: BTreeMap::new(),
    };
    let writer = within("the writer's grant", lock(&clients[0]).write_lock().lock())
        .await
        .unwrap();
    let place = |node: &str| node[node.len() - 10..].to_owned();
    let number = place(&writer.node());
    let second = tokio::spawn(lock(&clients[1]).read_lock().lock());
    outside.wait_nodes(2).await;
    let third = tokio::spawn(lock(&clients[2]).write_lock().lock());
    outside
        .shows(
            "a writer",
            view(&[(1, Write), (2, Read), (3, Write)], &[(2, 1), (3, 2)]),
        )
        .await;

    let reader = within("the downgrade", writer.downgrade()).await.unwrap();
    let second = within("the reader's grant", second).await.unwrap().unwrap();
    outside
        .shows(
            "a downgrade",
            view(&[(1, Read), (2, Read), (3, Write)], &[(3, 2)]),
        )
        .await;
    assert_eq!(place(&reader.node()), number);

    second.release().await.unwrap();
    outside
        .shows("a reader alone", view(&[(1, Read), (3, Write)], &[(3, 1)]))
        .await;
    assert!(!third.is_finished());

    reader.release().await.unwrap();
    let third = within("the writer's grant", third).await.unwrap().unwrap();
    outside
        .shows("the next writer", view(&[(3, Write)], &[]))
        .await;
    third.release().await.unwrap();
    outside.shows("the end", view(&[], &[])).await;
}
