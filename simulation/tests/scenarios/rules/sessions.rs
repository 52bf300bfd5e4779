//! What outlives what: attempts outlive their callers (docs/protocol.md#attempt-outlives-caller),
//! clients outlive sessions (docs/protocol.md#session-end), sessions outlive a blocked executor
//! (docs/protocol.md#session-thread).

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// Long enough to come into the queue in, for a call whose time has to end.
const A_WHILE: Duration = Duration::from_secs(4);

/// Waits until a client has another session than `old`.
async fn next_session(client: &Client, old: i64) -> i64 {
    let mut states = client.watch_state();
    let next = async {
        loop {
            match client.session_id() {
                Some(id) if id != old => return id,
                _ => assert!(states.changed().await.is_some()),
            }
        }
    };
    within("the next session", next).await
}

// Shows: flush
#[tokio::test]
async fn flush_waits_for_what_runs_in_the_background() {
    let (server, [client]) = with_clients(start(), connect).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let guards = [
        hold(&client).await,
        within("the grant", other.lock()).await.unwrap(),
    ];
    // What is held is not left behind.
    client.flush(Duration::ZERO).await.unwrap();
    let gate = server.hold_request(Match::op(Op::Delete));
    drop(guards);
    let error = client.flush(Duration::from_millis(20)).await.unwrap_err();
    let ReleaseError::TimedOut {
        nodes: 2, waited, ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(waited, Duration::from_millis(20));
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// The deadline of the call goes on over sessions.
// Shows: session-end, deadline
#[tokio::test]
async fn the_deadline_of_a_call_goes_on_in_the_next_session() {
    let (server, [holder, client]) = with_clients(start(), connect).await;
    let held = hold(&holder).await;
    let started = Instant::now();
    let attempt = tokio::spawn(mutex(&client).acquire(A_WHILE));
    let (node, old) = (held.node(), session(&client));
    until(&server, "the wait", move |view| {
        view.watches_on(&node) == [old]
    })
    .await;
    server.refuse_connections(true);
    assert!(server.expire_session(old));
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    assert!(started.elapsed() >= A_WHILE);
    server.refuse_connections(false);
    next_session(&client, old).await;
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    held.release().await.unwrap();
}

/// A holder whose session ends is told, and nothing of it is used afterwards: its late release
/// deletes nothing.
// Shows: one-session
#[tokio::test]
async fn a_holder_whose_session_ends_has_lost_the_lock() {
    let (server, [client]) = with_clients(start(), calm).await;
    let (old, handle) = (session(&client), mutex(&client));
    let mut guards = Vec::new();
    for _ in 0..2 {
        // The second time, the first guard is still kept.
        let guard = within("the grant", handle.lock()).await.unwrap();
        let id = session(&client);
        let lost = guard.lost();
        assert!(server.expire_session(id));
        let lost = within("the loss", lost).await;
        assert_eq!(
            (lost.reason(), lost.path()),
            (LostReason::SessionExpired, DIRECTORY)
        );
        assert!(!guard.is_held());
        assert!(!handle.is_acquired_in_this_process());
        assert_eq!(within("the loss, again", guard.lost()).await, lost);
        next_session(&client, id).await;
        guards.push(guard);
    }
    // The numbers start again, so an old name without its unique part would be the new one.
    server.delete(DIRECTORY).unwrap();
    let current = within("the grant in the third session", handle.lock())
        .await
        .unwrap();
    let id = session(&client);
    assert_ne!(id, old);
    assert!(
        current.node().ends_with("-0000000000"),
        "{}",
        current.node()
    );
    server.reset_counters();
    let dropped = guards.pop().unwrap();
    assert_ne!(dropped.node(), current.node());
    drop(dropped);
    let error = within("the late release", guards.pop().unwrap().release())
        .await
        .unwrap_err();
    let ReleaseError::Lost(lost) = error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::SessionExpired);
    client.flush(SOON).await.unwrap();
    assert_eq!(
        server.counters().total_requests(),
        0,
        "nothing is asked in the name of a session that is over"
    );
    assert!(current.is_held() && handle.is_acquired_in_this_process());
    assert_eq!(queue(&server), [current.node()]);
    current.release().await.unwrap();
}

/// As after an outage that was longer than the session timeout: a service that is out of use
/// meanwhile asks for no lock.
// Shows: next-round
#[tokio::test]
async fn after_an_outage_another_session_is_found_without_a_call() {
    let server = start_impatient();
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(1))
        .retry_policy(RetryPolicy::n_times(0, Duration::ZERO));
    let client = connect_as(builder, &server).await;
    let mutex = mutex(&client);
    let mut states = client.watch_state();
    server.refuse_connections(true);
    assert!(server.cut(session(&client), Cut::Fin));
    within(
        "the end of the session",
        states.wait_for(|state| *state == ConnectionState::Lost),
    )
    .await
    .unwrap();
    // A round of tries is over.
    let error = within("a call", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    server.refuse_connections(false);
    within(
        "another session",
        states.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
}

/// A look is repeated in the next session, but not for ever: a server that answers it by the end of
/// the session would be asked in one session after the other.
#[tokio::test]
async fn a_look_that_ends_each_session_is_given_up_by_the_retry_policy() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::ZERO)).await;
    server.fail(Match::op(Op::GetChildren).path(DIRECTORY).always(), -112);
    let error = within("the end", mutex(&client).participants())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    // The first, at once in the next session, and twice by the policy.
    assert_eq!(server.counters().requests(Op::GetChildren), 4);
    server.clear_faults();
    assert!(
        within("the look", mutex(&client).participants())
            .await
            .unwrap()
            .is_empty()
    );
}
