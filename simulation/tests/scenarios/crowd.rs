//! Many callers in one process: the number of their unanswered requests is bounded, so that the
//! process loses no lock because of them.

use ::simulation::scenario::tokio;
use test_support::prelude::*;

/// The number of requests of one kind that may be unanswered.
const WINDOW: usize = 64;

const OTHER: &str = "/locks/sku-43";

/// How long thousands of requests may take.
const PATIENCE: Duration = Duration::from_secs(600);

fn fair(client: &Client, path: &str) -> InterProcessFairLock {
    InterProcessFairLock::builder(client, path)
        .max_waiters(10_000)
        .build()
        .unwrap()
}

/// Returns the largest number of requests of this kind that were unanswered at the same time, as
/// the server saw them.
fn most_unanswered(server: &Server, session: i64, op: Op) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for entry in server.log() {
        match entry.kind {
            // Requests that were sent on an earlier connection are no longer answered.
            _ if (entry.session, entry.op) == (session, Op::Connect) => now = 0,
            _ if (entry.session, entry.op) != (session, op) => {}
            LogKind::Arrived => now += 1,
            LogKind::Replied => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// Returns the largest number of other writes of the session that were answered while a heartbeat
/// waited for its answer, as the server saw it; `None` if there was no heartbeat.
fn most_before_a_beat(server: &Server, session: i64) -> Option<usize> {
    let log = server.log();
    let beats = log.iter().filter(|entry| {
        (entry.session, entry.op, entry.kind) == (session, Op::Multi, LogKind::Arrived)
    });
    let waits = beats.map(|beat| {
        let after = log
            .iter()
            .filter(|entry| entry.n > beat.n && entry.session == session);
        after
            .take_while(|entry| (entry.request, entry.kind) != (beat.request, LogKind::Replied))
            // A lost connection takes the answer with it.
            .take_while(|entry| entry.op != Op::Connect)
            .filter(|entry| {
                matches!(entry.op, Op::Create | Op::Delete) && entry.kind == LogKind::Replied
            })
            .count()
    });
    waits.max()
}

/// Waits until all creates have arrived that the client can send without an answer, and returns how
/// many have arrived.
async fn creates(server: &Server, client: &Client) -> usize {
    const NOWHERE: &str = "/nowhere";
    let id = session(client);
    let looks = |view: &View<'_>| {
        view.log()
            .filter(|entry| entry.kind == LogKind::Arrived && entry.path == NOWHERE)
            .count()
    };
    let log = server.log();
    let before = log
        .iter()
        .filter(|entry| entry.kind == LogKind::Arrived && entry.path == NOWHERE)
        .count();
    // All attempts run on one thread, each as far as it can get, in the order in which they were
    // started.
    let look = InterProcessMutex::new(client, NOWHERE).unwrap();
    let looked = ByHand::new(look.participants()).start();
    until(server, "a request after the creates", move |view| {
        looks(&view) > before
    })
    .await;
    drop(looked);
    usize::try_from(server.counters().requests_of(id, Op::Create)).unwrap()
}

/// The server takes a millisecond for each create, and answers in order, as all servers do. All
/// creates together take longer than the four seconds after which a heartbeat is sent, but the
/// heartbeat waits for only a few of them.
// Shows: request-window
#[tokio::test]
async fn crowd_costs_no_other_lock() {
    const CROWD: usize = 5_000;
    let server = Arc::new(start());
    let builder = Client::builder()
        .session_timeout(Duration::from_secs(24))
        .connect_timeout(SOON);
    let client = connect_as(builder, &server).await;
    let id = session(&client);
    let elsewhere = InterProcessMutex::new(&client, OTHER).unwrap();
    let held = within("a lock elsewhere", elsewhere.lock()).await.unwrap();
    // No request is answered before all have arrived.
    let hold = {
        let server = Arc::clone(&server);
        move || server.hold_request(Match::op(Op::Create).session(id))
    };
    let mut gate = hold();
    let lock = fair(&client, DIRECTORY);
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| ByHand::new(lock.lock()).start())
        .collect();
    let slow = tokio::spawn(async move {
        loop {
            gate.wait_hit().await;
            // The next request is held before this one is released.
            let next = hold();
            // The pause makes the server slow; it does not wait for an event.
            tokio::time::sleep(Duration::from_millis(1)).await;
            gate = next;
        }
    });
    let all = async {
        let here = move |view: View<'_>| view.children(DIRECTORY).len() == CROWD;
        assert!(
            server.wait_until(here, PATIENCE).await,
            "expected all callers to arrive in time"
        );
    };
    tokio::select! {
        () = all => {}
        lost = held.lost() => panic!("{lost}"),
    }
    // The gate releases all requests when it is dropped.
    slow.abort();
    let most = most_unanswered(&server, id, Op::Create);
    assert!(most <= WINDOW, "{most} creates were unanswered");
    // The callers leave, all at once.
    drop(crowd);
    let gone = client.flush(PATIENCE);
    tokio::select! {
        flushed = gone => flushed.unwrap(),
        lost = held.lost() => panic!("{lost}"),
    }
    assert!(server.children(DIRECTORY).is_empty());
    for op in [Op::Delete, Op::Multi] {
        let most = most_unanswered(&server, id, op);
        assert!(most <= WINDOW + 2, "{most} of {op:?} were unanswered");
    }
    // At most a full window of creates and one of deletions were answered before the heartbeat.
    let most = most_before_a_beat(&server, id).unwrap();
    assert!(
        most <= 2 * WINDOW,
        "a heartbeat waited for {most} creates and deletions"
    );
    held.release().await.unwrap();
}

/// Creates that find a full window wait in order of arrival, one at a time for each lock, so that
/// no lock blocks another.
// Shows: request-window
#[tokio::test]
async fn creates_take_turns_between_locks() {
    let server = start();
    server.create(OTHER, "").unwrap();
    let client = calm(&server).await;
    let id = session(&client);
    let gate = server.hold_request(Match::op(Op::Create).session(id));
    let (here, there) = (fair(&client, DIRECTORY), fair(&client, OTHER));
    let crowd: Vec<_> = (0..500).map(|_| ByHand::new(here.lock()).start()).collect();
    within("a create", gate.wait_hit()).await;
    assert_eq!(creates(&server, &client).await, WINDOW);
    let mut one = ByHand::new(there.lock()).start();
    assert_eq!(creates(&server, &client).await, WINDOW);
    // Callers that leave before they have sent a request need no slot.
    let (stay, leave) = crowd
        .into_iter()
        .enumerate()
        .partition::<Vec<_>, _>(|(i, _)| i % 2 == 0);
    drop(leave);
    gate.release();
    one.woken().await;
    let guard = match one.poll() {
        Poll::Ready(Ok(guard)) => guard,
        other => panic!("{other:?}"),
    };
    until(&server, "all that stay", |view| {
        view.children(DIRECTORY).len() == 250
    })
    .await;
    let log = server.log();
    let creates: Vec<_> = log
        .iter()
        .filter(|entry| (entry.session, entry.op, entry.kind) == (id, Op::Create, LogKind::Arrived))
        .collect();
    let place = creates
        .iter()
        .position(|entry| entry.path.starts_with(OTHER))
        .unwrap();
    assert!(
        place < WINDOW + 2,
        "the other lock's create came as number {place}"
    );
    assert!(most_unanswered(&server, id, Op::Create) <= WINDOW);
    guard.release().await.unwrap();
    drop(stay);
    client.flush(SOON).await.unwrap();
}

/// A create that was sent keeps its slot until it is answered, even when its caller has gone.
// Shows: request-window
#[tokio::test]
async fn cancelled_create_keeps_its_slot() {
    let (server, [client]) = with_clients(start(), calm).await;
    let gate = server.hold_request(Match::op(Op::Create).session(session(&client)));
    let lock = fair(&client, DIRECTORY);
    let sent: Vec<_> = (0..WINDOW)
        .map(|_| ByHand::new(lock.lock()).start())
        .collect();
    within("a create", gate.wait_hit()).await;
    assert_eq!(creates(&server, &client).await, WINDOW);
    drop(sent);
    let mut next = ByHand::new(lock.lock()).start();
    assert_eq!(creates(&server, &client).await, WINDOW);
    assert!(next.poll().is_pending());
    gate.release();
    next.woken().await;
    assert!(matches!(next.poll(), Poll::Ready(Ok(_))));
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY), [""; 0]);
}

/// A release is sent although the deletions of abandoned waits fill the window: others wait for the
/// released lock, but not for callers that gave up.
// Shows: request-window
#[tokio::test]
async fn release_overtakes_abandoned_waits() {
    let (server, [client, holder]) = with_clients(start(), calm).await;
    let id = session(&client);
    let _first = within("the grant", fair(&holder, DIRECTORY).lock())
        .await
        .unwrap();
    let held = within(
        "the grant",
        InterProcessMutex::new(&client, OTHER).unwrap().lock(),
    )
    .await
    .unwrap();
    let lock = fair(&client, DIRECTORY);
    let crowd: Vec<_> = (0..500).map(|_| ByHand::new(lock.lock()).start()).collect();
    until(&server, "all", |view| view.children(DIRECTORY).len() == 501).await;
    let gate = server.hold_request(Match::op(Op::Delete).session(id));
    drop(crowd);
    within("a deletion", gate.wait_hit()).await;
    let deletions = move |view: &View<'_>| view.counters().requests_of(id, Op::Delete);
    until(&server, "a full window", move |view| {
        deletions(&view) >= WINDOW as u64
    })
    .await;
    let node = held.node();
    let release = ByHand::new(held.release()).start();
    until(&server, "the release", move |view| {
        view.log().any(|entry| {
            entry.op == Op::Delete && entry.kind == LogKind::Arrived && entry.path == node
        })
    })
    .await;
    gate.release();
    drop(release);
    client.flush(SOON).await.unwrap();
    assert_eq!(server.children(DIRECTORY).len(), 1);
    let most = most_unanswered(&server, id, Op::Delete);
    assert!(most <= WINDOW + 1, "{most} deletions were unanswered");
}

/// A waiter whose predecessor gives up knows which node to wait for next, and needs no list.
#[tokio::test]
async fn fair_waiters_time_out_without_lists() {
    const WAITERS: usize = 1_000;
    let (server, [client, other]) = with_clients(start(), calm).await;
    let held = hold(&other).await;
    let (lock, mut dice) = (fair(&client, DIRECTORY), Random::new(17));
    server.reset_counters();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        // The timeouts are long enough for all waiters to arrive before the first gives up, because
        // a waiter that arrives when the last leaves has to list.
        waiters.spawn(lock.acquire(Duration::from_secs(2) + dice.duration(Duration::from_secs(1))));
    }
    until(&server, "all", |view| {
        view.children(DIRECTORY).len() == WAITERS + 1
    })
    .await;
    assert!(
        all_done("the ends", waiters)
            .await
            .iter()
            .all(Result::is_err)
    );
    client.flush(SOON).await.unwrap();
    let lists = server
        .counters()
        .requests_of(session(&client), Op::GetChildren);
    // The attempts of the first window share their lists.
    assert!(
        lists <= 20,
        "{lists} lists for {WAITERS} that came and gave up"
    );
    held.release().await.unwrap();
}
