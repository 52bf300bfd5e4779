//! The read-write lock: a reader watches the nearest writer before it and nobody else, a writer the node before its
//! own.

use test_support::Suite;

use crate::add;
use crate::cast::Role::{Read, Write};
use crate::cast::{Cast, Clients, End};
use crate::view::Outside;

pub(crate) fn add_all(suite: &mut Suite) {
    for (clients, name) in [(Clients::One, "one_client"), (Clients::Each, "six_clients")] {
        let name = format!("read_write_lock::readers_watch_the_nearest_writer_only::{name}");
        add(suite, &name, move |outside| order(outside, clients));
    }
    let ends = [(End::Dropped, "dropped"), (End::Closed, "closed"), (End::Expired, "expired")];
    for (who, goes) in
        [(2, "reader_behind_the_holder"), (3, "writer_between_readers"), (4, "reader_between_writers")]
    {
        for (end, name) in ends {
            let name = format!("read_write_lock::the_successor_of_a_{goes}_watches_the_next::{name}");
            add(suite, &name, move |outside| death(outside, Clients::Each, end, who));
        }
        let name =
            format!("read_write_lock::the_successor_of_a_{goes}_watches_the_next::dropped_of_one_client");
        add(suite, &name, move |outside| death(outside, Clients::One, End::Dropped, who));
    }
    let name = "read_write_lock::readers_move_on_to_the_writer_before_the_one_that_goes";
    add(suite, name, readers_move_on);
}

async fn order(outside: Outside, clients: Clients) {
    let mut cast = Cast::new(outside, &[Read, Read, Write, Read, Read, Write], clients).await;
    for (reader, queue) in [(1, &[1][..]), (2, &[1, 2])] {
        cast.joins(reader).await;
        cast.gets_it(reader).await;
        cast.shows(queue, &[]).await;
    }
    let watches = [(3, 2), (4, 3), (5, 3), (6, 5)];
    for joined in 3..=6 {
        cast.joins(joined).await;
        cast.shows(&[1, 2, 3, 4, 5, 6][..joined], &watches[..joined - 2]).await;
    }
    cast.all_others_wait();

    // The writer looks for another reader to wait for; nobody else has anything to do with it.
    cast.gives_it_back(2).await;
    cast.shows(&[1, 3, 4, 5, 6], &[(3, 1), (4, 3), (5, 3), (6, 5)]).await;
    cast.all_others_wait();

    cast.gives_it_back(1).await;
    cast.gets_it(3).await;
    cast.shows(&[3, 4, 5, 6], &[(4, 3), (5, 3), (6, 5)]).await;
    cast.all_others_wait();

    cast.gives_it_back(3).await;
    cast.gets_it(4).await;
    cast.gets_it(5).await;
    cast.shows(&[4, 5, 6], &[(6, 5)]).await;
    cast.all_others_wait();

    cast.gives_it_back(4).await;
    cast.shows(&[5, 6], &[(6, 5)]).await;
    cast.all_others_wait();

    cast.gives_it_back(5).await;
    cast.gets_it(6).await;
    cast.shows(&[6], &[]).await;
    cast.ends_clean().await;
}

/// A writer holds; a reader, a writer, a reader and a writer wait, and one of them goes.
async fn death(outside: Outside, clients: Clients, end: End, who: usize) {
    let mortal = (end == End::Expired).then_some(who);
    let mut cast = Cast::with_mortal(outside, &[Write, Read, Write, Read, Write], clients, mortal).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 3), (5, 4)]).await;
    cast.ends(who, end).await;
    let queue: Vec<_> = [1, 2, 3, 4, 5].into_iter().filter(|number| *number != who).collect();
    let watches = match who {
        2 => [(3, 1), (4, 3), (5, 4)],
        3 => [(2, 1), (4, 1), (5, 4)],
        _ => [(2, 1), (3, 2), (5, 3)],
    };
    cast.shows(&queue, &watches).await;
    cast.all_others_wait();
    if end == End::Expired {
        // Last in the queue, behind the last writer, it watches that whatever it is itself.
        cast.returns(who).await;
        let queue: Vec<_> = queue.into_iter().chain([who]).collect();
        let watches: Vec<_> = watches.into_iter().chain([(who, 5)]).collect();
        cast.shows(&queue, &watches).await;
        cast.all_others_wait();
    }
    // Those that took over wait for their new predecessors indeed.
    cast.gives_it_back(1).await;
    match who {
        2 => {
            cast.gets_it(3).await;
            cast.all_others_wait();
            cast.gives_it_back(3).await;
            cast.gets_it(4).await;
        }
        3 => {
            cast.gets_it(2).await;
            cast.gets_it(4).await;
            cast.all_others_wait();
            cast.gives_it_back(4).await;
            cast.all_others_wait();
            cast.gives_it_back(2).await;
            cast.gets_it(5).await;
        }
        _ => {
            cast.gets_it(2).await;
            cast.all_others_wait();
            cast.gives_it_back(2).await;
            cast.gets_it(3).await;
            cast.all_others_wait();
            cast.gives_it_back(3).await;
            cast.gets_it(5).await;
        }
    }
    cast.ends_clean().await;
}

/// Three readers behind the second of two writers, which goes: all of them wait for the first from then on.
async fn readers_move_on(outside: Outside) {
    let mut cast = Cast::new(outside, &[Write, Write, Read, Read, Read], Clients::Each).await;
    cast.all_join().await;
    cast.gets_it(1).await;
    cast.shows(&[1, 2, 3, 4, 5], &[(2, 1), (3, 2), (4, 2), (5, 2)]).await;
    cast.ends(2, End::Dropped).await;
    cast.shows(&[1, 3, 4, 5], &[(3, 1), (4, 1), (5, 1)]).await;
    cast.all_others_wait();
    cast.gives_it_back(1).await;
    for reader in 3..=5 {
        cast.gets_it(reader).await;
    }
    cast.shows(&[3, 4, 5], &[]).await;
    cast.ends_clean().await;
}
