//! Lifetimes: attempts outlive their callers (docs/protocol.md#attempt-outlives-caller), clients
//! outlive sessions (docs/protocol.md#session-end), and sessions outlive a blocked executor
//! (docs/protocol.md#session-thread).

use std::task::Wake;

use test_support::prelude::*;
use tokio::sync::Notify;

// Shows: cleanup
#[tokio::test]
async fn drops_need_no_runtime_or_session() {
    let (server, [client]) = with_clients(start(), connect).await;
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

    // The last drop of a client, guard or handle, in any order, ends the session.
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
        until(&server, "the end of the session", move |view| {
            view.sessions().iter().all(|s| s.id != id)
        })
        .await;
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }

    // The guard is dropped after the end of the client and of the server.
    let handle = mutex(&client);
    let guard = within("the grant", handle.lock()).await.unwrap();
    client.close().await.unwrap();
    assert!(!guard.is_held());
    drop(server);
    elsewhere(Box::new(move || drop((guard, handle, client))));
}

/// A waker that panics, and reports when.
#[derive(Default)]
struct TellingBroken(Notify);

impl Wake for TellingBroken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
        panic!("as the test asked for");
    }
}

/// The attempt's task panics when it reports the timeout, while its create is unanswered.
// Shows: contained-lines
#[tokio::test]
async fn panic_during_create_leaves_no_node() {
    let (server, [client]) = with_clients(start(), connect).await;
    let created = server.hold_reply(Match::op(Op::Create).session(session(&client)));
    let lock = fair(&client);
    let mut acquiring = Box::pin(lock.acquire(Duration::from_millis(500)));
    let broken = Arc::new(TellingBroken::default());
    let waker = Waker::from(Arc::clone(&broken));
    assert!(
        acquiring
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    within("the create", created.wait_hit()).await;
    within("the panic", broken.0.notified()).await;
    // The answer was sent before the panic.
    let error = within("the answer", acquiring).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error:?}");
    created.release();
    client.flush(SOON).await.unwrap();
    until(&server, "an empty directory", |view| {
        view.children(DIRECTORY).is_empty()
    })
    .await;
}

/// The supervisor wakes the caller of `connect`, and panics in its waker.
// Shows: contained-lines
#[tokio::test]
async fn panicking_waker_closes_no_new_client() {
    let server = start();
    let servers = server.connect_string();
    let mut connecting = Box::pin(Client::builder().connect(&servers));
    let broken = Arc::new(TellingBroken::default());
    let waker = Waker::from(Arc::clone(&broken));
    let polled = connecting.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    within("the panic", broken.0.notified()).await;
    let client = within("the client", connecting).await.unwrap();
    drop(within("the lock", mutex(&client).lock()).await.unwrap());
}

/// The attempt wakes the caller of `enqueue` when it has its node.
// Shows: contained-lines
#[tokio::test]
async fn panicking_waker_ends_no_queued_attempt() {
    let (server, [client]) = with_clients(start(), connect).await;
    let created = server.hold_reply(Match::op(Op::Create).session(session(&client)));
    let lock = fair(&client);
    let mut enqueuing = Box::pin(lock.enqueue());
    let broken = Arc::new(TellingBroken::default());
    let waker = Waker::from(Arc::clone(&broken));
    let polled = enqueuing.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    within("the create", created.wait_hit()).await;
    created.release();
    within("the panic", broken.0.notified()).await;
    let mut place = within("the place", enqueuing).await.unwrap();
    drop(within("the grant", place.lock()).await.unwrap());
}

/// Wakers are foreign code, and run on the thread that reports the end of the session.
// Shows: telling-a-loss, no-lock-across-await
#[tokio::test]
async fn panicking_wakers_block_nothing() {
    let (server, [client]) = with_clients(start(), connect).await;
    let mut guards = Vec::new();
    for path in ["/locks/a", "/locks/b", "/locks/c"] {
        let mutex = InterProcessMutex::new(&client, path).unwrap();
        guards.push(within("the lock", mutex.lock()).await.unwrap());
    }
    let waker = broken_waker();
    let mut context = Context::from_waker(&waker);
    let (mut broken, mut listeners) = (Vec::new(), Vec::new());
    // The order in which listeners are woken is not determined, so listeners wait before, between
    // and after those that panic.
    for guard in guards.iter().cycle().take(60) {
        listeners.push(ByHand::new(guard.lost()).start());
        let mut lost = Box::pin(guard.lost());
        assert!(lost.as_mut().poll(&mut context).is_pending());
        let mut changed = Box::pin(guard.state_changed(LockState::Held));
        assert!(changed.as_mut().poll(&mut context).is_pending());
        broken.push((lost, changed));
    }
    // The order of the watchers of the client's state is not determined either.
    let (mut broken_watches, mut told_watches) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let mut states = client.watch_state();
        let goes = async move {
            states
                .wait_for(|state| *state != ConnectionState::Connected)
                .await
        };
        let mut broken = Box::pin(goes);
        assert!(broken.as_mut().poll(&mut context).is_pending());
        broken_watches.push(broken);
        let mut states = client.watch_state();
        assert_eq!(
            within("the state", states.changed()).await,
            Some(ConnectionState::Connected)
        );
        told_watches.push(ByHand::new(async move { states.changed().await }).start());
    }
    let first = session(&client);
    server.expire_session(first);
    for mut lost in listeners {
        lost.woken().await;
        assert!(matches!(lost.poll(), Poll::Ready(_)));
    }
    for mut changed in told_watches {
        changed.woken().await;
        assert!(matches!(changed.poll(), Poll::Ready(Some(_))));
    }
    let again = within("the lock in the next session", mutex(&client).lock())
        .await
        .unwrap();
    assert!(again.is_held());
    assert_ne!(session(&client), first);
}
