//! The state of a guard, against the in-process server and its faults: docs/protocol.md#renewal to
//! docs/protocol.md#paused-process, and docs/protocol.md#transaction.

use std::task::Wake;

use ::simulation::scenario::tokio;
use test_support::prelude::*;
use zookeeper_client as zk;

/// The session timeout in tests in which time passes: a heartbeat is sent after a sixth of it, and
/// a session lease lasts two thirds of it.
const T: Duration = Duration::from_secs(6);
const LONG: Duration = Duration::from_secs(20);
/// ZooKeeper's error codes.
const THROTTLED: i32 = -127;
const UNIMPLEMENTED: i32 = -6;

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
        "beats, and nothing is held",
        beats(after + 2),
    )
    .await;
}

/// Other writes prove that the session lives, but not that the node of a held lock exists.
// Shows: renewal
#[tokio::test]
async fn busy_client_checks_held_nodes() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other").unwrap();
    server.delete(&guard.node()).unwrap();
    let mut lost = std::pin::pin!(guard.lost());
    let checked = async {
        loop {
            tokio::select! {
                biased;
                lost = &mut lost => break lost,
                cycle = async { other.acquire(LONG).await.unwrap().release().await } => cycle.unwrap(),
            }
        }
    };
    assert_eq!(
        within("a check", checked).await.reason(),
        LostReason::NodeDeleted
    );
}

/// A heartbeat that was sent for two locks is answered after one of them was released. The released
/// lock is not reported as lost.
// Shows: renewal
#[tokio::test]
async fn released_lock_is_not_reported_deleted() {
    let (server, [client]) = with_clients(server(), client).await;
    let first = hold(&client).await;
    let second = InterProcessMutex::new(&client, "/locks/other")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let gate = server.hold_request(Match::op(Op::Multi));
    within("the request", gate.wait_hit()).await;
    server.delete(&first.node()).unwrap();
    let second_lost = second.lost();
    let released = tokio::spawn(second.release());
    gate.release();
    within("the release", released).await.unwrap().unwrap();
    assert_eq!(
        within("the loss", first.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    // The answer that reports the loss of the first lock has been handled once the next answer has
    // been.
    within("the list", mutex(&client).participants())
        .await
        .unwrap();
    assert_pending!(task::spawn(second_lost).poll(), "it was released");
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
            "{isolation:?}: who only reads there sees the lock still held"
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
        // The time of this pause is longer than two thirds of T, for which the lease lasts without
        // a renewal, and must pass. The lock is also suspended in between, but too briefly to be
        // seen.
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
    // Three tenths, and not two thirds.
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

/// The clock alone changes the state of a lock, and of several locks as one value, while the
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

/// Counts how often it is woken.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Renewals arrive several times a second, or thousands of times in a busy client. Renewals do not
/// wake a task that waits for a change.
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

/// docs/protocol.md#lost-lock-keeps-its-node: the session outlives its lease. The lost hold leaves
/// no node, and waiters keep their places.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn expired_hold_leaves_no_node() {
    let server = server();
    server.freeze_expiry(true);
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = hold(&first).await;
    let own = fair(&first);
    let waiting = tokio::spawn(async move { own.acquire(LONG).await });
    until(&server, "the queue", move |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let other = tokio::spawn({
        let second = second.clone();
        async move { hold(&second).await }
    });
    until(&server, "the queue", move |view| {
        view.children(DIRECTORY).len() == 3
    })
    .await;
    let before = server.children(DIRECTORY);

    let id = session(&first);
    server.stall(id, Direction::Both);
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    server.resume(id);
    // The next in line is the waiter of the same session whose lease had expired, in its old place
    // and with its old node.
    let next = within("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(session(&first), id, "the session survived");
    let lost_node = guard.node();
    assert!(!server.exists(&lost_node));
    assert!(
        before
            .iter()
            .any(|name| next.node().ends_with(name.as_str()))
    );
    assert!(
        matches!(guard.release().await, Err(ReleaseError::Lost(lost)) if lost.reason() == LostReason::LeaseExpired)
    );
    assert_eq!(
        server.children(DIRECTORY).len(),
        2,
        "the late release deleted no other node"
    );
    next.release().await.unwrap();
    within("the grant", other)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// A hold whose lease has expired while the servers keep its session: the servers get every
/// heartbeat, but their answers are held back.
struct ExpiredHold {
    guard: LockGuard,
    /// The last renewal was sent after this moment.
    before: Instant,
    /// Another client's acquire.
    next: Contender,
    _answers: Gate,
}

async fn expired_hold(server: &Server, holder: &Client, waiter: &Client) -> ExpiredHold {
    let before = Instant::now();
    let guard = hold(holder).await;
    let answers = server.hold_reply(Match::op(Op::Multi).session(session(holder)).always());
    let waiter = mutex(waiter);
    let next = tokio::spawn(async move { waiter.acquire(LONG).await });
    until(server, "the queue", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    ExpiredHold {
        guard,
        before,
        next,
        _answers: answers,
    }
}

/// When the server was asked to delete a node.
fn deletions(server: &Server, node: &str) -> Vec<Instant> {
    let asked = |entry: &LogEntry| {
        (entry.op, entry.kind) == (Op::Delete, LogKind::Arrived) && entry.path == node
    };
    server
        .log()
        .into_iter()
        .filter(asked)
        .map(|entry| entry.at)
        .collect()
}

/// The node of the lock still exists, so the servers would commit the write.
// Shows: transaction
#[tokio::test]
async fn lock_lost_by_clock_writes_nothing() {
    let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
    server.create("/stock", "1").unwrap();
    let ExpiredHold {
        guard,
        next,
        _answers: answers,
        ..
    } = expired_hold(&server, &holder, &waiter).await;
    answers.release();
    let write = guard.transaction().set_data("/stock", "0", None);
    let error = within("the answer", write.commit()).await.unwrap_err();
    assert!(server.exists(&guard.node()));
    assert!(
        matches!(&error, TransactionError::Lost(lost) if lost.reason() == LostReason::LeaseExpired),
        "{error:?}"
    );
    assert_eq!(server.node("/stock").unwrap().data, b"1");
    drop(guard);
    granted(next).await.release().await.unwrap();
}

/// A lost lock keeps its node until its guards are dropped, or a session timeout has passed, so the
/// holder can stop before the next is granted the lock.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_stays_until_guards_drop() {
    for release in [false, true] {
        let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
        let ExpiredHold {
            guard,
            next,
            _answers,
            ..
        } = expired_hold(&server, &holder, &waiter).await;
        let node = guard.node();
        assert!(
            !mutex(&holder).is_acquired_in_this_process(),
            "it is not held any more"
        );
        // A deletion at the loss would have been carried out by now.
        holder.flush(LONG).await.unwrap();
        assert_eq!(
            deletions(&server, &node),
            [],
            "before the holder has stopped"
        );
        assert!(server.exists(&node) && !next.is_finished());
        if release {
            let released = within("the release", guard.release()).await;
            assert!(
                matches!(released, Err(ReleaseError::Lost(_))),
                "{released:?}"
            );
        } else {
            drop(guard);
        }
        let next = within("the grant", next).await.unwrap().unwrap();
        assert_eq!(deletions(&server, &node).len(), 1);
        next.release().await.unwrap();
        let survived = server
            .sessions()
            .iter()
            .any(|known| Some(known.id) == holder.session_id());
        assert!(survived, "the session was over, which shows nothing");
    }
}

/// A holder that does not stop keeps the others waiting no longer than its session would have.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_ends_after_session_timeout() {
    let (server, [holder, waiter]) = with_clients(server(), strict_client).await;
    let expired = expired_hold(&server, &holder, &waiter).await;
    let ExpiredHold {
        guard,
        before,
        next,
        _answers,
    } = expired;
    let next = within("the grant", next).await.unwrap().unwrap();
    let deleted = deletions(&server, &guard.node());
    assert_eq!(deleted.len(), 1);
    // The create was sent, and with it the last proof, after `before`.
    let kept = deleted[0] - before;
    assert!(
        kept >= T,
        "given away {kept:?} after it was got, while a guard was there"
    );
    assert!(!guard.is_held());
    let released = within("the release", guard.release()).await;
    assert!(
        matches!(released, Err(ReleaseError::Lost(_))),
        "{released:?}"
    );
    assert!(next.is_held());
    let survived = server
        .sessions()
        .iter()
        .any(|known| Some(known.id) == holder.session_id());
    assert!(survived, "the session was over, which shows nothing");
}

/// A hold whose lease has expired, of a client that may have one node for the lock, and another
/// contender of that client.
async fn expired_hold_and_contender(
    server: &Server,
    client: &Client,
) -> (LockGuard, Contender, Gate) {
    let guard = within("the grant", mutex(client).lock()).await.unwrap();
    let answers = server.hold_reply(Match::op(Op::Multi).session(session(client)).always());
    let mutex = mutex(client);
    let contender = tokio::spawn(async move { mutex.acquire(LONG).await });
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    (guard, contender, answers)
}

type Contender = JoinHandle<Result<LockGuard, AcquireError>>;

// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_keeps_place_with_node() {
    let (server, [client]) = with_clients(server(), strict_client).await;
    let (guard, contender, answers) = expired_hold_and_contender(&server, &client).await;
    answers.release();
    client.flush(LONG).await.unwrap();
    let node = guard.node();
    assert!(
        node.ends_with(&server.children(DIRECTORY).concat()),
        "expected no other node"
    );
    drop(guard);
    let next = within("the grant", contender).await.unwrap().unwrap();
    assert_eq!(deletions(&server, &node).len(), 1);
    next.release().await.unwrap();
}

// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_blocks_nobody_after_session() {
    let (server, [client]) = with_clients(server(), strict_client).await;
    let (guard, contender, _answers) = expired_hold_and_contender(&server, &client).await;
    server.expire_session(session(&client));
    let next = within("the grant", contender).await.unwrap().unwrap();
    assert_eq!(guard.state(), LockState::Lost(LostReason::LeaseExpired));
    next.release().await.unwrap();
    drop(guard);
}

/// The event that a predecessor went arrives, but nothing that we send does: no grant before the
/// servers answer.
// Shows: suspended
#[tokio::test]
async fn doubted_session_is_granted_nothing() {
    let server = server();
    server.freeze_expiry(true);
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = hold(&holder).await;
    let waiting = mutex(&waiter);
    let mut waiting = tokio::spawn(async move { waiting.acquire(LONG).await });
    until(&server, "the watch", |view| view.watches() == 1).await;
    let id = session(&waiter);
    server.stall(id, Direction::ToServer);
    let mut state = waiter.watch_state();
    within(
        "the state",
        state.wait_for(|state| *state == ConnectionState::Suspended),
    )
    .await
    .unwrap();
    guard.release().await.unwrap();
    // The server tells the waiter of it; when the waiter has heard, and what it makes of that,
    // nothing outside shows.
    let early = tokio::time::timeout(T / 6, &mut waiting).await;
    assert!(early.is_err(), "granted without a server that knows of us");
    server.resume(id);
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// The server's code.
const OPERATION_TIMEOUT: i32 = -7;

/// A contender that waits behind the guard of another client, at a server that expires no session.
struct Doubted {
    server: Server,
    _client: Client,
    id: i64,
    lock: InterProcessMutex,
    waiting: JoinHandle<Result<LockGuard, AcquireError>>,
    other: Client,
}

impl Doubted {
    /// A contender whose client has these options, and the guard that it waits for.
    async fn waiting(builder: ClientBuilder) -> (Self, LockGuard) {
        let server = server();
        server.freeze_expiry(true);
        let client = client_with(&server, T, builder).await;
        let other = self::client(&server).await;
        let guard = hold(&other).await;
        let (id, lock) = (session(&client), mutex(&client));
        let waiting = tokio::spawn(lock.lock());
        until(&server, "the watch", |view| view.watches() == 1).await;
        let contender = Self {
            server,
            _client: client,
            id,
            lock,
            waiting,
            other,
        };
        (contender, guard)
    }

    /// Has the servers answer its reads, and nothing that would show that they keep its session.
    fn doubt(&self) -> Fault {
        let writes = Match::op(Op::Multi).session(self.id);
        self.server.fail(writes.always(), OPERATION_TIMEOUT)
    }

    /// How many lists it has asked for.
    fn lists(&self) -> u64 {
        self.server.counters().requests_of(self.id, Op::GetChildren)
    }

    /// Waits until it has asked for so many.
    async fn until_lists(&self, what: &str, count: u64) {
        let id = self.id;
        until(&self.server, what, move |view| {
            view.counters().requests_of(id, Op::GetChildren) >= count
        })
        .await;
    }

    /// Has another process delete its node. Returns the guard of the other client, which is next.
    async fn replaced(&self, node: &str) -> LockGuard {
        self.server.delete(node).unwrap();
        hold(&self.other).await
    }

    /// It has not been granted the lock by what was so before: it queues behind the guard.
    async fn ends_behind(self, guard: LockGuard) {
        until(&self.server, "its next node", |view| {
            view.children(DIRECTORY).len() == 2
        })
        .await;
        assert!(!self.waiting.is_finished(), "granted by what was so before");
        guard.release().await.unwrap();
        let granted = within("the grant", self.waiting).await.unwrap().unwrap();
        granted.release().await.unwrap();
    }
}

/// While a contender that is first waits for the servers' word that they keep its session, another
/// process deletes its node, and the next one is granted the lock.
// Shows: suspended
#[tokio::test]
async fn doubted_contender_looks_before_its_grant() {
    let (contender, guard) = Doubted::waiting(Client::builder()).await;
    let doubt = contender.doubt();
    // Longer than two heartbeats, and shorter than what loses a lock.
    tokio::time::sleep(T / 2).await;
    guard.release().await.unwrap();
    contender.until_lists("another list", 2).await;
    // Answered behind it.
    let queue = within("the queue", contender.lock.participants())
        .await
        .unwrap();
    let guard = contender.replaced(&queue[0]).await;
    doubt.remove();
    contender.ends_behind(guard).await;
}

/// The session lives, but the servers do not say so: the holder has time to stop.
// Shows: lost-lock-keeps-its-node
#[tokio::test]
async fn lost_lock_keeps_its_node() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    server.fail(Match::op(Op::Multi).always(), THROTTLED);
    let lost = within("the loss", guard.lost()).await;
    assert_eq!(lost.reason(), LostReason::LeaseExpired);
    let node = guard.node();
    let is_gone = move |view: View<'_>| !view.exists(&node);
    never_for(T / 6, &server, "its node is gone", is_gone).await;
    until_free(&server).await;
    drop(guard);
}

/// The contender has looked again after a first doubt. A second doubt, in which its node is
/// deleted, outlasts that look.
// Shows: suspended
#[tokio::test]
async fn looks_again_after_a_long_doubt() {
    let (contender, guard) = Doubted::waiting(Client::builder().retry_policy(eager())).await;
    let doubt = contender.doubt();
    // Time passes because the session is in doubt once a heartbeat is overdue.
    tokio::time::sleep(T / 2).await;
    let listed = contender.lists();
    guard.release().await.unwrap();
    contender
        .until_lists("the list of the first doubt", listed + 1)
        .await;
    let lists = Match::op(Op::GetChildren).session(contender.id);
    let unseen = contender.server.fail(lists.always(), THROTTLED);
    doubt.remove();
    within("the look after it", unseen.wait_hit()).await;
    let doubt = contender.doubt();
    // Time passes for another doubt.
    tokio::time::sleep(T / 2).await;
    unseen.remove();
    let queue = within("the queue", contender.lock.participants())
        .await
        .unwrap();
    // Time passes because the look is to be too old.
    tokio::time::sleep(T).await;
    let guard = contender.replaced(&queue[0]).await;
    doubt.remove();
    contender.ends_behind(guard).await;
}

/// The list that shows a contender first is answered late, and the confirmation that the servers
/// keep its session comes later still. Meanwhile another process deletes its node, and the next
/// contender is granted the lock. A doubt about the session has been cleared up once, so only the
/// age of the list prevents a second grant.
// Shows: suspended
#[tokio::test]
async fn stale_list_grants_nothing() {
    let policy = RetryPolicy::n_times(1_000, Duration::from_millis(20));
    let (contender, guard) = Doubted::waiting(Client::builder().retry_policy(policy)).await;
    let (server, id) = (&contender.server, contender.id);
    let doubt = contender.doubt();
    // Longer than two heartbeats, and shorter than what loses a lock.
    tokio::time::sleep(T / 2).await;
    // The list by which it would be granted if there were no doubt is answered, and no other.
    let refused = server.fail(
        Match::op(Op::GetChildren).session(id).nth(1).always(),
        OPERATION_TIMEOUT,
    );
    guard.release().await.unwrap();
    contender.until_lists("another list", 2).await;
    doubt.remove();
    contender.until_lists("the look behind the doubt", 3).await;
    let doubt = contender.doubt();
    let renewed = Instant::now();
    // Time passes for another doubt.
    tokio::time::sleep(T / 4).await;
    // Longer than two heartbeats after the renewal, and not so long that the connection is given
    // up.
    let answer = server.hold_reply(Match::op(Op::GetChildren).session(id));
    refused.remove();
    within("the list", answer.wait_hit()).await;
    let sent = Instant::now();
    // The answer takes its time, for which the list is older.
    tokio::time::sleep(T / 10).await;
    answer.release();
    // The list is behind the answer.
    let node = queue(server).remove(0);
    tokio::time::sleep(T / 20).await;
    let guard = contender.replaced(&node).await;
    // Older than three heartbeats by its sending, and not by its answer.
    tokio::time::sleep_until((sent + T * 11 / 20).into()).await;
    assert!(renewed.elapsed() > T / 2);
    doubt.remove();
    contender.ends_behind(guard).await;
}

// Shows: node-deleted-by-hand
#[tokio::test]
async fn heartbeat_notices_deleted_node() {
    let (server, [client]) = with_clients(server(), client).await;
    let guard = hold(&client).await;
    let other = InterProcessMutex::new(&client, "/locks/other")
        .unwrap()
        .lock()
        .await
        .unwrap();
    let deleted = Instant::now();
    server.delete(&guard.node()).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(deleted.elapsed() < T / 5, "{:?}", deleted.elapsed());
    until_state(&other, |state| state == LockState::Held).await;
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
}

/// A client that holds many locks.
async fn many_holds(server: &Server, count: usize) -> (Client, Vec<LockGuard>) {
    let client = rarely_beating(server).await;
    let mut guards = Vec::new();
    for number in 0..count {
        let mutex = InterProcessMutex::new(&client, format!("/locks/{number}")).unwrap();
        guards.push(within("the grant", mutex.lock()).await.unwrap());
    }
    (client, guards)
}

/// Deletes the nodes of some guards, makes the client send a heartbeat, and waits until each guard
/// is notified.
async fn delete_all(server: &Server, client: &Client, guards: &[LockGuard]) {
    for guard in guards {
        server.delete(&guard.node()).unwrap();
    }
    server.cut(session(client), Cut::Reset);
    for guard in guards {
        assert_eq!(
            within("the loss", guard.lost()).await.reason(),
            LostReason::NodeDeleted
        );
    }
}

// Shows: node-deleted-by-hand
#[tokio::test]
async fn mass_deletion_costs_two_requests() {
    let server = server();
    let (client, guards) = many_holds(&server, 201).await;
    server.reset_counters();
    delete_all(&server, &client, &guards[1..]).await;
    client.flush(LONG).await.unwrap();
    let counters = server.counters();
    let requests = [Op::Multi, Op::MultiRead, Op::Delete].map(|op| counters.requests(op));
    assert_eq!(requests, [1, 1, 0]);
    assert!(guards[0].is_held(), "its node is there");
    guards.into_iter().next().unwrap().release().await.unwrap();
}

/// Servers before 3.6 refuse that read, or close the connection over it.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn mass_deletion_noticed_without_multi_reads() {
    for closes in [false, true] {
        let server = server();
        let (client, guards) = many_holds(&server, 8).await;
        let id = session(&client);
        let reads = Match::op(Op::MultiRead).always();
        let _refused = if closes {
            server.drop_request(reads, Loss::Close)
        } else {
            server.fail(reads, UNIMPLEMENTED)
        };
        delete_all(&server, &client, &guards[..4]).await;
        delete_all(&server, &client, &guards[4..7]).await;
        assert_eq!(
            server.counters().requests(Op::MultiRead),
            1,
            "it was asked for again"
        );
        assert_eq!(session(&client), id);
        assert!(guards[7].is_held(), "its node is there");
    }
}

/// The nodes are checked in no particular order, so that with many which may not be checked one of
/// them is before the missing one.
// Shows: node-deleted-by-hand
#[tokio::test]
async fn denied_checks_hide_no_missing_node() {
    const DENIED: usize = 50;
    let (server, [client]) = with_clients(server(), client).await;
    let closed = Permissions::WRITE | Permissions::CREATE | Permissions::DELETE;
    let mut guards = Vec::new();
    for number in 0..DENIED {
        let path = format!("/closed/{number}");
        // The directory may be read.
        server.create(&path, "").unwrap();
        let mutex = InterProcessMutex::builder(&client, path)
            .acl([Acl::new("world", "anyone", closed)])
            .build()
            .unwrap();
        guards.push(within("the grant", mutex.lock()).await.unwrap());
    }
    let guard = hold(&client).await;
    let deleted = Instant::now();
    server.delete(&guard.node()).unwrap();
    assert_eq!(
        within("the loss", guard.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(deleted.elapsed() < T / 5, "{:?}", deleted.elapsed());
    assert!(guards.iter().all(LockGuard::is_held));
}

// Shows: renewal
#[tokio::test]
async fn unreadable_root_stops_no_heartbeat() {
    // Servers before 3.9 tell the Stat of any node.
    let tick = Duration::from_millis(50);
    let builder = Server::builder()
        .tick(tick)
        .max_session_timeout(LONG)
        .zookeeper_version(Version::V3_9);
    let server = builder.start().unwrap();
    // A waiter has no node of its own to check but the root.
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = hold(&holder).await;
    let waiting = tokio::spawn(mutex(&waiter).lock());
    until(&server, "the queue", |view| {
        view.children(DIRECTORY).len() == 2
    })
    .await;
    let outsider = zk::Client::connect(&server.connect_string()).await.unwrap();
    let closed = zk::Acl::new(
        zk::Permission::CREATE | zk::Permission::DELETE,
        zk::AuthId::anyone(),
    );
    outsider.set_acl("/", &[closed], None).await.unwrap();
    assert_eq!(
        outsider.check_stat("/").await.unwrap_err(),
        zk::Error::NoAuth
    );
    server.reset_counters();
    let id = session(&waiter);
    let beats = move |view: View<'_>| view.counters().requests_of(id, Op::Multi) >= 6;
    until(&server, "six beats, a lease and more", beats).await;
    assert_eq!(session(&waiter), id);
    guard.release().await.unwrap();
    within("the grant", waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn while_held_returns_result_or_loss() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    assert_eq!(guard.while_held(async { 7 }).await.unwrap(), 7);

    let dropped = Arc::new(());
    let witness = Arc::clone(&dropped);
    let work = guard.while_held(async move {
        let _witness = witness;
        std::future::pending::<()>().await;
    });
    server.expire_session(session(&client));
    assert_eq!(
        within("the work", work).await.unwrap_err().reason(),
        LostReason::SessionExpired
    );
    assert_eq!(Arc::strong_count(&dropped), 1, "the work is gone");
    // Already lost: not even begun.
    let begun = guard.while_held(async { panic!("must not run") }).await;
    assert!(begun.is_err());
}

/// Notes, when it is dropped, whether the lock is still held.
struct Work {
    mutex: InterProcessMutex,
    held: Arc<Mutex<Option<bool>>>,
}

impl Work {
    fn new(mutex: &InterProcessMutex) -> (Self, Arc<Mutex<Option<bool>>>) {
        let held = Arc::default();
        (
            Self {
                mutex: mutex.clone(),
                held: Arc::clone(&held),
            },
            held,
        )
    }

    /// Never ends by itself.
    async fn run(self, begun: oneshot::Sender<()>) {
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
        drop(self);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *self.held.lock().unwrap() = Some(self.mutex.is_acquired_in_this_process());
    }
}

#[tokio::test]
async fn while_held_owned_returns_the_guard() {
    let (_server, [client]) = with_clients(server(), rarely_beating).await;
    let work = tokio::spawn(hold(&client).await.while_held_owned(async { 7 }));
    let (output, guard) = within("the work", work).await.unwrap().unwrap();
    assert_eq!(output, 7);
    assert_eq!((guard.state(), guard.hold_count()), (LockState::Held, 1));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn while_held_owned_drops_lost_work() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let mutex = mutex(&client);
    let (work, held) = Work::new(&mutex);
    let (begun, begins) = oneshot::channel();
    let work = tokio::spawn(hold(&client).await.while_held_owned(work.run(begun)));
    within("the begin of the work", begins).await.unwrap();
    server.expire_session(session(&client));
    let lost = within("the loss", work).await.unwrap().unwrap_err();
    assert_eq!(lost.reason(), LostReason::SessionExpired);
    assert_eq!(*held.lock().unwrap(), Some(false), "the work is dropped");
    // Already lost: not even begun.
    let guard = hold(&client).await;
    client.close().await.unwrap();
    let begun = guard
        .while_held_owned(async { panic!("must not run") })
        .await;
    assert_eq!(begun.unwrap_err().reason(), LostReason::Closed);
}

/// The work may rely on the lock until it is gone.
#[tokio::test]
async fn cancelled_work_drops_before_the_release() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let mutex = mutex(&client);
    for polled in [false, true] {
        let (work, held) = Work::new(&mutex);
        let (begun, begins) = oneshot::channel();
        let running = hold(&client).await.while_held_owned(work.run(begun));
        if polled {
            let running = tokio::spawn(running);
            within("the begin of the work", begins).await.unwrap();
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
        } else {
            drop(running);
        }
        assert_eq!(
            *held.lock().unwrap(),
            Some(true),
            "dropped under the lock (polled: {polled})"
        );
        assert!(!mutex.is_acquired_in_this_process());
        client.flush(LONG).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0]);
    }
}

// Shows: transaction
#[tokio::test]
async fn unanswered_transaction_is_unknown() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    server.create("/data", b"0").unwrap();
    let guard = hold(&client).await;
    server.drop_reply(Match::op(Op::Multi).path("/data"), Loss::Close);
    let unknown = guard
        .transaction()
        .set_data("/data", b"1", None)
        .commit()
        .await;
    assert!(
        matches!(unknown, Err(TransactionError::Unknown { .. })),
        "{unknown:?}"
    );
    assert_eq!(server.node("/data").unwrap().data, b"1", "it was committed");
}

// Shows: data-limit
#[tokio::test]
async fn rejects_bad_transactions_before_sending() {
    let (server, [client]) = with_clients(server(), rarely_beating).await;
    let guard = hold(&client).await;
    server.reset_counters();
    let bad = guard.transaction().delete("no/slash", None).commit().await;
    assert!(matches!(bad, Err(TransactionError::InvalidPath(error)) if error.path() == "no/slash"));
    let large = guard
        .transaction()
        .set_data("/x", vec![0; 1_000_001], None)
        .commit()
        .await;
    assert!(matches!(large, Err(TransactionError::TooLarge { bytes, .. }) if bytes > 1_000_000));
    assert_eq!(server.counters().requests(Op::SetData), 0);
    assert!(guard.is_held());
}
