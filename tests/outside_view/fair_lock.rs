//! The fair lock: each waiter has a node, but a waiter behind another of the same client waits for
//! that one in memory, even if nodes of other clients are in between. Only the first waiter of a
//! client has a watch, on the node before its own.

use test_support::Suite;

use crate::add;
use crate::contenders::{Clients, Contenders, Departure, Recipe};
use crate::observer::Observer;

/// The contenders of two clients: three of the first, two of the second, one of the first.
const TWO: Clients = Clients::Of(&[1, 1, 1, 2, 2, 1]);

pub(crate) fn add_all(suite: &mut Suite) {
    // Shows: seen-from-outside
    add(
        suite,
        "fair_lock::only_foreign_nodes_are_watched",
        foreign_nodes_are_watched,
    );
    add(
        suite,
        "fair_lock::client_watches_no_own_node",
        no_own_watches,
    );
    for (departure, name) in [
        (Departure::Dropped, "dropped"),
        (Departure::Closed, "closed"),
        (Departure::Expired, "expired"),
    ] {
        let name = format!("fair_lock::waiter_behind_foreign_nodes_awaits_own::{name}");
        add(suite, &name, move |observer| {
            departed_waiter(observer, departure)
        });
    }
    let name = "fair_lock::successor_of_departed_waiter_watches_next";
    add(suite, name, departed_waiters);
    // Shows: seen-from-outside
    add(
        suite,
        "fair_lock::memory_wait_becomes_a_watch",
        memory_wait_becomes_watch,
    );
}

async fn queue(observer: Observer, breakable: Option<usize>) -> Contenders {
    let mut contenders =
        Contenders::with_breakable_link(observer, &[Recipe::Fair; 6], TWO, breakable).await;
    contenders.enqueue_all().await;
    contenders.await_grant(1).await;
    contenders
        .assert_queue(&[1, 2, 3, 4, 5, 6], &[(4, 3)])
        .await;
    contenders
}

async fn foreign_nodes_are_watched(observer: Observer) {
    let mut contenders = queue(observer, None).await;
    let (fourth, sixth) = ([(4, 3)], [(6, 5)]);
    for (served, left) in [
        (1, &fourth[..]),
        (2, &fourth),
        (3, &sixth),
        (4, &sixth),
        (5, &[]),
    ] {
        contenders.release_to(served, &[served + 1]).await;
        contenders
            .assert_queue(&[1, 2, 3, 4, 5, 6][served..], left)
            .await;
    }
    contenders.finish().await;
}

async fn no_own_watches(observer: Observer) {
    let mut contenders = Contenders::new(observer, &[Recipe::Fair; 6], Clients::One).await;
    let queue = [1, 2, 3, 4, 5, 6];
    for joined in 1..=6 {
        contenders.enqueue(joined).await;
        if joined == 1 {
            contenders.await_grant(1).await;
        }
        contenders.assert_queue(&queue[..joined], &[]).await;
    }
    for served in 1..6 {
        contenders.release_to(served, &[served + 1]).await;
        contenders.assert_queue(&queue[served..], &[]).await;
    }
    contenders.finish().await;
}

/// The contenders of the second client leave without an effect on those of the first.
async fn departed_waiter(observer: Observer, departure: Departure) {
    let mut contenders = queue(observer, (departure == Departure::Expired).then_some(4)).await;
    contenders.depart(4, departure).await;
    if departure == Departure::Dropped {
        contenders.depart(5, departure).await;
    }
    contenders.assert_queue(&[1, 2, 3, 6], &[]).await;
    for (served, next) in [(1, 2), (2, 3), (3, 6)] {
        contenders.release_to(served, &[next]).await;
    }
    contenders.assert_queue(&[6], &[]).await;
    contenders.finish().await;
}

async fn departed_waiters(observer: Observer) {
    let mut contenders = queue(observer, None).await;
    contenders.depart(3, Departure::Dropped).await;
    contenders.assert_queue(&[1, 2, 4, 5, 6], &[(4, 2)]).await;
    contenders.depart(5, Departure::Dropped).await;
    contenders.assert_queue(&[1, 2, 4, 6], &[(4, 2)]).await;
    contenders.depart(2, Departure::Dropped).await;
    contenders.assert_queue(&[1, 4, 6], &[(4, 1)]).await;
    contenders.release_to(1, &[4]).await;
    contenders.assert_queue(&[4, 6], &[(6, 4)]).await;
    contenders.release_to(4, &[6]).await;
    contenders.finish().await;
}

/// The predecessor in memory leaves, and the nearest node ahead belongs to another client.
async fn memory_wait_becomes_watch(observer: Observer) {
    let mut contenders =
        Contenders::new(observer, &[Recipe::Fair; 4], Clients::Of(&[1, 2, 1, 1])).await;
    contenders.enqueue_all().await;
    contenders.await_grant(1).await;
    contenders.assert_queue(&[1, 2, 3, 4], &[(2, 1)]).await;
    contenders.depart(3, Departure::Dropped).await;
    contenders.assert_queue(&[1, 2, 4], &[(2, 1)]).await;
    contenders.release_to(1, &[2]).await;
    contenders.assert_queue(&[2, 4], &[(4, 2)]).await;
    contenders.release_to(2, &[4]).await;
    contenders.finish().await;
}
