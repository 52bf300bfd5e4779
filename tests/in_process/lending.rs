//! Lends the client's session to other code: `Client::request`.

use test_support::prelude::*;
use zookeeper_client as zk;

// Shows: lent-session
#[tokio::test]
async fn work_runs_in_clients_session() {
    let (server, [client]) = with_clients(start(), calm).await;
    let guard = hold(&client).await;
    let path = "/mine";
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    let created = client.request(|zk| async move { zk.create(path, b"data", &options).await });
    let (stat, _) = within("the work", created).await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, session(&client));
    // An error of the work is returned as such.
    let missing = client.request(|zk| async move { zk.get_data("/missing").await });
    assert_eq!(
        within("the work", missing).await.unwrap().unwrap_err(),
        zk::Error::NoNode
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    within("the close", client.close()).await.unwrap();
    assert!(
        !server.exists(path),
        "an ephemeral node goes with the session"
    );
    let late = within("the answer", client.request(|_| async {}))
        .await
        .unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Closed, "{late}");
}

// Shows: lent-session
#[tokio::test]
async fn work_waits_for_a_session() {
    let (server, [client]) = with_clients(start(), calm).await;
    // Both pieces of work have the value until they are dropped.
    let kept = Arc::new(());
    let is_dropped = |kept: &Arc<()>| Arc::strong_count(kept) == 1;
    let (begun, begins) = oneshot::channel();
    let endless = tokio::spawn({
        let (client, kept) = (client.clone(), Arc::clone(&kept));
        async move {
            client
                .request(|_zk| async move {
                    let _kept = kept;
                    begun.send(()).unwrap();
                    std::future::pending::<()>().await;
                })
                .await
        }
    });
    within("the work", begins).await.unwrap();
    assert!(server.expire_session(session(&client)));
    let error = within("the end", endless).await.unwrap().unwrap_err();
    assert!(
        error.kind() == ErrorKind::Connection && error.is_retryable(),
        "{error}"
    );
    assert!(is_dropped(&kept), "the work is dropped with the session");
    // The call waits for the next session, and gives it to the work.
    let id = within(
        "the work",
        client.request(|zk| async move { zk.session_id().0 }),
    )
    .await
    .unwrap();
    assert_eq!(id, session(&client));
    // A caller that leaves drops its work.
    let of_work = Arc::clone(&kept);
    let asked = client.request(|_zk| async move {
        let _kept = of_work;
        std::future::pending::<()>().await;
    });
    assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err());
    assert!(is_dropped(&kept));
}

/// The client library closes a session on drop of the last clone of its handle.
// Shows: lent-session
#[tokio::test]
async fn close_waits_for_kept_clone() {
    let server = start();
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(2))
        .connect_timeout(SOON);
    let client = connect_as(builder.retry_policy(eager()), &server).await;
    let (guard, id) = (hold(&client).await, session(&client));
    let kept = within("the work", client.request(|zk| async move { zk }))
        .await
        .unwrap();
    let closed = within("the close", client.close()).await;
    assert!(
        matches!(closed, Err(ReleaseError::SessionNotClosed { .. })),
        "{closed:?}"
    );
    // The close notifies the holder; on a busy machine, the end of the lease does so first. Other
    // contenders wait.
    within("the loss", guard.lost()).await;
    assert!(server.exists(&guard.node()));
    drop(kept);
    until(&server, "the end of the session", move |view| {
        view.sessions().iter().all(|it| it.id != id)
    })
    .await;
    assert!(!server.exists(&guard.node()));
}
