//! For how long a mutex keeps its node that is not used (docs/protocol.md#kept-node).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

// Shows: kept-node
#[tokio::test]
async fn it_is_given_up_after_the_idle_time() {
    const IDLE: Duration = Duration::from_millis(200);
    let (server, [client]) = with_clients(start(), calm).await;
    let lock = InterProcessMutex::builder(&client, DIRECTORY)
        .sticky(IDLE)
        .build()
        .unwrap();
    let guard = within("the grant", lock.lock()).await.unwrap();
    let node = guard.node().to_string();
    guard.release().await.unwrap();
    until(&server, "the watch", |view| {
        view.watches_on(DIRECTORY).len() == 1
    })
    .await;
    // Used all the time, for longer than that.
    let (began, mut last) = (Instant::now(), Instant::now());
    while began.elapsed() < 3 * IDLE {
        last = Instant::now();
        drop(assert_ready!(task::spawn(lock.lock()).poll()).unwrap());
        assert_eq!(queue(&server), [node.as_str()]);
        // The pace of its use.
        tokio::time::sleep(IDLE / 20).await;
    }
    until(&server, "the end of the kept node", move |view| {
        !view.exists(&node)
    })
    .await;
    let kept = last.elapsed();
    assert!((IDLE..2 * IDLE).contains(&kept), "{kept:?}");
    drop(lock);
    client.flush(SOON).await.unwrap();
    assert_clean(&server, "idle").await;
}
