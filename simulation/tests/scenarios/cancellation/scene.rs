//! A server, a client that is about to acquire a lock, and the point at which a fault will happen
//! to the call. Where necessary, the server holds the call up at a gate, so each point is reached
//! for certain.

use std::pin::Pin;

use test_support::prelude::*;

use crate::semaphore_faults::{LEASES, LIMIT, LOCKS, PATH, at_head, semaphore};

/// The lock that a call acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    /// A mutex that is handed over in memory.
    HandOff,
    /// Four mutexes.
    MultiLock,
    /// Two of three permits.
    Semaphore,
}

impl Kind {
    /// Returns the directories in which a lock of this kind has nodes.
    fn directories(self) -> &'static [&'static str] {
        match self {
            Self::Mutex | Self::HandOff => &[DIRECTORY],
            Self::MultiLock => &MEMBERS,
            Self::Semaphore => &[LOCKS, LEASES],
        }
    }

    /// Returns the paths that the errors of a lock of this kind name.
    fn paths(self) -> &'static [&'static str] {
        if self == Self::Semaphore {
            &[PATH]
        } else {
            self.directories()
        }
    }
}

/// The reason why a call is not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Free,
    /// The directory of the nodes is missing.
    NoDirectory,
    /// The reply to the first such request is lost with its connection.
    ReplyLost(Op, &'static str),
    /// The first such request is lost with its connection.
    RequestLost(Op, &'static str),
    /// A task of the same client holds the lock.
    HeldHere,
    /// Another client holds the lock at this path, or two permits.
    Held(&'static str),
    /// Another client holds the lock at this path until the call waits.
    Released(&'static str),
    /// Another client holds the lock, and a second one, which waits before the call, leaves once
    /// the call waits.
    Left,
    /// Other clients have two permits, and one waits for two more.
    Queued,
    /// Other clients have two permits, and while the call waits, a third exists for a moment.
    Disturbed,
}

/// Where a call is when a fault happens to it. A path that ends with a slash stands for all paths
/// below it, and an empty one for any path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The request that follows this many of its kind has arrived and is not carried out.
    Arrived(Op, &'static str, usize),
    /// The request that follows this many of its kind is carried out and not answered.
    Applied(Op, &'static str, usize),
    /// The call watches its predecessor.
    Waiting,
    /// The call waits in memory, behind others of its client.
    InMemory,
    /// The call pauses between two repetitions of this request.
    Pausing(Op, &'static str),
    /// The client has no connection at the moment, and requests wait.
    Disconnected,
    /// The client has no session at the moment.
    WithoutSession,
}

/// The reason why a call is not granted at once, the point at which a fault happens to it, and
/// whether the error of a deadline that passes there names contenders (`None` if it may or may
/// not).
type Point = (Way, Stop, Option<bool>);

use Stop::{Applied, Arrived, Disconnected, InMemory, Pausing, Waiting, WithoutSession};
use Way::{
    Disturbed, Free, Held, HeldHere, Left, NoDirectory, Queued, Released, ReplyLost, RequestLost,
};

const NODES: &str = "/locks/sku-42/";
const MUTEX: &[Point] = &[
    (HeldHere, InMemory, Some(true)),
    (Free, Arrived(Op::Create, NODES, 0), Some(false)),
    (Free, Applied(Op::Create, NODES, 0), Some(false)),
    (Free, Arrived(Op::GetChildren, DIRECTORY, 0), Some(false)),
    (Free, Applied(Op::GetChildren, DIRECTORY, 0), Some(false)),
    (NoDirectory, Arrived(Op::Create, DIRECTORY, 0), None),
    (NoDirectory, Applied(Op::Create, DIRECTORY, 0), None),
    // The create is repeated in the directory that was just made.
    (NoDirectory, Applied(Op::Create, NODES, 1), None),
    // The request that sets the watch is not carried out, or not answered.
    (Held(DIRECTORY), Arrived(Op::GetData, NODES, 0), Some(true)),
    (Held(DIRECTORY), Applied(Op::GetData, NODES, 0), Some(true)),
    (Held(DIRECTORY), Waiting, Some(true)),
    // The predecessor, which was not the holder, has left, and the call lists again.
    (Left, Applied(Op::GetChildren, DIRECTORY, 1), Some(true)),
    // A list shows a node, and the call asks for its owner.
    (
        ReplyLost(Op::Create, NODES),
        Applied(Op::Exists, "", 0),
        None,
    ),
    (Free, Pausing(Op::Create, NODES), None),
    (Free, Disconnected, Some(false)),
    (Free, WithoutSession, Some(false)),
];

const MEMBERS: [&str; 4] = ["/multi/a", "/multi/b", "/multi/c", "/multi/d"];
const SECOND: &str = "/multi/b";
const IN_SECOND: &str = "/multi/b/";
const MULTI_LOCK: &[Point] = &[
    // The call holds the first member.
    (Free, Arrived(Op::Create, IN_SECOND, 0), Some(false)),
    (Free, Applied(Op::Create, IN_SECOND, 0), Some(false)),
    (Free, Arrived(Op::GetChildren, SECOND, 0), Some(false)),
    (Free, Applied(Op::GetChildren, SECOND, 0), Some(false)),
    (NoDirectory, Arrived(Op::Create, SECOND, 0), Some(false)),
    (NoDirectory, Applied(Op::Create, SECOND, 0), Some(false)),
    (NoDirectory, Applied(Op::Create, IN_SECOND, 1), Some(false)),
    (Held("/multi/a"), Waiting, Some(true)),
    (Held(SECOND), Arrived(Op::GetData, "", 0), Some(true)),
    (Held(SECOND), Waiting, Some(true)),
    // The call has waited for the second member, and holds it.
    (
        Released(SECOND),
        Applied(Op::Create, "/multi/c/", 0),
        Some(false),
    ),
    (Free, Disconnected, Some(false)),
    (Free, WithoutSession, Some(false)),
];

const IN_LOCKS: &str = "/sem/locks/";
const IN_LEASES: &str = "/sem/leases/";
const SEMAPHORE: &[Point] = &[
    // The call is in the queue of locks.
    (Free, Arrived(Op::Create, IN_LOCKS, 0), Some(false)),
    (Free, Applied(Op::Create, IN_LOCKS, 0), Some(false)),
    (Free, Arrived(Op::GetChildren, LOCKS, 0), Some(false)),
    (Queued, Waiting, Some(true)),
    // The call is at the head of that queue.
    (Free, Arrived(Op::GetChildren, LEASES, 0), Some(false)),
    (Free, Applied(Op::GetChildren, LEASES, 0), Some(false)),
    (Free, Arrived(Op::GetData, LIMIT, 0), Some(false)),
    (NoDirectory, Arrived(Op::Create, LEASES, 0), Some(false)),
    (NoDirectory, Applied(Op::Create, LEASES, 0), Some(false)),
    (Free, Arrived(Op::Multi, IN_LEASES, 0), Some(false)),
    (Free, Applied(Op::Multi, IN_LEASES, 0), Some(false)),
    // The call does not know whether it has taken permits: it repeats the transaction, or lists the
    // leases to find out.
    (
        ReplyLost(Op::Multi, IN_LEASES),
        Arrived(Op::Multi, IN_LEASES, 0),
        Some(false),
    ),
    (
        RequestLost(Op::Multi, IN_LEASES),
        Arrived(Op::Multi, IN_LEASES, 0),
        Some(false),
    ),
    (
        ReplyLost(Op::Multi, IN_LEASES),
        Arrived(Op::GetChildren, LEASES, 1),
        Some(false),
    ),
    // Too few permits are free: the call sets its watches, waits, and finds too few again.
    (Held(PATH), Arrived(Op::GetChildren, LEASES, 1), None),
    (Held(PATH), Applied(Op::GetChildren, LEASES, 1), None),
    (Held(PATH), Waiting, Some(true)),
    (Disturbed, Applied(Op::GetChildren, LEASES, 2), None),
    (Free, Pausing(Op::Multi, IN_LEASES), None),
    (Free, Disconnected, Some(false)),
    (Free, WithoutSession, Some(false)),
];

/// A call, and the point at which a fault happens to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) point: Point,
}

impl Case {
    fn of(kind: Kind, points: &[Point]) -> impl Iterator<Item = Self> {
        points.iter().map(move |point| Self {
            kind,
            point: *point,
        })
    }

    /// Returns every kind at every point.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let mutexes = [Kind::Mutex, Kind::HandOff].into_iter();
        let mutexes = mutexes.flat_map(|kind| Self::of(kind, MUTEX));
        mutexes
            .chain(Self::of(Kind::MultiLock, MULTI_LOCK))
            .chain(Self::of(Kind::Semaphore, SEMAPHORE))
    }

    /// Returns the cases at whose point there is a connection that can be cut.
    pub(super) fn connected() -> impl Iterator<Item = Self> {
        Self::all().filter(|case| !matches!(case.point.1, Disconnected | WithoutSession))
    }

    /// Returns the path of the lock that another client holds, if it holds one.
    pub(super) fn holder(&self) -> Option<&'static str> {
        match self.point.0 {
            Held(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the calls that try, at each of their requests, for free locks and for held ones.
    pub(super) fn tries() -> impl Iterator<Item = Self> {
        use Op::{Create, GetChildren, Multi, MultiRead, Sync};
        let held: [(_, _, &[_]); 3] = [
            (
                Kind::Mutex,
                DIRECTORY,
                &[(GetChildren, 0), (Sync, 0), (GetChildren, 1)],
            ),
            (
                Kind::MultiLock,
                SECOND,
                &[(MultiRead, 0), (Sync, 0), (MultiRead, 1)],
            ),
            (
                Kind::Semaphore,
                PATH,
                &[(GetChildren, 0), (Sync, 0), (GetChildren, 1)],
            ),
        ];
        let free: [(_, &[_]); 3] = [
            (
                Kind::Mutex,
                &[(GetChildren, 0), (GetChildren, 1), (Create, 0)],
            ),
            (
                Kind::MultiLock,
                &[
                    (MultiRead, 0),
                    (GetChildren, 0),
                    (Create, 1),
                    (GetChildren, 3),
                ],
            ),
            (
                Kind::Semaphore,
                &[(GetChildren, 0), (GetChildren, 1), (Create, 0), (Multi, 0)],
            ),
        ];
        let held = held
            .into_iter()
            .map(|(kind, path, requests)| (kind, Held(path), requests));
        let free = free
            .into_iter()
            .map(|(kind, requests)| (kind, Free, requests));
        let each = |(kind, way, &(op, nth))| {
            [Arrived(op, "", nth), Applied(op, "", nth)].map(|stop| Self {
                kind,
                point: (way, stop, None),
            })
        };
        let requests = |(kind, way, requests): (_, _, &'static [(Op, usize)])| {
            requests.iter().map(move |request| (kind, way, request))
        };
        held.chain(free).flat_map(requests).flat_map(each)
    }
}

/// A guard of any kind.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) guard: Box<dyn Guard>,
    nodes: Vec<NodePath>,
    /// The slots of a semaphore's permits.
    slots: Vec<u32>,
    /// The zxid at which each node was created; empty for a semaphore.
    tokens: Vec<i64>,
}

impl From<LockGuard> for Grant {
    fn from(guard: LockGuard) -> Self {
        let tokens = vec![guard.fencing_token().zxid()];
        Self {
            nodes: vec![guard.node()],
            slots: Vec::new(),
            tokens,
            guard: Box::new(guard),
        }
    }
}

impl From<MultiLockGuard> for Grant {
    fn from(guard: MultiLockGuard) -> Self {
        let tokens = guard
            .fencing_tokens()
            .iter()
            .map(|token| token.zxid())
            .collect();
        Self {
            nodes: guard.nodes(),
            slots: Vec::new(),
            tokens,
            guard: Box::new(guard),
        }
    }
}

impl From<SemaphorePermit> for Grant {
    fn from(guard: SemaphorePermit) -> Self {
        Self {
            nodes: guard.nodes(),
            slots: guard.slots(),
            tokens: Vec::new(),
            guard: Box::new(guard),
        }
    }
}

/// A call in progress.
pub(super) type Call<E> = Pin<Box<dyn Future<Output = Result<Grant, E>> + Send>>;

fn call<G: Into<Grant>, E>(call: impl Future<Output = Result<G, E>> + Send + 'static) -> Call<E> {
    Box::pin(async { Ok(call.await?.into()) })
}

/// The lock that a call acquires.
#[derive(Clone)]
pub(super) enum Lock {
    Mutex(InterProcessMutex),
    Several(InterProcessMultiLock),
    Semaphore(InterProcessSemaphore),
}

impl Lock {
    fn new(kind: Kind, client: &Client) -> Self {
        let builder = InterProcessMutex::builder(client, DIRECTORY);
        match kind {
            Kind::Mutex => Self::Mutex(builder.build().unwrap()),
            Kind::HandOff => Self::Mutex(builder.hand_off(3, LONG).build().unwrap()),
            Kind::MultiLock => {
                Self::Several(InterProcessMultiLock::from_paths(client, MEMBERS).unwrap())
            }
            Kind::Semaphore => Self::Semaphore(semaphore(client, 3)),
        }
    }

    pub(super) fn acquire(&self, timeout: Duration) -> Call<AcquireError> {
        match self {
            Self::Mutex(lock) => call(lock.acquire(timeout)),
            Self::Several(lock) => call(lock.acquire(timeout)),
            Self::Semaphore(semaphore) => call(semaphore.acquire_many(2, timeout)),
        }
    }

    pub(super) fn acquire_with_lease(&self, lease: Duration) -> Call<AcquireError> {
        match self {
            Self::Mutex(lock) => call(lock.acquire_with_lease(SOON, lease)),
            Self::Several(lock) => call(lock.acquire_with_lease(SOON, lease)),
            Self::Semaphore(semaphore) => call(semaphore.acquire_many_with_lease(2, SOON, lease)),
        }
    }

    pub(super) fn try_lock(&self) -> Call<TryLockError> {
        match self {
            Self::Mutex(lock) => call(lock.try_lock()),
            Self::Several(lock) => call(lock.try_lock()),
            Self::Semaphore(semaphore) => call(semaphore.try_acquire_many(2)),
        }
    }
}

/// A lease that no test outlasts.
pub(super) const LONG: Duration = Duration::from_secs(3600);

/// The timeout of calls whose deadline passes at a point. The point is reached before the timeout
/// is over, and the last pause ends after that.
pub(super) const LATE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(200);
const THROTTLED: i32 = -127;

fn request(op: Op, path: &str) -> Match {
    match path {
        "" => Match::op(op),
        below if below.ends_with('/') => Match::op(op).path_prefix(below),
        path => Match::op(op).path(path),
    }
}

pub(super) struct Scene {
    case: Case,
    pub(super) server: Server,
    pub(super) client: Client,
    pub(super) id: i64,
    pub(super) lock: Lock,
    gate: Option<Gate>,
    pause: Option<Fault>,
    others: Vec<Grant>,
    ahead: Option<Waiter>,
    head: Option<(String, JoinHandle<Result<SemaphorePermit, AcquireError>>)>,
}

impl Scene {
    pub(super) async fn set(case: Case) -> Self {
        let Case {
            kind,
            point: (_, stop, _),
        } = case;
        let server = start_empty();
        for directory in kind.directories() {
            server.create(directory, "").unwrap();
        }
        let policy = match stop {
            Pausing(..) => RetryPolicy::n_times(100_000, PAUSE),
            _ => eager(),
        };
        let client = calm_with(&server, policy).await;
        let (id, lock) = (session(&client), Lock::new(kind, &client));
        let (gate, pause) = (None, None);
        let (others, ahead, head) = (Vec::new(), None, None);
        let mut scene = Self {
            case,
            server,
            client,
            id,
            lock,
            gate,
            pause,
            others,
            ahead,
            head,
        };
        scene.obstruct().await;
        scene.arm();
        scene.disconnect().await;
        scene
    }

    /// Prepares the reason why the call is not granted at once.
    async fn obstruct(&mut self) {
        let (server, id) = (&self.server, self.id);
        match self.case.point.0 {
            Free => {}
            NoDirectory if self.case.kind == Kind::Semaphore => server.delete(LEASES).unwrap(),
            NoDirectory => self
                .case
                .kind
                .paths()
                .iter()
                .for_each(|path| server.delete(path).unwrap()),
            ReplyLost(op, path) => {
                drop(server.drop_reply(request(op, path).session(id), Loss::Close))
            }
            RequestLost(op, path) => {
                drop(server.drop_request(request(op, path).session(id), Loss::Close))
            }
            HeldHere => self.others.push(
                within("the local holder", self.lock.acquire(SOON))
                    .await
                    .unwrap(),
            ),
            Held(PATH) | Queued | Disturbed => {
                let permits = semaphore(&calm(server).await, 3);
                for _ in 0..2 {
                    self.others.push(
                        within("a permit", permits.acquire(SOON))
                            .await
                            .unwrap()
                            .into(),
                    );
                }
            }
            Held(path) | Released(path) => {
                let holder = InterProcessMutex::new(&calm(server).await, path).unwrap();
                self.others
                    .push(within("the holder", holder.lock()).await.unwrap().into());
            }
            Left => {
                let (holder, second) = (calm(server).await, calm(server).await);
                self.others.push(
                    within("the holder", mutex(&holder).lock())
                        .await
                        .unwrap()
                        .into(),
                );
                self.ahead = Some(enqueue(server, &second).await);
            }
        }
        if self.case.point.0 == Queued {
            let attempt = at_head(server, &calm(server).await, 3, 2).await;
            self.head = Some((queue_at(server, LOCKS).remove(0), attempt));
        }
    }

    /// Makes the server hold up the call at the point.
    fn arm(&mut self) {
        let (server, id) = (&self.server, self.id);
        self.gate = match self.case.point.1 {
            Arrived(op, path, nth) => {
                Some(server.hold_request(request(op, path).session(id).nth(nth)))
            }
            Applied(op, path, nth) => {
                Some(server.hold_reply(request(op, path).session(id).nth(nth)))
            }
            WithoutSession => Some(server.hold_request(Match::op(Op::Connect).session(0))),
            Pausing(op, path) => {
                self.pause = Some(server.fail(request(op, path).session(id).times(3), THROTTLED));
                None
            }
            Waiting | InMemory | Disconnected => None,
        };
    }

    async fn disconnect(&self) {
        let mut states = self.client.watch_state();
        let becomes = match self.case.point.1 {
            Disconnected => {
                self.server.refuse_connections(true);
                assert!(self.server.cut(self.id, Cut::Fin));
                ConnectionState::Suspended
            }
            WithoutSession => {
                assert!(self.server.expire_session(self.id));
                ConnectionState::Lost
            }
            _ => ConnectionState::Connected,
        };
        within("the state", states.wait_for(|state| *state == becomes))
            .await
            .unwrap();
    }

    /// Waits until the call that has been started is at the point.
    pub(super) async fn reached(&mut self) {
        let (way, stop, _) = self.case.point;
        if stop == Waiting || matches!(way, Released(_) | Left | Disturbed) {
            let (id, watched) = (self.id, self.watched());
            let watches =
                move |view: View<'_>| watched.iter().all(|path| view.watches_on(path) == [id]);
            until(&self.server, &self.what("the watch"), watches).await;
        }
        let stray = format!("{LEASES}/stray");
        match way {
            Released(_) => self.clear_the_way().await,
            Left => self.ahead.take().unwrap().attempt.abort(),
            Disturbed => self.server.create(&stray, "").unwrap(),
            _ => {}
        }
        // Without a session the gate holds another request, and a wait in memory sends none.
        if let (Some(gate), true) = (&self.gate, stop != WithoutSession) {
            within(&self.what("the gate"), gate.wait_hit()).await;
        }
        if let Some(pause) = &self.pause {
            within("two failures", pause.wait_hits(2)).await;
        }
        if way == Disturbed {
            self.server.delete(&stray).unwrap();
        }
    }

    /// Returns the nodes that a waiting call watches.
    fn watched(&self) -> Vec<String> {
        match (&self.head, &self.ahead) {
            (Some((node, _)), _) => vec![node.clone()],
            (_, Some(ahead)) => vec![ahead.node.to_string()],
            _ if self.case.kind == Kind::Semaphore => vec![LEASES.to_owned(), LIMIT.to_owned()],
            _ => self
                .others
                .iter()
                .flat_map(|held| &held.nodes)
                .map(NodePath::to_string)
                .collect(),
        }
    }

    /// Lets the server continue with what it has held up. No lock is released.
    pub(super) fn let_go(&self) {
        if let Some(gate) = &self.gate {
            gate.release();
        }
        self.server.refuse_connections(false);
    }

    /// Ends the session, if there is one.
    pub(super) async fn expire(&self) {
        if self.case.point.1 == WithoutSession {
            return;
        }
        assert!(self.server.expire_session(self.id));
        if self.case.point.0 == HeldHere {
            within(
                "the loss of what the session held",
                self.others[0].guard.lost(),
            )
            .await;
        }
    }

    /// Releases the locks and permits that the call waits for.
    pub(super) async fn clear_the_way(&mut self) {
        for held in self.others.drain(..) {
            let released = within("the release", held.guard.release()).await;
            // The holds of this client may be lost already, with its session.
            assert!(
                released.is_ok() || self.case.point.0 == HeldHere,
                "{released:?}"
            );
        }
        if let Some((_, attempt)) = self.head.take() {
            within("the permits", attempt)
                .await
                .unwrap()
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }

    pub(super) fn what(&self, how: &str) -> String {
        format!("{:?}, {how}", self.case)
    }

    /// Returns all nodes that exist.
    fn nodes(&self) -> Vec<String> {
        self.case
            .kind
            .directories()
            .iter()
            .flat_map(|path| queue_at(&self.server, path))
            .collect()
    }

    /// Asserts that no nodes exist but those of others.
    pub(super) async fn assert_only_others(&self, how: &str) {
        let what = self.what(how);
        let held = self
            .others
            .iter()
            .filter(|held| held.guard.is_held())
            .flat_map(|held| &held.nodes);
        let head = self.head.iter().map(|(node, _)| node.clone());
        let others: Vec<String> = head.chain(held.map(NodePath::to_string)).collect();
        assert_eq!(self.nodes(), others, "{what}");
    }

    /// Asserts that nothing is left of the call, and that its client can still acquire the lock.
    pub(super) async fn assert_nothing_left(&mut self, how: &str) {
        let what = self.what(how);
        within(&what, self.client.flush(SOON)).await.unwrap();
        self.assert_only_others(how).await;
        let (id, nodes) = (self.id, self.nodes());
        let unwatched = move |view: View<'_>| {
            nodes
                .iter()
                .all(|node| !view.watches_on(node).contains(&id))
        };
        until(
            &self.server,
            &format!("the end of its watches: {what}"),
            unwatched,
        )
        .await;
        self.clear_the_way().await;
        self.assert_clean(&self.lock, how).await;
    }

    /// Waits until no node exists.
    pub(super) async fn until_free(&self, how: &str) {
        let directories = self.case.kind.directories();
        let empty = |view: View<'_>| {
            directories
                .iter()
                .all(|path| view.children(path).is_empty())
        };
        until(
            &self.server,
            &format!("empty directories: {}", self.what(how)),
            empty,
        )
        .await;
    }

    /// Asserts that no node and no watch is left once all have released their locks, and that the
    /// next call is granted the lock.
    async fn assert_clean(&self, lock: &Lock, how: &str) {
        let what = self.what(how);
        self.until_free(how).await;
        for path in self.case.kind.directories() {
            // The write uses up a watch on the data of the directory, which
            // `in_process::assert_clean` describes.
            let _ = self.server.set_data(path, "");
        }
        until(
            &self.server,
            &format!("the end of all watches: {what}"),
            |view| view.watches() == 0,
        )
        .await;
        let granted = within(&what, lock.acquire(SOON)).await.unwrap();
        assert_eq!(self.nodes(), granted.nodes, "{what}");
        assert!(
            granted.slots.is_empty() || granted.slots == [0, 1],
            "{what}: {:?}",
            granted.slots
        );
        granted.guard.release().await.unwrap();
    }

    /// Asserts that the session of a closed client has ended, that nothing is left of the call, and
    /// that another client is granted the lock.
    pub(super) async fn assert_clean_for_others(&mut self, how: &str) {
        let id = self.id;
        assert!(
            self.server
                .sessions()
                .iter()
                .all(|session| session.id != id),
            "{}",
            self.what(how)
        );
        self.assert_only_others(how).await;
        self.clear_the_way().await;
        let other = calm(&self.server).await;
        self.assert_clean(&Lock::new(self.case.kind, &other), how)
            .await;
    }

    /// Asserts that the call is granted its lock once.
    pub(super) async fn assert_served(
        &self,
        attempt: JoinHandle<Result<Grant, AcquireError>>,
        how: &str,
    ) {
        let what = self.what(how);
        let mut granted = within(&what, attempt).await.unwrap().unwrap();
        if !granted.nodes.iter().all(|node| self.server.exists(node)) {
            // The grant is that of an answer that was on its way when the session ended. The lock
            // is lost once the client knows of the end.
            assert!(
                self.server
                    .sessions()
                    .iter()
                    .all(|session| session.id != self.id),
                "{what}"
            );
            within(&what, granted.guard.lost()).await;
            granted = within(&what, self.lock.acquire(SOON)).await.unwrap();
        }
        assert!(granted.guard.is_held(), "{what}");
        let (directories, nodes) = (self.case.kind.directories(), granted.nodes.len());
        let alone = move |view: View<'_>| {
            directories
                .iter()
                .flat_map(|path| view.children(path))
                .count()
                == nodes
        };
        until(&self.server, &format!("no other node: {what}"), alone).await;
        assert_eq!(self.nodes(), granted.nodes, "{what}");
        let stats: Vec<_> = granted
            .nodes
            .iter()
            .map(|node| self.server.node(node).unwrap())
            .collect();
        assert!(
            stats
                .iter()
                .all(|node| node.ephemeral_owner == session(&self.client)),
            "{what}"
        );
        let created = stats.iter().map(|node| node.czxid);
        assert!(
            created
                .zip(&granted.tokens)
                .all(|(created, token)| created == *token),
            "{what}"
        );
        granted.guard.release().await.unwrap();
    }

    pub(super) fn assert_same_session(&self, how: &str) {
        if self.case.point.1 != WithoutSession {
            assert_eq!(session(&self.client), self.id, "{}", self.what(how));
        }
    }

    /// Asserts that the error of a deadline that passed at the point names other contenders only if
    /// the call has seen some.
    pub(super) fn assert_late(&self, error: &AcquireError) {
        let Case {
            kind,
            point: (way, _, expected),
        } = self.case;
        let is_busy = match error {
            AcquireError::TimedOut {
                waited, contention, ..
            } => {
                assert!(
                    *waited >= LATE && (kind != Kind::Semaphore || contention.ahead > 0),
                    "{error}"
                );
                true
            }
            error if error.kind() == Some(ErrorKind::Connection) => false,
            error => panic!("{}: {error}", self.what("late")),
        };
        assert!(
            expected.is_none_or(|expected| is_busy == expected),
            "{}: {error}",
            self.what("late")
        );
        assert!(kind.paths().contains(&error.path()), "{error}");
        if let (Held(path), true) = (way, is_busy) {
            assert_eq!(error.path(), path);
        }
    }
}
