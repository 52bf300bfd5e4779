//! Elections in which a gate of the server fixes the order of events.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The leader changes after its watch is set and before the look.
// Shows: leader-watch
#[tokio::test]
async fn sees_a_change_before_its_look() {
    let (server, [first, second, watcher]) = with_clients(start(), calm).await;
    let join = |client, id| {
        let builder = LeaderLatch::builder(client, DIRECTORY).id(id);
        builder.build().unwrap()
    };
    let first = join(&first, "first");
    within("the first leader", first.leadership())
        .await
        .unwrap();
    let second = join(&second, "second");
    until(&server, "the second participant", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let mut leaders = LeaderLatch::builder(&watcher, DIRECTORY)
        .watch_leader()
        .unwrap();
    let leader = within("the leader", leaders.changed()).await.unwrap();
    assert_eq!(leader.unwrap().id(), "first");

    let lists = Match::op(Op::GetChildren).session(session(&watcher));
    let look = server.hold_request(lists.nth(1));
    let changed = tokio::spawn(async move { leaders.changed().await });
    within("the second list", look.wait_hit()).await;
    within("the end of the first", first.close()).await.unwrap();
    within("the second leader", second.leadership())
        .await
        .unwrap();
    look.release();
    let leader = within("the change", changed).await.unwrap().unwrap();
    assert_eq!(leader.unwrap().id(), "second");
}

// Shows: leaders-work
#[tokio::test]
async fn close_waits_for_the_work() {
    let (server, [client]) = with_clients(start(), calm).await;
    let latch = LeaderLatch::new(&client, DIRECTORY).unwrap();
    let term = within("the term", latch.leadership()).await.unwrap();
    // The work is under way, and only this test drops it.
    let work = pending(term.while_held(std::future::pending::<()>()));
    let closed = tokio::spawn(async move { latch.close().await });
    within("the end of the term", term.lost()).await;
    let node = term.node();
    let is_gone = move |view: View<'_>| !view.exists(&node);
    never_for(SOON, &server, "its node is gone", is_gone).await;
    drop(work);
    within("the close", closed).await.unwrap().unwrap();
}
