//! Leader elections, with faults that broke other implementations: docs/protocol.md#election and
//! docs/protocol.md#leaders-work.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use test_support::prelude::*;

const PATH: &str = "/scheduler/leader";
/// The session timeout. A lease lasts for two thirds of it, which is longer than any pause of a
/// busy machine.
const T: Duration = Duration::from_millis(4_500);
/// ZooKeeper's code for a missing permission.
const NO_AUTH: i32 = -102;

fn start() -> Server {
    let server = Server::start().unwrap();
    server.create(PATH, "").unwrap();
    server
}

/// Starts a server whose session timeouts are short, so that a lease ends soon, but are long enough
/// for a busy machine.
fn start_impatient() -> Server {
    let tick = Duration::from_millis(50);
    let server = Server::builder()
        .tick(tick)
        .max_session_timeout(T)
        .start()
        .unwrap();
    server.create(PATH, "").unwrap();
    server
}

async fn impatient(server: &Server) -> Client {
    connect_as(
        Client::builder().retry_policy(eager()).session_timeout(T),
        server,
    )
    .await
}

fn latch(client: &Client, id: &str) -> LeaderLatch {
    LeaderLatch::builder(client, PATH).id(id).build().unwrap()
}

fn selector(client: &Client) -> LeaderSelector {
    LeaderSelector::new(client, PATH).unwrap()
}

fn queue(server: &Server) -> Vec<String> {
    queue_at(server, PATH)
}

async fn leads(latch: &LeaderLatch) -> Leadership {
    within("the leadership", latch.leadership()).await.unwrap()
}

/// Waits until this many participants have a node, and the last of them watches the one before it.
async fn queued(server: &Server, count: usize) {
    until(server, "the participants", move |view| {
        view.children(PATH).len() == count && view.watches() == count - 1
    })
    .await;
}

/// Two latches of two clients. The first leads, and the other waits for it.
async fn pair(server: &Server) -> ([Client; 2], [LeaderLatch; 2], Leadership) {
    pair_of(server, [connect(server).await, connect(server).await]).await
}

async fn pair_of(
    server: &Server,
    clients: [Client; 2],
) -> ([Client; 2], [LeaderLatch; 2], Leadership) {
    let first = latch(&clients[0], "first");
    let leadership = leads(&first).await;
    let second = latch(&clients[1], "second");
    queued(server, 2).await;
    (clients, [first, second], leadership)
}

async fn until_state(
    latch: &LeaderLatch,
    wanted: impl Fn(LeadershipState) -> bool + Send + Sync,
) -> LeadershipState {
    within(
        "the state",
        latch.watch_state().wait_for(|state| wanted(*state)),
    )
    .await
    .unwrap()
}

/// Waits until no participant is left at the server.
async fn empty(server: &Server) {
    until(server, "an empty election", |view| {
        view.children(PATH).is_empty()
    })
    .await;
}

/// Sets the flag when it is dropped.
struct Sentinel(Arc<AtomicBool>);

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns work that never ends, and a flag that shows whether the work has been dropped.
fn endless() -> (impl Future<Output = ()> + Send + 'static, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    let sentinel = Sentinel(Arc::clone(&dropped));
    let work = async move {
        let _sentinel = sentinel;
        std::future::pending::<()>().await;
    };
    (work, dropped)
}

/// Spawns a call to `lead` whose work reports its terms and does not end by itself.
fn leader(selector: &LeaderSelector) -> (JoinHandle<()>, watch::Receiver<Vec<FencingToken>>) {
    let (terms, seen) = watch::channel(Vec::new());
    let selector = selector.clone();
    let task = tokio::spawn(async move {
        let lead = selector.lead(|term| {
            terms.send_modify(|terms| terms.push(term));
            std::future::pending::<()>()
        });
        lead.await.unwrap();
    });
    (task, seen)
}

async fn terms(seen: &mut watch::Receiver<Vec<FencingToken>>, count: usize) -> Vec<FencingToken> {
    within("the terms", seen.wait_for(|terms| terms.len() >= count))
        .await
        .unwrap()
        .clone()
}

// Layouts.

/// Curator's latch node is `_c_<uuid>-latch-<number>`, with the id as data.
// Shows: election
#[tokio::test]
async fn latch_node_matches_curators() {
    let (server, [client]) = with_clients(Server::start().unwrap(), connect).await;
    for (id, data) in [("web-3 ä", "web-3 ä"), ("", "")] {
        let latch = latch(&client, id);
        let leadership = leads(&latch).await;
        let node = leadership.node();
        let (before, number) = node.name().rsplit_once("-latch-").unwrap();
        let uuid = before.strip_prefix("_c_").unwrap();
        assert!(uuid.len() == 36 && number.len() == 10, "{node}");
        let shown = server.node(&node).unwrap();
        assert_eq!(shown.data, data.as_bytes());
        assert_eq!(shown.ephemeral_owner, session(&client));
        assert_eq!(
            leadership.fencing_token(),
            FencingToken::from_parts(shown.czxid, 0)
        );
        latch.close().await.unwrap();
        drop(latch);
        // The second latch has the same path and another id. The client forgets the first latch
        // when the latch's task has ended.
        client.flush(SOON).await.unwrap();
    }
}

/// Curator's selector is a mutex, with the id as data if it is not empty.
// Shows: election
#[tokio::test]
async fn selector_node_is_a_mutexs() {
    let (server, [client]) = with_clients(start(), connect).await;
    for (id, data) in [("web-3", Some("web-3")), ("", None)] {
        let selector = LeaderSelector::builder(&client, PATH)
            .id(id)
            .build()
            .unwrap();
        let node = within("the work", selector.lead(async |_| queue(&server)))
            .await
            .unwrap()
            .remove(0);
        assert!(node.contains("-lock-0"), "{node}");
        let seen = within("the work", selector.lead(async |_| selector.leader().await))
            .await
            .unwrap();
        let seen = seen.unwrap().unwrap();
        match data {
            Some(id) => assert_eq!(seen.id(), id),
            None => assert!(!seen.id().is_empty(), "that of a lock's node"),
        }
        // A mutex of another client is in the same queue.
        let held = InterProcessMutex::new(&connect(&server).await, PATH)
            .unwrap()
            .lock()
            .await
            .unwrap();
        let lead = pending(selector.lead(async |_| ()));
        queued(&server, 2).await;
        held.release().await.unwrap();
        within("the work", lead).await.unwrap();
        drop(selector);
    }
    empty(&server).await;
}

#[tokio::test]
async fn participants_are_listed_with_ids() {
    let server = start();
    let (clients, latches, leadership) = pair(&server).await;
    let seen = |latch: LeaderLatch| async move {
        let participants = within("the participants", latch.participants())
            .await
            .unwrap();
        assert_eq!(
            within("the leader", latch.leader()).await.unwrap().as_ref(),
            participants.first()
        );
        participants
    };
    let shown = |participants: &[Participant]| -> Vec<(String, bool, bool)> {
        participants
            .iter()
            .map(|p| (p.id().to_owned(), p.is_leader(), p.is_mine()))
            .collect()
    };
    let one = |id: &str, is_leader, is_mine| (id.to_owned(), is_leader, is_mine);
    let by_first = seen(latches[0].clone()).await;
    assert_eq!(
        shown(&by_first),
        [one("first", true, true), one("second", false, false)]
    );
    assert_eq!(*by_first[0].node(), leadership.node());
    let by_second = seen(latches[1].clone()).await;
    assert_eq!(
        shown(&by_second),
        [one("first", true, false), one("second", false, true)]
    );

    // A participant that leaves between the list and the read is left out.
    let gate = server.hold_request(Match::op(Op::GetData).session(session(&clients[1])));
    let reading = tokio::spawn(seen(latches[1].clone()));
    within("the reading", gate.wait_hit()).await;
    server.delete(&leadership.node()).unwrap();
    gate.release();
    within("the answer", reading).await.unwrap();
}

// Shows: election
#[tokio::test]
async fn latch_and_lock_share_no_path() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let latch = latch(&client, "a");
    let leadership = leads(&latch).await;
    let here = InterProcessMutex::new(&client, PATH).unwrap_err();
    assert!(matches!(here, BuildError::MixedRecipes { .. }), "{here}");
    let there = within("the refusal", selector(&other).lead(async |_| ()))
        .await
        .unwrap_err();
    let AcquireError::Request(there) = &there else {
        panic!("{there}")
    };
    assert_eq!(
        (there.kind(), there.node()),
        (ErrorKind::MixedRecipes, Some(&*leadership.node())),
        "{there}"
    );
    latch.close().await.unwrap();

    let held = InterProcessMutex::new(&other, PATH)
        .unwrap()
        .lock()
        .await
        .unwrap();
    let refused = LeaderLatch::new(&connect(&server).await, PATH).unwrap();
    let error = within("the refusal", refused.leadership())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::MixedRecipes), "{error}");
    assert!(!error.is_retryable() && error.path() == PATH);
    assert_eq!(refused.state(), LeadershipState::Closed);
    held.release().await.unwrap();
    empty(&server).await;
}

/// A second participant with another id at the same path needs a separate client.
#[tokio::test]
async fn latches_of_client_share_an_id() {
    let (server, [client]) = with_clients(start(), connect).await;
    let _first = latch(&client, "a");
    let error = LeaderLatch::builder(&client, PATH)
        .id("b")
        .build()
        .unwrap_err();
    assert!(
        matches!(error, BuildError::ConflictingOptions { option: "id", .. }),
        "{error}"
    );
    let second = LeaderLatch::new(&client, PATH).unwrap();
    until(&server, "both", |view| view.children(PATH).len() == 2).await;
    assert!(
        second
            .participants()
            .await
            .unwrap()
            .iter()
            .all(|participant| participant.id() == "a")
    );
}

// The states of a latch.

#[tokio::test]
async fn leadership_passes_to_the_next() {
    let server = start();
    let (clients, [first, second], leadership) = pair(&server).await;
    assert!(first.has_leadership() && leadership.is_held() && !second.has_leadership());
    assert_eq!(
        first.state(),
        LeadershipState::Leader(leadership.fencing_token())
    );
    assert_eq!(second.state(), LeadershipState::Follower);

    // A close ends the leadership.
    within("the close", first.close()).await.unwrap();
    assert!(!first.has_leadership() && !leadership.is_held());
    let lost = within("the end", leadership.lost()).await;
    assert_eq!(lost.reason(), LostReason::GivenUp);
    assert!(
        lost.to_string().ends_with("is lost: it was given up"),
        "{lost}"
    );
    let refused = leadership.while_held(async { panic!("not polled") }).await;
    assert_eq!(refused.unwrap_err().reason(), LostReason::GivenUp);
    let next = leads(&second).await;
    assert!(next.fencing_token() > leadership.fencing_token());
    assert_eq!(first.state(), LeadershipState::Closed);
    let error = within("the answer", first.leadership()).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.path()),
        (Some(ErrorKind::Closed), PATH),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("has left its election: start another"),
        "{error}"
    );
    within("the same again", first.close()).await.unwrap();

    // The drop of the last handle ends the leadership.
    let third = latch(&clients[0], "first");
    queued(&server, 2).await;
    let handle = second.clone();
    drop(second);
    assert!(handle.has_leadership());
    drop(handle);
    let last = leads(&third).await;
    assert!(last.fencing_token() > next.fencing_token());
    assert_eq!(
        within("the end", next.lost()).await.reason(),
        LostReason::GivenUp
    );
    drop(third);
    empty(&server).await;
}

/// A latch that is dropped, in any state, leaves no node, and does not keep its client open.
#[tokio::test]
async fn dropped_latch_leaves_nothing() {
    let server = start();
    let (clients, [first, second], leadership) = pair(&server).await;
    drop(second);
    until(&server, "the end of the follower", |view| {
        view.children(PATH).len() == 1
    })
    .await;
    drop((first, leadership, clients));
    until(&server, "the end of both sessions", |view| {
        view.sessions().is_empty()
    })
    .await;
    assert_eq!(queue(&server), [""; 0]);

    // The create has not been carried out, so the servers do not know the participant.
    let client = connect(&server).await;
    let gate = server.hold_request(Match::op(Op::Create));
    let early = latch(&client, "early");
    within("the create", gate.wait_hit()).await;
    drop(early);
    gate.release();
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [""; 0]);
}

/// A handle of an ended term keeps no node and no session on the servers.
// Shows: leaders-work
#[tokio::test]
async fn ended_leadership_keeps_no_session() {
    let (server, [client]) = with_clients(start(), connect).await;
    let latch = latch(&client, "a");
    let leadership = leads(&latch).await;
    drop((latch, client));
    until(&server, "the end of the session", |view| {
        view.sessions().is_empty()
    })
    .await;
    assert!(!leadership.is_held());
    let write = within(
        "the refusal",
        leadership.transaction().create("/data", b"").commit(),
    )
    .await;
    assert!(matches!(write, Err(TransactionError::Lost(_))), "{write:?}");
    assert!(
        within("the refusal", leadership.get_data("/data"))
            .await
            .is_err()
    );
    within("the loss", leadership.lost()).await;
}

/// The work has ended by the time the next participant is granted the lock: until the work is
/// dropped, the node stays.
// Shows: leaders-work
#[tokio::test]
async fn work_is_dropped_before_node_deletion() {
    for is_closed in [true, false] {
        let server = start();
        let (clients, [first, second], leadership) = pair(&server).await;
        let barrier = Barrier::new(&clients[0]).await;
        let (work, dropped) = endless();
        let working = pending(leadership.while_held(work));
        let mut states = first.watch_state();
        let closing = tokio::spawn(async move {
            if is_closed {
                first.close().await.unwrap();
            }
        });
        let left = states.wait_for(|state| *state == LeadershipState::Closed);
        within("the end of the term", left).await.unwrap();
        barrier.pass().await;
        assert_eq!(
            server.counters().requests(Op::Delete),
            0,
            "closed: {is_closed}"
        );
        assert!(!second.has_leadership() && !dropped.load(Ordering::SeqCst) && working.is_woken());
        let ended = within("the end of the work", working).await;
        assert_eq!(ended.unwrap_err().reason(), LostReason::GivenUp);
        assert!(dropped.load(Ordering::SeqCst));
        leads(&second).await;
        within("the close", closing).await.unwrap();
    }
}

/// If the task of the work does not poll it, the work keeps the leadership for at most the session
/// timeout.
// Shows: leaders-work
#[tokio::test]
async fn unpolled_work_keeps_no_leadership() {
    let (server, clients) = with_clients(start_impatient(), impatient).await;
    let (_clients, [first, second], leadership) = pair_of(&server, clients).await;
    let (work, dropped) = endless();
    let stuck = pending(leadership.while_held(work));
    within("the close", first.close()).await.unwrap();
    leads(&second).await;
    assert!(!dropped.load(Ordering::SeqCst), "it was not polled");
    assert_eq!(
        within("the end", stuck).await.unwrap_err().reason(),
        LostReason::GivenUp
    );
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn state_follows_the_leadership() {
    let (server, [client]) = with_clients(start_impatient(), impatient).await;
    let latch = latch(&client, "a");
    let leader = |state| matches!(state, LeadershipState::Leader(_));
    let LeadershipState::Leader(term) = until_state(&latch, leader).await else {
        panic!()
    };
    let id = session(&client);
    // The session must not expire, so that the client comes back.
    server.freeze_expiry(true);
    server.stall(id, Direction::Both);
    // The state changes at once, not when the silence is noticed, so a caller can see it before the
    // loss.
    assert!(server.cut(id, Cut::Reset));
    assert_eq!(
        until_state(&latch, |state| !leader(state)).await,
        LeadershipState::Suspended(term),
        "before it is lost"
    );
    until_state(&latch, |state| state == LeadershipState::Follower).await;
    assert!(!latch.has_leadership());
    server.resume(id);
    let LeadershipState::Leader(next) = until_state(&latch, leader).await else {
        panic!()
    };
    assert!(next > term, "another term, with another node");
    within("the close", client.close()).await.unwrap();
    until_state(&latch, |state| state == LeadershipState::Closed).await;
    let error = within("the answer", latch.leadership()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
    // There is no leadership left to give up.
    within("the close", latch.close()).await.unwrap();
    let other = selector_at(&client, "/scheduler/other");
    let error = within("the answer", other.lead(async |_| ()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
}

/// The call needs no tokio runtime.
#[test]
fn any_executor_waits_for_a_leadership() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = start();
    let client = runtime.block_on(connect(&server));
    let latch = latch(&client, "a");
    let leadership = block_on(latch.leadership()).unwrap();
    assert_eq!(block_on(leadership.while_held(async { 42 })).unwrap(), 42);
    assert_eq!(block_on(latch.participants()).unwrap().len(), 1);
    block_on(latch.close()).unwrap();
    assert_eq!(
        block_on(selector(&connect_blocking(&runtime, &server)).lead(async |_| 7)).unwrap(),
        7
    );
}

fn connect_blocking(runtime: &tokio::runtime::Runtime, server: &Server) -> Client {
    runtime.block_on(connect(server))
}

// Regressions of other implementations.

/// CURATOR-498: a latch mistook the node of its dying session for its own.
#[tokio::test]
async fn curator_498_ignores_foreign_node() {
    let (server, [client, dying]) = with_clients(start(), connect).await;
    let create = Match::op(Op::Create).session(session(&client));
    let lost = server.drop_request(create.clone(), Loss::Close);
    let again = server.hold_request(create.nth(1));
    let latch = latch(&client, "a");
    within("the repetition", again.wait_hit()).await;
    let mode = CreateMode::EphemeralSequential;
    let theirs = server
        .create_as(&lost.hits()[0].path, "a", mode, session(&dying))
        .unwrap();
    again.release();
    let node = theirs.clone();
    until(&server, "the wait for it", move |view| {
        view.watches_on(&node).len() == 1
    })
    .await;
    assert!(!latch.has_leadership());
    server.expire_session(session(&dying));
    let leadership = leads(&latch).await;
    assert_eq!(
        server.node(&leadership.node()).unwrap().ephemeral_owner,
        session(&client)
    );
    assert_eq!(queue(&server), [leadership.node().as_str()]);
}

/// CURATOR-62: a participant that was interrupted while it joined left a node, and the election
/// stalled.
#[tokio::test]
async fn curator_62_cancelled_participant_leaves_nothing() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    for is_lost in [false, true] {
        let create = Match::op(Op::Create).session(session(&client));
        let (task, _) = if is_lost {
            let lost = server.drop_reply(create, Loss::Close);
            let (task, seen) = leader(&selector(&client));
            within("the create", lost.wait_hit()).await;
            (task, seen)
        } else {
            let gate = server.hold_reply(create);
            let (task, seen) = leader(&selector(&client));
            within("the create", gate.wait_hit()).await;
            gate.release();
            (task, seen)
        };
        task.abort();
        let _ = within("the cancellation", task).await;
        within("the other's term", selector(&other).lead(async |_| ()))
            .await
            .unwrap();
        client.flush(SOON).await.unwrap();
        empty(&server).await;
    }
}

/// The error names the closed latch as the reason, not a deletion by another process.
#[tokio::test]
async fn ended_leadership_says_why() {
    let (server, [client]) = with_clients(start(), connect).await;
    let latch = latch(&client, "1");
    let leadership = leads(&latch).await;
    let (_, version) = leadership.get_data(PATH).await.unwrap().unwrap();
    leadership
        .transaction()
        .set_data(PATH, "plan", version)
        .commit()
        .await
        .unwrap();
    assert_eq!(leadership.get_data(PATH).await.unwrap().unwrap().0, b"plan");
    // The request is under way when the leadership is given up, and is carried out after the node
    // is gone.
    let gate = server.hold_request(Match::op(Op::Multi).session(session(&client)));
    let write = pending(
        leadership
            .transaction()
            .set_data(PATH, "late", None)
            .commit(),
    );
    within("the write", gate.wait_hit()).await;
    server.delete(&leadership.node()).unwrap();
    let close = pending(latch.close());
    assert_eq!(
        within("the end", leadership.lost()).await.reason(),
        LostReason::GivenUp
    );
    gate.release();
    let given_up = |error| match error {
        TransactionError::Lost(lost) => assert_eq!(lost.reason(), LostReason::GivenUp),
        error => panic!("{error}"),
    };
    given_up(within("the answer", write).await.unwrap_err());
    let _ = within("the close", close).await;
    given_up(
        leadership
            .transaction()
            .check(PATH, None)
            .commit()
            .await
            .unwrap_err(),
    );
    match leadership.get_data(PATH).await.unwrap_err() {
        TransactionError::Lost(lost) => assert_eq!(lost.reason(), LostReason::GivenUp),
        error => panic!("{error}"),
    }
    assert_eq!(server.node(PATH).unwrap().data, b"plan");
}

/// CURATOR-202: a leader that resumed a session after giving it up for lost never deleted its node,
/// and no participant led.
#[tokio::test]
async fn curator_202_lost_term_deletes_node() {
    let (server, clients) = with_clients(start_impatient(), impatient).await;
    let ([client, _other], [first, second], leadership) = pair_of(&server, clients).await;
    let id = session(&client);
    server.freeze_expiry(true);
    server.stall(id, Direction::Both);
    assert_eq!(
        within("the loss", leadership.lost()).await.reason(),
        LostReason::LeaseExpired
    );
    assert!(!first.has_leadership() && server.exists(&leadership.node()));
    server.resume(id);
    let next = leads(&second).await;
    assert!(next.fencing_token() > leadership.fencing_token());
    assert!(!server.exists(&leadership.node()));
    // The former leader is back in the election, at the end of the queue.
    queued(&server, 2).await;
    assert_eq!(queue(&server)[0], next.node());
}

/// CURATOR-171, -49: a leader whose node was deleted by hand was not notified, and another
/// participant led beside it.
#[tokio::test]
async fn curator_171_deleted_leader_is_notified() {
    let (server, clients) = with_clients(start_impatient(), impatient).await;
    let (_clients, [first, second], leadership) = pair_of(&server, clients).await;
    server.delete(&leadership.node()).unwrap();
    let next = leads(&second).await;
    assert_eq!(
        within("the loss", leadership.lost()).await.reason(),
        LostReason::NodeDeleted
    );
    assert!(next.fencing_token() > leadership.fencing_token() && !first.has_leadership());
    // The servers refuse the transaction whether or not the holder has been notified.
    assert!(
        leadership
            .transaction()
            .create("/scheduler/late", "")
            .commit()
            .await
            .is_err()
    );
    next.transaction()
        .create("/scheduler/mine", "")
        .commit()
        .await
        .unwrap();
    queued(&server, 2).await;
}

/// CURATOR-644, -645: two reconnected participants kept deleting and creating their nodes.
// Shows: election
#[tokio::test]
async fn curator_644_a_reconnect_changes_nothing() {
    let server = start();
    let (clients, [first, second], leadership) = pair(&server).await;
    server.reset_counters();
    for _ in 0..3 {
        for client in &clients {
            assert!(server.cut(session(client), Cut::Reset));
        }
        let ids = [session(&clients[0]), session(&clients[1])];
        until(&server, "both connections", move |view| {
            view.sessions()
                .iter()
                .filter(|session| ids.contains(&session.id) && session.connected)
                .count()
                == 2
                && view.watches() == 1
        })
        .await;
        for latch in [&first, &second] {
            assert_eq!(
                within("a look", latch.participants()).await.unwrap().len(),
                2
            );
        }
    }
    assert_eq!(
        server.counters().requests(Op::Create) + server.counters().requests(Op::Delete),
        0
    );
    assert!(first.has_leadership() && leadership.is_held() && !second.has_leadership());
    let _ = second;

    // The sessions of both end at once: each participant has one node, and one leads.
    server.reset_counters();
    for client in &clients {
        assert!(server.expire_session(session(client)));
    }
    queued(&server, 2).await;
    assert_eq!(server.counters().requests(Op::Create), 2);
    within("one of them", async {
        tokio::select! {
            _ = first.leadership() => {}
            _ = second.leadership() => {}
        }
    })
    .await;
    assert!(first.has_leadership() != second.has_leadership());
    for client in &clients {
        // `pass` returns once the client has done all its background work.
        Barrier::at(client, &format!("/barrier-{}", session(client)))
            .await
            .pass()
            .await;
    }
    assert_eq!(server.children(PATH).len(), 2, "and it stays like that");
}

/// CURATOR-653: a follower that joined again became the leader because of an outdated read, with a
/// node that had already been deleted.
// Shows: election
#[tokio::test]
async fn curator_653_stale_list_elects_nobody() {
    let server = start();
    let (clients, [first, second], leadership) = pair(&server).await;
    let own = queue(&server)[1].clone();
    // The list that follows the leader's end is on its way when the follower's own node goes.
    let gate = server.hold_request(Match::op(Op::GetChildren).session(session(&clients[1])));
    first.close().await.unwrap();
    within("the list", gate.wait_hit()).await;
    server.delete(&own).unwrap();
    gate.release();
    let next = leads(&second).await;
    assert!(next.node() != own.as_str() && next.fencing_token() > leadership.fencing_token());
    assert_eq!(queue(&server), [next.node().as_str()]);
}

/// CURATOR-724: a participant whose directory had vanished was stuck.
#[tokio::test]
async fn curator_724_election_survives_lost_directory() {
    let (server, clients) = with_clients(start_impatient(), impatient).await;
    let (_clients, [first, second], leadership) = pair_of(&server, clients).await;
    // The follower's node goes first, so that the end of the leader does not grant it the lock.
    for node in queue(&server).iter().rev() {
        server.delete(node).unwrap();
    }
    // The deletion fails if a participant has already created its node again.
    let _ = server.delete(PATH);
    within("the loss", leadership.lost()).await;
    queued(&server, 2).await;
    let next = within("the next leader", async {
        tokio::select! {
            next = first.leadership() => next,
            next = second.leadership() => next,
        }
    })
    .await
    .unwrap();
    assert!(next.fencing_token() > leadership.fencing_token());
    assert_eq!(queue(&server)[0], next.node());
}

/// CURATOR-518: after two interrupts in a row the selector never joined again.
#[tokio::test]
async fn curator_518_interrupts_end_no_election() {
    let (server, [client]) = with_clients(start(), connect).await;
    let selector = selector(&client);
    assert!(!selector.interrupt_leadership(), "it does not lead");
    let (task, mut seen) = leader(&selector);
    terms(&mut seen, 1).await;
    assert!(selector.has_leadership());
    for round in 1..4 {
        assert!(selector.interrupt_leadership());
        // The term has ended, or its end is not noticed yet; the next term is not affected.
        selector.interrupt_leadership();
        terms(&mut seen, round + 1).await;
    }
    let terms = seen.borrow().clone();
    assert!(terms.is_sorted_by(|a, b| a < b), "{terms:?}");
    task.abort();
    let _ = within("the end", task).await;
    assert!(!selector.has_leadership());
    empty(&server).await;
}

/// CURATOR-671: a selector that had just been the leader could not join again.
#[tokio::test]
async fn curator_671_participant_rejoins_at_once() {
    let (server, [client]) = with_clients(start(), connect).await;
    let selector = selector(&client);
    let mut last = FencingToken::from_parts(0, 0);
    for _ in 0..20 {
        let term = within("the term", selector.lead(async |term| term))
            .await
            .unwrap();
        assert!(term > last && !selector.has_leadership());
        last = term;
    }
    empty(&server).await;
}

// Calls to `lead`.

/// The work of a lost term is dropped before another participant leads, and restarted in the next
/// term.
// Shows: leaders-work
#[tokio::test]
async fn lost_work_restarts_in_next_term() {
    let (server, [client, other]) = with_clients(start_impatient(), impatient).await;
    let (begun, mut seen) = watch::channel(0);
    let dropped = Arc::new(AtomicBool::new(false));
    let (was_dropped, selector_of_first) = (Arc::clone(&dropped), selector(&client));
    let first = tokio::spawn(async move {
        let lead = selector_of_first.lead(|_| {
            begun.send_modify(|begun| *begun += 1);
            let (times, sentinel) = (*begun.borrow(), Sentinel(Arc::clone(&was_dropped)));
            async move {
                let _sentinel = sentinel;
                if times == 1 {
                    std::future::pending::<()>().await;
                }
                times
            }
        });
        lead.await.unwrap()
    });
    within("the work", seen.wait_for(|begun| *begun == 1))
        .await
        .unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let second = tokio::spawn(async move {
        let ended = Mutex::new(Some(ended));
        let work = async |_| {
            assert!(dropped.load(Ordering::SeqCst), "two at once");
            let ended = ended.lock().unwrap().take();
            ended.unwrap().await.unwrap();
        };
        selector(&other).lead(work).await.unwrap();
    });
    queued(&server, 2).await;
    // The link stays silent until the servers grant the leadership to another participant.
    server.stall(session(&client), Direction::Both);
    let node = queue(&server)[0].clone();
    until(&server, "the end of its session", move |view| {
        !view.exists(&node)
    })
    .await;
    end.send(()).unwrap();
    within("the second's work", second).await.unwrap();
    assert_eq!(within("the first's work", first).await.unwrap(), 2);
    empty(&server).await;
}

#[tokio::test]
async fn dropped_lead_leaves_the_election() {
    let (server, [client, other]) = with_clients(start(), connect).await;
    let selector = selector(&client);
    let (work, dropped) = endless();
    let mut work = Some(work);
    let mut lead = Box::pin(selector.lead(|_| work.take().unwrap()));
    assert!(task::spawn(&mut lead).poll().is_pending());
    within("the term", async {
        tokio::select! {
            _ = &mut lead => panic!("it has no end"),
            () = async { while !selector.has_leadership() { tokio::task::yield_now().await } } => {}
        }
    })
    .await;
    let gate = server.hold_request(Match::op(Op::Delete));
    drop(lead);
    assert!(dropped.load(Ordering::SeqCst) && !selector.has_leadership());
    gate.release();
    within(
        "the other's term",
        self::selector(&other).lead(async |_| ()),
    )
    .await
    .unwrap();
    empty(&server).await;
}

// Faults while joining.

/// A participant joins again after an outage of any length, whatever the retry policy of a single
/// call is.
// Shows: election
#[tokio::test]
async fn participant_outlasts_long_outage() {
    let server = start_impatient();
    let builder = Client::builder()
        .retry_policy(RetryPolicy::n_times(0, Duration::ZERO))
        .connect_timeout(Duration::from_millis(200))
        .session_timeout(T);
    let client = connect_as(builder, &server).await;
    let latch = latch(&client, "a");
    let leadership = leads(&latch).await;
    let other = selector_at(&client, "/scheduler/other");
    let (task, mut seen) = leader(&other);
    terms(&mut seen, 1).await;
    server.stop();
    within("the loss", leadership.lost()).await;
    // A single call gives up during the outage.
    let mutex = InterProcessMutex::new(&client, "/locks/other").unwrap();
    let error = within("the end of a call", mutex.lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    assert_eq!(latch.state(), LeadershipState::Follower);
    let waiting = pending(latch.leadership());
    server.restart().unwrap();
    let next = within("the next term", waiting).await.unwrap();
    assert!(next.fencing_token() > leadership.fencing_token());
    terms(&mut seen, 2).await;
    task.abort();
}

fn selector_at(client: &Client, path: &str) -> LeaderSelector {
    LeaderSelector::new(client, path).unwrap()
}

/// A permanent failure is reported, and ends the participation.
// Shows: election
#[tokio::test]
async fn refusal_ends_the_participation() {
    let server = start();
    let client = connect_with(&server, eager()).await;
    let _refused = server.fail(Match::op(Op::Create).always(), NO_AUTH);
    let latch = latch(&client, "a");
    let error = within("the refusal", latch.leadership()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    assert_eq!(latch.state(), LeadershipState::Closed);
    within("the close", latch.close()).await.unwrap();
    let error = within(
        "the refusal",
        selector_at(&client, "/scheduler/other").lead(async |_| ()),
    )
    .await;
    assert_eq!(error.unwrap_err().kind(), Some(ErrorKind::NoAuth));
}

// Watches of the leader without participation.

async fn next(leaders: &mut LeaderWatch) -> Option<String> {
    within("another leader", leaders.changed())
        .await
        .unwrap()
        .map(|leader| leader.id().to_owned())
}

// Shows: leader-watch
#[tokio::test]
async fn watch_follows_leaders_without_taking_part() {
    let server = Server::start().unwrap();
    let watcher = connect(&server).await;
    let mut leaders = LeaderLatch::builder(&watcher, PATH).watch_leader().unwrap();
    assert_eq!(next(&mut leaders).await, None, "without a directory");
    let (_clients, [first, second], _) = pair(&server).await;
    assert_eq!(next(&mut leaders).await.as_deref(), Some("first"));
    assert_eq!(queue(&server).len(), 2, "the watcher has no node");

    // A further participant changes nothing.
    let mut waiting = pending(leaders.changed());
    let third = latch(&connect(&server).await, "third");
    second.close().await.unwrap();
    until(&server, "the others", |view| {
        let nodes = view.children(PATH);
        nodes.len() == 2 && nodes.iter().any(|node| node.ends_with("0000000002"))
    })
    .await;
    Barrier::new(&watcher).await.pass().await;
    assert!(waiting.poll().is_pending());
    drop(waiting);

    first.close().await.unwrap();
    leads(&third).await;
    assert_eq!(
        next(&mut leaders).await.as_deref(),
        Some("third"),
        "after a call that was dropped"
    );
    drop(third);
    assert_eq!(next(&mut leaders).await, None);
}

// Shows: leader-watch
#[tokio::test]
async fn leader_watch_outlives_sessions() {
    let server = start();
    let (clients, [first, second], _) = pair(&server).await;
    // The client also takes part, with other options.
    let mut leaders = LeaderLatch::builder(&clients[1], PATH)
        .watch_leader()
        .unwrap();
    assert_eq!(next(&mut leaders).await.as_deref(), Some("first"));
    drop(second);
    queued(&server, 1).await;
    let waiting = pending(leaders.changed());
    until(&server, "the watch", |view| {
        !view.watches_on(PATH).is_empty()
    })
    .await;
    Barrier::new(&clients[1]).await.pass().await;
    server.expire_session(session(&clients[1]));
    drop(first);
    let leader = within("another leader", waiting).await.unwrap();
    assert_eq!(leader, None);
    clients[1].close().await.unwrap();
    assert_eq!(
        leaders.changed().await.unwrap_err().kind(),
        ErrorKind::Closed
    );
}

// Shows: leader-watch
#[tokio::test]
async fn leader_watch_knows_both_recipes() {
    let (server, [client]) = with_clients(start(), connect).await;
    let mut leaders = LeaderSelector::builder(&client, PATH)
        .watch_leader()
        .unwrap();
    let selector = LeaderSelector::builder(&client, PATH)
        .id("web-3")
        .build()
        .unwrap();
    let leading =
        tokio::spawn(async move { selector.lead(|_| std::future::pending::<()>()).await });
    queued(&server, 1).await;
    assert_eq!(next(&mut leaders).await.as_deref(), Some("web-3"));
    leading.abort();
    assert_eq!(next(&mut leaders).await, None);
    LeaderLatch::builder(&client, "no/slash")
        .watch_leader()
        .unwrap_err();
    let refused = LeaderLatch::builder(&client, PATH)
        .acl(Vec::new())
        .watch_leader()
        .unwrap_err();
    assert!(
        matches!(refused, BuildError::InvalidOption { option: "acl", .. }),
        "{refused}"
    );
}
