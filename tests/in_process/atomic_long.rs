//! Counters: the cost of a change, its outcome when answers are lost, sessions end or callers
//! leave, and contention. Real servers are used in `suite`, Java's processes in `interop`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use test_support::in_process;
use test_support::prelude::*;

const PATH: &str = "/shop/orders";

/// A server with a counter.
fn start_at(value: i64) -> Server {
    let server = start_empty();
    server.create(PATH, value.to_be_bytes()).unwrap();
    server
}

fn counter(client: &Client) -> DistributedAtomicLong {
    DistributedAtomicLong::new(client, PATH).unwrap()
}

fn value(server: &Server) -> i64 {
    server
        .node(PATH)
        .map_or(0, |node| i64::from_be_bytes(node.data.try_into().unwrap()))
}

/// The requests of a session since the last reset.
fn requests(server: &Server, client: &Client) -> BTreeMap<String, u64> {
    let (counters, id) = (server.counters(), session(client));
    let kinds = [
        Op::GetData,
        Op::SetData,
        Op::Create,
        Op::GetChildren,
        Op::Delete,
        Op::Sync,
        Op::Exists,
    ];
    let made: BTreeMap<String, u64> = kinds
        .into_iter()
        .map(|op| (format!("{op:?}"), counters.requests_of(id, op)))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(
        made.values().sum::<u64>(),
        counters.total_requests_of(id),
        "some other request was made"
    );
    made
}

fn costs<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
    of.into_iter()
        .map(|(op, count)| (op.to_owned(), count))
        .collect()
}

#[tokio::test]
async fn free_change_costs_two_requests() {
    let (server, [client]) = with_clients(start_at(0), calm).await;
    let counter = counter(&client);
    let free = costs([("GetData", 1), ("SetData", 1)]);
    for expected in 1..4 {
        server.reset_counters();
        assert_eq!(
            within("the change", counter.increment()).await.unwrap(),
            expected
        );
        assert_eq!(requests(&server, &client), free);
    }
    server.reset_counters();
    assert_eq!(counter.next_id().await.unwrap(), 4);
    counter.set(9).await.unwrap();
    assert!(counter.compare_and_set(9, 7).await.unwrap());
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 3), ("SetData", 3)])
    );
    server.reset_counters();
    assert_eq!(counter.get().await.unwrap(), 7);
    assert_eq!(requests(&server, &client), costs([("GetData", 1)]));
    server.reset_counters();
    assert!(
        !counter.compare_and_set(9, 8).await.unwrap(),
        "expected another read before the comparison fails"
    );
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 2), ("Sync", 1)])
    );
    server.reset_counters();
    assert!(!counter.initialize(3).await.unwrap());
    assert_eq!(requests(&server, &client), costs([("Create", 1)]));
    assert_eq!(server.watches(), 0);
}

// Shows: counter-layout
#[tokio::test]
async fn only_first_change_creates_counter() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    let counter = counter(&client);
    assert_eq!(counter.get().await.unwrap(), 0);
    assert!(!server.exists("/shop"), "a look creates nothing");
    server.reset_counters();
    assert_eq!(within("the change", counter.add(5)).await.unwrap(), 5);
    // The requests are the failed create, that of the directory, and that of the node.
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 1), ("Create", 3), ("SetData", 1)])
    );
    let node = server.node(PATH).unwrap();
    assert_eq!(
        (node.kind, node.data),
        (NodeKind::Persistent, 5_i64.to_be_bytes().to_vec())
    );
    assert_eq!(server.node("/shop").unwrap().kind, NodeKind::Container);
    server.reset_counters();
    assert_eq!(counter.add(5).await.unwrap(), 10);
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 1), ("SetData", 1)])
    );
}

#[tokio::test]
async fn block_costs_as_one_number() {
    let (server, [client]) = with_clients(start_at(0), calm).await;
    let ids = counter(&client).cached(100).unwrap();
    server.reset_counters();
    for expected in 1..=100 {
        assert_eq!(within("an id", ids.next_id()).await.unwrap(), expected);
    }
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 1), ("SetData", 1)])
    );
    assert_eq!(ids.next_id().await.unwrap(), 101);
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 2), ("SetData", 2)])
    );
    assert_eq!(value(&server), 200);
}

/// Loses the first request of this kind to the counter's node, or the reply to it.
fn lose(server: &Server, op: Op, applied: bool) {
    in_process::lose(server, Match::op(op).path(PATH), applied, Loss::Close);
}

// Shows: counter-writes
#[tokio::test]
async fn unarrived_write_is_made_once() {
    for op in [Op::GetData, Op::SetData] {
        let (server, [client]) = with_clients(start_at(10), calm).await;
        let counter = counter(&client);
        lose(&server, op, false);
        assert_eq!(
            within("the sum", counter.add(5)).await.unwrap(),
            15,
            "{op:?}"
        );
        lose(&server, op, false);
        assert_eq!(
            within("the id", counter.next_id()).await.unwrap(),
            16,
            "{op:?}"
        );
        lose(&server, op, false);
        within("the set", counter.set(3)).await.unwrap();
        lose(&server, op, false);
        assert!(
            within("the swap", counter.compare_and_set(3, 4))
                .await
                .unwrap()
        );
        assert_eq!(value(&server), 4);
    }
}

/// The answer was lost, and the repeated write finds the next version, which may come from another
/// writer.
// Shows: counter-writes
#[tokio::test]
async fn unanswered_sum_is_unknown() {
    let (server, [client]) = with_clients(start_at(10), calm).await;
    let counter = counter(&client);
    lose(&server, Op::SetData, true);
    let error = within("the end", counter.add(5)).await.unwrap_err();
    assert!(matches!(error, AtomicLongError::Unknown { .. }), "{error}");
    assert!(
        !error.is_retryable() && error.to_string().contains(PATH),
        "{error}"
    );
    assert_eq!(value(&server), 15, "it was, in fact");
    lose(&server, Op::SetData, true);
    let error = within("the end", counter.compare_and_set(15, 20))
        .await
        .unwrap_err();
    assert!(matches!(error, AtomicLongError::Unknown { .. }), "{error}");
    assert_eq!(value(&server), 20);
}

// Shows: counter-ids
#[tokio::test]
async fn unanswered_id_is_a_gap() {
    let (server, [client]) = with_clients(start_at(10), calm).await;
    lose(&server, Op::SetData, true);
    assert_eq!(
        within("the id", counter(&client).next_id()).await.unwrap(),
        12
    );
    assert_eq!(value(&server), 12);
    let ids = counter(&client).cached(10).unwrap();
    lose(&server, Op::SetData, true);
    assert_eq!(
        within("the id", ids.next_id()).await.unwrap(),
        23,
        "13 to 22 may be another's"
    );
}

/// After a lost answer, `set` succeeds if the node has the value, whichever writer wrote it.
// Shows: counter-writes
#[tokio::test]
async fn unanswered_set_is_recognised() {
    let (server, [client]) = with_clients(start_at(10), calm).await;
    lose(&server, Op::SetData, true);
    within("the set", counter(&client).set(3)).await.unwrap();
    let node = server.node(PATH).unwrap();
    assert_eq!((value(&server), node.version), (3, 1), "written once");
}

// Shows: counter-writes
#[tokio::test]
async fn unanswered_creation_of_same_value_unknown() {
    let server = start_empty();
    server.create("/shop", "").unwrap();
    let client = calm(&server).await;
    let counter = counter(&client);
    lose(&server, Op::Create, false);
    assert!(
        within("the node", counter.initialize(7)).await.unwrap(),
        "it never arrived"
    );
    server.delete(PATH).unwrap();
    lose(&server, Op::Create, true);
    let error = within("the end", counter.initialize(7)).await.unwrap_err();
    assert!(matches!(error, AtomicLongError::Unknown { .. }), "{error}");
    assert_eq!(value(&server), 7);
    // A deletion before another change makes the creator irrelevant.
    server.delete(PATH).unwrap();
    lose(&server, Op::Create, true);
    assert_eq!(within("the sum", counter.add(3)).await.unwrap(), 3);
}

/// Holds the repetition of a write that never arrived, while others write. To the client, a late
/// commit of the first write would look the same.
fn written_in_between(server: &Server, others: &[i64]) -> impl Future<Output = ()> {
    // The fault is added at the call, before the write is sent.
    lose(server, Op::SetData, false);
    let gate = server.hold_request(Match::op(Op::SetData).path(PATH));
    async move {
        within("the repetition", gate.wait_hit()).await;
        for value in others {
            server.set_data(PATH, value.to_be_bytes()).unwrap();
        }
        gate.release();
    }
}

// Shows: counter-writes
#[tokio::test]
async fn concurrent_writes_decide_the_outcome() {
    for (others, sum, id) in [
        // The first write has come through late, or another writer wrote the same value.
        (&[11][..], None, 12),
        // Another write came first, so the first write will never be committed.
        (&[20], Some(21), 21),
        // The outcome can no longer be determined.
        (&[11, 20], None, 21),
        (&[20, 11], None, 12),
    ] {
        let (server, [client]) = with_clients(start_at(10), calm).await;
        let counter = counter(&client);
        let (added, ()) = within("the sum", async {
            tokio::join!(counter.add(1), written_in_between(&server, others))
        })
        .await;
        match (added, sum) {
            (Ok(added), Some(sum)) => assert_eq!((added, value(&server)), (sum, sum), "{others:?}"),
            (Err(AtomicLongError::Unknown { .. }), None) => {
                assert_eq!(
                    Some(&value(&server)),
                    others.last(),
                    "nothing more was written"
                );
            }
            (added, _) => panic!("{others:?}: {added:?}"),
        }

        server.set_data(PATH, 10_i64.to_be_bytes()).unwrap();
        let (next, ()) = within("the id", async {
            tokio::join!(counter.next_id(), written_in_between(&server, others))
        })
        .await;
        assert_eq!(
            next.unwrap(),
            id,
            "{others:?}: not the number that may be another's"
        );
    }
}

/// Ends the session of a client whose write is held, and lets the write go in the next one.
async fn expire_during(server: &Server, client: &Client, gate: Gate) {
    within("the write", gate.wait_hit()).await;
    let id = session(client);
    assert!(server.expire_session(id));
    let next = move |view: View<'_>| view.sessions().iter().any(|session| session.id != id);
    until(server, "the next session", next).await;
    gate.release();
}

/// The session ends while the write is unanswered; the same write is sent again in the next one.
// Shows: counter-writes
#[tokio::test]
async fn session_end_repeats_the_write() {
    for applied in [false, true] {
        let (server, [client]) = with_clients(start_at(10), connect).await;
        let counter = counter(&client);
        let gate = hold_back(&server, Match::op(Op::SetData).path(PATH), applied);
        let expire = expire_during(&server, &client, gate);
        let (id, ()) = within("the id", async { tokio::join!(counter.next_id(), expire) }).await;
        let expected = if applied { 12 } else { 11 };
        assert_eq!(
            (id.unwrap(), value(&server)),
            (expected, expected),
            "applied: {applied}"
        );

        server.set_data(PATH, 10_i64.to_be_bytes()).unwrap();
        let gate = hold_back(&server, Match::op(Op::SetData).path(PATH), applied);
        let expire = expire_during(&server, &client, gate);
        let (sum, ()) = within("the sum", async { tokio::join!(counter.add(5), expire) }).await;
        match sum {
            Ok(sum) => assert!(!applied && sum == 15, "{sum}"),
            Err(AtomicLongError::Unknown { .. }) => assert!(applied),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(value(&server), 15, "made once");
    }
}

/// The point that a call has reached when its caller leaves, or the client is closed.
#[derive(Clone, Copy, Debug)]
enum Point {
    Reading,
    CreateArrived,
    CreateApplied,
    WriteArrived,
    WriteApplied,
    /// The call reads again, after other writers came first.
    ReadingAgain,
}

impl Point {
    const ALL: [Self; 6] = [
        Self::Reading,
        Self::CreateArrived,
        Self::CreateApplied,
        Self::WriteArrived,
        Self::WriteApplied,
        Self::ReadingAgain,
    ];

    fn gate(self, server: &Server) -> Gate {
        let op = |op| Match::op(op).path(PATH);
        match self {
            Self::Reading => server.hold_request(op(Op::GetData)),
            Self::CreateArrived => server.hold_request(op(Op::Create)),
            Self::CreateApplied => server.hold_reply(op(Op::Create)),
            Self::WriteArrived => server.hold_request(op(Op::SetData)),
            Self::WriteApplied => server.hold_reply(op(Op::SetData)),
            Self::ReadingAgain => {
                always_lose(server, 1);
                server.hold_request(op(Op::GetData).nth(1))
            }
        }
    }

    /// A server whose counter exists unless the call is to create it.
    fn start(self) -> Server {
        if !matches!(self, Self::CreateArrived | Self::CreateApplied) {
            return start_at(0);
        }
        let server = start_empty();
        server.create("/shop", "").unwrap();
        server
    }

    fn may_have_written(self) -> bool {
        matches!(self, Self::WriteArrived | Self::WriteApplied)
    }
}

const BAD_VERSION: i32 = -103;

/// Makes this many writes lose to other writers.
fn always_lose(server: &Server, times: usize) {
    server.fail(Match::op(Op::SetData).path(PATH).times(times), BAD_VERSION);
}

#[tokio::test]
async fn dropped_at_every_point() {
    for point in Point::ALL {
        let (server, [client]) = with_clients(point.start(), calm).await;
        let counter = counter(&client);
        let gate = point.gate(&server);
        let call = ByHand::new(counter.next_id()).start();
        within(&format!("{point:?}"), gate.wait_hit()).await;
        drop(call);
        gate.release();
        server.clear_faults();
        // The request that was sent may still be carried out, but no later one.
        let id = within("another id", counter.next_id()).await.unwrap();
        let most = if point.may_have_written() { 2 } else { 1 };
        assert!((1..=most).contains(&id), "{point:?}: {id}");
        assert_eq!(value(&server), id, "{point:?}");
        assert_eq!(server.watches(), 0, "{point:?}");
    }
}

#[tokio::test]
async fn closed_at_every_point() {
    for point in Point::ALL {
        for id in [true, false] {
            let (server, [client]) = with_clients(point.start(), calm).await;
            let counter = counter(&client);
            let gate = point.gate(&server);
            let call = tokio::spawn({
                let counter = counter.clone();
                async move {
                    if id {
                        counter.next_id().await
                    } else {
                        counter.add(1).await
                    }
                }
            });
            within(&format!("{point:?}"), gate.wait_hit()).await;
            let close = tokio::spawn({
                let client = client.clone();
                async move { client.close().await }
            });
            // The client leaves the session at once; the server confirms the close only after the
            // requests that it holds back.
            let left = async {
                while client.session_id().is_some() {
                    tokio::task::yield_now().await;
                }
            };
            within("the end of the session", left).await;
            gate.release();
            let error = within("the end", call).await.unwrap().unwrap_err();
            let unknown = point.may_have_written() && !id;
            match error {
                AtomicLongError::Unknown { .. } => assert!(unknown, "{point:?}"),
                error if error.kind() == Some(ErrorKind::Closed) => assert!(!unknown, "{point:?}"),
                error => panic!("{point:?}: {error}"),
            }
            within("the close", close).await.unwrap().unwrap();
            let error = within("the end", counter.get()).await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::Closed), "{error}");
        }
    }
}

#[tokio::test]
async fn missing_server_ends_by_policy() {
    let tick = Duration::from_millis(50);
    let server = Server::builder().tick(tick).start().unwrap();
    server.create(PATH, 10_i64.to_be_bytes()).unwrap();
    let builder = Client::builder()
        .session_timeout(tick * 4)
        .connect_timeout(tick * 4);
    let policy = RetryPolicy::n_times(1, Duration::from_millis(1));
    let client = connect_as(builder.retry_policy(policy), &server).await;
    let counter = counter(&client);
    server.stop();
    for error in [
        within("the end", counter.get()).await.unwrap_err(),
        within("the end", counter.add(1)).await.unwrap_err(),
        within("the end", counter.next_id()).await.unwrap_err(),
        within("the end", counter.initialize(1)).await.unwrap_err(),
    ] {
        // Only the last call may have a request on its way.
        let is_unanswered = error.kind() == Some(ErrorKind::Connection);
        let known = is_unanswered || matches!(error, AtomicLongError::Unknown { .. });
        assert!(
            known && std::error::Error::source(&error).is_some(),
            "{error}"
        );
    }
}

// Shows: counter-tries
#[tokio::test]
async fn overtaken_change_is_tried_again() {
    let (server, [client]) = with_clients(start_at(10), calm).await;
    let counter = counter(&client);
    server.reset_counters();
    always_lose(&server, 5);
    assert_eq!(within("the sum", counter.add(1)).await.unwrap(), 11);
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 6), ("SetData", 6)])
    );
}

// Shows: counter-layout
#[tokio::test]
async fn deleted_contended_counter_becomes_persistent() {
    let (server, [client]) = with_clients(start_at(10), calm).await;
    let counter = counter(&client);
    always_lose(&server, 5);
    let gate = server.hold_request(Match::op(Op::GetData).path(PATH).nth(5));
    let delete = async {
        within("the last try", gate.wait_hit()).await;
        server.delete(PATH).unwrap();
        gate.release();
    };
    let (sum, ()) = within("the sum", async { tokio::join!(counter.add(1), delete) }).await;
    assert_eq!(sum.unwrap(), 1);
    assert_eq!(server.node(PATH).unwrap().kind, NodeKind::Persistent);
}

// Shows: counter-layout
#[tokio::test]
async fn foreign_data_is_refused_unchanged() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    for (path, data) in [
        ("/three", &b"foo"[..]),
        ("/four", &[0; 4]),
        ("/nine", &[0; 9]),
    ] {
        server.create(path, data).unwrap();
        let counter = DistributedAtomicLong::new(&client, path).unwrap();
        let errors = [
            counter.get().await.unwrap_err(),
            counter.add(1).await.unwrap_err(),
            counter.next_id().await.unwrap_err(),
            counter.set(1).await.unwrap_err(),
            counter.compare_and_set(0, 1).await.unwrap_err(),
            counter.cached(5).unwrap().next_id().await.unwrap_err(),
        ];
        for error in errors {
            let AtomicLongError::NotACounter {
                path: named, bytes, ..
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!((&**named, *bytes), (path, data.len()));
            assert!(
                error.to_string().contains(path) && !error.is_retryable(),
                "{error}"
            );
        }
        assert!(!counter.initialize(1).await.unwrap());
        let node = server.node(path).unwrap();
        assert_eq!((&*node.data, node.version), (data, 0));
        assert_eq!(server.children(path), [""; 0]);
    }
    server.create("/empty", "").unwrap();
    let empty = DistributedAtomicLong::new(&client, "/empty").unwrap();
    assert_eq!(empty.get().await.unwrap(), 0);
    assert_eq!(empty.add(2).await.unwrap(), 2);
}

// Shows: counter-layout
#[tokio::test]
async fn refuses_nodes_servers_may_delete() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    server
        .create_as(
            "/ephemeral",
            5_i64.to_be_bytes(),
            CreateMode::Ephemeral,
            session(&client),
        )
        .unwrap();
    // The directories of locks and of other counters.
    let lock = InterProcessMutex::new(&client, "/locks/sku-42").unwrap();
    within("the lock", lock.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    within("the counter", counter(&client).next_id())
        .await
        .unwrap();
    for path in ["/ephemeral", "/locks/sku-42", "/locks", "/shop"] {
        let counter = DistributedAtomicLong::new(&client, path).unwrap();
        for error in [
            counter.get().await.unwrap_err(),
            counter.next_id().await.unwrap_err(),
        ] {
            assert!(
                matches!(error, AtomicLongError::NotPersistent { .. }),
                "{error}"
            );
            assert!(
                error.to_string().contains(path) && !error.is_retryable(),
                "{error}"
            );
        }
        assert_eq!(server.node(path).unwrap().version, 0);
    }
}

// Shows: counter-ids
#[tokio::test]
async fn overflow_writes_nothing() {
    let (server, [client]) = with_clients(start_at(i64::MAX - 2), calm).await;
    let counter = counter(&client);
    let ids = counter.cached(3).unwrap();
    for (error, delta) in [
        (counter.add(3).await.unwrap_err(), 3),
        (
            counter.add(i64::MAX).await.unwrap_err(),
            i128::from(i64::MAX),
        ),
        (
            counter.subtract(i64::MIN).await.unwrap_err(),
            -i128::from(i64::MIN),
        ),
        (ids.next_id().await.unwrap_err(), 3),
    ] {
        let AtomicLongError::Overflow {
            value,
            delta: asked,
            ..
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!((*value, *asked), (i64::MAX - 2, delta));
        assert!(
            error.to_string().contains(PATH) && !error.is_retryable(),
            "{error}"
        );
    }
    assert_eq!(server.node(PATH).unwrap().version, 0);
    assert_eq!(counter.add(2).await.unwrap(), i64::MAX);
    counter.next_id().await.unwrap_err();
    counter.set(i64::MAX - 1).await.unwrap();
    let one_by_one = counter.cached(1).unwrap();
    assert_eq!(one_by_one.next_id().await.unwrap(), i64::MAX);
    one_by_one.next_id().await.unwrap_err();
    counter.set(i64::MIN).await.unwrap();
    counter.decrement().await.unwrap_err();
    assert_eq!(counter.add(i64::MAX).await.unwrap(), -1);
    assert_eq!(
        counter.subtract(i64::MIN).await.unwrap(),
        i64::MAX,
        "the least number can be subtracted"
    );
}

#[tokio::test]
async fn bad_options_send_no_request() {
    let (server, [client]) = with_clients(start_empty(), calm).await;
    server.reset_counters();
    for path in ["", "/", "no/slash", "/zookeeper/quota", "/a//b"] {
        let error = DistributedAtomicLong::new(&client, path).unwrap_err();
        assert!(matches!(error, BuildError::InvalidPath(_)), "{error}");
    }
    let error = counter(&client).cached(0).unwrap_err();
    let BuildError::InvalidOption { path, option, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((&**path, *option), (PATH, "block"));
    let error = DistributedAtomicLong::builder(&client, PATH)
        .acl([])
        .build()
        .unwrap_err();
    assert!(
        matches!(error, BuildError::InvalidOption { option: "acl", .. }),
        "{error}"
    );
    assert_eq!(server.counters().total_requests(), 0);
}

#[tokio::test]
async fn permissions_and_namespaces_apply() {
    let server = start_empty();
    let owner = Client::builder()
        .auth("digest", "shop:secret")
        .namespace("eu");
    let owner = connect_as(owner, &server).await;
    let stranger = connect_as(Client::builder().namespace("eu"), &server).await;
    let counter = DistributedAtomicLong::builder(&owner, PATH)
        .acl([Acl::creator_all()])
        .build()
        .unwrap();
    assert_eq!(within("the sum", counter.add(5)).await.unwrap(), 5);
    assert!(server.exists(&format!("/eu{PATH}")));
    assert_eq!(counter.path(), PATH);
    let strangers = DistributedAtomicLong::new(&stranger, PATH).unwrap();
    for error in [
        within("the refusal", strangers.get()).await.unwrap_err(),
        within("the refusal", strangers.add(1)).await.unwrap_err(),
        within("the refusal", strangers.next_id())
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("which has no credentials (`ClientBuilder::auth`)"),
            "{error}"
        );
        assert!(
            error.to_string().contains(PATH) && !error.to_string().contains("/eu"),
            "{error}"
        );
    }
    // The second client has only the permission to read.
    let open = DistributedAtomicLong::builder(&owner, "/open")
        .acl([
            Acl::creator_all(),
            Acl::new("world", "anyone", Permissions::READ),
        ])
        .build()
        .unwrap();
    within("the set", open.set(3)).await.unwrap();
    let reader = DistributedAtomicLong::new(&stranger, "/open").unwrap();
    assert_eq!(within("the value", reader.get()).await.unwrap(), 3);
    let error = within("the refusal", reader.add(1)).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::NoAuth), "{error}");
    assert_eq!(within("the value", reader.get()).await.unwrap(), 3);
}

/// The connected server may lag behind, so `false` is returned only after a `sync`.
// Shows: counter-writes
#[tokio::test]
async fn lagging_server_fails_no_comparison() {
    let (server, [client, other]) = with_clients(start_at(10), calm).await;
    let counter = counter(&client);
    let id = session(&client);
    assert_eq!(counter.get().await.unwrap(), 10);
    assert!(server.isolate(id, Isolation::Follower));
    DistributedAtomicLong::new(&other, PATH)
        .unwrap()
        .set(11)
        .await
        .unwrap();
    assert_eq!(counter.get().await.unwrap(), 10, "a look may be late");
    let heal = async {
        until(&server, "the sync", move |view| {
            view.counters().requests_of(id, Op::Sync) > 0
        })
        .await;
        server.heal(id);
    };
    let (set, ()) = within("the swap", async {
        tokio::join!(counter.compare_and_set(11, 12), heal)
    })
    .await;
    assert!(set.unwrap());
    assert_eq!(value(&server), 12);
}

/// A single caller reserves; the others wait for the block, and share what is left.
// Shows: counter-ids
#[tokio::test]
async fn reservations_run_one_at_a_time() {
    let (server, [client]) = with_clients(start_at(0), calm).await;
    let ids = Arc::new(counter(&client).cached(10).unwrap());
    let gate = server.hold_request(Match::op(Op::SetData).path(PATH));
    server.reset_counters();
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let ids = Arc::clone(&ids);
        tasks.spawn(async move { ids.next_id().await.unwrap() });
    }
    within("the reservation", gate.wait_hit()).await;
    gate.release();
    let numbers: BTreeSet<i64> = within("all", tasks.join_all()).await.into_iter().collect();
    assert_eq!(numbers, (1..=10).collect());
    assert_eq!(
        requests(&server, &client),
        costs([("GetData", 1), ("SetData", 1)])
    );
}

// Shows: counter-ids
#[tokio::test]
async fn departed_reserver_loses_only_its_block() {
    for applied in [false, true] {
        let (server, [client]) = with_clients(start_at(0), calm).await;
        let ids = Arc::new(counter(&client).cached(10).unwrap());
        let matcher = Match::op(Op::SetData).path(PATH);
        let gate = hold_back(&server, matcher, applied);
        let first = ByHand::new(ids.next_id()).start();
        let second = ByHand::new(ids.next_id()).start();
        within("the reservation", gate.wait_hit()).await;
        drop(first);
        // The caller reserves as soon as its turn comes.
        within("its turn", second.woken()).await;
        drop(second);
        gate.release();
        let id = within("an id", ids.next_id()).await.unwrap();
        // The write that was under way may be carried out before the next reservation.
        assert!([1, 11].contains(&id), "{id}");
        assert!(!applied || id == 11, "{id}");
        assert_eq!(ids.next_id().await.unwrap(), id + 1);
    }
}

// Shows: counter-ids
#[tokio::test]
async fn departed_caller_takes_no_number() {
    let (server, [client]) = with_clients(start_at(0), calm).await;
    let ids = counter(&client).cached(3).unwrap();
    assert_eq!(within("an id", ids.next_id()).await.unwrap(), 1);
    drop(ids.next_id());
    assert_eq!(ids.next_id().await.unwrap(), 2);
    assert_eq!(ids.next_id().await.unwrap(), 3);
    let gate = server.hold_request(Match::op(Op::GetData).path(PATH));
    let waiting = ByHand::new(ids.next_id()).start();
    within("the reservation", gate.wait_hit()).await;
    drop(waiting);
    gate.release();
    assert_eq!(within("an id", ids.next_id()).await.unwrap(), 4);
}

#[tokio::test]
async fn next_caller_repeats_failed_reservation() {
    let server = start_at(0);
    let client = calm_with(&server, RetryPolicy::n_times(0, Duration::ZERO)).await;
    let ids = counter(&client).cached(10).unwrap();
    // The error does not tell whether the request was carried out.
    server.fail(Match::op(Op::SetData).path(PATH), -127);
    let error = within("the failure", ids.next_id()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    assert_eq!(within("an id", ids.next_id()).await.unwrap(), 1);
}

/// Ten callers that each took all their tries in turn would take ten times as long as the retry
/// policy allows.
// Shows: counter-ids
#[tokio::test]
async fn waiters_share_a_failed_reservation() {
    let server = start_at(0);
    let client = calm_with(&server, RetryPolicy::n_times(0, Duration::ZERO)).await;
    let ids = Arc::new(counter(&client).cached(10).unwrap());
    let outage = server.fail(Match::op(Op::GetData).path(PATH).always(), -127);
    let gate = server.hold_request(Match::op(Op::GetData).path(PATH));
    server.reset_counters();
    let mut calls = JoinSet::new();
    for _ in 0..10 {
        let ids = Arc::clone(&ids);
        let call = ByHand::new(async move { ids.next_id().await }).start();
        calls.spawn(call.finished());
    }
    within("the first", gate.wait_hit()).await;
    gate.release();
    for result in within("the failures", calls.join_all()).await {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    }
    // There are two reservations: the first, and one that began when all other callers had come.
    assert_eq!(
        server.counters().requests_of(session(&client), Op::GetData),
        2
    );
    outage.remove();
    assert_eq!(within("an id", ids.next_id()).await.unwrap(), 1);
}

/// A server answers a write by ending the session, whenever it is sent.
// Shows: counter-writes
#[tokio::test]
async fn write_ending_each_session_is_bounded() {
    let server = start_at(0);
    let client = calm_with(&server, RetryPolicy::n_times(2, Duration::ZERO)).await;
    let counter = counter(&client);
    server.fail(Match::op(Op::SetData).path(PATH).always(), -112);
    let error = within("the end", counter.add(1)).await.unwrap_err();
    assert!(matches!(error, AtomicLongError::Unknown { .. }), "{error}");
    // The writes are the first, one at once in the next session, and two under the policy.
    assert_eq!(server.counters().requests(Op::SetData), 4);
    let error = within("the end", counter.next_id()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    server.clear_faults();
    assert_eq!(within("an id", counter.next_id()).await.unwrap(), 1);
}
