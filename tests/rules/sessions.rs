//! What outlives what: attempts outlive their callers (docs/protocol.md#attempt-outlives-caller), clients
//! outlive sessions (docs/protocol.md#session-end), sessions outlive a blocked executor
//! (docs/protocol.md#session-thread).

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use zookeeper_recipes::{
    AcquireError, Client, ConnectionState, InspectError, InterProcessMutex, LockState, LostReason,
    ReleaseError, RetryPolicy, TryLockError,
};
use zookeeper_test_server::{Cut, LogKind, Match, Op};

use test_support::in_process::{
    DIRECTORY, assert_clean, calm, connect, connect_as, connect_with, enqueue, fair, granted, hold, logged,
    mutex, queue, session, start, start_impatient, until,
};
use test_support::{ByHand, SOON, within};

/// Long enough to come into the queue in, on a busy machine too, for a call whose time has to end.
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

#[tokio::test]
async fn flush_waits_for_what_runs_in_the_background() {
    let server = start();
    let client = connect(&server).await;
    let guard = hold(&client).await;
    let gate = server.hold_request(Match::op(Op::Delete));
    drop(guard);
    let error = client.flush(Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TimedOut { nodes: 1, .. }), "{error}");
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// A release that is not waited for goes on.
#[tokio::test]
async fn a_cancelled_release_goes_on() {
    let server = start();
    let client = connect(&server).await;
    for poll in [false, true] {
        let guard = hold(&client).await;
        let release = ByHand::new(guard.release());
        drop(if poll { release.start() } else { release });
        client.flush(SOON).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }
}

#[tokio::test]
async fn drops_need_no_runtime_and_no_session() {
    let server = start();
    let client = connect(&server).await;
    let elsewhere = |drops: Box<dyn FnOnce() + Send>| std::thread::spawn(drops).join().unwrap();

    let guard = hold(&client).await;
    elsewhere(Box::new(move || drop(guard)));
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);

    // An attempt that was under way, and one that was not.
    let gate = server.hold_reply(Match::op(Op::Create));
    let under_way = ByHand::new(mutex(&client).lock()).start();
    let never_polled = mutex(&client).lock();
    within("the create", gate.wait_hit()).await;
    elsewhere(Box::new(move || drop((under_way, never_polled))));
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);

    // The last of a client, guard and handle, in any order, ends the session.
    for order in 0..3 {
        let client = connect(&server).await;
        let id = session(&client);
        let handle = mutex(&client);
        let guard = within("the grant", handle.lock()).await.unwrap();
        elsewhere(Box::new(move || match order {
            0 => drop((client, handle, guard)),
            1 => drop((guard, client, handle)),
            _ => drop((handle, guard, client)),
        }));
        until(&server, "the end of the session", move |view| view.sessions().iter().all(|s| s.id != id))
            .await;
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }

    // After the end of everything.
    let handle = mutex(&client);
    let guard = within("the grant", handle.lock()).await.unwrap();
    client.close().await.unwrap();
    assert!(!guard.is_held());
    drop(server);
    elsewhere(Box::new(move || drop((guard, handle, client))));
}

/// A guard keeps its session, whatever else is dropped.
#[tokio::test]
async fn a_guard_keeps_the_session() {
    let server = start();
    let client = connect(&server).await;
    let id = session(&client);
    let guard = hold(&client).await;
    drop(client);
    // The other client's answer comes after anything that the drop could have sent.
    let other = connect(&server).await;
    let error = within("the answer", mutex(&other).try_lock()).await.unwrap_err();
    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{error}");
    assert!(guard.is_held());
    assert!(server.sessions().iter().any(|s| s.id == id));
    within("the release", guard.release()).await.unwrap();
    until(&server, "the end of the session", move |view| view.sessions().iter().all(|s| s.id != id)).await;
}

/// `close` tells guards and waiters before it tells the server.
#[tokio::test]
async fn close_ends_guards_and_waiters() {
    let server = start();
    let (client, other) = (connect(&server).await, connect(&server).await);
    let guard = hold(&client).await;
    let elsewhere = InterProcessMutex::new(&client, "/locks/elsewhere").unwrap();
    let theirs = InterProcessMutex::new(&other, "/locks/elsewhere").unwrap();
    let theirs = within("the other's grant", theirs.lock()).await.unwrap();
    let waiting = tokio::spawn(elsewhere.lock());
    let node = theirs.node();
    until(&server, "the wait", move |view| view.watches_on(&node).len() == 1).await;
    let gate = server.hold_request(Match::op(Op::CloseSession));
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    within("the close", gate.wait_hit()).await;
    assert!(!guard.is_held(), "before the servers know");
    let lost = within("the loss", guard.lost()).await;
    assert_eq!((lost.reason(), lost.path()), (LostReason::Closed, DIRECTORY));
    assert!(!closing.is_finished());
    gate.release();
    within("the close", closing).await.unwrap().unwrap();
    let error = within("the waiter's end", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
    assert_eq!(server.children(DIRECTORY), [""; 0]);
    until(&server, "the end of its watches", |view| view.watches() == 0).await;
    client.close().await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    let error = mutex(&client).lock().await.unwrap_err();
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
    assert_eq!(client.state(), ConnectionState::Closed);
    theirs.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_starts_again_in_the_next_session() {
    let server = start();
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let held = hold(&holder).await;
    let waiting = enqueue(&server, &client).await;
    let old = session(&client);
    assert!(server.expire_session(old));
    let new = next_session(&client, old).await;
    let node = held.node();
    until(&server, "the wait in the next session", move |view| view.watches_on(&node) == [new]).await;
    assert!(!waiting.attempt.is_finished());
    held.release().await.unwrap();
    let guard = granted(waiting.attempt).await;
    assert_ne!(guard.node(), waiting.node);
    assert_eq!(server.node(&guard.node()).unwrap().ephemeral_owner, new);
    guard.release().await.unwrap();
    assert_clean(&server, "after the next session").await;
}

/// The deadline of the call goes on over sessions.
#[tokio::test]
async fn the_deadline_of_a_call_goes_on_in_the_next_session() {
    let server = start();
    let (holder, client) = (connect(&server).await, connect(&server).await);
    let held = hold(&holder).await;
    let started = Instant::now();
    let attempt = tokio::spawn(mutex(&client).acquire(A_WHILE));
    let (node, old) = (held.node(), session(&client));
    until(&server, "the wait", move |view| view.watches_on(&node) == [old]).await;
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

/// A holder whose session ends is told, and nothing of it is used afterwards: its late release deletes
/// nothing.
#[tokio::test]
async fn a_holder_whose_session_ends_has_lost_the_lock() {
    let server = start();
    let client = calm(&server).await;
    let (old, handle) = (session(&client), mutex(&client));
    let mut guards = Vec::new();
    for _ in 0..2 {
        // The second time, the first guard is still kept.
        let guard = within("the grant", handle.lock()).await.unwrap();
        let id = session(&client);
        let lost = guard.lost();
        assert!(server.expire_session(id));
        let lost = within("the loss", lost).await;
        assert_eq!((lost.reason(), lost.path()), (LostReason::SessionExpired, DIRECTORY));
        assert!(!guard.is_held());
        assert!(!handle.is_acquired_in_this_process());
        assert_eq!(within("the loss, again", guard.lost()).await, lost);
        next_session(&client, id).await;
        guards.push(guard);
    }
    // The numbers start again, so an old name without its unique part would be the new one.
    server.delete(DIRECTORY).unwrap();
    let current = within("the grant in the third session", handle.lock()).await.unwrap();
    let id = session(&client);
    assert_ne!(id, old);
    assert!(current.node().ends_with("-0000000000"), "{}", current.node());
    server.reset_counters();
    let dropped = guards.pop().unwrap();
    assert_ne!(dropped.node(), current.node());
    drop(dropped);
    let error = within("the late release", guards.pop().unwrap().release()).await.unwrap_err();
    let ReleaseError::Lost(lost) = error else { panic!("{error}") };
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

/// The token of a later grant is greater, over sessions and over directories that were removed.
#[tokio::test]
async fn tokens_grow_over_sessions_and_directories() {
    let server = start();
    let (a, b) = (connect(&server).await, connect(&server).await);
    let mut last = None;
    for round in 0..6 {
        let client = if round % 2 == 0 { &a } else { &b };
        let guard = within("the grant", mutex(client).lock()).await.unwrap();
        let token = guard.fencing_token();
        assert_eq!(token.zxid(), server.node(&guard.node()).unwrap().czxid);
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        guard.release().await.unwrap();
        match round {
            1 => server.advance_epoch(),
            3 => server.delete(DIRECTORY).unwrap(),
            _ => {}
        }
    }
}

/// As after an outage that was longer than the session timeout: a service that is out of use meanwhile asks for no
/// lock.
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
    within("the end of the session", states.wait_for(|state| *state == ConnectionState::Lost)).await.unwrap();
    // A round of tries is over.
    let error = within("a call", mutex.lock()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Connection { .. }), "{error}");
    server.refuse_connections(false);
    within("another session", states.wait_for(|state| *state == ConnectionState::Connected)).await.unwrap();
}

/// A borrowed session whose runtime is gone: no event says so, and what is asked of it is never answered.
#[test]
fn a_dead_session_task_ends_the_session() {
    let server = start();
    let (theirs, ours) = (tokio::runtime::Runtime::new().unwrap(), tokio::runtime::Runtime::new().unwrap());
    let borrowed = theirs.block_on(async {
        within("the session", zookeeper_client::Client::connect(&server.connect_string())).await.unwrap()
    });
    ours.block_on(async {
        let client = Client::from_session(borrowed).unwrap();
        let handle = mutex(&client);
        let guard = within("the grant", handle.lock()).await.unwrap();
        let elsewhere = InterProcessMutex::new(&client, "/locks/elsewhere").unwrap();
        let other = connect(&server).await;
        let theirs_held = InterProcessMutex::new(&other, "/locks/elsewhere").unwrap();
        let theirs_held = within("the other's grant", theirs_held.lock()).await.unwrap();
        let waiting = tokio::spawn(elsewhere.lock());
        let node = theirs_held.node();
        until(&server, "the wait", move |view| view.watches_on(&node).len() == 1).await;
        theirs.shutdown_background();
        let error = within("the waiter's end", waiting).await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
        let error = within("the next call", handle.lock()).await.unwrap_err();
        assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
        within("the loss", guard.lost()).await;
        assert!(!guard.is_held());
        drop(guard);
        theirs_held.release().await.unwrap();
    });
}

/// On a borrowed session `close` deletes what is ours and leaves the session to its owner.
#[tokio::test]
async fn a_borrowed_session_is_given_back() {
    let server = start();
    let owner =
        within("the session", zookeeper_client::Client::connect(&server.connect_string())).await.unwrap();
    let id = owner.session_id().0;
    let client = Client::from_session(owner.clone()).unwrap();
    let guard = hold(&client).await;
    let waiting = tokio::spawn(mutex(&client).lock());
    let node = guard.node();
    until(&server, "the wait", move |view| view.watches_on(&node) == [id]).await;
    within("the close", client.close()).await.unwrap();
    assert!(!guard.is_held());
    let error = within("the waiter's end", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Closed { .. }), "{error}");
    assert_eq!(server.children(DIRECTORY), [""; 0]);
    drop((guard, client));
    owner.check_stat(DIRECTORY).await.unwrap().unwrap();
    assert_eq!(server.sessions().len(), 1);
    until(&server, "the end of the watch", |view| view.watches() == 0).await;
}

/// The session has a thread of its own: a user's executor that is busy for twice the session timeout loses
/// nothing.
#[tokio::test(flavor = "current_thread")]
async fn a_blocked_executor_does_not_lose_the_lock() {
    // The lease outlasts the pauses of a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(6);
    let server = start();
    let client = connect_as(Client::builder().session_timeout(TIMEOUT), &server).await;
    assert_eq!(client.session_timeout(), Some(TIMEOUT));
    let id = session(&client);
    let guard = hold(&client).await;
    // Blocks this thread, since nothing is ever sent.
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    never.recv_timeout(2 * TIMEOUT).unwrap_err();
    assert!(guard.is_held());
    let node = server.node(&guard.node()).expect("the node is still there");
    assert_eq!((node.ephemeral_owner, session(&client)), (id, id));
    // By pings or by heartbeats, whichever come more often.
    let heard = [Op::Ping, Op::Multi].map(|op| logged(&server, id, op, LogKind::Arrived).len());
    assert!(heard.iter().sum::<usize>() > 4, "the session was kept alive meanwhile: {heard:?}");
    within("the release", guard.release()).await.unwrap();
}

/// A waker of an executor that does not work.
struct Broken;

impl Wake for Broken {
    fn wake(self: Arc<Self>) {
        panic!("as the test asked for");
    }
}

/// The same, which tells when.
#[derive(Default)]
struct TellingBroken(Notify);

impl Wake for TellingBroken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
        panic!("as the test asked for");
    }
}

/// The attempt's task panics where it tells that the time is over, while its create is not answered.
#[tokio::test]
async fn a_panic_in_the_middle_of_a_create_leaves_no_node() {
    let server = start();
    let client = connect(&server).await;
    let created = server.hold_reply(Match::op(Op::Create).session(session(&client)));
    let lock = fair(&client);
    let mut acquiring = Box::pin(lock.acquire(Duration::from_millis(50)));
    let broken = Arc::new(TellingBroken::default());
    let waker = Waker::from(Arc::clone(&broken));
    assert!(acquiring.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    within("the create", created.wait_hit()).await;
    within("the panic", broken.0.notified()).await;
    // It was there before the panic.
    let error = within("the answer", acquiring).await.unwrap_err();
    assert!(matches!(error, AcquireError::Connection { .. }), "{error:?}");
    created.release();
    client.flush(SOON).await.unwrap();
    until(&server, "an empty directory", |view| view.children(DIRECTORY).is_empty()).await;
}

/// They are foreign code, and run where the session's end is told.
#[tokio::test]
async fn wakers_that_panic_keep_neither_others_from_being_told_nor_the_client_from_its_next_session() {
    let server = start();
    let client = connect(&server).await;
    let mut guards = Vec::new();
    for path in ["/locks/a", "/locks/b", "/locks/c"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the lock", mutex.lock()).await.unwrap());
    }
    let waker = Waker::from(Arc::new(Broken));
    let mut context = Context::from_waker(&waker);
    let (mut broken, mut told) = (Vec::new(), Vec::new());
    // Many, since the order in which they are woken is not ours: before, between and behind them those of
    // others wait.
    for guard in guards.iter().cycle().take(60) {
        told.push(ByHand::new(guard.lost()).start());
        let mut lost = Box::pin(guard.lost());
        assert!(lost.as_mut().poll(&mut context).is_pending());
        let mut changed = Box::pin(guard.state_changed(LockState::Held));
        assert!(changed.as_mut().poll(&mut context).is_pending());
        broken.push((lost, changed));
    }
    // Nor is that of those who watch the client's state.
    let (mut broken_watches, mut told_watches) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let mut states = client.watch_state();
        let goes = async move { states.wait_for(|state| *state != ConnectionState::Connected).await };
        let mut broken = Box::pin(goes);
        assert!(broken.as_mut().poll(&mut context).is_pending());
        broken_watches.push(broken);
        let mut states = client.watch_state();
        assert_eq!(within("the state", states.changed()).await, Some(ConnectionState::Connected));
        told_watches.push(ByHand::new(async move { states.changed().await }).start());
    }
    let first = session(&client);
    server.expire_session(first);
    for mut lost in told {
        lost.woken().await;
        assert!(matches!(lost.poll(), Poll::Ready(_)));
    }
    for mut changed in told_watches {
        changed.woken().await;
        assert!(matches!(changed.poll(), Poll::Ready(Some(_))));
    }
    let again = within("the lock in the next session", mutex(&client).lock()).await.unwrap();
    assert!(again.is_held());
    assert_ne!(session(&client), first);
}

/// A look is repeated in the next session, but not for ever: a server that answers it by the end of the session
/// would be asked in one session after the other.
#[tokio::test]
async fn a_look_that_ends_each_session_is_given_up_by_the_retry_policy() {
    let server = start();
    let client = connect_with(&server, RetryPolicy::n_times(2, Duration::ZERO)).await;
    server.fail(Match::op(Op::GetChildren).path(DIRECTORY).always(), -112);
    let error = within("the end", mutex(&client).participants()).await.unwrap_err();
    assert!(matches!(error, InspectError::Connection { .. }), "{error}");
    // The first, at once in the next session, and twice by the policy.
    assert_eq!(server.counters().requests(Op::GetChildren), 4);
    server.clear_faults();
    assert!(within("the look", mutex(&client).participants()).await.unwrap().is_empty());
}
