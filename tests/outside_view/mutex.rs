//! The mutex: a node for each client, watched by its successor and by no other.

use test_support::Suite;

use crate::add;
use crate::cast::{Cast, Clients, End, Role};
use crate::view::Outside;

pub(crate) fn add_all(suite: &mut Suite) {
    // Shows: seen-from-outside
    add(suite, "mutex::only_successor_watches_a_node", successors);
    for (end, name) in [
        (End::Dropped, "dropped"),
        (End::Closed, "closed"),
        (End::Expired, "expired"),
    ] {
        let name = format!("mutex::successor_of_departed_waiter_watches_next::{name}");
        add(suite, &name, move |outside| death(outside, end));
    }
}

/// One holder and its waiters, who are served one after the other.
async fn successors(outside: Outside) {
    let count = 6;
    let mut cast = Cast::new(outside, &[Role::Mutex; 6], Clients::Each).await;
    let queue: Vec<_> = (1..=count).collect();
    let watches: Vec<_> = (2..=count).map(|number| (number, number - 1)).collect();
    for joined in 1..=count {
        cast.joins(joined).await;
        if joined == 1 {
            cast.gets_it(1).await;
        }
        cast.shows(&queue[..joined], &watches[..joined - 1]).await;
    }
    for served in 1..count {
        cast.passes_on(served, &[served + 1]).await;
        cast.shows(&queue[served..], &watches[served..]).await;
    }
    cast.ends_clean().await;
}

/// A holder and three waiters, of whom the second goes.
async fn death(outside: Outside, end: End) {
    let mortal = (end == End::Expired).then_some(3);
    let mut cast = Cast::with_mortal(outside, &[Role::Mutex; 5], Clients::Each, mortal).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 3), (5, 4)])
        .await;
    cast.ends(3, end).await;
    cast.shows(&[1, 2, 4, 5], &[(2, 1), (4, 2), (5, 4)]).await;
    if end == End::Expired {
        cast.returns(3).await;
        cast.shows(&[1, 2, 4, 5, 3], &[(2, 1), (4, 2), (5, 4), (3, 5)])
            .await;
    }
    // The one that took over waits for its new predecessor indeed.
    cast.passes_on(1, &[2]).await;
    cast.passes_on(2, &[4]).await;
    cast.ends_clean().await;
}
