//! The holder of a lock, as the error of a call that timed out names it.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The timeout of a call.
const TIME: Duration = Duration::from_secs(2);

#[track_caller]
fn held_by(error: &AcquireError) -> Contender {
    match error {
        AcquireError::TimedOut {
            contention:
                Contention {
                    held_by: Some(holder),
                    ..
                },
            ..
        } => (**holder).clone(),
        other => panic!("{other}"),
    }
}

/// The read that sets the watch has named the holder, so the error costs no request.
// Shows: held-by
#[tokio::test]
async fn timeout_names_holder_without_request() {
    let (server, [client]) = with_clients(start(), connect).await;
    let stock = connect_as(Client::builder().name("stock"), &server).await;
    let guard = hold(&stock).await;
    server.reset_counters();
    let error = within("the end", mutex(&client).acquire(TIME))
        .await
        .unwrap_err();
    let holder = held_by(&error);
    assert_eq!(
        (holder.node(), holder.identity().name()),
        (&guard.node(), Some("stock"))
    );
    assert!(holder.age() >= TIME && !holder.is_mine(), "{holder}");
    let text = error.to_string();
    let who = holder.identity().to_string();
    assert!(
        text.contains(&format!("was not free within 2s: held by {who} for ")),
        "{text}"
    );
    client.flush(SOON).await.unwrap();
    assert_eq!(
        server.counters().requests_of(session(&client), Op::GetData),
        1
    );
    // For a local hold, the error names the line that took it.
    let error = mutex(&stock).acquire(TIME).await.unwrap_err();
    let AcquireError::TimedOut {
        contention: Contention {
            holder: Some(_), ..
        },
        ..
    } = &error
    else {
        panic!("{error}")
    };
    let text = error.to_string();
    assert!(
        text.contains("this process itself") && !text.contains("held by"),
        "{text}"
    );
    guard.release().await.unwrap();
}

/// The waiters of a client share one lookup, shortly before the first deadline.
// Shows: held-by
#[tokio::test]
async fn waiters_further_back_share_one_lookup() {
    let (server, [first, second, client]) = with_clients(start(), connect).await;
    let guard = hold(&first).await;
    let waiter = enqueue(&server, &second).await;
    let lock = fair(&client);
    let waiting: Vec<_> = (0..50).map(|_| pending(lock.acquire(TIME))).collect();
    for waits in waiting {
        let error = within("the end", waits).await.unwrap_err();
        assert_eq!(held_by(&error).node(), &guard.node());
    }
    client.flush(SOON).await.unwrap();
    // The first of these waiters watches the other client's waiter.
    let reads = logged(&server, session(&client), Op::GetData, LogKind::Applied);
    assert_eq!(
        reads
            .iter()
            .filter(|entry| entry.path == *guard.node())
            .count(),
        1
    );
    waiter.attempt.abort();
}

/// The last list showed another node as the first.
// Shows: held-by
#[tokio::test]
async fn former_first_is_not_the_holder() {
    let (server, [first, second, client]) = with_clients(start(), connect).await;
    let guard = hold(&first).await;
    let waiter = enqueue(&server, &second).await;
    let third = tokio::spawn(mutex(&client).acquire(TIME));
    watches(&server, &client, &waiter.node).await;
    guard.release().await.unwrap();
    let guard = granted(waiter.attempt).await;
    let error = within("the end", third).await.unwrap().unwrap_err();
    assert_eq!(held_by(&error).node(), &guard.node());
    // Without an answer in time, no holder is named.
    let late = calm(&server).await;
    let gate = server.hold_request(Match::op(Op::GetData).session(session(&late)).always());
    let error = within("the end", mutex(&late).acquire(TIME))
        .await
        .unwrap_err();
    let AcquireError::TimedOut {
        contention:
            Contention {
                held_by: None,
                first: Some(_),
                ..
            },
        ..
    } = error
    else {
        panic!("{error}")
    };
    gate.release();
    guard.release().await.unwrap();
    client.flush(SOON).await.unwrap();
    clean(&server, &[&late]).await;
}

// Shows: held-by
#[tokio::test]
async fn reader_behind_writer_names_reading_holders() {
    let (server, [one, two, three]) = with_clients(start(), connect).await;
    let inside = read_write::read(&one).await;
    let writer = tokio::spawn(read_write::lock(&two).write_lock().lock());
    until(&server, "the writer", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let late = read_write::lock(&three).read_lock();
    let error = within("the end", late.acquire(TIME)).await.unwrap_err();
    let AcquireError::TimedOut {
        contention: Contention {
            first: Some(first), ..
        },
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_ne!(
        first,
        &inside.node(),
        "expected the node that the reader waits for"
    );
    assert_eq!(held_by(&error).node(), &inside.node());
    inside.release().await.unwrap();
    within("the writer", writer)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The next in line looks again, and gets no answer before another call ends.
// Shows: held-by
#[tokio::test]
async fn forgets_a_node_whose_watch_fired() {
    let (server, [holder, client]) = with_clients(start(), calm).await;
    let guard = hold(&holder).await;
    let lock = fair(&client);
    let first = place(&lock).await;
    watches(&server, &client, &guard.node()).await;
    let second = tokio::spawn(lock.acquire(TIME));
    until(&server, "the second waiter", |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    // The second call would look the holder up before this moment.
    tokio::time::sleep(TIME - Duration::from_millis(50)).await;
    let look = server.hold_request(
        Match::op(Op::GetChildren)
            .session(session(&client))
            .always(),
    );
    guard.release().await.unwrap();
    let error = within("the end", second).await.unwrap().unwrap_err();
    let AcquireError::TimedOut {
        contention: Contention { held_by: None, .. },
        ..
    } = error
    else {
        panic!("{error}")
    };
    look.release();
    drop(first);
}
