//! The state of a guard, against the in-process server and its faults: docs/protocol.md#renewal to
//! docs/protocol.md#paused-process.

use std::task::Wake;

use ::simulation::scenario::tokio;
use test_support::prelude::*;
use zookeeper_client as zk;

mod checked_nodes;
mod lost_locks;
mod while_held;

/// The session timeout in tests in which time passes: a heartbeat is sent after a sixth of it, and
/// a session lease lasts two thirds of it.
const T: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(20);
/// ZooKeeper's error code.
const THROTTLED: i32 = -127;

fn server() -> Server {
    let tick = Duration::from_millis(50);
    Server::builder()
        .tick(tick)
        .max_session_timeout(10 * LONG)
        .start()
        .unwrap()
}

async fn client(server: &Server) -> Client {
    client_with(server, T, Client::builder()).await
}

/// Connects a client that waits for a session for as long as necessary.
async fn client_with(server: &Server, session_timeout: Duration, builder: ClientBuilder) -> Client {
    let builder = builder
        .session_timeout(session_timeout)
        .connect_timeout(10 * LONG);
    within("the session", builder.connect(&server.connect_string()))
        .await
        .unwrap()
}

/// Connects a client that sends heartbeats only after a reconnect, and does not give up a silent
/// connection.
async fn rarely_beating(server: &Server) -> Client {
    client_with(server, 10 * LONG, Client::builder()).await
}

async fn strict_client(server: &Server) -> Client {
    client_with(server, T, Client::builder().margin(LeaseMargin::Strict)).await
}

/// Waits until the guard is in a wanted state.
async fn until_state(guard: &LockGuard, wanted: impl Fn(LockState) -> bool + Send + Sync) {
    let mut state = guard.state();
    while !wanted(state) {
        state = within("the state", guard.state_changed(state)).await;
    }
}

// Shows: renewal
#[tokio::test]
async fn renews_every_sixth_of_session_timeout() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let start = Instant::now();
    server.reset_counters();
    let beats = |n| move |view: View<'_>| view.counters().requests(Op::Multi) >= n;
    until(&server, "four beats", beats(4)).await;
    let per_beat = start.elapsed() / 4;
    assert!(
        per_beat > T / 12 && per_beat < T / 3,
        "a beat every {per_beat:?}"
    );
    assert_eq!(
        server.counters().requests(Op::Sync) + server.counters().requests(Op::Exists),
        0
    );
    until_state(&guard, |state| state == LockState::Held).await;
    guard.release().await.unwrap();
    // No lock is held any more. One heartbeat may be under way; only time shows that no more come.
    let after = server.counters().requests(Op::Multi);
    never_for(
        T / 2,
        &server,
        "heartbeats without a held lock",
        beats(after + 2),
    )
    .await;
}

// Shows: close-confirmed, lease
#[tokio::test]
async fn cut_off_holder_loses_before_grant() {
    let cut_off = async |direction| {
        let (server, [holder, waiter]) = with_clients(server(), client).await;
        let guard = hold(&holder).await;
        let mut next = tokio::spawn(async move { (hold(&waiter).await, waiter) });
        until(&server, "the queue", move |view| {
            view.children(DIRECTORY).len() == 2
        })
        .await;

        server.stall(session(&holder), direction);
        until_state(&guard, |state| state != LockState::Held).await;
        assert_eq!(guard.state(), LockState::Suspended);
        assert!(guard.is_held());
        let lost = guard.lost();
        let lost = tokio::select! {
            biased;
            lost = within("the loss", lost) => lost,
            _ = &mut next => panic!("{direction:?}: granted before the loss"),
        };
        assert_eq!(lost.reason(), LostReason::LeaseExpired);
        assert!(!guard.is_held());
        let (next, _waiter) = within("the grant", next).await.unwrap();
        assert!(next.fencing_token() > guard.fencing_token());
        assert!(matches!(guard.reenter(), Err(lost) if lost.reason() == LostReason::LeaseExpired));
    };
    tokio::join!(
        cut_off(Direction::Both),
        cut_off(Direction::ToServer),
        cut_off(Direction::ToClient)
    );
}

/// No server tells the client that its session has expired, so the client's state changes late.
// Shows: lease
#[tokio::test]
async fn guard_is_lost_before_client_state() {
    let (server, [holder, waiter]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    let next = tokio::spawn(async move { (hold(&waiter).await, waiter) });
    let queued = |view: View<'_>| view.children(DIRECTORY).len() == 2;
    until(&server, "the queue", queued).await;

    server.refuse_connections(true);
    server.stall(session(&holder), Direction::Both);
    within("the loss", guard.lost()).await;
    assert_eq!(holder.state(), ConnectionState::Suspended);
    let (_next, _waiter) = within("the grant", next).await.unwrap();
    assert_eq!(holder.state(), ConnectionState::Suspended);
    let mut states = holder.watch_state();
    let ended = states.wait_for(|state| *state == ConnectionState::Lost);
    within("the end", ended).await.unwrap();
}

/// A waiter whose process has ended, or is paused, keeps its node in the queue until its session
/// expires.
// Shows: watch-one-node
#[tokio::test]
async fn silent_waiter_blocks_until_expiry() {
    let (server, [holder, silent, next]) = with_clients(server(), client).await;
    let guard = hold(&holder).await;
    let queued = |n| move |view: View<'_>| view.children(DIRECTORY).len() == n;
    let id = session(&silent);
    let _silent = tokio::spawn(async move { hold(&silent).await });
    until(&server, "the silent waiter", queued(2)).await;
    let next = tokio::spawn(async move { (hold(&next).await, next) });
    until(&server, "the next waiter", queued(3)).await;

    server.stall(id, Direction::Both);
    let start = Instant::now();
    guard.release().await.unwrap();
    let (_next, _client) = within("the grant", next).await.unwrap();
    let waited = start.elapsed();
    // The servers may have heard from the silent waiter up to T/3 before the release.
    assert!(waited > T / 2 && waited < T + T / 6, "{waited:?}");
}

/// docs/protocol.md#renewal: the member that the holder is connected to has lost the others, but
/// continues to answer reads (and, if it was the leader, `sync`). The holder is notified before the
/// other members grant its lock to another client, although that member still answers.
// Shows: renewal
#[tokio::test]
async fn isolated_member_renews_no_lease() {
    for isolation in [Isolation::Follower, Isolation::DeposedLeader] {
        let (server, [holder, waiter]) = with_clients(server(), client).await;
        let reader = zk::Client::connector().with_session_timeout(LONG);
        let reader = reader.connect(&server.connect_string()).await.unwrap();
        let guard = hold(&holder).await;
        let next = mutex(&waiter);
        let mut next = tokio::spawn(async move { next.acquire(LONG).await });
        until(&server, "the queue", |view| {
            view.children(DIRECTORY).len() == 2
        })
        .await;
        // The client cannot connect to a better member.
        server.refuse_connections(true);
        server.isolate(session(&holder), isolation);
        server.isolate(reader.session_id().0, isolation);
        let lost = guard.lost();
        tokio::select! {
            biased;
            _ = lost => {}
            _ = &mut next => panic!("{isolation:?}: the lock was granted before the holder was notified"),
        }
        let granted = within("the next grant", next).await.unwrap().unwrap();
        let shown = within("the answer to a read", reader.check_stat(&guard.node()))
            .await
            .unwrap();
        assert!(
            shown.is_some(),
            "{isolation:?}: a client that only reads there sees the lock as held"
        );
        if matches!(isolation, Isolation::DeposedLeader) {
            within("the answer to a sync", reader.sync(&guard.node()))
                .await
                .unwrap();
        }
        drop(granted);
    }
}

/// The client can reach another member: it moves there in time and keeps its lock.
// Shows: renewal
#[tokio::test]
async fn holder_leaves_isolated_member_in_time() {
    let moves = async |isolation| {
        let (server, [client]) = with_clients(server(), client).await;
        let guard = hold(&client).await;
        let id = session(&client);
        server.isolate(id, isolation);
        // The pause is longer than two thirds of T, for which the lease lasts without a renewal.
        // The lock is also suspended meanwhile, but too briefly to be seen.
        never_for(T * 3 / 4, &server, "nothing is looked for", |_| false).await;
        until_state(&guard, |state| state != LockState::Suspended).await;
        assert_eq!(guard.state(), LockState::Held, "{isolation:?}");
        assert_eq!(session(&client), id);
        guard.release().await.unwrap();
    };
    tokio::join!(moves(Isolation::Follower), moves(Isolation::DeposedLeader));
}

// Shows: lease
#[tokio::test]
async fn strict_margin_gives_up_earlier() {
    let (server, [strict]) = with_clients(server(), strict_client).await;
    let guard = hold(&strict).await;
    let id = session(&strict);
    server.stall(id, Direction::Both);
    let cut = Instant::now();
    within("the loss", guard.lost()).await;
    let notified = Instant::now();
    let mut proofs = server.log().into_iter().filter(|entry| {
        let is_write = matches!(entry.op, Op::Create | Op::Multi) && entry.kind == LogKind::Arrived;
        is_write && entry.session == id && entry.at <= cut
    });
    let believed = notified - proofs.next_back().unwrap().at;
    // A strict lease lasts three tenths of T, and a standard one two thirds.
    assert!(believed < T * 3 / 5, "{believed:?}");
}

// Shows: reconnect
#[tokio::test]
async fn short_outage_suspends_without_loss() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    server.stall(session(&client), Direction::ToServer);
    until_state(&guard, |state| state == LockState::Suspended).await;
    server.resume(session(&client));
    until_state(&guard, |state| state == LockState::Held).await;
    guard.release().await.unwrap();
    assert_eq!(server.children(DIRECTORY), [] as [&str; 0]);
}

/// The clock alone changes the state of a lock, and of a multi-lock as one value, while the
/// connection is intact.
// Shows: suspended
#[tokio::test]
async fn clock_alone_reports_state_changes() {
    for several in [false, true] {
        let (server, [client]) = with_clients(server(), client).await;
        let both =
            InterProcessMultiLock::from_paths(&client, [DIRECTORY, "/locks/second"]).unwrap();
        let guard: Box<dyn Guard> = match several {
            true => Box::new(both.lock().await.unwrap()),
            false => Box::new(hold(&client).await),
        };
        let changed = async |known| within("the state", guard.state_changed(known)).await;
        let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
        assert_eq!(
            changed(LockState::Suspended).await,
            LockState::Held,
            "at once"
        );
        let throttled = server.fail(Match::op(Op::Multi).always(), THROTTLED);
        assert_eq!(changed(LockState::Held).await, LockState::Suspended);
        throttled.remove();
        // The report does not wait for the next heartbeat.
        within("a proof", other.acquire(LONG))
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert_eq!(changed(LockState::Suspended).await, LockState::Held);
        server.fail(Match::op(Op::Multi).always(), THROTTLED);
        assert_eq!(changed(LockState::Held).await, LockState::Suspended);
        let lost = LockState::Lost(LostReason::LeaseExpired);
        assert_eq!(changed(LockState::Suspended).await, lost);
        assert_eq!(changed(lost).await, lost, "at once");
    }
}

/// An interruption of the connection changes the state, long before a renewal would be overdue.
// Shows: suspended
#[tokio::test]
async fn interruption_and_its_end_are_reported() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    server.stop_async().await;
    assert_eq!(
        within("the state", guard.state_changed(LockState::Held)).await,
        LockState::Suspended
    );
    server.restart_async().await.unwrap();
    assert_eq!(
        within("the state", guard.state_changed(LockState::Suspended)).await,
        LockState::Held
    );
    let mut closed = task::spawn(guard.state_changed(LockState::Held));
    assert_pending!(closed.poll());
    client.close().await.unwrap();
    assert_eq!(
        within("the state", closed).await,
        LockState::Lost(LostReason::Closed)
    );
}

/// Counts wakes.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Renewals, which arrive thousands of times a second in a busy client, do not wake a task that
/// waits for a change.
// Shows: suspended
#[tokio::test]
async fn renewals_wake_no_state_waiters() {
    const WAITING: usize = 100;
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut waiting: Vec<_> = (0..WAITING)
        .map(|_| Box::pin(guard.state_changed(LockState::Held)))
        .collect();
    for waiting in &mut waiting {
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    for _ in 0..20 {
        within("the grant", other.lock())
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 0, "woken by proofs");

    server.stop_async().await;
    for waiting in waiting {
        assert_eq!(within("the grant", waiting).await, LockState::Suspended);
    }
    assert!(
        count.0.load(Ordering::SeqCst) <= 2 * WAITING,
        "woken by one change: {count:?}"
    );
}
