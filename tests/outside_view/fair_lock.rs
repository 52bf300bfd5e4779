//! The fair lock: a node each, but one that is behind another of the same client, whatever is in
//! between, waits for that one in memory. Only the first of a client has a watch, on the node
//! before its own.

use test_support::Suite;

use crate::add;
use crate::cast::{Cast, Clients, End, Role};
use crate::view::Outside;

/// Two clients: three of the one, two of the other, and the first again.
const TWO: Clients = Clients::Of(&[1, 1, 1, 2, 2, 1]);

pub(crate) fn add_all(suite: &mut Suite) {
    // Shows: seen-from-outside
    add(
        suite,
        "fair_lock::only_foreign_nodes_are_watched",
        only_others,
    );
    add(
        suite,
        "fair_lock::client_watches_no_own_node",
        no_own_watches,
    );
    for (end, name) in [
        (End::Dropped, "dropped"),
        (End::Closed, "closed"),
        (End::Expired, "expired"),
    ] {
        let name = format!("fair_lock::waiter_behind_foreign_nodes_awaits_own::{name}");
        add(suite, &name, move |outside| death(outside, end));
    }
    let name = "fair_lock::successor_of_departed_waiter_watches_next";
    add(suite, name, several_die_in_turn);
    // Shows: seen-from-outside
    add(
        suite,
        "fair_lock::memory_wait_becomes_a_watch",
        memory_to_watch,
    );
}

async fn queue(outside: Outside, mortal: Option<usize>) -> Cast {
    let mut cast = Cast::with_mortal(outside, &[Role::Fair; 6], TWO, mortal).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5, 6], &[(4, 3)]).await;
    cast
}

async fn only_others(outside: Outside) {
    let mut cast = queue(outside, None).await;
    let (fourth, sixth) = ([(4, 3)], [(6, 5)]);
    for (served, left) in [
        (1, &fourth[..]),
        (2, &fourth),
        (3, &sixth),
        (4, &sixth),
        (5, &[]),
    ] {
        cast.passes_on(served, &[served + 1]).await;
        cast.shows(&[1, 2, 3, 4, 5, 6][served..], left).await;
    }
    cast.ends_clean().await;
}

async fn no_own_watches(outside: Outside) {
    let mut cast = Cast::new(outside, &[Role::Fair; 6], Clients::One).await;
    let queue = [1, 2, 3, 4, 5, 6];
    for joined in 1..=6 {
        cast.joins(joined).await;
        if joined == 1 {
            cast.gets_it(1).await;
        }
        cast.shows(&queue[..joined], &[]).await;
    }
    for served in 1..6 {
        cast.passes_on(served, &[served + 1]).await;
        cast.shows(&queue[served..], &[]).await;
    }
    cast.ends_clean().await;
}

/// All of the second client go: nothing changes for the first one.
async fn death(outside: Outside, end: End) {
    let mut cast = queue(outside, (end == End::Expired).then_some(4)).await;
    cast.ends(4, end).await;
    if end == End::Dropped {
        cast.ends(5, end).await;
    }
    cast.shows(&[1, 2, 3, 6], &[]).await;
    for (served, next) in [(1, 2), (2, 3), (3, 6)] {
        cast.passes_on(served, &[next]).await;
    }
    cast.shows(&[6], &[]).await;
    cast.ends_clean().await;
}

async fn several_die_in_turn(outside: Outside) {
    let mut cast = queue(outside, None).await;
    cast.ends(3, End::Dropped).await;
    cast.shows(&[1, 2, 4, 5, 6], &[(4, 2)]).await;
    cast.ends(5, End::Dropped).await;
    cast.shows(&[1, 2, 4, 6], &[(4, 2)]).await;
    cast.ends(2, End::Dropped).await;
    cast.shows(&[1, 4, 6], &[(4, 1)]).await;
    cast.passes_on(1, &[4]).await;
    cast.shows(&[4, 6], &[(6, 4)]).await;
    cast.passes_on(4, &[6]).await;
    cast.ends_clean().await;
}

/// The next before it is of another client.
async fn memory_to_watch(outside: Outside) {
    let mut cast = Cast::new(outside, &[Role::Fair; 4], Clients::Of(&[1, 2, 1, 1])).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4], &[(2, 1)]).await;
    cast.ends(3, End::Dropped).await;
    cast.shows(&[1, 2, 4], &[(2, 1)]).await;
    cast.passes_on(1, &[2]).await;
    cast.shows(&[2, 4], &[(4, 2)]).await;
    cast.passes_on(2, &[4]).await;
    cast.ends_clean().await;
}
