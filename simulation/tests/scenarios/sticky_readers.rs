//! For how long readers keep a node that none of them uses (docs/protocol.md#kept-read-node).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

// Shows: kept-read-node
#[tokio::test]
async fn it_is_given_up_after_the_idle_time() {
    const IDLE: Duration = Duration::from_millis(50);
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessReadWriteLock::builder(&client, DIRECTORY)
        .sticky(IDLE)
        .build()
        .unwrap();
    let one = within("the grant", lock.read_lock().lock()).await.unwrap();
    until(&server, "the watch", |view| {
        view.watches_on(DIRECTORY).len() == 1
    })
    .await;
    // Held for longer than that.
    tokio::time::sleep(2 * IDLE).await;
    assert!(server.exists(&one.node()) && one.is_held());
    let left = Instant::now();
    drop(one);
    client.flush(SOON).await.unwrap();
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
    let kept = left.elapsed();
    assert!((IDLE..2 * IDLE).contains(&kept), "{kept:?}");
    until(&server, "the end of all watches", |view| {
        view.watches() == 0
    })
    .await;
}
