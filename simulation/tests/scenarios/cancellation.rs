//! An acquire that is stopped leaves nothing behind, wherever it is: every point at which an acquire can be
//! stopped, with every way of stopping it. The points are held by gates, so each is reached for certain.

use std::time::Duration;

use simulation::scenario::tokio;
use test_support::in_process::{
    self, DIRECTORY, assert_clean, calm, calm_with, enqueue, mutex, queue, session, start, until,
};
use test_support::{ByHand, SOON, within};
use zookeeper_recipes::{
    AcquireError, Client, ConnectionState, ErrorKind, InterProcessMutex, LockGuard, NodePath, RetryPolicy,
    TryLockError,
};
use zookeeper_test_server::{Cut, Gate, Loss, Match, Op, Server};

/// Where an acquire is when it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// In memory, behind others of this process.
    InMemory,
    /// The create has arrived and is not applied.
    CreateArrived,
    /// The create is applied and not answered.
    CreateApplied,
    /// The create is answered, the list has arrived and is not answered.
    ListArrived,
    /// The create is answered, the list is held on its way back.
    ListAnswered,
    /// The directory is missing and about to be made.
    ParentArrived,
    /// The directory is made, which is not answered.
    ParentApplied,
    /// The second create, in the directory that was just made.
    CreateInNewDirectory,
    /// Behind a holder; the watch is not set.
    WatchArrived,
    /// Behind a holder; the watch is set, which is not answered.
    WatchApplied,
    /// Behind a holder, watching it.
    Waiting,
    /// Woken by the end of its predecessor, which was not the holder; looking again.
    LookingAgain,
    /// A create whose reply was lost was found in a list, and its owner is being asked for.
    Inspecting,
    /// Between two repetitions.
    Pausing,
    /// There is no connection at the moment; the create waits to be sent.
    Disconnected,
    /// There is no session at the moment.
    WithoutSession,
}

impl Point {
    const ALL: [Self; 16] = [
        Self::InMemory,
        Self::CreateArrived,
        Self::CreateApplied,
        Self::ListArrived,
        Self::ListAnswered,
        Self::ParentArrived,
        Self::ParentApplied,
        Self::CreateInNewDirectory,
        Self::WatchArrived,
        Self::WatchApplied,
        Self::Waiting,
        Self::LookingAgain,
        Self::Inspecting,
        Self::Pausing,
        Self::Disconnected,
        Self::WithoutSession,
    ];

    fn connected(self) -> bool {
        !matches!(self, Self::Disconnected | Self::WithoutSession)
    }
}

/// How the mutex is built whose acquire is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Each acquire by a node of its own.
    Plain,
    /// Handed over in memory.
    HandOff,
    /// The node is kept for a moment.
    Sticky,
}

/// An acquire of this form, to be stopped at this point.
#[derive(Clone, Copy, Debug)]
struct Case {
    form: Form,
    point: Point,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let of = |form| Point::ALL.map(|point| Self { form, point });
        [Form::Plain, Form::HandOff, Form::Sticky].into_iter().flat_map(of)
    }
}

impl From<Point> for Case {
    fn from(point: Point) -> Self {
        Self { form: Form::Plain, point }
    }
}

/// A server, a client whose next acquire will be stopped at the point, and the contenders before it.
struct Scene {
    form: Form,
    point: Point,
    server: Server,
    client: Client,
    id: i64,
    mutex: InterProcessMutex,
    gate: Option<Gate>,
    held: Option<LockGuard>,
    ahead: Option<in_process::Waiter>,
}

/// A lease that no test outlasts.
const LONG: Duration = Duration::from_secs(3600);

/// Between two repetitions, where an acquire is to be stopped between them.
const PAUSE: Duration = Duration::from_millis(200);

impl Scene {
    async fn set(case: impl Into<Case>) -> Self {
        let Case { form, point } = case.into();
        let server = start();
        let policy = match point {
            Point::Pausing => RetryPolicy::n_times(100_000, PAUSE),
            _ => in_process::eager(),
        };
        let client = calm_with(&server, policy).await;
        let id = session(&client);
        let mut builder = InterProcessMutex::builder(&client, DIRECTORY);
        builder = match form {
            Form::Plain => builder,
            Form::HandOff => builder.hand_off(3, LONG),
            Form::Sticky => builder.sticky(Duration::from_millis(1)),
        };
        let mutex = builder.build().unwrap();
        let op = |op| Match::op(op).session(id);
        let below = || op(Op::Create).path_prefix(format!("{DIRECTORY}/"));
        let (mut held, mut ahead) = (None, None);
        match point {
            Point::InMemory => held = Some(within("the local holder", mutex.lock()).await.unwrap()),
            Point::WatchArrived | Point::WatchApplied | Point::Waiting => {
                let holder = calm(&server).await;
                held = Some(within("the holder", in_process::mutex(&holder).lock()).await.unwrap());
            }
            Point::LookingAgain => {
                let (holder, second) = (calm(&server).await, calm(&server).await);
                held = Some(within("the holder", in_process::mutex(&holder).lock()).await.unwrap());
                ahead = Some(enqueue(&server, &second).await);
            }
            Point::ParentArrived | Point::ParentApplied | Point::CreateInNewDirectory => {
                server.delete(DIRECTORY).unwrap();
            }
            _ => {}
        }
        let gate = match point {
            Point::InMemory | Point::Waiting | Point::Pausing | Point::Disconnected => None,
            Point::WithoutSession => Some(server.hold_request(Match::op(Op::Connect).session(0))),
            Point::CreateArrived => Some(server.hold_request(below())),
            Point::CreateApplied => Some(server.hold_reply(below())),
            Point::ListArrived => Some(server.hold_request(op(Op::GetChildren))),
            Point::ListAnswered => Some(server.hold_reply(op(Op::GetChildren))),
            Point::ParentArrived => Some(server.hold_request(op(Op::Create).path(DIRECTORY))),
            Point::ParentApplied => Some(server.hold_reply(op(Op::Create).path(DIRECTORY))),
            Point::CreateInNewDirectory => Some(server.hold_reply(below().nth(1))),
            Point::WatchArrived => Some(server.hold_request(op(Op::GetData))),
            Point::WatchApplied => Some(server.hold_reply(op(Op::GetData))),
            Point::LookingAgain => Some(server.hold_reply(op(Op::GetChildren).nth(1))),
            Point::Inspecting => {
                server.drop_reply(below(), Loss::Close);
                Some(server.hold_reply(op(Op::Exists)))
            }
        };
        if point == Point::Pausing {
            server.fail(below().times(2), -127);
        }
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
        Self { form, point, server, client, id, mutex, gate, held, ahead }
    }

    /// Waits until the acquire that has been started is at the point.
    async fn reached(&mut self) {
        let id = self.id;
        match self.point {
            // It cannot be seen from outside; it is there as soon as it was polled.
            Point::InMemory | Point::Disconnected | Point::WithoutSession => {}
            Point::Waiting => until(&self.server, "the watch", |view| view.watches() == 1).await,
            Point::LookingAgain => {
                // The one before us gives up; we are told, and look.
                let ahead = self.ahead.take().unwrap();
                until(&self.server, "the watch", move |view| view.watches_on(&ahead.node) == [id]).await;
                ahead.attempt.abort();
                within("the second list", self.gate.as_ref().unwrap().wait_hit()).await;
            }
            Point::Pausing => {
                let failed = move |view: zookeeper_test_server::View<'_>| {
                    view.counters().requests_of(id, Op::Create) >= 2
                };
                until(&self.server, "two failures", failed).await;
            }
            _ => within("the gate", self.gate.as_ref().unwrap().wait_hit()).await,
        }
    }

    /// Lets everything go that was held up; the lock is not released.
    fn let_go(&self) {
        if let Some(gate) = &self.gate {
            gate.release();
        }
        self.server.refuse_connections(false);
    }

    /// Ends the session, if there is one.
    async fn expire(&self) {
        if self.point == Point::WithoutSession {
            return;
        }
        assert!(self.server.expire_session(self.id));
        if let (Point::InMemory, Some(held)) = (self.point, &self.held) {
            within("the loss of what the session held", held.lost()).await;
        }
    }

    /// Releases the lock, if it is held.
    async fn clear_the_way(&mut self) {
        if let Some(held) = self.held.take() {
            // It may be lost already, with its session.
            drop(held.release().await);
        }
    }

    fn what(&self, how: &str) -> String {
        format!("{:?}, {:?}, {how}", self.form, self.point)
    }

    /// Nothing is left of the acquire that was stopped, in a session that goes on.
    async fn assert_nothing_left(&mut self, how: &str) {
        let what = self.what(how);
        within(&what, self.client.flush(SOON)).await.unwrap();
        let held: Vec<NodePath> =
            self.held.iter().filter(|held| held.is_held()).map(LockGuard::node).collect();
        if self.form == Form::Sticky {
            // One that is kept goes a moment later.
            let held = held.len();
            let left = move |view: zookeeper_test_server::View<'_>| view.children(DIRECTORY).len() == held;
            until(&self.server, &format!("the end of a kept node: {what}"), left).await;
        }
        assert_eq!(queue(&self.server), held, "{what}");
        let id = self.id;
        let unwatched = move |view: zookeeper_test_server::View<'_>| {
            view.children(DIRECTORY)
                .iter()
                .all(|name| !view.watches_on(&format!("{DIRECTORY}/{name}")).contains(&id))
        };
        until(&self.server, &format!("the end of its watches: {what}"), unwatched).await;
        self.clear_the_way().await;
        assert_clean(&self.server, &what).await;
        // The client is as good as before.
        let guard = within(&what, self.mutex.lock()).await.unwrap();
        assert_eq!(queue(&self.server), [guard.node()], "{what}");
        guard.release().await.unwrap();
    }
}

fn assert_same_session(scene: &Scene, how: &str) {
    if scene.point != Point::WithoutSession {
        assert_eq!(session(&scene.client), scene.id, "{}", scene.what(how));
    }
}

#[tokio::test]
async fn dropped_before_it_was_polled() {
    let scene = Scene::set(Point::Waiting).await;
    scene.server.reset_counters();
    drop(scene.mutex.lock());
    drop(scene.mutex.acquire(SOON));
    drop(scene.mutex.try_lock());
    scene.client.flush(SOON).await.unwrap();
    assert_eq!(scene.server.counters().total_requests(), 0);
}

// Shows: attempt-outlives-caller
#[tokio::test]
async fn dropped_at_every_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = ByHand::new(scene.mutex.lock()).start();
        scene.reached().await;
        drop(attempt);
        scene.let_go();
        scene.assert_nothing_left("dropped").await;
        assert_same_session(&scene, "dropped");
    }
}

/// The flush is called while the point is still held: it waits.
// Shows: flush
#[tokio::test]
async fn a_flush_waits_for_what_was_dropped_at_any_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = ByHand::new(scene.mutex.lock()).start();
        scene.reached().await;
        drop(attempt);
        let client = scene.client.clone();
        let flush = ByHand::new(async move { client.flush(SOON).await });
        let mut flush = flush;
        let early = flush.poll();
        scene.let_go();
        if early.is_pending() {
            let flushed = tokio::spawn(async move {
                loop {
                    flush.woken().await;
                    if let std::task::Poll::Ready(result) = flush.poll() {
                        return result;
                    }
                }
            });
            within(&scene.what("flushed"), flushed).await.unwrap().unwrap();
        }
        scene.assert_nothing_left("flushed").await;
    }
}

/// The deadline passes at the point. The answer does not wait for the point to be let go.
// Shows: attempt-outlives-caller, deadline
#[tokio::test]
async fn timed_out_at_every_point() {
    for case in Case::all() {
        let mut scene = timed_out(case).await;
        scene.let_go();
        scene.assert_nothing_left("timed out").await;
        assert_same_session(&scene, "timed out");
    }
}

/// A scene in which the deadline of an acquire has passed at the point.
async fn timed_out(case: impl Into<Case>) -> Scene {
    let case = case.into();
    // Long enough to reach the point; on a slow machine, longer.
    for limit in [100, 400, 1600, 6400].map(Duration::from_millis) {
        let mut scene = Scene::set(case).await;
        let mutex = scene.mutex.clone();
        let attempt = tokio::spawn(async move { mutex.acquire(limit).await });
        if tokio::time::timeout(limit / 2, scene.reached()).await.is_err() {
            continue;
        }
        match within(&scene.what("timed out"), attempt).await.unwrap() {
            Err(error) => assert_late(&scene, &error),
            Ok(guard) => {
                // The pause was over before the deadline.
                assert_eq!(case.point, Point::Pausing);
                guard.release().await.unwrap();
            }
        }
        return scene;
    }
    panic!("{case:?} was not reached");
}

/// The error of a deadline that passed at the point: that the lock is busy is said only if a contender was
/// seen.
fn assert_late(scene: &Scene, error: &AcquireError) {
    assert_eq!(error.path(), DIRECTORY);
    let heard = match error {
        AcquireError::TimedOut { .. } => true,
        error if error.kind() == Some(ErrorKind::Connection) => false,
        error => panic!("{:?}: {error}", scene.point),
    };
    let expected = match scene.point {
        // Others of this process were in the way.
        Point::InMemory => true,
        Point::WatchArrived | Point::WatchApplied | Point::Waiting | Point::LookingAgain => true,
        Point::CreateArrived | Point::CreateApplied | Point::ListArrived | Point::ListAnswered => false,
        Point::Disconnected | Point::WithoutSession => false,
        // Some answer, but none about the lock.
        _ => heard,
    };
    assert_eq!(heard, expected, "{:?}: {error}", scene.point);
}

/// The session ends at the point: the acquire goes on in the next and is served there, once.
// Shows: attempt-outlives-caller, session-end
#[tokio::test]
async fn expired_at_every_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = tokio::spawn(scene.mutex.lock());
        scene.reached().await;
        scene.expire().await;
        scene.let_go();
        scene.clear_the_way().await;
        served_once(&scene, attempt, "expired").await;
        assert_ne!(session(&scene.client), scene.id, "{case:?}");
        scene.assert_nothing_left("expired").await;
    }
}

/// The connection ends at the point: the acquire goes on in the same session and is served, once.
// Shows: attempt-outlives-caller
#[tokio::test]
async fn cut_at_every_point() {
    for how in [Cut::Fin, Cut::Reset] {
        for case in Case::all() {
            if !case.point.connected() {
                continue;
            }
            let mut scene = Scene::set(case).await;
            let attempt = tokio::spawn(scene.mutex.lock());
            scene.reached().await;
            assert!(scene.server.cut(scene.id, how));
            scene.let_go();
            scene.clear_the_way().await;
            let name = format!("{how:?}");
            served_once(&scene, attempt, &name).await;
            assert_same_session(&scene, &name);
            scene.assert_nothing_left(&name).await;
        }
    }
}

/// The same for a call with a lease, whichever of these happens.
// Shows: lease-over
#[tokio::test]
async fn with_a_lease_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = ByHand::new(scene.mutex.acquire_with_lease(SOON, LONG)).start();
        scene.reached().await;
        drop(attempt);
        scene.let_go();
        scene.assert_nothing_left("dropped").await;

        for expires in [true, false] {
            if !expires && !point.connected() {
                continue;
            }
            let mut scene = Scene::set(point).await;
            let attempt = tokio::spawn(scene.mutex.acquire_with_lease(SOON, LONG));
            scene.reached().await;
            match expires {
                true => scene.expire().await,
                false => assert!(scene.server.cut(scene.id, Cut::Reset)),
            }
            scene.let_go();
            scene.clear_the_way().await;
            served_once(&scene, attempt, "leased").await;
            scene.assert_nothing_left("leased").await;
        }
    }
}

/// The caller stops polling at the point, and does not leave: what it is granted is over with its lease.
// Shows: lease-over
#[tokio::test]
async fn forgotten_with_a_lease_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = ByHand::new(scene.mutex.acquire_with_lease(SOON, Duration::from_millis(50))).start();
        scene.reached().await;
        scene.let_go();
        scene.clear_the_way().await;
        attempt.woken().await;
        let what = scene.what("the end of the lease");
        until(&scene.server, &what, |view| view.children(DIRECTORY).is_empty()).await;
        scene.assert_nothing_left("forgotten").await;
        drop(attempt);
    }
}

async fn served_once(scene: &Scene, attempt: tokio::task::JoinHandle<in_process::Acquired>, how: &str) {
    let what = scene.what(how);
    let mut guard = within(&what, attempt).await.unwrap().unwrap();
    if !scene.server.exists(&guard.node()) {
        // Granted by an answer that was on its way when the session ended, and lost when that is known.
        assert!(scene.server.sessions().iter().all(|session| session.id != scene.id), "{what}");
        within(&what, guard.lost()).await;
        guard = within(&what, scene.mutex.lock()).await.unwrap();
    }
    assert!(guard.is_held(), "{what}");
    until(&scene.server, &format!("one node: {what}"), |view| view.children(DIRECTORY).len() == 1).await;
    assert_eq!(queue(&scene.server), [guard.node()], "{what}");
    let owner = scene.server.node(&guard.node()).unwrap().ephemeral_owner;
    assert_eq!(owner, session(&scene.client), "{what}");
    guard.release().await.unwrap();
}

/// The caller has gone, and then the session goes: there is no caller to serve in the next.
#[tokio::test]
async fn dropped_and_expired_at_every_point() {
    for point in Point::ALL {
        let mut scene = Scene::set(point).await;
        let attempt = ByHand::new(scene.mutex.lock()).start();
        scene.reached().await;
        drop(attempt);
        scene.expire().await;
        scene.let_go();
        scene.assert_nothing_left("dropped and expired").await;
    }
}

#[tokio::test]
async fn timed_out_and_expired_at_every_point() {
    for point in Point::ALL {
        let mut scene = timed_out(point).await;
        scene.expire().await;
        scene.let_go();
        scene.assert_nothing_left("timed out and expired").await;
    }
}

/// The caller has gone, and then the connection goes: what it sent is settled over the next.
// Shows: node-owners
#[tokio::test]
async fn dropped_and_cut_at_every_point() {
    for how in [Cut::Fin, Cut::Reset] {
        for point in Point::ALL {
            if !point.connected() {
                continue;
            }
            let mut scene = Scene::set(point).await;
            let attempt = ByHand::new(scene.mutex.lock()).start();
            scene.reached().await;
            drop(attempt);
            assert!(scene.server.cut(scene.id, how));
            scene.let_go();
            let name = format!("dropped and {how:?}");
            scene.assert_nothing_left(&name).await;
            assert_same_session(&scene, &name);
        }
    }
}

/// The client is closed at the point.
#[tokio::test]
async fn closed_at_every_point() {
    for case in Case::all() {
        let mut scene = Scene::set(case).await;
        let attempt = tokio::spawn(scene.mutex.lock());
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
        let id = scene.id;
        assert!(scene.server.sessions().iter().all(|session| session.id != id), "{what}");
        scene.clear_the_way().await;
        assert_clean(&scene.server, &what).await;
    }
}

/// A grant that the caller does not take is given back.
// Shows: attempt-outlives-caller
#[tokio::test]
async fn dropped_with_the_grant_in_flight() {
    let server = start();
    let (client, holder) = (calm(&server).await, calm(&server).await);
    for waits in [false, true] {
        let held =
            if waits { Some(within("the holder", mutex(&holder).lock()).await.unwrap()) } else { None };
        let attempt = ByHand::new(mutex(&client).lock()).start();
        if let Some(held) = held {
            until(&server, "the watch", |view| view.watches() == 1).await;
            held.release().await.unwrap();
        }
        // The answer is there, and the future is not polled any more.
        attempt.woken().await;
        assert_eq!(server.children(DIRECTORY).len(), 1);
        drop(attempt);
        client.flush(SOON).await.unwrap();
        assert_eq!(server.children(DIRECTORY), [""; 0]);
        assert!(!mutex(&client).is_acquired_in_this_process());
        assert_clean(&server, "the grant in flight").await;
    }
}

/// The same where the future is dropped while its owner is about to be told that it was too late.
#[tokio::test]
async fn dropped_with_the_refusal_in_flight() {
    let server = start();
    let (client, holder) = (calm(&server).await, calm(&server).await);
    let held = within("the holder", mutex(&holder).lock()).await.unwrap();
    let attempt = ByHand::new(mutex(&client).acquire(Duration::from_millis(30))).start();
    attempt.woken().await;
    drop(attempt);
    client.flush(SOON).await.unwrap();
    assert_eq!(queue(&server), [held.node()]);
    held.release().await.unwrap();
    assert_clean(&server, "the refusal in flight").await;
}

/// A try that is dropped while it looks, looks again, or creates.
// Shows: try-lock
#[tokio::test]
async fn a_try_dropped_at_every_point() {
    for busy in [false, true] {
        for (op, nth) in [(Op::GetChildren, 0), (Op::Sync, 0), (Op::GetChildren, 1), (Op::Create, 0)] {
            if (op == Op::Sync && !busy) || (op == Op::Create && busy) {
                continue;
            }
            for applied in [false, true] {
                let what = format!("{op:?} {nth} {busy} {applied}");
                let server = start();
                let (client, holder) = (calm(&server).await, calm(&server).await);
                let held =
                    if busy { Some(within(&what, mutex(&holder).lock()).await.unwrap()) } else { None };
                let matcher = Match::op(op).session(session(&client)).nth(nth);
                let gate = if applied { server.hold_reply(matcher) } else { server.hold_request(matcher) };
                let attempt = ByHand::new(mutex(&client).try_lock()).start();
                within(&what, gate.wait_hit()).await;
                drop(attempt);
                gate.release();
                within(&what, client.flush(SOON)).await.unwrap();
                assert_eq!(queue(&server).len(), usize::from(busy), "{what}");
                if let Some(held) = held {
                    let error = within(&what, mutex(&client).try_lock()).await.unwrap_err();
                    assert!(matches!(error, TryLockError::WouldBlock { .. }), "{what}: {error}");
                    held.release().await.unwrap();
                }
                assert_clean(&server, &what).await;
            }
        }
    }
}
