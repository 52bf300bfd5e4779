//! A multi-lock that is stopped, or cut off, leaves nothing behind, wherever it is:
//! docs/protocol.md#multi-lock at every point at which it can be, with every fault. The points are held by
//! gates, so each is reached for certain.

use std::task::Poll;
use std::time::Duration;

use simulation::scenario::tokio;
use test_support::in_process::{Acquired, calm, connect_as, eager, queue_at, session, start_empty, until};
use test_support::{ByHand, SOON, within};
use tokio::task::JoinHandle;
use zookeeper_recipes::{
    AcquireError, Client, ConnectionState, ErrorKind, InterProcessMultiLock, InterProcessMutex, LockGuard,
    MultiLockGuard, RetryPolicy, TryLockError,
};
use zookeeper_test_server::{Cut, Gate, Loss, Match, Op, Server, View};

const PATHS: [&str; 4] = ["/multi/a", "/multi/b", "/multi/c", "/multi/d"];
const B: &str = PATHS[1];

/// Where the multi-lock is when it is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// The first is held; the create of the second has arrived and is not applied.
    CreateArrived,
    /// It is applied and not answered.
    CreateApplied,
    /// The list of the second has arrived and is not answered.
    ListArrived,
    /// It is held on its way back.
    ListAnswered,
    /// The directory of the second is missing and about to be made.
    ParentsArrived,
    ParentsApplied,
    /// The second create, in the directory that was just made.
    CreateInNewDirectory,
    /// The first member is busy.
    WaitingForFirst,
    /// The first is held, and the second is busy: the watch is not set.
    WatchArrived,
    /// The same, and it waits.
    WaitingForSecond,
    /// The second was waited for and is held; the third is being created.
    CreatingThird,
    /// There is no connection at the moment; the create waits to be sent.
    Disconnected,
    /// There is no session at the moment.
    WithoutSession,
}

impl Point {
    const ALL: [Self; 13] = [
        Self::CreateArrived,
        Self::CreateApplied,
        Self::ListArrived,
        Self::ListAnswered,
        Self::ParentsArrived,
        Self::ParentsApplied,
        Self::CreateInNewDirectory,
        Self::WaitingForFirst,
        Self::WatchArrived,
        Self::WaitingForSecond,
        Self::CreatingThird,
        Self::Disconnected,
        Self::WithoutSession,
    ];

    fn connected(self) -> bool {
        !matches!(self, Self::Disconnected | Self::WithoutSession)
    }

    /// Returns the member that is busy at this point.
    fn busy(self) -> Option<&'static str> {
        match self {
            Self::WaitingForFirst => Some(PATHS[0]),
            Self::WatchArrived | Self::WaitingForSecond | Self::CreatingThird => Some(B),
            _ => None,
        }
    }
}

/// A server, a client whose next call will be struck at the point, and the holder of what is busy.
struct Scene {
    point: Point,
    server: Server,
    client: Client,
    id: i64,
    multi: InterProcessMultiLock,
    gate: Option<Gate>,
    held: Option<LockGuard>,
}

impl Scene {
    async fn set(point: Point) -> Self {
        let server = start_empty();
        let makes_directories =
            matches!(point, Point::ParentsArrived | Point::ParentsApplied | Point::CreateInNewDirectory);
        for path in PATHS.iter().filter(|_| !makes_directories) {
            server.create(path, "").unwrap();
        }
        let client = calm(&server).await;
        let id = session(&client);
        let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
        let mut held = None;
        if let Some(path) = point.busy() {
            let holder = calm(&server).await;
            held = Some(within("the holder", InterProcessMutex::new(&holder, path).unwrap().lock()).await);
        }
        let op = |op| Match::op(op).session(id);
        let creates = |path| op(Op::Create).path_prefix(format!("{path}/"));
        let lists = || op(Op::GetChildren).path(B);
        let gate = match point {
            Point::CreateArrived => Some(server.hold_request(creates(B))),
            Point::CreateApplied => Some(server.hold_reply(creates(B))),
            Point::ListArrived => Some(server.hold_request(lists())),
            Point::ListAnswered => Some(server.hold_reply(lists())),
            Point::ParentsArrived => Some(server.hold_request(op(Op::Create).path(B))),
            Point::ParentsApplied => Some(server.hold_reply(op(Op::Create).path(B))),
            Point::CreateInNewDirectory => Some(server.hold_reply(creates(B).nth(1))),
            Point::WatchArrived => Some(server.hold_request(op(Op::GetData))),
            Point::CreatingThird => Some(server.hold_reply(creates(PATHS[2]))),
            Point::WaitingForFirst | Point::WaitingForSecond | Point::Disconnected => None,
            Point::WithoutSession => Some(server.hold_request(Match::op(Op::Connect).session(0))),
        };
        let mut states = client.watch_state();
        let becomes = match point {
            Point::Disconnected => {
                server.refuse_connections(true);
                assert!(server.cut(id, Cut::Fin));
                ConnectionState::Suspended
            }
            Point::WithoutSession => {
                assert!(server.expire_session(id));
                ConnectionState::Lost
            }
            _ => ConnectionState::Connected,
        };
        within("the state", states.wait_for(|state| *state == becomes)).await.unwrap();
        Self { point, server, client, id, multi, gate, held: held.map(Result::unwrap) }
    }

    fn what(&self, how: &str) -> String {
        format!("{:?}, {how}", self.point)
    }

    /// Waits until the call that has been started is at the point.
    async fn reached(&mut self) {
        let id = self.id;
        match self.point {
            // It cannot be seen from outside; it is there as soon as it was polled.
            Point::Disconnected | Point::WithoutSession => {}
            Point::WaitingForFirst | Point::WaitingForSecond => {
                let node = self.held.as_ref().unwrap().node();
                until(&self.server, "the watch", move |view| view.watches_on(&node) == [id]).await;
            }
            Point::CreatingThird => {
                let node = self.held.as_ref().unwrap().node();
                until(&self.server, "the watch", move |view| view.watches_on(&node) == [id]).await;
                self.clear_the_way().await;
                within("the create", self.gate.as_ref().unwrap().wait_hit()).await;
            }
            _ => within("the gate", self.gate.as_ref().unwrap().wait_hit()).await,
        }
    }

    /// Lets everything go that was held up; no lock is released.
    fn let_go(&self) {
        if let Some(gate) = &self.gate {
            gate.release();
        }
        self.server.refuse_connections(false);
    }

    fn expire(&self) {
        if self.point != Point::WithoutSession {
            assert!(self.server.expire_session(self.id));
        }
    }

    async fn clear_the_way(&mut self) {
        if let Some(held) = self.held.take() {
            within("the release", held.release()).await.unwrap();
        }
    }

    fn assert_same_session(&self, how: &str) {
        if self.point != Point::WithoutSession {
            assert_eq!(session(&self.client), self.id, "{}", self.what(how));
        }
    }

    /// Nothing is left of the call that was stopped, in a session that goes on.
    async fn assert_nothing_left(&mut self, how: &str) {
        let what = self.what(how);
        within(&what, self.client.flush(SOON)).await.unwrap();
        let held: Vec<String> = self.held.iter().map(|held| held.node().to_string()).collect();
        let left: Vec<String> = PATHS.iter().flat_map(|path| queue_at(&self.server, path)).collect();
        assert_eq!(left, held, "{what}");
        self.clear_the_way().await;
        until(&self.server, &format!("the end of its watches: {what}"), |view| view.watches() == 0).await;
        // The client is as good as before.
        let guard = within(&what, self.multi.lock()).await.unwrap();
        let nodes: Vec<String> = PATHS.iter().flat_map(|path| queue_at(&self.server, path)).collect();
        assert_eq!(nodes, guard.nodes().iter().map(|node| node.to_string()).collect::<Vec<_>>(), "{what}");
        within(&what, guard.release()).await.unwrap();
    }

    /// The call goes on, and is served once.
    async fn served_once(&mut self, attempt: JoinHandle<Acquired<MultiLockGuard>>, how: &str) {
        let what = self.what(how);
        let mut guard = within(&what, attempt).await.unwrap().unwrap();
        if !guard.nodes().iter().all(|node| self.server.exists(node)) {
            // Granted by an answer that was on its way when the session ended, and lost when that is known.
            assert!(self.server.sessions().iter().all(|session| session.id != self.id), "{what}");
            within(&what, guard.lost()).await;
            guard = within(&what, self.multi.lock()).await.unwrap();
        }
        assert!(guard.is_held(), "{what}");
        let one_each = |view: View<'_>| PATHS.iter().all(|path| view.children(path).len() == 1);
        until(&self.server, &format!("a node each: {what}"), one_each).await;
        let owners: Vec<i64> =
            guard.nodes().iter().map(|node| self.server.node(node).unwrap().ephemeral_owner).collect();
        assert_eq!(owners, [session(&self.client); 4], "{what}");
        let created: Vec<i64> =
            guard.nodes().iter().map(|node| self.server.node(node).unwrap().czxid).collect();
        let tokens: Vec<i64> = guard.fencing_tokens().iter().map(|token| token.zxid()).collect();
        assert_eq!(tokens, created, "{what}");
        within(&what, guard.release()).await.unwrap();
    }
}

// Shows: multi-lock
#[tokio::test]
async fn dropped_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = ByHand::new(scene.multi.lock()).start();
        scene.reached().await;
        drop(attempt);
        scene.let_go();
        scene.assert_nothing_left("dropped").await;
        scene.assert_same_session("dropped");
    }
}

/// The flush is called while the point is still held: it waits.
// Shows: multi-lock
#[tokio::test]
async fn a_flush_waits_for_what_was_dropped_at_any_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = ByHand::new(scene.multi.lock()).start();
        scene.reached().await;
        drop(attempt);
        let client = scene.client.clone();
        let mut flush = ByHand::new(async move { client.flush(SOON).await });
        let early = flush.poll();
        scene.let_go();
        if early.is_pending() {
            let flushed = async {
                loop {
                    flush.woken().await;
                    if let Poll::Ready(result) = flush.poll() {
                        return result;
                    }
                }
            };
            within(&scene.what("flushed"), flushed).await.unwrap();
        }
        let held: Vec<String> = scene.held.iter().map(|held| held.node().to_string()).collect();
        let left: Vec<String> = PATHS.iter().flat_map(|path| queue_at(&scene.server, path)).collect();
        assert_eq!(left, held, "{}", scene.what("flushed"));
        scene.assert_nothing_left("flushed").await;
    }
}

/// The deadline passes at the point. The answer does not wait for the point to be let go.
// Shows: multi-lock
#[tokio::test]
async fn timed_out_at_every_point() {
    for point in Point::ALL {
        let mut scene = timed_out(point).await;
        scene.let_go();
        scene.assert_nothing_left("timed out").await;
        scene.assert_same_session("timed out");
    }
}

/// A scene in which the deadline of a call has passed at the point.
async fn timed_out(point: Point) -> Scene {
    // Long enough to reach the point; on a slow machine, longer.
    for limit in [100, 400, 1600, 6400].map(Duration::from_millis) {
        let mut scene = Scene::set(point).await;
        let multi = scene.multi.clone();
        let attempt = tokio::spawn(async move { multi.acquire(limit).await });
        if tokio::time::timeout(limit / 2, scene.reached()).await.is_err() {
            continue;
        }
        let error = within(&scene.what("timed out"), attempt).await.unwrap().unwrap_err();
        let expected = match point {
            Point::WaitingForFirst => Some(PATHS[0]),
            Point::WatchArrived | Point::WaitingForSecond => Some(B),
            _ => None,
        };
        match (&error, expected) {
            (AcquireError::TimedOut { path, waited, .. }, Some(busy)) => {
                assert_eq!(path, busy, "{point:?}");
                assert!(*waited >= limit, "{point:?}");
            }
            // That a member is busy is said only if a contender was seen.
            (error, None) if error.kind() == Some(ErrorKind::Connection) => {}
            (error, _) => panic!("{point:?}: {error}"),
        }
        return scene;
    }
    panic!("{point:?} was not reached");
}

/// The session ends at the point: the call goes on in the next and is served there, once.
// Shows: multi-lock-loss
#[tokio::test]
async fn expired_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = tokio::spawn(scene.multi.lock());
        scene.reached().await;
        scene.expire();
        scene.let_go();
        scene.clear_the_way().await;
        scene.served_once(attempt, "expired").await;
        assert_ne!(session(&scene.client), scene.id, "{point:?}");
        scene.assert_nothing_left("expired").await;
    }
}

/// The connection ends at the point: the call goes on in the same session and is served, once.
// Shows: multi-lock
#[tokio::test]
async fn cut_at_every_point() {
    for how in [Cut::Fin, Cut::Reset] {
        for point in Point::ALL.into_iter().filter(|point| point.connected()) {
            let mut scene = Scene::set(point).await;
            let attempt = tokio::spawn(scene.multi.lock());
            scene.reached().await;
            assert!(scene.server.cut(scene.id, how));
            scene.let_go();
            scene.clear_the_way().await;
            let name = format!("{how:?}");
            scene.served_once(attempt, &name).await;
            scene.assert_same_session(&name);
            scene.assert_nothing_left(&name).await;
        }
    }
}

/// The caller has gone, and then the connection, or the session.
#[tokio::test]
async fn dropped_and_cut_off_at_every_point() {
    for expires in [false, true] {
        for point in Point::ALL.into_iter().filter(|point| expires || point.connected()) {
            let mut scene = Scene::set(point).await;
            let attempt = ByHand::new(scene.multi.lock()).start();
            scene.reached().await;
            drop(attempt);
            if expires {
                scene.expire();
            } else {
                assert!(scene.server.cut(scene.id, Cut::Reset));
            }
            scene.let_go();
            let name = format!("dropped, and expired: {expires}");
            scene.assert_nothing_left(&name).await;
        }
    }
}

/// The client is closed at the point.
#[tokio::test]
async fn closed_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = tokio::spawn(scene.multi.lock());
        scene.reached().await;
        let client = scene.client.clone();
        let closing = tokio::spawn(async move { client.close().await });
        scene.let_go();
        let what = scene.what("closed");
        within(&what, closing).await.unwrap().unwrap();
        match within(&what, attempt).await.unwrap() {
            Err(error) => assert_eq!(error.kind(), Some(ErrorKind::Closed), "{what}: {error}"),
            // It was granted in the last moment, and is lost.
            Ok(guard) => assert!(!guard.is_held(), "{what}"),
        }
        scene.clear_the_way().await;
        let empty = |view: View<'_>| PATHS.iter().all(|path| view.children(path).is_empty());
        until(&scene.server, &what, empty).await;
    }
}

/// The reply to a create, or to a list, is lost, or the request is.
// Shows: multi-lock
#[tokio::test]
async fn what_is_lost_on_the_way_is_found_out() {
    for (op, nth) in [(Op::Create, 0), (Op::Create, 2), (Op::GetChildren, 2)] {
        for fault in 0..3 {
            let server = start_empty();
            PATHS.iter().for_each(|path| server.create(path, "").unwrap());
            let client = calm(&server).await;
            let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
            let id = session(&client);
            let struck = Match::op(op).session(id).nth(nth);
            let what = format!("{op:?} {nth} {fault}");
            match fault {
                0 => drop(server.drop_reply(struck, Loss::Close)),
                1 => drop(server.drop_request(struck, Loss::Close)),
                // A code that is not known says nothing of what was done.
                _ => drop(server.fail(struck, -999)),
            }
            let guard = within(&what, multi.lock()).await.unwrap();
            client.flush(SOON).await.unwrap();
            let nodes: Vec<String> = PATHS.iter().flat_map(|path| queue_at(&server, path)).collect();
            let ours: Vec<String> = guard.nodes().iter().map(|node| node.to_string()).collect();
            assert_eq!(nodes, ours, "{what}");
            let created: Vec<i64> = ours.iter().map(|node| server.node(node).unwrap().czxid).collect();
            let tokens: Vec<i64> = guard.fencing_tokens().iter().map(|token| token.zxid()).collect();
            assert_eq!(tokens, created, "{what}");
            assert_eq!(session(&client), id, "{what}");
            within(&what, guard.release()).await.unwrap();
        }
    }
}

/// The try, at each of its requests.
// Shows: multi-lock-try
#[tokio::test]
async fn a_try_dropped_at_every_point() {
    for busy in [false, true] {
        let points: &[_] = if busy {
            &[(Op::MultiRead, 0), (Op::Sync, 0), (Op::MultiRead, 1)]
        } else {
            &[(Op::MultiRead, 0), (Op::GetChildren, 0), (Op::Create, 1), (Op::GetChildren, 3)]
        };
        for &(op, nth) in points {
            for applied in [false, true] {
                let what = format!("{op:?} {nth} {busy} {applied}");
                let server = start_empty();
                PATHS.iter().for_each(|path| server.create(path, "").unwrap());
                let (client, other) = (calm(&server).await, calm(&server).await);
                let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
                let held = match busy {
                    true => {
                        Some(within(&what, InterProcessMutex::new(&other, B).unwrap().lock()).await.unwrap())
                    }
                    false => None,
                };
                let struck = Match::op(op).session(session(&client)).nth(nth);
                let gate = if applied { server.hold_reply(struck) } else { server.hold_request(struck) };
                let attempt = ByHand::new(multi.try_lock()).start();
                within(&what, gate.wait_hit()).await;
                drop(attempt);
                gate.release();
                within(&what, client.flush(SOON)).await.unwrap();
                let left = PATHS.iter().map(|path| queue_at(&server, path).len()).sum::<usize>();
                assert_eq!(left, usize::from(busy), "{what}");
                match (held, within(&what, multi.try_lock()).await) {
                    (Some(held), Err(TryLockError::WouldBlock { path, .. })) => {
                        assert_eq!(path, B, "{what}");
                        held.release().await.unwrap();
                    }
                    (None, Ok(guard)) => guard.release().await.unwrap(),
                    (_, result) => panic!("{what}: {result:?}"),
                }
            }
        }
    }
}

/// A try waits for the servers for the connect timeout, not for that long for each member.
// Shows: multi-lock
#[tokio::test]
async fn a_try_has_one_deadline_for_all_members() {
    let server = start_empty();
    PATHS.iter().for_each(|path| server.create(path, "").unwrap());
    let time = Duration::from_millis(400);
    let client = connect_as(Client::builder().connect_timeout(time), &server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    server.delay_reply(Match::op(Op::Create).path_prefix("/multi/").always(), time / 2);
    // With a deadline for each member, all would be in time.
    let error = within("the end", multi.try_lock()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Connection), "{error}");
    server.clear_faults();
    within("the clean-up", client.flush(SOON)).await.unwrap();
    assert_eq!(PATHS.iter().map(|path| queue_at(&server, path).len()).sum::<usize>(), 0);
}

/// A client that asks for its nodes every second, and keeps its locks though nothing is answered for three.
async fn beating(server: &Server, policy: RetryPolicy) -> Client {
    connect_as(Client::builder().session_timeout(Duration::from_secs(6)).retry_policy(policy), server).await
}

/// Another process deletes the node of a member that is held while another is waited for: all are given up,
/// and it starts over.
// Shows: multi-lock-loss
#[tokio::test]
async fn a_member_deleted_while_another_is_waited_for_starts_all_over() {
    let server = start_empty();
    PATHS.iter().for_each(|path| server.create(path, "").unwrap());
    let client = beating(&server, eager()).await;
    let other = calm(&server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    let held = within("the holder", InterProcessMutex::new(&other, B).unwrap().lock()).await.unwrap();
    let (node, id) = (held.node(), session(&client));
    let attempt = tokio::spawn(multi.lock());
    let watched = node.clone();
    until(&server, "the watch", move |view| view.watches_on(&watched).contains(&id)).await;
    let (mine, waiting) = (queue_at(&server, PATHS[0]), queue_at(&server, B)[1].clone());
    server.delete(&mine[0]).unwrap();
    // The heartbeat tells it; then it queues anew, in the order of the paths.
    until(&server, "another beginning", move |view| {
        let first = view.children(PATHS[0]);
        !view.exists(&waiting) && first.len() == 1 && view.watches_on(&node).contains(&id)
    })
    .await;
    held.release().await.unwrap();
    let guard = within("all members", attempt).await.unwrap().unwrap();
    within("the release", guard.release()).await.unwrap();
}

/// Deletions in a row are counted against the retry policy.
// Shows: multi-lock-loss
#[tokio::test]
async fn members_deleted_again_and_again_end_the_call() {
    let server = start_empty();
    PATHS.iter().for_each(|path| server.create(path, "").unwrap());
    let policy = RetryPolicy::n_times(2, Duration::from_millis(1));
    let client = beating(&server, policy).await;
    let other = calm(&server).await;
    let multi = InterProcessMultiLock::from_paths(&client, PATHS).unwrap();
    let held = within("the holder", InterProcessMutex::new(&other, B).unwrap().lock()).await.unwrap();
    let (node, id) = (held.node(), session(&client));
    let attempt = tokio::spawn(multi.lock());
    let mut watches = 0;
    for _ in 0..3 {
        // Each time another one: the last may not be removed yet.
        let watched = node.clone();
        until(&server, "the watch", move |view| {
            view.children(B).len() == 2
                && view.counters().requests_of(id, Op::GetData) > watches
                && view.watches_on(&watched).contains(&id)
        })
        .await;
        watches = server.counters().requests_of(id, Op::GetData);
        let waiting = queue_at(&server, B)[1].clone();
        server.delete(&queue_at(&server, PATHS[0])[0]).unwrap();
        until(&server, "that it gives up", move |view| !view.exists(&waiting)).await;
    }
    let error = within("the end", attempt).await.unwrap().unwrap_err();
    assert!(
        matches!(&error, AcquireError::NodeDeleted { path, times: 3, .. } if path == PATHS[0]),
        "{error}"
    );
    client.flush(SOON).await.unwrap();
    let left: Vec<String> = PATHS.iter().flat_map(|path| queue_at(&server, path)).collect();
    assert_eq!(left, [node.to_string()]);
    held.release().await.unwrap();
}
