//! Nodes of others below a lock, and limits of size: none of them causes a panic or blocks a lock.

use ::simulation::scenario::tokio;
use test_support::in_process;
use test_support::prelude::*;

/// Names for each way in which the name of a node is cut, parsed and compared.
// Shows: contenders
#[tokio::test]
async fn names_of_any_kind_are_ignored() {
    let (server, [client]) = with_clients(start(), connect).await;
    let mutex = mutex(&client);
    let long = "x".repeat(100_000);
    let long_umlauts = "ü".repeat(50_000);
    let mut strays = vec![
        long,
        long_umlauts,
        "0".to_owned(),
        "-".to_owned(),
        "lock--".to_owned(),
        "lock-12345678901".to_owned(),
        "lock-9999999999".to_owned(),
        "lock--9999999999".to_owned(),
        "lock-+123456789".to_owned(),
        "lock-１２３４５６７８９０".to_owned(),
        "lock-锁00000001".to_owned(),
        "锁锁锁锁锁锁锁锁锁锁".to_owned(),
        "_c_".to_owned(),
        "_c_-lock-".to_owned(),
        "_c_5f3b2a10-8c1d-4f6e-9a7b-0123456789ab-lock-".to_owned(),
        "__READ__".to_owned(),
        "__WRIT__00000000".to_owned(),
        "with space and \"quotes\" and {braces}".to_owned(),
        "%s%n%d".to_owned(),
    ];
    for stray in &strays {
        server
            .create(&format!("{DIRECTORY}/{stray}"), vec![b'x'; 1000])
            .unwrap();
    }
    let other = connect(&server).await;
    for _ in 0..3 {
        let guard = within("the grant", mutex.lock()).await.unwrap();
        let waiting = tokio::spawn(in_process::mutex(&other).lock());
        watches(&server, &other, &guard.node()).await;
        assert_eq!(mutex.participants().await.unwrap().len(), 2);
        guard.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
    strays.sort();
    assert_eq!(
        server.children(DIRECTORY),
        strays,
        "expected the other nodes to be left alone"
    );
}

/// A contender of another client library, with a long name and much data, is waited for like any
/// other.
// Shows: contenders
#[tokio::test]
async fn waits_for_huge_foreign_contender() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let name = format!("{DIRECTORY}/{}-lock-", "ß".repeat(30_000));
    let node = server
        .create_as(
            &name,
            vec![0; 900_000],
            CreateMode::EphemeralSequential,
            session(&other),
        )
        .unwrap();
    let waiting = enqueue(&server, &client).await;
    assert_eq!(server.watches_on(&node), [session(&client)]);
    server.delete(&node).unwrap();
    granted(waiting.attempt).await.release().await.unwrap();
    assert_clean(&server, "after the huge one").await;
}

/// Behind thousands of contenders of another client library, a waiter sets one watch.
#[tokio::test]
async fn waits_behind_thousands_of_foreign_contenders() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let id = session(&other);
    let path = format!("{DIRECTORY}/crowd-lock-");
    let crowd: Vec<String> = (0..2000)
        .map(|_| {
            server
                .create_as(&path, "", CreateMode::EphemeralSequential, id)
                .unwrap()
        })
        .collect();
    let waiting = enqueue(&server, &client).await;
    assert_eq!(server.watches_on(crowd.last().unwrap()), [session(&client)]);
    assert_eq!(server.watches(), 1);
    assert!(server.expire_session(id));
    granted(waiting.attempt).await.release().await.unwrap();
    assert_clean(&server, "after the crowd").await;
}
