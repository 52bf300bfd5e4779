//! Watches of states: a caller that examines a state, for however long, holds nothing up
//! (docs/protocol.md#no-lock-across-await).

use std::fmt::Debug;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use test_support::prelude::*;

/// A caller whose predicate blocks its thread until the gate is opened.
struct Slow<S> {
    entered: oneshot::Receiver<()>,
    gate: mpsc::Sender<()>,
    thread: JoinHandle<Option<S>>,
}

impl<S: Copy + Debug + PartialEq + Send + Sync + 'static> Slow<S> {
    /// Starts to wait for this state on a thread without a runtime.
    fn waits_for(wanted: S, mut states: StateWatch<S>) -> Self {
        let ((enters, entered), (gate, opened)) = (oneshot::channel(), mpsc::channel());
        let mut enters = Some(enters);
        let thread = thread::spawn(move || {
            block_on(states.wait_for(|state| {
                if let Some(enters) = enters.take() {
                    enters.send(()).unwrap();
                    // The wait has a limit, so that a failing test does not hang.
                    opened.recv_timeout(SOON).unwrap();
                }
                *state == wanted
            }))
        });
        Self {
            entered,
            gate,
            thread,
        }
    }

    async fn is_inside(&mut self) {
        within("the predicate", &mut self.entered).await.unwrap();
    }

    /// Opens the gate, and returns the outcome of the call.
    fn finish(self) -> Option<S> {
        assert!(!self.thread.is_finished(), "ended before the gate opened");
        self.gate.send(()).unwrap();
        self.thread.join().unwrap()
    }
}

/// The thread that reports the states also renews the lease, and runs the client's other work.
// Shows: session-thread, no-lock-across-await
#[tokio::test]
async fn blocking_predicate_costs_no_lock() {
    let server = start();
    // The lease outlasts the pauses of a busy machine.
    let client = connect_for(&server, Duration::from_secs(6)).await;
    let (id, guard) = (session(&client), hold(&client).await);
    let latch = LeaderLatch::new(&client, "/scheduler/leader").unwrap();
    let term = within("the leadership", latch.leadership())
        .await
        .unwrap()
        .fencing_token();
    let node = PersistentNode::new(&client, "/services/web/web-1", "").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let mut of_client = Slow::waits_for(ConnectionState::Closed, client.watch_state());
    let mut of_latch = Slow::waits_for(LeadershipState::Closed, latch.watch_state());
    let mut of_node = Slow::waits_for(PersistentNodeState::Closed, node.watch_state());
    of_client.is_inside().await;
    of_latch.is_inside().await;
    of_node.is_inside().await;

    // The states change while the predicates block, and other watches see the changes.
    let (mut connection, mut leadership) = (client.watch_state(), latch.watch_state());
    server.refuse_connections(true);
    assert!(server.cut(id, Cut::Fin));
    let suspended = connection.wait_for(|state| *state == ConnectionState::Suspended);
    within("the doubt", suspended).await.unwrap();
    let suspended = leadership.wait_for(|state| *state == LeadershipState::Suspended(term));
    within("the leader's doubt", suspended).await.unwrap();
    server.refuse_connections(false);
    within(
        "the connection",
        connection.wait_for(|state| *state == ConnectionState::Connected),
    )
    .await
    .unwrap();
    within("the end of the term", latch.close()).await.unwrap();
    within("the end of the node", node.close()).await.unwrap();

    // The client works, and keeps its session.
    let elsewhere = InterProcessMutex::new(&client, "/locks/elsewhere").unwrap();
    within("a lock", elsewhere.lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let before = server.counters().requests_of(id, Op::Multi);
    until(&server, "heartbeats", move |view| {
        view.counters().requests_of(id, Op::Multi) >= before + 2
    })
    .await;
    assert!(
        guard.is_held() && session(&client) == id,
        "{:?}",
        guard.state()
    );
    assert_eq!(of_latch.finish(), Some(LeadershipState::Closed));
    assert_eq!(of_node.finish(), Some(PersistentNodeState::Closed));
    within("the release", guard.release()).await.unwrap();
    within("the close", client.close()).await.unwrap();
    assert_eq!(of_client.finish(), Some(ConnectionState::Closed));
}

/// Returns the last state.
async fn last<S: Copy + Send + Sync>(mut states: StateWatch<S>) -> Option<S> {
    let mut last = None;
    while let Some(state) = within("a state", states.changed()).await {
        last = Some(state);
    }
    last
}

/// A drop ends the watches as a close does. The examples show the states of a close.
#[tokio::test]
async fn watches_end_with_their_subject() {
    let (server, [client]) = with_clients(start(), connect).await;
    let latch = LeaderLatch::new(&client, "/scheduler/leader").unwrap();
    within("the leadership", latch.leadership()).await.unwrap();
    let states = latch.watch_state();
    drop(latch);
    assert_eq!(last(states).await, Some(LeadershipState::Closed));

    let node = PersistentNode::new(&client, "/services/web/web-1", "").unwrap();
    within("the creation", node.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let states = node.watch_state();
    drop(node);
    assert_eq!(last(states).await, Some(PersistentNodeState::Closed));

    let member = GroupMember::new(&client, "/services/web", "web-2", "").unwrap();
    within("the creation", member.wait_for_initial_create(SOON))
        .await
        .unwrap();
    let states = member.watch_state();
    drop(member);
    assert_eq!(last(states).await, Some(PersistentNodeState::Closed));

    let states = client.watch_state();
    within("a lock", mutex(&client).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(client);
    assert_eq!(last(states).await, Some(ConnectionState::Closed));
    until(&server, "the end of the session", |view| {
        view.sessions().is_empty()
    })
    .await;
}
