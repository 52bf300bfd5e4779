//! The mutex: each client has a node, which only its successor watches.

use test_support::Suite;

use crate::add;
use crate::contenders::{Clients, Contenders, Departure, Recipe};
use crate::observer::Observer;

pub(crate) fn add_all(suite: &mut Suite) {
    // Shows: seen-from-outside
    add(suite, "mutex::only_successor_watches_a_node", successors);
    for (departure, name) in [
        (Departure::Dropped, "dropped"),
        (Departure::Closed, "closed"),
        (Departure::Expired, "expired"),
    ] {
        let name = format!("mutex::successor_of_departed_waiter_watches_next::{name}");
        add(suite, &name, move |observer| {
            departed_waiter(observer, departure)
        });
    }
}

/// A holder and its waiters, which are granted the lock one by one.
async fn successors(observer: Observer) {
    let count = 6;
    let mut contenders = Contenders::new(observer, &[Recipe::Mutex; 6], Clients::Each).await;
    let queue: Vec<_> = (1..=count).collect();
    let watches: Vec<_> = (2..=count).map(|number| (number, number - 1)).collect();
    for joined in 1..=count {
        contenders.enqueue(joined).await;
        if joined == 1 {
            contenders.await_grant(1).await;
        }
        contenders
            .assert_queue(&queue[..joined], &watches[..joined - 1])
            .await;
    }
    for served in 1..count {
        contenders.release_to(served, &[served + 1]).await;
        contenders
            .assert_queue(&queue[served..], &watches[served..])
            .await;
    }
    contenders.finish().await;
}

/// A holder and four waiters, of which the second leaves.
async fn departed_waiter(observer: Observer, departure: Departure) {
    let breakable = (departure == Departure::Expired).then_some(3);
    let mut contenders =
        Contenders::with_breakable_link(observer, &[Recipe::Mutex; 5], Clients::Each, breakable)
            .await;
    contenders.enqueue_all().await;
    contenders.await_grant(1).await;
    contenders
        .assert_queue(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 3), (5, 4)])
        .await;
    contenders.depart(3, departure).await;
    contenders
        .assert_queue(&[1, 2, 4, 5], &[(2, 1), (4, 2), (5, 4)])
        .await;
    if departure == Departure::Expired {
        contenders.reconnect(3).await;
        contenders
            .assert_queue(&[1, 2, 4, 5, 3], &[(2, 1), (4, 2), (5, 4), (3, 5)])
            .await;
    }
    // The successor is not granted the lock before its new predecessor releases it.
    contenders.release_to(1, &[2]).await;
    contenders.release_to(2, &[4]).await;
    contenders.finish().await;
}
